/* Sets of blocks: the longest match with the port, against a walk over all items; and that big sets stay fast. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <cmocka.h>

#include "policy/addrset.h"

#define N(array) (sizeof(array) / sizeof((array)[0]))

enum { P80 = 1, P443 = 2, BOTH = 3 };

static struct addr_prefix block(const char *text)
{
	struct addr_prefix p;

	assert_int_equal(addr_prefix_parse(str_from(text), &p), 0);
	return p;
}

static struct addr address(const char *text)
{
	struct addr a;

	assert_true(addr_parse(str_from(text), &a));
	return a;
}

static void add(struct addrset *s, const char *text, uint8_t ports, uint32_t line)
{
	assert_int_equal(addrset_add(s, block(text), (struct portset){ports}, line), 0);
}

/* The line that decides, 0 for none. */
static uint32_t find(const struct addrset *s, const char *text, uint16_t port)
{
	struct addr a = address(text);
	const struct addrset_item *it = addrset_find(s, &a, port);

	return it ? it->line : 0;
}

static void test_empty(void **state)
{
	struct addrset s = {0};

	assert_int_equal(find(NULL, "8.8.8.8", 443), 0);
	assert_int_equal(find(&s, "8.8.8.8", 443), 0);
	addrset_seal(&s);
	assert_int_equal(find(&s, "8.8.8.8", 443), 0);
	addrset_clear(&s);
	addrset_clear(NULL);
}

static void test_longest_with_port(void **state)
{
	struct addrset s = {0};

	add(&s, "93.184.0.0/16", BOTH, 1);
	add(&s, "93.184.216.0/24", P443, 2);
	add(&s, "93.184.216.34/32", P80, 3);
	add(&s, "2001:db8::/32", P443, 4);
	add(&s, "2001:db8:1::/48", P80, 5);
	addrset_seal(&s);
	assert_int_equal(find(&s, "93.184.216.34", 80), 3);
	assert_int_equal(find(&s, "93.184.216.34", 443), 2);
	assert_int_equal(find(&s, "93.184.216.34", 0), 3);
	assert_int_equal(find(&s, "::ffff:93.184.216.34", 443), 2);
	assert_int_equal(find(&s, "93.184.216.35", 80), 1);
	assert_int_equal(find(&s, "93.184.216.35", 443), 2);
	assert_int_equal(find(&s, "93.184.216.35", 22), 0); /* no set holds it */
	assert_int_equal(find(&s, "93.184.217.0", 443), 1);
	assert_int_equal(find(&s, "93.183.255.255", 443), 0);
	assert_int_equal(find(&s, "93.185.0.0", 443), 0);
	assert_int_equal(find(&s, "2001:db8:1::5", 443), 4);
	assert_int_equal(find(&s, "2001:db8:1::5", 80), 5);
	assert_int_equal(find(&s, "2001:db8:2::5", 80), 0);
	assert_int_equal(find(&s, "2001:db8:2::5", 443), 4);
	addrset_clear(&s);
}

static void test_families(void **state)
{
	struct addrset s = {0};

	add(&s, "::/0", BOTH, 1);
	add(&s, "10.0.0.0/8", BOTH, 2);
	addrset_seal(&s);
	assert_int_equal(find(&s, "10.1.1.1", 443), 2);
	assert_int_equal(find(&s, "11.1.1.1", 443), 0);
	assert_int_equal(find(&s, "::1", 443), 1);
	assert_int_equal(find(&s, "::1:0:0:0", 443), 1); /* stands behind all of IPv4 in the order */
	assert_int_equal(find(&s, "2001:db8::1", 443), 1);
	addrset_clear(&s);
	add(&s, "0.0.0.0/0", BOTH, 3); /* cleared, so it may be filled again */
	addrset_seal(&s);
	assert_int_equal(find(&s, "11.1.1.1", 443), 3);
	assert_int_equal(find(&s, "2001:db8::1", 443), 0);
	addrset_clear(&s);
}

/* Equal blocks: the lowest line that opens the port, and no more entries kept than ports. */
static void test_equal_blocks(void **state)
{
	struct addrset s = {0};

	add(&s, "10.0.0.0/8", BOTH, 9);
	add(&s, "10.0.0.0/8", P443, 5);
	add(&s, "10.0.0.0/8", P80, 7);
	add(&s, "10.0.0.0/8", P443, 6);
	add(&s, "10.0.0.0/8", 0, 8);
	add(&s, "10.0.0.0/16", 0, 4);
	addrset_seal(&s);
	assert_int_equal(find(&s, "10.1.1.1", 443), 5);
	assert_int_equal(find(&s, "10.1.1.1", 80), 7);
	assert_int_equal(find(&s, "10.1.1.1", 0), 5);
	assert_int_equal(find(&s, "10.0.0.1", 0), 4);
	assert_int_equal(find(&s, "10.0.0.1", 80), 7);
	assert_int_equal(s.n, 3);
	addrset_seal(&s); /* again: nothing changes */
	assert_int_equal(s.n, 3);
	addrset_clear(&s);
}

