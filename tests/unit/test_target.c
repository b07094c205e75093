/* Targets and Host, and the raw vectors of public bug reports through head, target and framing. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "heads.h"
#include "http/framing.h"
#include "http/target.h"

/* "METHOD TARGET" as an HTTP/1.1 request with a Host that goes with anything. */
static enum verdict parse_line(const char *line, struct target *ret, char **ret_copy, const char **ret_why)
{
	char text[2048];
	struct head h;
	int n = snprintf(text, sizeof(text), "%s HTTP/1.1\r\nHost:\r\n\r\n", line);

	*ret_copy = whole_head((struct str){text, (size_t)n}, false, &h);
	return target_parse(&h, ret, ret_why);
}

static const struct {
	const char *line, *host;
	uint16_t port;
	bool connect;
	const char *path_query;
	bool slash;
	const char *authority;
} accepted[] = {
	{"CONNECT example.com:443", "example.com", 443, true, "", false, ""},
	{"CONNECT EXAMPLE.com.:80", "example.com", 80, true, "", false, ""},
	{"CONNECT 192.0.2.1:65535", "192.0.2.1", 65535, true, "", false, ""},
	{"CONNECT [2001:DB8::1]:443", "[2001:db8::1]", 443, true, "", false, ""},
	{"CONNECT [::ffff:192.0.2.1]:443", "192.0.2.1", 443, true, "", false, ""},
	{"CONNECT a_b.example:22", "a_b.example", 22, true, "", false, ""},
	{"GET http://example.com/", "example.com", 80, false, "/", false, "example.com"},
	{"GET http://example.com", "example.com", 80, false, "/", false, "example.com"},
	{"GET http://example.com:80/a?b=c", "example.com", 80, false, "/a?b=c", false, "example.com"},
	{"GET http://example.com:/a", "example.com", 80, false, "/a", false, "example.com"},
	{"GET http://example.com:8080/a", "example.com", 8080, false, "/a", false, "example.com:8080"},
	{"GET HTTP://EXAMPLE.com./", "example.com", 80, false, "/", false, "EXAMPLE.com."},
	{"GET http://example.com?token=x", "example.com", 80, false, "?token=x", true, "example.com"},
	{"GET http://example.com:81?", "example.com", 81, false, "?", true, "example.com:81"},
	{"GET http://[2001:db8::1]/", "[2001:db8::1]", 80, false, "/", false, "[2001:db8::1]"},
	{"GET http://[2001:db8::1]:8080/", "[2001:db8::1]", 8080, false, "/", false, "[2001:db8::1]:8080"},
	{"GET http://example.com//a/../b/%2e%2E/@:\\^", "example.com", 80, false, "//a/../b/%2e%2E/@:\\^", false,
	 "example.com"},
	{"GET http://example.com/http://b.example/", "example.com", 80, false, "/http://b.example/", false,
	 "example.com"},
	{"GET http://example.com/?u=a@b.example", "example.com", 80, false, "/?u=a@b.example", false, "example.com"},
	{"OPTIONS http://example.com", "example.com", 80, false, "*", false, "example.com"},
	{"OPTIONS http://example.com/", "example.com", 80, false, "/", false, "example.com"},
	{"OPTIONS http://example.com?x", "example.com", 80, false, "?x", true, "example.com"},
	{"PROPFIND http://example.com/", "example.com", 80, false, "/", false, "example.com"},
	{"connect http://example.com/", "example.com", 80, false, "/", false, "example.com"},
	{"trace http://example.com/", "example.com", 80, false, "/", false, "example.com"},
};

static void test_accepted(void **state)
{
	char text[HOST_TEXT_MAX], *copy;
	struct target t;
	const char *why;

	for (size_t i = 0; i < N(accepted); i++) {
		if (parse_line(accepted[i].line, &t, &copy, &why) != VERDICT_ALLOW)
			fail_msg("%s: %s", accepted[i].line, why);
		assert_null(why);
		host_format(&t.to.host, text);
		assert_string_equal(text, accepted[i].host);
		assert_int_equal(t.to.port, accepted[i].port);
		assert_int_equal(t.connect, accepted[i].connect);
		assert_true(str_eq(t.path_query, str_from(accepted[i].path_query)));
		assert_int_equal(t.slash, accepted[i].slash);
		assert_true(str_eq(t.authority, str_from(accepted[i].authority)));
		assert_int_equal(t.explicit_port, !t.connect && t.to.port != 80);
		free(copy);
	}
}

