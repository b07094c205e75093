/* Forwarded heads, byte for byte. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "heads.h"
#include "http/fields.h"

static void expect_request(struct str in, bool upgrade, const char *want)
{
	struct buf out = {0};
	struct framing f;
	struct target t;
	struct head h;
	const char *why;
	char *copy = whole_head(in, false, &h);

	assert_int_equal(target_parse(&h, &t, &why), VERDICT_ALLOW);
	assert_int_equal(framing_of_request(&h, &f, &why), VERDICT_ALLOW);
	fields_write_request(&out, &h, &t, &f, upgrade);
	assert_false(out.failed);
	if (!str_eq(buf_view(&out), str_from(want)))
		fail_msg("got\n%.*s\nnot\n%s", STR_ARG(buf_view(&out)), want);
	buf_free(&out);
	free(copy);
}

#define GET "GET http://a.example/ HTTP/1.1\r\nHost: a.example\r\n"
#define SENT "GET / HTTP/1.1\r\nHost: a.example\r\n"
#define VIA "Via: 1.1 egress-guard\r\n"

static const struct {
	struct str in;
	const char *want;
} requests[] = {
	{STR_LIT(GET "\r\n"), SENT VIA "\r\n"},
	/* order and repetition are kept, unknown fields pass, values are untouched but for blanks around them */
	{STR_LIT(GET "B: 2\r\nA:  x,  y\t\r\nB: 1\r\nCookie: c=d\r\nAuthorization: Basic eDp5\r\nEmpty:\r\n\r\n"),
	 SENT "B: 2\r\nA: x,  y\r\nB: 1\r\nCookie: c=d\r\nAuthorization: Basic eDp5\r\nEmpty: \r\n" VIA "\r\n"},
	/* the target alone makes the request line and Host */
	{STR_LIT("GET http://A.example.:80?token=x HTTP/1.1\r\nX: y\r\nHost: a.example\r\n\r\n"),
	 "GET /?token=x HTTP/1.1\r\nHost: A.example.\r\nX: y\r\n" VIA "\r\n"},
	{STR_LIT("GET http://[2001:db8::1]:8080/a?b HTTP/1.1\r\nHost:\r\n\r\n"),
	 "GET /a?b HTTP/1.1\r\nHost: [2001:db8::1]:8080\r\n" VIA "\r\n"},
	{STR_LIT("OPTIONS http://a.example HTTP/1.1\r\nHost: a.example\r\nMax-Forwards: 10\r\n\r\n"),
	 "OPTIONS * HTTP/1.1\r\nHost: a.example\r\nMax-Forwards: 9\r\n" VIA "\r\n"},
	{STR_LIT("OPTIONS http://a.example HTTP/1.1\r\nHost: a.example\r\nMax-Forwards: ten\r\n\r\n"),
	 "OPTIONS * HTTP/1.1\r\nHost: a.example\r\n" VIA "\r\n"},
	{STR_LIT(GET "Max-Forwards: 3\r\n\r\n"), SENT "Max-Forwards: 3\r\n" VIA "\r\n"},
	/* hop by hop */
	{STR_LIT(GET "Connection: close, X-Named , keep-alive\r\nx-named: 1\r\nProxy-Connection: keep-alive\r\n"
		     "Keep-Alive: 5\r\nTE: trailers\r\nTrailer: A\r\nUpgrade: websocket\r\n"
		     "Proxy-Authorization: Basic x\r\n"
		     "Proxy-Authenticate: Basic\r\nA: b\r\n\r\n"),
	 SENT "A: b\r\n" VIA "\r\n"},
	{STR_LIT(GET "Connection: Connection\r\n\r\n"), SENT VIA "\r\n"},
	{STR_LIT(GET "Connection: Proxy-Connection, Connection\r\nProxy-Connection: x\r\n\r\n"), SENT VIA "\r\n"},
	/* named, and yet kept */
	{STR_LIT("POST http://a.example/ HTTP/1.1\r\nHost: a.example\r\n"
		 "Connection: close, Host, Content-Length, X-Forwarded-For\r\nX-Forwarded-For: 192.0.2.4\r\n"
		 "Content-Length: 5\r\n\r\n"),
	 "POST / HTTP/1.1\r\nHost: a.example\r\nContent-Length: 5\r\n" VIA "\r\n"},
	{STR_LIT("POST http://a.example/ HTTP/1.1\r\nHost: a.example\r\nConnection: Transfer-Encoding\r\n"
		 "Transfer-Encoding: CHUNKED\r\nA: b\r\n\r\n"),
	 "POST / HTTP/1.1\r\nHost: a.example\r\nA: b\r\nTransfer-Encoding: chunked\r\n" VIA "\r\n"},
	/* nothing that tells of the inside */
	{STR_LIT(GET "Via: 1.1 inner.example\r\nForwarded: for=192.0.2.1\r\nX-Forwarded-For: 192.0.2.1\r\n"
		     "x-forwarded-proto: http\r\nX-FORWARDED-HOST: x\r\n"
		     "X-Real-IP: 192.0.2.1\r\nX-Forward: kept\r\n\r\n"),
	 SENT "X-Forward: kept\r\n" VIA "\r\n"},
	/* bodies */
	{STR_LIT(GET "Content-Length: 10\r\n\r\n"), SENT "Content-Length: 10\r\n" VIA "\r\n"},
	{STR_LIT(GET "Content-Length: 0\r\nExpect: 100-continue\r\n\r\n"),
	 SENT "Expect: 100-continue\r\nContent-Length: 0\r\n" VIA "\r\n"},
	/* HTTP/1.0 in, 1.1 out */
	{STR_LIT("GET http://a.example/ HTTP/1.0\r\nExpect: 100-continue\r\nA: b\r\n\r\n"),
	 SENT "A: b\r\nVia: 1.0 egress-guard\r\n\r\n"},
};

