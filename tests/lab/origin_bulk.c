/* The behaviour "bulk" of origin.c: it does what its first line says.
 *
 * The line, up to '\n', not part of the counts it asks for: words KEY=NUMBER, or a KEY alone:
 *   up=N     expect N bytes of the pattern; more, fewer or other bytes are an error in the record
 *   down=N   send N bytes of the pattern (from the start, beside reading)
 *   eof      send only after the client's end of input
 *   delay=MS send only after so long
 *   rate=N   read N bytes a second at most;  srate=N  send so many at most
 *   reset=N  reset after N bytes sent;  upreset=N  reset after N bytes read
 *   raw      do not compare what comes (the fastest)
 *   stay     do not close after sending: wait for the client's end
 *   tag=N    a number to find the record by
 * A word that is not of these, or whose number is none, ends the connection as a mismatch: a test with a typing error must
 * not pass.
 *
 * When `down` is sent and `up` read, the connection is closed. The pattern has period 65521, so no power-of-two slip
 * goes unseen.
 * On error: the connection ends with a reset or a close and its record says why; others go on. There is no shutdown: the
 * lab ends the process. */
#include "origin.h"
#include "number.h"
#include <string.h>
#include <sys/socket.h>

static char pattern[PERIOD * 2 + BUFFER];

void bulk_init(void)
{
	for (size_t i = 0; i < sizeof pattern; i++) {
		size_t at = i % PERIOD;

		pattern[i] = (char)(at * 131 + (at >> 8) * 17 + 7);
	}
}

/* Takes one word: KEY=NUMBER or KEY. */
static bool bulk_word(struct conn *c, const char *word, uint64_t *ret_delay)
{
	const struct {
		const char *key;
		uint64_t *number; /* NULL: a key alone */
		uint64_t max;     /* milliseconds and rates are multiplied: they must not overflow */
		bool *flag;
	} words[] = {
		{ "up", &c->up, UINT64_MAX, NULL },
		{ "down", &c->down, UINT64_MAX, NULL },
		{ "eof", NULL, 0, &c->after_eof },
		{ "delay", ret_delay, UINT32_MAX, NULL },
		{ "rate", &c->rate, UINT32_MAX, NULL },
		{ "srate", &c->srate, UINT32_MAX, NULL },
		{ "reset", &c->reset_at, UINT64_MAX, &c->has_reset },
		{ "upreset", &c->upreset_at, UINT64_MAX, &c->has_upreset },
		{ "raw", NULL, 0, &c->raw },
		{ "stay", NULL, 0, &c->stay },
		{ "tag", &records[c->record].tag, UINT64_MAX, NULL },
	};
	size_t len = strcspn(word, "=");

	for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
		if (strlen(words[i].key) != len || memcmp(words[i].key, word, len) != 0)
			continue;
		if (words[i].number ? !word[len] || !read_number(word + len + 1, 0, words[i].max, words[i].number) : word[len])
			return false;
		if (words[i].flag)
			*words[i].flag = true;
		return true;
	}
	return false;
}

static bool bulk_line(struct conn *c)
{
	uint64_t delay = 0;

	if (strlen(c->line) != c->line_len) /* a NUL would hide what stands behind it */
		return false;
	for (char *word = c->line + strspn(c->line, " \r"); *word;) {
		char *end = word + strcspn(word, " \r"), *next = end + strspn(end, " \r");

		*end = 0;
		if (!bulk_word(c, word, &delay))
			return false;
		word = next;
	}
	c->start_ms = now_ms();
	if (delay)
		c->not_before_ms = c->start_ms + delay;
	if (c->rate || c->srate || c->not_before_ms)
		conn_pace(c);
	return true;
}

/* How much a rate allows by now, beyond what was moved. */
static uint64_t allowance(const struct conn *c, uint64_t rate, uint64_t moved)
{
	uint64_t may;

	if (!rate)
		return UINT64_MAX;
	may = (now_ms() - c->start_ms + 20) * rate / 1000;
	return may > moved ? may - moved : 0;
}

