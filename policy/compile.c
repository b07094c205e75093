/* From a checked tree to the sets that are asked.
 *
 * The schema has judged keys and shapes; here each rule goes into the set that will answer for it: names into host sets,
 * blocks into address sets, each with the line a person will be told. A rule that is wrong is reported and left out, and
 * the rest is still read; the caller throws the policy away when there was any problem.
 *
 * Only -ENOMEM stops the work. What was built up to then hangs on the policy and goes with it. Everything is sorted and
 * sealed before it can be seen by another thread, and never changes after. */
#include "compile.h"

#include <errno.h>
#include <stdlib.h>

#include "problems.h"
#include "rule.h"
#include "schema.h"

struct compile {
	struct policy *policy;
	struct policy_problems *problems;
	size_t n_rules;
};

/* Where the rules of one list go. */
struct sets {
	struct hostset *hosts;
	struct addrset *addresses;
};

/* -EINVAL means: reported, go on. */
static int go_on(int err)
{
	return err == -EINVAL ? 0 : err;
}

/* False, told once, when the policy has more rules than it may. */
static bool count_rule(struct compile *c, const struct yaml_node *n)
{
	if (++c->n_rules == POLICY_RULES_MAX + 1)
		yaml_problem(c->problems, n, NULL, "more than %d rules", POLICY_RULES_MAX);
	return c->n_rules <= POLICY_RULES_MAX;
}

static int add_name(struct compile *c, struct hostset *set, const struct yaml_node *text, struct portset ports,
		    uint32_t line)
{
	struct rule_name name;
	int err = rule_read_name(text, &name, c->problems);

	return err < 0 ? err : hostset_add(set, host_name(&name.host), name.wildcard, ports, line);
}

static int add_block(struct compile *c, struct addrset *set, const struct yaml_node *text, struct portset ports,
		     uint32_t line)
{
	struct addr_prefix block;
	int err = rule_read_block(text, &block, c->problems);

	return err < 0 ? err : addrset_add(set, block, ports, line);
}

/* {host: NAME, ports: [443]} or {address: BLOCK, ports: [443]} */
static int add_map(struct compile *c, struct sets to, const struct yaml_node *n)
{
	struct schema_rule rule;
	struct portset ports;
	bool named = yaml_get(n, "host") || yaml_get(n, "address");

	if (!schema_read(&schema_rule, n, &rule, c->problems))
		return -EINVAL;
	if (!named && !n->broken) {
		yaml_problem(c->problems, n, "write {host: NAME} or {address: ADDRESS}",
			     "a rule needs \"host\" or \"address\"");
		return -EINVAL;
	}
	if (yaml_get(n, "host") && yaml_get(n, "address")) {
		yaml_problem(c->problems, n, "write two rules", "a rule has \"host\" or \"address\", not both");
		return -EINVAL;
	}
	if (rule_read_ports(rule.ports.node, &ports, c->problems) < 0)
		ports = (struct portset){0};
	if (rule.host.node)
		return add_name(c, to.hosts, rule.host.node, ports, n->line);
	if (rule.address.node)
		return add_block(c, to.addresses, rule.address.node, ports, n->line);
	return -EINVAL;
}

static int add_rule(struct compile *c, struct sets to, const struct yaml_node *n)
{
	switch (n->kind) {
	case YAML_SCALAR:
		return add_name(c, to.hosts, n, portset_all(), n->line);
	case YAML_MAP:
		return add_map(c, to, n);
	case YAML_LIST:
	case YAML_NONE:
		break;
	}
	if (!n->broken)
		yaml_problem(c->problems, n, "write NAME, {host: NAME, ports: [443]} or {address: ADDRESS}",
			     "a list stands here where a rule should be");
	return -EINVAL;
}

static int read_rules(struct compile *c, struct sets to, const struct yaml_node *list)
{
	int err = 0;

	for (const struct yaml_node *n = list ? list->child : NULL; n && err == 0 && count_rule(c, n); n = n->next)
		err = go_on(add_rule(c, to, n));
	return err;
}

