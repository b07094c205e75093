/* Counters of counter.def. Each thread counts into a block of its own with relaxed atomics; a reader adds the blocks up.
 * Nothing is lost: a thread that wants to count must have called counter_attach(). */
#ifndef BASE_COUNTER_H
#define BASE_COUNTER_H

#include <stdatomic.h>
#include <stdint.h>

#include "policy/verdict.h"

enum counter {
#define C(name, metric, labels, kind, help) COUNTER_##name,
#include "base/counter.def"
#undef C
	COUNTER_N
};

struct counter_block {
	_Atomic uint64_t v[COUNTER_N];
	_Atomic uint64_t decided[VERDICT_N]; /* requests by verdict */
	struct counter_block *next;
};

struct counter_row {
	const char *metric; /* Prometheus name, "egress_guard_sent_bytes_total" */
	const char *labels; /* fixed label pairs, "" or "direction=\"up\"" */
	const char *kind;   /* "counter" or "gauge" */
	const char *help;
};

extern _Thread_local struct counter_block *counter_here;

/* Gives this thread its block, for as long as the process lives. Returns 0 or -ENOMEM. */
int counter_attach(void);

static inline void counter_add(enum counter c, uint64_t n)
{
	atomic_fetch_add_explicit(&counter_here->v[c], n, memory_order_relaxed);
}
static inline void counter_inc(enum counter c)
{
	counter_add(c, 1);
}
/* Gauges only. */
static inline void counter_sub(enum counter c, uint64_t n)
{
	atomic_fetch_sub_explicit(&counter_here->v[c], n, memory_order_relaxed);
}
static inline void counter_decided(enum verdict v)
{
	atomic_fetch_add_explicit(&counter_here->decided[v], 1, memory_order_relaxed);
}

/* Sums over all blocks, from any thread. */
uint64_t counter_sum(enum counter c);
uint64_t counter_sum_decided(enum verdict v);
const struct counter_row *counter_row(enum counter c);

#endif
