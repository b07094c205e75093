/* Which octets may stand where (RFC 9110 5.6.2, 5.5; RFC 5234 B.1). The locale has no say. */
#ifndef HTTP_OCTET_H
#define HTTP_OCTET_H

#include <stdbool.h>
#include <stdint.h>

#include "policy/str.h"

/* VCHAR: printable ASCII without the blank. */
static inline bool octet_is_vchar(unsigned char c)
{
	return c > 0x20 && c < 0x7f;
}

/* What a field value, a reason phrase or a quoted string may hold: HT, SP, VCHAR, obs-text. */
static inline bool octet_is_text(unsigned char c)
{
	return c == '\t' || (c >= 0x20 && c != 0x7f);
}

/* OWS: SP or HT. */
static inline bool octet_is_blank(unsigned char c)
{
	return c == ' ' || c == '\t';
}

/* tchar: letters, digits and !#$%&'*+-.^_`|~ as a bit map of the 128 ASCII octets. */
static inline bool octet_is_token(unsigned char c)
{
	static const uint64_t map[2] = {0x03ff6cfa00000000u, 0x57ffffffc7fffffeu};

	return c < 128 && (map[c >> 6] >> (c & 63) & 1);
}

static inline bool octets_are_token(struct str s)
{
	for (size_t i = 0; i < s.n; i++)
		if (!octet_is_token((unsigned char)s.p[i]))
			return false;
	return s.n > 0;
}

/* `s` without the blanks around it. */
static inline struct str octets_trim(struct str s)
{
	while (s.n > 0 && octet_is_blank((unsigned char)s.p[0]))
		s = str_skip(s, 1);
	while (s.n > 0 && octet_is_blank((unsigned char)s.p[s.n - 1]))
		s.n--;
	return s;
}

/* Takes the next member of a comma list off `*list`, blanks around it removed; false when none is left. Empty members
 * are given too, so that "a,,b" is three. Start with the whole value; an empty value has one empty member. */
static inline bool octets_next_member(struct str *list, struct str *ret)
{
	const char *comma;

	if (!list->p)
		return false;
	comma = list->n ? memchr(list->p, ',', list->n) : NULL;
	*ret = octets_trim((struct str){list->p, comma ? (size_t)(comma - list->p) : list->n});
	*list = comma ? str_skip(*list, (size_t)(comma - list->p) + 1) : (struct str){NULL, 0};
	return true;
}

#endif
