/* Strict YAML: bytes in, a small tree with places out (libyaml's event interface underneath).
 *
 * Refused, each with its place and a hint: anything but valid UTF-8 without BOM, control and invisible or bidirectional
 * characters, more than one document, anchors, aliases, tags, merge keys, duplicate keys (both places named), depth,
 * size or node count beyond the limits, scalars with control characters inside. Scalars are plain text here: no
 * booleans, no nulls, no numbers. Shared by the policy and the guard's own configuration. */
#ifndef POLICY_YAML_H
#define POLICY_YAML_H

#include "policy.h"

enum yaml_kind { YAML_NONE = 0, YAML_SCALAR, YAML_LIST, YAML_MAP };

enum {
	YAML_DEPTH_MAX = 16,
	YAML_NODES_MAX = 2 * 1000 * 1000, /* keys and values: 100 000 rules of the long form are 700 000 */
};

struct yaml_node {
	enum yaml_kind kind;
	uint32_t line, column;   /* from 1 */
	bool quoted;             /* scalar in quotes */
	bool broken;             /* a problem was told of it, or the text broke off inside: say no more about it */
	struct str text;         /* scalar: its value, owned by the document */
	struct yaml_node *key;   /* set on a value inside a map: its key, a scalar */
	struct yaml_node *child; /* list and map: first value */
	struct yaml_node *next;  /* next value in the same list or map */
	size_t n;                /* list and map: number of values */
};

struct yaml_doc;

/* Parses. Returns 0 with *ret; -EINVAL with every problem found appended; -ENOMEM. After a problem the parser goes on
 * where it can, so that all are told. */
int yaml_parse(struct str text, struct yaml_doc **ret, struct policy_problems *problems);
/* As yaml_parse(), but with a tree also when there were problems, so that its reader can look for more of them: returns
 * 0 with *ret, problems or not, or -ENOMEM. For reporting only: a caller that finds any problem must not use the tree. */
int yaml_parse_partial(struct str text, struct yaml_doc **ret, struct policy_problems *problems);
const struct yaml_node *yaml_root(const struct yaml_doc *d); /* NULL for an empty document */
struct yaml_doc *yaml_doc_free(struct yaml_doc *d);   /* not yaml_free(): libyaml exports that name and would call ours */

/* The value under `key` of a map, or NULL. */
const struct yaml_node *yaml_get(const struct yaml_node *map, const char *key);

/* Appends a problem at a node's place (or at line 1, column 1 for NULL). `hint` may be NULL; both are copied. */
void yaml_problem(struct policy_problems *problems, const struct yaml_node *at, const char *hint, const char *fmt, ...)
	__attribute__((format(printf, 4, 5)));

/* Reports every key of `map` that is not in `known` (NULL-terminated) as unknown, suggesting the nearest. */
void yaml_check_keys(const struct yaml_node *map, const char *const *known, struct policy_problems *problems);
/* The nearest of `known` to `text` (edit distance at most 2), or NULL. */
const char *yaml_nearest(struct str text, const char *const *known);

/* Scalars with meaning; each returns false and reports when the text is not exactly that. */
bool yaml_uint(const struct yaml_node *n, uint64_t min, uint64_t max, uint64_t *ret, struct policy_problems *problems);
bool yaml_bool(const struct yaml_node *n, bool *ret, struct policy_problems *problems);      /* true, false */
bool yaml_duration_ms(const struct yaml_node *n, uint64_t min, uint64_t max, uint64_t *ret,
		      struct policy_problems *problems);                                       /* 250ms 10s 5m 1h 2d */
bool yaml_size_bytes(const struct yaml_node *n, uint64_t *ret, struct policy_problems *problems); /* B kB MB GB TB KiB MiB GiB TiB */

#endif
