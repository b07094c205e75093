/* The codes of verdict.def. */
#ifndef POLICY_VERDICT_H
#define POLICY_VERDICT_H

#include <stdbool.h>

#include "str.h"

enum verdict {
#define V(name, code, status, error, retry, what) VERDICT_##name,
#include "verdict.def"
#undef V
	VERDICT_N
};

struct verdict_row {
	const char *code;         /* "address_link_local" */
	int status;               /* HTTP status of the refusal; 0 when none is ever sent */
	const char *proxy_status; /* RFC 9209 error type, or "" */
	bool retry;
	const char *what;
};

/* The row of a verdict; for a value out of range the row of VERDICT_UNDECIDED. Never NULL. */
const struct verdict_row *verdict_row(enum verdict v);
const char *verdict_code(enum verdict v);
/* Finds a code by its word. Returns false, *ret untouched, when there is none. */
bool verdict_from_code(struct str code, enum verdict *ret);

#endif
