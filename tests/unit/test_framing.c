/* Body framing of requests and responses, and the chunked coding cut at every byte. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "heads.h"
#include "http/framing.h"

#define ALLOW VERDICT_ALLOW
#define BAD VERDICT_BAD_FRAMING
#define TE "Transfer-Encoding: "
#define CL "Content-Length: "

static const struct {
	const char *line, *fields;
	enum verdict verdict;
	enum framing_kind kind;
	uint64_t length;
} requests[] = {
	{"GET x HTTP/1.1", "", ALLOW, FRAMING_NONE, 0},
	{"GET x HTTP/1.1", CL "10\r\n", ALLOW, FRAMING_LENGTH, 10},
	{"POST x HTTP/1.1", "", ALLOW, FRAMING_NONE, 0},
	{"POST x HTTP/1.1", CL "0\r\n", ALLOW, FRAMING_LENGTH, 0},
	{"POST x HTTP/1.1", "content-length:\t4294967296 \r\n", ALLOW, FRAMING_LENGTH, 4294967296},
	{"POST x HTTP/1.1", TE "chunked\r\n", ALLOW, FRAMING_CHUNKED, 0},
	{"POST x HTTP/1.1", TE "Chunked\r\n", ALLOW, FRAMING_CHUNKED, 0},
	{"POST x HTTP/1.1", "TRANSFER-ENCODING:CHUNKED \r\n", ALLOW, FRAMING_CHUNKED, 0},
	{"POST x HTTP/1.0", CL "3\r\n", ALLOW, FRAMING_LENGTH, 3},
	{"GET x HTTP/1.0", "", ALLOW, FRAMING_NONE, 0},
	{"CONNECT x HTTP/1.1", "", ALLOW, FRAMING_NONE, 0},
	/* both */
	{"POST x HTTP/1.1", CL "5\r\n" TE "chunked\r\n", BAD, 0, 0},
	{"POST x HTTP/1.1", TE "chunked\r\n" CL "5\r\n", BAD, 0, 0},
	{"POST x HTTP/1.1", TE "x\r\n" CL "5\r\n", BAD, 0, 0},
	/* Content-Length */
	{"POST x HTTP/1.1", CL "0\r\n" CL "31\r\n", BAD, 0, 0},
	{"POST x HTTP/1.1", CL "5\r\n" CL "5\r\n", BAD, 0, 0},
	{"POST x HTTP/1.1", CL "5, 5\r\n", BAD, 0, 0},
	{"POST x HTTP/1.1", CL "5,\r\n", BAD, 0, 0},
	{"POST x HTTP/1.1", CL "+5\r\n", BAD, 0, 0},
	{"POST x HTTP/1.1", CL "-1\r\n", BAD, 0, 0},
	{"POST x HTTP/1.1", CL "-0\r\n", BAD, 0, 0},
	{"POST x HTTP/1.1", CL "0x10\r\n", BAD, 0, 0},
	{"POST x HTTP/1.1", CL "010\r\n", BAD, 0, 0},
	{"POST x HTTP/1.1", CL "00\r\n", BAD, 0, 0},
	{"POST x HTTP/1.1", CL "1_0\r\n", BAD, 0, 0},
	{"POST x HTTP/1.1", CL "1Z\r\n", BAD, 0, 0},
	{"POST x HTTP/1.1", CL "\r\n", BAD, 0, 0},
	{"POST x HTTP/1.1", CL "1 0\r\n", BAD, 0, 0},
	{"POST x HTTP/1.1", CL "\"5\"\r\n", BAD, 0, 0},
	{"POST x HTTP/1.1", CL "5.0\r\n", BAD, 0, 0},
	{"POST x HTTP/1.1", CL "99999999999999999999\r\n", BAD, 0, 0},
	{"POST x HTTP/1.1", CL "18446744073709551621\r\n", BAD, 0, 0},
	{"POST x HTTP/1.1", CL "9223372036854775807\r\n", BAD, 0, 0},
	/* Transfer-Encoding */
	{"POST x HTTP/1.0", TE "chunked\r\n", BAD, 0, 0},
	{"POST x HTTP/1.1", TE "\r\n", BAD, 0, 0},
	{"POST x HTTP/1.1", TE "identity\r\n", BAD, 0, 0},
	{"POST x HTTP/1.1", TE "gzip\r\n", BAD, 0, 0},
	{"POST x HTTP/1.1", TE "xchunked\r\n", BAD, 0, 0},
	{"POST x HTTP/1.1", TE "chunked, identity\r\n", BAD, 0, 0},
	{"POST x HTTP/1.1", TE "chunked, chunked\r\n", BAD, 0, 0},
	{"POST x HTTP/1.1", TE "chunked,\r\n", BAD, 0, 0},
	{"POST x HTTP/1.1", TE ",chunked\r\n", BAD, 0, 0},
	{"POST x HTTP/1.1", TE "chunked;q=1\r\n", BAD, 0, 0},
	{"POST x HTTP/1.1", TE "\"chunked\"\r\n", BAD, 0, 0},
	{"POST x HTTP/1.1", TE "chunked x\r\n", BAD, 0, 0},
	{"POST x HTTP/1.1", TE "chunked\r\n" TE "chunked\r\n", BAD, 0, 0},
	{"POST x HTTP/1.1", TE "chunked\r\n" TE "gzip\r\n", BAD, 0, 0},
	{"POST x HTTP/1.1", TE "chunked\r\n" TE "\r\n", BAD, 0, 0},
	{"POST x HTTP/1.1", TE "gzip, chunked\r\n", VERDICT_CODING_NOT_SUPPORTED, 0, 0},
	{"POST x HTTP/1.1", TE "gzip\r\n" TE "chunked\r\n", VERDICT_CODING_NOT_SUPPORTED, 0, 0},
	/* no length */
	{"POST x HTTP/1.0", "", BAD, 0, 0},
	{"PUT x HTTP/1.0", "", BAD, 0, 0},
	{"PATCH x HTTP/1.0", "", BAD, 0, 0},
	/* CONNECT */
	{"CONNECT x HTTP/1.1", CL "0\r\n", BAD, 0, 0},
	{"CONNECT x HTTP/1.1", CL "5\r\n", BAD, 0, 0},
	{"CONNECT x HTTP/1.1", TE "chunked\r\n", BAD, 0, 0},
};

