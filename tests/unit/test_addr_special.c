/* Which addresses are public: the table of the program against the registries.
 *
 * The oracle below reads tests/unit/data/address-ranges.tsv and judges by walking all rows, bit by bit, longest prefix
 * wins. It shares no code and no data with policy/: where the two disagree, one of them has missed something. */
#include <arpa/inet.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "policy/addr.h"

#define N(array) (sizeof(array) / sizeof((array)[0]))

/* --- the oracle --- */

enum { FIELDS = 15, F_FAMILY = 0, F_PREFIX = 1, F_NAME = 2, F_DEFAULT = 13, ORACLE_MAX = 128 };

struct oracle_row {
	int family, len;
	uint8_t base[16]; /* IPv4 in the first four */
	enum verdict verdict;
	char text[64];
};

static struct oracle_row oracle[ORACLE_MAX];
static size_t n_oracle;

/* The platform addresses that vendors document; no registry has them. */
static const char *const metadata[] = {
	"168.63.129.16/32", "100.100.100.200/32", "192.0.0.192/32", "fd00:ec2::/32", "fd20:ce::254/128",
	"fd00:c1::a9fe:a9fe/128", "fd00:42::42/128", "fd00:a9fe:a9fe::1/128", "fd00:100::100:200/128",
};

static enum verdict oracle_code(const char *name, const char *guard_default)
{
	static const struct {
		const char *name;
		enum verdict verdict;
	} codes[] = {
		{"Private-Use", VERDICT_ADDRESS_PRIVATE},
		{"Shared Address Space", VERDICT_ADDRESS_PRIVATE},
		{"Unique-Local", VERDICT_ADDRESS_PRIVATE},
		{"Loopback", VERDICT_ADDRESS_LOOPBACK},
		{"Loopback Address", VERDICT_ADDRESS_LOOPBACK},
		{"Unspecified Address", VERDICT_ADDRESS_LOOPBACK},
		{"\"This host on this network\"", VERDICT_ADDRESS_LOOPBACK},
		{"Link Local", VERDICT_ADDRESS_LINK_LOCAL},
		{"Link-Local Unicast", VERDICT_ADDRESS_LINK_LOCAL},
		{"Multicast", VERDICT_ADDRESS_MULTICAST},
	};

	if (strncmp(guard_default, "allow", 5) == 0)
		return VERDICT_ALLOW;
	for (size_t i = 0; i < N(codes); i++)
		if (strcmp(name, codes[i].name) == 0)
			return codes[i].verdict;
	return VERDICT_ADDRESS_RESERVED;
}

static void oracle_add(const char *prefix, enum verdict verdict)
{
	struct oracle_row *r = &oracle[n_oracle++];
	char base[64];
	const char *slash = strchr(prefix, '/');

	assert_true(n_oracle <= ORACLE_MAX && slash);
	snprintf(base, sizeof(base), "%.*s", (int)(slash - prefix), prefix);
	r->family = strchr(base, ':') ? 6 : 4;
	r->len = (int)strtol(slash + 1, NULL, 10);
	r->verdict = verdict;
	snprintf(r->text, sizeof(r->text), "%s", prefix);
	assert_int_equal(inet_pton(r->family == 6 ? AF_INET6 : AF_INET, base, r->base), 1);
}

static int oracle_load(void **state)
{
	FILE *f = fopen("tests/unit/data/address-ranges.tsv", "re");
	char line[1024];
	size_t rows = 0;

	if (!f)
		fail_msg("run from the top of the tree: tests/unit/data/address-ranges.tsv is not here");
	while (fgets(line, sizeof(line), f)) {
		char *field[FIELDS], *p = line;

		line[strcspn(line, "\n")] = '\0';
		for (int i = 0; i < FIELDS; i++) {
			field[i] = strsep(&p, "\t");
			assert_non_null(field[i]);
		}
		if (strcmp(field[F_FAMILY], "family") == 0)
			continue;
		rows++;
		if (strncmp(field[F_PREFIX], "any::", 5) == 0)
			continue; /* ISATAP: a pattern, see oracle_judge() */
		if (strncmp(field[F_DEFAULT], "unwrap", 6) == 0)
			continue; /* the mapped form: as well */
		oracle_add(field[F_PREFIX], oracle_code(field[F_NAME], field[F_DEFAULT]));
	}
	fclose(f);
	assert_int_equal(rows, 77); /* a row lost in reading would be a hole in the test */
	for (size_t i = 0; i < N(metadata); i++)
		oracle_add(metadata[i], VERDICT_ADDRESS_METADATA);
	return 0;
}

