/* The text forms of addresses and blocks: what is read, what is refused, what is written. */
#include <arpa/inet.h>
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "policy/addr.h"

#define N(array) (sizeof(array) / sizeof((array)[0]))

/* A heap copy of exactly the text, so that a read past its end is seen by the sanitizers. */
static bool parse_exact(struct str text, struct addr *ret)
{
	char *p = malloc(text.n ? text.n : 1);
	bool ok;

	memcpy(p, text.p, text.n);
	ok = addr_parse((struct str){p, text.n}, ret);
	free(p);
	return ok;
}

static void test_canonical(void **state)
{
	/* text, canonical text; the second must be a fixed point */
	static const char *const cases[][2] = {
		{"0.0.0.0", "0.0.0.0"},
		{"127.0.0.1", "127.0.0.1"},
		{"255.255.255.255", "255.255.255.255"},
		{"10.20.30.40", "10.20.30.40"},
		{"::", "::"},
		{"::1", "::1"},
		{"0:0:0:0:0:0:0:0", "::"},
		{"0000:0000:0000:0000:0000:0000:0000:0001", "::1"},
		/* the mapped form is IPv4, in every spelling */
		{"::ffff:127.0.0.1", "127.0.0.1"},
		{"::FFFF:7f00:1", "127.0.0.1"},
		{"0000:0000:0000:0000:0000:ffff:7f00:0001", "127.0.0.1"},
		{"0:0:0:0:0:ffff:169.254.169.254", "169.254.169.254"},
		{"::ffff:0:0", "0.0.0.0"},
		{"0000:0000:0000:0000:0000:ffff:255.255.255.255", "255.255.255.255"},
		/* look-alikes are not */
		{"::127.0.0.1", "::7f00:1"},
		{"::ffff", "::ffff"},
		{"::ffff:0:127.0.0.1", "::ffff:0:7f00:1"},
		{"::fffe:7f00:1", "::fffe:7f00:1"},
		{"1::ffff:7f00:1", "1::ffff:7f00:1"},
		{"64:ff9b::192.0.2.33", "64:ff9b::c000:221"},
		/* RFC 5952 4.1 to 4.3 */
		{"2001:0DB8::0001", "2001:db8::1"},
		{"2001:db8:0:0:0:0:2:1", "2001:db8::2:1"},
		{"2001:db8:0:1:1:1:1:1", "2001:db8:0:1:1:1:1:1"},
		{"2001:db8::1:1:1:1:1", "2001:db8:0:1:1:1:1:1"},
		{"2001:0:0:1:0:0:0:1", "2001:0:0:1::1"},
		{"2001:db8:0:0:1:0:0:1", "2001:db8::1:0:0:1"},
		{"1:0:0:0:0:0:0:0", "1::"},
		{"1:2:3:4:5:6:0:0", "1:2:3:4:5:6::"},
		{"1:2:3:4:5:6:7::", "1:2:3:4:5:6:7:0"},
		{"::2:3:4:5:6:7:8", "0:2:3:4:5:6:7:8"},
		{"AbCd:EF01:2345:6789:abcd:ef01:2345:6789", "abcd:ef01:2345:6789:abcd:ef01:2345:6789"},
		{"ffff:ffff:ffff:ffff:ffff:ffff:255.255.255.255", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"},
	};

	for (size_t i = 0; i < N(cases); i++) {
		char text[ADDR_TEXT_MAX], again[ADDR_TEXT_MAX];
		struct addr a, b;
		size_t n;

		if (!parse_exact(str_from(cases[i][0]), &a))
			fail_msg("%s was refused", cases[i][0]);
		n = addr_format(&a, text);
		assert_int_equal(n, strlen(text));
		assert_string_equal(text, cases[i][1]);
		assert_true(parse_exact(str_from(text), &b));
		assert_true(addr_equal(&a, &b));
		addr_format(&b, again);
		assert_string_equal(again, text);
	}
}

static void test_refused(void **state)
{
	static const struct str cases[] = {
		STR_LIT(""), STR_LIT("."), STR_LIT(":"), STR_LIT("..."), STR_LIT("/"), STR_LIT("x"),
		/* what inet_aton() takes */
		STR_LIT("0"), STR_LIT("1"), STR_LIT("127.1"), STR_LIT("1.2.3"), STR_LIT("0x7f.1"),
		STR_LIT("0x7f000001"),
		STR_LIT("2130706433"), STR_LIT("0177.0.0.1"), STR_LIT("017700000001"), STR_LIT("127.0.0.1 "),
		STR_LIT("127.0.0.1\n"), STR_LIT("127.0.0.1 x"), STR_LIT("127.0.0.0x1"), STR_LIT("01200034567"),
		/* near a dotted quad */
		STR_LIT("127.0.0.1."), STR_LIT(".127.0.0.1"), STR_LIT("127..0.1"), STR_LIT("127.0.0.1.1"),
		STR_LIT("0.0.0.0.0"), STR_LIT("256.0.0.1"), STR_LIT("1.2.3.256"), STR_LIT("1.2.3.1000"),
		STR_LIT("00.0.0.0"), STR_LIT("0.0.0.00"), STR_LIT("1.2.3.04"), STR_LIT("1.2.3.-4"), STR_LIT("1.2.3.+4"),
		STR_LIT(" 1.2.3.4"), STR_LIT("1.2. 3.4"), STR_LIT("1.2.3.4/32"), STR_LIT("1.2.3.4:80"),
		STR_LIT("127.0.0.1\0"), STR_LIT("127.0.0.1\0.example"), STR_LIT("\0"), STR_LIT("1.2.3.\0"),
		STR_LIT("\xef\xbc\x91.2.3.4"), /* full-width digit one */
		/* near IPv6 */
		STR_LIT("[::1]"), STR_LIT("::1%1"), STR_LIT("fe80::1%eth0"), STR_LIT("fe80::1%25eth0"),
		STR_LIT("::1/128"),
		STR_LIT(":::"), STR_LIT("1::2::3"), STR_LIT("1:2:3:4:5:6:7"), STR_LIT("1:2:3:4:5:6:7:8:9"),
		STR_LIT("1:2:3:4:5:6:7:"), STR_LIT(":1:2:3:4:5:6:7"), STR_LIT("1:2:3:4::5:6:7:8"), STR_LIT("::g"),
		STR_LIT("::12345"), STR_LIT("::00001"), STR_LIT("::1 "), STR_LIT(" ::1"), STR_LIT("::1\0"),
		STR_LIT("::1\0::"),
		STR_LIT("::ffff:127.0.0.01"), STR_LIT("::ffff:0177.0.0.1"), STR_LIT("::ffff:127.1"),
		STR_LIT("::ffff:1.2.3.256"),
		STR_LIT("::ffff:0x7f.0.0.1"), STR_LIT("::ffff:127.0.0.1."), STR_LIT("::127.0.0.1:1"),
		STR_LIT("1.2.3.4::"),
		STR_LIT("1:2:3:4:5:6:7:1.2.3.4"), STR_LIT("::ffff:127.0.0.1%eth0"), STR_LIT("v1.fe80::a+en1"),
		STR_LIT("0000:0000:0000:0000:0000:0000:0000:0000:0000:1"), STR_LIT("::ffff:2130706433"),
		STR_LIT("00000000000000000000000000000000000000000000::"),
		STR_LIT("0:0:0:0:0:0:0:0:0:0:0:0:0:0:0:0:0:0:0:0:0:1"),
	};

	for (size_t i = 0; i < N(cases); i++) {
		struct addr a, before;

		memset(&a, 0x5a, sizeof(a));
		before = a;
		if (parse_exact(cases[i], &a))
			fail_msg("%.*s was read", STR_ARG(cases[i]));
		assert_memory_equal(&a, &before, sizeof(a));
	}
	/* every byte value in the middle of an address, the NUL among them */
	for (int c = 0; c < 256; c++) {
		char quad[] = "1.2.3.?", six[] = "::?";
		struct addr a;

		quad[6] = six[2] = (char)c;
		assert_int_equal(parse_exact((struct str){quad, 7}, &a), c >= '0' && c <= '9');
		assert_int_equal(parse_exact((struct str){six, 3}, &a),
				 (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F'));
	}
}

/* Each value of each octet, and its spellings with a zero in front. */
static void test_octets(void **state)
{
	for (int at = 0; at < 4; at++)
		for (int v = 0; v < 1000; v++) {
			char text[32];
			int o[4] = {1, 2, 3, 4}, n;
			struct addr a;

			o[at] = v;
			n = snprintf(text, sizeof(text), "%d.%d.%d.%d", o[0], o[1], o[2], o[3]);
			assert_int_equal(parse_exact((struct str){text, (size_t)n}, &a), v <= 255);
			if (v <= 255) {
				assert_true(addr_is_v4(&a));
				assert_int_equal(a.b[12 + at], v);
			}
			n = snprintf(text, sizeof(text), at == 0 ? "0%d.%d.%d.%d" : at == 1 ? "%d.0%d.%d.%d" :
				     at == 2 ? "%d.%d.0%d.%d" : "%d.%d.%d.0%d", o[0], o[1], o[2], o[3]);
			assert_false(parse_exact((struct str){text, (size_t)n}, &a));
		}
}

/* Against the C library: whatever we write it reads as the same bytes, and it never reads less strictly than it
 * says. */
static void test_against_libc(void **state)
{
	uint64_t x = 88172645463325252u;

	for (int i = 0; i < 200000; i++) {
		char text[ADDR_TEXT_MAX], libc[INET6_ADDRSTRLEN];
		uint8_t b[16], back[16];
		struct addr a, c;

		for (int k = 0; k < 16; k++) {
			x ^= x << 13, x ^= x >> 7, x ^= x << 17;
			b[k] = (x >> 20) % 3 == 0 ? (uint8_t)(x >> 40) : 0; /* many zeros, for the runs */
		}
		a = addr_from_v6(b);
		addr_format(&a, text);
		if (addr_is_v4(&a)) {
			assert_int_equal(inet_pton(AF_INET, text, back + 12), 1);
			assert_memory_equal(back + 12, b + 12, 4);
		} else {
			assert_int_equal(inet_pton(AF_INET6, text, back), 1);
			assert_memory_equal(back, b, 16);
			inet_ntop(AF_INET6, b, libc, sizeof(libc));
			if (!strchr(libc, '.'))
				assert_string_equal(text, libc);
		}
		assert_true(parse_exact(str_from(text), &c));
		assert_true(addr_equal(&a, &c));
	}
}

static void test_prefix(void **state)
{
	static const struct {
		const char *text;
		int rc;
		const char *canonical; /* of the block, or of the one meant */
		int len;
	} cases[] = {
		{"10.0.0.0/8", 0, "10.0.0.0/8", 104},
		{"0.0.0.0/0", 0, "0.0.0.0/0", 96},
		{"1.2.3.4/32", 0, "1.2.3.4/32", 128},
		{"93.184.216.0/24", 0, "93.184.216.0/24", 120},
		{"::/0", 0, "::/0", 0},
		{"::/96", 0, "::/96", 96},
		{"2000::/3", 0, "2000::/3", 3},
		{"2001:DB8::/32", 0, "2001:db8::/32", 32},
		{"::1/128", 0, "::1/128", 128},
		{"::ffff:10.0.0.0/104", 0, "10.0.0.0/8", 104}, /* bits as written: of IPv6 */
		{"::ffff:0:0/96", 0, "0.0.0.0/0", 96},
		{"10.0.0.1/8", -EDOM, "10.0.0.0/8", 104},
		{"10.128.0.0/8", -EDOM, "10.0.0.0/8", 104},
		{"192.168.1.1/31", -EDOM, "192.168.1.0/31", 127},
		{"1.2.3.4/0", -EDOM, "0.0.0.0/0", 96},
		{"2001:db8::1/32", -EDOM, "2001:db8::/32", 32},
		{"2001:db8::/31", 0, "2001:db8::/31", 31},
		{"2001:db9::/31", -EDOM, "2001:db8::/31", 31},
		{"::1/0", -EDOM, "::/0", 0},
		{"", -EINVAL, NULL, 0},
		{"/", -EINVAL, NULL, 0},
		{"/8", -EINVAL, NULL, 0},
		{"10.0.0.0", -EINVAL, NULL, 0},
		{"10.0.0.0/", -EINVAL, NULL, 0},
		{"10.0.0.0/33", -EINVAL, NULL, 0},
		{"10.0.0.0/08", -EINVAL, NULL, 0},
		{"10.0.0.0/00", -EINVAL, NULL, 0},
		{"10.0.0.0/+8", -EINVAL, NULL, 0},
		{"10.0.0.0/-8", -EINVAL, NULL, 0},
		{"10.0.0.0/ 8", -EINVAL, NULL, 0},
		{"10.0.0.0/8 ", -EINVAL, NULL, 0},
		{"10.0.0.0/8/8", -EINVAL, NULL, 0},
		{"10.0.0.0/0x8", -EINVAL, NULL, 0},
		{"10.0.0.0/255.0.0.0", -EINVAL, NULL, 0},
		{"10.0/8", -EINVAL, NULL, 0},
		{"10/8", -EINVAL, NULL, 0},
		{"010.0.0.0/8", -EINVAL, NULL, 0},
		{"::/129", -EINVAL, NULL, 0},
		{"::/256", -EINVAL, NULL, 0},
		{"::/4294967296", -EINVAL, NULL, 0},
		{"[::]/0", -EINVAL, NULL, 0},
		{"fe80::%eth0/10", -EINVAL, NULL, 0},
		{"example.org/8", -EINVAL, NULL, 0},
	};

	for (size_t i = 0; i < N(cases); i++) {
		struct addr_prefix p, again;
		char text[ADDR_TEXT_MAX + 4];
		size_t n;

		memset(&p, 0x5a, sizeof(p));
		again = p;
		if (addr_prefix_parse(str_from(cases[i].text), &p) != cases[i].rc)
			fail_msg("%s", cases[i].text);
		if (!cases[i].canonical) {
			assert_memory_equal(&p, &again, sizeof(p));
			continue;
		}
		assert_int_equal(p.len, cases[i].len);
		n = addr_prefix_format(&p, text);
		assert_int_equal(n, strlen(text));
		assert_string_equal(text, cases[i].canonical);
		assert_int_equal(addr_prefix_parse(str_from(text), &again), 0);
		assert_true(again.len == p.len && addr_equal(&again.base, &p.base));
	}
	assert_int_equal(addr_prefix_parse(STR_LIT("10.0.0.0/8\0"), &(struct addr_prefix){0}), -EINVAL);
	assert_int_equal(addr_prefix_parse(STR_LIT("10.0.0.0\0/8"), &(struct addr_prefix){0}), -EINVAL);
}

static void test_in_prefix(void **state)
{
	static const struct {
		const char *block, *addr;
		bool in;
	} cases[] = {
		{"10.0.0.0/8", "10.0.0.0", true},
		{"10.0.0.0/8", "10.255.255.255", true},
		{"10.0.0.0/8", "11.0.0.0", false},
		{"10.0.0.0/8", "::ffff:10.1.2.3", true},
		{"10.0.0.0/8", "::10.1.2.3", false},
		{"172.16.0.0/12", "172.15.255.255", false},
		{"172.16.0.0/12", "172.31.255.255", true},
		{"172.16.0.0/12", "172.32.0.0", false},
		{"1.2.3.4/32", "1.2.3.4", true},
		{"1.2.3.4/32", "1.2.3.5", false},
		{"0.0.0.0/0", "8.8.8.8", true},
		{"0.0.0.0/0", "::", false},
		{"0.0.0.0/0", "2001:db8::1", false},
		/* families stay apart, though the bits would fit */
		{"::/0", "2001:db8::1", true},
		{"::/0", "::1", true},
		{"::/0", "8.8.8.8", false},
		{"::/8", "8.8.8.8", false},
		{"::/80", "::ffff:8.8.8.8", false},
		{"::1/128", "::1", true},
		{"2000::/3", "3fff:ffff::", true},
		{"2000::/3", "4000::", false},
	};

	for (size_t i = 0; i < N(cases); i++) {
		struct addr_prefix p;
		struct addr a;

		assert_int_equal(addr_prefix_parse(str_from(cases[i].block), &p), 0);
		assert_true(addr_parse(str_from(cases[i].addr), &a));
		if (addr_in_prefix(&a, &p) != cases[i].in)
			fail_msg("%s in %s", cases[i].addr, cases[i].block);
	}
}

static void test_encloses(void **state)
{
	static const struct {
		const char *outer, *inner;
		bool yes;
	} cases[] = {
		{"10.0.0.0/8", "10.1.0.0/16", true},  {"10.0.0.0/8", "10.0.0.0/8", true},
		{"10.1.0.0/16", "10.0.0.0/8", false}, {"10.0.0.0/8", "11.0.0.0/16", false},
		{"::/0", "10.0.0.0/8", true},         {"::/0", "::/0", true},
		{"2000::/3", "3fff::/20", true},      {"2000::/3", "4000::/3", false},
	};

	for (size_t i = 0; i < N(cases); i++) {
		struct addr_prefix o, p;

		assert_int_equal(addr_prefix_parse(str_from(cases[i].outer), &o), 0);
		assert_int_equal(addr_prefix_parse(str_from(cases[i].inner), &p), 0);
		assert_int_equal(addr_prefix_encloses(&o, &p), cases[i].yes);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_canonical),    cmocka_unit_test(test_refused), cmocka_unit_test(test_octets),
		cmocka_unit_test(test_against_libc), cmocka_unit_test(test_prefix),  cmocka_unit_test(test_in_prefix),
		cmocka_unit_test(test_encloses),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
