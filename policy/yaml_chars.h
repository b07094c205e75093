/* Which characters a strict file may hold. */
#ifndef POLICY_YAML_CHARS_H
#define POLICY_YAML_CHARS_H

#include "policy.h"

/* A kind of character that is refused. */
struct yaml_bad_char {
	uint32_t first, last;
	bool unreadable; /* no YAML reader can go on, or it would count lines otherwise than an editor does */
	const char *what;
};

/* Looks at the character at `p` (n > 0 bytes left). Returns NULL when it may stand in a file, else the row that
 * refuses it; *ret_len is the number of bytes to go on by, at least 1. */
const struct yaml_bad_char *yaml_char_look(const unsigned char *p, size_t n, size_t *ret_len);

/* Reports every refused character of a whole file. Returns false when the text cannot be parsed at all;
 * *ret_skip is then untouched, else the bytes to leave out at the start (a byte order mark, reported too). */
bool yaml_chars_scan(struct str text, size_t *ret_skip, struct policy_problems *problems);

#endif