static void test_requests(void **state)
{
	struct framing f, before;
	char text[512], *copy;
	struct head h;
	const char *why;
	enum verdict v;
	int n;

	for (size_t i = 0; i < N(requests); i++) {
		n = snprintf(text, sizeof(text), "%s\r\nA: b\r\n%s\r\n", requests[i].line, requests[i].fields);
		copy = whole_head((struct str){text, (size_t)n}, false, &h);
		memset(&f, 0x5a, sizeof(f));
		memcpy(&before, &f, sizeof(f));
		v = framing_of_request(&h, &f, &why);
		if (v != requests[i].verdict)
			fail_msg("%s %s: %s", requests[i].line, requests[i].fields, verdict_code(v));
		if (v == VERDICT_ALLOW) {
			assert_int_equal(f.kind, requests[i].kind);
			assert_int_equal(f.length, requests[i].length);
		} else {
			assert_memory_equal(&f, &before, sizeof(f));
			assert_true(strlen(why) > 0);
		}
		free(copy);
	}
}

static void test_responses(void **state)
{
	static const struct {
		const char *method, *line, *fields;
		bool good;
		enum framing_kind kind;
		uint64_t length;
	} cases[] = {
		{"GET", "HTTP/1.1 200 OK", "", true, FRAMING_CLOSE, 0},
		{"GET", "HTTP/1.0 200 OK", "", true, FRAMING_CLOSE, 0},
		{"GET", "HTTP/1.1 200 OK", CL "7\r\n", true, FRAMING_LENGTH, 7},
		{"GET", "HTTP/1.0 200 OK", CL "7\r\n", true, FRAMING_LENGTH, 7},
		{"GET", "HTTP/1.1 200 OK", CL "7\r\n" CL "7\r\n", true, FRAMING_LENGTH, 7},
		{"GET", "HTTP/1.1 200 OK", CL "7, 7\r\n", true, FRAMING_LENGTH, 7},
		{"GET", "HTTP/1.1 200 OK", TE "CHUNKED\r\n", true, FRAMING_CHUNKED, 0},
		{"GET", "HTTP/1.1 205 Reset", CL "0\r\n", true, FRAMING_LENGTH, 0},
		/* no body, whatever the fields say */
		{"HEAD", "HTTP/1.1 200 OK", CL "7\r\n", true, FRAMING_NONE, 0},
		{"HEAD", "HTTP/1.1 200 OK", TE "chunked\r\n", true, FRAMING_NONE, 0},
		{"HEAD", "HTTP/1.1 200 OK", "", true, FRAMING_NONE, 0},
		{"GET", "HTTP/1.1 304 Not Modified", CL "7\r\n", true, FRAMING_NONE, 0},
		{"GET", "HTTP/1.1 204 No Content", TE "chunked\r\n", true, FRAMING_NONE, 0},
		{"GET", "HTTP/1.1 100 Continue", "", true, FRAMING_NONE, 0},
		{"GET", "HTTP/1.1 101 Switching Protocols", CL "7\r\n", true, FRAMING_NONE, 0},
		{"head", "HTTP/1.1 200 OK", CL "7\r\n", true, FRAMING_LENGTH, 7},
		/* faults */
		{"GET", "HTTP/1.1 200 OK", CL "7\r\n" TE "chunked\r\n", false, 0, 0},
		{"GET", "HTTP/1.1 200 OK", CL "x\r\n" TE "chunked\r\n", false, 0, 0},
		{"GET", "HTTP/1.1 200 OK", CL "7\r\n" CL "8\r\n", false, 0, 0},
		{"GET", "HTTP/1.1 200 OK", CL "7, 8\r\n", false, 0, 0},
		{"GET", "HTTP/1.1 200 OK", CL "7,\r\n", false, 0, 0},
		{"GET", "HTTP/1.1 200 OK", CL "\r\n", false, 0, 0},
		{"GET", "HTTP/1.1 200 OK", CL "+7\r\n", false, 0, 0},
		{"GET", "HTTP/1.1 200 OK", CL "07\r\n", false, 0, 0},
		{"GET", "HTTP/1.1 200 OK", CL "99999999999999999999\r\n", false, 0, 0},
		{"GET", "HTTP/1.0 200 OK", TE "chunked\r\n", false, 0, 0},
		{"GET", "HTTP/1.1 200 OK", TE "gzip\r\n", false, 0, 0},
		{"GET", "HTTP/1.1 200 OK", TE "gzip, chunked\r\n", false, 0, 0},
		{"GET", "HTTP/1.1 200 OK", TE "chunked, gzip\r\n", false, 0, 0},
		{"GET", "HTTP/1.1 200 OK", TE "chunked\r\n" TE "chunked\r\n", false, 0, 0},
	};
	char text[512], *copy;
	struct framing f;
	struct head h;
	const char *why;
	enum verdict v;
	int n;

	for (size_t i = 0; i < N(cases); i++) {
		n = snprintf(text, sizeof(text), "%s\r\n%s\r\n", cases[i].line, cases[i].fields);
		copy = whole_head((struct str){text, (size_t)n}, true, &h);
		v = framing_of_response(&h, str_from(cases[i].method), &f, &why);
		if (v != (cases[i].good ? VERDICT_ALLOW : VERDICT_ORIGIN_PROTOCOL))
			fail_msg("%s %s: %s", cases[i].line, cases[i].fields, verdict_code(v));
		if (cases[i].good) {
			assert_int_equal(f.kind, cases[i].kind);
			assert_int_equal(f.length, cases[i].length);
		} else {
			assert_non_null(why);
		}
		free(copy);
	}
}