static bool bits_match(const uint8_t *a, const uint8_t *b, int len)
{
	for (int i = 0; i < len; i++)
		if (((a[i / 8] ^ b[i / 8]) >> (7 - i % 8)) & 1)
			return false;
	return true;
}

static enum verdict oracle_judge(int family, const uint8_t *bytes)
{
	static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff}, wkp[12] = {0x00, 0x64, 0xff, 0x9b};
	enum verdict v = family == 4 ? VERDICT_ALLOW : VERDICT_ADDRESS_RESERVED;
	int best = -1;

	if (family == 6 && (memcmp(bytes, mapped, 12) == 0 || memcmp(bytes, wkp, 12) == 0))
		return oracle_judge(4, bytes + 12);
	for (size_t i = 0; i < n_oracle; i++) {
		const struct oracle_row *r = &oracle[i];

		if (r->family == family && r->len >= best && bits_match(bytes, r->base, r->len)) {
			best = r->len;
			v = r->verdict;
		}
	}
	if (family == 6 && v == VERDICT_ALLOW &&
	    (memcmp(bytes + 8, "\0\0\x5e\xfe", 4) == 0 || memcmp(bytes + 8, "\2\0\x5e\xfe", 4) == 0))
		return oracle_judge(4, bytes + 12);
	return v;
}

/* --- the program against it --- */

static struct addr make(int family, const uint8_t *bytes)
{
	return family == 4 ? addr_from_v4(bytes) : addr_from_v6(bytes);
}

static void check(int family, const uint8_t *bytes)
{
	struct addr a = make(family, bytes);
	const struct addr_special *row = (const void *)1;
	enum verdict v = addr_judge_special(&a, NULL, 0, &row), want = oracle_judge(family, bytes);
	char text[ADDR_TEXT_MAX];

	addr_format(&a, text);
	if (v != want)
		fail_msg("%s is %s, should be %s", text, verdict_code(v), verdict_code(want));
	if ((row == NULL) != (v == VERDICT_ALLOW) || (row && row->verdict != v))
		fail_msg("%s: the row and the verdict disagree", text);
	assert_int_equal(addr_judge_special(&a, NULL, 0, NULL), v);
}

static void add_one(uint8_t *b, int n)
{
	while (n-- > 0 && ++b[n] == 0)
		;
}

static void sub_one(uint8_t *b, int n)
{
	while (n-- > 0 && b[n]-- == 0)
		;
}

/* First, last, one before, one after (wrapping at the ends is fine: those are addresses too). */
static void test_edges(void **state)
{
	for (size_t i = 0; i < n_oracle; i++) {
		const struct oracle_row *r = &oracle[i];
		int n = r->family == 4 ? 4 : 16;
		uint8_t b[16];

		memcpy(b, r->base, 16);
		check(r->family, b);
		sub_one(b, n);
		check(r->family, b);
		memcpy(b, r->base, 16);
		for (int k = r->len; k < 8 * n; k++)
			b[k / 8] |= (uint8_t)(0x80 >> (k % 8));
		check(r->family, b);
		add_one(b, n);
		check(r->family, b);
	}
}

/* Points inside and around each block: its first bits kept, the others random; and flips of one bit. */
static void test_random(void **state)
{
	uint64_t x = 0x9e3779b97f4a7c15u;

	for (int round = 0; round < 500; round++)
		for (size_t i = 0; i < n_oracle; i++) {
			const struct oracle_row *r = &oracle[i];
			int n = r->family == 4 ? 4 : 16;
			uint8_t b[16], noise[16];

			for (int k = 0; k < 16; k++) {
				x ^= x << 13, x ^= x >> 7, x ^= x << 17;
				noise[k] = (uint8_t)(x >> 32);
			}
			for (int k = 0; k < n; k++) {
				int keep = r->len - 8 * k;
				uint8_t mask = keep >= 8 ? 0xff : keep <= 0 ? 0 : (uint8_t)(0xff00 >> keep);

				b[k] = (uint8_t)((r->base[k] & mask) | (noise[k] & ~mask));
			}
			check(r->family, b);
			b[(x >> 8) % (unsigned int)n] ^= (uint8_t)(1u << (x & 7));
			check(r->family, b);
			if (r->family == 6) {
				/* ISATAP ids everywhere */
				memcpy(b + 8, round & 1 ? "\0\0\x5e\xfe" : "\2\0\x5e\xfe", 4);
				check(6, b);
				memcpy(b + 12, oracle[(x >> 16) % n_oracle].base, 4);
				check(6, b);
			}
		}
}

