/* The guard's own replies: their bytes, and that no caller can make them anything but one whole response. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "heads.h"
#include "http/framing.h"
#include "http/reply.h"

static void expect(const struct reply *r, const char *want)
{
	struct buf out = {0};

	reply_write(&out, r);
	assert_false(out.failed);
	if (!str_eq(buf_view(&out), str_from(want)))
		fail_msg("got\n%.*s\nnot\n%s", STR_ARG(buf_view(&out)), want);
	buf_free(&out);
}

static void test_refusal(void **state)
{
	struct reply r = {
		.verdict = VERDICT_ADDRESS_LINK_LOCAL,
		.subject = STR_LIT("169.254.169.254"),
		.what = "is link-local",
		.detail = STR_LIT("Nothing there can be reached."),
		.rule_line = 12,
		.request_id = "r-1",
	};

	expect(&r, "HTTP/1.1 403 egress refused: 169.254.169.254 is link-local (address_link_local)\r\n"
		   "Proxy-Status: egress-guard; error=destination_ip_prohibited; "
		   "details=\"169.254.169.254 is link-local\"\r\n"
		   "X-Egress-Reason: address_link_local\r\n"
		   "Content-Type: text/plain; charset=utf-8\r\n"
		   "Content-Length: 199\r\n"
		   "Cache-Control: no-store\r\n"
		   "Connection: close\r\n"
		   "\r\n"
		   "egress refused: 169.254.169.254 is link-local (address_link_local)\n"
		   "Nothing there can be reached.\n"
		   "rule: line 12 of the policy\n"
		   "retry: no, the same request will be answered the same way\n"
		   "request id: r-1\n");
	r.json = true;
	expect(&r, "HTTP/1.1 403 egress refused: 169.254.169.254 is link-local (address_link_local)\r\n"
		   "Proxy-Status: egress-guard; error=destination_ip_prohibited; "
		   "details=\"169.254.169.254 is link-local\"\r\n"
		   "X-Egress-Reason: address_link_local\r\n"
		   "Content-Type: application/json\r\n"
		   "Content-Length: 158\r\n"
		   "Cache-Control: no-store\r\n"
		   "Connection: close\r\n"
		   "\r\n"
		   "{\"refused\": \"address_link_local\", \"message\": \"169.254.169.254 is link-local. "
		   "Nothing there can be reached.\", \"rule\": 12, \"retry\": false, \"request_id\": \"r-1\"}\n");
}

static void test_failure(void **state)
{
	const struct reply r = {
		.verdict = VERDICT_CONNECT_TIMEOUT,
		.subject = STR_LIT("a.example:443"),
		.json = true,
		.head_only = true,
		.retry_after_s = 30,
	};

	expect(&r, "HTTP/1.1 504 egress failed: a.example:443 did not answer in time (connect_timeout)\r\n"
		   "Proxy-Status: egress-guard; error=connection_timeout; "
		   "details=\"a.example:443 did not answer in time\"\r\n"
		   "X-Egress-Reason: connect_timeout\r\n"
		   "Retry-After: 30\r\n"
		   "Content-Type: application/json\r\n"
		   "Content-Length: 131\r\n"
		   "Cache-Control: no-store\r\n"
		   "Connection: close\r\n"
		   "\r\n");
}

static void test_method(void **state)
{
	struct buf out = {0};
	const struct reply r = {.verdict = VERDICT_METHOD_NOT_ALLOWED};

	reply_write(&out, &r);
	buf_add(&out, "", 1);
	assert_non_null(strstr(buf_view(&out).p,
		"HTTP/1.1 405 egress refused: the method is not allowed (method_not_allowed)\r\n"));
	assert_non_null(strstr(buf_view(&out).p, "\r\nAllow: CONNECT, "));
	buf_free(&out);
}

/* Parses a reply as a client would and holds it to what every reply promises. Returns its status. */
static int check_whole(const struct reply *r)
{
	struct framing f;
	struct head h;
	struct buf out = {0};
	const char *why;
	char *copy;
	int status;

	reply_write(&out, r);
	assert_false(out.failed);
	copy = whole_head(buf_view(&out), true, &h);
	assert_int_equal(framing_of_response(&h, STR_LIT("GET"), &f, &why), VERDICT_ALLOW);
	assert_int_equal(f.kind, FRAMING_LENGTH);
	if (r->head_only)
		assert_int_equal(h.len, out.len);
	else
		assert_int_equal(h.len + f.length, out.len);
	assert_true(h.reason.n > 0 && h.reason.n <= 400);
	assert_true(head_has_token(&h, STR_LIT("Connection"), STR_LIT("close")));
	assert_true(str_eq(head_find(&h, STR_LIT("X-Egress-Reason"), NULL)->value,
		str_from(verdict_code(r->verdict))) ||
		    verdict_row(r->verdict)->status == 0);
	assert_true(str_ends(h.reason, STR_LIT(")")));
	for (size_t i = 0; i < out.len; i++) {
		unsigned char c = (unsigned char)out.mem[out.off + i];

		assert_true(c == '\n' || (c == '\r' && i < h.len) || (c >= 0x20 && c < 0x7f));
	}
	assert_true(h.n_fields >= 6 && h.n_fields <= 8);
	status = h.status;
	free(copy);
	buf_free(&out);
	return status;
}

