/* Body framing: which rule ends a body, and the chunked coding.
 *
 * Two parsers that disagree on where a body ends read different requests out of the same bytes (request smuggling). So
 * whatever RFC 9112 6 calls faulty or lets a recipient refuse is refused, also where a guess would be harmless, and
 * what is forwarded is written anew from the one reading made here.
 *
 * The chunked coding is a state machine with one transition a byte, except inside chunk data, which moves in blocks. A
 * byte read writes at most one byte, so output never overtakes input and may replace it in place. After a fault the
 * state stays CHUNK_BAD, after the end CHUNK_END; there is nothing to release. */
#include "http/framing.h"

#include <errno.h>

#include "http/octet.h"

/* No chunk and no body is a pebibyte long; a size that says so is a trick on somebody's arithmetic. */
#define SIZE_LIMIT (UINT64_C(1) << 50)

/* --- Content-Length --- */

/* 1*DIGIT and nothing else; a leading zero, which some read as octal, is refused. */
static bool parse_length(struct str s, uint64_t *ret)
{
	uint64_t v = 0;

	if (s.n == 0 || s.n > 16 || (s.n > 1 && s.p[0] == '0'))
		return false;
	for (size_t i = 0; i < s.n; i++) {
		if (!ascii_is_digit(s.p[i]))
			return false;
		v = v * 10 + (uint64_t)(s.p[i] - '0');
	}
	if (v >= SIZE_LIMIT)
		return false;
	*ret = v;
	return true;
}

int framing_content_length(const struct head *h, uint64_t *ret_length)
{
	uint64_t length = 0, v;
	struct str list, member;
	bool any = false;

	for (size_t i = 0; i < h->n_fields; i++) {
		if (!str_ieq(h->fields[i].name, STR_LIT("Content-Length")))
			continue;
		for (list = h->fields[i].value; octets_next_member(&list, &member);) {
			if (!parse_length(member, &v) || (any && v != length))
				return -EINVAL;
			length = v;
			any = true;
		}
	}
	if (!any)
		return -ENOENT;
	*ret_length = length;
	return 0;
}

/* --- Transfer-Encoding --- */

enum coding {
	CODING_BAD = 0,   /* not a list of codings, or chunked in a wrong place, or not chunked last */
	CODING_ABSENT,
	CODING_CHUNKED,   /* exactly one coding: chunked, without parameters */
	CODING_STACKED,   /* chunked last, other codings before it */
};

static enum coding coding_of(const struct head *h)
{
	size_t others = 0, chunked = 0;
	struct str list, member;
	bool any = false;

	for (size_t i = 0; i < h->n_fields; i++) {
		if (!str_ieq(h->fields[i].name, STR_LIT("Transfer-Encoding")))
			continue;
		any = true;
		for (list = h->fields[i].value; octets_next_member(&list, &member);) {
			if (chunked > 0 || !octets_are_token(member))
				return CODING_BAD;
			if (str_ieq(member, STR_LIT("chunked")))
				chunked++;
			else
				others++;
		}
	}
	if (!any)
		return CODING_ABSENT;
	if (chunked == 0)
		return CODING_BAD;
	return others > 0 ? CODING_STACKED : CODING_CHUNKED;
}

/* --- messages --- */

static bool needs_length(struct str method)
{
	return str_eq(method, STR_LIT("POST")) || str_eq(method, STR_LIT("PUT")) || str_eq(method, STR_LIT("PATCH"));
}

enum verdict framing_of_request(const struct head *h, struct framing *ret, const char **ret_why)
{
	enum coding coding = coding_of(h);
	uint64_t length = 0;
	size_t n_lengths;
	const struct head_field *field = head_find(h, STR_LIT("Content-Length"), &n_lengths);

	*ret_why = "a CONNECT has no body, but there is a Content-Length or Transfer-Encoding";
	if (str_eq(h->method, STR_LIT("CONNECT")) && (n_lengths > 0 || coding != CODING_ABSENT))
		return VERDICT_BAD_FRAMING;
	*ret_why = "Transfer-Encoding in an HTTP/1.0 request"; /* RFC 9112 6.1 */
	if (h->minor == 0 && coding != CODING_ABSENT)
		return VERDICT_BAD_FRAMING;
	*ret_why = "both Content-Length and Transfer-Encoding"; /* RFC 9112 6.1 and 6.3 */
	if (n_lengths > 0 && coding != CODING_ABSENT)
		return VERDICT_BAD_FRAMING;
	*ret_why = "Transfer-Encoding is not exactly chunked"; /* RFC 9112 6.3: not ending in chunked */
	if (coding == CODING_BAD)
		return VERDICT_BAD_FRAMING;
	*ret_why = "the only transfer coding supported is chunked";
	if (coding == CODING_STACKED)
		return VERDICT_CODING_NOT_SUPPORTED;
	*ret_why = "more than one Content-Length";
	if (n_lengths > 1)
		return VERDICT_BAD_FRAMING;
	*ret_why = "Content-Length is not a plain decimal number"; /* RFC 9112 6.3, also for lists of one value */
	if (field && !parse_length(field->value, &length))
		return VERDICT_BAD_FRAMING;
	/* RFC 9112 6.3 says no body, RFC 1945 7.2.2 says 400: a body may well follow, and would be read as a request */
	*ret_why = "an HTTP/1.0 request with a body needs a Content-Length";
	if (h->minor == 0 && !field && needs_length(h->method))
		return VERDICT_BAD_FRAMING;
	ret->kind = coding == CODING_CHUNKED ? FRAMING_CHUNKED : field ? FRAMING_LENGTH : FRAMING_NONE;
	ret->length = length;
	*ret_why = NULL;
	return VERDICT_ALLOW;
}