static void test_connection_options(void **state)
{
	char text[2048], *copy;
	struct framing f;
	struct head h;
	const char *why;
	size_t n;

	for (size_t extra = 0; extra < 2; extra++) {
		n = (size_t)snprintf(text, sizeof(text), "HTTP/1.1 204 No Content\r\nConnection: a");
		for (size_t i = 1; i < HEAD_CONNECTION_OPTIONS_MAX + extra; i++)
			n += (size_t)snprintf(text + n, sizeof(text) - n, ",x%zu", i);
		n += (size_t)snprintf(text + n, sizeof(text) - n, "\r\n\r\n");
		copy = whole_head((struct str){text, n}, true, &h);
		assert_int_equal(framing_of_response(&h, STR_LIT("GET"), &f, &why),
				 extra ? VERDICT_ORIGIN_PROTOCOL : VERDICT_ALLOW);
		free(copy);
	}
}

/* --- chunked --- */

struct passed {
	enum chunked_result result;
	size_t consumed, written;
	char out[64 * 1024];
};

/* Up to `cut` bytes first, then `step` at a time, each call with exactly as much room as input, in one buffer. */
static void pass(struct str in, size_t cut, size_t step, bool dechunk, struct passed *p)
{
	struct chunked c;
	size_t n = cut, at = 0, consumed, written;
	char *buf;

	chunked_init(&c);
	c.dechunk = dechunk;
	p->written = 0;
	p->result = CHUNKED_MORE;
	for (;; n = step) {
		if (n > in.n - at)
			n = in.n - at;
		buf = heap_copy((struct str){in.p + at, n});
		p->result = chunked_pass(&c, buf, n, buf, &consumed, &written);
		assert_true(written <= consumed && consumed <= n);
		assert_true(p->written + written <= sizeof(p->out));
		memcpy(p->out + p->written, buf, written);
		free(buf);
		p->written += written;
		at += consumed;
		if (p->result != CHUNKED_MORE || at == in.n)
			break;
	}
	p->consumed = at;
	/* an end or a fault stays one */
	if (p->result != CHUNKED_MORE) {
		char more = '0';

		assert_int_equal(chunked_pass(&c, &more, 1, &more, &consumed, &written), p->result);
		assert_int_equal(consumed, 0);
		assert_int_equal(written, 0);
	}
}