/* Every IPv4 /16 in four places, also under NAT64 and ISATAP. */
static void test_all_of_ipv4(void **state)
{
	for (unsigned int hi = 0; hi < 65536; hi++)
		for (unsigned int lo = 0; lo < 4; lo++) {
			uint8_t v4[4] = {(uint8_t)(hi >> 8), (uint8_t)hi, (uint8_t)(lo * 85), (uint8_t)(lo * 85)};
			uint8_t wkp[16] = {0x00, 0x64, 0xff, 0x9b}, isatap[16] = {0x2a, 0x00, [10] = 0x5e, [11] = 0xfe};

			memcpy(wkp + 12, v4, 4);
			memcpy(isatap + 12, v4, 4);
			check(4, v4);
			check(6, wkp);
			check(6, isatap);
		}
}

/* The table as data: it reads, is sorted, and each name fits its sentence, a header field and a JSON string. */
static void test_table(void **state)
{
	size_t n;
	const struct addr_special *t = addr_special_table(&n);

	assert_true(n >= n_oracle);
	for (size_t i = 0; i < n; i++) {
		char text[ADDR_TEXT_MAX + 4];

		addr_prefix_format(&t[i].prefix, text);
		assert_string_equal(text, t[i].text);
		assert_true(t[i].name[0] && t[i].source[0] && strlen(t[i].name) <= 40);
		for (const char *p = t[i].name; *p; p++)
			if (*p < ' ' || *p > '~' || strchr("\"\\()", *p))
				fail_msg("%s: %s", t[i].text, t[i].name);
		assert_true(t[i].verdict == VERDICT_ALLOW || (t[i].verdict >= VERDICT_ADDRESS_PRIVATE &&
							     t[i].verdict <= VERDICT_ADDRESS_RESERVED));
		if (i > 0) {
			int c = memcmp(t[i - 1].prefix.base.b, t[i].prefix.base.b, 16);

			assert_true(c < 0 || (c == 0 && t[i - 1].prefix.len < t[i].prefix.len));
		}
		if (t[i].verdict != VERDICT_ALLOW && t[i].prefix.len != 0) {
			const struct addr_special *row;

			addr_judge_special(&t[i].prefix.base, NULL, 0, &row);
			assert_true(row && row->prefix.len >= t[i].prefix.len);
		}
	}
	for (size_t i = 0; i < n_oracle; i++) { /* no row of the registries rides on a wider one's name */
		size_t k = 0;

		while (k < n && strcmp(t[k].text, oracle[i].text) != 0)
			k++;
		if (k == n)
			fail_msg("%s has no row of its own", oracle[i].text);
	}
}

static void judge_text(const char *text, const struct addr_prefix *nat64, size_t n, enum verdict want,
		       const char *block)
{
	const struct addr_special *row;
	struct addr a;
	enum verdict v;

	if (!addr_parse(str_from(text), &a))
		fail_msg("%s was not read", text);
	v = addr_judge_special(&a, nat64, n, &row);
	if (v != want)
		fail_msg("%s is %s, should be %s", text, verdict_code(v), verdict_code(want));
	if (block && (!row || strcmp(row->text, block) != 0))
		fail_msg("%s is refused by %s, should be by %s", text, row ? row->text : "nothing", block);
}

