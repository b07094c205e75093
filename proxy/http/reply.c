/* The guard's own replies.
 *
 * What a person sees of a refused CONNECT is in most clients either the status number or the reason phrase, so the
 * phrase carries the whole sentence and the code. The same sentence goes into Proxy-Status (RFC 9209), into the body,
 * and into the log by the caller. Every byte that is not a constant passes printable() on its way into the head, and
 * buf_add_json() on its way into a JSON body: whatever a caller hands over, the reply is one well-formed response.
 *
 * The body is built first, as the head tells its length. A failed allocation sets out->failed; what is in `out` then
 * is not to be sent. */
#include "http/reply.h"

#include <inttypes.h>

#include "http/octet.h"

enum { PHRASE_MAX = 400, DETAIL_MAX = 1000 };

#define REPLY_NAME "egress-guard" /* the deployment, as RFC 9209 2 wants it */
#define METHODS_ALLOWED "CONNECT, DELETE, GET, HEAD, OPTIONS, PATCH, POST, PUT"

struct phrase {
	char text[PHRASE_MAX];
	size_t n;
};

static char printable(char c)
{
	return octet_is_vchar((unsigned char)c) || c == ' ' ? c : '?';
}

/* Appends at most up to `limit` bytes in all. */
static void phrase_add(struct phrase *p, struct str s, size_t limit)
{
	for (size_t i = 0; i < s.n && p->n < limit; i++)
		p->text[p->n++] = printable(s.p[i]);
}

static struct str phrase_view(const struct phrase *p)
{
	return (struct str){p->text, p->n};
}

/* What this reply is about: the verdict's row, or for one that is never sent the row that says something is wrong
 * here. */
static const struct verdict_row *row_of(const struct reply *r)
{
	const struct verdict_row *row = verdict_row(r->verdict);

	return row->status != 0 ? row : verdict_row(VERDICT_UNDECIDED);
}

/* "SUBJECT WHAT", cut so that a phrase of `reserve` more bytes stays whole. */
static void add_sentence(struct phrase *p, const struct reply *r, const struct verdict_row *row, size_t reserve)
{
	const char *what = r->what ? r->what : row->what;

	phrase_add(p, r->subject, PHRASE_MAX - reserve);
	if (r->subject.n > 0)
		phrase_add(p, STR_LIT(" "), PHRASE_MAX - reserve);
	phrase_add(p, str_from(what), PHRASE_MAX - reserve);
}

/* What the guard decided is refused; what went wrong on the way to the origin, or here, failed. */
static struct str opening(const struct verdict_row *row)
{
	static const char REQUEST[] = "http_request_", DESTINATION[] = "destination_ip_prohibited";

	if (strncmp(row->proxy_status, REQUEST, sizeof(REQUEST) - 1) == 0 ||
	    strcmp(row->proxy_status, DESTINATION) == 0)
		return STR_LIT("egress refused: ");
	return STR_LIT("egress failed: ");
}

/* "egress refused: SUBJECT WHAT (CODE)" */
static void make_reason(struct phrase *p, const struct reply *r, const struct verdict_row *row)
{
	struct str code = str_from(row->code);

	p->n = 0;
	phrase_add(p, opening(row), PHRASE_MAX);
	add_sentence(p, r, row, code.n + 3);
	phrase_add(p, STR_LIT(" ("), PHRASE_MAX);
	phrase_add(p, code, PHRASE_MAX);
	phrase_add(p, STR_LIT(")"), PHRASE_MAX);
}

static struct str detail_of(const struct reply *r)
{
	return (struct str){r->detail.p, r->detail.n < DETAIL_MAX ? r->detail.n : DETAIL_MAX};
}

static void write_text(struct buf *body, const struct reply *r, const struct verdict_row *row, struct str reason)
{
	struct str detail = detail_of(r);
	char c;

	buf_add_str(body, reason);
	buf_add_z(body, "\n");
	for (size_t i = 0; i < detail.n; i++) {
		c = printable(detail.p[i]);
		buf_add(body, &c, 1);
	}
	if (detail.n > 0)
		buf_add_z(body, "\n");
	if (r->rule_line > 0)
		buf_printf(body, "rule: line %" PRIu32 " of the policy\n", r->rule_line);
	buf_add_z(body, row->retry ? "retry: yes, the same request may succeed later\n" :
				     "retry: no, the same request will be answered the same way\n");
	buf_add_z(body, "request id: ");
	for (const char *p = r->request_id ? r->request_id : "none"; *p; p++) {
		c = printable(*p);
		buf_add(body, &c, 1);
	}
	buf_add_z(body, "\n");
}

static void write_json(struct buf *body, const struct reply *r, const struct verdict_row *row)
{
	struct phrase message = {.n = 0};
	struct str detail = detail_of(r);

	add_sentence(&message, r, row, 0);
	buf_printf(body, "{\"refused\": \"%s\", \"message\": \"", row->code);
	buf_add_json(body, phrase_view(&message));
	if (detail.n > 0)
		buf_add_z(body, ". ");
	buf_add_json(body, detail);
	if (r->rule_line > 0)
		buf_printf(body, "\", \"rule\": %" PRIu32, r->rule_line);
	else
		buf_add_z(body, "\", \"rule\": null");
	buf_printf(body, ", \"retry\": %s, \"request_id\": ", row->retry ? "true" : "false");
	if (r->request_id) {
		buf_add_z(body, "\"");
		buf_add_json(body, str_from(r->request_id));
		buf_add_z(body, "\"}\n");
	} else {
		buf_add_z(body, "null}\n");
	}
}