static void every_cut(struct str in, bool dechunk, struct passed *once)
{
	static struct passed other;

	pass(in, in.n, 1, dechunk, once);
	for (size_t cut = 0; cut <= in.n; cut++) {
		pass(in, cut, cut == 0 ? 1 : in.n, dechunk, &other);
		assert_int_equal(other.result, once->result);
		assert_int_equal(other.consumed, once->consumed);
		assert_int_equal(other.written, once->written);
		assert_memory_equal(other.out, once->out, once->written);
	}
}

static void test_chunked_good(void **state)
{
	static const struct {
		struct str in, out, data;
		size_t rest;
	} cases[] = {
		{STR_LIT("0\r\n\r\n"), STR_LIT("0\r\n\r\n"), STR_LIT(""), 0},
		{STR_LIT("5\r\nhello\r\n0\r\n\r\n"), STR_LIT("5\r\nhello\r\n0\r\n\r\n"), STR_LIT("hello"), 0},
		{STR_LIT("5\r\nhello\r\n0\r\n\r\nGET"), STR_LIT("5\r\nhello\r\n0\r\n\r\n"), STR_LIT("hello"), 3},
		{STR_LIT("A\r\n0123456789\r\n1\r\n\n\r\n0\r\n\r\n"), STR_LIT("a\r\n0123456789\r\n1\r\n\n\r\n0\r\n\r\n"),
		 STR_LIT("0123456789\n"), 0},
		{STR_LIT("0000000000000003\r\n0\r\n\r\n000\r\n\r\n"), STR_LIT("03\r\n0\r\n\r\n0\r\n\r\n"),
		 STR_LIT("0\r\n"), 0},
		/* extensions */
		{STR_LIT("1;a=b\r\nx\r\n0;z\r\n\r\n"), STR_LIT("1\r\nx\r\n0\r\n\r\n"), STR_LIT("x"), 0},
		{STR_LIT("1 \t; a = \"q;\\\"\t\xff\" ; c\r\nx\r\n0\r\n\r\n"), STR_LIT("1\r\nx\r\n0\r\n\r\n"),
		 STR_LIT("x"), 0},
		{STR_LIT("1;a=\"\\\\\"\r\nx\r\n0\r\n\r\n"), STR_LIT("1\r\nx\r\n0\r\n\r\n"), STR_LIT("x"), 0},
		/* trailers */
		{STR_LIT("0\r\nA: b\r\nC:\r\nContent-Length: 5\r\n\r\nrest"), STR_LIT("0\r\n\r\n"), STR_LIT(""), 4},
		{STR_LIT("1;x\r\ny\r\n0\r\nA: b\r\n\r\n"), STR_LIT("1\r\ny\r\n0\r\n\r\n"), STR_LIT("y"), 0},
	};
	static struct passed p, again;

	for (size_t i = 0; i < N(cases); i++) {
		every_cut(cases[i].in, false, &p);
		assert_int_equal(p.result, CHUNKED_DONE);
		assert_int_equal(p.consumed, cases[i].in.n - cases[i].rest);
		assert_true(str_eq((struct str){p.out, p.written}, cases[i].out));
		pass((struct str){p.out, p.written}, p.written, 1, false, &again); /* a fixed point */
		assert_int_equal(again.result, CHUNKED_DONE);
		assert_true(str_eq((struct str){again.out, again.written}, cases[i].out));
		every_cut(cases[i].in, true, &p);
		assert_int_equal(p.result, CHUNKED_DONE);
		assert_true(str_eq((struct str){p.out, p.written}, cases[i].data));
	}
}