static void test_requests(void **state)
{

	for (size_t i = 0; i < N(requests); i++)
		expect_request(requests[i].in, false, requests[i].want);
	expect_request(STR_LIT(GET "Connection: Upgrade, X\r\nUpgrade: websocket\r\nX: y\r\n"
				   "Sec-WebSocket-Version: 13\r\n\r\n"), true,
		       SENT "Sec-WebSocket-Version: 13\r\n" VIA "Connection: upgrade\r\nUpgrade: websocket\r\n\r\n");
}

static void test_no_head_for_connect(void **state)
{
	struct framing f = {.kind = FRAMING_NONE};
	struct buf out = {0};
	struct target t;
	struct head h;
	const char *why;
	char *copy = whole_head(STR_LIT("CONNECT a.example:443 HTTP/1.0\r\n\r\n"), false, &h);

	assert_int_equal(target_parse(&h, &t, &why), VERDICT_ALLOW);
	fields_write_request(&out, &h, &t, &f, false);
	assert_true(out.failed);
	assert_int_equal(out.len, 0);
	buf_free(&out);
	free(copy);
}

static const struct {
	const char *method;
	struct str in;
	bool close, upgrade;
	const char *want;
} responses[] = {
	{"GET", STR_LIT("HTTP/1.1 200 OK\r\nSet-Cookie: a=1\r\nB: c\r\nSet-Cookie: a=2\r\nset-cookie: a=1\r\n"
			"Content-Length: 3\r\n\r\n"), false, false,
	 "HTTP/1.1 200 OK\r\nSet-Cookie: a=1\r\nB: c\r\nSet-Cookie: a=2\r\nset-cookie: a=1\r\nContent-Length: 3\r\n" VIA
	 "\r\n"},
	{"GET",
	 STR_LIT("HTTP/1.0 200 Fine\r\nVia: 1.1 front\r\nKeep-Alive: 5\r\nConnection: keep-alive, X\r\nX: y\r\n\r\n"),
	 true, false,
	 "HTTP/1.1 200 Fine\r\nVia: 1.1 front\r\nVia: 1.0 egress-guard\r\nConnection: close\r\n\r\n"},
	{"GET", STR_LIT("HTTP/1.1 200\r\nTransfer-Encoding: Chunked\r\nTrailer: A\r\n\r\n"), false, false,
	 "HTTP/1.1 200 \r\nTransfer-Encoding: chunked\r\n" VIA "\r\n"},
	{"GET", STR_LIT("HTTP/1.1 200 OK\r\nContent-Length: 3, 3\r\nContent-Length: 3\r\n\r\n"), false, false,
	 "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n" VIA "\r\n"},
	/* another's words for this hop, or in this guard's name */
	{"GET", STR_LIT("HTTP/1.1 407 Auth\r\nProxy-Authenticate: Basic realm=x\r\nX-Egress-Reason: host_denied\r\n"
			"WWW-Authenticate: Basic\r\nProxy-Status: cdn\r\nProxy-Status: x, Egress-Guard; error=dns_error\r\n"
			"Content-Length: 0\r\n\r\n"), false, false,
	 "HTTP/1.1 407 Auth\r\nWWW-Authenticate: Basic\r\nProxy-Status: cdn\r\nContent-Length: 0\r\n" VIA "\r\n"},
	/* no body, but a length that speaks of another response */
	{"HEAD", STR_LIT("HTTP/1.1 200 OK\r\nContent-Length: 70\r\n\r\n"), false, false,
	 "HTTP/1.1 200 OK\r\nContent-Length: 70\r\n" VIA "\r\n"},
	{"HEAD", STR_LIT("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"), false, false,
	 "HTTP/1.1 200 OK\r\n" VIA "\r\n"},
	{"GET", STR_LIT("HTTP/1.1 304 Not Modified\r\nContent-Length: 70\r\nETag: x\r\n\r\n"), false, false,
	 "HTTP/1.1 304 Not Modified\r\nETag: x\r\nContent-Length: 70\r\n" VIA "\r\n"},
	{"GET", STR_LIT("HTTP/1.1 304 Not Modified\r\nContent-Length: 7x\r\n\r\n"), false, false,
	 "HTTP/1.1 304 Not Modified\r\n" VIA "\r\n"},
	{"GET", STR_LIT("HTTP/1.1 204 No Content\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n"), false,
	 false,
	 "HTTP/1.1 204 No Content\r\n" VIA "\r\n"},
	{"GET", STR_LIT("HTTP/1.1 100 Continue\r\nContent-Length: 5\r\nA: b\r\n\r\n"), true, false,
	 "HTTP/1.1 100 Continue\r\nA: b\r\n" VIA "\r\n"},
	{"GET", STR_LIT("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
			"Sec-WebSocket-Accept: x\r\nContent-Length: 9\r\n\r\n"), false, true,
	 "HTTP/1.1 101 Switching Protocols\r\nSec-WebSocket-Accept: x\r\n" VIA
	 "Connection: upgrade\r\nUpgrade: websocket\r\n\r\n"},
	/* lines written anew */
	{"GET", STR_LIT("HTTP/1.1 200 OK\nA : b\nContent-Length: 0\n\n"), false, false,
	 "HTTP/1.1 200 OK\r\nA: b\r\nContent-Length: 0\r\n" VIA "\r\n"},
};

