/* Counters: what threads count adds up, for ever. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <pthread.h>
#include <cmocka.h>

#include "base/counter.h"

enum { THREADS = 4, ROUNDS = 20000 };

static void test_unattached(void **state)
{
	uint64_t before = counter_sum(COUNTER_LOG_LINES);

	/* A thread without a block of its own counts into the shared one. */
	counter_inc(COUNTER_LOG_LINES);
	assert_int_equal(counter_sum(COUNTER_LOG_LINES), before + 1);
}

struct run {
	_Atomic int at_work;
	pthread_barrier_t start;
};

static void *count_much(void *arg)
{
	struct run *run = arg;

	if (counter_attach() < 0)
		return NULL;
	pthread_barrier_wait(&run->start);
	for (uint64_t i = 0; i < ROUNDS; i++) {
		counter_add(COUNTER_BYTES_UP, i);
		counter_inc(COUNTER_CONNECTIONS_OPEN);
		counter_decided(VERDICT_HOST_DENIED);
		if (i % 2)
			counter_sub(COUNTER_CONNECTIONS_OPEN, 1);
	}
	atomic_fetch_sub(&run->at_work, 1);
	return run;
}

static void test_threads(void **state)
{
	uint64_t up = counter_sum(COUNTER_BYTES_UP), open = counter_sum(COUNTER_CONNECTIONS_OPEN),
		 denied = counter_sum_decided(VERDICT_HOST_DENIED), last = up;
	struct run run = {.at_work = THREADS};
	pthread_t t[THREADS];

	pthread_barrier_init(&run.start, NULL, THREADS);
	for (int i = 0; i < THREADS; i++)
		assert_int_equal(pthread_create(&t[i], NULL, count_much, &run), 0);
	while (atomic_load(&run.at_work)) { /* a reader sees a counter grow and never go back */
		uint64_t now = counter_sum(COUNTER_BYTES_UP);

		assert_true(now >= last);
		last = now;
	}
	for (int i = 0; i < THREADS; i++) {
		void *ok;

		pthread_join(t[i], &ok);
		assert_ptr_equal(ok, &run);
	}
	pthread_barrier_destroy(&run.start);
	/* The threads are gone, their counts are not. */
	assert_int_equal(counter_sum(COUNTER_BYTES_UP) - up, (uint64_t)THREADS * ROUNDS * (ROUNDS - 1) / 2);
	assert_int_equal(counter_sum(COUNTER_CONNECTIONS_OPEN) - open, THREADS * ROUNDS / 2);
	assert_int_equal(counter_sum_decided(VERDICT_HOST_DENIED) - denied, THREADS * ROUNDS);
}

static void *take_away(void *arg)
{
	if (counter_attach() < 0)
		return NULL;
	counter_sub(COUNTER_TUNNELS_OPEN, 3);
	return arg;
}

/* A gauge may go up in one thread and down in another. */
static void test_gauge_over_threads(void **state)
{
	uint64_t before = counter_sum(COUNTER_TUNNELS_OPEN);
	pthread_t t;
	void *ok;

	counter_add(COUNTER_TUNNELS_OPEN, 5);
	assert_int_equal(pthread_create(&t, NULL, take_away, &before), 0);
	pthread_join(t, &ok);
	assert_ptr_equal(ok, &before);
	assert_int_equal(counter_sum(COUNTER_TUNNELS_OPEN), before + 2);
	counter_sub(COUNTER_TUNNELS_OPEN, 2);
	assert_int_equal(counter_sum(COUNTER_TUNNELS_OPEN), before);
}

static void test_wide(void **state)
{
	uint64_t before = counter_sum(COUNTER_BYTES_DOWN);

	counter_add(COUNTER_BYTES_DOWN, 5000000000u);
	counter_add(COUNTER_BYTES_DOWN, 5000000000u);
	assert_true(counter_sum(COUNTER_BYTES_DOWN) - before == 10000000000u);
}

static void test_verdicts_are_apart(void **state)
{
	uint64_t before[VERDICT_N];

	for (int v = 0; v < VERDICT_N; v++)
		before[v] = counter_sum_decided((enum verdict)v);
	for (int v = 0; v < VERDICT_N; v++)
		for (int k = 0; k <= v; k++)
			counter_decided((enum verdict)v);
	for (int v = 0; v < VERDICT_N; v++)
		assert_int_equal(counter_sum_decided((enum verdict)v) - before[v], v + 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_unattached),
		cmocka_unit_test(test_threads),
		cmocka_unit_test(test_gauge_over_threads),
		cmocka_unit_test(test_wide),
		cmocka_unit_test(test_verdicts_are_apart),
	};

	return cmocka_run_group_tests_name("counter", tests, NULL, NULL);
}
