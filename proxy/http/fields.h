/* Heads as they are forwarded (RFC 9110 7.6): hop-by-hop fields dropped, Host rebuilt, Via added. */
#ifndef HTTP_FIELDS_H
#define HTTP_FIELDS_H

#include "base/buf.h"
#include "http/framing.h"
#include "http/target.h"

#define FIELDS_VIA_NAME "egress-guard"

/* Appends the head for the origin: METHOD path HTTP/1.1, Host from the target, end-to-end fields in their order,
 * framing as `body` says, Via, and Connection (keep-alive is implied; "upgrade" with the Upgrade field when
 * `upgrade`). Dropped: what Connection names (but never Host, Content-Length, Transfer-Encoding), Connection,
 * Proxy-Connection, Keep-Alive, TE, Trailer, Upgrade, Proxy-Authorization, Proxy-Authenticate, Forwarded,
 * X-Forwarded-*, X-Real-IP, Via of the inside, and Expect of an HTTP/1.0 request. Max-Forwards of an OPTIONS is one
 * less. Check out->failed afterwards; it is also set for the target of a CONNECT, which has no such head. */
void fields_write_request(struct buf *out, const struct head *h, const struct target *t, const struct framing *body,
			  bool upgrade);

/* Appends the head for the client, HTTP/1.1, with Connection: close when `close`. With `interim` (1xx) or 101
 * (`upgrade`) the framing is left out; so it is with FRAMING_CLOSE (set it, and chunked.dechunk, for an HTTP/1.0
 * client whose origin sends chunks). With FRAMING_NONE the origin's Content-Length is kept where it speaks of another
 * response (HEAD, 304). An X-Egress-Reason of the origin is dropped too: only the guard says why the guard refused. */
void fields_write_response(struct buf *out, const struct head *h, const struct framing *body, bool close, bool upgrade);

/* True when the head asks for an Upgrade that this guard passes on: HTTP/1.1, Connection: upgrade and one Upgrade
 * field, which does not name h2c (whose later requests could name any host and would not be judged). Also for a 101. */
bool fields_wants_upgrade(const struct head *h);
/* True when the connection may be used again after this message, by its version and Connection field: HTTP/1.1 without
 * "close". An HTTP/1.0 connection is never used again (RFC 9112 9.3). */
bool fields_keeps_alive(const struct head *h);
/* True when this guard's own Via name is in the head: the request has been here before. */
bool fields_has_own_via(const struct head *h);

enum fields_expect { FIELDS_EXPECT_UNKNOWN = 0, FIELDS_EXPECT_NONE, FIELDS_EXPECT_CONTINUE };

/* What a request expects before it sends its body (RFC 9110 10.1.1). UNKNOWN is to be answered 417. The Expect of an
 * HTTP/1.0 request is none. */
enum fields_expect fields_expects_continue(const struct head *h);

#endif
