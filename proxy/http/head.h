/* The strict head parser: bytes in, views out. Knows no descriptor.
 *
 * What RFC 9112 lets a recipient reject is rejected: bare LF, bare CR, NUL, obs-fold, blanks around field names,
 * fields without a colon, names that are no token, more than one blank in the request line. Up to one empty line
 * before a request line is skipped (RFC 9112 2.2). Responses are read as strictly but for three habits of origins
 * that no recipient can misread: lines that end in LF alone (2.2), no blank behind a status without a reason, and a
 * blank before a colon, which is removed (5.1). */
#ifndef HTTP_HEAD_H
#define HTTP_HEAD_H

#include <stdbool.h>
#include <stdint.h>

#include "limits.h"
#include "policy/policy.h"

enum head_bad {
#define H(name, verdict, text) HEAD_BAD_##name,
#include "http/head_bad.def"
#undef H
	HEAD_BAD_N
};

struct head_field {
	struct str name, value; /* value without surrounding blanks */
};

struct head {
	size_t len;             /* bytes from the start of the input to the end of the empty line */
	struct str method;      /* request */
	struct str target;      /* request */
	int status;             /* response: 100 to 999 */
	struct str reason;      /* response, may be empty, no control characters but HT */
	int minor;              /* HTTP/1.minor: 0 or 1 */
	size_t n_fields;
	struct head_field fields[LIMIT_HEAD_FIELDS];
};

enum head_result { HEAD_BAD = 0, HEAD_MORE, HEAD_DONE };

/* Parses a request head from all bytes received so far. `*scanned` starts at 0 and carries over between calls on the
 * growing input, so that each byte is looked at a bounded number of times; set it to 0 again for the next head.
 * HEAD_DONE: *ret is filled with views into `in`. HEAD_MORE: give more. HEAD_BAD: *ret_why says what; obvious rubbish
 * (a TLS record, a SOCKS or PROXY greeting, an HTTP/2 preface) is reported as soon as it can be told, never waited
 * for. The result does not depend on how the input was cut. Method, target, version and fields are checked here;
 * whether the Host field is right is checked by target_parse(). */
enum head_result head_parse_request(struct str in, size_t *scanned, struct head *ret, enum head_bad *ret_why);
enum head_result head_parse_response(struct str in, size_t *scanned, struct head *ret, enum head_bad *ret_why);

/* The refusal and the words for a reason. For a response every reason becomes VERDICT_ORIGIN_PROTOCOL at the caller. */
enum verdict head_bad_verdict(enum head_bad b);
const char *head_bad_text(enum head_bad b);

/* The first field of that name (ASCII case ignored), or NULL. *ret_count, if not NULL, gets how many there are. */
const struct head_field *head_find(const struct head *h, struct str name, size_t *ret_count);
/* True when any field of that name has `token` as a member of its comma list (ASCII case ignored). */
bool head_has_token(const struct head *h, struct str name, struct str token);

/* Every field that is forwarded is looked for among the options of Connection: many times many would stall a worker.
 * target_parse() and framing_of_response() refuse a head that has more. */
enum { HEAD_CONNECTION_OPTIONS_MAX = 64 };

/* True when Connection has no more options than that, in all its fields together. */
bool head_options_few(const struct head *h);

#endif