static void test_responses(void **state)
{
	struct framing f;
	struct head h;
	const char *why;
	char *copy;

	for (size_t i = 0; i < N(responses); i++) {
		struct buf out = {0};

		copy = whole_head(responses[i].in, true, &h);
		assert_int_equal(framing_of_response(&h, str_from(responses[i].method), &f, &why), VERDICT_ALLOW);
		fields_write_response(&out, &h, &f, responses[i].close, responses[i].upgrade);
		assert_false(out.failed);
		if (!str_eq(buf_view(&out), str_from(responses[i].want)))
			fail_msg("got\n%.*s\nnot\n%s", STR_ARG(buf_view(&out)), responses[i].want);
		buf_free(&out);
		free(copy);
	}
}

/* For an HTTP/1.0 client the relay turns chunks into a body that ends with the connection. */
static void test_close_framing(void **state)
{
	const struct framing f = {.kind = FRAMING_CLOSE};
	struct buf out = {0};
	struct head h;
	char *copy = whole_head(STR_LIT("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"), true, &h);

	fields_write_response(&out, &h, &f, true, false);
	assert_true(str_eq(buf_view(&out), STR_LIT("HTTP/1.1 200 OK\r\n" VIA "Connection: close\r\n\r\n")));
	buf_free(&out);
	free(copy);
}

