/* Hosts and ports as targets carry them: what is a host, its one canonical form, and the names never looked up. */
#include <arpa/inet.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "policy/host.h"

#define N(array) (sizeof(array) / sizeof((array)[0]))
#define L63 "abcdefghijklmnopqrstuvwxyz0123456789-ABCDEFGHIJKLMNOPQRSTUVWXYZ"
#define A63 "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
#define A61 "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
#define N253 A63 "." A63 "." A63 "." A61

/* A heap copy of exactly the text, so that a read past its end is seen by the sanitizers. */
static bool parse(struct str text, struct host *ret, const char **ret_why)
{
	char *p = malloc(text.n ? text.n : 1);
	bool ok;

	memcpy(p, text.p, text.n);
	ok = host_parse((struct str){p, text.n}, ret, ret_why);
	free(p);
	return ok;
}

static void test_canonical(void **state)
{
	static const struct {
		const char *text, *canonical;
		enum host_kind kind;
		bool bracketed;
	} cases[] = {
		{"example.com", "example.com", HOST_NAME, false},
		{"Example.COM", "example.com", HOST_NAME, false},
		{"example.com.", "example.com", HOST_NAME, false},
		{"EXAMPLE.com.", "example.com", HOST_NAME, false},
		{"localhost", "localhost", HOST_NAME, false},
		{"localhost.", "localhost", HOST_NAME, false},
		{"a", "a", HOST_NAME, false},
		{"_dmarc.example.com", "_dmarc.example.com", HOST_NAME, false},
		{"a_b.example", "a_b.example", HOST_NAME, false},
		{"_", "_", HOST_NAME, false},
		{"xn--fa-hia.example", "xn--fa-hia.example", HOST_NAME, false},
		{"a--b.example", "a--b.example", HOST_NAME, false},
		{"127.0.0.1.nip.io", "127.0.0.1.nip.io", HOST_NAME, false},
		{"169-254-169-254.sslip.io", "169-254-169-254.sslip.io", HOST_NAME, false},
		{"0x7f.example", "0x7f.example", HOST_NAME, false},
		{"1.2.3.4a", "1.2.3.4a", HOST_NAME, false},
		{"1e3", "1e3", HOST_NAME, false},
		{"0x1g", "0x1g", HOST_NAME, false},
		{"00x1", "00x1", HOST_NAME, false},
		{"x0", "x0", HOST_NAME, false},
		{"1-2", "1-2", HOST_NAME, false},
		{"1_2", "1_2", HOST_NAME, false},
		{L63 ".example", NULL, HOST_NAME, false},
		{A63 ".example", A63 ".example", HOST_NAME, false},
		{N253, N253, HOST_NAME, false},
		{N253 ".", N253, HOST_NAME, false},
		{"192.0.2.1", "192.0.2.1", HOST_ADDR, false},
		{"0.0.0.0", "0.0.0.0", HOST_ADDR, false},
		{"255.255.255.255", "255.255.255.255", HOST_ADDR, false},
		{"[::1]", "[::1]", HOST_ADDR, true},
		{"[::]", "[::]", HOST_ADDR, true},
		{"[2001:DB8:0:0:0:0:0:1]", "[2001:db8::1]", HOST_ADDR, true},
		{"[FE8F::1]", "[fe8f::1]", HOST_ADDR, true},
		{"[::ffff:127.0.0.1]", "127.0.0.1", HOST_ADDR, true},
		{"[::ffff:7f00:1]", "127.0.0.1", HOST_ADDR, true},
		{"[::127.0.0.1]", "[::7f00:1]", HOST_ADDR, true},
		{"[64:ff9b::169.254.169.254]", "[64:ff9b::a9fe:a9fe]", HOST_ADDR, true},
		{"[2606:4700:4700::1111]", "[2606:4700:4700::1111]", HOST_ADDR, true},
	};

	for (size_t i = 0; i < N(cases); i++) {
		char text[HOST_TEXT_MAX], again[HOST_TEXT_MAX];
		struct host h, back;
		const char *why = "";
		size_t n;

		if (!parse(str_from(cases[i].text), &h, &why))
			fail_msg("%s was refused: %s", cases[i].text, why);
		assert_int_equal(h.kind, cases[i].kind);
		assert_int_equal(h.bracketed, cases[i].bracketed);
		n = host_format(&h, text);
		assert_int_equal(n, strlen(text));
		if (cases[i].canonical)
			assert_string_equal(text, cases[i].canonical);
		assert_true(parse(str_from(text), &back, NULL));
		host_format(&back, again);
		assert_string_equal(again, text);
		assert_int_equal(back.kind, h.kind);
		if (h.kind == HOST_NAME) {
			assert_true(str_eq(host_name(&h), str_from(text)));
			assert_int_equal(h.name[h.name_len], 0);
			assert_memory_equal(&back, &h, sizeof(h));
		} else {
			assert_true(addr_equal(&back.addr, &h.addr));
			assert_int_equal(addr_is_v4(&h.addr), text[0] != '[');
		}
	}
}

