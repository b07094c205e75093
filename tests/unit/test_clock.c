/* Clocks and the stamp of log lines. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <cmocka.h>

#include "base/clock.h"

static const uint64_t SECOND = 1000000000u;

static void check(uint64_t ns, const char *want)
{
	char out[CLOCK_STAMP_LEN + 1];

	memset(out, 'x', sizeof(out));
	clock_stamp(ns, out);
	assert_string_equal(out, want);
	assert_int_equal(strlen(out), CLOCK_STAMP_LEN);
}

static void test_stamp(void **state)
{
	check(0, "1970-01-01T00:00:00.000Z");
	check(999999, "1970-01-01T00:00:00.000Z");
	check(1000000, "1970-01-01T00:00:00.001Z");
	check(SECOND - 1, "1970-01-01T00:00:00.999Z"); /* cut, not rounded into the next second */
	check(951782399 * SECOND, "2000-02-28T23:59:59.000Z");
	check(951782400 * SECOND, "2000-02-29T00:00:00.000Z");
	check(1709164799 * SECOND + 123456789, "2024-02-28T23:59:59.123Z");
	check(1796083644 * SECOND + 50000000, "2026-12-01T00:07:24.050Z");
	check(4107542400u * SECOND, "2100-03-01T00:00:00.000Z");
	check(4102444799u * SECOND, "2099-12-31T23:59:59.000Z");
	check(16725225599u * SECOND, "2499-12-31T23:59:59.000Z");
}

/* The stamp is UTC whatever the place. */
static void test_stamp_zone(void **state)
{
	setenv("TZ", "America/New_York", 1);
	tzset();
	check(1709164799 * SECOND, "2024-02-28T23:59:59.000Z");
	unsetenv("TZ");
	tzset();
}

static void test_real_clocks(void **state)
{
	uint64_t last = clock_mono_ns(), ms = clock_mono_ms();
	int64_t wall = (int64_t)(clock_wall_ns() / SECOND) - (int64_t)time(NULL);

	assert_in_range(wall + 2, 0, 4);
	for (int i = 0; i < 10000; i++) {
		uint64_t now = clock_mono_ns();

		assert_true(now >= last);
		last = now;
	}
	assert_true(clock_mono_ms() >= ms);
	assert_true(last / 1000000 >= ms);
}

static uint64_t own_source(void *arg)
{
	return *(uint64_t *)arg;
}

static void test_source(void **state)
{
	uint64_t now = 5 * SECOND + 1999999;

	clock_set_source(own_source, &now);
	assert_int_equal(clock_mono_ns(), now);
	assert_int_equal(clock_mono_ms(), 5001);
	now++;
	assert_int_equal(clock_mono_ms(), 5002);
	assert_true(clock_wall_ns() > 1500000000u * SECOND); /* the wall clock stays real */
	clock_set_source(NULL, NULL);
	assert_true(clock_mono_ns() != now);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_stamp),
		cmocka_unit_test(test_stamp_zone),
		cmocka_unit_test(test_real_clocks),
		cmocka_unit_test(test_source),
	};

	return cmocka_run_group_tests_name("clock", tests, NULL, NULL);
}
