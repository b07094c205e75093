/* Where a body ends (RFC 9112 6 and 7). */
#ifndef HTTP_FRAMING_H
#define HTTP_FRAMING_H

#include "http/head.h"

enum framing_kind { FRAMING_NONE = 0, FRAMING_LENGTH, FRAMING_CHUNKED, FRAMING_CLOSE };

struct framing {
	enum framing_kind kind;
	uint64_t length; /* FRAMING_LENGTH */
};

/* VERDICT_ALLOW with *ret, or bad_framing / coding_not_supported with *ret_why (static text). */
enum verdict framing_of_request(const struct head *h, struct framing *ret, const char **ret_why);
/* `method` is the request's. VERDICT_ALLOW or VERDICT_ORIGIN_PROTOCOL. */
enum verdict framing_of_response(const struct head *h, struct str method, struct framing *ret, const char **ret_why);

/* What Content-Length says, without regard to anything else: 0 with *ret_length when there is one value (identical
 * repetitions, also in one list, count as one: RFC 9112 6.3), -ENOENT when there is no such field, else -EINVAL. */
int framing_content_length(const struct head *h, uint64_t *ret_length);

/* A chunked body on its way through: validated strictly and written again without extensions and trailers. The zero
 * value refuses everything. */
struct chunked {
	uint8_t state;
	uint8_t digits;
	bool dechunk;       /* write the data only: for a client that cannot read chunks. Set it after chunked_init() */
	uint64_t left;      /* of the chunk being read */
	uint32_t ext_bytes;
	uint32_t trailer_bytes;
};

enum chunked_result { CHUNKED_BAD = 0, CHUNKED_MORE, CHUNKED_DONE };

void chunked_init(struct chunked *c);
/* Reads up to `n` bytes of `in` and writes the same body to `out`: no extensions, no trailers, sizes in lower case
 * with at most one leading zero. Each byte read writes at most one, so that at no point of the body, however it is
 * cut into calls, more was written than read: `out` needs room for `n` bytes and may be `in` itself. Sets
 * *ret_consumed and *ret_written. CHUNKED_DONE: the body ended at *ret_consumed; bytes behind belong to the next
 * message. CHUNKED_BAD: what was written may end inside a chunk size; it must not be followed by anything, nor be
 * made to look complete. */
enum chunked_result chunked_pass(struct chunked *c, const char *in, size_t n, char *out, size_t *ret_consumed,
				 size_t *ret_written);

#endif