/* Each way to hide 169.254.169.254 and 127.0.0.1 in an IPv6 address. */
static void test_hidden(void **state)
{
	static const struct {
		const char *text;
		enum verdict verdict;
		const char *block;
	} cases[] = {
		{"169.254.169.254", VERDICT_ADDRESS_LINK_LOCAL, "169.254.0.0/16"},
		{"127.0.0.1", VERDICT_ADDRESS_LOOPBACK, "127.0.0.0/8"},
		{"::ffff:a9fe:a9fe", VERDICT_ADDRESS_LINK_LOCAL, "169.254.0.0/16"},
		{"::ffff:7f00:1", VERDICT_ADDRESS_LOOPBACK, "127.0.0.0/8"},
		{"::ffff:169.254.169.254", VERDICT_ADDRESS_LINK_LOCAL, "169.254.0.0/16"},
		{"::ffff:127.0.0.1", VERDICT_ADDRESS_LOOPBACK, "127.0.0.0/8"},
		{"::a9fe:a9fe", VERDICT_ADDRESS_RESERVED, "::/96"},
		{"::7f00:1", VERDICT_ADDRESS_RESERVED, "::/96"},
		{"::127.0.0.1", VERDICT_ADDRESS_RESERVED, "::/96"},
		{"::8.8.8.8", VERDICT_ADDRESS_RESERVED, "::/96"},
		{"::ffff:0:a9fe:a9fe", VERDICT_ADDRESS_RESERVED, "::ffff:0:0:0/96"},
		{"::ffff:0:7f00:1", VERDICT_ADDRESS_RESERVED, "::ffff:0:0:0/96"},
		{"::ffff:0:8.8.8.8", VERDICT_ADDRESS_RESERVED, "::ffff:0:0:0/96"},
		{"64:ff9b::a9fe:a9fe", VERDICT_ADDRESS_LINK_LOCAL, "169.254.0.0/16"},
		{"64:ff9b::7f00:1", VERDICT_ADDRESS_LOOPBACK, "127.0.0.0/8"},
		{"64:ff9b::a00:1", VERDICT_ADDRESS_PRIVATE, "10.0.0.0/8"},
		{"64:ff9b::168.63.129.16", VERDICT_ADDRESS_METADATA, "168.63.129.16/32"},
		{"64:ff9b::8.8.8.8", VERDICT_ALLOW, NULL},
		{"64:ff9b::", VERDICT_ADDRESS_LOOPBACK, "0.0.0.0/32"},
		{"64:ff9b:0:0:1::", VERDICT_ADDRESS_RESERVED, "::/8"},
		{"64:ff9b:0:1::1", VERDICT_ADDRESS_RESERVED, "::/8"},
		{"64:ff9c::1", VERDICT_ADDRESS_RESERVED, "::/8"},
		{"64:ff9b:1::7f00:1", VERDICT_ADDRESS_RESERVED, "64:ff9b:1::/48"},
		{"64:ff9b:1:7f00:0:100::", VERDICT_ADDRESS_RESERVED, "64:ff9b:1::/48"},
		{"64:ff9b:1::8.8.8.8", VERDICT_ADDRESS_RESERVED, "64:ff9b:1::/48"},
		{"2002:a9fe:a9fe::", VERDICT_ADDRESS_RESERVED, "2002::/16"},
		{"2002:7f00:1::", VERDICT_ADDRESS_RESERVED, "2002::/16"},
		{"2002:808:808::1", VERDICT_ADDRESS_RESERVED, "2002::/16"},
		{"2001:0:c000:201:8000:63bf:5601:5601", VERDICT_ADDRESS_RESERVED, "2001::/32"},
		{"2001:0:4136:e378:8000:63bf:80ff:fffe", VERDICT_ADDRESS_RESERVED, "2001::/32"},
		{"3ffe:831f::1", VERDICT_ADDRESS_RESERVED, "3ffe::/16"},
		{"2001:db8::5efe:a9fe:a9fe", VERDICT_ADDRESS_RESERVED, "2001:db8::/32"},
		{"2a00:1450:4001:800:0:5efe:a9fe:a9fe", VERDICT_ADDRESS_LINK_LOCAL, "169.254.0.0/16"},
		{"2a00:1450:4001:800:0:5efe:a00:1", VERDICT_ADDRESS_PRIVATE, "10.0.0.0/8"},
		{"2a00:1450:4001:800:200:5efe:7f00:1", VERDICT_ADDRESS_LOOPBACK, "127.0.0.0/8"},
		{"2606:4700::5efe:a00:1", VERDICT_ADDRESS_PRIVATE, "10.0.0.0/8"},
		{"2606:4700::5efe:808:808", VERDICT_ALLOW, NULL},
		{"2606:4700::200:5efe:808:808", VERDICT_ALLOW, NULL},
		{"2606:4700::100:5efe:a00:1", VERDICT_ALLOW, NULL}, /* a group bit: no ISATAP id */
		{"2606:4700::5eff:a00:1", VERDICT_ALLOW, NULL},
		{"fe80::a9fe:a9fe", VERDICT_ADDRESS_LINK_LOCAL, "fe80::/10"},
		{"fe80::5efe:8.8.8.8", VERDICT_ADDRESS_LINK_LOCAL, "fe80::/10"},
		/* the unspecified addresses, which connect() takes to loopback */
		{"0.0.0.0", VERDICT_ADDRESS_LOOPBACK, "0.0.0.0/32"},
		{"0.1.2.3", VERDICT_ADDRESS_RESERVED, "0.0.0.0/8"},
		{"::", VERDICT_ADDRESS_LOOPBACK, "::/128"},
		{"::1", VERDICT_ADDRESS_LOOPBACK, "::1/128"},
		{"::2", VERDICT_ADDRESS_RESERVED, "::/96"},
		{"::ffff:0.0.0.0", VERDICT_ADDRESS_LOOPBACK, "0.0.0.0/32"},
		/* metadata and platform services */
		{"168.63.129.16", VERDICT_ADDRESS_METADATA, "168.63.129.16/32"},
		{"168.63.129.15", VERDICT_ALLOW, NULL},
		{"168.63.129.17", VERDICT_ALLOW, NULL},
		{"100.100.100.200", VERDICT_ADDRESS_METADATA, "100.100.100.200/32"},
		{"100.100.100.201", VERDICT_ADDRESS_PRIVATE, "100.64.0.0/10"},
		{"192.0.0.192", VERDICT_ADDRESS_METADATA, "192.0.0.192/32"},
		{"fd00:ec2::254", VERDICT_ADDRESS_METADATA, "fd00:ec2::/32"},
		{"fd00:ec2::253", VERDICT_ADDRESS_METADATA, "fd00:ec2::/32"},
		{"fd00:ec2::23", VERDICT_ADDRESS_METADATA, "fd00:ec2::/32"},
		{"fd00:ec2::123", VERDICT_ADDRESS_METADATA, "fd00:ec2::/32"},
		{"fd20:ce::254", VERDICT_ADDRESS_METADATA, "fd20:ce::254/128"},
		{"fd00:c1::a9fe:a9fe", VERDICT_ADDRESS_METADATA, "fd00:c1::a9fe:a9fe/128"},
		{"fd00:42::42", VERDICT_ADDRESS_METADATA, "fd00:42::42/128"},
		{"fd00:a9fe:a9fe::1", VERDICT_ADDRESS_METADATA, "fd00:a9fe:a9fe::1/128"},
		{"fd00:100::100:200", VERDICT_ADDRESS_METADATA, "fd00:100::100:200/128"},
		{"169.254.169.253", VERDICT_ADDRESS_LINK_LOCAL, NULL},
		{"169.254.169.123", VERDICT_ADDRESS_LINK_LOCAL, NULL},
		{"169.254.170.2", VERDICT_ADDRESS_LINK_LOCAL, NULL},
		{"169.254.170.23", VERDICT_ADDRESS_LINK_LOCAL, NULL},
		{"169.254.42.42", VERDICT_ADDRESS_LINK_LOCAL, NULL},
		{"169.254.0.23", VERDICT_ADDRESS_LINK_LOCAL, NULL},
		{"169.254.0.1", VERDICT_ADDRESS_LINK_LOCAL, NULL},     {"127.0.0.11", VERDICT_ADDRESS_LOOPBACK, NULL},
		{"172.17.0.1", VERDICT_ADDRESS_PRIVATE, NULL},
	};

	for (size_t i = 0; i < N(cases); i++)
		judge_text(cases[i].text, NULL, 0, cases[i].verdict, cases[i].block);
}

