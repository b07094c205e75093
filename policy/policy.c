/* The life of a policy: text in, one immutable object out, counted references.
 *
 * Compiling parses strictly, builds, and then looks at one thing only: was there any problem at all. If so everything
 * built is thrown away, whatever state it is in, and the caller keeps the policy it had. So a policy that exists is
 * always a whole one. References are counted atomically because workers of several threads drop theirs after a
 * reload in any order; the last one frees. */
#include "policy.h"

#include <errno.h>
#include <stdlib.h>

#include "compile.h"
#include "problems.h"

static uint64_t fnv1a(struct str s)
{
	uint64_t h = 0xcbf29ce484222325u;

	for (size_t i = 0; i < s.n; i++)
		h = (h ^ (unsigned char)s.p[i]) * 0x100000001b3u;
	return h;
}

static void role_clear(struct role *r)
{
	free(r->name);
	hostset_clear(&r->allow);
	hostset_clear(&r->deny);
	addrset_clear(&r->allow_addresses);
	addrset_clear(&r->deny_addresses);
}

struct policy *policy_ref(struct policy *p)
{
	if (p)
		atomic_fetch_add_explicit(&p->refs, 1, memory_order_relaxed);
	return p;
}

struct policy *policy_unref(struct policy *p)
{
	if (!p || atomic_fetch_sub_explicit(&p->refs, 1, memory_order_acq_rel) != 1)
		return NULL;
	for (size_t i = 0; i < p->n_roles; i++)
		role_clear(&p->roles[i]);
	free(p->roles);
	hostset_clear(&p->refuse_names);
	addrset_clear(&p->refuse_addresses);
	free(p);
	return NULL;
}

static bool is_empty(const struct yaml_node *root)
{
	return !root || (root->kind == YAML_SCALAR && root->text.n == 0 && !root->quoted && !root->broken);
}

int policy_compile(struct str text, struct policy **ret_policy, struct policy_problems *problems)
{
	struct yaml_doc *doc = NULL;
	struct policy *p = calloc(1, sizeof(*p));
	int err;

	if (!p)
		return -ENOMEM;
	atomic_init(&p->refs, 1);
	p->hash = fnv1a(text);
	err = yaml_parse_partial(text, &doc, problems);
	if (err < 0)
		goto out;
	if (!is_empty(yaml_root(doc)))
		err = compile_policy(yaml_root(doc), p, problems);
	else if (!problems_any(problems))
		yaml_problem(problems, NULL, "the smallest policy is \"version: 1\" and \"roles: {}\"", "the file is empty");
	problems_sort(problems);
	if (err == 0 && problems_any(problems))
		err = problems->out_of_memory ? -ENOMEM : -EINVAL;
	if (err == 0) {
		*ret_policy = p;
		p = NULL;
	}
out:
	yaml_doc_free(doc);
	policy_unref(p);
	return err;
}

uint64_t policy_hash(const struct policy *p)
{
	return p ? p->hash : 0;
}

int policy_role(const struct policy *p, struct str name)
{
	size_t lo = 0, hi = p ? p->n_roles : 0;

	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;
		struct str have = str_from(p->roles[mid].name);
		int c = memcmp(have.p, name.p, have.n < name.n ? have.n : name.n);

		if (c == 0 && have.n == name.n)
			return (int)mid;
		if (c < 0 || (c == 0 && have.n < name.n))
			lo = mid + 1;
		else
			hi = mid;
	}
	return -1;
}

size_t policy_n_roles(const struct policy *p)
{
	return p ? p->n_roles : 0;
}

const char *policy_role_name(const struct policy *p, int role)
{
	return p && role >= 0 && (size_t)role < p->n_roles ? p->roles[role].name : NULL;
}
