/* Heads as they are forwarded (RFC 9110 7.6): hop-by-hop fields dropped, Host rebuilt, Via added. */
#ifndef HTTP_FIELDS_H
#define HTTP_FIELDS_H

#include "base/buf.h"
#include "http/framing.h"
#include "http/target.h"

#define FIELDS_VIA_NAME "egress-guard"

/* Appends the head for the origin: METHOD path HTTP/1.1, Host from the target, end-to-end fields in their order,
 * framing as `body` says, Via, and Connection (keep-alive is implied; "upgrade" with the Upgrade field when `upgrade`).
 * Dropped: what Connection names (but never Host, Content-Length, Transfer-Encoding), Connection, Proxy-Connection, Keep-Alive, TE,
 * Trailer, Upgrade, Proxy-Authorization, Proxy-Authenticate, Forwarded, X-Forwarded-*, X-Real-IP, Via of the inside.
 * Check out->failed afterwards. */
void fields_write_request(struct buf *out, const struct head *h, const struct target *t, const struct framing *body,
			  bool upgrade);

/* Appends the head for the client, HTTP/1.1, with Connection: close when `close`. With `interim` (1xx) or 101 (`upgrade`)
 * the framing is left out. */
void fields_write_response(struct buf *out, const struct head *h, const struct framing *body, bool close, bool upgrade);

/* True when the head asks for an Upgrade that this guard passes on (a Connection: upgrade and one Upgrade field). */
bool fields_wants_upgrade(const struct head *h);
/* True when the connection may be used again after this message, by its version and Connection field. */
bool fields_keeps_alive(const struct head *h);
/* True when this guard's own Via name is in the head: the request has been here before. */
bool fields_has_own_via(const struct head *h);

#endif
