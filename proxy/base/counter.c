/* counter: per-thread blocks of relaxed atomics, kept in a list that only grows; a reader walks it.
 *
 * A thread that never attached counts into a shared block, so that nothing is lost when it matters little. Blocks live
 * as long as the process: the sums never go back. */
#include "base/counter.h"

#include <errno.h>
#include <stdlib.h>

static struct counter_block shared;
static struct counter_block *_Atomic head = &shared;
_Thread_local struct counter_block *counter_here = &shared;

static const struct counter_row rows[COUNTER_N] = {
#define C(name, metric, labels, kind, help) {metric, labels, #kind, help},
#include "base/counter.def"
#undef C
};

int counter_attach(void)
{
	struct counter_block *b = calloc(1, sizeof(*b));

	if (!b)
		return -ENOMEM;
	b->next = atomic_load(&head);
	while (!atomic_compare_exchange_weak(&head, &b->next, b))
		;
	counter_here = b;
	return 0;
}

uint64_t counter_sum(enum counter c)
{
	uint64_t sum = 0;

	for (struct counter_block *b = atomic_load(&head); b; b = b->next)
		sum += atomic_load_explicit(&b->v[c], memory_order_relaxed);
	return sum;
}

uint64_t counter_sum_decided(enum verdict v)
{
	uint64_t sum = 0;

	for (struct counter_block *b = atomic_load(&head); b; b = b->next)
		sum += atomic_load_explicit(&b->decided[v], memory_order_relaxed);
	return sum;
}

const struct counter_row *counter_row(enum counter c)
{
	return &rows[c];
}
