/* A rig for tests of the pump: two socket pairs with the pump between them. Readiness comes from epoll, edge-triggered as in
 * the guard: a bit that the pump cleared wrongly shows as a stall, and a stall fails the test. Include cmocka.h first. */
#ifndef TESTS_PUMP_RIG_H
#define TESTS_PUMP_RIG_H

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "limits.h"
#include "net/pump.h"

enum { KIB = 1024, MIB = 1024 * KIB };
enum kind { UNIX_PAIR, TCP_PAIR };

struct rig {
	int src, dst;              /* the test's ends: writes here, reads there */
	struct pump_end from, to;  /* the pump's ends */
	struct pump p;
	struct pipe_pool pipes;
	struct pump_room room;
	int epoll;
	uint64_t sent, got;        /* of the pattern, by the test */
};

static char copy_buffer[LIMIT_COPY_BYTES];

static inline char pattern(uint64_t i)
{
	return (char)(i * 131 + (i >> 8) * 17 + (i >> 16) * 3 + 7);
}

static inline void tcp_pair(int fd[2])
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t len = sizeof(a);
	int l = socket(AF_INET, SOCK_STREAM, 0);

	assert_true(l >= 0);
	assert_int_equal(bind(l, (struct sockaddr *)&a, sizeof(a)), 0);
	assert_int_equal(listen(l, 1), 0);
	assert_int_equal(getsockname(l, (struct sockaddr *)&a, &len), 0);
	fd[0] = socket(AF_INET, SOCK_STREAM, 0);
	assert_int_equal(connect(fd[0], (struct sockaddr *)&a, sizeof(a)), 0);
	fd[1] = accept(l, NULL, NULL);
	assert_true(fd[1] >= 0);
	close(l);
}

static inline void pair(enum kind kind, int fd[2])
{
	if (kind == TCP_PAIR)
		tcp_pair(fd);
	else
		assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, fd), 0);
	for (int i = 0; i < 2; i++)
		fcntl(fd[i], F_SETFL, O_NONBLOCK);
}

static inline void watch(struct rig *r, struct pump_end *end)
{
	struct epoll_event ev = {.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET, .data.ptr = end};

	assert_int_equal(epoll_ctl(r->epoll, EPOLL_CTL_ADD, end->fd, &ev), 0);
}

static inline void rig_up(struct rig *r, enum kind kind)
{
	int in[2], out[2];

	*r = (struct rig){.room = {.copy = copy_buffer}};
	r->room.pipes = &r->pipes;
	pair(kind, in);
	pair(kind, out);
	r->src = in[0];
	r->from.fd = in[1];
	r->to.fd = out[0];
	r->dst = out[1];
	r->to.writable = true;
	r->epoll = epoll_create1(0);
	assert_true(r->epoll >= 0);
	watch(r, &r->from);
	watch(r, &r->to);
}

static inline void rig_down(struct rig *r)
{
	pump_clear(&r->p, &r->room);
	assert_null(r->p.pipe);
	assert_null(r->p.held.mem);
	pipe_pool_clear(&r->pipes);
	close(r->src);
	close(r->dst);
	close(r->from.fd);
	close(r->to.fd);
	close(r->epoll);
}

/* What must be true between any two calls. */
static inline void check_state(const struct rig *r, uint64_t held_before)
{
	const struct pump *p = &r->p;

	assert_true(p->in + held_before == p->out + p->held.len + p->in_pipe);
	assert_true(p->in_pipe == 0 || p->pipe);
	assert_true(p->pipe == NULL || p->in_pipe > 0); /* a pipe only while bytes are in it */
	assert_true(p->held.mem == NULL || p->held.len > 0);
	assert_true(p->held.len == 0 || p->in_pipe == 0);
	assert_true(p->held.len <= LIMIT_COPY_BYTES);
	assert_true(p->in_pipe <= LIMIT_PIPE_BYTES);
	assert_true(p->spliced <= p->out);
}

