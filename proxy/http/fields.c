/* The heads that go on.
 *
 * A head is never patched: it is written again from its parsed pieces, field by field in the order received, repeated
 * fields repeated (RFC 9110 5.3). What frames the message or speaks of one connection is left out and written anew from
 * the guard's own reading. Everything else passes untouched, unknown fields included (5.1).
 *
 * Whatever is written came through the head parser, so it holds no CR, LF or NUL; nothing is escaped here. A failed
 * allocation shows in out->failed, and the caller throws the buffer away. */
#include "http/fields.h"

#include <errno.h>
#include <inttypes.h>

#include "http/octet.h"

enum { BOTH = 0, REQUEST = 1, RESPONSE = 2 };

/* Never forwarded. Framing is in the list as it is written anew. */
static const struct {
	struct str name;
	int side;
} DROPPED[] = {
	{{"Connection", 10}, BOTH},
	{{"Proxy-Connection", 16}, BOTH},
	{{"Keep-Alive", 10}, BOTH},
	{{"TE", 2}, BOTH},
	{{"Trailer", 7}, BOTH},
	{{"Upgrade", 7}, BOTH},
	{{"Content-Length", 14}, BOTH},
	{{"Transfer-Encoding", 17}, BOTH},
	{{"Proxy-Authenticate", 18}, BOTH},
	{{"Proxy-Authentication-Info", 25}, BOTH},
	{{"Proxy-Authorization", 19}, BOTH},
	{{"Host", 4}, REQUEST},
	/* what would tell of the sandbox (RFC 9110 7.6.3, RFC 7239 8) */
	{{"Via", 3}, REQUEST},
	{{"Forwarded", 9}, REQUEST},
	{{"X-Real-IP", 9}, REQUEST},
	{{"X-Egress-Reason", 15}, RESPONSE},
};

static const struct str CONNECTION = {"Connection", 10};
static const struct str UPGRADE = {"Upgrade", 7};
static const struct str FORWARDED_PREFIX = {"X-Forwarded-", 12};

static bool is_dropped(const struct head *h, struct str name, int side)
{
	for (size_t i = 0; i < sizeof(DROPPED) / sizeof(DROPPED[0]); i++)
		if (DROPPED[i].side != (side ^ (REQUEST | RESPONSE)) && str_ieq(DROPPED[i].name, name))
			return true;
	if (side == REQUEST && name.n >= FORWARDED_PREFIX.n &&
	    str_ieq((struct str){name.p, FORWARDED_PREFIX.n}, FORWARDED_PREFIX))
		return true;
	/* RFC 9110 7.6.1. Host and the framing cannot be lost this way: they are written from elsewhere */
	return head_has_token(h, CONNECTION, name);
}

/* A Proxy-Status of proxies behind us is passed on (RFC 9209 2); one that claims to be this guard's own is not. */
static bool is_forged(const struct head_field *f)
{
	struct str name = STR_LIT(FIELDS_VIA_NAME);

	if (!str_ieq(f->name, STR_LIT("Proxy-Status")))
		return false;
	for (size_t i = 0; i + name.n <= f->value.n; i++)
		if (str_ieq((struct str){f->value.p + i, name.n}, name))
			return true;
	return false;
}

static void write_field(struct buf *out, struct str name, struct str value)
{
	buf_add_str(out, name);
	buf_add(out, ": ", 2);
	buf_add_str(out, value);
	buf_add(out, "\r\n", 2);
}

static void write_framing(struct buf *out, const struct framing *body)
{
	switch (body->kind) {
	case FRAMING_LENGTH:
		buf_printf(out, "Content-Length: %" PRIu64 "\r\n", body->length);
		break;
	case FRAMING_CHUNKED:
		buf_add_z(out, "Transfer-Encoding: chunked\r\n");
		break;
	case FRAMING_NONE:
	case FRAMING_CLOSE:
		break;
	}
}

/* RFC 9110 7.6.3: the version is the one received. */
static void write_via(struct buf *out, const struct head *h)
{
	buf_printf(out, "Via: 1.%d " FIELDS_VIA_NAME "\r\n", h->minor);
}

static void write_upgrade(struct buf *out, const struct head *h)
{
	const struct head_field *f = head_find(h, UPGRADE, NULL);

	buf_add_z(out, "Connection: upgrade\r\n");
	if (f)
		write_field(out, UPGRADE, f->value);
}

/* RFC 9110 7.6.2; a value that is no number is left out. Zero is refused before (target_parse()). */
static void write_max_forwards(struct buf *out, struct str value)
{
	uint32_t v = 0;

	if (value.n == 0 || value.n > 9)
		return;
	for (size_t i = 0; i < value.n; i++) {
		if (!ascii_is_digit(value.p[i]))
			return;
		v = v * 10 + (uint32_t)(value.p[i] - '0');
	}
	buf_printf(out, "Max-Forwards: %" PRIu32 "\r\n", v > 0 ? v - 1 : 0);
}

