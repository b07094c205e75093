/* Hosts and ports as they stand in a target or a rule: text in, one canonical value out.
 *
 * The canonical form is the point. Whatever two programs could read as one host must be one value here, or be refused:
 * then a rule, a judgement, a lookup and a log line all speak of the same thing. So case and one trailing dot go,
 * mapped IPv6 literals become the IPv4 address they are, and everything that some client, resolver or URL library would
 * rewrite is refused instead of guessed: percent signs, bytes outside ASCII (IDNA has had two answers for one name),
 * zones, blanks, and numbers in any spelling but the dotted quad.
 *
 * Order in host_parse(): brackets mean IPv6 and nothing else; then a dotted quad; then a name. A name whose last label
 * is a number in WHATWG's sense (URL standard, "ends in a number") is no host: browsers and curl would read an address
 * there, inet_aton() as well, and the DNS would be asked by others, where a hostile zone can answer.
 *
 * Pure: no allocation, no state. On refusal the out-parameters are untouched, but for the reason, a fixed text. */
#include <stdio.h>

#include "host.h"

enum { LABEL_MAX = 63 }; /* RFC 1035 2.3.4 */

/* Why a byte has no place in a host outside brackets, or NULL. */
static const char *byte_problem(char c)
{
	if (ascii_is_alpha(c) || ascii_is_digit(c) || c == '-' || c == '_' || c == '.')
		return NULL;
	switch (c) {
	case '@':
		return "userinfo is not allowed";
	case '%':
		return "percent signs are not allowed in a host";
	case ':':
		return "an IPv6 address needs brackets";
	case '[':
	case ']':
		return "a bracket is misplaced";
	}
	if ((unsigned char)c >= 0x80)
		return "bytes outside ASCII are not allowed in a host; write the name as A-labels (xn--)";
	if ((unsigned char)c <= ' ' || c == 0x7f)
		return "blanks and control characters are not allowed in a host";
	return "only letters, digits, '-', '_' and '.' are allowed in a host";
}

static const char *label_problem(struct str label)
{
	if (label.n == 0)
		return "the host has an empty label";
	if (label.n > LABEL_MAX)
		return "a label is longer than 63 bytes";
	if (label.p[0] == '-' || label.p[label.n - 1] == '-')
		return "a label begins or ends with '-'"; /* RFC 5890 2.3.1 */
	return NULL;
}

/* WHATWG URL, "ends in a number": all digits, or 0x and any hex digits, also none. Octal is all digits too. */
static bool looks_numeric(struct str label)
{
	bool hex = label.n >= 2 && label.p[0] == '0' && ascii_lower(label.p[1]) == 'x';

	for (size_t i = hex ? 2 : 0; i < label.n; i++) {
		char c = ascii_lower(label.p[i]);

		if (!ascii_is_digit(c) && !(hex && c >= 'a' && c <= 'f'))
			return false;
	}
	return true;
}

static struct str last_label(struct str name)
{
	size_t at = name.n;

	while (at > 0 && name.p[at - 1] != '.')
		at--;
	return str_skip(name, at);
}

/* Returns NULL and fills `out`, or says why not. */
static const char *parse_name(struct str text, struct host *out)
{
	const char *why;
	size_t from = 0;

	for (size_t i = 0; i < text.n; i++) {
		why = byte_problem(text.p[i]);
		if (why)
			return why;
	}
	if (text.n != 0 && text.p[text.n - 1] == '.')
		text.n--;
	if (text.n > HOST_NAME_MAX_LEN)
		return "the name is longer than 253 bytes";
	for (size_t i = 0; i <= text.n; i++) {
		if (i < text.n && text.p[i] != '.')
			continue;
		why = label_problem((struct str){text.p + from, i - from});
		if (why)
			return why;
		from = i + 1;
	}
	if (looks_numeric(last_label(text)))
		return "the host looks like a number but is no dotted-quad IPv4 address";

	out->kind = HOST_NAME;
	out->name_len = (uint8_t)text.n;
	for (size_t i = 0; i < text.n; i++)
		out->name[i] = ascii_lower(text.p[i]);
	return NULL;
}

/* RFC 3986 3.2.2 IP-literal, less IPvFuture and less the zones of RFC 6874. */
static const char *parse_bracketed(struct str text, struct host *out)
{
	struct str inner;

	if (text.n < 2 || text.p[text.n - 1] != ']')
		return "a bracket is not closed";
	inner = (struct str){text.p + 1, text.n - 2};
	if (memchr(inner.p, '%', inner.n))
		return "zones are not allowed in an address";
	if (!memchr(inner.p, ':', inner.n) || !addr_parse(inner, &out->addr))
		return "the brackets hold no IPv6 address";
	out->kind = HOST_ADDR;
	out->bracketed = true;
	return NULL;
}

bool host_parse(struct str text, struct host *ret, const char **ret_why)
{
	struct host h = {0};
	const char *why;

	if (text.n == 0)
		why = "the host is empty";
	else if (text.p[0] == '[')
		why = parse_bracketed(text, &h);
	else if (!memchr(text.p, ':', text.n) && addr_parse(text, &h.addr)) {
		h.kind = HOST_ADDR;
		why = NULL;
	} else
		why = parse_name(text, &h);

	if (why) {
		if (ret_why)
			*ret_why = why;
		return false;
	}
	*ret = h;
	return true;
}

bool port_parse(struct str text, uint16_t *ret)
{
	uint32_t v = 0;

	if (text.n == 0 || text.n > 5 || text.p[0] == '0')
		return false;
	for (size_t i = 0; i < text.n; i++) {
		if (!ascii_is_digit(text.p[i]))
			return false;
		v = 10 * v + (uint32_t)(text.p[i] - '0');
	}
	if (v > UINT16_MAX)
		return false;
	*ret = (uint16_t)v;
	return true;
}

bool host_equal(const struct host *a, const struct host *b)
{
	if (a->kind != b->kind)
		return false;
	return a->kind == HOST_ADDR ? addr_equal(&a->addr, &b->addr) : str_eq(host_name(a), host_name(b));
}

size_t host_format(const struct host *h, char out[HOST_TEXT_MAX])
{
	char text[ADDR_TEXT_MAX];

	switch (h->kind) {
	case HOST_NAME:
		return (size_t)snprintf(out, HOST_TEXT_MAX, "%.*s", (int)h->name_len, h->name);
	case HOST_ADDR:
		addr_format(&h->addr, text);
		return (size_t)snprintf(out, HOST_TEXT_MAX, addr_is_v4(&h->addr) ? "%s" : "[%s]", text);
	case HOST_NONE:
		break;
	}
	out[0] = '\0';
	return 0;
}

/* --- special names --- */

enum name_kind { EXACT, TREE };

struct name_row {
	struct str name;
	enum name_kind kind;
	const char *why;
};

static const struct name_row name_rows[] = {
#define N(name, kind, why) {{(name), sizeof(name) - 1}, (kind), (why)},
#include "name_special.def"
#undef N
};

static bool name_fits(struct str name, const struct name_row *row)
{
	size_t n = row->name.n;

	if (str_eq(name, row->name))
		return true;
	return row->kind == TREE && name.n > n && str_ends(name, row->name) && name.p[name.n - n - 1] == '.';
}

const char *host_name_special(struct str canonical_name)
{
	for (size_t i = 0; i < sizeof(name_rows) / sizeof(name_rows[0]); i++)
		if (name_fits(canonical_name, &name_rows[i]))
			return name_rows[i].why;
	if (canonical_name.n == 0 || !memchr(canonical_name.p, '.', canonical_name.n))
		return "is a single label";
	return NULL;
}