static inline enum pump_status run(struct rig *r, uint64_t *limit)
{
	uint64_t before = r->p.in, held = r->p.out + r->p.held.len + r->p.in_pipe - r->p.in;
	enum pump_status st = pump_run(&r->p, &r->from, &r->to, limit, &r->room);

	if (st != PUMP_WRITE_ERROR) /* then what was in flight is lost, and only `in` has counted it */
		check_state(r, held);
	assert_true(r->p.in - before <= LIMIT_TURN_BYTES + LIMIT_PIPE_BYTES);
	return st;
}

/* Takes the readiness that has come meanwhile, waiting for it at most `ms`. Returns whether any came. */
static inline bool take_events(struct rig *r, int ms)
{
	struct epoll_event ev[4];
	int n = epoll_wait(r->epoll, ev, 4, ms);

	for (int i = 0; i < n; i++) {
		struct pump_end *end = ev[i].data.ptr;

		if (ev[i].events & (EPOLLIN | EPOLLERR | EPOLLHUP))
			end->readable = true;
		if (ev[i].events & (EPOLLOUT | EPOLLERR | EPOLLHUP))
			end->writable = true;
		if (ev[i].events & EPOLLRDHUP)
			end->readable = end->hup = true;
	}
	return n > 0;
}

/* Writes pattern bytes until `end` or until the socket is full. */
static inline bool feed(struct rig *r, uint64_t end)
{
	static char mem[256 * KIB];
	bool any = false;

	while (r->sent < end) {
		size_t n = end - r->sent < sizeof(mem) ? (size_t)(end - r->sent) : sizeof(mem);
		ssize_t done;

		for (size_t i = 0; i < n; i++)
			mem[i] = pattern(r->sent + i);
		done = send(r->src, mem, n, MSG_NOSIGNAL);
		if (done <= 0)
			return any;
		r->sent += (uint64_t)done;
		any = true;
	}
	return any;
}

/* Reads at most `max` bytes and compares each. */
static inline bool drain(struct rig *r, size_t max)
{
	static char mem[256 * KIB];
	bool any = false;

	while (max) {
		ssize_t n = recv(r->dst, mem, max < sizeof(mem) ? max : sizeof(mem), 0);

		if (n <= 0)
			return any;
		for (ssize_t i = 0; i < n; i++)
			if (mem[i] != pattern(r->got + (uint64_t)i))
				fail_msg("byte %llu is wrong", (unsigned long long)(r->got + (uint64_t)i));
		r->got += (uint64_t)n;
		max -= (size_t)n;
		any = true;
	}
	return any;
}

/* Moves `total` bytes and the end of them through the rig; the reader takes `step` bytes at a time. */
static inline void move(struct rig *r, uint64_t total, size_t step)
{
	uint64_t no_limit = UINT64_MAX;
	bool ended = false;

	for (;;) {
		bool moved = feed(r, total);
		enum pump_status st;

		if (r->sent == total && !ended) {
			shutdown(r->src, SHUT_WR);
			ended = true;
		}
		take_events(r, 0);
		st = run(r, &no_limit);
		moved |= drain(r, step);
		if (st == PUMP_EOF)
			break;
		assert_true(st == PUMP_WANT_READ || st == PUMP_WANT_WRITE || st == PUMP_YIELD);
		if (!moved && st != PUMP_YIELD && !take_events(r, 5000))
			fail_msg("stalled after %llu of %llu bytes", (unsigned long long)r->got, (unsigned long long)total);
	}
	assert_true(r->p.in == total && r->p.out == total);
	assert_true(no_limit == UINT64_MAX);
	while (r->got < total)
		drain(r, SIZE_MAX);
	assert_true(r->got == total);
}

static inline size_t open_fds(void)
{
	DIR *d = opendir("/proc/self/fd");
	size_t n = 0;

	while (readdir(d))
		n++;
	closedir(d);
	return n;
}

static inline int no_sigpipe(void **state)
{
	signal(SIGPIPE, SIG_IGN); /* as in serve: splice(2) has no MSG_NOSIGNAL */
	return 0;
}

#endif