/* RFC 9209 2 and RFC 8941 3.3.3: details is a string of printable ASCII with \" and \\ escaped. */
static void write_proxy_status(struct buf *out, const struct reply *r, const struct verdict_row *row)
{
	struct phrase details = {.n = 0};

	add_sentence(&details, r, row, 0);
	buf_add_z(out, "Proxy-Status: " REPLY_NAME);
	if (row->proxy_status[0])
		buf_printf(out, "; error=%s", row->proxy_status);
	buf_add_z(out, "; details=\"");
	for (size_t i = 0; i < details.n; i++) {
		if (details.text[i] == '"' || details.text[i] == '\\')
			buf_add(out, "\\", 1);
		buf_add(out, &details.text[i], 1);
	}
	buf_add_z(out, "\"\r\n");
}

static void write_head(struct buf *out, const struct reply *r, const struct verdict_row *row, struct str reason,
		       size_t body_len)
{
	buf_printf(out, "HTTP/1.1 %d ", row->status);
	buf_add_str(out, reason);
	buf_add_z(out, "\r\n");
	write_proxy_status(out, r, row);
	buf_printf(out, "X-Egress-Reason: %s\r\n", row->code);
	if (r->retry_after_s > 0)
		buf_printf(out, "Retry-After: %d\r\n", r->retry_after_s);
	if (row->status == 405)
		buf_add_z(out, "Allow: " METHODS_ALLOWED "\r\n"); /* RFC 9110 15.5.6 */
	buf_printf(out, "Content-Type: %s\r\n", r->json ? "application/json" : "text/plain; charset=utf-8");
	buf_printf(out, "Content-Length: %zu\r\n", body_len);
	buf_add_z(out, "Cache-Control: no-store\r\nConnection: close\r\n\r\n");
}

void reply_write(struct buf *out, const struct reply *r)
{
	const struct verdict_row *row = row_of(r);
	struct phrase reason;
	struct buf body = {0};

	make_reason(&reason, r, row);
	if (r->json)
		write_json(&body, r, row);
	else
		write_text(&body, r, row, phrase_view(&reason));
	write_head(out, r, row, phrase_view(&reason), body.len);
	if (!r->head_only)
		buf_add_str(out, buf_view(&body));
	if (body.failed)
		out->failed = true;
	buf_free(&body);
}

/* --- Accept (RFC 9110 12.5.1) --- */

/* qvalue of RFC 9110 12.4.2 in thousandths, or -1. */
static int parse_q(struct str s)
{
	int v;

	if (s.n == 0 || s.n > 5 || (s.p[0] != '0' && s.p[0] != '1') || (s.n > 1 && s.p[1] != '.'))
		return -1;
	v = (s.p[0] - '0') * 1000;
	for (size_t i = 2, unit = 100; i < s.n; i++, unit /= 10) {
		if (!ascii_is_digit(s.p[i]))
			return -1;
		v += (s.p[i] - '0') * (int)unit;
	}
	return v <= 1000 ? v : -1;
}

/* How much a media type is wanted, by the most specific range that covers it. */
struct wish {
	int q;
	int specific;  /* 0: by nothing, 1: by "*" "/" "*", 2: by its kind, 3: by name */
	size_t place;  /* of that range in the list */
};

static void wish_take(struct wish *w, int specific, int q, size_t place)
{
	if (specific > w->specific)
		*w = (struct wish){q, specific, place};
}

/* Cuts "type/subtype;a=b;q=0.5" into its range and its q (1000 when there is none; -1 when it is malformed). */
static int cut_member(struct str member, struct str *ret_range)
{
	const char *semi = memchr(member.p, ';', member.n);
	struct str param;
	int q = 1000;

	*ret_range = octets_trim((struct str){member.p, semi ? (size_t)(semi - member.p) : member.n});
	while (semi) {
		member = str_skip(member, (size_t)(semi - member.p) + 1);
		semi = member.n ? memchr(member.p, ';', member.n) : NULL;
		param = octets_trim((struct str){member.p, semi ? (size_t)(semi - member.p) : member.n});
		if (param.n >= 2 && ascii_lower(param.p[0]) == 'q' && param.p[1] == '=')
			q = parse_q(str_skip(param, 2));
	}
	return q;
}

bool reply_accepts_json(struct str field)
{
	struct wish json = {0}, text = {0};
	struct str member, range;
	size_t place = 0;
	int q;

	for (; octets_next_member(&field, &member); place++) {
		if (member.n == 0)
			continue;
		q = cut_member(member, &range);
		if (q < 0)
			continue;
		if (str_eq(range, STR_LIT("*/*"))) {
			wish_take(&json, 1, q, place);
			wish_take(&text, 1, q, place);
		} else if (str_ieq(range, STR_LIT("application/*"))) {
			wish_take(&json, 2, q, place);
		} else if (str_ieq(range, STR_LIT("text/*"))) {
			wish_take(&text, 2, q, place);
		} else if (str_ieq(range, STR_LIT("application/json"))) {
			wish_take(&json, 3, q, place);
		} else if (str_ieq(range, STR_LIT("text/plain"))) {
			wish_take(&text, 3, q, place);
		}
	}
	if (json.q != text.q)
		return json.q > text.q;
	if (json.q == 0 || json.specific != text.specific)
		return json.q > 0 && json.specific > text.specific;
	return json.place < text.place; /* both named alike: the first; "*" "/" "*" alone: text */
}
