/* The list of what is wrong with a file: appending with a place, quoting safely, sorting. Shared by the YAML reader and
 * all that reads its trees. A list never grows past POLICY_PROBLEMS_MAX; what comes later is only counted. */
#ifndef POLICY_PROBLEMS_H
#define POLICY_PROBLEMS_H

#include <stdarg.h>

#include "policy.h"

/* Appends one. Message and hint are copied, cut at about 500 bytes, and lose whatever is not printable. */
void problems_addv(struct policy_problems *ps, uint32_t line, uint32_t column, const char *hint, const char *fmt,
		   va_list ap);
void problems_add(struct policy_problems *ps, uint32_t line, uint32_t column, const char *hint, const char *fmt, ...)
	__attribute__((format(printf, 5, 6)));

/* Orders by place; problems of one place stay in the order they were found in. */
void problems_sort(struct policy_problems *ps);

/* True when anything at all was found, stored or not. */
static inline bool problems_any(const struct policy_problems *ps)
{
	return ps->n > 0 || ps->dropped > 0 || ps->out_of_memory;
}

/* Text from the file for use inside a message: in double quotes, cut to a readable length, nothing unprintable.
 * Returned by value, so that problem_quote(s).z can stand in an argument list. */
struct problem_quote {
	char z[80];
};

struct problem_quote problem_quote(struct str s);

#endif
