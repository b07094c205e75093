/* The guard's own replies: always complete, always saying why, in words that survive every client. */
#ifndef HTTP_REPLY_H
#define HTTP_REPLY_H

#include "base/buf.h"
#include "policy/policy.h"

struct reply {
	enum verdict verdict;
	struct str subject;      /* "host:port" or an address, validated printable ASCII; may be empty */
	const char *what;        /* static text that follows the subject; NULL: the verdict's own */
	struct str detail;       /* one more sentence for the body, validated printable ASCII; may be empty */
	uint32_t rule_line;      /* told to the client when not 0 */
	const char *request_id;
	bool json;               /* Accept asked for it */
	bool head_only;          /* the request was HEAD: no body bytes, Content-Length as if */
	int retry_after_s;       /* > 0: Retry-After */
};

/* Appends the whole reply. "egress refused:" opens what was decided, "egress failed:" what went wrong on the way to
 * the origin or in the guard. A verdict that no reply is made of (allowed, policy_changed) is answered 500 undecided.
 * Bytes of `subject`, `detail` and `request_id` that are no printable ASCII become '?' in the head and in a text
 * body. No Date: the clock is not known here. Status line "HTTP/1.1 403 egress refused: 169.254.169.254 is link-local
 * (address_link_local)", Proxy-Status (RFC 9209), X-Egress-Reason, Content-Type, Content-Length, Connection: close,
 * the body. Reason phrase at most 400 bytes of printable ASCII, whatever came in. Check out->failed afterwards. */
void reply_write(struct buf *out, const struct reply *r);

/* The answer to an accepted CONNECT: exactly the bytes every client takes. */
#define REPLY_CONNECT_OK "HTTP/1.1 200 Connection established\r\n\r\n"

/* True when an Accept field value prefers application/json over text (q values respected). */
bool reply_accepts_json(struct str field);

#endif