/* What well-known classifiers get wrong, and cases from bug reports about the edges of blocks. */
static void test_known_mistakes(void **state)
{
	static const char *const refused[] = {
		"0.1.2.3", "100.64.0.1", "100.100.100.200", "192.0.0.8", "192.0.0.192", "192.0.0.1", "192.0.0.170",
		"192.0.2.1", "198.18.0.1", "198.51.100.1", "203.0.113.1", "240.0.0.1", "192.0.0.9", "192.0.0.10",
		"192.88.99.1", "192.88.99.2", "224.0.0.1", "239.255.255.250", "ff02::1", "ff05::1", "ff0e::1",
		"168.63.129.16", "::127.0.0.1", "::8.8.8.8", "::ffff:127.0.0.1", "::ffff:0:127.0.0.1",
		"64:ff9b::7f00:1",
		"64:ff9b:1::7f00:1", "100::1", "100:0:0:1::1", "200::1", "400::1", "1000::1", "4000::1", "5f01::1",
		"fe00::1",
		"2001::1", "2001:1::1", "2001:1::2", "2001:1::3", "2001:2::1", "2001:5::1", "2001:10::1", "2001:1ff::1",
		"2001:db8::1", "2001:20::1", "2001:30::1", "2002:7f00:1::1", "2d00::1", "2e00::1", "2f00::1", "3000::1",
		"3ffe::1", "3fff::1", "3fff:fff::1", "3fff:1000::1", "5f00::1", "fc00::1", "fd00:ec2::254",
		"fd20:ce::254",
		"fec0::1", "feff::1", "2606:4700::5efe:a00:1", "fe80::1", "fe81::1", "febf::1", "FE8F::1",
		"255.255.255.255",
		"172.16.0.0", "172.16.0.1", "172.31.255.255", "127.8.8.8", "127.255.255.254", "10.255.255.255",
		"192.168.255.255", "198.19.255.255", "100.127.255.255", "64:ff9c::1",
		"ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff",
	};
	static const char *const allowed[] = {
		"::ffff:8.8.8.8", "8.8.8.8", "1.1.1.1", "172.15.255.255", "172.32.0.0", "172.32.0.1", "9.255.255.255",
		"11.0.0.0", "100.63.255.255", "100.128.0.0", "126.255.255.255", "128.0.0.0", "169.253.255.255",
		"169.255.0.0",
		"191.255.255.255", "192.0.1.0", "192.0.3.0", "198.17.255.255", "198.20.0.0", "223.255.255.255",
		"192.167.255.255", "192.169.0.0", "93.184.216.34", "2001:200::1", "2003::1", "2001:4860:4860::8888",
		"2606:4700:4700::1111", "2a00:1450:4001:800::200e", "2c00::1", "2620:4f:8001::1", "2001:db7:ffff::1",
		"2001:db9::1",
	};

	for (size_t i = 0; i < N(allowed); i++)
		judge_text(allowed[i], NULL, 0, VERDICT_ALLOW, NULL);
	for (size_t i = 0; i < N(refused); i++) {
		struct addr a;

		assert_true(addr_parse(str_from(refused[i]), &a));
		if (addr_judge_special(&a, NULL, 0, NULL) == VERDICT_ALLOW)
			fail_msg("%s is allowed", refused[i]);
	}
}

