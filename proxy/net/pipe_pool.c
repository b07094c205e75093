/* pipe_pool: a short list of idle pipes.
 *
 * A pipe is enlarged once, when made; where the kernel refuses the size (the user's pipe pages are spent) the default is
 * kept, and a pipe below the size of the copy buffer is not worth having. */
#include "net/pipe_pool.h"

#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "limits.h"

enum { RETRY_AFTER = 256 };

static struct pipe *pipe_new(void)
{
	struct pipe *p = calloc(1, sizeof(*p));
	int fd[2], size;

	if (!p)
		return NULL;
	if (pipe2(fd, O_NONBLOCK | O_CLOEXEC) < 0) {
		free(p);
		return NULL;
	}
	size = fcntl(fd[1], F_SETPIPE_SZ, LIMIT_PIPE_BYTES);
	if (size < 0)
		size = fcntl(fd[1], F_GETPIPE_SZ);
	p->r = fd[0];
	p->w = fd[1];
	p->size = size > 0 ? (size_t)size : 0;
	if (p->size >= LIMIT_COPY_BYTES)
		return p;
	close(fd[0]);
	close(fd[1]);
	free(p);
	return NULL;
}

static void pipe_free(struct pipe *p)
{
	close(p->r);
	close(p->w);
	free(p);
}

struct pipe *pipe_pool_take(struct pipe_pool *pool)
{
	struct pipe *p = pool->idle;

	if (p) {
		pool->idle = p->next;
		pool->n_idle--;
		if (pool->n_idle < pool->low)
			pool->low = pool->n_idle;
		return p;
	}
	if (pool->retry) {
		pool->retry--;
		return NULL;
	}
	p = pipe_new();
	if (!p)
		pool->retry = RETRY_AFTER;
	return p;
}

void pipe_pool_give(struct pipe_pool *pool, struct pipe *pipe, bool empty)
{
	if (!pipe)
		return;
	if (!empty || pool->n_idle >= LIMIT_PIPES_IDLE) {
		pipe_free(pipe);
		return;
	}
	pipe->next = pool->idle;
	pool->idle = pipe;
	pool->n_idle++;
}

static void drop_one(struct pipe_pool *pool)
{
	struct pipe *p = pool->idle;

	pool->idle = p->next;
	pool->n_idle--;
	pipe_free(p);
}

size_t pipe_pool_trim(struct pipe_pool *pool)
{
	for (size_t n = pool->low; n > 0; n--)
		drop_one(pool);
	pool->low = pool->n_idle;
	return pool->n_idle;
}

void pipe_pool_clear(struct pipe_pool *pool)
{
	while (pool->idle)
		drop_one(pool);
	pool->low = 0;
}
