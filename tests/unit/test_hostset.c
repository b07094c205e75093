/* Host sets: label boundaries, which rule wins, ports, and random rules against a plain search. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <stdio.h>
#include <cmocka.h>

#include "hostset.h"

static const struct portset only_80 = {1}, only_443 = {2};

static uint32_t find(const struct hostset *s, const char *name, uint16_t port)
{
	return hostset_find(s, str_from(name), port);
}

static void add(struct hostset *s, const char *name, bool wildcard, struct portset ports, uint32_t line)
{
	assert_int_equal(hostset_add(s, str_from(name), wildcard, ports, line), 0);
}

static void test_empty(void **state)
{
	struct hostset s = {0};

	assert_int_equal(find(&s, "example.org", 443), 0);
	assert_int_equal(find(&s, "", 0), 0);
	hostset_clear(&s);
	hostset_clear(&s);
}

static void test_boundaries(void **state)
{
	struct hostset s = {0};

	add(&s, "example.org", true, portset_all(), 1);
	add(&s, "example.net", false, portset_all(), 2);
	assert_int_equal(find(&s, "a.example.org", 443), 1);
	assert_int_equal(find(&s, "a.b.c.d.example.org", 80), 1);
	assert_int_equal(find(&s, "example.org", 443), 0);
	assert_int_equal(find(&s, "notexample.org", 443), 0);
	assert_int_equal(find(&s, "example.org.example.com", 443), 0);
	assert_int_equal(find(&s, "ample.org", 443), 0);
	assert_int_equal(find(&s, "org", 443), 0);
	assert_int_equal(find(&s, "example.net", 443), 2);
	assert_int_equal(find(&s, "a.example.net", 443), 0);
	assert_int_equal(find(&s, "example.ne", 443), 0);
	assert_int_equal(find(&s, "example.nett", 443), 0);
	hostset_clear(&s);
}

static void test_which_rule(void **state)
{
	struct hostset s = {0};

	add(&s, "org", true, portset_all(), 1);
	add(&s, "b.example.org", true, portset_all(), 2);
	add(&s, "example.org", true, portset_all(), 3);
	add(&s, "a.b.example.org", false, only_80, 4);
	assert_int_equal(find(&s, "x.org", 443), 1);
	assert_int_equal(find(&s, "x.example.org", 443), 3);
	assert_int_equal(find(&s, "x.b.example.org", 443), 2);
	assert_int_equal(find(&s, "a.b.example.org", 80), 4);
	assert_int_equal(find(&s, "a.b.example.org", 443), 2);
	assert_int_equal(find(&s, "a.b.example.org", 0), 4);
	hostset_clear(&s);
}

static void test_ports(void **state)
{
	struct hostset s = {0};

	add(&s, "example.org", false, only_443, 7);
	assert_int_equal(find(&s, "example.org", 80), 0);
	assert_int_equal(find(&s, "example.org", 443), 7);
	assert_int_equal(find(&s, "example.org", 0), 7);
	assert_int_equal(find(&s, "example.org", 8443), 0);
	add(&s, "example.org", false, portset_all(), 9);
	add(&s, "example.org", false, only_80, 10);
	assert_int_equal(find(&s, "example.org", 80), 9);
	assert_int_equal(find(&s, "example.org", 443), 7);
	assert_int_equal(s.n, 1);
	add(&s, "example.org", true, only_80, 11);
	assert_int_equal(find(&s, "example.org", 443), 7);
	assert_int_equal(find(&s, "x.example.org", 443), 0);
	assert_int_equal(find(&s, "x.example.org", 80), 11);
	hostset_clear(&s);
}

/* The longest name there is: 127 labels of one byte. */
static void test_longest(void **state)
{
	struct hostset s = {0};
	char name[254];

	for (int i = 0; i < 253; i++)
		name[i] = i % 2 ? '.' : 'a';
	name[253] = '\0';
	add(&s, name, false, portset_all(), 1);
	add(&s, "a.a", true, portset_all(), 2);
	assert_int_equal(find(&s, name, 443), 1);
	assert_int_equal(find(&s, name + 2, 443), 2);
	hostset_clear(&s);
}

struct plain_rule {
	char name[16];
	bool wildcard;
	struct portset ports;
};

/* The definition, said the long way: exact before wildcard, longer before shorter, first line first. */
static uint32_t plain_find(const struct plain_rule *rules, size_t n, struct str name, uint16_t port)
{
	size_t best_len = 0;
	uint32_t best = 0;

	for (size_t i = 0; i < n; i++) {
		struct str rule = str_from(rules[i].name);
		bool below = name.n > rule.n + 1 && str_ends(name, rule) && name.p[name.n - rule.n - 1] == '.';
		size_t len = rules[i].wildcard ? rule.n : 1000;

		if (rules[i].wildcard ? !below : !str_eq(name, rule))
			continue;
		if ((port == 0 || portset_has(rules[i].ports, port)) && len > best_len) {
			best = (uint32_t)i + 1;
			best_len = len;
		}
	}
	return best;
}

static void random_name(char out[16], unsigned *seed)
{
	int labels = 1 + rand_r(seed) % 4, k = 0;

	for (int i = 0; i < labels; i++)
		k += snprintf(out + k, 16 - (size_t)k, "%s%c", i ? "." : "", 'a' + rand_r(seed) % 3);
}

static void test_random(void **state)
{
	unsigned seed = 7;

	for (int round = 0; round < 200; round++) {
		struct plain_rule rules[60];
		struct hostset s = {0};
		size_t n = (size_t)(rand_r(&seed) % 60);

		for (size_t i = 0; i < n; i++) {
			random_name(rules[i].name, &seed);
			rules[i].wildcard = rand_r(&seed) % 2;
			rules[i].ports.bits = (uint8_t)(rand_r(&seed) % 4);
			add(&s, rules[i].name, rules[i].wildcard, rules[i].ports, (uint32_t)i + 1);
		}
		for (int q = 0; q < 200; q++) {
			static const uint16_t ports[] = {0, 80, 443, 22};
			char name[16];
			uint16_t port = ports[rand_r(&seed) % 4];

			random_name(name, &seed);
			assert_int_equal(find(&s, name, port), plain_find(rules, n, str_from(name), port));
		}
		hostset_clear(&s);
	}
}

static void test_many(void **state)
{
	struct hostset s = {0};
	char name[32];

	for (uint32_t i = 1; i <= 100000; i++) {
		snprintf(name, sizeof(name), "h%u.example.org", i);
		add(&s, name, i % 2, portset_all(), i);
	}
	for (uint32_t i = 1; i <= 100000; i++) {
		snprintf(name, sizeof(name), "%sh%u.example.org", i % 2 ? "x." : "", i);
		assert_int_equal(find(&s, name, 443), i);
		snprintf(name, sizeof(name), "%sh%u.example.org", i % 2 ? "" : "x.", i);
		assert_int_equal(find(&s, name, 443), 0);
	}
	hostset_clear(&s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_empty),      cmocka_unit_test(test_boundaries), cmocka_unit_test(test_which_rule),
		cmocka_unit_test(test_ports),      cmocka_unit_test(test_longest),    cmocka_unit_test(test_random),
		cmocka_unit_test(test_many),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
