/* An IP address as 16 bytes, and which of them are public.
 *
 * IPv4 is kept in its IPv4-mapped form (::ffff:a.b.c.d), so the mapped spelling of an address and the plain one
 * are the same value everywhere: in rules, in judgements, in what is dialed. Pure: no sockets, no I/O. */
#ifndef POLICY_ADDR_H
#define POLICY_ADDR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "str.h"
#include "verdict.h"

struct addr {
	uint8_t b[16];
};

/* A block of addresses. `len` counts bits of the 16-byte form: an IPv4 /8 is 104. Bits past `len` are zero. */
struct addr_prefix {
	struct addr base;
	uint8_t len;
};

enum { ADDR_TEXT_MAX = 46 }; /* longest text of any address, with the terminator */

struct addr addr_from_v4(const uint8_t octets[4]);
struct addr addr_from_v6(const uint8_t bytes[16]);
bool addr_is_v4(const struct addr *a);
bool addr_equal(const struct addr *a, const struct addr *b);
/* Blocks are of one family, like the addresses: an IPv4 address is only in blocks of IPv4 (len >= 96), so ::/0 is all
 * of IPv6 and nothing else. */
bool addr_in_prefix(const struct addr *a, const struct addr_prefix *p);
/* `inner` is the same block or lies inside, by the bits alone: ::/0 encloses all blocks. For sorting and nesting. */
bool addr_prefix_encloses(const struct addr_prefix *outer, const struct addr_prefix *inner);

/* Reads a literal: a canonical dotted quad (four decimal octets, no leading zero, nothing else) or an IPv6 address
 * as RFC 4291 2.2 writes it, without brackets and without a zone. Returns false, *ret untouched, for all else. */
bool addr_parse(struct str text, struct addr *ret);

/* Reads ADDRESS/BITS in plain decimal, BITS counted in the family of the text as written. Returns 0; -EINVAL when it is
 * no such text or BITS is too large; -EDOM when bits beyond BITS are set ("host bits"), then *ret holds the block that
 * was probably meant. */
int addr_prefix_parse(struct str text, struct addr_prefix *ret);

/* Writes the canonical text (RFC 5952; dotted quad for IPv4), always terminated, and returns its length. */
size_t addr_format(const struct addr *a, char out[ADDR_TEXT_MAX]);
/* The same for a block, "10.0.0.0/8". */
size_t addr_prefix_format(const struct addr_prefix *p, char out[ADDR_TEXT_MAX + 4]);

/* One row of addr_special.def: why a block is not public. */
struct addr_special {
	const char *text;       /* the block as written in the table, "169.254.0.0/16" */
	struct addr_prefix prefix;
	const char *name;       /* "link-local", fit to follow "is " in a sentence */
	const char *what;       /* "is link-local" */
	const char *source;     /* RFC or vendor document */
	enum verdict verdict;   /* VERDICT_ALLOW for a carved-out row */
};

/* Judges an address by the built-in table alone (longest prefix wins), after unwrapping what hides an IPv4 address:
 * IPv4-mapped (by representation), NAT64 64:ff9b::/96 and the blocks of `nat64` (RFC 6052 layouts; may be NULL), and
 * the ISATAP interface ids, whose IPv4 address must be public too. Returns VERDICT_ALLOW only for a public address;
 * *ret_row, if not NULL, is set to the row that refused (never NULL then; the inner address's row when that refused),
 * or NULL when allowed. Anything outside 2000::/3 that no row allows is refused. A block of `nat64` may lie in private
 * or reserved space, but opens no loopback, link-local, multicast or metadata address, nor one whose length is none of
 * the six. Any thread, no set-up. */
enum verdict addr_judge_special(const struct addr *a, const struct addr_prefix *nat64, size_t n_nat64,
				const struct addr_special **ret_row);

/* The IPv4 address inside `a` under the RFC 6052 prefix `p` (length 32, 40, 48, 56, 64 or 96). */
bool addr_nat64_extract(const struct addr *a, const struct addr_prefix *p, struct addr *ret_v4);

/* The table itself, for listings and tests; in order of address, enclosing blocks first. */
const struct addr_special *addr_special_table(size_t *ret_n);

#endif