static const struct {
	const char *line;
	enum verdict verdict;
} refused[] = {
	/* CONNECT */
	{"CONNECT example.com", VERDICT_BAD_TARGET},
	{"CONNECT example.com:", VERDICT_BAD_TARGET},
	{"CONNECT :443", VERDICT_BAD_TARGET},
	{"CONNECT 443", VERDICT_BAD_TARGET},
	{"CONNECT example.com:0", VERDICT_BAD_TARGET},
	{"CONNECT example.com:notaport", VERDICT_BAD_TARGET},
	{"CONNECT example.com:https", VERDICT_BAD_TARGET},
	{"CONNECT example.com:65536", VERDICT_BAD_TARGET},
	{"CONNECT example.com:65979", VERDICT_BAD_TARGET},
	{"CONNECT example.com:65616", VERDICT_BAD_TARGET},
	{"CONNECT example.com:4294967739", VERDICT_BAD_TARGET},
	{"CONNECT example.com:+443", VERDICT_BAD_TARGET},
	{"CONNECT example.com:-443", VERDICT_BAD_TARGET},
	{"CONNECT example.com:0x1bb", VERDICT_BAD_TARGET},
	{"CONNECT example.com:4_43", VERDICT_BAD_TARGET},
	{"CONNECT example.com:0443", VERDICT_BAD_TARGET},
	{"CONNECT example.com:443:443", VERDICT_BAD_TARGET},
	{"CONNECT example.com:443/foo", VERDICT_BAD_TARGET},
	{"CONNECT example.com:443?x", VERDICT_BAD_TARGET},
	{"CONNECT example.com:443#y", VERDICT_BAD_TARGET},
	{"CONNECT http://example.com:443", VERDICT_BAD_TARGET},
	{"CONNECT //example.com:443", VERDICT_BAD_TARGET},
	{"CONNECT user:pw@example.com:443", VERDICT_BAD_TARGET},
	{"CONNECT example.com:443@b.example:443", VERDICT_BAD_TARGET},
	{"CONNECT example.com\\:443", VERDICT_BAD_TARGET},
	{"CONNECT example.com%00.evil.example:443", VERDICT_BAD_TARGET},
	{"CONNECT example.com%0d%0aX:%20y:443", VERDICT_BAD_TARGET},
	{"CONNECT 2001:db8::1:443", VERDICT_BAD_TARGET},
	{"CONNECT [2001:db8::1]", VERDICT_BAD_TARGET},
	{"CONNECT [2001:db8::1]443", VERDICT_BAD_TARGET},
	{"CONNECT [2001:db8::1]x:443", VERDICT_BAD_TARGET},
	{"CONNECT [2001:db8::1:443", VERDICT_BAD_TARGET},
	{"CONNECT [[::1]]:443", VERDICT_BAD_TARGET},
	{"CONNECT [::1%25lo]:443", VERDICT_BAD_TARGET},
	{"CONNECT [example.com]:443", VERDICT_BAD_TARGET},
	{"CONNECT 0x7f.1:443", VERDICT_BAD_TARGET},
	{"CONNECT example..com:443", VERDICT_BAD_TARGET},
	{"CONNECT *", VERDICT_BAD_TARGET},
	/* not for a proxy */
	{"GET /", VERDICT_BAD_REQUEST},
	{"GET //example.com/", VERDICT_BAD_REQUEST},
	{"GET admin", VERDICT_BAD_REQUEST},
	{"GET example.com:80", VERDICT_BAD_REQUEST},
	{"GET http:example.com", VERDICT_BAD_REQUEST},
	{"GET http:/example.com", VERDICT_BAD_REQUEST},
	{"GET ://example.com", VERDICT_BAD_REQUEST},
	{"GET 1http://example.com", VERDICT_BAD_REQUEST},
	{"OPTIONS *", VERDICT_BAD_REQUEST},
	{"GET *", VERDICT_BAD_REQUEST},
	{"connect example.com:443", VERDICT_BAD_REQUEST},
	/* other schemes */
	{"GET https://example.com/", VERDICT_SCHEME_NOT_SUPPORTED},
	{"GET HTTPS://example.com/", VERDICT_SCHEME_NOT_SUPPORTED},
	{"GET ws://example.com/", VERDICT_SCHEME_NOT_SUPPORTED},
	{"GET wss://example.com/", VERDICT_SCHEME_NOT_SUPPORTED},
	{"GET ftp://example.com/", VERDICT_SCHEME_NOT_SUPPORTED},
	{"GET file:///etc/passwd", VERDICT_SCHEME_NOT_SUPPORTED},
	{"GET httpx://example.com/", VERDICT_SCHEME_NOT_SUPPORTED},
	/* absolute-form */
	{"GET http://", VERDICT_BAD_TARGET},
	{"GET http:///a", VERDICT_BAD_TARGET},
	{"GET http://:80/", VERDICT_BAD_TARGET},
	{"GET http://user:pw@example.com/", VERDICT_BAD_TARGET},
	{"GET http://user@example.com/", VERDICT_BAD_TARGET},
	{"GET http://@example.com/", VERDICT_BAD_TARGET},
	{"GET http://example.com@b.example/", VERDICT_BAD_TARGET},
	{"GET http://example.com\\@b.example/", VERDICT_BAD_TARGET},
	{"GET http://example.com\\.b.example/", VERDICT_BAD_TARGET},
	{"GET http://example.com\\/", VERDICT_BAD_TARGET},
	{"GET http://example.com#@b.example/", VERDICT_BAD_TARGET},
	{"GET http://example.com/#f", VERDICT_BAD_TARGET},
	{"GET http://example.com/?#f", VERDICT_BAD_TARGET},
	{"GET http://example.com:99999/", VERDICT_BAD_TARGET},
	{"GET http://example.com:0/", VERDICT_BAD_TARGET},
	{"GET http://example.com:080/", VERDICT_BAD_TARGET},
	{"GET http://example.com:80:80/", VERDICT_BAD_TARGET},
	{"GET http://example.com%00.evil.example/", VERDICT_BAD_TARGET},
	{"GET http://2001:db8::1/", VERDICT_BAD_TARGET},
	{"GET http://[2001:db8::1/", VERDICT_BAD_TARGET},
	{"GET http://0177.0.0.1/", VERDICT_BAD_TARGET},
	{"GET http://<script>alert(1)</script>/", VERDICT_BAD_TARGET},
	/* methods */
	{"TRACE http://example.com/", VERDICT_METHOD_NOT_ALLOWED},
	{"TRACK http://example.com/", VERDICT_METHOD_NOT_ALLOWED},
	{"TRACE /", VERDICT_METHOD_NOT_ALLOWED},
};

