/* race: which address to dial next, and when (RFC 8305 4, 5 and 8).
 *
 * addrs[0..started) have been started, in that order; addrs[started..n) wait. New candidates change only the waiting
 * part: it is ordered anew, one family and the other in turn, beginning with the family that was not started last
 * (IPv6 at the very beginning). An address is in the list once, however often it is told.
 *
 * The next attempt starts when the delay since the last start is over, or at once when an attempt fails; earlier
 * ones go on. After LIMIT_ATTEMPTS no more are started, whatever waits. The race is over when all that started
 * failed and nothing can be started any more. Winning is the caller's business: he stops asking. */
#include "net/race.h"

#include <string.h>

void race_init(struct race *r)
{
	memset(r, 0, sizeof(*r));
}

static bool listed(const struct race *r, const struct addr *a)
{
	for (size_t i = 0; i < r->n; i++)
		if (addr_equal(&r->addrs[i], a))
			return true;
	return false;
}

/* Orders the waiting part by families in turn, keeping the order within each (RFC 8305 4, First Address Family Count
 * 1). */
static void interleave(struct race *r)
{
	struct addr family[2][LIMIT_ANSWER_ADDRESSES]; /* 0: IPv6, 1: IPv4 */
	size_t count[2] = {0, 0}, used[2] = {0, 0};
	int turn = r->started > 0 && !addr_is_v4(&r->addrs[r->started - 1]);

	for (size_t i = r->started; i < r->n; i++) {
		int f = addr_is_v4(&r->addrs[i]);

		family[f][count[f]++] = r->addrs[i];
	}
	for (size_t i = r->started; i < r->n; i++) {
		if (used[turn] == count[turn])
			turn = !turn;
		r->addrs[i] = family[turn][used[turn]++];
		turn = !turn;
	}
}

void race_candidates(struct race *r, const struct addr *addrs, size_t n, bool complete)
{
	for (size_t i = 0; i < n && r->n < LIMIT_ANSWER_ADDRESSES; i++)
		if (!listed(r, &addrs[i]))
			r->addrs[r->n++] = addrs[i];
	interleave(r);
	if (complete)
		r->complete = true;
}

void race_attempt_failed(struct race *r, size_t i, uint64_t now_ms)
{
	if (i >= r->started || r->state[i] != RACE_DIALING)
		return;
	r->state[i] = RACE_FAILED;
	r->failed++;
	r->next_start_ms = now_ms;
}

enum race_do race_next(struct race *r, uint64_t now_ms, size_t *ret_i, uint64_t *ret_wake_ms)
{
	if (r->started < r->n && r->started < LIMIT_ATTEMPTS) {
		if (r->started > 0 && now_ms < r->next_start_ms) {
			*ret_wake_ms = r->next_start_ms;
			return RACE_WAIT;
		}
		r->state[r->started] = RACE_DIALING;
		r->next_start_ms = now_ms + LIMIT_ATTEMPT_DELAY_MS;
		*ret_i = r->started++;
		return RACE_START;
	}
	if (r->failed == r->started && (r->complete || r->started == LIMIT_ATTEMPTS))
		return RACE_OVER;
	*ret_wake_ms = 0;
	return RACE_WAIT;
}
