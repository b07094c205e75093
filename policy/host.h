/* The host of a request or rule: one canonical form for each host there is.
 *
 * A host is an IPv4 or IPv6 literal or a name. Names are stored lower case, without the trailing dot, in at most 253
 * bytes of labels made of letters, digits, '-' (not first or last, RFC 5890 2.3.1) and '_'. What looks like a number to
 * any client (WHATWG: the last label is all digits, or 0x and hex digits) but is no canonical dotted quad is no
 * host. */
#ifndef POLICY_HOST_H
#define POLICY_HOST_H

#include "addr.h"
#include "str.h"

enum { HOST_NAME_MAX_LEN = 253, HOST_TEXT_MAX = 256 };

enum host_kind { HOST_NONE = 0, HOST_NAME, HOST_ADDR };

struct host {
	enum host_kind kind;
	struct addr addr;           /* HOST_ADDR */
	bool bracketed;             /* HOST_ADDR: was written as [IPv6] */
	uint8_t name_len;           /* HOST_NAME */
	char name[HOST_TEXT_MAX];   /* HOST_NAME: canonical, terminated */
};

/* Reads the host part of an authority (RFC 3986 3.2.2, no port): "example.com", "example.com.", "192.0.2.1",
 * "[2001:db8::1]". Userinfo, zones, percent signs, IPvFuture, bracketed names or IPv4, bytes outside ASCII and empty
 * labels are all refused. Returns false with *ret untouched; *ret_why (may be NULL) then says why in a few words. */
bool host_parse(struct str text, struct host *ret, const char **ret_why);

/* Reads a port of 1 to 5 plain decimal digits, 1 to 65535, no sign, no leading zero. */
bool port_parse(struct str text, uint16_t *ret);

/* Writes the canonical text, IPv6 in brackets (as in an authority), terminated; returns its length. Fixed point:
 * host_parse() of the result gives the same host. An IPv4-mapped literal comes out as [::ffff:a.b.c.d] -> a.b.c.d. */
size_t host_format(const struct host *h, char out[HOST_TEXT_MAX]);

/* The same literal, or the same name. */
bool host_equal(const struct host *a, const struct host *b);

static inline struct str host_name(const struct host *h)
{
	return (struct str){h->name, h->name_len};
}

/* Why a name is never looked up (name_special.def: special-use and metadata names, single labels), or NULL. */
const char *host_name_special(struct str canonical_name);

#endif
