/* Problems of a file.
 *
 * Every reader of a file appends here and goes on, so that a person sees all that is wrong in one run. Messages carry
 * text out of the file, which may be hostile: it passes problem_quote() first and every message is stripped of what is
 * not printable once more when it is stored, so that none can write a second line or a terminal escape.
 *
 * When a problem cannot be stored for want of memory, the list says so and the file is refused all the same. The owner
 * frees the list with policy_problems_clear(), which leaves it ready for use again. */
#include "problems.h"

#include <stdio.h>
#include <stdlib.h>

#include "yaml_chars.h"

enum { MESSAGE_MAX = 512, QUOTE_MAX = 64 };

/* Copies what is printable; a character cut in two by a length limit goes too. */
static char *printable_copy(const char *from)
{
	const unsigned char *p = (const unsigned char *)from;
	size_t n = strlen(from), k = 0, len;
	char *z = malloc(n + 1);

	if (!z)
		return NULL;
	for (size_t i = 0; i < n; i += len) {
		bool bad = yaml_char_look(p + i, n - i, &len) != NULL || p[i] == '\t' || p[i] == '\n' || p[i] == '\r';

		if (bad) {
			z[k++] = '?';
			continue;
		}
		memcpy(z + k, p + i, len);
		k += len;
	}
	z[k] = '\0';
	return z;
}

static bool make_room(struct policy_problems *ps)
{
	struct policy_problem *items;
	size_t cap = ps->cap ? ps->cap * 2 : 8;

	if (ps->n < ps->cap)
		return true;
	items = realloc(ps->items, cap * sizeof(*items));
	if (!items)
		return false;
	ps->items = items;
	ps->cap = cap;
	return true;
}

void problems_addv(struct policy_problems *ps, uint32_t line, uint32_t column, const char *hint, const char *fmt,
		   va_list ap)
{
	char text[MESSAGE_MAX];
	struct policy_problem p = {.line = line, .column = column};

	if (ps->n >= POLICY_PROBLEMS_MAX) {
		ps->dropped++;
		return;
	}
	vsnprintf(text, sizeof(text), fmt, ap);
	p.message = printable_copy(text);
	p.hint = hint ? printable_copy(hint) : NULL;
	if (!p.message || (hint && !p.hint) || !make_room(ps)) {
		free(p.message);
		free(p.hint);
		ps->out_of_memory = true;
		return;
	}
	ps->items[ps->n++] = p;
}

void problems_add(struct policy_problems *ps, uint32_t line, uint32_t column, const char *hint, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	problems_addv(ps, line, column, hint, fmt, ap);
	va_end(ap);
}

static bool comes_after(const struct policy_problem *a, const struct policy_problem *b)
{
	return a->line != b->line ? a->line > b->line : a->column > b->column;
}

/* Insertion sort: stable, needs no memory, and there are a hundred at most. */
void problems_sort(struct policy_problems *ps)
{
	for (size_t i = 1; i < ps->n; i++) {
		struct policy_problem p = ps->items[i];
		size_t k = i;

		for (; k > 0 && comes_after(&ps->items[k - 1], &p); k--)
			ps->items[k] = ps->items[k - 1];
		ps->items[k] = p;
	}
}

void policy_problems_clear(struct policy_problems *problems)
{
	for (size_t i = 0; i < problems->n; i++) {
		free(problems->items[i].message);
		free(problems->items[i].hint);
	}
	free(problems->items);
	*problems = (struct policy_problems){0};
}

struct problem_quote problem_quote(struct str s)
{
	struct problem_quote q;
	const unsigned char *p = (const unsigned char *)s.p;
	size_t k = 0, i = 0, len;

	q.z[k++] = '"';
	for (; i < s.n; i += len) {
		bool bad = yaml_char_look(p + i, s.n - i, &len) != NULL || p[i] == '\t' || p[i] == '\n' || p[i] == '\r';

		if (k + len > QUOTE_MAX)
			break;
		memcpy(q.z + k, bad ? "?" : (const char *)p + i, bad ? 1 : len);
		k += bad ? 1 : len;
	}
	snprintf(q.z + k, sizeof(q.z) - k, "%s\"", i < s.n ? "..." : "");
	return q;
}
