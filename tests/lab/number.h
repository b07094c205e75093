/* Numbers in text for the lab's programs: decimal digits and nothing else, no larger than asked for. */
#pragma once
#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

/* Reads the number at the start of text. It must end where `end` stands (a character, 0 for the end of the text). Leaves
 * *ret_value alone and returns false for anything else. */
static inline bool read_number(const char *text, char end, uint64_t max, uint64_t *ret_value)
{
	unsigned long long value;
	char *stop;

	if (*text < '0' || *text > '9') /* strtoull() takes blanks and signs before the digits */
		return false;
	errno = 0;
	value = strtoull(text, &stop, 10);
	if (errno || *stop != end || value > max)
		return false;
	*ret_value = value;
	return true;
}
