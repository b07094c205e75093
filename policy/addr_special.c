/* Is an address public? The judgement that no setting can weaken.
 *
 * The table is addr_special.def. On the first call, whichever thread makes it, the rows are parsed, sorted (wider
 * blocks before the narrower ones inside them) and linked to the row around each; then they are only read. A lookup is
 * a binary search for the last row that begins at or before the address, and a walk outwards until a row holds it;
 * addrset.c says why that finds the longest prefix. About 7 comparisons of 16 bytes and at most 5 steps: some 0.15 us
 * measured, for a judgement made once for each connect(), which costs a hundred times that.
 *
 * Then what hides an IPv4 address is judged by that address, because that is where the packets go:
 *   - the mapped form is IPv4 already, by representation (addr.h);
 *   - NAT64, the well-known block and the blocks the caller names: by the address inside, at the six RFC 6052 2.2
 *     places. Octet "u" and the suffix are not looked at, as translators do not look at them either;
 *   - ISATAP interface ids can stand under any /64, so an address that is public otherwise is refused when the IPv4
 *     address in its last 32 bits is not.
 * Teredo, 6to4, SIIT and IPv4-compatible addresses hide one too, but are refused whatever they hide.
 *
 * Errors: a row that is no canonical block, or two rows for one block, abort the process at the first call: the table
 * is part of the program, and the unit tests prove that it reads. There is nothing to free. */
#include <pthread.h>
#include <stdlib.h>

#include "addr.h"

static struct addr_special rows[] = {
#define S(text, name, source, verdict) {text, {{{0}}, 0}, name, "is " name, source, VERDICT_##verdict},
#include "addr_special.def"
#undef S
};

enum { N_ROWS = sizeof(rows) / sizeof(rows[0]) };

static const struct addr_special *outer[N_ROWS]; /* the row around each, NULL for none */
static struct addr_prefix nat64_well_known;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static int row_compare(const void *va, const void *vb)
{
	const struct addr_special *a = va, *b = vb;
	int c = memcmp(a->prefix.base.b, b->prefix.base.b, sizeof(a->prefix.base.b));

	return c != 0 ? c : (int)a->prefix.len - (int)b->prefix.len;
}

static void build(void)
{
	for (int i = 0; i < N_ROWS; i++)
		if (addr_prefix_parse(str_from(rows[i].text), &rows[i].prefix) != 0)
			abort();
	if (addr_prefix_parse(STR_LIT("64:ff9b::/96"), &nat64_well_known) != 0)
		abort();
	qsort(rows, N_ROWS, sizeof(rows[0]), row_compare);
	/* By bits: ::/0 encloses the IPv4 rows in the order, though it holds none of their addresses. */
	for (int i = 1; i < N_ROWS; i++) {
		const struct addr_special *o = &rows[i - 1];

		if (row_compare(o, &rows[i]) == 0)
			abort();
		while (o && !addr_prefix_encloses(&o->prefix, &rows[i].prefix))
			o = outer[o - rows];
		outer[i] = o;
	}
}

const struct addr_special *addr_special_table(size_t *ret_n)
{
	pthread_once(&once, build);
	*ret_n = N_ROWS;
	return rows;
}

/* The narrowest row around `a`. Never NULL: ::/0 and 0.0.0.0/0 are rows. */
static const struct addr_special *lookup(const struct addr *a)
{
	int lo = 0, hi = N_ROWS; /* rows before `lo` begin at or before `a`; row 0 is ::/0 and always does */
	const struct addr_special *row;

	while (lo < hi) {
		int mid = lo + (hi - lo) / 2;

		if (memcmp(rows[mid].prefix.base.b, a->b, sizeof(a->b)) <= 0)
			lo = mid + 1;
		else
			hi = mid;
	}
	row = &rows[lo - 1];
	while (!addr_in_prefix(a, &row->prefix))
		row = outer[row - rows];
	return row;
}

/* RFC 6052 2.2: the four octets stand behind the prefix and step over octet 8, "u". */
bool addr_nat64_extract(const struct addr *a, const struct addr_prefix *p, struct addr *ret_v4)
{
	uint8_t v4[4];
	int at = p->len / 8;

	switch (p->len) {
	case 32: case 40: case 48: case 56: case 64: case 96:
		break;
	default:
		return false;
	}
	if (!addr_in_prefix(a, p))
		return false;
	for (int i = 0; i < 4; i++) {
		if (at == 8)
			at++;
		v4[i] = a->b[at++];
	}
	*ret_v4 = addr_from_v4(v4);
	return true;
}

/* RFC 5214 6.1: 0000:5efe or, with the universal bit, 0200:5efe, then the IPv4 address. */
static bool isatap_extract(const struct addr *a, struct addr *ret_v4)
{
	if ((a->b[8] != 0 && a->b[8] != 2) || a->b[9] != 0 || a->b[10] != 0x5e || a->b[11] != 0xfe)
		return false;
	*ret_v4 = addr_from_v4(a->b + 12);
	return true;
}

/* The row of the table, or of the IPv4 address under a NAT64 block. Where blocks of the caller overlap nobody knows
 * which translator takes the packet, so the first refusal stands. */
static const struct addr_special *judge_nat64(const struct addr *a, const struct addr_prefix *nat64, size_t n_nat64)
{
	const struct addr_special *own = lookup(a), *inner = NULL;
	struct addr v4;

	/* No translator can own such a block, whatever the caller says. */
	if (own->verdict == VERDICT_ADDRESS_METADATA || own->verdict == VERDICT_ADDRESS_LOOPBACK ||
	    own->verdict == VERDICT_ADDRESS_LINK_LOCAL || own->verdict == VERDICT_ADDRESS_MULTICAST)
		return own;
	for (size_t i = 0; i < n_nat64; i++)
		if (addr_nat64_extract(a, &nat64[i], &v4)) {
			inner = lookup(&v4);
			if (inner->verdict != VERDICT_ALLOW)
				return inner;
		}
	if (inner)
		return inner;
	return addr_nat64_extract(a, &nat64_well_known, &v4) ? lookup(&v4) : own;
}

enum verdict addr_judge_special(const struct addr *a, const struct addr_prefix *nat64, size_t n_nat64,
				const struct addr_special **ret_row)
{
	const struct addr_special *row;
	struct addr v4;

	pthread_once(&once, build);
	if (addr_is_v4(a)) {
		row = lookup(a);
	} else {
		row = judge_nat64(a, nat64, nat64 ? n_nat64 : 0);
		if (row->verdict == VERDICT_ALLOW && isatap_extract(a, &v4))
			row = lookup(&v4);
	}
	if (ret_row)
		*ret_row = row->verdict == VERDICT_ALLOW ? NULL : row;
	return row->verdict;
}
