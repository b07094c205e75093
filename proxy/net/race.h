/* The happy-eyeballs race (RFC 8305) as a pure machine: events and a time go in, "start attempt i", "done" or "failed"
 * and the next moment to be woken come out. No sockets and no clock, so scenarios run on virtual time. */
#ifndef NET_RACE_H
#define NET_RACE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "limits.h"
#include "policy/addr.h"

enum race_attempt_state { RACE_WAITING = 0, RACE_DIALING, RACE_FAILED };

struct race {
	struct addr addrs[LIMIT_ANSWER_ADDRESSES]; /* interleaved by family, IPv6 first (RFC 8305 4) */
	uint8_t state[LIMIT_ANSWER_ADDRESSES];
	size_t n;
	size_t started, failed;
	bool complete;          /* no more addresses will come */
	uint64_t next_start_ms; /* when the next attempt may start at the latest */
};

void race_init(struct race *r);
/* Merges the candidates known so far (judged by the caller); attempts already under way keep their place. */
void race_candidates(struct race *r, const struct addr *addrs, size_t n, bool complete);
void race_attempt_failed(struct race *r, size_t i, uint64_t now_ms);

enum race_do { RACE_WAIT = 0, RACE_START, RACE_OVER };
/* What to do now: RACE_START with *ret_i (the caller starts that attempt and asks again), RACE_WAIT with *ret_wake_ms (0: only
 * for events), or RACE_OVER (every candidate failed and no more will come). */
enum race_do race_next(struct race *r, uint64_t now_ms, size_t *ret_i, uint64_t *ret_wake_ms);

#endif