static void test_refused(void **state)
{
	struct target t, before;
	enum verdict v;
	const char *why;
	char *copy;

	memset(&t, 0x5a, sizeof(t));
	memcpy(&before, &t, sizeof(t));
	for (size_t i = 0; i < N(refused); i++) {
		why = NULL;
		v = parse_line(refused[i].line, &t, &copy, &why);
		if (v != refused[i].verdict)
			fail_msg("%s: %s, not %s", refused[i].line, verdict_code(v), verdict_code(refused[i].verdict));
		assert_non_null(why);
		assert_true(strlen(why) > 0 && strlen(why) < 100);
		assert_memory_equal(&t, &before, sizeof(t));
		free(copy);
	}
}

static enum verdict parse_text(struct str text, const char **ret_why)
{
	struct target t;
	struct head h;
	char *copy = whole_head(text, false, &h);
	enum verdict v = target_parse(&h, &t, ret_why);

	free(copy);
	return v;
}

#define GET "GET http://example.com/ HTTP/1.1\r\n"
#define CONNECT_LINE "CONNECT example.com:443 HTTP/1.1\r\n"

static const struct {
	struct str text;
	enum verdict verdict;
} hosts[] = {
	{STR_LIT(GET "Host: example.com\r\n\r\n"), VERDICT_ALLOW},
	{STR_LIT(GET "hOST:EXAMPLE.COM:80\r\n\r\n"), VERDICT_ALLOW},
	{STR_LIT(GET "Host: example.com.\r\n\r\n"), VERDICT_ALLOW},
	{STR_LIT(GET "Host: example.com:\r\n\r\n"), VERDICT_ALLOW},
	{STR_LIT(GET "Host:\r\n\r\n"), VERDICT_ALLOW},
	{STR_LIT("GET http://example.com./ HTTP/1.1\r\nHost: example.com\r\n\r\n"), VERDICT_ALLOW},
	{STR_LIT("GET http://Example.com:80/ HTTP/1.1\r\nHost: example.com\r\n\r\n"), VERDICT_ALLOW},
	{STR_LIT("GET http://example.com:81/ HTTP/1.1\r\nHost: example.com\r\n\r\n"), VERDICT_ALLOW},
	{STR_LIT("GET http://[2001:db8::1]/ HTTP/1.1\r\nHost: [2001:DB8:0::1]\r\n\r\n"), VERDICT_ALLOW},
	{STR_LIT(GET "\r\n"), VERDICT_BAD_REQUEST},
	{STR_LIT(GET "Host: example.com\r\nHost: example.com\r\n\r\n"), VERDICT_BAD_REQUEST},
	{STR_LIT(GET "Host: example.com\r\nhost:\r\n\r\n"), VERDICT_BAD_REQUEST},
	{STR_LIT(GET "Host: example.com, example.com\r\n\r\n"), VERDICT_BAD_REQUEST},
	{STR_LIT(GET "Host: user@example.com\r\n\r\n"), VERDICT_BAD_REQUEST},
	{STR_LIT(GET "Host: example.com/a\r\n\r\n"), VERDICT_BAD_REQUEST},
	{STR_LIT(GET "Host: http://example.com\r\n\r\n"), VERDICT_BAD_REQUEST},
	{STR_LIT(GET "Host: example.com:x\r\n\r\n"), VERDICT_BAD_REQUEST},
	{STR_LIT(GET "Host: example com\r\n\r\n"), VERDICT_BAD_REQUEST},
	{STR_LIT(GET "Host: ex\xc3\xa9.com\r\n\r\n"), VERDICT_BAD_REQUEST},
	{STR_LIT(GET "Host: other.example\r\n\r\n"), VERDICT_BAD_TARGET},
	{STR_LIT(GET "Host: example.com:8080\r\n\r\n"), VERDICT_BAD_TARGET},
	{STR_LIT(GET "Host: 192.0.2.1\r\n\r\n"), VERDICT_BAD_TARGET},
	/* a CONNECT is not compared, but the syntax is held to */
	{STR_LIT(CONNECT_LINE "Host: example.com\r\n\r\n"), VERDICT_ALLOW},
	{STR_LIT(CONNECT_LINE "Host: proxy.example:3128\r\n\r\n"), VERDICT_ALLOW},
	{STR_LIT(CONNECT_LINE "\r\n"), VERDICT_BAD_REQUEST},
	{STR_LIT(CONNECT_LINE "Host: a\r\nHost: b\r\n\r\n"), VERDICT_BAD_REQUEST},
	{STR_LIT(CONNECT_LINE "Host: a@b\r\n\r\n"), VERDICT_BAD_REQUEST},
	/* HTTP/1.0: none or one */
	{STR_LIT("CONNECT example.com:443 HTTP/1.0\r\n\r\n"), VERDICT_ALLOW},
	{STR_LIT("GET http://example.com/ HTTP/1.0\r\n\r\n"), VERDICT_ALLOW},
	{STR_LIT("GET http://example.com/ HTTP/1.0\r\nHost: other.example\r\n\r\n"), VERDICT_BAD_TARGET},
	{STR_LIT("GET http://example.com/ HTTP/1.0\r\nHost: a\r\nHost: a\r\n\r\n"), VERDICT_BAD_REQUEST},
	/* Host never picks a destination */
	{STR_LIT("GET / HTTP/1.1\r\nHost: 169.254.169.254\r\n\r\n"), VERDICT_BAD_REQUEST},
	/* OPTIONS that ends here */
	{STR_LIT("OPTIONS http://example.com HTTP/1.1\r\nHost:\r\nMax-Forwards: 0\r\n\r\n"),
	 VERDICT_METHOD_NOT_ALLOWED},
	{STR_LIT("OPTIONS http://example.com HTTP/1.1\r\nHost:\r\nMax-Forwards: 00\r\n\r\n"),
	 VERDICT_METHOD_NOT_ALLOWED},
	{STR_LIT("OPTIONS http://example.com HTTP/1.1\r\nHost:\r\nMax-Forwards: 1\r\n\r\n"), VERDICT_ALLOW},
	{STR_LIT("GET http://example.com HTTP/1.1\r\nHost:\r\nMax-Forwards: 0\r\n\r\n"), VERDICT_ALLOW},
};