/* --- NAT64 --- */

static struct addr_prefix block(const char *text)
{
	struct addr_prefix p;

	assert_int_equal(addr_prefix_parse(str_from(text), &p), 0);
	return p;
}

static void test_nat64_layouts(void **state)
{
	/* RFC 6052 2.4, then the same with a metadata address, with "u" and the suffix set */
	static const char *const cases[][3] = {
		{"2001:db8::/32", "2001:db8:c000:221::", "192.0.2.33"},
		{"2001:db8:100::/40", "2001:db8:1c0:2:21::", "192.0.2.33"},
		{"2001:db8:122::/48", "2001:db8:122:c000:2:2100::", "192.0.2.33"},
		{"2001:db8:122:300::/56", "2001:db8:122:3c0:0:221::", "192.0.2.33"},
		{"2001:db8:122:344::/64", "2001:db8:122:344:c0:2:2100::", "192.0.2.33"},
		{"2001:db8:122:344::/96", "2001:db8:122:344::192.0.2.33", "192.0.2.33"},
		{"2001:db8::/32", "2001:db8:a9fe:a9fe::", "169.254.169.254"},
		{"2001:db8:100::/40", "2001:db8:1a9:fea9:fe::", "169.254.169.254"},
		{"2001:db8:122::/48", "2001:db8:122:a9fe:a9:fe00::", "169.254.169.254"},
		{"2001:db8:122:300::/56", "2001:db8:122:3a9:fe:a9fe::", "169.254.169.254"},
		{"2001:db8:122:344::/64", "2001:db8:122:344:a9:fea9:fe00:0", "169.254.169.254"},
		{"2001:db8:122:344::/96", "2001:db8:122:344::a9fe:a9fe", "169.254.169.254"},
		{"2001:db8::/32", "2001:db8:a9fe:a9fe:ffff:ffff:ffff:ffff", "169.254.169.254"},
		{"2001:db8:100::/40", "2001:db8:1a9:fea9:fffe:ffff:ffff:ffff", "169.254.169.254"},
		{"2001:db8:122::/48", "2001:db8:122:a9fe:ffa9:feff:ffff:ffff", "169.254.169.254"},
		{"2001:db8:122:300::/56", "2001:db8:122:3a9:fffe:a9fe:ffff:ffff", "169.254.169.254"},
		{"2001:db8:122:344::/64", "2001:db8:122:344:ffa9:fea9:feff:ffff", "169.254.169.254"},
	};

	for (size_t i = 0; i < N(cases); i++) {
		struct addr_prefix p = block(cases[i][0]);
		struct addr a, v4;
		char text[ADDR_TEXT_MAX];

		assert_true(addr_parse(str_from(cases[i][1]), &a));
		assert_true(addr_nat64_extract(&a, &p, &v4));
		addr_format(&v4, text);
		assert_string_equal(text, cases[i][2]);
		a.b[0] ^= 1; /* outside the block */
		assert_false(addr_nat64_extract(&a, &p, &v4));
	}
	for (int len = 0; len <= 128; len++) {
		struct addr_prefix p = {.len = (uint8_t)len};
		struct addr a = {.b = {0}}, v4;

		assert_int_equal(addr_nat64_extract(&a, &p, &v4),
				 len == 32 || len == 40 || len == 48 || len == 56 || len == 64 || len == 96);
	}
}

