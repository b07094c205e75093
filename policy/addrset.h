/* An immutable set of address blocks, each with the line of the file it came from. Built once, then only read. */
#ifndef POLICY_ADDRSET_H
#define POLICY_ADDRSET_H

#include "addr.h"
#include "portset.h"

struct addrset_item {
	struct addr_prefix prefix;
	struct portset ports;
	uint32_t line;
	uint32_t outer; /* of a sealed set: index + 1 of the next block around this one, 0 for none */
};

struct addrset {
	struct addrset_item *items; /* sorted by the builder; owned */
	size_t n, cap;
	bool sealed;
};

/* Appends a block. Returns 0 or -ENOMEM (the set is unchanged). Not after addrset_seal(). */
int addrset_add(struct addrset *s, struct addr_prefix prefix, struct portset ports, uint32_t line);
/* Sorts for lookup and drops what can never be found: a block listed before (on a lower line) with all of its ports.
 * Call once, after the last addrset_add(); allocates nothing that could fail. */
void addrset_seal(struct addrset *s);
/* The longest block that holds `a` and whose ports hold `port` (port 0: any port); of equal blocks the one on the
 * lowest line. NULL when none does, or `s` is NULL. An unsealed set with items is a bug and aborts. */
const struct addrset_item *addrset_find(const struct addrset *s, const struct addr *a, uint16_t port);
/* Frees the items; the set is then empty, unsealed and may be filled again. Takes NULL. */
void addrset_clear(struct addrset *s);

#endif