static void test_host(void **state)
{
	const char *why;
	enum verdict v;

	for (size_t i = 0; i < N(hosts); i++) {
		v = parse_text(hosts[i].text, &why);
		if (v != hosts[i].verdict)
			fail_msg("%s: %s, not %s", hosts[i].text.p, verdict_code(v), verdict_code(hosts[i].verdict));
	}
}

/* The words for credentials in a URL name the cause and hold nothing of it. */
static void test_userinfo_is_named(void **state)
{
	const char *why;

	assert_int_equal(parse_text(STR_LIT("GET http://bob:hunter2@example.com/ HTTP/1.0\r\n\r\n"), &why),
		VERDICT_BAD_TARGET);
	assert_non_null(strstr(why, "userinfo"));
	assert_null(strstr(why, "hunter2"));
}

/* As many options as are looked through, and one more, in one field or in many. */
static void test_connection_options(void **state)
{
	char text[2048];
	const char *why;
	size_t n;

	for (size_t extra = 0; extra < 2; extra++) {
		n = (size_t)snprintf(text, sizeof(text), GET "Host:\r\nConnection: a\r\nConnection: b");
		for (size_t i = 2; i < HEAD_CONNECTION_OPTIONS_MAX + extra; i++)
			n += (size_t)snprintf(text + n, sizeof(text) - n, ",x%zu", i);
		n += (size_t)snprintf(text + n, sizeof(text) - n, "\r\n\r\n");
		assert_int_equal(parse_text((struct str){text, n}, &why), extra ? VERDICT_BAD_REQUEST : VERDICT_ALLOW);
	}
}

