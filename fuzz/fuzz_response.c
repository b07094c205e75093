/* Response heads: the cut of the input has no say, and what the client gets reads as the same response. The first byte
 * chooses the request's method. */
#include <errno.h>

#include "heads.h"

static void check_forwarded(const struct head *h, struct str method, const struct framing *f)
{
	bool upgrade = h->status == 101 && fields_wants_upgrade(h);
	uint64_t length;
	struct framing again;
	struct buf out = {0};
	struct parse p;
	const char *why;

	fields_write_response(&out, h, f, f->kind == FRAMING_CLOSE, upgrade);
	if (parse_written(&out, true, &p)) {
		CHECK(p.head.status == h->status && p.head.minor == 1);
		CHECK(str_eq(p.head.reason, h->reason));
		CHECK(count_fields(&p.head, STR_LIT("Content-Length")) +
			      count_fields(&p.head, STR_LIT("Transfer-Encoding")) <= 1);
		CHECK(framing_of_response(&p.head, method, &again, &why) == VERDICT_ALLOW);
		CHECK(again.kind == f->kind && again.length == f->length);
		CHECK(framing_content_length(&p.head, &length) != -EINVAL);
		CHECK(fields_wants_upgrade(&p.head) == upgrade);
		CHECK(fields_keeps_alive(&p.head) == (f->kind != FRAMING_CLOSE));
		CHECK(count_fields(&p.head, STR_LIT("X-Egress-Reason")) == 0);
		CHECK(head_has_token(h, STR_LIT("Connection"), STR_LIT("Set-Cookie")) ||
		      count_fields(&p.head, STR_LIT("Set-Cookie")) == count_fields(h, STR_LIT("Set-Cookie")));
	}
	free(p.copy);
	buf_free(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const char *const methods[] = {"GET", "HEAD", "POST"};
	struct str method;
	struct framing f;
	struct parse p;
	const char *why = NULL;

	if (size < 1 || size > 2 * LIMIT_HEAD_BYTES)
		return 0;
	method = str_from(methods[data[0] % 3]);
	parse_every_way((struct str){(const char *)data + 1, size - 1}, true, &p);
	if (p.result == HEAD_DONE) {
		CHECK(p.head.len <= size - 1 && p.head.len <= LIMIT_HEAD_BYTES);
		CHECK(p.head.status >= 100 && p.head.status <= 999);
		check_clean_head(&p.head);
		if (framing_of_response(&p.head, method, &f, &why) == VERDICT_ALLOW)
			check_forwarded(&p.head, method, &f);
		else
			CHECK(why && *why);
	}
	free(p.copy);
	return 0;
}