void fields_write_request(struct buf *out, const struct head *h, const struct target *t, const struct framing *body,
			  bool upgrade)
{
	bool options = str_eq(h->method, STR_LIT("OPTIONS"));
	const struct head_field *f;

	if (t->connect || t->authority.n == 0 || t->path_query.n == 0) {
		out->failed = true;
		return;
	}
	buf_add_str(out, h->method);
	buf_add_z(out, t->slash ? " /" : " ");
	buf_add_str(out, t->path_query);
	buf_add_z(out, " HTTP/1.1\r\n");
	write_field(out, STR_LIT("Host"), t->authority); /* first, as RFC 9110 7.2 advises */
	for (f = h->fields; f < h->fields + h->n_fields; f++) {
		if (is_dropped(h, f->name, REQUEST))
			continue;
		if (options && str_ieq(f->name, STR_LIT("Max-Forwards")))
			write_max_forwards(out, f->value);
		else if (h->minor > 0 || !str_ieq(f->name, STR_LIT("Expect")))
			write_field(out, f->name, f->value);
	}
	write_framing(out, body);
	write_via(out, h);
	if (upgrade)
		write_upgrade(out, h);
	buf_add(out, "\r\n", 2);
}

void fields_write_response(struct buf *out, const struct head *h, const struct framing *body, bool close, bool upgrade)
{
	const struct head_field *f;
	struct framing said = {.kind = FRAMING_LENGTH};

	buf_printf(out, "HTTP/1.1 %03d ", h->status);
	buf_add_str(out, h->reason);
	buf_add(out, "\r\n", 2);
	for (f = h->fields; f < h->fields + h->n_fields; f++)
		if (!is_dropped(h, f->name, RESPONSE) && !is_forged(f))
			write_field(out, f->name, f->value);
	/* RFC 9110 8.6: in an answer to HEAD and in a 304 it tells of the answer to a GET; never in a 1xx or 204 */
	if (h->status >= 200 && h->status != 204) {
		if (body->kind != FRAMING_NONE)
			write_framing(out, body);
		else if (framing_content_length(h, &said.length) == 0)
			write_framing(out, &said);
	}
	write_via(out, h);
	if (upgrade)
		write_upgrade(out, h);
	else if (close && h->status >= 200)
		buf_add_z(out, "Connection: close\r\n");
	buf_add(out, "\r\n", 2);
}

/* --- asking --- */

bool fields_wants_upgrade(const struct head *h)
{
	size_t n;
	const struct head_field *f = head_find(h, UPGRADE, &n);

	if (h->minor == 0 || n != 1 || f->value.n == 0) /* RFC 9110 7.8: not in HTTP/1.0 */
		return false;
	return head_has_token(h, CONNECTION, STR_LIT("upgrade")) && !head_has_token(h, UPGRADE, STR_LIT("h2c"));
}

bool fields_keeps_alive(const struct head *h)
{
	return h->minor > 0 && !head_has_token(h, CONNECTION, STR_LIT("close")) &&
	       !head_has_token(h, STR_LIT("Proxy-Connection"), STR_LIT("close"));
}

/* The second word of a Via member, "1.1 NAME (comment)". A comma inside a comment cuts a member in two; the second
 * part's second word is then compared too, which can only make this answer true. */
static struct str via_name(struct str member)
{
	size_t i = 0, n = 0;

	while (i < member.n && !octet_is_blank((unsigned char)member.p[i]))
		i++;
	member = octets_trim(str_skip(member, i));
	while (n < member.n && !octet_is_blank((unsigned char)member.p[n]))
		n++;
	return (struct str){member.p, n};
}

bool fields_has_own_via(const struct head *h)
{
	struct str list, member;

	for (size_t i = 0; i < h->n_fields; i++) {
		if (!str_ieq(h->fields[i].name, STR_LIT("Via")))
			continue;
		for (list = h->fields[i].value; octets_next_member(&list, &member);)
			if (str_ieq(via_name(member), STR_LIT(FIELDS_VIA_NAME)))
				return true;
	}
	return false;
}

enum fields_expect fields_expects_continue(const struct head *h)
{
	size_t n;
	const struct head_field *f = head_find(h, STR_LIT("Expect"), &n);

	if (n == 0 || h->minor == 0)
		return FIELDS_EXPECT_NONE;
	return n == 1 && str_ieq(f->value, STR_LIT("100-continue")) ? FIELDS_EXPECT_CONTINUE : FIELDS_EXPECT_UNKNOWN;
}
