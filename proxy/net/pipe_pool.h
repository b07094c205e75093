/* Pipes for splice(2), kept by a worker and lent to a pump while bytes are in flight.
 *
 * The kernel bounds pipe pages per user (1024 default pipes without privileges, see pipe(7)), so a tunnel must
 * not own any. When there is none to be had the pump copies. */
#ifndef NET_PIPE_POOL_H
#define NET_PIPE_POOL_H

#include <stdbool.h>
#include <stddef.h>

struct pipe {
	int r, w;
	size_t size;        /* what it holds, bytes */
	struct pipe *next;
};

struct pipe_pool {
	struct pipe *idle;
	size_t n_idle;
	size_t low;         /* the fewest idle ones since the last trim: not needed by anybody meanwhile */
	unsigned retry;     /* turns down this many requests after a failure, so that a shortage costs no system calls */
};

/* An empty pipe, or NULL when none can be had. */
struct pipe *pipe_pool_take(struct pipe_pool *pool);
/* `empty`: nothing is in it; one that is not empty is closed, its bytes with it. Takes NULL. */
void pipe_pool_give(struct pipe_pool *pool, struct pipe *pipe, bool empty);
/* Closes what was not needed since the last call. Returns how many are still idle. */
size_t pipe_pool_trim(struct pipe_pool *pool);
void pipe_pool_clear(struct pipe_pool *pool);

#endif