static bool bulk_take(struct conn *c, const char *p, size_t n)
{
	if (!c->line_done) {
		while (n) {
			char ch = *p++;

			n--;
			if (ch == '\n') {
				c->line_done = true;
				c->line[c->line_len] = 0;
				if (!bulk_line(c)) {
					conn_end(c, END_MISMATCH);
					return false;
				}
				break;
			}
			if (c->line_len + 1 >= sizeof c->line) {
				conn_end(c, END_MISMATCH);
				return false;
			}
			c->line[c->line_len++] = ch;
		}
	}
	while (n) {
		size_t at = c->up_seen % PERIOD, m = n < PERIOD ? n : PERIOD;

		if (!c->raw && memcmp(pattern + at, p, m) != 0) {
			conn_end(c, END_MISMATCH);
			return false;
		}
		c->up_seen += m;
		p += m;
		n -= m;
	}
	return true;
}

static void bulk_read(struct conn *c)
{
	for (int turn = 0; turn < TURN && c->readable && c->fd >= 0; turn++) {
		uint64_t may = c->line_done ? allowance(c, c->rate, c->up_seen) : BUFFER;
		size_t want = may < BUFFER ? (size_t)may : BUFFER;
		bool blind = c->line_done && c->raw;
		ssize_t k;

		if (!want)
			return;
		if (c->line_done && c->has_upreset && want > c->upreset_at - c->up_seen)
			want = c->upreset_at - c->up_seen;
		k = conn_recv(c, blind ? NULL : buffer, blind ? BUFFER * 4 : want, blind ? MSG_TRUNC : 0);
		if (k <= 0)
			return;
		if (blind)
			c->up_seen += (uint64_t)k;
		else if (!bulk_take(c, buffer, (size_t)k))
			return;
		if (c->line_done && c->has_upreset && c->up_seen >= c->upreset_at) {
			conn_end(c, END_RESET);
			return;
		}
	}
}

static void bulk_write(struct conn *c)
{
	if (!c->line_done || (c->after_eof && !c->eof_in) || c->not_before_ms > now_ms())
		return;
	for (int turn = 0; turn < TURN && c->writable && c->fd >= 0 && c->down_sent < c->down; turn++) {
		uint64_t left = c->down - c->down_sent, may = allowance(c, c->srate, c->down_sent);
		int k;

		left = left < may ? left : may;
		if (c->has_reset && left > c->reset_at - c->down_sent)
			left = c->reset_at - c->down_sent;
		if (!left)
			break;
		k = conn_send(c, pattern + c->down_sent % PERIOD, left < BUFFER ? (size_t)left : BUFFER);
		if (k < 0)
			return;
		c->down_sent += (uint64_t)k;
	}
	if (c->fd >= 0 && c->has_reset && c->down_sent >= c->reset_at)
		conn_end(c, END_RESET);
}

void bulk_turn(struct conn *c)
{
	bulk_read(c);
	if (c->fd >= 0)
		bulk_write(c);
	if (c->fd < 0)
		return;
	if (c->eof_in && (!c->line_done || c->up_seen < c->up)) {
		conn_end(c, END_MISMATCH);
	} else if (!c->raw && c->line_done && c->up_seen > c->up) {
		conn_end(c, END_MISMATCH);
	} else if (c->line_done && c->down_sent == c->down && c->up_seen >= c->up && !c->has_reset && !c->has_upreset) {
		if (!c->stay || c->eof_in)
			conn_end(c, c->eof_in ? END_EOF : END_DONE);
	}
}

bool bulk_has_work(const struct conn *c)
{
	if (c->readable && !c->eof_in && !c->rate)
		return true;
	return c->writable && c->line_done && c->down_sent < c->down && !c->srate && (!c->after_eof || c->eof_in) &&
	       c->not_before_ms <= now_ms();
}
