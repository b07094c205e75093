/* Heads for tests: parsed from a heap copy of exactly their bytes, so that a read past the end is seen by the
 * sanitizers. */
#ifndef TESTS_HEADS_H
#define TESTS_HEADS_H

#include <stdlib.h>

#include "http/head.h"

#define N(array) (sizeof(array) / sizeof((array)[0]))

static inline char *heap_copy(struct str s)
{
	char *p = malloc(s.n ? s.n : 1);

	assert_non_null(p);
	memcpy(p, s.p, s.n);
	return p;
}

/* Parses a whole head; the views in *ret point into the returned copy, to be freed by the caller. */
static inline char *whole_head(struct str s, bool response, struct head *ret)
{
	char *p = heap_copy(s);
	enum head_bad why = HEAD_BAD_N;
	size_t scanned = 0;
	enum head_result r;

	r = response ? head_parse_response((struct str){p, s.n}, &scanned, ret, &why) :
		       head_parse_request((struct str){p, s.n}, &scanned, ret, &why);
	if (r != HEAD_DONE)
		fail_msg("%.*s: %s", (int)s.n, s.p, r == HEAD_MORE ? "incomplete" : head_bad_text(why));
	return p;
}

#endif
