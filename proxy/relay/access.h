/* The access log: one line when a request is decided, one when what was let through ends (ECS names). */
#ifndef RELAY_ACCESS_H
#define RELAY_ACCESS_H

#include "relay/conn.h"

/* c->req.verdict and the facts are set. `detail` is one more sentence, or NULL. */
void access_decided(struct conn *c, const char *detail);
void access_ended(struct conn *c, enum close_why why);

#endif
