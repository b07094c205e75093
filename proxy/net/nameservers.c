/* nameservers: a strict reader of the little that is needed.
 *
 * The library's own reader would also take search lists, sort lists, timeouts and rotation from resolv.conf and the
 * environment, and fall back to 127.0.0.1 when it finds nothing. Here only nameserver lines count, nothing found is an
 * error at start, and a line that cannot be read is one too, so that a typing error does not silently leave one server.
 * Two exceptions: servers with a zone ("fe80::1%eth0") are skipped, since c-ares 1.18 cannot ask them, and those past
 * NAMESERVERS_MAX, as every reader of that file stops somewhere. In the configuration both are errors.
 *
 * Name servers may be on any address, loopback and private ones too: only origins are judged. */
#include "net/nameservers.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/fd.h"
#include "policy/host.h"

static int fail(const char **ret_why, const char *why)
{
	*ret_why = why;
	return -EINVAL;
}

static struct str take_until(struct str *rest, char end)
{
	const char *at = memchr(rest->p, end, rest->n);
	struct str part = {rest->p, at ? (size_t)(at - rest->p) : rest->n};

	*rest = str_skip(*rest, at ? part.n + 1 : part.n);
	return part;
}

static bool is_unspecified(const struct addr *a)
{
	static const uint8_t zero[16];
	struct addr none4 = addr_from_v4(zero), none6 = addr_from_v6(zero);

	return addr_equal(a, &none4) || addr_equal(a, &none6);
}

/* ADDRESS, ADDRESS:PORT (IPv4 only) or [ADDRESS]:PORT. */
static bool parse_server(struct str s, struct nameserver *ret)
{
	struct nameserver r = {.port = 53};
	struct str host = s, port = {NULL, 0};

	if (s.n > 0 && s.p[0] == '[') {
		struct str rest = str_skip(s, 1);

		host = take_until(&rest, ']');
		/* No closing bracket, or an IPv4 address inside. */
		if (host.n + 1 == s.n || !memchr(host.p, ':', host.n))
			return false;
		if (rest.n > 0 && rest.p[0] != ':')
			return false;
		port = rest.n > 0 ? rest : port;
	} else if (memchr(s.p, '.', s.n) && memchr(s.p, ':', s.n)) {
		const char *colon = memchr(s.p, ':', s.n);

		/* With a dot behind a colon it is an IPv6 address that ends in a dotted quad. */
		if (!memchr(colon, '.', s.n - (size_t)(colon - s.p))) {
			host.n = (size_t)(colon - s.p);
			port = str_skip(s, host.n);
		}
	}
	if (!addr_parse(host, &r.addr) || is_unspecified(&r.addr))
		return false;
	if (port.p && !port_parse(str_skip(port, 1), &r.port))
		return false;
	*ret = r;
	return true;
}

int nameservers_parse(struct str text, struct nameservers *ret, const char **ret_why)
{
	struct nameservers r = {.n = 0};
	bool more = true;

	while (more) {
		more = memchr(text.p, ',', text.n) != NULL;
		if (r.n == NAMESERVERS_MAX)
			return fail(ret_why, "more than 8 name servers");
		if (!parse_server(take_until(&text, ','), &r.items[r.n]))
			return fail(ret_why, "not name servers: ADDRESS, IPV4:PORT or [IPV6]:PORT with commas between");
		r.n++;
	}
	*ret = r;
	return 0;
}

static bool is_blank(char c)
{
	return c == ' ' || c == '\t' || c == '\r';
}

static struct str take_word(struct str *line)
{
	struct str word;

	while (line->n > 0 && is_blank(line->p[0]))
		*line = str_skip(*line, 1);
	word = *line;
	while (line->n > 0 && !is_blank(line->p[0]))
		*line = str_skip(*line, 1);
	word.n -= line->n;
	return word;
}

int nameservers_parse_resolv_conf(struct str text, struct nameservers *ret, const char **ret_why)
{
	struct nameservers r = {.n = 0};

	while (text.n > 0) {
		struct str line = take_until(&text, '\n');
		struct str server;

		if (!str_eq(take_word(&line), STR_LIT("nameserver")))
			continue;
		server = take_word(&line);
		if (memchr(server.p, '%', server.n) || r.n == NAMESERVERS_MAX)
			continue;
		r.items[r.n].port = 53; /* the format knows no ports */
		if (!addr_parse(server, &r.items[r.n].addr) || is_unspecified(&r.items[r.n].addr))
			return fail(ret_why, "a nameserver line of resolv.conf has no usable address");
		r.n++;
	}
	if (r.n == 0)
		return fail(ret_why, "no name server: none configured and no usable nameserver line in resolv.conf");
	*ret = r;
	return 0;
}

int nameservers_read_resolv_conf(const char *path, struct nameservers *ret, const char **ret_why)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
	char *mem = malloc(NAMESERVERS_FILE_MAX + 1);
	size_t len = 0;
	ssize_t got = -1;
	int r;

	if (fd >= 0 && mem) {
		do {
			got = read(fd, mem + len, NAMESERVERS_FILE_MAX + 1 - len);
			len += got > 0 ? (size_t)got : 0;
		} while (got > 0 && len <= NAMESERVERS_FILE_MAX);
	}
	if (!mem)
		r = -ENOMEM;
	else if (fd < 0 || got < 0)
		r = fail(ret_why, "resolv.conf cannot be read");
	else if (len > NAMESERVERS_FILE_MAX)
		r = fail(ret_why, "resolv.conf is too large");
	else
		r = nameservers_parse_resolv_conf((struct str){mem, len}, ret, ret_why);
	free(mem);
	fd_close(fd);
	return r;
}
