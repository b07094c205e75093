/* failalloc.so - makes the Nth allocation, or the Nth call of some system calls, of a running program fail.
 *
 *     FAULT_PLAN=FILE LD_PRELOAD=failalloc.so PROGRAM
 *
 * FILE is mapped into the program and into the test: it says what is to fail and tells what has been counted, so that one
 * process is tried with one failure after another, with no signal and no restart in between:
 *
 *     armed   0: nothing is counted and nothing fails
 *     calls   which calls, one bit each (enum call)
 *     nth     the first that fails, from 1
 *     many    how many fail from there on
 *     error   errno of the failure (memory always says ENOMEM)
 *     seen    calls counted since the plan was armed
 *     failed  calls made to fail
 *
 * All are uint32 in the machine's order. The test writes `armed` last. All threads count together.
 *
 * Until the constructor has run, and inside it, memory comes from an arena of our own that is never given back: the
 * dynamic linker allocates before there is anybody to ask. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <unistd.h>

enum call { MEMORY, REALLOC, ACCEPT, SOCKET, PIPE, EPOLL_CTL, EPOLL_WAIT, SPLICE, SEND, RECV, WRITE, CONNECT, NETLINK };

struct plan {
	_Atomic uint32_t armed, calls, nth, many, error, seen, failed;
};

static struct plan nothing;
static struct plan *plan = &nothing;

static struct {
	void *(*malloc)(size_t);
	void *(*calloc)(size_t, size_t);
	void *(*realloc)(void *, size_t);
	void (*free)(void *);
	int (*accept4)(int, struct sockaddr *, socklen_t *, int);
	int (*socket)(int, int, int);
	int (*pipe2)(int *, int);
	int (*epoll_ctl)(int, int, int, struct epoll_event *);
	int (*epoll_wait)(int, struct epoll_event *, int, int);
	ssize_t (*splice)(int, off64_t *, int, off64_t *, size_t, unsigned);
	ssize_t (*send)(int, const void *, size_t, int);
	ssize_t (*recv)(int, void *, size_t, int);
	ssize_t (*recvfrom)(int, void *, size_t, int, struct sockaddr *, socklen_t *);
	ssize_t (*recvmsg)(int, struct msghdr *, int);
	ssize_t (*write)(int, const void *, size_t);
	int (*connect)(int, const struct sockaddr *, socklen_t);
	int (*pthread_getattr_np)(pthread_t, pthread_attr_t *);
} real;

static _Alignas(16) char arena[1 << 20];
static size_t arena_used;
static bool ready;
static _Thread_local bool spared;

/* Whether this call is one that fails; errno is set then. */
static bool fails(enum call c)
{
	uint32_t n, first;

	if (spared || !atomic_load(&plan->armed) || !(atomic_load(&plan->calls) & 1u << c))
		return false;
	n = atomic_fetch_add(&plan->seen, 1) + 1;
	first = atomic_load(&plan->nth);
	if (n < first || n - first >= atomic_load(&plan->many))
		return false;
	atomic_fetch_add(&plan->failed, 1);
	errno = c <= REALLOC ? ENOMEM : (int)atomic_load(&plan->error);
	return true;
}

/* --- memory --- */

/* Only before there are threads. */
static void *arena_take(size_t n)
{
	void *p = arena + arena_used;

	n = (n + 15) & ~(size_t)15;
	if (n > sizeof(arena) - arena_used)
		abort();
	arena_used += n;
	return p;
}

static bool in_arena(const void *p)
{
	return (const char *)p >= arena && (const char *)p < arena + sizeof(arena);
}

void *malloc(size_t n)
{
	if (!ready)
		return arena_take(n);
	return fails(MEMORY) ? NULL : real.malloc(n);
}

void *calloc(size_t n, size_t size)
{
	if (!ready)
		return arena_take(n * size); /* never used before, so all zeros */
	return fails(MEMORY) ? NULL : real.calloc(n, size);
}

void *realloc(void *p, size_t n)
{
	void *to;

	if (ready && !in_arena(p))
		return fails(REALLOC) ? NULL : real.realloc(p, n);
	to = ready ? real.malloc(n) : arena_take(n);
	if (to && p) {
		size_t left = (size_t)(arena + sizeof(arena) - (char *)p);

		memcpy(to, p, n < left ? n : left); /* more than it had, never more than there is */
	}
	return to;
}