static void test_every_verdict(void **state)
{
	for (int v = 0; v < VERDICT_N; v++) {
		const struct reply r = {.verdict = (enum verdict)v, .subject = STR_LIT("a.example:443"),
			.request_id = "1"};
		int want = verdict_row((enum verdict)v)->status;

		assert_int_equal(check_whole(&r), want != 0 ? want : 500);
	}
}

static void test_no_injection(void **state)
{
	static const struct str evil[] = {
		STR_LIT("a\r\nSet-Cookie: x=y\r\n\r\n<html>"), STR_LIT("a\nb"), STR_LIT("a\0b"), STR_LIT("\x1b[2J"),
		STR_LIT("\xc3\xa9\xff"),
		STR_LIT("a\"; x=\"b\\"), STR_LIT("\\"), STR_LIT("\""), STR_LIT("<script>alert(1)</script>"),
		STR_LIT("\t\x7f\x80"),
	};

	for (size_t i = 0; i < N(evil); i++) {
		for (int json = 0; json < 2; json++) {
			const struct reply r = {
				.verdict = VERDICT_HOST_NOT_ALLOWED,
				.subject = evil[i],
				.detail = evil[i],
				.request_id = "a\r\nb\"\xff",
				.json = json == 1,
			};

			assert_int_equal(check_whole(&r), 403);
		}
	}
}

static void test_quotes_in_details(void **state)
{
	const struct reply r = {.verdict = VERDICT_HOST_DENIED, .subject = STR_LIT("a\"\\b")};
	struct buf out = {0};

	reply_write(&out, &r);
	buf_add(&out, "", 1);
	assert_non_null(strstr(buf_view(&out).p, "details=\"a\\\"\\\\b is on the deny list\"\r\n"));
	buf_free(&out);
}

/* A phrase that is too long loses its middle, never its code. */
static void test_long_subject(void **state)
{
	char subject[4096];
	struct reply r = {.verdict = VERDICT_HOST_NOT_ALLOWED, .subject = {subject, sizeof(subject)}};
	struct buf out = {0};
	struct head h;
	char *copy;

	memset(subject, 'x', sizeof(subject));
	r.detail = r.subject;
	assert_int_equal(check_whole(&r), 403);
	reply_write(&out, &r);
	copy = whole_head(buf_view(&out), true, &h);
	assert_int_equal(h.reason.n, 400);
	assert_true(str_ends(h.reason, STR_LIT("xx (host_not_allowed)")));
	free(copy);
	buf_free(&out);
}

static void test_accept(void **state)
{
	static const struct {
		const char *field;
		bool json;
	} cases[] = {
		{"", false},
		{"*/*", false},
		{"application/json", true},
		{"Application/JSON", true},
		{"application/*", true},
		{"application/json, text/plain, */*", true},
		{"text/plain, application/json", false},
		{"text/plain;q=0.5, application/json", true},
		{"text/plain, application/json;q=0.9", false},
		{"application/json;q=0", false},
		{"application/json;q=0, */*", false},
		{"*/*, application/json;q=0.1", false},
		{"text/*;q=0.1, application/json;q=0.2", true},
		{"application/json; charset=utf-8 ; q=1.000", true},
		{"application/json;Q=0.001", true},
		{"application/json;q=1.001", false},
		{"application/json;q=2", false},
		{"application/json;q=", false},
		{"application/json;q=0.5.5", false},
		{"application/json;q=0.1234", false},
		{"application/jsonx", false},
		{"xapplication/json", false},
		{",, application/json ,", true},
		{"text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8", false},
		{"text/html, application/json;q=0.9, */*;q=0.8", true},
		{";q=1", false},
	};

	for (size_t i = 0; i < N(cases); i++) {
		if (reply_accepts_json(str_from(cases[i].field)) != cases[i].json)
			fail_msg("Accept: %s", cases[i].field);
	}
	assert_false(reply_accepts_json((struct str){NULL, 0}));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_refusal),
		cmocka_unit_test(test_failure),
		cmocka_unit_test(test_method),
		cmocka_unit_test(test_every_verdict),
		cmocka_unit_test(test_no_injection),
		cmocka_unit_test(test_quotes_in_details),
		cmocka_unit_test(test_long_subject),
		cmocka_unit_test(test_accept),
	};

	return cmocka_run_group_tests_name("reply", tests, NULL, NULL);
}
