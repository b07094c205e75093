/* Which name servers to ask: the text of the configuration, or the nameserver lines of resolv.conf. */
#ifndef NET_NAMESERVERS_H
#define NET_NAMESERVERS_H

#include <stddef.h>
#include <stdint.h>

#include "policy/addr.h"

enum {
	NAMESERVERS_MAX = 8,
	NAMESERVERS_FILE_MAX = 64 * 1024, /* bytes of resolv.conf */
};

struct nameserver {
	struct addr addr;
	uint16_t port;
};

struct nameservers {
	struct nameserver items[NAMESERVERS_MAX];
	size_t n; /* never 0 after success */
};

/* "192.0.2.53:53,[2001:db8::53]:53": a port may be left out (53), then IPv6 may stand without brackets. Returns 0,
 * or -EINVAL with *ret_why (static text). */
int nameservers_parse(struct str text, struct nameservers *ret, const char **ret_why);
/* The nameserver lines of a file's text; all other lines are skipped. Same results. */
int nameservers_parse_resolv_conf(struct str text, struct nameservers *ret, const char **ret_why);
/* Reads the file. -EINVAL also when it cannot be read. */
int nameservers_read_resolv_conf(const char *path, struct nameservers *ret, const char **ret_why);

#endif
