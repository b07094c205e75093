/* The cache on virtual time: what is kept, for how long, and what goes first. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <cmocka.h>

#include "base/clock.h"
#include "net/dnscache.h"

static uint64_t now_ns;

static uint64_t virtual_clock(void *arg)
{
	return now_ns;
}

static void pass_ms(uint64_t ms)
{
	now_ns += ms * 1000000;
}

static int setup(void **state)
{
	now_ns = 77000000000;
	clock_set_source(virtual_clock, NULL);
	return dnscache_new(3, (struct dnscache **)state);
}

static int teardown(void **state)
{
	dnscache_free(*state);
	clock_set_source(NULL, NULL);
	return 0;
}

static struct answer good(uint8_t last, size_t n)
{
	struct answer a = {.status = VERDICT_ALLOW, .complete = true, .n = n};

	for (size_t i = 0; i < n; i++)
		a.addrs[i] = addr_from_v4((const uint8_t[]){93, 184, (uint8_t)i, last});
	return a;
}

static void put(struct dnscache *c, const char *name, struct answer a, uint32_t ttl_s)
{
	dnscache_put(c, str_from(name), &a, ttl_s);
}

static bool has(struct dnscache *c, const char *name)
{
	struct answer a;

	return dnscache_get(c, str_from(name), &a);
}

static void test_content(void **state)
{
	struct dnscache *c = *state;
	struct answer in = good(1, LIMIT_ANSWER_ADDRESSES), out = {0};

	assert_false(has(c, "a.example"));
	assert_false(has(c, ""));
	put(c, "a.example", in, 60);
	assert_true(dnscache_get(c, STR_LIT("a.example"), &out));
	assert_int_equal(out.status, VERDICT_ALLOW);
	assert_true(out.complete);
	assert_true(out.cached);
	assert_int_equal(out.n, in.n);
	for (size_t i = 0; i < in.n; i++)
		assert_true(addr_equal(&out.addrs[i], &in.addrs[i]));
	assert_false(has(c, "a.exampl"));
	assert_false(has(c, "a.example."));
	put(c, "a.example", good(2, 1), 60); /* replaces */
	assert_true(dnscache_get(c, STR_LIT("a.example"), &out));
	assert_int_equal(out.n, 1);
	assert_int_equal(out.addrs[0].b[15], 2);
	assert_int_equal(dnscache_count(c), 1);
}

static void assert_kept_ms(struct dnscache *c, struct answer a, uint32_t ttl_s, uint64_t ms)
{
	put(c, "ttl.example", a, ttl_s);
	pass_ms(ms - 1);
	assert_true(has(c, "ttl.example"));
	pass_ms(1);
	assert_false(has(c, "ttl.example"));
	assert_int_equal(dnscache_count(c), 0);
}

static void test_ttl(void **state)
{
	struct answer none = {.status = VERDICT_DNS_NOT_FOUND, .complete = true};

	assert_kept_ms(*state, good(1, 1), 60, 60000);
	assert_kept_ms(*state, good(1, 1), 0, LIMIT_TTL_MIN_S * 1000);
	assert_kept_ms(*state, good(1, 1), UINT32_MAX, LIMIT_TTL_MAX_S * 1000);
	assert_kept_ms(*state, none, 3, 3000);
	assert_kept_ms(*state, none, 3600, LIMIT_TTL_NEGATIVE_S * 1000);
}

/* Asking does not prolong. */
static void test_hits_do_not_prolong(void **state)
{
	struct dnscache *c = *state;

	put(c, "a.example", good(1, 1), 10);
	for (int i = 0; i < 9; i++) {
		pass_ms(1000);
		assert_true(has(c, "a.example"));
	}
	pass_ms(1000);
	assert_false(has(c, "a.example"));
}

static void test_eviction(void **state)
{
	struct dnscache *c = *state;

	put(c, "a.example", good(1, 1), 100);
	put(c, "b.example", good(2, 1), 100);
	put(c, "c.example", good(3, 1), 100);
	assert_true(has(c, "a.example")); /* now b is the one not asked for the longest */
	put(c, "d.example", good(4, 1), 100);
	assert_int_equal(dnscache_count(c), 3);
	assert_false(has(c, "b.example"));
	assert_true(has(c, "a.example"));
	assert_true(has(c, "c.example"));
	assert_true(has(c, "d.example"));
	put(c, "a.example", good(5, 1), 100); /* replacing evicts nobody */
	assert_int_equal(dnscache_count(c), 3);
}

static void test_not_kept(void **state)
{
	struct dnscache *c = *state, *none;
	struct answer partial = good(1, 1), large = good(1, 1);

	put(c, "a.example", good(1, 1), 100);
	partial.complete = false;
	put(c, "a.example", partial, 100); /* and what was there is gone: it is older */
	assert_false(has(c, "a.example"));
	large.n = LIMIT_ANSWER_ADDRESSES + 1;
	put(c, "a.example", large, 100);
	assert_false(has(c, "a.example"));
	assert_int_equal(dnscache_new(0, &none), 0);
	put(none, "a.example", good(1, 1), 100);
	assert_false(has(none, "a.example"));
	assert_null(dnscache_free(none));
	assert_null(dnscache_free(NULL));
}

static void test_many(void **state)
{
	struct dnscache *c;
	char name[64];

	assert_int_equal(dnscache_new(500, &c), 0);
	for (unsigned i = 0; i < 5000; i++) {
		snprintf(name, sizeof(name), "n%u.example.org", i);
		put(c, name, good((uint8_t)i, i % (LIMIT_ANSWER_ADDRESSES + 1)), 100);
	}
	assert_int_equal(dnscache_count(c), 500);
	for (unsigned i = 0; i < 5000; i++) {
		struct answer a;

		snprintf(name, sizeof(name), "n%u.example.org", i);
		assert_int_equal(dnscache_get(c, str_from(name), &a), i >= 4500);
		if (i >= 4500) {
			assert_int_equal(a.n, i % (LIMIT_ANSWER_ADDRESSES + 1));
			assert_true(a.n == 0 || a.addrs[a.n - 1].b[15] == (uint8_t)i);
		}
	}
	dnscache_free(c);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
	const struct CMUnitTest tests[] = {
		T(test_content), T(test_ttl), T(test_hits_do_not_prolong), T(test_eviction), T(test_not_kept),
		T(test_many),
	};
#undef T

	return cmocka_run_group_tests_name("dnscache", tests, NULL, NULL);
}
