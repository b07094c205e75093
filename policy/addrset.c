/* Sorted blocks with links to the block around each.
 *
 * Sealing sorts by first address, wider blocks first, so that a block stands behind every block that encloses it. Two
 * blocks are nested or apart, never half over each other; therefore, of all blocks that hold an address, each one is
 * either the last block that begins at or before the address or encloses that one. A lookup is one binary search for
 * that block and a walk outwards along `outer`.
 *
 * Cost with n blocks: 17 comparisons of 16 bytes for n = 100 000, and a walk no longer than blocks are nested: at most
 * 129 lengths with 3 entries each, because sealing drops an entry whose ports equal blocks of lower lines have already
 * (there are two ports, and an entry may have none). A file that lists one block 100 000 times is therefore no slower
 * than any other. Sealing sorts once, O(n log n); the links cost O(n), as each walk goes on where the one before ended.
 *
 * The links are of bits, the match is of families (addr_in_prefix()): ::/0 encloses the IPv4 blocks in the order, but
 * holds no IPv4 address.
 *
 * Errors: only addrset_add() can fail, for memory, and leaves the set as it was. qsort() sorts in place when it gets no
 * memory. A sealed set is never written again, so any thread may read it; addrset_clear() needs the last reader
 * gone. */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#include "addrset.h"

int addrset_add(struct addrset *s, struct addr_prefix prefix, struct portset ports, uint32_t line)
{
	assert(!s->sealed);
	if (s->n == s->cap) {
		size_t cap = s->cap ? 2 * s->cap : 16;
		struct addrset_item *items;

		if (cap > UINT32_MAX) /* `outer` counts in 32 bits */
			return -ENOMEM;
		items = reallocarray(s->items, cap, sizeof(*items));
		if (!items)
			return -ENOMEM;
		s->items = items;
		s->cap = cap;
	}
	s->items[s->n++] = (struct addrset_item){.prefix = prefix, .ports = ports, .line = line};
	return 0;
}

/* The highest of equal blocks' lines comes first: a walk outwards then meets the lowest line first. */
static int item_compare(const void *va, const void *vb)
{
	const struct addrset_item *a = va, *b = vb;
	int c = memcmp(a->prefix.base.b, b->prefix.base.b, sizeof(a->prefix.base.b));

	if (c != 0)
		return c;
	if (a->prefix.len != b->prefix.len)
		return a->prefix.len < b->prefix.len ? -1 : 1;
	if (a->line != b->line)
		return a->line > b->line ? -1 : 1;
	return (a->ports.bits > b->ports.bits) - (a->ports.bits < b->ports.bits);
}

static bool same_block(const struct addr_prefix *a, const struct addr_prefix *b)
{
	return a->len == b->len && addr_equal(&a->base, &b->base);
}

/* Keeps, of equal blocks, those that open a port which no lower line opens. Marks first, from the lowest line up, as
 * that is the end of each group; a mark is outer = 1. */
static void drop_shadowed(struct addrset *s)
{
	uint8_t seen = 0;
	size_t kept = 0;

	for (size_t i = s->n; i-- > 0;) {
		struct addrset_item *it = &s->items[i];
		bool first = i + 1 == s->n || !same_block(&it->prefix, &s->items[i + 1].prefix);

		if (first)
			seen = 0;
		it->outer = !first && (it->ports.bits & ~seen) == 0;
		seen |= it->ports.bits;
	}
	for (size_t i = 0; i < s->n; i++)
		if (!s->items[i].outer)
			s->items[kept++] = s->items[i];
	s->n = kept;
}

void addrset_seal(struct addrset *s)
{
	if (s->sealed)
		return;
	if (s->n > 0)
		qsort(s->items, s->n, sizeof(*s->items), item_compare);
	drop_shadowed(s);
	for (size_t i = 0; i < s->n; i++) {
		uint32_t o = (uint32_t)i; /* index + 1 of the item before */

		while (o != 0 && !addr_prefix_encloses(&s->items[o - 1].prefix, &s->items[i].prefix))
			o = s->items[o - 1].outer;
		s->items[i].outer = o;
	}
	s->sealed = true;
}

const struct addrset_item *addrset_find(const struct addrset *s, const struct addr *a, uint16_t port)
{
	size_t lo = 0, hi;
	uint32_t at;

	if (!s || s->n == 0)
		return NULL;
	if (!s->sealed)
		abort(); /* a search in an unsorted set would miss blocks, and a missed deny block is an open door */

	hi = s->n; /* items before `lo` begin at or before `a`, those from `hi` on begin behind it */
	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;

		if (memcmp(s->items[mid].prefix.base.b, a->b, sizeof(a->b)) <= 0)
			lo = mid + 1;
		else
			hi = mid;
	}
	for (at = (uint32_t)lo; at != 0; at = s->items[at - 1].outer) {
		const struct addrset_item *it = &s->items[at - 1];

		if (addr_in_prefix(a, &it->prefix) && (port == 0 || portset_has(it->ports, port)))
			return it;
	}
	return NULL;
}

void addrset_clear(struct addrset *s)
{
	if (!s)
		return;
	free(s->items);
	*s = (struct addrset){0};
}
