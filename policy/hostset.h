/* A set of host rules: exact names, and names with everything below them. Built once, then only read. */
#ifndef POLICY_HOSTSET_H
#define POLICY_HOSTSET_H

#include <stdint.h>

#include "portset.h"
#include "str.h"

/* All rules of one name and one kind, merged: for each port the line of the first rule that has it. */
struct hostset_item {
	uint64_t hash;
	uint32_t name_at;  /* in the set's names */
	uint16_t name_len;
	bool wildcard;
	struct portset ports;
	uint32_t line;     /* of the first rule, whatever its ports */
	uint32_t line_80, line_443;
};

struct hostset {
	struct hostset_item *items;
	char *names;
	uint32_t *slots;   /* index + 1 into items, 0: free; the number of slots is a power of two */
	size_t n, cap, names_len, names_cap, n_slots;
};

/* Adds a rule for a canonical name; `wildcard`: for every name below it, not for itself. Returns 0, or -ENOMEM with the
 * set unchanged as far as lookups can tell. */
int hostset_add(struct hostset *s, struct str name, bool wildcard, struct portset ports, uint32_t line);

/* The line of the rule that holds a canonical name and a port (port 0: any port): the rule of the name itself before
 * a wildcard, a longer wildcard before a shorter one. 0 when there is none. */
uint32_t hostset_find(const struct hostset *s, struct str name, uint16_t port);

void hostset_clear(struct hostset *s);

#endif