static const struct {
	struct str in;
	bool upgrade, alive, own;
	enum fields_expect expect;
} questions[] = {
	{STR_LIT(GET "\r\n"), false, true, false, FIELDS_EXPECT_NONE},
	{STR_LIT(GET "Connection: upgrade\r\nUpgrade: websocket\r\n\r\n"), true, true, false, FIELDS_EXPECT_NONE},
	{STR_LIT(GET "Connection: x, UPGRADE\r\nUpgrade: a/1, b\r\n\r\n"), true, true, false, FIELDS_EXPECT_NONE},
	{STR_LIT(GET "Upgrade: websocket\r\n\r\n"), false, true, false, FIELDS_EXPECT_NONE},
	{STR_LIT(GET "Connection: upgrade\r\n\r\n"), false, true, false, FIELDS_EXPECT_NONE},
	{STR_LIT(GET "Connection: upgrade\r\nUpgrade:\r\n\r\n"), false, true, false, FIELDS_EXPECT_NONE},
	{STR_LIT(GET "Connection: upgrade\r\nUpgrade: a\r\nUpgrade: b\r\n\r\n"), false, true, false,
	 FIELDS_EXPECT_NONE},
	{STR_LIT(GET "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n\r\n"), false, true, false,
	 FIELDS_EXPECT_NONE},
	{STR_LIT(GET "Connection: upgrade\r\nUpgrade: websocket, H2C\r\n\r\n"), false, true, false, FIELDS_EXPECT_NONE},
	{STR_LIT("GET http://a.example/ HTTP/1.0\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n"), false, false,
	 false,
	 FIELDS_EXPECT_NONE},
	{STR_LIT("GET http://a.example/ HTTP/1.0\r\nConnection: keep-alive\r\nExpect: x\r\n\r\n"), false, false, false,
	 FIELDS_EXPECT_NONE},
	{STR_LIT(GET "Connection: Close\r\n\r\n"), false, false, false, FIELDS_EXPECT_NONE},
	{STR_LIT(GET "Connection: x\r\nConnection: y, close\r\n\r\n"), false, false, false, FIELDS_EXPECT_NONE},
	{STR_LIT(GET "Proxy-Connection: close\r\n\r\n"), false, false, false, FIELDS_EXPECT_NONE},
	{STR_LIT(GET "Connection: closed\r\nProxy-Connection: keep-alive\r\n\r\n"), false, true, false,
	 FIELDS_EXPECT_NONE},
	{STR_LIT(GET "Via: 1.1 x, 1.0 Egress-Guard (y)\r\n\r\n"), false, true, true, FIELDS_EXPECT_NONE},
	{STR_LIT(GET "Via: 1.1 x\r\nVia:\t1.1\tegress-guard\r\n\r\n"), false, true, true, FIELDS_EXPECT_NONE},
	{STR_LIT(GET "Via: egress-guard\r\n\r\n"), false, true, false, FIELDS_EXPECT_NONE},
	{STR_LIT(GET "Via: 1.1 egress-guard.example, 1.1 x-egress-guard, ,\r\n\r\n"), false, true, false,
	 FIELDS_EXPECT_NONE},
	{STR_LIT(GET "Expect: 100-Continue\r\n\r\n"), false, true, false, FIELDS_EXPECT_CONTINUE},
	{STR_LIT(GET "Expect: 100-continue, x\r\n\r\n"), false, true, false, FIELDS_EXPECT_UNKNOWN},
	{STR_LIT(GET "Expect:\r\n\r\n"), false, true, false, FIELDS_EXPECT_UNKNOWN},
	{STR_LIT(GET "Expect: 100-continue\r\nExpect: 100-continue\r\n\r\n"), false, true, false,
	 FIELDS_EXPECT_UNKNOWN},
};

static void test_questions(void **state)
{
	struct head h;
	char *copy;

	for (size_t i = 0; i < N(questions); i++) {
		copy = whole_head(questions[i].in, false, &h);
		if (fields_wants_upgrade(&h) != questions[i].upgrade || fields_keeps_alive(&h) != questions[i].alive ||
		    fields_has_own_via(&h) != questions[i].own || fields_expects_continue(&h) != questions[i].expect)
			fail_msg("%s: %d %d %d %d", questions[i].in.p, fields_wants_upgrade(&h), fields_keeps_alive(&h),
				 fields_has_own_via(&h), (int)fields_expects_continue(&h));
		free(copy);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_requests),
		cmocka_unit_test(test_no_head_for_connect),
		cmocka_unit_test(test_responses),
		cmocka_unit_test(test_close_framing),
		cmocka_unit_test(test_questions),
	};

	return cmocka_run_group_tests_name("fields", tests, NULL, NULL);
}
