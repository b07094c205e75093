/* Listening sockets: opening them from an address text, and accepting without starving what is already open. */
#ifndef NET_LISTENER_H
#define NET_LISTENER_H

#include <event2/event.h>
#include <sys/socket.h>

#include "policy/str.h"

struct listener;

struct listen_address {
	struct sockaddr_storage sa;
	socklen_t len;
	int fd;              /* >= 0: handed in (fd:NAME), nothing to open */
};

/* Reads "127.0.0.1:3128", "[::1]:3128" or "unix:PATH". Returns 0, or -EINVAL with *ret_why. */
int listen_address_parse(struct str text, struct listen_address *ret, const char **ret_why);

/* Opens, binds and listens. `shared` sets SO_REUSEPORT (TCP only). A unix socket left behind by a dead process is
 * replaced; one that answers is not (-EADDRINUSE). Returns 0 with *ret_fd, or -errno. */
int listener_open(const struct listen_address *a, bool shared, int *ret_fd);

/* A connection: the descriptor is the callee's. Returns false to stop accepting for LIMIT_ACCEPT_PAUSE_MS. With `fd` < 0
 * it is told of a shortage (-errno, no peer) that makes the listener pause by itself. */
typedef bool accept_fn(void *arg, int fd, const struct sockaddr_storage *peer);

/* Accepts on `fd`, which the listener owns from now on (also on failure). Out of descriptors or memory, it pauses and tries
 * again by a timer; what a client does wrong before it is accepted concerns nobody else. */
int listener_new(struct event_base *base, int fd, accept_fn *fn, void *arg, struct listener **ret);
/* Accepts what the kernel holds already, at once; before listener_free(), so that nobody in the backlog is reset. */
void listener_accept_now(struct listener *l);
/* Closes. Connections that the kernel has not handed out yet are reset. */
struct listener *listener_free(struct listener *l);

#endif
