/* One DNS reply, as bytes, to the addresses of one family. Pure: bytes in, addresses out. */
#ifndef NET_DNSREPLY_H
#define NET_DNSREPLY_H

#include <stddef.h>
#include <stdint.h>

#include "limits.h"
#include "policy/addr.h"

enum {
	DNSREPLY_CNAMES_MAX = 16,           /* links of one chain; resolvers follow 8 to 16 */
	DNSREPLY_RECORDS_MAX = 64,          /* answer records looked at */
	DNSREPLY_BYTES_MAX = 16 * 1024,     /* longer replies cannot hold an answer that would be accepted */
};

enum dnsreply_kind {
	DNSREPLY_BAD = 0,   /* malformed, no answer to a question, an error of the server, a chain that loops */
	DNSREPLY_NO_MEMORY,
	DNSREPLY_TRUNCATED, /* TC, or cut: to be asked again over TCP */
	DNSREPLY_TOO_MANY,  /* more than LIMIT_ANSWER_ADDRESSES, or more records than are looked at */
	DNSREPLY_NO_NAME,   /* NXDOMAIN */
	DNSREPLY_NO_DATA,   /* the name is there, an address of this family is not */
	DNSREPLY_DATA,
};

struct dnsreply {
	size_t n;
	struct addr addrs[LIMIT_ANSWER_ADDRESSES];
	uint32_t ttl_s; /* the smallest of all records and aliases used */
};

/* family is AF_INET or AF_INET6. *ret is filled for DNSREPLY_DATA only. `tcp`: a reply cut short is bad, not
 * truncated. */
enum dnsreply_kind dnsreply_read(const uint8_t *p, size_t n, int family, bool tcp, struct dnsreply *ret);

#endif
