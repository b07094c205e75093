/* The strict head parser.
 *
 * Two passes. The first runs on every call over the octets that are new since the last one. An octet is judged by
 * itself and the one before it alone (control characters, a CR or LF without its other half, a blank at the start of
 * a line), so `*scanned` is all the state there is; when an LF completes a line, the line is looked up backwards and
 * parsed, for the verdict only. So each octet is seen a bounded number of times however the input was cut, a fault is
 * told when its line is whole at the latest, and the first fault by position is told whatever the cut. What can be no
 * HTTP request is told earlier still, from the method's octets: those few are looked at again on each call.
 *
 * The second pass runs once, over a head known to be good, and fills the caller's views. On HEAD_BAD and HEAD_MORE
 * nothing is written. There is nothing to release. */
#include "http/head.h"

#include "http/octet.h"

enum { METHOD_MAX = 32 }; /* the longest registered method, UPDATEREDIRECTREF, has 17 */

static const char PREFIX[] = "HTTP/1."; /* of a response */

/* --- lines --- */

/* RFC 9112 2.3: HTTP-version is case-sensitive, one digit each. */
static bool parse_version(struct str v, int *ret_minor, enum head_bad *ret_why)
{
	if (v.n != 8 || memcmp(v.p, "HTTP/", 5) != 0 || !ascii_is_digit(v.p[5]) || v.p[6] != '.' ||
	    !ascii_is_digit(v.p[7])) {
		*ret_why = HEAD_BAD_VERSION_MALFORMED;
		return false;
	}
	if (v.p[5] != '1' || v.p[7] > '1') {
		*ret_why = HEAD_BAD_VERSION;
		return false;
	}
	*ret_minor = v.p[7] - '0';
	return true;
}

/* RFC 9112 3: exactly one SP between the parts; no blank is ever corrected (3.2). */
static bool parse_request_line(struct str line, struct head *h, enum head_bad *ret_why)
{
	const char *first = memchr(line.p, ' ', line.n), *last = first ? memrchr(line.p, ' ', line.n) : NULL;

	*ret_why = HEAD_BAD_REQUEST_LINE;
	if (!first || first == last)
		return false;
	h->method = (struct str){line.p, (size_t)(first - line.p)};
	h->target = (struct str){first + 1, (size_t)(last - first - 1)};
	if (!octets_are_token(h->method)) {
		*ret_why = HEAD_BAD_METHOD;
		return false;
	}
	if (h->target.n == 0 || first[1] == ' ' || last[-1] == ' ')
		return false;
	if (!parse_version((struct str){last + 1, (size_t)(line.p + line.n - last - 1)}, &h->minor, ret_why))
		return false;
	for (size_t i = 0; i < h->target.n; i++) {
		if (!octet_is_vchar((unsigned char)h->target.p[i])) {
			*ret_why = HEAD_BAD_TARGET_OCTET;
			return false;
		}
	}
	return true;
}

/* RFC 9112 4. The SP behind the status is not optional in the grammar, but often missing when there is no reason. */
static bool parse_status_line(struct str line, struct head *h, enum head_bad *ret_why)
{
	*ret_why = HEAD_BAD_STATUS_LINE;
	if (line.n < 12 || line.p[8] != ' ')
		return false;
	if (!parse_version((struct str){line.p, 8}, &h->minor, ret_why))
		return false;
	*ret_why = HEAD_BAD_STATUS_LINE;
	h->status = 0;
	for (size_t i = 9; i < 12; i++) {
		if (!ascii_is_digit(line.p[i]))
			return false;
		h->status = h->status * 10 + (line.p[i] - '0');
	}
	if (h->status < 100 || (line.n > 12 && line.p[12] != ' '))
		return false;
	h->reason = line.n > 13 ? octets_trim(str_skip(line, 13)) : (struct str){"", 0};
	return true;
}

/* RFC 9112 5.1: a blank before the colon is refused in a request and removed from a response. */
static bool parse_field(struct str line, bool response, struct head_field *ret, enum head_bad *ret_why)
{
	const char *colon = memchr(line.p, ':', line.n);
	struct str name;

	*ret_why = HEAD_BAD_NO_COLON;
	if (!colon)
		return false;
	name = (struct str){line.p, (size_t)(colon - line.p)};
	*ret_why = HEAD_BAD_NAME_EMPTY;
	if (name.n == 0)
		return false;
	*ret_why = HEAD_BAD_NAME_BLANK;
	if (octet_is_blank((unsigned char)name.p[name.n - 1])) {
		if (!response)
			return false;
		name = octets_trim(name);
	}
	*ret_why = HEAD_BAD_NAME;
	if (!octets_are_token(name))
		return false;
	ret->name = name;
	ret->value = octets_trim(str_skip(line, (size_t)(colon - line.p) + 1));
	return true;
}