static void test_nat64_judged(void **state)
{
	static const char *const blocks[] = {
		"2001:db8::/32", "2a0b:c000:100::/40", "64:ff9b:1::/48", "2a0b:c000:222:300::/56",
		"fd12:3456:789a:1::/64",
		"2a0b:c000:333::/96",
	};
	static const struct {
		const char *v4;
		enum verdict verdict;
	} inner[] = {
		{"8.8.8.8", VERDICT_ALLOW},
		{"10.1.2.3", VERDICT_ADDRESS_PRIVATE},
		{"127.0.0.1", VERDICT_ADDRESS_LOOPBACK},
		{"169.254.169.254", VERDICT_ADDRESS_LINK_LOCAL},
		{"168.63.129.16", VERDICT_ADDRESS_METADATA},
		{"224.0.0.1", VERDICT_ADDRESS_MULTICAST},
		{"0.0.0.0", VERDICT_ADDRESS_LOOPBACK},
		{"203.0.113.7", VERDICT_ADDRESS_RESERVED},
	};

	for (size_t i = 0; i < N(blocks); i++)
		for (size_t k = 0; k < N(inner); k++) {
			struct addr_prefix p = block(blocks[i]);
			const struct addr_special *row;
			struct addr a = p.base, v4;
			enum verdict bare;

			assert_true(addr_parse(str_from(inner[k].v4), &v4));
			for (int from = 12, to = p.len / 8; from < 16; from++, to++) {
				to += to == 8;
				a.b[to] = v4.b[from];
			}
			assert_int_equal(addr_judge_special(&a, &p, 1, &row), inner[k].verdict);
			assert_true(inner[k].verdict == VERDICT_ALLOW ? !row : addr_in_prefix(&v4, &row->prefix));
			/* undeclared, the block is what it is */
			bare = addr_judge_special(&a, NULL, 1, NULL);
			assert_int_equal(bare, oracle_judge(6, a.b));
			assert_int_equal(addr_judge_special(&a, &p, 0, NULL), bare);
		}
}