/* --- the vectors --- */

/* The value of a string member in a line of flat JSON without escapes in that value; false when it is not there. */
static bool member_of(const char *line, const char *name, struct str *ret)
{
	char key[32];
	const char *p, *end;

	snprintf(key, sizeof(key), "\"%s\": \"", name);
	p = strstr(line, key);
	if (!p)
		return false;
	p += strlen(key);
	end = strchr(p, '"');
	assert_non_null(end);
	*ret = (struct str){p, (size_t)(end - p)};
	return true;
}

static int hex_digit(char c)
{
	const char *digits = "0123456789abcdef", *at = strchr(digits, c);

	assert_true(c != '\0' && at != NULL);
	return (int)(at - digits);
}

/* 0 when head, target and framing take it, else the status of the refusal; -1 when the head is not whole. */
static int status_of(struct str in)
{
	struct framing f;
	struct target t;
	struct head h;
	enum head_bad bad;
	enum verdict v;
	const char *why;
	size_t scanned = 0;

	switch (head_parse_request(in, &scanned, &h, &bad)) {
	case HEAD_BAD:
		return verdict_row(head_bad_verdict(bad))->status;
	case HEAD_MORE:
		return -1;
	case HEAD_DONE:
		break;
	}
	v = target_parse(&h, &t, &why);
	if (v == VERDICT_ALLOW)
		v = framing_of_request(&h, &f, &why);
	return v == VERDICT_ALLOW ? 0 : verdict_row(v)->status;
}

static void test_vectors(void **state)
{
	FILE *file = fopen("tests/unit/data/vectors_raw.jsonl", "r");
	struct str expect, hex, name;
	char *line = NULL, *bytes;
	size_t cap = 0, seen = 0;
	int status, want;

	if (!file)
		fail_msg("run from the top of the tree: tests/unit/data/vectors_raw.jsonl is not here");
	while (getline(&line, &cap, file) > 0) {
		if (!member_of(line, "hex", &hex))
			continue;
		assert_true(member_of(line, "expect", &expect) && member_of(line, "case", &name));
		bytes = malloc(hex.n / 2 + 1);
		assert_non_null(bytes);
		for (size_t i = 0; i < hex.n / 2; i++)
			bytes[i] = (char)(hex_digit(hex.p[2 * i]) * 16 + hex_digit(hex.p[2 * i + 1]));
		status = status_of((struct str){bytes, hex.n / 2});
		/* 403 is for a policy to say: here it is good syntax */
		want = str_eq(expect, STR_LIT("400")) ? 400 : str_eq(expect, STR_LIT("501")) ? 501 : 0;
		assert_true(want != 0 || str_eq(expect, STR_LIT("403")) || str_eq(expect, STR_LIT("accept")));
		if (status != want)
			fail_msg("%.*s: status %d, not %d: %s", (int)name.n, name.p, status, want, line);
		free(bytes);
		seen++;
	}
	assert_true(seen > 100);
	free(line);
	fclose(file);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_accepted),
		cmocka_unit_test(test_refused),
		cmocka_unit_test(test_host),
		cmocka_unit_test(test_userinfo_is_named),
		cmocka_unit_test(test_connection_options),
		cmocka_unit_test(test_vectors),
	};

	return cmocka_run_group_tests_name("target", tests, NULL, NULL);
}