/* --- the first pass --- */

/* What the start of a request tells before its line is whole. Looks at METHOD_MAX + 1 octets at most. */
static bool request_start_ok(struct str in, enum head_bad *ret_why)
{
	unsigned char c;
	size_t i;

	for (i = 0; i < in.n && i <= METHOD_MAX; i++) {
		c = (unsigned char)in.p[i];
		if (octet_is_token(c))
			continue;
		if (i == 0) {
			/* RFC 8446 5.1 handshake record; RFC 1928 3 and SOCKS4 version numbers */
			*ret_why = c == 0x16 ? HEAD_BAD_TLS : c == 4 || c == 5 ? HEAD_BAD_SOCKS : HEAD_BAD_NOT_HTTP;
			return false;
		}
		if (c == '\r' || c == '\n')
			return true;
		*ret_why = HEAD_BAD_METHOD;
		if (c != ' ')
			return false;
		*ret_why = HEAD_BAD_HTTP2_PREFACE;
		if (str_eq((struct str){in.p, i}, STR_LIT("PRI"))) /* RFC 9113 3.4 */
			return false;
		*ret_why = HEAD_BAD_PROXY_GREETING;
		return !str_eq((struct str){in.p, i}, STR_LIT("PROXY"));
	}
	*ret_why = HEAD_BAD_METHOD_LONG;
	return i <= METHOD_MAX;
}

static bool response_start_ok(struct str in, enum head_bad *ret_why)
{
	size_t n = in.n < sizeof(PREFIX) - 1 ? in.n : sizeof(PREFIX) - 1;

	*ret_why = HEAD_BAD_NOT_HTTP;
	return n == 0 || memcmp(in.p, PREFIX, n) == 0;
}

/* Judges in.p[i] by itself and its left neighbour; the start of the input counts as the start of a line. A response may
 * end its lines with LF alone (RFC 9112 2.2): some origins do, and what goes on to the client is written anew. */
static bool octet_ok(struct str in, size_t i, bool response, enum head_bad *ret_why)
{
	unsigned char c = (unsigned char)in.p[i], before = i > 0 ? (unsigned char)in.p[i - 1] : '\n';

	*ret_why = HEAD_BAD_BARE_CR;
	if (before == '\r' && c != '\n')
		return false;
	*ret_why = HEAD_BAD_BARE_LF;
	if (c == '\n')
		return before == '\r' || response;
	if (c == '\r')
		return true;
	*ret_why = HEAD_BAD_FOLD; /* RFC 9112 5.2 and 2.2 */
	if (before == '\n' && octet_is_blank(c))
		return false;
	*ret_why = c == '\0' ? HEAD_BAD_NUL : HEAD_BAD_CONTROL;
	return octet_is_text(c);
}

/* The line that ends with the LF at `lf`, without its line end. */
static struct str line_before(struct str in, size_t start, size_t lf)
{
	const char *prev = memrchr(in.p + start, '\n', lf - start);
	const char *p = prev ? prev + 1 : in.p + start;
	size_t n = (size_t)(in.p + lf - p);

	return (struct str){p, n > 0 && p[n - 1] == '\r' ? n - 1 : n};
}

static size_t count_lines(struct str in, size_t start, size_t end)
{
	size_t n = 0;

	for (const char *p = in.p + start, *e = in.p + end; (p = memchr(p, '\n', (size_t)(e - p))) != NULL; p++)
		n++;
	return n;
}

/* Goes on from `*scanned`. HEAD_DONE: *ret_len is the length of the head, all of which is known to be good. */
static enum head_result scan(struct str in, size_t start, bool response, size_t *scanned, size_t *ret_len,
			     enum head_bad *ret_why)
{
	size_t limit = in.n < LIMIT_HEAD_BYTES ? in.n : LIMIT_HEAD_BYTES;
	size_t i, lines = 0;
	bool counted = false, good;
	struct head unused;
	struct str line;

