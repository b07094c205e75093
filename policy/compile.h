/* What a policy is once compiled, and how a tree becomes one. Private to compile.c, policy.c and judge.c. */
#ifndef POLICY_COMPILE_H
#define POLICY_COMPILE_H

#include <stdatomic.h>

#include "hostset.h"
#include "policy.h"
#include "yaml.h"

struct role {
	char *name;                  /* owned */
	struct hostset allow, deny;
	struct addrset allow_addresses, deny_addresses;
	struct portset ports;
	uint32_t ports_line;         /* 0: the key was not given */
	bool unmatched_allow;
	uint32_t unmatched_line;     /* 0: the key was not given */
};

struct policy {
	atomic_uint refs;
	uint64_t hash;
	struct role *roles;          /* sorted by name */
	size_t n_roles;
	struct hostset refuse_names;
	struct addrset refuse_addresses;
};

/* Fills a zeroed policy from a tree. Reports every problem; returns 0, problems or not, or -ENOMEM. Whatever was filled
 * is released by policy_unref(). */
int compile_policy(const struct yaml_node *root, struct policy *p, struct policy_problems *problems);

#endif
