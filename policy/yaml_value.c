/* What the scalars and keys of a YAML tree mean.
 *
 * Scalars are plain text until a reader asks for a number, a duration or a size; then the text must be exactly that, in
 * plain decimal. YAML's own ideas of types (`no` is false, 0o17 is fifteen, 12:30 is 750) have no say. Each function
 * reports what is wrong at the place of the node and returns false; a node that was reported on before (`broken`)
 * only returns false, so that nothing is told twice. Nothing here allocates but the problems. */
#include "yaml.h"

#include <stdio.h>

#include "problems.h"

enum { KEYS_TEXT_MAX = 300, NEAR = 2 };

const struct yaml_node *yaml_get(const struct yaml_node *map, const char *key)
{
	struct str want = str_from(key);

	if (!map || map->kind != YAML_MAP)
		return NULL;
	for (const struct yaml_node *v = map->child; v; v = v->next)
		if (v->key->kind == YAML_SCALAR && str_eq(v->key->text, want))
			return v;
	return NULL;
}

void yaml_problem(struct policy_problems *problems, const struct yaml_node *at, const char *hint, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	problems_addv(problems, at ? at->line : 1, at ? at->column : 1, hint, fmt, ap);
	va_end(ap);
}

/* Edit distance of two short words without regard to case, or NEAR + 1 when it is more. */
static size_t distance(struct str a, struct str b)
{
	enum { WORD_MAX = 32 };
	size_t row[WORD_MAX + 1];

	if (a.n > WORD_MAX || b.n > WORD_MAX || a.n > b.n + NEAR || b.n > a.n + NEAR)
		return NEAR + 1;
	for (size_t k = 0; k <= b.n; k++)
		row[k] = k;
	for (size_t i = 1; i <= a.n; i++) {
		size_t diagonal = row[0];

		row[0] = i;
		for (size_t k = 1; k <= b.n; k++) {
			size_t change = diagonal + (ascii_lower(a.p[i - 1]) != ascii_lower(b.p[k - 1]));
			size_t gap = (row[k] < row[k - 1] ? row[k] : row[k - 1]) + 1;

			diagonal = row[k];
			row[k] = change < gap ? change : gap;
		}
	}
	return row[b.n] <= NEAR ? row[b.n] : NEAR + 1;
}

const char *yaml_nearest(struct str text, const char *const *known)
{
	const char *nearest = NULL;
	size_t least = NEAR + 1;

	for (; *known; known++) {
		size_t d = distance(text, str_from(*known));

		if (d < least && 2 * d <= text.n) { /* "foo" is not a misspelt "log" */
			least = d;
			nearest = *known;
		}
	}
	return nearest;
}

void yaml_check_keys(const struct yaml_node *map, const char *const *known, struct policy_problems *problems)
{
	char all[KEYS_TEXT_MAX] = "", hint[KEYS_TEXT_MAX + 32];
	size_t k = 0;

	for (size_t i = 0; known[i] && k < sizeof(all); i++)
		k += (size_t)snprintf(all + k, sizeof(all) - k, "%s%s", i ? ", " : "", known[i]);
	for (const struct yaml_node *v = map->child; v; v = v->next) {
		const char *nearest;
		bool found = false;

		for (size_t i = 0; known[i] && !found && v->key->kind == YAML_SCALAR; i++)
			found = str_eq(v->key->text, str_from(known[i]));
		if (found || v->key->broken)
			continue;
		nearest = yaml_nearest(v->key->text, known);
		if (nearest)
			snprintf(hint, sizeof(hint), "did you mean \"%s\"?", nearest);
		else
			snprintf(hint, sizeof(hint), "the keys here are: %s", all);
		yaml_problem(problems, v->key, hint, "unknown key %s", problem_quote(v->key->text).z);
	}
}

static bool is_scalar(const struct yaml_node *n, const char *wanted, struct policy_problems *problems)
{
	if (n->broken)
		return false;
	if (n->kind == YAML_SCALAR)
		return true;
	yaml_problem(problems, n, NULL, "a %s stands here where %s should be", n->kind == YAML_LIST ? "list" : "map",
		     wanted);
	return false;
}

/* Plain decimal digits at the start of `s`: no sign, no leading zero. Returns how many, 0 when there are none or the
 * number does not fit. */
