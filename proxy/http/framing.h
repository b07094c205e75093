/* Where a body ends (RFC 9112 6 and 7). */
#ifndef HTTP_FRAMING_H
#define HTTP_FRAMING_H

#include "http/head.h"

enum framing_kind { FRAMING_NONE = 0, FRAMING_LENGTH, FRAMING_CHUNKED, FRAMING_CLOSE };

struct framing {
	enum framing_kind kind;
	uint64_t length; /* FRAMING_LENGTH */
};

/* VERDICT_ALLOW with *ret, or bad_framing / coding_not_supported with *ret_why. */
enum verdict framing_of_request(const struct head *h, struct framing *ret, const char **ret_why);
/* `method` is the request's. VERDICT_ALLOW or VERDICT_ORIGIN_PROTOCOL. */
enum verdict framing_of_response(const struct head *h, struct str method, struct framing *ret, const char **ret_why);

/* A chunked body on its way through: validated strictly and written again without extensions and trailers. */
struct chunked {
	uint8_t state;
	uint8_t digits;
	uint64_t left;      /* of the chunk being read */
	uint32_t ext_bytes;
	uint32_t trailer_bytes;
};

enum chunked_result { CHUNKED_BAD = 0, CHUNKED_MORE, CHUNKED_DONE };

void chunked_init(struct chunked *c);
/* Reads up to `n` bytes of `in` and writes the canonical form to `out` (room for `n` bytes: the output is never longer
 * than the input; `out` may be `in` itself). Sets *ret_consumed and *ret_written. CHUNKED_DONE: the body ended at
 * *ret_consumed; bytes behind belong to the next message. A chunk header is written only once it is whole. */
enum chunked_result chunked_pass(struct chunked *c, const char *in, size_t n, char *out, size_t *ret_consumed,
				 size_t *ret_written);

#endif
