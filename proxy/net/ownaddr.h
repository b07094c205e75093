/* The addresses of this host, kept current by rtnetlink: interface addresses and every local, broadcast and anycast
 * route (what the kernel delivers here, whatever interface it is on). One per worker, on its thread. */
#ifndef NET_OWNADDR_H
#define NET_OWNADDR_H

#include <event2/event.h>

#include "policy/addrset.h"

struct ownaddr;

/* Reads the present state and follows changes on `base`. Returns 0, or -errno (nothing left behind). */
int ownaddr_new(struct event_base *base, struct ownaddr **ret);
/* The set as of now; valid until the loop runs again. Reads pending netlink messages first, so that an address added
 * before this call is in it. */
const struct addrset *ownaddr_set(struct ownaddr *o);
struct ownaddr *ownaddr_free(struct ownaddr *o);

#endif
