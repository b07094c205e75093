/* A view of bytes: pointer and length, no terminator, nothing owned.
 * Whatever came from outside travels as one of these, so that a NUL inside it is a byte like any other. */
#ifndef POLICY_STR_H
#define POLICY_STR_H

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

struct str {
	const char *p;
	size_t n;
};

/* For printf's "%.*s". */
#define STR_ARG(s) (int)(s).n, (s).p
#define STR_LIT(lit) ((struct str){"" lit, sizeof(lit) - 1})

static inline struct str str_from(const char *z)
{
	return (struct str){z, strlen(z)};
}

static inline char ascii_lower(char c)
{
	return c >= 'A' && c <= 'Z' ? (char)(c + ('a' - 'A')) : c;
}

static inline bool ascii_is_digit(char c)
{
	return c >= '0' && c <= '9';
}

static inline bool ascii_is_alpha(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

static inline bool str_eq(struct str a, struct str b)
{
	return a.n == b.n && (a.n == 0 || memcmp(a.p, b.p, a.n) == 0);
}

/* Equal but for ASCII case; the locale has no say. */
static inline bool str_ieq(struct str a, struct str b)
{
	if (a.n != b.n)
		return false;
	for (size_t i = 0; i < a.n; i++)
		if (ascii_lower(a.p[i]) != ascii_lower(b.p[i]))
			return false;
	return true;
}

/* True when `s` ends with `end` (byte for byte). */
static inline bool str_ends(struct str s, struct str end)
{
	return s.n >= end.n && (end.n == 0 || memcmp(s.p + s.n - end.n, end.p, end.n) == 0);
}

/* `s` without its first `n` bytes (n <= s.n). */
static inline struct str str_skip(struct str s, size_t n)
{
	return (struct str){s.p + n, s.n - n};
}

#endif