static void test_chunked_bad(void **state)
{
	static const struct str cases[] = {
		STR_LIT("\r\n"), STR_LIT(" 5\r\n"), STR_LIT("+5\r\n"), STR_LIT("-5\r\n"), STR_LIT("0x5\r\n"),
		STR_LIT("g\r\n"),
		STR_LIT("5 \r\n"), STR_LIT("5\n"), STR_LIT("5\r\r\n"), STR_LIT("5\rX"), STR_LIT("5_0\r\n"),
		STR_LIT(";a\r\n"),
		STR_LIT("INVALID!!!\r\nGET http://b.example/ HTTP/1.1\r\n\r\n"),
		/* sizes */
		STR_LIT("FFFFFFFFFFFFFFFF\r\n"), STR_LIT("10000000000000005\r\n"), STR_LIT("7FFFFFFFFFFFFFFF\r\n"),
		STR_LIT("00000000000000001\r\n"), STR_LIT("4000000000000\r\n"),
		/* data that does not end where it should */
		STR_LIT("1\r\nxy"), STR_LIT("1\r\nx\n"), STR_LIT("1\r\nx\rY"), STR_LIT("1\r\nx0\r\n\r\n"),
		/* extensions */
		STR_LIT("5;a=b\r\r\n"), STR_LIT("5\r\r;ABCD"), STR_LIT("5;a\n"), STR_LIT("5;a=\"b\r\n"),
		STR_LIT("5;a=\"b\\\r\n"),
		STR_LIT("5;\0\r\n"), STR_LIT("5;\x7f\r\n"), STR_LIT("5;a=\xff\r\n"), STR_LIT("5 5\r\n"),
		/* trailers */
		STR_LIT("0\r\nA b\r\n\r\n"), STR_LIT("0\r\n: b\r\n\r\n"), STR_LIT("0\r\n A: b\r\n\r\n"),
		STR_LIT("0\r\nA: b\n\r\n"),
		STR_LIT("0\r\nA: b\r\n c\r\n\r\n"), STR_LIT("0\r\nA : b\r\n\r\n"), STR_LIT("0\r\nA: \0\r\n\r\n"),
		STR_LIT("0\r\n\n"), STR_LIT("0\r\n\rX"), STR_LIT("0\r\nGET / HTTP/1.1\r\n\r\n"),
	};
	static struct passed p;

	for (size_t i = 0; i < N(cases); i++) {
		every_cut(cases[i], false, &p);
		if (p.result != CHUNKED_BAD)
			fail_msg("%s: result %d", cases[i].p, (int)p.result);
		every_cut(cases[i], true, &p);
		assert_int_equal(p.result, CHUNKED_BAD);
	}
}

