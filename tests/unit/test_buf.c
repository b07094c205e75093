/* Buffers: growth, consuming, the failed state, and JSON text out of any bytes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>

#include "base/buf.h"

static char pattern(size_t i)
{
	return (char)(i * 131 + (i >> 8) * 17 + 7);
}

static void check_pattern(const struct buf *b, size_t from, size_t n)
{
	struct str v = buf_view(b);

	assert_false(b->failed);
	assert_int_equal(v.n, n);
	for (size_t i = 0; i < n; i++)
		if (v.p[i] != pattern(from + i))
			fail_msg("byte %zu of %zu is wrong", i, n);
}

static void add_pattern(struct buf *b, size_t from, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		char c = pattern(from + i);

		buf_add(b, &c, 1);
	}
}

static void test_empty(void **state)
{
	struct buf b = {0};

	assert_int_equal(buf_view(&b).n, 0);
	assert_non_null(buf_view(&b).p);
	buf_add(&b, NULL, 0);
	buf_add_z(&b, "");
	buf_add_json(&b, STR_LIT(""));
	buf_consume(&b, 0);
	buf_reset(&b);
	assert_int_equal(b.len, 0);
	assert_false(b.failed);
	buf_free(&b);
	buf_free(&b);
	assert_null(b.mem);
}

static void test_growth(void **state)
{
	static const size_t sizes[] = {1, 2, 255, 256, 257, 511, 512, 513, 70000};

	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		struct buf b = {0};

		add_pattern(&b, 0, sizes[i]);
		check_pattern(&b, 0, sizes[i]);
		assert_true(b.cap >= sizes[i]);
		assert_true(b.cap <= (sizes[i] < 256 ? 256 : 2 * sizes[i]));
		buf_free(&b);
	}
}

static void test_reserve_and_commit(void **state)
{
	struct buf b = {0};
	char *to = buf_reserve(&b, 1000);

	assert_non_null(to);
	assert_int_equal(b.len, 0); /* nothing is in before the commit */
	for (size_t i = 0; i < 1000; i++)
		to[i] = pattern(i);
	buf_commit(&b, 600);
	check_pattern(&b, 0, 600);
	assert_non_null(buf_reserve(&b, 0));
	buf_free(&b);
	assert_non_null(buf_reserve(&b, 0)); /* no byte asked for is no failure */
	assert_false(b.failed);
	buf_free(&b);
}

/* A queue of constant length must not grow, however much goes through it. */
static void test_room_is_used_again(void **state)
{
	struct buf b = {0};
	size_t in = 0, out = 0;

	while (in < 1000000) {
		add_pattern(&b, in, 97);
		in += 97;
		while (in - out > 150) {
			check_pattern(&b, out, in - out);
			buf_consume(&b, 50);
			out += 50;
		}
	}
	assert_true(b.cap <= 512);
	check_pattern(&b, out, in - out);
	buf_consume(&b, in - out);
	assert_int_equal(b.off, 0); /* all of it is room again */
	buf_free(&b);
}

static void test_consume_then_grow(void **state)
{
	struct buf b = {0};

	add_pattern(&b, 0, 250);
	buf_consume(&b, 100);
	add_pattern(&b, 250, 5000); /* moves and grows with live bytes that do not begin at 0 */
	check_pattern(&b, 100, 5150);
	buf_reset(&b);
	assert_int_equal(b.len, 0);
	assert_non_null(b.mem);
	add_pattern(&b, 0, 10);
	check_pattern(&b, 0, 10);
	buf_free(&b);
}

