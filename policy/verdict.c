/* The table of verdict.def, and the two ways into it: by value and by word.
 *
 * Everything that has to name a verdict (the reply, the log, the metrics, `explain`, the tests of a policy file) reads
 * the same row, so one cause has one word everywhere. A value that is no verdict, which only memory damage or a bad
 * cast can produce, reads as "undecided": a refusal. Constant data; any thread, nothing to set up or to free. */
#include "verdict.h"

static const struct verdict_row rows[VERDICT_N] = {
#define V(name, code, status, error, retry, what) {code, status, error, retry, what},
#include "verdict.def"
#undef V
};

const struct verdict_row *verdict_row(enum verdict v)
{
	return &rows[(unsigned int)v < VERDICT_N ? v : VERDICT_UNDECIDED];
}

const char *verdict_code(enum verdict v)
{
	return verdict_row(v)->code;
}

bool verdict_from_code(struct str code, enum verdict *ret)
{
	for (unsigned int i = 0; i < VERDICT_N; i++)
		if (str_eq(code, str_from(rows[i].code))) {
			*ret = (enum verdict)i;
			return true;
		}
	return false;
}
