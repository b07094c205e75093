/* A c-ares channel on an event loop: nothing but "ask for this name and type". */
#ifndef NET_DNSCHANNEL_H
#define NET_DNSCHANNEL_H

#include <ares.h>
#include <event2/event.h>

#include "net/nameservers.h"

struct dnschannel;

struct dnschannel_config {
	unsigned timeout_ms; /* of the first try; doubled each time all servers have been tried */
	unsigned tries;      /* per server */
	bool tcp;            /* else UDP, and truncated replies are handed over as they are */
};

int dnschannel_new(struct event_base *base, const struct dnschannel_config *config, const struct nameservers *servers,
		   struct dnschannel **ret);
/* Asks for exactly this name: no search list, no hosts file, no aliases. The callback may come before this returns,
 * and comes in any case, from dnschannel_free() at the latest (ARES_EDESTRUCTION). It may call dnschannel_query() of
 * another channel, never dnschannel_free(). */
void dnschannel_query(struct dnschannel *c, const char *name, int type, ares_callback fn, void *arg);
struct dnschannel *dnschannel_free(struct dnschannel *c);

#endif
