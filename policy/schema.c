/* Reading a section of the policy by its table.
 *
 * The tables come from schema.def. A map is walked once: each value is matched with its row, checked for kind and range,
 * and put into the section's struct at the row's offset. What is left is unknown, what never came is missing. Nodes the
 * YAML reader has reported on already, and maps in which the text broke off, are not complained about again. Nothing
 * allocates but the problems. */
#include "schema.h"

#include <stdio.h>

#include "problems.h"

enum { KEYS_MAX = 32, HINT_MAX = 160 };

const char *const schema_refusals[] = {"refuse", "allow", NULL};

#define ROW(section, key, type, required, min, max, words, def, help) \
	{#key, SCHEMA_##type, required, min, max, words, def, help, offsetof(struct section, key)},

static const struct schema_key top_keys[] = {
#define TOP(...) ROW(schema_top, __VA_ARGS__)
#include "schema.def"
};

static const struct schema_key role_keys[] = {
#define ROLE(...) ROW(schema_role, __VA_ARGS__)
#include "schema.def"
};

static const struct schema_key refuse_keys[] = {
#define REFUSE(...) ROW(schema_refuse, __VA_ARGS__)
#include "schema.def"
};

static const struct schema_key rule_keys[] = {
#define RULE(...) ROW(schema_rule, __VA_ARGS__)
#include "schema.def"
};

#define SECTION(name, keys) {name, keys, sizeof(keys) / sizeof(*(keys))}

const struct schema_section schema_top = SECTION("a policy", top_keys);
const struct schema_section schema_role = SECTION("a role", role_keys);
const struct schema_section schema_refuse = SECTION("refuse", refuse_keys);
const struct schema_section schema_rule = SECTION("a rule", rule_keys);

_Static_assert(sizeof(role_keys) / sizeof(*role_keys) < KEYS_MAX && sizeof(top_keys) / sizeof(*top_keys) < KEYS_MAX,
	       "the list of known keys has room for every section");

static const char *kind_word(enum schema_type type)
{
	switch (type) {
	case SCHEMA_UINT:
		return "a number";
	case SCHEMA_WORD:
	case SCHEMA_TEXT:
		return "a word";
	case SCHEMA_LIST:
		return "a list";
	case SCHEMA_MAP:
		return "a map";
	}
	return "a word";
}

static enum yaml_kind kind_of(enum schema_type type)
{
	switch (type) {
	case SCHEMA_UINT:
	case SCHEMA_WORD:
	case SCHEMA_TEXT:
		return YAML_SCALAR;
	case SCHEMA_LIST:
		return YAML_LIST;
	case SCHEMA_MAP:
		return YAML_MAP;
	}
	return YAML_NONE;
}

/* "key: help", and for a lone word in place of a list how to write that list. */
static void kind_hint(const struct schema_key *k, const struct yaml_node *n, char out[HINT_MAX])
{
	bool lone = k->type == SCHEMA_LIST && n->kind == YAML_SCALAR && n->text.n > 0;

	if (lone && n->text.p[0] == '-' && !n->quoted)
		snprintf(out, HINT_MAX, "a blank is missing after the '-'");
	else if (lone && n->text.n < 60)
		snprintf(out, HINT_MAX, "write [%.*s]", STR_ARG(n->text));
	else if (k->type == SCHEMA_LIST && n->kind == YAML_SCALAR && n->text.n == 0)
		snprintf(out, HINT_MAX, "write [] for an empty list; %s: %s", k->name, k->help);
	else
		snprintf(out, HINT_MAX, "%s: %s", k->name, k->help);
}

static bool check_kind(const struct schema_key *k, const struct yaml_node *n, struct policy_problems *problems)
{
	static const char *const found[] = {"nothing", "a word", "a list", "a map"};
	char hint[HINT_MAX];
	bool empty = n->kind == YAML_SCALAR && n->text.n == 0 && !n->quoted;

	if (n->kind == kind_of(k->type) && !empty)
		return true;
	if (n->broken)
		return false;
	kind_hint(k, n, hint);
	yaml_problem(problems, n, hint, "\"%s\" must be %s, not %s", k->name, kind_word(k->type),
		     empty ? "empty" : found[n->kind]);
	return false;
}

static bool check_count(const struct schema_key *k, const struct yaml_node *n, struct policy_problems *problems)
{
	char hint[HINT_MAX];

	if (n->n < k->min && !n->broken) {
		snprintf(hint, sizeof(hint), "leave the key out for its default; %s: %s", k->name, k->help);
		yaml_problem(problems, n, hint, "\"%s\" is empty", k->name);
		return false;
	}
	if (n->n > k->max) {
		yaml_problem(problems, n, NULL, "\"%s\" has %zu entries, more than %llu", k->name, n->n,
			     (unsigned long long)k->max);
		return false;
	}
	return true;
}

static bool check_word(const struct schema_key *k, const struct yaml_node *n, uint64_t *ret,
		       struct policy_problems *problems)
{
	const char *nearest;
	char hint[HINT_MAX];

	if (n->broken)
		return false;
	for (uint64_t i = 0; k->words[i]; i++) {
		if (!str_eq(n->text, str_from(k->words[i])))
			continue;
		*ret = i;
		return true;
	}
	nearest = yaml_nearest(n->text, k->words);
	if (nearest)
		snprintf(hint, sizeof(hint), "did you mean \"%s\"?", nearest);
	else
		snprintf(hint, sizeof(hint), "%s: %s", k->name, k->help);
	yaml_problem(problems, n, hint, "%s is no value of \"%s\"", problem_quote(n->text).z, k->name);
	return false;
}

static void read_value(const struct schema_key *k, const struct yaml_node *n, struct schema_value *ret,
		       struct policy_problems *problems)
{
	bool ok = check_kind(k, n, problems);

	switch (k->type) {
	case SCHEMA_UINT:
		ok = ok && yaml_uint(n, k->min, k->max, &ret->number, problems);
		break;
	case SCHEMA_WORD:
		ok = ok && check_word(k, n, &ret->number, problems);
		break;
	case SCHEMA_TEXT:
		ok = ok && !n->broken;
		break;
	case SCHEMA_LIST:
	case SCHEMA_MAP:
		ok = ok && check_count(k, n, problems);
		break;
	}
	if (ok)
		ret->node = n;
}

static const struct schema_key *find_key(const struct schema_section *section, const struct yaml_node *key)
{
	for (size_t i = 0; i < section->n && key->kind == YAML_SCALAR; i++)
		if (str_eq(key->text, str_from(section->keys[i].name)))
			return &section->keys[i];
	return NULL;
}

static void *field(void *section, const struct schema_key *k)
{
	return (char *)section + k->offset;
}

static void tell_no_map(const struct schema_section *section, const struct yaml_node *n,
			struct policy_problems *problems)
{
	bool empty = n->kind == YAML_SCALAR && n->text.n == 0 && !n->quoted;

	if (!n->broken)
		yaml_problem(problems, n,
			     empty ? "write {} for an empty map" : "write \"key: value\" lines, with a blank after the colon",
			     "%s must be a map, not %s", section->name,
			     empty ? "empty" : n->kind == YAML_LIST ? "a list" : "a word");
}

bool schema_read(const struct schema_section *section, const struct yaml_node *map, void *ret,
		 struct policy_problems *problems)
{
	const char *names[KEYS_MAX] = {NULL};
	bool given[KEYS_MAX] = {false};
	const struct schema_key *k;

	for (size_t i = 0; i < section->n; i++) {
		names[i] = section->keys[i].name;
		*(struct schema_value *)field(ret, &section->keys[i]) =
			(struct schema_value){.number = section->keys[i].def};
	}
	if (map->kind != YAML_MAP) {
		tell_no_map(section, map, problems);
		return false;
	}
	yaml_check_keys(map, names, problems);
	for (const struct yaml_node *v = map->child; v; v = v->next) {
		k = find_key(section, v->key);
		if (!k)
			continue;
		given[k - section->keys] = true;
		read_value(k, v, field(ret, k), problems);
	}
	for (size_t i = 0; i < section->n && !map->broken; i++)
		if (section->keys[i].required && !given[i])
			yaml_problem(problems, map, section->keys[i].help, "the key \"%s\" is missing", names[i]);
	return true;
}
