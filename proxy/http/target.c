/* Request targets and the Host field.
 *
 * The destination comes from the target alone: the authority-form of a CONNECT, the absolute-form of anything else.
 * An authority is cut once, at fixed places (the end of the authority, the bracket, the last colon), and each piece
 * must then be whole: host_parse() and port_parse() take all of their text or nothing, so that nothing is skipped,
 * decoded or guessed, and there is no second reading under which the same bytes name another host.
 *
 * Host is judged too (RFC 9112 3.2), but only refuses. RFC 9112 3.2.2 has a proxy replace the Host of an
 * absolute-form by the target's; a Host that agrees with the target is replaced so. One that does not agree is how
 * requests are led past checks (or a mistake that would be answered by the wrong site), and is refused instead of
 * corrected in silence. In a CONNECT the two are not compared: many clients send Host without the port, and nothing
 * is forwarded.
 *
 * Everything here is a view into the head; a refusal leaves *ret untouched. */
#include "http/target.h"

#include "http/octet.h"

static const char NOT_A_PROXY_REQUEST[] = "this is a proxy: send CONNECT host:port or an absolute http:// URL";
static const char USERINFO[] = "the target has userinfo (name:password@), which is never passed on";

/* --- authorities --- */

struct authority {
	struct str host;
	struct str port;  /* may be empty even when has_port: "example.com:" */
	bool has_port;
};

/* Cuts host from port; the pieces are not yet checked. The last colon outside of brackets is the cut, so that a second
 * colon stays in the host, where it is refused. */
static struct authority authority_cut(struct str s)
{
	struct authority a = {.host = s};
	const char *close = s.n > 0 && s.p[0] == '[' ? memchr(s.p, ']', s.n) : NULL;
	size_t from = close ? (size_t)(close - s.p) : 0;
	const char *colon = memrchr(s.p + from, ':', s.n - from);

	if (colon) {
		a.has_port = true;
		a.host.n = (size_t)(colon - s.p);
		a.port = str_skip(s, a.host.n + 1);
	}
	return a;
}

/* RFC 9112 3.2: HTTP/1.1 has exactly one Host (1.0 at most one), empty or uri-host [ ":" port ]. */
static enum verdict check_host(const struct head *h, const struct policy_target *to, bool compare, const char **ret_why)
{
	const struct head_field *field;
	struct authority a;
	struct host host;
	uint16_t port = to->port;
	size_t n;

	field = head_find(h, STR_LIT("Host"), &n);
	*ret_why = "an HTTP/1.1 request needs a Host field";
	if (n == 0)
		return h->minor == 0 ? VERDICT_ALLOW : VERDICT_BAD_REQUEST;
	*ret_why = "the request has more than one Host field";
	if (n > 1)
		return VERDICT_BAD_REQUEST;
	if (field->value.n == 0)
		return VERDICT_ALLOW;
	a = authority_cut(field->value);
	*ret_why = "the Host field is malformed";
	if (!host_parse(a.host, &host, NULL) || (a.port.n > 0 && !port_parse(a.port, &port)))
		return VERDICT_BAD_REQUEST;
	*ret_why = "the Host field names another host or port than the target";
	return !compare || (host_equal(&host, &to->host) && port == to->port) ? VERDICT_ALLOW : VERDICT_BAD_TARGET;
}

/* --- forms --- */

/* RFC 9110 9.3.6: host and port, both there; anything else must be refused. */
static enum verdict parse_connect(struct str text, struct target *t, const char **ret_why)
{
	struct authority a = authority_cut(text);

	*ret_why = USERINFO;
	if (memchr(text.p, '@', text.n))
		return VERDICT_BAD_TARGET;
	*ret_why = "CONNECT takes host:port, nothing before or behind it";
	if (memchr(text.p, '/', text.n) || memchr(text.p, '?', text.n) || memchr(text.p, '#', text.n))
		return VERDICT_BAD_TARGET;
	*ret_why = "CONNECT needs a port: host:port";
	if (!a.has_port || a.port.n == 0)
		return VERDICT_BAD_TARGET;
	if (!host_parse(a.host, &t->to.host, ret_why))
		return VERDICT_BAD_TARGET;
	*ret_why = "the port is not a plain decimal number from 1 to 65535";
	if (!port_parse(a.port, &t->to.port))
		return VERDICT_BAD_TARGET;
	t->connect = true;
	return VERDICT_ALLOW;
}

/* The part of `url` behind "http://". Anything that does not begin with a scheme and "://" is no absolute-form:
 * origin-form, "*", "example.com:443", a bare word. */
static enum verdict skip_scheme(struct str url, struct str *ret_rest, const char **ret_why)
{
	size_t n = 0;

