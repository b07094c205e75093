/* The texts of rules: host names, wildcards, addresses, blocks, ports. */
#ifndef POLICY_RULE_H
#define POLICY_RULE_H

#include "portset.h"
#include "yaml.h"

/* A host name, or (wildcard) all names below it, in canonical form: A-labels, lower case, no trailing dot. */
struct rule_name {
	struct host host; /* kind HOST_NAME */
	bool wildcard;
};

/* Each reads a scalar. Returns 0; -EINVAL after reporting what is wrong (or when the node is broken); or -ENOMEM. */
int rule_read_name(const struct yaml_node *n, struct rule_name *ret, struct policy_problems *problems);
int rule_read_block(const struct yaml_node *n, struct addr_prefix *ret, struct policy_problems *problems);

/* Reads a list of ports. NULL (no list) gives both ports. */
int rule_read_ports(const struct yaml_node *list, struct portset *ret, struct policy_problems *problems);

#endif