static void test_refused(void **state)
{
	static const struct str cases[] = {
		/* numbers in every spelling but one */
		STR_LIT("0"), STR_LIT("1"), STR_LIT("0x"), STR_LIT("0X"), STR_LIT("0x7f000001"), STR_LIT("0X7F000001"),
		STR_LIT("0x7f.1"), STR_LIT("127.1"), STR_LIT("1.2.3"), STR_LIT("2130706433"), STR_LIT("6425673729"),
		STR_LIT("0177.0.0.1"), STR_LIT("017700000001"), STR_LIT("01200034567"), STR_LIT("08"),
		STR_LIT("127.0.0.08"),
		STR_LIT("256.0.0.1"), STR_LIT("999.1.1.1"), STR_LIT("256.1"), STR_LIT("0.0.0.0.0"),
		STR_LIT("1.2.3.4.5"),
		STR_LIT("127.0.0.1."), STR_LIT("127.0.0.1.."), STR_LIT("2130706433."), STR_LIT("0x7f.1."),
		STR_LIT("0."),
		STR_LIT("127.0.0.0x1"), STR_LIT("1.2.3.0x"), STR_LIT("example.1"), STR_LIT("example.0x1f"),
		STR_LIT("foo.0X"), STR_LIT("example.com.123"), STR_LIT("example.com.123."), STR_LIT("a.00"),
		STR_LIT("99999999999999999999999999"), STR_LIT("0xffffffffffffffffffffff"), STR_LIT("127.0.0.01"),
		/* brackets are for IPv6 */
		STR_LIT("["), STR_LIT("]"), STR_LIT("[]"), STR_LIT("[:]"), STR_LIT("[example.com]"),
		STR_LIT("[denied.example]"),
		STR_LIT("[127.0.0.1]"), STR_LIT("[8.8.8.8]"), STR_LIT("[v1.x]"), STR_LIT("[v1.fe80::a+en1]"),
		STR_LIT("[::g]"),
		STR_LIT("[::1"), STR_LIT("::1]"), STR_LIT("[[::1]]"), STR_LIT("[::1]]"), STR_LIT("[::1]."),
		STR_LIT("[::1]x"),
		STR_LIT("x[::1]"), STR_LIT("[::1] "), STR_LIT("[ ::1]"), STR_LIT("[::1\0]"),
		STR_LIT("[::ffff:127.0.0.1.]"),
		STR_LIT("[::ffff:0177.0.0.1]"), STR_LIT("[::ffff:127.1]"),
		STR_LIT("[0:0:0:0:0:0:0:0:0:0:0:0:0:0:0:0:0:0:0:0:0:0:0:0:0:0:0:0:0:0:0:0:0:0:0:0:0:0:0:0:1]"),
		/* zones */
		STR_LIT("[fe80::1%25eth0]"), STR_LIT("[fe80::1%eth0]"), STR_LIT("[::1%lo]"), STR_LIT("[::1%]"),
		STR_LIT("[::ffff:169.254.169.254%eth0]"), STR_LIT("[::ffff:1.2.3.4%eth0]"), STR_LIT("fe80::1%1"),
		STR_LIT("127.0.0.1%lo"), STR_LIT("example.com%eth0"),
		/* IPv6 without brackets */
		STR_LIT("::1"), STR_LIT("::"), STR_LIT("2001:db8::1"), STR_LIT("::ffff:127.0.0.1"),
		/* ports, paths, userinfo are not the host's */
		STR_LIT("example.com:443"), STR_LIT("example.com:"), STR_LIT("127.0.0.1:80"),
		STR_LIT("user@example.com"),
		STR_LIT("example.com@x"), STR_LIT("@example.com"), STR_LIT("user:pw@example.com"),
		STR_LIT("example.com/foo"),
		STR_LIT("example.com?x"), STR_LIT("example.com#y"), STR_LIT("//example.com"),
		STR_LIT("http://example.com"),
		/* empty labels and lengths */
		STR_LIT(""), STR_LIT("."), STR_LIT(".."), STR_LIT(".example"), STR_LIT("x..example"),
		STR_LIT("example.."),
		STR_LIT("example.com.."), STR_LIT(A63 "a.example"), STR_LIT("example." A63 "a"), STR_LIT(N253 "a"),
		STR_LIT(N253 "a."), STR_LIT(N253 ".."), STR_LIT(A63 "." A63 "." A63 "." A63 "." A63),
		/* hyphens */
		STR_LIT("-"), STR_LIT("-a.example"), STR_LIT("a-.example"), STR_LIT("a.-b"), STR_LIT("a.b-"),
		STR_LIT("a.b-."),
		/* blanks, controls, NUL */
		STR_LIT(" "), STR_LIT(" 127.0.0.1 "), STR_LIT("127.0.0.1\t"), STR_LIT("127.0.0.1 x"),
		STR_LIT("a b.example"),
		STR_LIT("example.com "), STR_LIT("\texample.com"), STR_LIT("example.com\r\n"), STR_LIT("example.com\r"),
		STR_LIT("allowed.example\0.evil.example"), STR_LIT("evil.example\0.allowed.example"),
		STR_LIT("example.com\0"),
		STR_LIT("\0"), STR_LIT("127.0.0.1\0"), STR_LIT("\x1b[31m.example"), STR_LIT("a\x7f.example"),
		/* percent, backslash, the rest of ASCII */
		STR_LIT("%31%32%37.0.0.1"), STR_LIT("127%2e0%2e0%2e1"), STR_LIT("localhos%74"),
		STR_LIT("example.com%00"),
		STR_LIT("allowed.example%00.evil.example"), STR_LIT("example.com%0d%0aX:%20y"),
		STR_LIT("a\\.b.example"),
		STR_LIT("example.com\\x"), STR_LIT("*.example.com"), STR_LIT("*"), STR_LIT("a,b.example"),
		STR_LIT("a;b"),
		STR_LIT("<script>alert(1)</script>"), STR_LIT("a+b.example"), STR_LIT("a'b"), STR_LIT("\"a\""),
		STR_LIT("a~b"),
		/* outside ASCII: full-width digits and dots, soft hyphen, sharp s, Kelvin sign, stray bytes */
		STR_LIT("\xef\xbc\x91\xef\xbc\x92\xef\xbc\x97.0.0.1"), STR_LIT("127\xe3\x80\x82" "0.0.1"),
		STR_LIT("local\xc2\xadhost"), STR_LIT("fa\xc3\x9f.example"), STR_LIT("\xe2\x84\xaa.example"),
		STR_LIT("a\x80.example"), STR_LIT("a\xff"), STR_LIT("a\xa0"), STR_LIT("\xc0\xae"),
	};

	for (size_t i = 0; i < N(cases); i++) {
		struct host h, before;
		const char *why = NULL;

		memset(&h, 0x5a, sizeof(h));
		before = h;
		if (parse(cases[i], &h, &why))
			fail_msg("%.*s was taken for a host", STR_ARG(cases[i]));
		assert_memory_equal(&h, &before, sizeof(h));
		assert_non_null(why);
		assert_true(why[0] && strlen(why) <= 100);
		assert_false(parse(cases[i], &h, NULL));
	}
}

