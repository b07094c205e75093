/* What the fuzz targets share: a check that aborts, and exact copies. */
#ifndef FUZZ_CHECK_H
#define FUZZ_CHECK_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "policy/str.h"

/* Holds in every build, unlike assert(). */
#define CHECK(cond) \
	do { \
		if (!(cond)) { \
			fprintf(stderr, "%s:%d: %s does not hold\n", __FILE__, __LINE__, #cond); \
			abort(); \
		} \
	} while (0)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* A heap copy of exactly these bytes, to be freed by the caller. */
static inline char *exact_copy(struct str s)
{
	char *p = malloc(s.n ? s.n : 1);

	if (!p)
		abort();
	memcpy(p, s.p, s.n);
	return p;
}

#endif