	for (i = *scanned > start ? *scanned : start; i < limit; i++) {
		if (!octet_ok(in, i, response, ret_why))
			return HEAD_BAD;
		if (in.p[i] != '\n')
			continue;
		if (!counted)
			lines = count_lines(in, start, i); /* once a call, of a bounded number of lines */
		counted = true;
		line = line_before(in, start, i);
		if (lines > 0 && line.n == 0) {
			*ret_len = i + 1;
			return HEAD_DONE;
		}
		if (lines == 0)
			good = response ? parse_status_line(line, &unused, ret_why) :
					  parse_request_line(line, &unused, ret_why);
		else
			good = parse_field(line, response, &unused.fields[0], ret_why);
		if (!good)
			return HEAD_BAD;
		if (lines++ > LIMIT_HEAD_FIELDS) { /* line 0 is no field: this is field number `lines` */
			*ret_why = HEAD_BAD_TOO_MANY_FIELDS;
			return HEAD_BAD;
		}
	}
	if (limit == LIMIT_HEAD_BYTES) {
		*ret_why = HEAD_BAD_TOO_LARGE;
		return HEAD_BAD;
	}
	*scanned = limit;
	return HEAD_MORE;
}

/* --- the second pass --- */

static void fill(struct str in, size_t start, size_t len, bool response, struct head *ret)
{
	const char *p = in.p + start, *lf = memchr(p, '\n', len - start);
	enum head_bad unused;
	struct str line = line_before(in, start, (size_t)(lf - in.p));

	ret->len = len;
	ret->method = ret->target = ret->reason = (struct str){"", 0};
	ret->status = 0;
	ret->n_fields = 0;
	if (response)
		parse_status_line(line, ret, &unused);
	else
		parse_request_line(line, ret, &unused);
	for (;;) {
		p = lf + 1;
		lf = memchr(p, '\n', (size_t)(in.p + len - p));
		line = (struct str){p, (size_t)(lf - p)};
		if (line.n > 0 && p[line.n - 1] == '\r')
			line.n--;
		if (line.n == 0)
			return;
		parse_field(line, response, &ret->fields[ret->n_fields++], &unused);
	}
}

enum head_result head_parse_request(struct str in, size_t *scanned, struct head *ret, enum head_bad *ret_why)
{
	enum head_result r;
	size_t start = 0, len;

	/* RFC 9112 2.2: one empty line before the request is skipped */
	if (in.n > 0 && in.p[0] == '\r') {
		if (in.n == 1)
			return HEAD_MORE;
		if (in.p[1] == '\n')
			start = 2;
	}
	if (!request_start_ok(str_skip(in, start), ret_why))
		return HEAD_BAD;
	r = scan(in, start, false, scanned, &len, ret_why);
	if (r == HEAD_DONE)
		fill(in, start, len, false, ret);
	return r;
}

enum head_result head_parse_response(struct str in, size_t *scanned, struct head *ret, enum head_bad *ret_why)
{
	enum head_result r;
	size_t len;

	if (!response_start_ok(in, ret_why))
		return HEAD_BAD;
	r = scan(in, 0, true, scanned, &len, ret_why);
	if (r == HEAD_DONE)
		fill(in, 0, len, true, ret);
	return r;
}

/* --- asking --- */

static const struct {
	enum verdict verdict;
	const char *text;
} BAD[HEAD_BAD_N] = {
#define H(name, verdict, text) {VERDICT_##verdict, text},
#include "http/head_bad.def"
#undef H
};

enum verdict head_bad_verdict(enum head_bad b)
{
	return (unsigned int)b < HEAD_BAD_N ? BAD[b].verdict : VERDICT_BAD_REQUEST;
}

const char *head_bad_text(enum head_bad b)
{
	return (unsigned int)b < HEAD_BAD_N ? BAD[b].text : BAD[0].text;
}

const struct head_field *head_find(const struct head *h, struct str name, size_t *ret_count)
{
	const struct head_field *found = NULL;
	size_t count = 0;

	for (size_t i = 0; i < h->n_fields; i++) {
		if (!str_ieq(h->fields[i].name, name))
			continue;
		if (count++ == 0)
			found = &h->fields[i];
	}
	if (ret_count)
		*ret_count = count;
	return found;
}

bool head_has_token(const struct head *h, struct str name, struct str token)
{
	struct str list, member;

	for (size_t i = 0; i < h->n_fields; i++) {
		if (!str_ieq(h->fields[i].name, name))
			continue;
		for (list = h->fields[i].value; octets_next_member(&list, &member);)
			if (str_ieq(member, token))
				return true;
	}
	return false;
}

bool head_options_few(const struct head *h)
{
	struct str list, member;
	size_t n = 0;

	for (size_t i = 0; i < h->n_fields; i++) {
		if (!str_ieq(h->fields[i].name, STR_LIT("Connection")))
			continue;
		for (list = h->fields[i].value; n <= HEAD_CONNECTION_OPTIONS_MAX && octets_next_member(&list, &member);)
			n++;
	}
	return n <= HEAD_CONNECTION_OPTIONS_MAX;
}