static size_t digits(struct str s, uint64_t *ret)
{
	uint64_t v = 0;
	size_t i = 0;

	for (; i < s.n && ascii_is_digit(s.p[i]); i++)
		if (__builtin_mul_overflow(v, 10, &v) || __builtin_add_overflow(v, (uint64_t)(s.p[i] - '0'), &v))
			return 0;
	if (i > 1 && s.p[0] == '0')
		return 0;
	*ret = v;
	return i;
}

bool yaml_uint(const struct yaml_node *n, uint64_t min, uint64_t max, uint64_t *ret, struct policy_problems *problems)
{
	uint64_t v = 0;

	if (!is_scalar(n, "a number", problems))
		return false;
	if (n->quoted || n->text.n == 0 || digits(n->text, &v) != n->text.n) {
		yaml_problem(problems, n, "write plain decimal digits, without quotes", "%s%s is no number",
			     problem_quote(n->text).z, n->quoted ? " in quotes" : "");
		return false;
	}
	if (min == max && v != min) {
		yaml_problem(problems, n, NULL, "%.*s is not known here, only %llu", STR_ARG(n->text),
			     (unsigned long long)min);
		return false;
	}
	if (v < min || v > max) {
		yaml_problem(problems, n, NULL, "%.*s is not in the range %llu to %llu", STR_ARG(n->text),
			     (unsigned long long)min, (unsigned long long)max);
		return false;
	}
	*ret = v;
	return true;
}

bool yaml_bool(const struct yaml_node *n, bool *ret, struct policy_problems *problems)
{
	if (!is_scalar(n, "true or false", problems))
		return false;
	if (n->quoted || (!str_eq(n->text, STR_LIT("true")) && !str_eq(n->text, STR_LIT("false")))) {
		yaml_problem(problems, n, "write true or false, in lower case and without quotes", "%s is neither true nor false",
			     problem_quote(n->text).z);
		return false;
	}
	*ret = n->text.n == 4;
	return true;
}

struct unit {
	struct str name;
	uint64_t factor;
};

/* A number with one of `units` right behind it. False when it is not that or does not fit. */
static bool with_unit(struct str text, const struct unit *units, size_t n_units, uint64_t *ret)
{
	uint64_t v = 0;
	size_t n = digits(text, &v);

	for (size_t i = 0; i < n_units && n > 0; i++)
		if (str_eq(str_skip(text, n), units[i].name))
			return !__builtin_mul_overflow(v, units[i].factor, ret);
	return false;
}

bool yaml_duration_ms(const struct yaml_node *n, uint64_t min, uint64_t max, uint64_t *ret,
		      struct policy_problems *problems)
{
	static const struct unit units[] = {
		{STR_LIT("ms"), 1},           {STR_LIT("s"), 1000},         {STR_LIT("m"), 60 * 1000},
		{STR_LIT("h"), 3600 * 1000},  {STR_LIT("d"), 86400 * 1000},
	};
	uint64_t v = 0;

	if (!is_scalar(n, "a duration", problems))
		return false;
	if (!with_unit(n->text, units, sizeof(units) / sizeof(*units), &v)) {
		yaml_problem(problems, n, "write digits and a unit without a blank: 250ms, 10s, 5m, 1h or 2d",
			     "%s is no duration", problem_quote(n->text).z);
		return false;
	}
	if (v < min || v > max) {
		yaml_problem(problems, n, NULL, "%.*s is not in the range %llums to %llums", STR_ARG(n->text),
			     (unsigned long long)min, (unsigned long long)max);
		return false;
	}
	*ret = v;
	return true;
}

bool yaml_size_bytes(const struct yaml_node *n, uint64_t *ret, struct policy_problems *problems)
{
	static const struct unit units[] = {
		{STR_LIT("B"), 1},
		{STR_LIT("kB"), 1000},
		{STR_LIT("MB"), 1000 * 1000},
		{STR_LIT("GB"), 1000 * 1000 * 1000},
		{STR_LIT("TB"), 1000ull * 1000 * 1000 * 1000},
		{STR_LIT("KiB"), 1 << 10},
		{STR_LIT("MiB"), 1 << 20},
		{STR_LIT("GiB"), 1 << 30},
		{STR_LIT("TiB"), 1ull << 40},
	};
	uint64_t v = 0;

	if (!is_scalar(n, "a size", problems))
		return false;
	if (!with_unit(n->text, units, sizeof(units) / sizeof(*units), &v)) {
		yaml_problem(problems, n, "write digits and a unit without a blank: B, kB, MB, GB, TB, KiB, MiB, GiB or TiB",
			     "%s is no size", problem_quote(n->text).z);
		return false;
	}
	*ret = v;
	return true;
}