static void test_nat64_opens_nothing_else(void **state)
{
	struct addr_prefix wide[] = {block("fd00:ec2::/32"), block("fe80::/32"), block("::/64"), block("ff02::/96"),
				     block("fd20:ce::/96")};
	struct addr_prefix odd[] = {block("fd00::/8"), block("2000::/3"), block("::/0"), block("fd00::/128"),
				    block("fd00::/72")};
	struct addr_prefix both[] = {block("2a0b::/32"), block("2a0b:0:a00::/40")};

	judge_text("fd00:ec2:808:808::", wide, N(wide), VERDICT_ADDRESS_METADATA, "fd00:ec2::/32");
	judge_text("fd20:ce::254", wide, N(wide), VERDICT_ADDRESS_METADATA, "fd20:ce::254/128");
	judge_text("fe80:0:808:808::", wide, N(wide), VERDICT_ADDRESS_LINK_LOCAL, "fe80::/10");
	judge_text("::1", wide, N(wide), VERDICT_ADDRESS_LOOPBACK, "::1/128");
	judge_text("ff02::808:808", wide, N(wide), VERDICT_ADDRESS_MULTICAST, "ff00::/8");
	judge_text("127.0.0.1", wide, N(wide), VERDICT_ADDRESS_LOOPBACK, "127.0.0.0/8");
	judge_text("fd20:ce::808:808", wide, N(wide), VERDICT_ALLOW, NULL);
	/* lengths that RFC 6052 has no layout for change nothing */
	judge_text("fd08:808:808:808::808:808", odd, N(odd), VERDICT_ADDRESS_PRIVATE, "fc00::/7");
	judge_text("fd00::", odd, N(odd), VERDICT_ADDRESS_PRIVATE, "fc00::/7");
	judge_text("2606:4700::1", odd, N(odd), VERDICT_ALLOW, NULL);
	/* overlapping blocks: 2a0b:0:a08:808:8:: holds 10.8.8.8 under /32 and 8.8.8.8 under /40 */
	judge_text("2a0b:0:a08:808:8::", both, 2, VERDICT_ADDRESS_PRIVATE, "10.0.0.0/8");
	judge_text("2a0b:0:a08:808:8::", both + 1, 1, VERDICT_ALLOW, NULL);
	/* the ISATAP pattern still counts where the translator says yes */
	judge_text("2a0b:0:808:808:0:5efe:a00:1", both, 1, VERDICT_ADDRESS_PRIVATE, "10.0.0.0/8");
}

/* --- the first call from many threads at once --- */

static pthread_barrier_t barrier;

static void *first_call(void *ok)
{
	struct addr a = addr_from_v4((const uint8_t[]){127, 0, 0, 1});

	pthread_barrier_wait(&barrier);
	return addr_judge_special(&a, NULL, 0, NULL) == VERDICT_ADDRESS_LOOPBACK ? ok : NULL;
}

static void test_threads(void **state)
{
	static char ok;
	pthread_t t[8];
	void *ret;

	assert_int_equal(pthread_barrier_init(&barrier, NULL, N(t)), 0);
	for (size_t i = 0; i < N(t); i++)
		assert_int_equal(pthread_create(&t[i], NULL, first_call, &ok), 0);
	for (size_t i = 0; i < N(t); i++) {
		assert_int_equal(pthread_join(t[i], &ret), 0);
		assert_ptr_equal(ret, &ok);
	}
	pthread_barrier_destroy(&barrier);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_threads), /* first: the table is built by whoever comes first */
		cmocka_unit_test(test_table),
		cmocka_unit_test(test_edges),
		cmocka_unit_test(test_random),
		cmocka_unit_test(test_all_of_ipv4),
		cmocka_unit_test(test_hidden),
		cmocka_unit_test(test_known_mistakes),
		cmocka_unit_test(test_nat64_layouts),
		cmocka_unit_test(test_nat64_judged),
		cmocka_unit_test(test_nat64_opens_nothing_else),
	};

	return cmocka_run_group_tests(tests, oracle_load, NULL);
}
