/* The only door of policy/: may this be reached?
 *
 * A policy is compiled from text once, is immutable afterwards and may be read by any thread. Two judgements, one
 * function each: of the target before any lookup, and of each candidate address on the line above connect(). A NULL
 * policy refuses, an unknown role refuses, and the zero decision refuses. Nothing here touches sockets, clocks, files
 * or logs. */
#ifndef POLICY_POLICY_H
#define POLICY_POLICY_H

#include <stddef.h>
#include <stdint.h>

#include "addr.h"
#include "addrset.h"
#include "host.h"
#include "verdict.h"

struct policy;

/* --- reading --- */

/* What is wrong with a file, in order of place. Lines and columns count from 1 (columns in bytes). */
struct policy_problem {
	uint32_t line, column;
	char *message;  /* one sentence, no newline */
	char *hint;     /* what to do instead, or NULL */
};

struct policy_problems {
	struct policy_problem *items;
	size_t n, cap;
	size_t dropped;     /* found beyond POLICY_PROBLEMS_MAX */
	bool out_of_memory; /* a problem could not be stored: the file is refused all the same */
};

enum {
	POLICY_TEXT_MAX = 16 * 1024 * 1024, /* bytes: 100 000 rules are about 3 MB */
	POLICY_PROBLEMS_MAX = 100,
	POLICY_ROLES_MAX = 1000,
	POLICY_RULES_MAX = 1000000,
	POLICY_ROLE_NAME_MAX = 64,
};

/* Compiles the text of a policy file. Returns 0 with *ret_policy (one reference, yours) and no problem; -EINVAL with
 * every problem found in *problems; -ENOMEM. On failure *ret_policy is untouched. The text may be freed afterwards.
 * `problems` must be zeroed or reused after policy_problems_clear(). */
int policy_compile(struct str text, struct policy **ret_policy, struct policy_problems *problems);
void policy_problems_clear(struct policy_problems *problems);

/* References are atomic: a worker may drop the last one. Both take NULL; policy_unref returns NULL. */
struct policy *policy_ref(struct policy *p);
struct policy *policy_unref(struct policy *p);

/* SHA-256 is not needed here: a 64-bit FNV-1a of the text, to tell two policies apart in logs and metrics. */
uint64_t policy_hash(const struct policy *p);

/* --- asking --- */

/* The role's number in this policy, or -1. Numbers change with each policy: keep names, not numbers. */
int policy_role(const struct policy *p, struct str name);
size_t policy_n_roles(const struct policy *p);
const char *policy_role_name(const struct policy *p, int role);

struct policy_target {
	struct host host;
	uint16_t port;
};

struct policy_decision {
	enum verdict verdict;
	uint32_t rule_line;  /* line of the rule that decided, 0: none or built in */
	const char *what;    /* never NULL once judged: static text, fits "HOST " + what */
};

/* Before any lookup: the port, then the special names, then for a literal the address itself (as
 * policy_judge_address() would), then deny, then allow, then `unmatched`. Deny wins, whatever the order. A literal
 * needs an address rule, also with `unmatched: allow`. `own` holds the host's own addresses (may be NULL).
 * VERDICT_ALLOW means: the name may be looked up, the literal may be dialed. */
struct policy_decision policy_judge_target(const struct policy *p, int role, const struct policy_target *target,
					   const struct addrset *own);

/* For each candidate address, whatever it came from: the built-in table, the host's own addresses, the policy's
 * refuse list and the role's address denials. */
struct policy_decision policy_judge_address(const struct policy *p, int role, const struct addr *a, uint16_t port,
					    const struct addrset *own);

#endif
