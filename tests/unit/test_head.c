/* The head parser: what is read, what is refused and why, when it is told, and that the cut of the input has no say. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "heads.h"

#define OK "GET http://a.example/ HTTP/1.1\r\n"

struct outcome {
	enum head_result result;
	enum head_bad why;
	struct head head;
	char *copy;
};

/* Gives the input in pieces: up to `cut`, then `step` bytes at a time. Each call gets its own exact copy. */
static struct outcome feed(struct str in, bool response, size_t cut, size_t step)
{
	struct outcome o = {.result = HEAD_MORE, .why = HEAD_BAD_N};
	size_t scanned = 0, n = cut;

	for (;; n += step) {
		if (n > in.n)
			n = in.n;
		free(o.copy);
		o.copy = heap_copy((struct str){in.p, n});
		o.result = response ? head_parse_response((struct str){o.copy, n}, &scanned, &o.head, &o.why) :
				      head_parse_request((struct str){o.copy, n}, &scanned, &o.head, &o.why);
		if (o.result != HEAD_MORE || n == in.n)
			return o;
	}
}

static void assert_same_view(struct str a, const char *base_a, struct str b, const char *base_b)
{
	assert_true(str_eq(a, b));
	if (a.n > 0)
		assert_int_equal(a.p - base_a, b.p - base_b);
}

static void assert_same(const struct outcome *a, const struct outcome *b)
{
	assert_int_equal(a->result, b->result);
	if (a->result == HEAD_BAD)
		assert_int_equal(a->why, b->why);
	if (a->result != HEAD_DONE)
		return;
	assert_int_equal(a->head.len, b->head.len);
	assert_int_equal(a->head.minor, b->head.minor);
	assert_int_equal(a->head.status, b->head.status);
	assert_same_view(a->head.method, a->copy, b->head.method, b->copy);
	assert_same_view(a->head.target, a->copy, b->head.target, b->copy);
	assert_same_view(a->head.reason, a->copy, b->head.reason, b->copy);
	assert_int_equal(a->head.n_fields, b->head.n_fields);
	for (size_t i = 0; i < a->head.n_fields; i++) {
		assert_same_view(a->head.fields[i].name, a->copy, b->head.fields[i].name, b->copy);
		assert_same_view(a->head.fields[i].value, a->copy, b->head.fields[i].value, b->copy);
	}
}

/* At once, cut in two at every place, and byte by byte. The caller frees the copy. */
static struct outcome every_way(struct str in, bool response)
{
	struct outcome once = feed(in, response, in.n, 1), other;

	for (size_t cut = 0; cut <= in.n; cut++) {
		other = feed(in, response, cut, in.n);
		assert_same(&once, &other);
		free(other.copy);
	}
	other = feed(in, response, 0, 1);
	assert_same(&once, &other);
	free(other.copy);
	return once;
}