	*ret_why = NOT_A_PROXY_REQUEST;
	while (n < url.n && (ascii_is_alpha(url.p[n]) || (n > 0 && (ascii_is_digit(url.p[n]) || url.p[n] == '+' ||
								     url.p[n] == '-' || url.p[n] == '.'))))
		n++;
	if (n == 0 || url.n - n < 3 || memcmp(url.p + n, "://", 3) != 0)
		return VERDICT_BAD_REQUEST;
	*ret_rest = str_skip(url, n + 3);
	url.n = n;
	if (str_ieq(url, STR_LIT("http")))
		return VERDICT_ALLOW;
	*ret_why = "the scheme is not supported here: only http:// URLs are fetched";
	if (str_ieq(url, STR_LIT("https")))
		*ret_why = "https:// is not fetched in plain text: use CONNECT host:443";
	else if (str_ieq(url, STR_LIT("ws")) || str_ieq(url, STR_LIT("wss")))
		*ret_why = "WebSocket URLs are not fetched: use CONNECT, or an http:// URL with Upgrade";
	return VERDICT_SCHEME_NOT_SUPPORTED;
}

static enum verdict parse_absolute(struct str method, struct str url, struct target *t, const char **ret_why)
{
	struct str rest, authority;
	struct authority a;
	enum verdict v;
	size_t n = 0;

	v = skip_scheme(url, &rest, ret_why);
	if (v != VERDICT_ALLOW)
		return v;
	/* RFC 3986 3.2: the authority ends at the first slash, question mark or number sign, or with the text. A
	 * backslash is none of these: some parsers take it for a slash, here it makes the host malformed. */
	while (n < rest.n && rest.p[n] != '/' && rest.p[n] != '?' && rest.p[n] != '#')
		n++;
	authority = (struct str){rest.p, n};
	rest = str_skip(rest, n);
	*ret_why = USERINFO; /* RFC 9110 4.2.4 */
	if (memchr(authority.p, '@', authority.n))
		return VERDICT_BAD_TARGET;
	*ret_why = "the target has a fragment (#)"; /* RFC 9110 7.1 */
	if (rest.n > 0 && memchr(rest.p, '#', rest.n))
		return VERDICT_BAD_TARGET;
	a = authority_cut(authority);
	if (!host_parse(a.host, &t->to.host, ret_why))
		return VERDICT_BAD_TARGET;
	t->to.port = 80; /* also for an empty port, RFC 3986 3.2.3 */
	*ret_why = "the port is not a plain decimal number from 1 to 65535";
	if (a.port.n > 0 && !port_parse(a.port, &t->to.port))
		return VERDICT_BAD_TARGET;
	t->explicit_port = t->to.port != 80;
	t->authority = t->explicit_port ? authority : a.host;
	/* RFC 9112 3.2.1 and 3.2.4: an empty path is "/", or "*" for OPTIONS without a query */
	t->path_query = rest;
	t->slash = rest.n > 0 && rest.p[0] == '?';
	if (rest.n == 0)
		t->path_query = str_eq(method, STR_LIT("OPTIONS")) ? STR_LIT("*") : STR_LIT("/");
	return VERDICT_ALLOW;
}

/* RFC 9110 7.6.2: at zero the last recipient answers by itself. This guard has no answer of its own to an OPTIONS. */
static bool max_forwards_spent(const struct head *h)
{
	const struct head_field *f = head_find(h, STR_LIT("Max-Forwards"), NULL);
	size_t zeros = 0;

	if (!f || f->value.n == 0)
		return false;
	while (zeros < f->value.n && f->value.p[zeros] == '0')
		zeros++;
	return zeros == f->value.n;
}

enum verdict target_parse(const struct head *h, struct target *ret, const char **ret_why)
{
	struct target t = {0};
	enum verdict v;

	/* methods are case-sensitive (RFC 9110 9.1); unknown ones are forwarded */
	*ret_why = "TRACE is not forwarded: it would send the request's fields back";
	if (str_eq(h->method, STR_LIT("TRACE")) || str_eq(h->method, STR_LIT("TRACK")))
		return VERDICT_METHOD_NOT_ALLOWED;
	*ret_why = "Connection has too many options";
	if (!head_options_few(h))
		return VERDICT_BAD_REQUEST;
	if (str_eq(h->method, STR_LIT("CONNECT")))
		v = parse_connect(h->target, &t, ret_why);
	else
		v = parse_absolute(h->method, h->target, &t, ret_why);
	if (v == VERDICT_ALLOW)
		v = check_host(h, &t.to, !t.connect, ret_why);
	if (v != VERDICT_ALLOW)
		return v;
	*ret_why = "the OPTIONS request ends here (Max-Forwards: 0), and this guard answers none itself";
	if (str_eq(h->method, STR_LIT("OPTIONS")) && max_forwards_spent(h))
		return VERDICT_METHOD_NOT_ALLOWED;
	*ret = t;
	*ret_why = NULL;
	return VERDICT_ALLOW;
}