/* Any single byte at each place of a name: letters, digits and '_' always, '-' inside, '.' as one trailing dot. */
static void test_each_byte(void **state)
{
	for (int c = 0; c < 256; c++)
		for (size_t at = 0; at < 5; at++) {
			char text[5] = {'a', 'b', 'c', 'd', 'e'};
			struct host h;
			bool plain = ascii_is_alpha((char)c) || ascii_is_digit((char)c) || c == '_';
			bool want = plain || (c == '-' && at > 0 && at < 4) || (c == '.' && at > 0);

			text[at] = (char)c;
			if (parse((struct str){text, 5}, &h, NULL) != want)
				fail_msg("byte %d at %zu", c, at);
		}
}

static void test_reasons(void **state)
{
	static const char *const cases[][2] = {
		{"", "empty"},            {"user@example.com", "userinfo"}, {"[::1%lo]", "zones"},
		{"a%20b", "percent"},
		{"::1", "brackets"},      {"f\xc3\xa4.example", "xn--"},    {"a b", "blanks"},
		{"127.1", "dotted-quad"},
		{"a..b", "empty label"},  {"-a", "'-'"},                    {"[127.0.0.1]", "IPv6"},
		{"[::1", "not closed"},
		{A63 "a.b", "63"},        {N253 "a", "253"},                {"a*b", "letters"},      {"a[b", "bracket"},
	};

	for (size_t i = 0; i < N(cases); i++) {
		struct host h;
		const char *why = "";

		assert_false(parse(str_from(cases[i][0]), &h, &why));
		if (!strstr(why, cases[i][1]))
			fail_msg("%s: %s", cases[i][0], why);
	}
}