/* Names of clients' certificates end up as role names too, so URI characters are in. */
static bool check_role_name(struct compile *c, const struct yaml_node *key)
{
	struct str s = key->text;
	bool ok = s.n >= 1 && s.n <= POLICY_ROLE_NAME_MAX;

	if (key->broken || key->kind != YAML_SCALAR)
		return false;
	for (size_t i = 0; i < s.n && ok; i++)
		ok = ascii_is_alpha(s.p[i]) || ascii_is_digit(s.p[i]) || (s.p[i] != '\0' && strchr("-_.:/@+", s.p[i]));
	if (!ok)
		yaml_problem(c->problems, key, "use 1 to 64 of the characters A-Z a-z 0-9 - _ . : / @ +",
			     "%s is no name for a role", problem_quote(s).z);
	return ok;
}

static int read_role(struct compile *c, const struct yaml_node *n, struct role *r)
{
	struct schema_role keys;
	int err;

	if (!schema_read(&schema_role, n, &keys, c->problems))
		return 0;
	r->unmatched_allow = keys.unmatched.number == SCHEMA_ALLOW;
	r->unmatched_line = keys.unmatched.node ? keys.unmatched.node->line : 0;
	if (rule_read_ports(keys.ports.node, &r->ports, c->problems) == 0 && keys.ports.node)
		r->ports_line = keys.ports.node->key->line;
	err = read_rules(c, (struct sets){&r->allow, &r->allow_addresses}, keys.allow.node);
	if (err == 0)
		err = read_rules(c, (struct sets){&r->deny, &r->deny_addresses}, keys.deny.node);
	addrset_seal(&r->allow_addresses);
	addrset_seal(&r->deny_addresses);
	return err;
}

static int compare_roles(const void *a, const void *b)
{
	return strcmp(((const struct role *)a)->name, ((const struct role *)b)->name);
}

static int read_roles(struct compile *c, const struct yaml_node *map)
{
	struct policy *p = c->policy;
	int err = 0;

	if (!map || map->n == 0)
		return 0;
	p->roles = calloc(map->n, sizeof(*p->roles));
	if (!p->roles)
		return -ENOMEM;
	for (const struct yaml_node *n = map->child; n && err == 0; n = n->next) {
		struct role *r = &p->roles[p->n_roles];

		check_role_name(c, n->key);
		r->name = n->key->kind == YAML_SCALAR ? strndup(n->key->text.p, n->key->text.n) : strdup("");
		if (!r->name)
			return -ENOMEM;
		p->n_roles++;
		err = read_role(c, n, r);
	}
	qsort(p->roles, p->n_roles, sizeof(*p->roles), compare_roles);
	return err;
}

static int read_refuse(struct compile *c, const struct yaml_node *map)
{
	struct policy *p = c->policy;
	struct schema_refuse keys;
	int err = 0;

	if (!map || !schema_read(&schema_refuse, map, &keys, c->problems))
		return 0;
	for (const struct yaml_node *n = keys.names.node ? keys.names.node->child : NULL;
	     n && err == 0 && count_rule(c, n); n = n->next)
		err = go_on(add_name(c, &p->refuse_names, n, portset_all(), n->line));
	for (const struct yaml_node *n = keys.addresses.node ? keys.addresses.node->child : NULL;
	     n && err == 0 && count_rule(c, n); n = n->next)
		err = go_on(add_block(c, &p->refuse_addresses, n, portset_all(), n->line));
	addrset_seal(&p->refuse_addresses);
	return err;
}

int compile_policy(const struct yaml_node *root, struct policy *p, struct policy_problems *problems)
{
	struct compile c = {.policy = p, .problems = problems};
	struct schema_top keys;
	int err;

	if (!schema_read(&schema_top, root, &keys, problems))
		return 0;
	err = read_roles(&c, keys.roles.node);
	return err < 0 ? err : read_refuse(&c, keys.refuse.node);
}