static void test_failed_stays(void **state)
{
	struct buf b = {0};

	buf_add_z(&b, "kept");
	assert_null(buf_reserve(&b, SIZE_MAX - 1)); /* wraps around: no such room */
	assert_true(b.failed);
	buf_add_z(&b, "x");
	buf_printf(&b, "%d", 1);
	buf_add_json(&b, STR_LIT("\""));
	assert_null(buf_reserve(&b, 1));
	assert_true(b.failed);
	assert_int_equal(b.len, 4);
	buf_reset(&b);
	assert_false(b.failed);
	buf_add_z(&b, "again");
	assert_true(str_eq(buf_view(&b), STR_LIT("again")));
	buf_free(&b);
	/* Larger than any memory, without a wrap. */
	assert_null(buf_reserve(&b, SIZE_MAX / 2 + 2));
	assert_true(b.failed);
	buf_free(&b);
	assert_false(b.failed);
}

static void test_printf(void **state)
{
	static const size_t sizes[] = {0, 1, 126, 127, 128, 129, 255, 256, 4000};
	char text[4001];
	struct buf b = {0};

	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		for (size_t k = 0; k < sizes[i]; k++)
			text[k] = (char)('a' + k % 26);
		text[sizes[i]] = '\0';
		buf_printf(&b, "%s", text);
		assert_false(b.failed);
		assert_true(str_eq(buf_view(&b), str_from(text)));
		buf_reset(&b);
	}
	buf_printf(&b, "<%d %s>", -5, "x");
	buf_printf(&b, "%c", '\0'); /* counted, not ended */
	assert_int_equal(b.len, 7);
	assert_memory_equal(buf_view(&b).p, "<-5 x>", 7);
	buf_free(&b);
}

/* Reads the inside of a JSON string as RFC 8259 7 says, and accepts no byte beyond printable ASCII. */
static size_t unescape(struct str s, unsigned char *out)
{
	size_t n = 0;

	for (size_t i = 0; i < s.n; i++) {
		unsigned char c = (unsigned char)s.p[i];
		char hex[5] = {0}, *end;

		assert_in_range(c, 0x20, 0x7e);
		assert_int_not_equal(c, '"');
		if (c != '\\') {
			out[n++] = c;
			continue;
		}
		assert_true(++i < s.n);
		if (s.p[i] == '"' || s.p[i] == '\\') {
			out[n++] = (unsigned char)s.p[i];
			continue;
		}
		assert_int_equal(s.p[i], 'u');
		assert_true(i + 4 < s.n);
		memcpy(hex, s.p + i + 1, 4);
		out[n++] = (unsigned char)strtoul(hex, &end, 16);
		assert_ptr_equal(end, hex + 4);
		assert_memory_equal(hex, "00", 2);
		i += 4;
	}
	return n;
}

static void test_json_every_byte(void **state)
{
	unsigned char all[512], back[512];
	struct buf b = {0};

	for (size_t i = 0; i < 256; i++) {
		unsigned char c = (unsigned char)i;

		buf_add_json(&b, (struct str){(char *)&c, 1});
		assert_int_equal(unescape(buf_view(&b), back), 1);
		assert_int_equal(back[0], c);
		assert_int_equal(b.len, c == '"' || c == '\\' ? 2 : c >= 0x20 && c < 0x7f ? 1 : 6);
		buf_reset(&b);
	}
	/* All pairs of neighbours in one text: every run of plain bytes ends and begins somewhere. */
	for (size_t i = 0; i < 512; i++)
		all[i] = (unsigned char)(i < 256 ? i : 511 - i);
	buf_add_json(&b, (struct str){(char *)all, 512});
	assert_int_equal(unescape(buf_view(&b), back), 512);
	assert_memory_equal(all, back, 512);
	buf_free(&b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_empty),
		cmocka_unit_test(test_growth),
		cmocka_unit_test(test_reserve_and_commit),
		cmocka_unit_test(test_room_is_used_again),
		cmocka_unit_test(test_consume_then_grow),
		cmocka_unit_test(test_failed_stays),
		cmocka_unit_test(test_printf),
		cmocka_unit_test(test_json_every_byte),
	};

	return cmocka_run_group_tests_name("buf", tests, NULL, NULL);
}