/* --- against a walk over the items as they were added --- */

struct plain {
	struct addr_prefix prefix;
	uint8_t ports;
	uint32_t line;
};

static uint64_t seed = 0x2545f4914f6cdd1du;

static uint32_t rnd(void)
{
	seed ^= seed << 13, seed ^= seed >> 7, seed ^= seed << 17;
	return (uint32_t)(seed >> 24);
}

static struct addr random_addr(bool v4)
{
	struct addr a = {.b = {[10] = 0xff, [11] = 0xff}};

	/* few values in the high bytes, so that blocks nest and addresses fall into them */
	for (int i = v4 ? 12 : 0; i < 16; i++)
		a.b[i] = (uint8_t)(rnd() % 4 == 0 ? rnd() : rnd() % 3 * 85);
	return a;
}

static struct addr_prefix random_block(void)
{
	bool v4 = rnd() % 2;
	struct addr_prefix p = {random_addr(v4), (uint8_t)(v4 ? 96 + rnd() % 33 : rnd() % 129)};

	for (int i = p.len; i < 128; i++)
		p.base.b[i / 8] &= (uint8_t)~(0x80 >> (i % 8));
	return p;
}

static const struct plain *walk(const struct plain *items, size_t n, const struct addr *a, uint16_t port)
{
	const struct plain *best = NULL;
	uint8_t bit = port == 80 ? P80 : port == 443 ? P443 : 0;

	for (size_t i = 0; i < n; i++) {
		if (!addr_in_prefix(a, &items[i].prefix) || (port != 0 && !(items[i].ports & bit)))
			continue;
		if (!best || items[i].prefix.len > best->prefix.len ||
		    (items[i].prefix.len == best->prefix.len && items[i].line < best->line))
			best = &items[i];
	}
	return best;
}

static void test_against_walk(void **state)
{
	static const uint16_t ports[] = {0, 80, 443, 8080};

	for (int round = 0; round < 300; round++) {
		struct plain items[200];
		size_t n = rnd() % N(items);
		struct addrset s = {0};

		for (size_t i = 0; i < n; i++) {
			items[i] = (struct plain){random_block(), (uint8_t)(rnd() % 4), (uint32_t)i + 1};
			if (i > 0 && rnd() % 4 == 0)
				items[i].prefix = items[rnd() % i].prefix;
			assert_int_equal(addrset_add(&s, items[i].prefix, (struct portset){items[i].ports},
						     items[i].line), 0);
		}
		addrset_seal(&s);
		for (int k = 0; k < 400; k++) {
			struct addr a = n && k % 2 ? items[rnd() % n].prefix.base : random_addr(rnd() % 2);
			uint16_t port = ports[rnd() % N(ports)];
			const struct plain *want = walk(items, n, &a, port);
			const struct addrset_item *got = addrset_find(&s, &a, port);

			assert_int_equal(got ? got->line : 0, want ? want->line : 0);
		}
		addrset_clear(&s);
	}
}

static struct addr apart(uint32_t i)
{
	return addr_from_v4((const uint8_t[]){(uint8_t)(i >> 16), (uint8_t)(i >> 8), (uint8_t)i, 77});
}

/* 100 000 blocks in the shapes that hurt a naive set: one block over and over, a deep nest with no open port, and many
 * apart. A lookup that walked them would take minutes here; the bound is loose enough for a sanitizer on a busy
 * machine. */
static void test_big(void **state)
{
	enum { BLOCKS = 100000, LOOKUPS = 300000 };

	for (int shape = 0; shape < 3; shape++) {
		struct addrset s = {0};
		struct addr probe = address("77.77.77.77");
		clock_t t = clock();

		for (uint32_t i = 0; i < BLOCKS; i++) {
			struct addr_prefix p = {probe, 128};

			if (shape == 1)
				p.len = (uint8_t)(96 + i % 33);
			else if (shape == 2)
				p.base = apart(i);
			for (int k = p.len; k < 128; k++)
				p.base.b[k / 8] &= (uint8_t)~(0x80 >> (k % 8));
			assert_int_equal(addrset_add(&s, p, (struct portset){P80}, i + 1), 0);
		}
		addrset_seal(&s);
		assert_int_equal(s.n, shape == 0 ? 1 : shape == 1 ? 33 : BLOCKS);
		for (uint32_t i = 0; i < LOOKUPS; i++) {
			struct addr a = shape == 2 ? apart(i % BLOCKS) : probe;

			assert_null(addrset_find(&s, &a, 443));
			assert_non_null(addrset_find(&s, &a, 80));
		}
		assert_true((double)(clock() - t) / CLOCKS_PER_SEC < 20);
		addrset_clear(&s);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_empty),        cmocka_unit_test(test_longest_with_port),
		cmocka_unit_test(test_families),
		cmocka_unit_test(test_equal_blocks), cmocka_unit_test(test_against_walk),
		cmocka_unit_test(test_big),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