static void test_none(void **state)
{
	struct host h = {0};
	char text[HOST_TEXT_MAX] = "x";

	assert_int_equal(h.kind, HOST_NONE);
	assert_int_equal(host_format(&h, text), 0);
	assert_string_equal(text, "");
}

/* No name is a number to the C library, whatever it is made of: if inet_aton() reads it, it must not be a name. */
static void test_never_a_number(void **state)
{
	static const char alphabet[] = "0127 9xXaf.-_";
	uint64_t x = 0x853c49e6748fea9bu;
	unsigned int names = 0, numbers = 0;

	for (int i = 0; i < 1000000; i++) {
		char text[16];
		size_t n = 1 + (size_t)(x >> 33) % (sizeof(text) - 1);
		struct in_addr in;
		struct host h;
		bool number;

		for (size_t k = 0; k < n; k++) {
			x ^= x << 13, x ^= x >> 7, x ^= x << 17;
			text[k] = alphabet[(x >> 30) % (sizeof(alphabet) - 1)];
		}
		text[n] = '\0';
		number = inet_aton(text, &in) != 0;
		numbers += number;
		if (!host_parse((struct str){text, n}, &h, NULL))
			continue;
		names += h.kind == HOST_NAME;
		assert_false(number && h.kind == HOST_NAME);
	}
	assert_true(names > 1000 && numbers > 1000);
}

static void test_ports(void **state)
{
	static const struct str refused[] = {
		STR_LIT(""), STR_LIT("0"), STR_LIT("00"), STR_LIT("080"), STR_LIT("0443"), STR_LIT("00443"),
		STR_LIT("65536"),
		STR_LIT("65616"), STR_LIT("65979"), STR_LIT("99999"), STR_LIT("100000"), STR_LIT("4294967376"),
		STR_LIT("18446744073709551696"), STR_LIT("+443"), STR_LIT("-443"), STR_LIT("-1"), STR_LIT("0x1bb"),
		STR_LIT("4_43"),
		STR_LIT(" 443"), STR_LIT("443 "), STR_LIT("44 3"), STR_LIT("443\t"), STR_LIT("443\r"), STR_LIT("443\n"),
		STR_LIT("443\0"), STR_LIT("\0"), STR_LIT("4\0"), STR_LIT("notaport"), STR_LIT("https"),
		STR_LIT("443a"), STR_LIT("a443"),
		STR_LIT("443/foo"), STR_LIT("443?x"), STR_LIT("443#y"), STR_LIT("443:443"), STR_LIT("4.43"),
		STR_LIT("1e2"),
		STR_LIT("\xef\xbc\x94\xef\xbc\x94\xef\xbc\x93"), STR_LIT("80,443"), STR_LIT("80-443"),
	};

	for (uint32_t v = 1; v <= 65535; v++) {
		char text[8];
		int n = snprintf(text, sizeof(text), "%u", v);
		uint16_t port = 0;

		assert_true(port_parse((struct str){text, (size_t)n}, &port));
		assert_int_equal(port, v);
	}
	for (size_t i = 0; i < N(refused); i++) {
		uint16_t port = 0x5a5a;

		if (port_parse(refused[i], &port))
			fail_msg("%.*s was taken for a port", STR_ARG(refused[i]));
		assert_int_equal(port, 0x5a5a);
	}
}