enum verdict framing_of_response(const struct head *h, struct str method, struct framing *ret, const char **ret_why)
{
	enum coding coding = coding_of(h);
	uint64_t length = 0;
	int r = framing_content_length(h, &length);

	*ret_why = "Connection has too many options";
	if (!head_options_few(h))
		return VERDICT_ORIGIN_PROTOCOL;
	*ret_why = NULL;
	/* RFC 9112 6.3 rule 1: whatever the fields say, there is no body, so nothing they say can mislead */
	if (h->status < 200 || h->status == 204 || h->status == 304 || str_eq(method, STR_LIT("HEAD"))) {
		*ret = (struct framing){.kind = FRAMING_NONE};
		return VERDICT_ALLOW;
	}
	*ret_why = "both Content-Length and Transfer-Encoding";
	if (r != -ENOENT && coding != CODING_ABSENT)
		return VERDICT_ORIGIN_PROTOCOL;
	*ret_why = "Transfer-Encoding in an HTTP/1.0 response";
	if (h->minor == 0 && coding != CODING_ABSENT)
		return VERDICT_ORIGIN_PROTOCOL;
	*ret_why = "Transfer-Encoding is not exactly chunked";
	if (coding == CODING_BAD || coding == CODING_STACKED)
		return VERDICT_ORIGIN_PROTOCOL;
	*ret_why = "Content-Length is malformed or contradicts itself"; /* RFC 9112 6.3 rule 5 */
	if (r == -EINVAL)
		return VERDICT_ORIGIN_PROTOCOL;
	ret->kind = coding == CODING_CHUNKED ? FRAMING_CHUNKED : r == 0 ? FRAMING_LENGTH : FRAMING_CLOSE;
	ret->length = length;
	*ret_why = NULL;
	return VERDICT_ALLOW;
}

/* --- the chunked coding (RFC 9112 7.1) --- */

enum chunk_state {
	CHUNK_BAD = 0,
	CHUNK_SIZE,        /* before the first digit */
	CHUNK_DIGITS,      /* behind at least one */
	CHUNK_EXT_BLANK,   /* blanks before a semicolon (BWS) */
	CHUNK_EXT,         /* in an extension, outside of quotes */
	CHUNK_EXT_QUOTED,
	CHUNK_EXT_ESCAPED, /* behind a backslash in quotes */
	CHUNK_SIZE_LF,
	CHUNK_DATA,
	CHUNK_DATA_CR,
	CHUNK_DATA_LF,
	CHUNK_LINE,        /* behind the last chunk, at the start of a line */
	CHUNK_NAME,        /* in a trailer's name */
	CHUNK_VALUE,
	CHUNK_VALUE_LF,
	CHUNK_END_LF,
	CHUNK_END,
};

void chunked_init(struct chunked *c)
{
	*c = (struct chunked){.state = CHUNK_SIZE};
}

static int hex_value(unsigned char b)
{
	if (b >= '0' && b <= '9')
		return b - '0';
	b = (unsigned char)ascii_lower((char)b);
	return b >= 'a' && b <= 'f' ? b - 'a' + 10 : -1;
}

/* Takes a digit of the size. Zeros behind a first zero are dropped; the first cannot be, as it may be the last chunk's
 * only digit, and a later byte then has to be written in its own place. */
static enum chunk_state take_digit(struct chunked *c, int value, bool *ret_write)
{
	bool spare = c->digits > 0 && c->left == 0 && value == 0;

	if (c->digits == 16 || c->left >= SIZE_LIMIT / 16)
		return CHUNK_BAD;
	c->digits++;
	c->left = c->left * 16 + (uint64_t)value;
	*ret_write = !spare;
	return CHUNK_DIGITS;
}

/* In a chunk header, up to the CR that ends it. Sets *ret_write when the byte is part of what goes on. */
static enum chunk_state step_header(struct chunked *c, unsigned char b, bool *ret_write)
{
	enum chunk_state s = c->state;
	int value = hex_value(b);

