/* Host rules in one hash table.
 *
 * A lookup asks for the name itself and for each of its parents, and a parent is cut at a dot, so a match always ends at
 * a label boundary: "evilexample.org" never meets a rule for "example.org". The hash runs over the name from its end to
 * its start, so one pass yields the hash of every parent on the way. A name has at most 127 labels; a lookup costs one
 * pass of hashing and one probe a label, whatever the number of rules.
 *
 * Open addressing, linear probing, at most half full. The table's content is the operator's; a request only looks up, so
 * the worst it can do is to aim at the longest run of occupied slots. The final mix keeps runs short whatever names
 * a policy has, and the full 64-bit hash is compared before any bytes.
 *
 * Rules of one name are merged at once, so that a name listed a thousand times costs a lookup nothing. Only hostset_add()
 * can fail, for want of memory; rules are in place then or not at all. */
#include "hostset.h"

#include <errno.h>
#include <stdlib.h>

enum { FIRST_SLOTS = 16, FIRST_NAMES = 256 };

static const uint64_t hash_start = 0xcbf29ce484222325u;

/* One FNV-1a step. */
static uint64_t hash_byte(uint64_t h, char c)
{
	return (h ^ (unsigned char)c) * 0x100000001b3u;
}

/* FNV's low bits depend on few input bits; the slots are taken from low bits. */
static uint64_t hash_end(uint64_t h, bool wildcard)
{
	h ^= wildcard ? 0x9e3779b97f4a7c15u : 0;
	h = (h ^ h >> 32) * 0xd6e8feb86659fd93u;
	h = (h ^ h >> 32) * 0xd6e8feb86659fd93u;
	return h ^ h >> 32;
}

/* The slot of a rule, or the free one where it would go. Needs a table with a free slot. */
static uint32_t *slot_of(const struct hostset *s, struct str name, bool wildcard, uint64_t hash)
{
	size_t i = hash & (s->n_slots - 1);

	for (; s->slots[i]; i = (i + 1) & (s->n_slots - 1)) {
		const struct hostset_item *it = &s->items[s->slots[i] - 1];

		if (it->hash == hash && it->wildcard == wildcard &&
		    str_eq((struct str){s->names + it->name_at, it->name_len}, name))
			break;
	}
	return &s->slots[i];
}

static int grow_slots(struct hostset *s)
{
	size_t n_slots = s->n_slots ? s->n_slots * 2 : FIRST_SLOTS;
	uint32_t *slots = calloc(n_slots, sizeof(*slots));

	if (!slots)
		return -ENOMEM;
	for (size_t k = 0; k < s->n; k++) {
		size_t i = s->items[k].hash & (n_slots - 1);

		while (slots[i])
			i = (i + 1) & (n_slots - 1);
		slots[i] = (uint32_t)k + 1;
	}
	free(s->slots);
	s->slots = slots;
	s->n_slots = n_slots;
	return 0;
}

/* Room for one more item with a name of `n` bytes. */
static int make_room(struct hostset *s, size_t n)
{
	if (s->n == s->cap) {
		size_t cap = s->cap ? s->cap * 2 : FIRST_SLOTS / 2;
		struct hostset_item *items = realloc(s->items, cap * sizeof(*items));

		if (!items)
			return -ENOMEM;
		s->items = items;
		s->cap = cap;
	}
	if (s->names_cap - s->names_len < n) {
		size_t cap = (s->names_cap ? s->names_cap * 2 : FIRST_NAMES) + n;
		char *names = cap > UINT32_MAX ? NULL : realloc(s->names, cap);

		if (!names)
			return -ENOMEM;
		s->names = names;
		s->names_cap = cap;
	}
	return s->n_slots < 2 * (s->n + 1) ? grow_slots(s) : 0;
}

static void merge(struct hostset_item *it, struct portset ports, uint32_t line)
{
	if (portset_has(ports, 80) && !it->line_80)
		it->line_80 = line;
	if (portset_has(ports, 443) && !it->line_443)
		it->line_443 = line;
	it->ports.bits |= ports.bits;
}

int hostset_add(struct hostset *s, struct str name, bool wildcard, struct portset ports, uint32_t line)
{
	uint64_t hash = hash_start;
	uint32_t *slot;
	int err = make_room(s, name.n);

	if (err < 0)
		return err;
	for (size_t i = name.n; i > 0; i--)
		hash = hash_byte(hash, name.p[i - 1]);
	hash = hash_end(hash, wildcard);
	slot = slot_of(s, name, wildcard, hash);
	if (*slot == 0) {
		memcpy(s->names + s->names_len, name.p, name.n);
		s->items[s->n] = (struct hostset_item){
			.hash = hash,
			.name_at = (uint32_t)s->names_len,
			.name_len = (uint16_t)name.n,
			.wildcard = wildcard,
			.line = line,
		};
		s->names_len += name.n;
		*slot = (uint32_t)++s->n;
	}
	merge(&s->items[*slot - 1], ports, line);
	return 0;
}

static uint32_t line_of(const struct hostset *s, struct str name, bool wildcard, uint64_t hash, uint16_t port)
{
	uint32_t slot = *slot_of(s, name, wildcard, hash_end(hash, wildcard));
	const struct hostset_item *it = slot ? &s->items[slot - 1] : NULL;

	if (!it)
		return 0;
	return port == 0 ? it->line : port == 80 ? it->line_80 : port == 443 ? it->line_443 : 0;
}

uint32_t hostset_find(const struct hostset *s, struct str name, uint16_t port)
{
	uint64_t hash = hash_start;
	uint32_t line = 0, found;

	if (s->n == 0)
		return 0;
	for (size_t i = name.n; i > 0; i--) {
		if (name.p[i - 1] == '.') {
			/* Later cuts are longer parents: the last that answers is the nearest. */
			found = line_of(s, str_skip(name, i), true, hash, port);
			line = found ? found : line;
		}
		hash = hash_byte(hash, name.p[i - 1]);
	}
	found = line_of(s, name, false, hash, port);
	return found ? found : line;
}

void hostset_clear(struct hostset *s)
{
	free(s->items);
	free(s->names);
	free(s->slots);
	*s = (struct hostset){0};
}