static void test_chunked_large(void **state)
{
	static char block[60000];
	static struct passed p;
	struct chunked c;
	size_t consumed, written;
	uint64_t left = UINT64_C(1) << 32;

	chunked_init(&c);
	assert_int_equal(chunked_pass(&c, "100000000\r\n", 11, p.out, &consumed, &written), CHUNKED_MORE);
	assert_memory_equal(p.out, "100000000\r\n", 11);
	for (size_t n; left > 0; left -= n) {
		n = left < sizeof(block) ? (size_t)left : sizeof(block);
		assert_int_equal(chunked_pass(&c, block, n, block, &consumed, &written), CHUNKED_MORE);
		assert_int_equal(consumed, n);
		assert_int_equal(written, n);
	}
	assert_int_equal(chunked_pass(&c, "\r\n0\r\n\r\n", 7, p.out, &consumed, &written), CHUNKED_DONE);
	assert_int_equal(consumed, 7);
}

/* `n` bytes of `fill` between two texts, through in pieces of 1000. */
static enum chunked_result pass_filled(const char *before, char fill, size_t n, const char *after)
{
	static struct passed p;
	size_t len = strlen(before) + n + strlen(after);
	char *text = malloc(len);

	assert_non_null(text);
	memcpy(text, before, strlen(before));
	memset(text + strlen(before), fill, n);
	memcpy(text + strlen(before) + n, after, strlen(after));
	pass((struct str){text, len}, 1000, 1000, false, &p);
	free(text);
	return p.result;
}

static void test_chunked_bounds(void **state)
{
	/* an extension counts from behind the semicolon to its CR, a trailer section whole */
	assert_int_equal(pass_filled("1;", 'x', LIMIT_CHUNK_EXT_BYTES - 1, "\r\nx\r\n0\r\n\r\n"), CHUNKED_DONE);
	assert_int_equal(pass_filled("1;", 'x', LIMIT_CHUNK_EXT_BYTES, "\r\nx\r\n0\r\n\r\n"), CHUNKED_BAD);
	assert_int_equal(pass_filled("1;", 'x', 1024 * 1024, ""), CHUNKED_BAD);
	assert_int_equal(pass_filled("1;\"", 'x', 1024 * 1024, ""), CHUNKED_BAD);
	assert_int_equal(pass_filled("1", ' ', 1024 * 1024, ""), CHUNKED_BAD);
	assert_int_equal(pass_filled("0\r\nA:", 'x', LIMIT_TRAILER_BYTES - 5, "\r\n\r\n"), CHUNKED_DONE);
	assert_int_equal(pass_filled("0\r\nA:", 'x', LIMIT_TRAILER_BYTES, "\r\n\r\n"), CHUNKED_BAD);
	assert_int_equal(pass_filled("0\r\n", 'x', 1024 * 1024, ""), CHUNKED_BAD);
	/* every chunk has its own allowance */
	assert_int_equal(pass_filled("1;y\r\nx\r\n1;", 'x', LIMIT_CHUNK_EXT_BYTES - 1, "\r\nx\r\n0;z\r\n\r\n"),
			 CHUNKED_DONE);
}

static void test_zero_value_refuses(void **state)
{
	struct chunked c = {0};
	size_t consumed, written;
	char out[8];

	assert_int_equal(chunked_pass(&c, "0\r\n\r\n", 5, out, &consumed, &written), CHUNKED_BAD);
	assert_int_equal(consumed, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_requests),
		cmocka_unit_test(test_responses),
		cmocka_unit_test(test_connection_options),
		cmocka_unit_test(test_chunked_good),
		cmocka_unit_test(test_chunked_bad),
		cmocka_unit_test(test_chunked_large),
		cmocka_unit_test(test_chunked_bounds),
		cmocka_unit_test(test_zero_value_refuses),
	};

	return cmocka_run_group_tests_name("framing", tests, NULL, NULL);
}
