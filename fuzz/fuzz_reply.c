/* Replies: whatever a caller hands over, one whole response with nothing of it outside its place. The input is
 * verdict, flags, rule line and Retry-After in four bytes, then subject, detail and request id, each ended by 0x01,
 * then an Accept field. */
#include "heads.h"
#include "http/reply.h"

static struct str next_line(struct str *in)
{
	/* 0x01 ends one: CR, LF and NUL belong to the attack */
	const char *lf = in->n ? memchr(in->p, 0x01, in->n) : NULL;
	struct str line = {in->p, lf ? (size_t)(lf - in->p) : in->n};

	*in = str_skip(*in, lf ? line.n + 1 : line.n);
	return line;
}

static void check_reply(const struct reply *r, const struct buf *out)
{
	struct framing f;
	struct parse p;
	const char *why;

	CHECK(!out->failed);
	parse_in_steps(buf_view(out), true, 0, &p);
	CHECK(p.result == HEAD_DONE);
	check_clean_head(&p.head);
	CHECK(framing_of_response(&p.head, STR_LIT("GET"), &f, &why) == VERDICT_ALLOW && f.kind == FRAMING_LENGTH);
	CHECK(out->len == p.head.len + (r->head_only ? 0 : f.length));
	CHECK(p.head.status >= 400 && p.head.status <= 599);
	CHECK(p.head.reason.n > 0 && p.head.reason.n <= 400 && str_ends(p.head.reason, STR_LIT(")")));
	CHECK(!fields_keeps_alive(&p.head));
	CHECK(p.head.n_fields == 6u + (r->retry_after_s > 0) + (p.head.status == 405));
	CHECK(str_eq(p.head.fields[1].name, STR_LIT("X-Egress-Reason")));
	for (size_t i = 0; i < out->len; i++) {
		unsigned char c = (unsigned char)buf_view(out).p[i];

		CHECK((c >= 0x20 && c < 0x7f) || c == '\n' || (c == '\r' && i < p.head.len));
	}
	if (r->json && !r->head_only) /* one line: nothing unescaped got in */
		CHECK(memchr(p.copy + p.head.len, '\n', f.length) == p.copy + out->len - 1);
	free(p.copy);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct reply r = {0};
	struct buf out = {0};
	struct str in, id;
	char *z;

	if (size < 4)
		return 0;
	r.verdict = (enum verdict)(data[0] % (VERDICT_N + 1));
	r.json = data[1] & 1;
	r.head_only = data[1] & 2;
	r.rule_line = data[2];
	r.retry_after_s = data[3] - 128;
	in = (struct str){(const char *)data + 4, size - 4};
	r.subject = next_line(&in);
	r.detail = next_line(&in);
	id = next_line(&in);
	z = malloc(id.n + 1);
	CHECK(z);
	memcpy(z, id.p, id.n);
	z[id.n] = '\0';
	r.request_id = data[1] & 4 ? NULL : z;
	(void)reply_accepts_json(in);
	reply_write(&out, &r);
	check_reply(&r, &out);
	buf_free(&out);
	free(z);
	return 0;
}