static void test_requests(void **state)
{
	static const struct {
		struct str in;
		const char *method, *target;
		int minor;
		size_t n_fields, rest;
	} cases[] = {
		{STR_LIT("GET http://a.example/ HTTP/1.1\r\nHost: a.example\r\n\r\n"), "GET", "http://a.example/", 1, 1,
		 0},
		{STR_LIT("CONNECT a.example:443 HTTP/1.0\r\n\r\n"), "CONNECT", "a.example:443", 0, 0, 0},
		{STR_LIT("CONNECT [2001:db8::1]:443 HTTP/1.1\r\nHost: x\r\n\r\n\x16\x03\x01"), "CONNECT",
		 "[2001:db8::1]:443", 1, 1, 3},
		{STR_LIT("\r\nGET * HTTP/1.1\r\nA:\r\nB: \t \r\nC:c\r\n\r\nGET"), "GET", "*", 1, 3, 3},
		{STR_LIT("get x HTTP/1.1\r\nX: a\xff\x80\tb\r\n\r\n"), "get", "x", 1, 1, 0},
		{STR_LIT("!#$%&'*+-.^_`|~09azAZ x HTTP/1.1\r\n!#$%&'*+-.^_`|~09azAZ: v\r\n\r\n"),
		 "!#$%&'*+-.^_`|~09azAZ", "x", 1, 1, 0},
		{STR_LIT("ABCDEFGHIJKLMNOPQRSTUVWXYZ012345 x HTTP/1.1\r\n\r\n"), "ABCDEFGHIJKLMNOPQRSTUVWXYZ012345",
		 "x", 1, 0,
		 0},
	};
	struct outcome o;

	for (size_t i = 0; i < N(cases); i++) {
		o = every_way(cases[i].in, false);
		assert_int_equal(o.result, HEAD_DONE);
		assert_true(str_eq(o.head.method, str_from(cases[i].method)));
		assert_true(str_eq(o.head.target, str_from(cases[i].target)));
		assert_int_equal(o.head.minor, cases[i].minor);
		assert_int_equal(o.head.n_fields, cases[i].n_fields);
		assert_int_equal(o.head.len, cases[i].in.n - cases[i].rest);
		free(o.copy);
	}
}

static void test_values_are_trimmed(void **state)
{
	struct outcome o = every_way(STR_LIT(OK "A:\t  b c \t\r\nEmpty:\r\nColons: a:b\r\n\r\n"), false);

	assert_int_equal(o.result, HEAD_DONE);
	assert_true(str_eq(o.head.fields[0].value, STR_LIT("b c")));
	assert_true(str_eq(o.head.fields[1].value, STR_LIT("")));
	assert_true(str_eq(o.head.fields[2].name, STR_LIT("Colons")));
	assert_true(str_eq(o.head.fields[2].value, STR_LIT("a:b")));
	free(o.copy);
}

