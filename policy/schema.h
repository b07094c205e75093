/* The keys of the policy language and their shapes. schema.def has a row for each; reading a section checks kinds,
 * ranges, words, unknown and missing keys in one place. */
#ifndef POLICY_SCHEMA_H
#define POLICY_SCHEMA_H

#include "yaml.h"

enum schema_type { SCHEMA_UINT, SCHEMA_WORD, SCHEMA_TEXT, SCHEMA_LIST, SCHEMA_MAP };

struct schema_key {
	const char *name;
	enum schema_type type;
	bool required;
	uint64_t min, max;
	const char *const *words;
	uint64_t def;
	const char *help;
	size_t offset; /* of the key's struct schema_value in its section's struct */
};

/* What a key was given. `node` is NULL when it was not given or of the wrong kind; `number` is then the default. */
struct schema_value {
	const struct yaml_node *node;
	uint64_t number; /* UINT: the number; WORD: its index */
};

struct schema_section {
	const char *name; /* "a role" */
	const struct schema_key *keys;
	size_t n;
};

#define SCHEMA_FIELD(key, ...) struct schema_value key;

struct schema_top {
#define TOP SCHEMA_FIELD
#include "schema.def"
};

struct schema_role {
#define ROLE SCHEMA_FIELD
#include "schema.def"
};

struct schema_refuse {
#define REFUSE SCHEMA_FIELD
#include "schema.def"
};

struct schema_rule {
#define RULE SCHEMA_FIELD
#include "schema.def"
};

#undef SCHEMA_FIELD

enum { SCHEMA_REFUSE = 0, SCHEMA_ALLOW = 1 }; /* indices into schema_refusals */
extern const char *const schema_refusals[];

extern const struct schema_section schema_top, schema_role, schema_refuse, schema_rule;

/* Reads a map into the struct of its section (`ret`, every field written). Reports what does not fit; returns false when
 * `map` is no map, and then all fields have their defaults. */
bool schema_read(const struct schema_section *section, const struct yaml_node *map, void *ret,
		 struct policy_problems *problems);

#endif