	if (s == CHUNK_SIZE || s == CHUNK_DIGITS) {
		if (value >= 0)
			return take_digit(c, value, ret_write);
		if (s == CHUNK_SIZE)
			return CHUNK_BAD;
	} else if (++c->ext_bytes > LIMIT_CHUNK_EXT_BYTES) {
		return CHUNK_BAD;
	}
	if (s == CHUNK_EXT_ESCAPED)
		return octet_is_text(b) ? CHUNK_EXT_QUOTED : CHUNK_BAD;
	if (s == CHUNK_EXT_QUOTED)
		return b == '"' ? CHUNK_EXT : b == '\\' ? CHUNK_EXT_ESCAPED : octet_is_text(b) ? s : CHUNK_BAD;
	if (b == '\r' && s != CHUNK_EXT_BLANK) {
		*ret_write = true;
		return CHUNK_SIZE_LF;
	}
	if (s == CHUNK_EXT)
		return b == '"' ? CHUNK_EXT_QUOTED : octet_is_vchar(b) || octet_is_blank(b) ? s : CHUNK_BAD;
	/* behind the size, or behind blanks behind it */
	return b == ';' ? CHUNK_EXT : octet_is_blank(b) ? CHUNK_EXT_BLANK : CHUNK_BAD;
}

/* Behind the last chunk. Trailers are read as strictly as fields of a request and dropped (RFC 9110 6.5.1). */
static enum chunk_state step_trailer(struct chunked *c, unsigned char b, bool *ret_write)
{
	enum chunk_state s = c->state;

	if (++c->trailer_bytes > LIMIT_TRAILER_BYTES)
		return CHUNK_BAD;
	if (s == CHUNK_LINE && b == '\r') {
		*ret_write = true;
		return CHUNK_END_LF;
	}
	if (s == CHUNK_LINE || s == CHUNK_NAME)
		return octet_is_token(b) ? CHUNK_NAME : s == CHUNK_NAME && b == ':' ? CHUNK_VALUE : CHUNK_BAD;
	if (s == CHUNK_VALUE)
		return b == '\r' ? CHUNK_VALUE_LF : octet_is_text(b) ? s : CHUNK_BAD;
	return b == '\n' ? CHUNK_LINE : CHUNK_BAD; /* CHUNK_VALUE_LF */
}

/* One byte; CHUNK_DATA is not seen here. */
static enum chunk_state step(struct chunked *c, unsigned char b, bool *ret_write)
{
	enum chunk_state s = c->state;

	switch (s) {
	case CHUNK_SIZE:
	case CHUNK_DIGITS:
	case CHUNK_EXT_BLANK:
	case CHUNK_EXT:
	case CHUNK_EXT_QUOTED:
	case CHUNK_EXT_ESCAPED:
		return step_header(c, b, ret_write);
	case CHUNK_SIZE_LF:
		*ret_write = true;
		return b != '\n' ? CHUNK_BAD : c->left > 0 ? CHUNK_DATA : CHUNK_LINE;
	case CHUNK_DATA_CR:
		*ret_write = true;
		return b == '\r' ? CHUNK_DATA_LF : CHUNK_BAD;
	case CHUNK_DATA_LF:
		*ret_write = true;
		c->digits = 0;
		c->ext_bytes = 0;
		return b == '\n' ? CHUNK_SIZE : CHUNK_BAD;
	case CHUNK_LINE:
	case CHUNK_NAME:
	case CHUNK_VALUE:
	case CHUNK_VALUE_LF:
		return step_trailer(c, b, ret_write);
	case CHUNK_END_LF:
		*ret_write = true;
		return b == '\n' ? CHUNK_END : CHUNK_BAD;
	case CHUNK_BAD:
	case CHUNK_DATA:
	case CHUNK_END:
		break;
	}
	return CHUNK_BAD;
}

enum chunked_result chunked_pass(struct chunked *c, const char *in, size_t n, char *out, size_t *ret_consumed,
				 size_t *ret_written)
{
	size_t i = 0, w = 0, move;
	bool write;

	while (i < n && c->state != CHUNK_BAD && c->state != CHUNK_END) {
		if (c->state == CHUNK_DATA) {
			move = c->left < n - i ? (size_t)c->left : n - i;
			memmove(out + w, in + i, move);
			i += move;
			w += move;
			c->left -= move;
			if (c->left == 0)
				c->state = CHUNK_DATA_CR;
			continue;
		}
		write = false;
		c->state = (uint8_t)step(c, (unsigned char)in[i], &write);
		if (write && !c->dechunk && c->state != CHUNK_BAD)
			out[w++] = ascii_lower(in[i]); /* a hex digit, CR or LF */
		i++;
	}
	*ret_consumed = i;
	*ret_written = w;
	return c->state == CHUNK_BAD ? CHUNKED_BAD : c->state == CHUNK_END ? CHUNKED_DONE : CHUNKED_MORE;
}