static const struct {
	struct str in;
	enum head_bad why;
} bad_requests[] = {
	/* not HTTP */
	{STR_LIT("\x16\x03\x01\x02\x00\x01\x00"), HEAD_BAD_TLS},
	{STR_LIT("\x05\x01\x00"), HEAD_BAD_SOCKS},
	{STR_LIT("\x04\x01\x01\xbb\x08\x08\x08\x08\x00"), HEAD_BAD_SOCKS},
	{STR_LIT("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), HEAD_BAD_HTTP2_PREFACE},
	{STR_LIT("PROXY TCP4 192.0.2.1 192.0.2.2 1 2\r\nCONNECT a.example:443 HTTP/1.1\r\n\r\n"),
	 HEAD_BAD_PROXY_GREETING},
	{STR_LIT("\r\n\r\n\0\r\nQUIT\n"), HEAD_BAD_NOT_HTTP},
	{STR_LIT("\r\n\r\nGET x HTTP/1.1\r\n\r\n"), HEAD_BAD_NOT_HTTP},
	{STR_LIT("\nGET x HTTP/1.1\r\n\r\n"), HEAD_BAD_NOT_HTTP},
	{STR_LIT("\rGET x HTTP/1.1\r\n\r\n"), HEAD_BAD_NOT_HTTP},
	{STR_LIT(" GET x HTTP/1.1\r\n\r\n"), HEAD_BAD_NOT_HTTP},
	{STR_LIT("\0"), HEAD_BAD_NOT_HTTP},
	/* method */
	{STR_LIT("CONNECT\ta.example:443 HTTP/1.1\r\n\r\n"), HEAD_BAD_METHOD},
	{STR_LIT("G=\":<>(e),[T];?\" http://a.example/ HTTP/1.1\r\n\r\n"), HEAD_BAD_METHOD},
	{STR_LIT("G\xc3\x89T x HTTP/1.1\r\n\r\n"), HEAD_BAD_METHOD},
	{STR_LIT("G\0T x HTTP/1.1\r\n\r\n"), HEAD_BAD_METHOD},
	{STR_LIT("ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456 x HTTP/1.1\r\n\r\n"), HEAD_BAD_METHOD_LONG},
	/* request line */
	{STR_LIT("GET\r\n\r\n"), HEAD_BAD_REQUEST_LINE},
	{STR_LIT("GET /\r\n\r\n"), HEAD_BAD_REQUEST_LINE},
	{STR_LIT("GET  x HTTP/1.1\r\n\r\n"), HEAD_BAD_REQUEST_LINE},
	{STR_LIT("GET x  HTTP/1.1\r\n\r\n"), HEAD_BAD_REQUEST_LINE},
	{STR_LIT("GET  HTTP/1.1\r\n\r\n"), HEAD_BAD_REQUEST_LINE},
	{STR_LIT("CONNECT  127.0.0.1 :443 HTTP/1.1\r\n\r\n"), HEAD_BAD_REQUEST_LINE},
	{STR_LIT("CONNECT a.example: 443 HTTP/1.1\r\n\r\n"), HEAD_BAD_TARGET_OCTET},
	{STR_LIT("CONNECT a.example\t:443 HTTP/1.1\r\n\r\n"), HEAD_BAD_TARGET_OCTET},
	{STR_LIT("GET http://a\xc3\xa9.example/ HTTP/1.1\r\n\r\n"), HEAD_BAD_TARGET_OCTET},
	{STR_LIT("CONNECT a.example\0.b.example:443 HTTP/1.1\r\n\r\n"), HEAD_BAD_NUL},
	{STR_LIT("GET http://a.example/\x1b[2J HTTP/1.1\r\n\r\n"), HEAD_BAD_CONTROL},
	{STR_LIT("GET http://a.example/\x7f HTTP/1.1\r\n\r\n"), HEAD_BAD_CONTROL},
	/* version */
	{STR_LIT("GET x http/1.1\r\n\r\n"), HEAD_BAD_VERSION_MALFORMED},
	{STR_LIT("GET x HTTP/1\r\n\r\n"), HEAD_BAD_VERSION_MALFORMED},
	{STR_LIT("GET x HTTP/1.\r\n\r\n"), HEAD_BAD_VERSION_MALFORMED},
	{STR_LIT("GET x HTTP/1.32\r\n\r\n"), HEAD_BAD_VERSION_MALFORMED},
	{STR_LIT("GET x HTTP/01.1\r\n\r\n"), HEAD_BAD_VERSION_MALFORMED},
	{STR_LIT("GET x HTTP/4294967295.255\r\n\r\n"), HEAD_BAD_VERSION_MALFORMED},
	{STR_LIT("GET x HTTP/1.1 \r\n\r\n"), HEAD_BAD_VERSION_MALFORMED},
	{STR_LIT("GET x HTTP/1.1 junk\r\n\r\n"), HEAD_BAD_VERSION_MALFORMED},
	{STR_LIT("GET x HTTP/1.1\tjunk\r\n\r\n"), HEAD_BAD_VERSION_MALFORMED},
	{STR_LIT("GET x HTTP/+.1\r\n\r\n"), HEAD_BAD_VERSION_MALFORMED},
	{STR_LIT("GET x HTTP/\r\r1.1\r\n\r\n"), HEAD_BAD_BARE_CR},
	{STR_LIT("GET x HTTP/1.2\r\n\r\n"), HEAD_BAD_VERSION},
	{STR_LIT("GET x HTTP/2.0\r\n\r\n"), HEAD_BAD_VERSION},
	{STR_LIT("GET x HTTP/0.9\r\n\r\n"), HEAD_BAD_VERSION},
	/* line ends */
	{STR_LIT("GET x HTTP/1.1\n\n"), HEAD_BAD_BARE_LF},
	{STR_LIT(OK "A: b\n\r\n"), HEAD_BAD_BARE_LF},
	{STR_LIT(OK "A: b\n\n"), HEAD_BAD_BARE_LF},
	{STR_LIT(OK "A: x\rB: y\r\n\r\n"), HEAD_BAD_BARE_CR},
	{STR_LIT(OK "A: x\r\r\n\r\n"), HEAD_BAD_BARE_CR},
	{STR_LIT(OK "Host: a.example\r\n\rZGET http://b.example/ HTTP/1.1\r\n\r\n"), HEAD_BAD_BARE_CR},
	/* fields */
	{STR_LIT(OK "A: x\0y\r\n\r\n"), HEAD_BAD_NUL},
	{STR_LIT(OK "A: x\x01y\r\n\r\n"), HEAD_BAD_CONTROL},
	{STR_LIT(OK "Content-Length:\v5\r\n\r\n"), HEAD_BAD_CONTROL},
	{STR_LIT(OK "Content-Length : 34\r\n\r\n"), HEAD_BAD_NAME_BLANK},
	{STR_LIT(OK "Content-Length\t: 34\r\n\r\n"), HEAD_BAD_NAME_BLANK},
	{STR_LIT(OK "\tContent-Length: 1\r\nHost: a.example\r\n\r\nX"), HEAD_BAD_FOLD},
	{STR_LIT(OK "A: b\r\n c\r\n\r\n"), HEAD_BAD_FOLD},
	{STR_LIT(OK " \r\n\r\n"), HEAD_BAD_FOLD},
	{STR_LIT(OK ": x\r\n\r\n"), HEAD_BAD_NAME_EMPTY},
	{STR_LIT(OK "Content-Length 10\r\n\r\n"), HEAD_BAD_NO_COLON},
	{STR_LIT(OK "Transfer-\r\nEncoding: chunked\r\n\r\n"), HEAD_BAD_NO_COLON},
	{STR_LIT(OK "X\x85: y\r\n\r\n"), HEAD_BAD_NAME},
	{STR_LIT(OK "Content\0Length: 5\r\n\r\n"), HEAD_BAD_NUL},
	{STR_LIT(OK "Fo(o: y\r\n\r\n"), HEAD_BAD_NAME},
	{STR_LIT(OK "Fo o: y\r\n\r\n"), HEAD_BAD_NAME},
};

static void test_bad_requests(void **state)
{
	struct outcome o;

	for (size_t i = 0; i < N(bad_requests); i++) {
		o = every_way(bad_requests[i].in, false);
		if (o.result != HEAD_BAD || o.why != bad_requests[i].why)
			fail_msg("%s: result %d, %s", bad_requests[i].in.p, (int)o.result, head_bad_text(o.why));
		free(o.copy);
	}
}

/* Told with the last byte given, and not before: nobody who speaks something else is left waiting. */
static void test_told_early(void **state)
{
	static const struct str cases[] = {
		STR_LIT("\x16"), STR_LIT("\x05"), STR_LIT("\x04"), STR_LIT("\x80"), STR_LIT("PRI "), STR_LIT("PROXY "),
		STR_LIT("\r\n\r"), STR_LIT("\r\r"), STR_LIT("CONNECT\t"), STR_LIT("SSH-2.0-OpenSSH_9.2\r\n"),
		STR_LIT("ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456"), STR_LIT("GET x\n"), STR_LIT("GET x HTTP/1.1\r\n "),
		STR_LIT(OK "A\r\n"), STR_LIT(OK "A : b\r\n"), STR_LIT("GET x HTTP/3.0\r\n"),
	};
	struct outcome o;

	for (size_t i = 0; i < N(cases); i++) {
		o = every_way(cases[i], false);
		assert_int_equal(o.result, HEAD_BAD);
		free(o.copy);
		o = every_way((struct str){cases[i].p, cases[i].n - 1}, false);
		if (o.result != HEAD_MORE)
			fail_msg("case %zu is refused one byte too early", i);
		free(o.copy);
	}
}

static void test_responses(void **state)
{
	static const struct {
		struct str in;
		int status, minor;
		const char *reason;
		size_t n_fields;
	} cases[] = {
		{STR_LIT("HTTP/1.1 200 OK\r\nA: b\r\n\r\n"), 200, 1, "OK", 1},
		{STR_LIT("HTTP/1.0 404 Not Found here\r\n\r\n"), 404, 0, "Not Found here", 0},
		{STR_LIT("HTTP/1.1 204 \r\n\r\n"), 204, 1, "", 0},
		{STR_LIT("HTTP/1.1 204\r\n\r\n"), 204, 1, "", 0},
		{STR_LIT("HTTP/1.1 999 Request denied\r\n\r\n"), 999, 1, "Request denied", 0},
		{STR_LIT("HTTP/1.1 100 Continue\r\n\r\n"), 100, 1, "Continue", 0},
		{STR_LIT("HTTP/1.1 200 \xc3\xa9\tx\r\n\r\n"), 200, 1, "\xc3\xa9\tx", 0},
		{STR_LIT("HTTP/1.1 200 OK\nA: b\nC: d\n\n"), 200, 1, "OK", 2},
		{STR_LIT("HTTP/1.1 200 OK\nA: b\r\nC: d\n\r\n"), 200, 1, "OK", 2},
		{STR_LIT("HTTP/1.1 200 OK\r\nA \t: b\r\n\r\n"), 200, 1, "OK", 1},
	};
	struct outcome o;

	for (size_t i = 0; i < N(cases); i++) {
		o = every_way(cases[i].in, true);
		if (o.result != HEAD_DONE)
			fail_msg("%s: %s", cases[i].in.p, head_bad_text(o.why));
		assert_int_equal(o.head.status, cases[i].status);
		assert_int_equal(o.head.minor, cases[i].minor);
		assert_true(str_eq(o.head.reason, str_from(cases[i].reason)));
		assert_int_equal(o.head.n_fields, cases[i].n_fields);
		assert_int_equal(o.head.len, cases[i].in.n);
		if (o.head.n_fields > 0)
			assert_true(str_eq(o.head.fields[0].name, STR_LIT("A")) && str_eq(o.head.fields[0].value,
				STR_LIT("b")));
		free(o.copy);
	}
}

static const struct {
	struct str in;
	enum head_bad why;
} bad_responses[] = {
	{STR_LIT("SSH-2.0-OpenSSH_9.2\r\n"), HEAD_BAD_NOT_HTTP},
	{STR_LIT("H2"), HEAD_BAD_NOT_HTTP},
	{STR_LIT("HTTP/2.0 200 OK\r\n\r\n"), HEAD_BAD_NOT_HTTP},
	{STR_LIT("\r\nHTTP/1.1 200 OK\r\n\r\n"), HEAD_BAD_NOT_HTTP},
	{STR_LIT("\x15\x03\x01\x00\x02\x02\x16"), HEAD_BAD_NOT_HTTP},
	{STR_LIT("HTTP/1.2 200 OK\r\n\r\n"), HEAD_BAD_VERSION},
	{STR_LIT("HTTP/1.x 200 OK\r\n\r\n"), HEAD_BAD_VERSION_MALFORMED},
	{STR_LIT("HTTP/1.1\r\n\r\n"), HEAD_BAD_STATUS_LINE},
	{STR_LIT("HTTP/1.1 20\r\n\r\n"), HEAD_BAD_STATUS_LINE},
	{STR_LIT("HTTP/1.1 099 x\r\n\r\n"), HEAD_BAD_STATUS_LINE},
	{STR_LIT("HTTP/1.1 2000 x\r\n\r\n"), HEAD_BAD_STATUS_LINE},
	{STR_LIT("HTTP/1.1 +20 x\r\n\r\n"), HEAD_BAD_STATUS_LINE},
	{STR_LIT("HTTP/1.1 200\tOK\r\n\r\n"), HEAD_BAD_STATUS_LINE},
	{STR_LIT("HTTP/1.1  200 OK\r\n\r\n"), HEAD_BAD_STATUS_LINE},
	{STR_LIT("HTTP/1.1 200 OK\r\nA: b\r\n c\r\n\r\n"), HEAD_BAD_FOLD},
	{STR_LIT("HTTP/1.1 200 OK\r\nA: b\rC: d\r\n\r\n"), HEAD_BAD_BARE_CR},
	{STR_LIT("HTTP/1.1 200 OK\r\nA: b\r\r\n\r\n"), HEAD_BAD_BARE_CR},
	{STR_LIT("HTTP/1.1 200 OK\r\nA: \0\r\n\r\n"), HEAD_BAD_NUL},
	{STR_LIT("HTTP/1.1 200 OK\r\nA\r\n\r\n"), HEAD_BAD_NO_COLON},
	{STR_LIT("HTTP/1.1 200 OK\r\nA B: c\r\n\r\n"), HEAD_BAD_NAME},
};

static void test_bad_responses(void **state)
{
	struct outcome o;

	for (size_t i = 0; i < N(bad_responses); i++) {
		o = every_way(bad_responses[i].in, true);
		if (o.result != HEAD_BAD || o.why != bad_responses[i].why)
			fail_msg("%s: result %d, %s", bad_responses[i].in.p, (int)o.result, head_bad_text(o.why));
		free(o.copy);
	}
}

/* A head of `fields` short fields. */
static size_t make_fields(char *out, size_t size, size_t fields, bool end)
{
	size_t n = (size_t)snprintf(out, size, OK);

	for (size_t i = 0; i < fields; i++)
		n += (size_t)snprintf(out + n, size - n, "A: %zu\r\n", i);
	if (end)
		n += (size_t)snprintf(out + n, size - n, "\r\n");
	return n;
}

static void test_field_limit(void **state)
{
	char text[8192];
	size_t n = make_fields(text, sizeof(text), LIMIT_HEAD_FIELDS, true);
	struct outcome o = every_way((struct str){text, n}, false);

	assert_int_equal(o.result, HEAD_DONE);
	assert_int_equal(o.head.n_fields, LIMIT_HEAD_FIELDS);
	free(o.copy);
	/* one more is told at the end of its own line */
	n = make_fields(text, sizeof(text), LIMIT_HEAD_FIELDS + 1, false);
	o = every_way((struct str){text, n}, false);
	assert_int_equal(o.result, HEAD_BAD);
	assert_int_equal(o.why, HEAD_BAD_TOO_MANY_FIELDS);
	free(o.copy);
	o = feed((struct str){text, n - 1}, false, 0, 1);
	assert_int_equal(o.result, HEAD_MORE);
	free(o.copy);
	assert_int_equal(verdict_row(head_bad_verdict(HEAD_BAD_TOO_MANY_FIELDS))->status, 431);
}

/* A head of exactly `size` bytes, most of them in one field. */
static char *make_head(size_t size)
{
	char *p = malloc(size);

	assert_non_null(p);
	memset(p, 'x', size);
	memcpy(p, OK "A: ", sizeof(OK "A: ") - 1);
	memcpy(p + size - 4, "\r\n\r\n", 4);
	return p;
}

static void test_size_limit(void **state)
{
	char *p = make_head(LIMIT_HEAD_BYTES);
	struct outcome o = feed((struct str){p, LIMIT_HEAD_BYTES}, false, LIMIT_HEAD_BYTES, 1);

	assert_int_equal(o.result, HEAD_DONE);
	assert_int_equal(o.head.len, LIMIT_HEAD_BYTES);
	free(o.copy);
	free(p);
	p = make_head(LIMIT_HEAD_BYTES + 1);
	/* decided as soon as the limit is reached without an end, and the same with more behind it */
	for (size_t n = LIMIT_HEAD_BYTES; n <= LIMIT_HEAD_BYTES + 1; n++) {
		o = feed((struct str){p, n}, false, n, 1);
		assert_int_equal(o.result, HEAD_BAD);
		assert_int_equal(o.why, HEAD_BAD_TOO_LARGE);
		free(o.copy);
	}
	free(p);
}

/* The state that carries over is at the end of the input after every call: nothing is looked at twice by the scan. */
static void test_cost_is_linear(void **state)
{
	char *p = make_head(LIMIT_HEAD_BYTES);
	enum head_bad why;
	struct head h;
	size_t scanned = 0;

	for (size_t n = 1; n < LIMIT_HEAD_BYTES; n++) {
		assert_int_equal(head_parse_request((struct str){p, n}, &scanned, &h, &why), HEAD_MORE);
		assert_int_equal(scanned, n);
	}
	assert_int_equal(head_parse_request((struct str){p, LIMIT_HEAD_BYTES}, &scanned, &h, &why), HEAD_DONE);
	free(p);
}

static void test_find(void **state)
{
	struct head h;
	char *copy = whole_head(STR_LIT(OK "Connection: a, Keep-Alive ,,\tb\r\nX: 1\r\n"
				   "connection: Upgrade\r\nx: 2\r\n\r\n"), false, &h);
	size_t n;

	assert_true(str_eq(head_find(&h, STR_LIT("x"), &n)->value, STR_LIT("1")));
	assert_int_equal(n, 2);
	assert_null(head_find(&h, STR_LIT("xx"), &n));
	assert_int_equal(n, 0);
	assert_true(head_has_token(&h, STR_LIT("Connection"), STR_LIT("keep-alive")));
	assert_true(head_has_token(&h, STR_LIT("Connection"), STR_LIT("B")));
	assert_true(head_has_token(&h, STR_LIT("Connection"), STR_LIT("upgrade")));
	assert_false(head_has_token(&h, STR_LIT("Connection"), STR_LIT("keep")));
	assert_false(head_has_token(&h, STR_LIT("X"), STR_LIT("upgrade")));
	free(copy);
}

static void test_failure_leaves_result(void **state)
{
	struct head h, before;
	enum head_bad why;
	size_t scanned = 0;

	memset(&h, 0x5a, sizeof(h));
	memcpy(&before, &h, sizeof(h));
	assert_int_equal(head_parse_request(STR_LIT(OK "A: b\r\nC"), &scanned, &h, &why), HEAD_MORE);
	assert_memory_equal(&h, &before, sizeof(h));
	scanned = 0;
	assert_int_equal(head_parse_request(STR_LIT(OK "A: b\r\nC\r\n\r\n"), &scanned, &h, &why), HEAD_BAD);
	assert_memory_equal(&h, &before, sizeof(h));
}

static void test_reasons(void **state)
{
	for (int i = 0; i < HEAD_BAD_N; i++) {
		assert_in_range(verdict_row(head_bad_verdict((enum head_bad)i))->status, 400, 505);
		assert_true(strlen(head_bad_text((enum head_bad)i)) > 0);
	}
	assert_int_equal(head_bad_verdict(HEAD_BAD_N), VERDICT_BAD_REQUEST);
	assert_int_equal(verdict_row(head_bad_verdict(HEAD_BAD_VERSION))->status, 505);
	assert_int_equal(head_bad_verdict(HEAD_BAD_TARGET_OCTET), VERDICT_BAD_TARGET);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_requests),
		cmocka_unit_test(test_values_are_trimmed),
		cmocka_unit_test(test_bad_requests),
		cmocka_unit_test(test_told_early),
		cmocka_unit_test(test_responses),
		cmocka_unit_test(test_bad_responses),
		cmocka_unit_test(test_field_limit),
		cmocka_unit_test(test_size_limit),
		cmocka_unit_test(test_cost_is_linear),
		cmocka_unit_test(test_find),
		cmocka_unit_test(test_failure_leaves_result),
		cmocka_unit_test(test_reasons),
	};

	return cmocka_run_group_tests_name("head", tests, NULL, NULL);
}
