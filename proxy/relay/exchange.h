/* One absolute-form request and its response, over an origin connection that may serve the next one too. */
#ifndef RELAY_EXCHANGE_H
#define RELAY_EXCHANGE_H

#include "http/framing.h"
#include "http/target.h"
#include "relay/conn.h"

/* Makes the exchange of a judged request: writes the head that will be forwarded. Returns 0, or -ENOMEM. `h` and `t` are not
 * needed afterwards. The body's bytes stay in c->in. */
int exchange_new(struct conn *c, const struct head *h, const struct target *t, const struct framing *body);
/* The origin is attached (`reused`: it was kept from a request before): moves to EXCHANGE. */
void exchange_start(struct conn *c, bool reused);
void exchange_run(struct conn *c);
void exchange_timed_out(struct conn *c);
/* Whether a response head has been sent to the client, so that no reply of the guard can be. */
bool exchange_answered(const struct exchange *x);
struct exchange *exchange_free(struct exchange *x);

#endif
