/* Request heads: the cut of the input has no say, and what is forwarded reads as the same request. */
#include "heads.h"

/* Fields that a forwarded head may lack, or that are written anew. */
static bool may_differ(const struct head *h, struct str name)
{
	static const char *const names[] = {
		"Connection", "Proxy-Connection", "Keep-Alive", "TE", "Trailer", "Upgrade", "Content-Length",
		"Transfer-Encoding", "Proxy-Authenticate", "Proxy-Authentication-Info", "Proxy-Authorization", "Host",
		"Via", "Forwarded", "X-Real-IP", "Expect", "Max-Forwards",
	};

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (str_ieq(name, str_from(names[i])))
			return true;
	return (name.n >= 12 && str_ieq((struct str){name.p, 12}, STR_LIT("X-Forwarded-"))) ||
	       head_has_token(h, STR_LIT("Connection"), name);
}

/* Every end-to-end field of `in` is in `out`, in order, and nothing else is. */
static void check_same_fields(const struct head *in, const struct head *out)
{
	size_t o = 0;

	for (size_t i = 0; i < in->n_fields; i++) {
		if (may_differ(in, in->fields[i].name))
			continue;
		while (o < out->n_fields && may_differ(in, out->fields[o].name))
			o++;
		CHECK(o < out->n_fields);
		CHECK(str_eq(in->fields[i].name, out->fields[o].name));
		CHECK(str_eq(in->fields[i].value, out->fields[o].value));
		o++;
	}
	while (o < out->n_fields && may_differ(in, out->fields[o].name))
		o++;
	CHECK(o == out->n_fields);
}

static void check_forwarded(const struct head *h, const struct target *t, const struct framing *f)
{
	bool upgrade = fields_wants_upgrade(h);
	struct framing again;
	struct buf out = {0};
	struct parse p;
	const char *why;

	fields_write_request(&out, h, t, f, upgrade);
	if (parse_written(&out, false, &p)) {
		CHECK(str_eq(p.head.method, h->method));
		CHECK(p.head.minor == 1);
		CHECK(p.head.target.n == t->path_query.n + (t->slash ? 1 : 0));
		CHECK(p.head.target.p[0] == '/' || str_eq(p.head.target, STR_LIT("*")));
		CHECK(str_ends(p.head.target, t->path_query));
		CHECK(count_fields(&p.head, STR_LIT("Host")) == 1);
		CHECK(str_eq(p.head.fields[0].value, t->authority));
		CHECK(count_fields(&p.head, STR_LIT("Connection")) == (upgrade ? 1 : 0));
		CHECK(count_fields(&p.head, STR_LIT("Via")) == 1);
		CHECK(fields_has_own_via(&p.head));
		CHECK(framing_of_request(&p.head, &again, &why) == VERDICT_ALLOW);
		CHECK(again.kind == f->kind && again.length == f->length);
		CHECK(fields_wants_upgrade(&p.head) == upgrade);
		check_same_fields(h, &p.head);
	}
	free(p.copy);
	buf_free(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct parse p;
	struct target t;
	struct framing f;
	const char *why = NULL;

	if (size > 2 * LIMIT_HEAD_BYTES)
		return 0;
	parse_every_way((struct str){(const char *)data, size}, false, &p);
	if (p.result == HEAD_DONE) {
		CHECK(p.head.len <= size && p.head.len <= LIMIT_HEAD_BYTES);
		check_clean_head(&p.head);
		(void)fields_expects_continue(&p.head);
		(void)fields_keeps_alive(&p.head);
		(void)fields_has_own_via(&p.head);
		if (target_parse(&p.head, &t, &why) == VERDICT_ALLOW &&
		    framing_of_request(&p.head, &f, &why) == VERDICT_ALLOW) {
			if (!t.connect)
				check_forwarded(&p.head, &t, &f);
		} else {
			CHECK(why && *why);
		}
	}
	free(p.copy);
	return 0;
}