void *reallocarray(void *p, size_t n, size_t size)
{
	size_t bytes;

	if (__builtin_mul_overflow(n, size, &bytes)) {
		errno = ENOMEM;
		return NULL;
	}
	return realloc(p, bytes);
}

void free(void *p)
{
	if (p && !in_arena(p))
		real.free(p);
}

/* --- system calls --- */

int accept4(int fd, struct sockaddr *a, socklen_t *len, int flags)
{
	return fails(ACCEPT) ? -1 : real.accept4(fd, a, len, flags);
}

int socket(int domain, int type, int protocol)
{
	return fails(SOCKET) ? -1 : real.socket(domain, type, protocol);
}

int pipe2(int fd[2], int flags)
{
	return fails(PIPE) ? -1 : real.pipe2(fd, flags);
}

int epoll_ctl(int ep, int op, int fd, struct epoll_event *ev)
{
	/* EPOLL_CTL_DEL needs no memory and has no way to fail in a correct program. */
	return op != EPOLL_CTL_DEL && fails(EPOLL_CTL) ? -1 : real.epoll_ctl(ep, op, fd, ev);
}

int epoll_wait(int ep, struct epoll_event *ev, int n, int timeout)
{
	return fails(EPOLL_WAIT) ? -1 : real.epoll_wait(ep, ev, n, timeout);
}

ssize_t splice(int in, off64_t *in_at, int out, off64_t *out_at, size_t n, unsigned flags)
{
	return fails(SPLICE) ? -1 : real.splice(in, in_at, out, out_at, n, flags);
}

ssize_t send(int fd, const void *p, size_t n, int flags)
{
	return fails(SEND) ? -1 : real.send(fd, p, n, flags);
}

ssize_t recv(int fd, void *p, size_t n, int flags)
{
	return fails(RECV) ? -1 : real.recv(fd, p, n, flags);
}

ssize_t recvfrom(int fd, void *p, size_t n, int flags, struct sockaddr *a, socklen_t *len)
{
	return fails(RECV) ? -1 : real.recvfrom(fd, p, n, flags, a, len);
}

ssize_t recvmsg(int fd, struct msghdr *m, int flags)
{
	return fails(NETLINK) ? -1 : real.recvmsg(fd, m, flags);
}

ssize_t write(int fd, const void *p, size_t n)
{
	return fails(WRITE) ? -1 : real.write(fd, p, n);
}

int connect(int fd, const struct sockaddr *a, socklen_t len)
{
	return fails(CONNECT) ? -1 : real.connect(fd, a, len);
}

/* Sanitizers call this for each new thread and take no failure. The guard does not call it. */
int pthread_getattr_np(pthread_t t, pthread_attr_t *a)
{
	int r;

	spared = true;
	r = real.pthread_getattr_np(t, a);
	spared = false;
	return r;
}

/* --- the beginning --- */

static void find(const char *name, void *to)
{
	void *f = dlsym(RTLD_NEXT, name);

	if (!f)
		abort();
	memcpy(to, &f, sizeof(f));
}

static void map_plan(void)
{
	const char *path = getenv("FAULT_PLAN");
	int fd = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
	void *p = fd >= 0 ? mmap(NULL, sizeof(*plan), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) : MAP_FAILED;

	if (fd >= 0)
		close(fd);
	if (p == MAP_FAILED)
		abort(); /* a test without faults would pass for the wrong reason */
	plan = p;
}

__attribute__((constructor)) static void start(void)
{
#define FIND(name) find(#name, &real.name)
	FIND(malloc);
	FIND(calloc);
	FIND(realloc);
	FIND(free);
	FIND(accept4);
	FIND(socket);
	FIND(pipe2);
	FIND(epoll_ctl);
	FIND(epoll_wait);
	FIND(splice);
	FIND(send);
	FIND(recv);
	FIND(recvfrom);
	FIND(recvmsg);
	FIND(write);
	FIND(connect);
	FIND(pthread_getattr_np);
#undef FIND
	map_plan();
	ready = true;
}