/* --- names never looked up --- */

static const char *special(const char *text)
{
	struct host h;
	const char *why = "";

	if (!parse(str_from(text), &h, &why))
		fail_msg("%s: %s", text, why);
	assert_int_equal(h.kind, HOST_NAME);
	return host_name_special(host_name(&h));
}

static void test_special_names(void **state)
{
	static const char *const names[] = {
		"localhost", "foo.localhost", "a.b.localhost", "printer.local", "a.b.local", "local", "internal",
		"x.internal",
		"host.docker.internal", "gateway.docker.internal", "abcdef.onion", "onion", "home.arpa", "x.home.arpa",
		"metadata.google.internal", "metadata.goog", "x.metadata.goog", "metadata", "metadata.tencentyun.com",
		"metadata.platformequinix.com", "metadata.packet.net", "api.metadata.cloud.ibm.com", "instance-data",
		"instance-data.ec2.internal", "kubernetes", "kubernetes.default", "kubernetes.default.svc", "a.b.svc",
		"svc",
		"kubernetes.default.svc.cluster.local", "x.cluster.local", "cluster.local", "foo", "a", "com",
		"ip6-loopback",
		"my_service",
	};

	for (size_t i = 0; i < N(names); i++) {
		char text[HOST_TEXT_MAX];
		size_t n = strlen(names[i]);

		/* as it stands, upper case, mixed, each with and without the trailing dot */
		for (int form = 0; form < 6; form++) {
			for (size_t k = 0; k <= n; k++) {
				char c = names[i][k];
				bool up = form % 3 == 1 || (form % 3 == 2 && k % 2);

				text[k] = up && c >= 'a' && c <= 'z' ? (char)(c - 'a' + 'A') : c;
			}
			if (form >= 3)
				memcpy(text + n, ".", 2);
			if (!special(text))
				fail_msg("%s would be looked up", text);
			assert_int_equal(strncmp(special(text), "is ", 3), 0);
		}
	}
}

static void test_ordinary_names(void **state)
{
	static const char *const names[] = {
		"example.com", "example.org", "denied.example", "r.test", "localhost.example.com",
		"notlocalhost.example",
		"foolocalhost.com", "xlocal.example", "my.thelocal", "local.example.org", "internal.example.org",
		"x.notinternal",
		"arpa.home", "x.arpa", "xhome.arpa", "metadata.example.org", "google.internal.example",
		"xmetadata.goog",
		"metadata.google.com", "tencentyun.com", "x.tencentyun.com", "packet.net", "kubernetes.io",
		"kubernetes.default.io",
		"x.kubernetes.default", "cluster.locals", "svc.example.org", "a.msvc", "onion.example",
		"169-254-169-254.sslip.io",
		"127.0.0.1.nip.io", "instance-data.example.org", "cloud.ibm.com",
	};

	for (size_t i = 0; i < N(names); i++)
		if (special(names[i]))
			fail_msg("%s %s", names[i], special(names[i]));
}

static void test_special_reasons(void **state)
{
	assert_string_equal(special("LOCALHOST."), "is a special-use name");
	assert_string_equal(special("foo"), "is a single label");
	assert_string_equal(special("metadata.google.internal"), "is a cloud metadata name");
	assert_string_equal(special("x.svc.cluster.local"), "is a cluster-internal name");
	assert_non_null(host_name_special((struct str){NULL, 0}));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_canonical),      cmocka_unit_test(test_refused),
		cmocka_unit_test(test_each_byte),
		cmocka_unit_test(test_reasons),        cmocka_unit_test(test_none),
		cmocka_unit_test(test_never_a_number),
		cmocka_unit_test(test_ports),          cmocka_unit_test(test_special_names),
		cmocka_unit_test(test_ordinary_names),
		cmocka_unit_test(test_special_reasons),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
