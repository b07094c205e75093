/* Addresses, blocks and the judgement of both, on any bytes.
 *
 * The input is read as text (an address, a block) and, from 16 bytes on, as raw addresses. Held: writing and reading
 * agree in both directions and with the C library; the table's search finds what a walk over all rows finds; an address
 * that is refused stays refused in every form that hides it, by the same row; and the blocks that hide addresses
 * without being judged by them stay shut. */
#include <arpa/inet.h>
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>

#include "policy/addr.h"
#include "policy/addrset.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define CHECK(what) do { if (!(what)) abort(); } while (0)

static void check_round_trip(const struct addr *a)
{
	char text[ADDR_TEXT_MAX];
	size_t n = addr_format(a, text);
	struct addr back;
	uint8_t libc[16];

	CHECK(n == strlen(text) && n < ADDR_TEXT_MAX);
	CHECK(addr_parse((struct str){text, n}, &back) && addr_equal(&back, a));
	CHECK(addr_is_v4(a) == !strchr(text, ':'));
	if (addr_is_v4(a))
		CHECK(inet_pton(AF_INET, text, libc) == 1 && memcmp(libc, a->b + 12, 4) == 0);
	else
		CHECK(inet_pton(AF_INET6, text, libc) == 1 && memcmp(libc, a->b, 16) == 0);
}

/* The row by a walk over the whole table. */
static const struct addr_special *walk(const struct addr *a)
{
	size_t n;
	const struct addr_special *t = addr_special_table(&n), *best = NULL;

	for (size_t i = 0; i < n; i++)
		if (addr_in_prefix(a, &t[i].prefix) && (!best || t[i].prefix.len > best->prefix.len))
			best = &t[i];
	CHECK(best);
	return best;
}

static bool judge_is(const struct addr *a, const struct addr_prefix *nat64, const struct addr_special *want)
{
	const struct addr_special *row;
	enum verdict v = addr_judge_special(a, nat64, nat64 ? 1 : 0, &row);

	CHECK((v == VERDICT_ALLOW) == (row == NULL) && (!row || row->verdict == v));
	return row == want;
}

/* Each way to hide the IPv4 address `v4`, whose own row is `row` (NULL: public). */
static void check_hidden(const struct addr *v4, const struct addr_special *row, const uint8_t noise[16])
{
	static const uint8_t lengths[] = {32, 40, 48, 56, 64, 96};
	static const uint8_t shut[][12] = {
		{0},                                                /* IPv4-compatible */
		{[8] = 0xff, [9] = 0xff},                           /* SIIT */
		{0x00, 0x64, 0xff, 0x9b, 0x00, 0x01},               /* local NAT64 */
		{0x20, 0x01, 0x00, 0x00},                           /* Teredo */
		{0x20, 0x02},                                       /* 6to4 */
		{0xfe, 0x80, [10] = 0x5e, [11] = 0xfe},             /* link-local ISATAP */
	};
	struct addr a = {.b = {0x00, 0x64, 0xff, 0x9b}}, inner;

	memcpy(a.b + 12, v4->b + 12, 4);
	CHECK(judge_is(&a, NULL, row)); /* NAT64 */
	a = (struct addr){.b = {0x2a, 0x00, noise[2], noise[3], [8] = noise[8] & 2, [10] = 0x5e, [11] = 0xfe}};
	memcpy(a.b + 12, v4->b + 12, 4);
	CHECK(judge_is(&a, NULL, row)); /* ISATAP */

	for (size_t i = 0; i < sizeof(lengths); i++) {
		struct addr_prefix p = {{{0x2a, 0x0b}}, lengths[i]};

		for (int k = 2; k < 8 && k < p.len / 8; k++)
			p.base.b[k] = noise[k];
		memcpy(a.b, noise, 16); /* "u" and suffix: anything but an ISATAP id, which is judged as well */
		a.b[9] |= 1;
		memcpy(a.b, p.base.b, p.len / 8);
		for (int from = 12, to = p.len / 8; from < 16; from++, to++) {
			to += to == 8;
			a.b[to] = v4->b[from];
		}
		CHECK(addr_nat64_extract(&a, &p, &inner) && addr_equal(&inner, v4));
		if (a.b[10] != 0x5e)
			CHECK(judge_is(&a, &p, row));
		else if (row)
			CHECK(!judge_is(&a, &p, NULL));
	}
	for (size_t i = 0; i < sizeof(shut) / sizeof(shut[0]); i++) {
		memcpy(a.b, shut[i], 12);
		memcpy(a.b + 12, v4->b + 12, 4);
		CHECK(!judge_is(&a, NULL, NULL));
	}
}

static void check_judged(const struct addr *a, const uint8_t noise[16])
{
	const struct addr_special *row, *want = walk(a);
	enum verdict v = addr_judge_special(a, NULL, 0, &row);

	if (addr_is_v4(a)) {
		CHECK(v == want->verdict);
		check_hidden(a, row, noise);
		return;
	}
	if (want->verdict != VERDICT_ALLOW) {
		CHECK(row == want);
	} else if (row) { /* hidden inside: NAT64 or ISATAP, in the last four bytes of both */
		struct addr inner = addr_from_v4(a->b + 12);

		CHECK(row == walk(&inner));
	}
	if (v == VERDICT_ALLOW) /* the one promise */
		CHECK((a->b[0] >> 5) == 1 || memcmp(a->b, (const uint8_t[12]){0x00, 0x64, 0xff, 0x9b}, 12) == 0);
}

static void check_prefix(struct str text, const struct addr *probe)
{
	struct addr_prefix p, back;
	char out[ADDR_TEXT_MAX + 4];
	int r = addr_prefix_parse(text, &p);
	struct addrset set = {0};
	size_t n;

	CHECK(r == 0 || r == -EINVAL || r == -EDOM);
	if (r == -EINVAL)
		return;
	n = addr_prefix_format(&p, out);
	CHECK(n == strlen(out) && addr_prefix_parse((struct str){out, n}, &back) == 0);
	CHECK(back.len == p.len && addr_equal(&back.base, &p.base) && addr_prefix_encloses(&p, &back));
	CHECK(addr_in_prefix(&p.base, &p));

	if (addrset_add(&set, p, portset_all(), 1) != 0)
		return;
	addrset_seal(&set);
	CHECK(addrset_find(&set, &p.base, 443) == set.items);
	CHECK((addrset_find(&set, probe, 443) != NULL) == addr_in_prefix(probe, &p));
	CHECK(!addrset_find(&set, &p.base, 22));
	addrset_clear(&set);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct str text = {(const char *)data, size};
	uint8_t noise[16] = {0};
	struct addr a, v4;

	memcpy(noise, data, size < 16 ? size : 16);
	a = addr_from_v6(noise);
	v4 = addr_from_v4(noise + 12);
	check_prefix(text, &a);
	if (size >= 16) {
		check_round_trip(&a);
		check_round_trip(&v4);
		check_judged(&a, noise);
		check_judged(&v4, noise);
	}
	if (addr_parse(text, &a)) {
		check_round_trip(&a);
		check_judged(&a, noise);
	}
	return 0;
}
