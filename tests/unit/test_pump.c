/* The pump over real sockets: exact counts and bytes, by copy and by splice; limits, ends, errors, back-pressure.
 *
 * A rig is two socket pairs with the pump between them. Readiness comes from epoll, edge-triggered as in the guard: a bit
 * that the pump cleared wrongly shows as a stall, and a stall fails the test. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <errno.h>
#include <dirent.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>
#include <cmocka.h>

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

static char pattern(uint64_t i)
{
	return (char)(i * 131 + (i >> 8) * 17 + (i >> 16) * 3 + 7);
}

static void tcp_pair(int fd[2])
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

static void pair(enum kind kind, int fd[2])
{
	if (kind == TCP_PAIR)
		tcp_pair(fd);
	else
		assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, fd), 0);
	for (int i = 0; i < 2; i++)
		fcntl(fd[i], F_SETFL, O_NONBLOCK);
}

static void watch(struct rig *r, struct pump_end *end)
{
	struct epoll_event ev = {.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET, .data.ptr = end};

	assert_int_equal(epoll_ctl(r->epoll, EPOLL_CTL_ADD, end->fd, &ev), 0);
}

static void rig_up(struct rig *r, enum kind kind)
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

static void rig_down(struct rig *r)
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
static void check_state(const struct rig *r, uint64_t held_before)
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

static enum pump_status run(struct rig *r, uint64_t *limit)
{
	uint64_t before = r->p.in, held = r->p.out + r->p.held.len + r->p.in_pipe - r->p.in;
	enum pump_status st = pump_run(&r->p, &r->from, &r->to, limit, &r->room);

	if (st != PUMP_WRITE_ERROR) /* then what was in flight is lost, and only `in` has counted it */
		check_state(r, held);
	assert_true(r->p.in - before <= LIMIT_TURN_BYTES + LIMIT_PIPE_BYTES);
	return st;
}

/* Takes the readiness that has come meanwhile, waiting for it at most `ms`. Returns whether any came. */
static bool take_events(struct rig *r, int ms)
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
static bool feed(struct rig *r, uint64_t end)
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
static bool drain(struct rig *r, size_t max)
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
static void move(struct rig *r, uint64_t total, size_t step)
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

static size_t open_fds(void)
{
	DIR *d = opendir("/proc/self/fd");
	size_t n = 0;

	while (readdir(d))
		n++;
	closedir(d);
	return n;
}

/* --- bytes and counts --- */

static void test_small_flows_are_copied(void **state)
{
	static const uint64_t sizes[] = {0, 1, 1000, LIMIT_COPY_BYTES - 1, LIMIT_COPY_BYTES};

	for (int kind = UNIX_PAIR; kind <= TCP_PAIR; kind++)
		for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
			struct rig r;

			rig_up(&r, (enum kind)kind);
			move(&r, sizes[i], SIZE_MAX);
			assert_true(r.p.spliced == 0);
			assert_int_equal(r.pipes.n_idle, 0);
			rig_down(&r);
		}
}

/* The same bytes and the same counts, whether copied or spliced, fast and slow readers. */
static void test_large_flows(void **state)
{
	static const size_t steps[] = {SIZE_MAX, 300 * KIB, 9973};

	for (int kind = UNIX_PAIR; kind <= TCP_PAIR; kind++)
		for (size_t i = 0; i < sizeof(steps) / sizeof(steps[0]); i++)
			for (int shortage = 0; shortage <= 1; shortage++) {
				struct rig r;

				rig_up(&r, (enum kind)kind);
				r.pipes.retry = shortage ? UINT32_MAX : 0;
				move(&r, 6 * MIB + 12345, steps[i]);
				if (shortage)
					assert_true(r.p.spliced == 0);
				else
					assert_true(r.p.spliced > MIB);
				rig_down(&r);
			}
}

/* No descriptors left for a pipe: the bytes go by copy, and by splice again later. */
static void test_no_descriptors_for_pipes(void **state)
{
	struct rlimit old, low;
	struct rig r;

	rig_up(&r, UNIX_PAIR);
	getrlimit(RLIMIT_NOFILE, &old);
	low = (struct rlimit){.rlim_cur = 3, .rlim_max = old.rlim_max};
	setrlimit(RLIMIT_NOFILE, &low);
	move(&r, 4 * MIB, SIZE_MAX);
	setrlimit(RLIMIT_NOFILE, &old);
	assert_true(r.p.spliced == 0);
	assert_true(r.p.splicing);
	assert_true(r.pipes.retry > 0); /* not one system call for each try */
	rig_down(&r);
}

static void test_held_goes_first(void **state)
{
	for (int big = 0; big <= 1; big++) {
		uint64_t held = big ? 50 * KIB : 5, no_limit = UINT64_MAX;
		struct rig r;

		rig_up(&r, TCP_PAIR);
		for (uint64_t i = 0; i < held; i++) {
			char c = pattern(i);

			buf_add(&r.p.held, &c, 1);
		}
		r.sent = held;
		feed(&r, held + 3000);
		shutdown(r.src, SHUT_WR);
		while (r.p.in < 3000 || r.p.held.len) {
			assert_true(take_events(&r, 5000) || r.to.writable);
			run(&r, &no_limit);
			drain(&r, SIZE_MAX);
		}
		while (r.got < held + 3000)
			drain(&r, SIZE_MAX);
		assert_true(r.p.in == 3000);           /* what was held was not read here */
		assert_true(r.p.out == held + 3000);
		rig_down(&r);
	}
}

/* --- the limit --- */

static void check_limit(enum kind kind, bool splice, uint64_t limit)
{
	uint64_t left = limit, end = limit + 100000;
	enum pump_status st;
	struct rig r;
	char byte;

	rig_up(&r, kind);
	r.p.splicing = splice;
	do {
		bool moved = feed(&r, end);

		moved |= take_events(&r, 0);
		st = run(&r, &left);
		moved |= drain(&r, SIZE_MAX);
		assert_true(st == PUMP_LIMIT || st == PUMP_WANT_READ || st == PUMP_WANT_WRITE || st == PUMP_YIELD);
		if (st != PUMP_LIMIT && st != PUMP_YIELD && !moved && !take_events(&r, 5000))
			fail_msg("stalled below the limit of %llu", (unsigned long long)limit);
	} while (st != PUMP_LIMIT);
	assert_true(left == 0);
	assert_true(r.p.in == limit && r.p.out == limit);
	if (splice && limit)
		assert_true(r.p.spliced > 0);
	while (r.got < limit)
		drain(&r, SIZE_MAX);
	/* It stays shut, also when asked again, and the next byte is still in the source. */
	take_events(&r, 0);
	assert_int_equal(run(&r, &left), PUMP_LIMIT);
	assert_true(r.p.in == limit);
	assert_int_equal(recv(r.dst, &byte, 1, 0), -1);
	assert_int_equal(recv(r.from.fd, &byte, 1, 0), 1);
	assert_int_equal(byte, pattern(limit));
	rig_down(&r);
}

static void test_limit_to_the_byte(void **state)
{
	static const uint64_t limits[] = {0, 1, 4095, LIMIT_COPY_BYTES - 1, LIMIT_COPY_BYTES, LIMIT_COPY_BYTES + 1,
					  2 * LIMIT_COPY_BYTES, LIMIT_PIPE_BYTES - 1, LIMIT_PIPE_BYTES, LIMIT_PIPE_BYTES + 1,
					  LIMIT_TURN_BYTES + 1, 3 * MIB - 1};

	for (int kind = UNIX_PAIR; kind <= TCP_PAIR; kind++)
		for (int splice = 0; splice <= 1; splice++)
			for (size_t i = 0; i < sizeof(limits) / sizeof(limits[0]); i++)
				check_limit((enum kind)kind, splice, limits[i]);
}

/* The last byte under the limit is also the last byte there is: the limit is told first, the end when asked again. */
static void test_limit_at_the_end(void **state)
{
	uint64_t left = 1000;
	struct rig r;

	rig_up(&r, TCP_PAIR);
	feed(&r, 1000);
	shutdown(r.src, SHUT_WR);
	while (run(&r, &left) != PUMP_LIMIT)
		assert_true(take_events(&r, 5000));
	left = 5;
	while (run(&r, &left) != PUMP_EOF)
		assert_true(take_events(&r, 5000));
	assert_true(left == 5 && r.p.out == 1000);
	rig_down(&r);
}

/* --- back-pressure --- */

/* A sink that takes nothing: reading stops with at most one buffer or one pipe in flight, and goes on later. */
static void check_full_sink(enum kind kind, bool splice)
{
	uint64_t no_limit = UINT64_MAX, in;
	enum pump_status st = PUMP_WANT_READ;
	struct rig r;

	rig_up(&r, kind);
	r.p.splicing = splice;
	for (;;) { /* nobody reads: until neither the source nor the sink takes more */
		bool moved = feed(&r, 64 * MIB);

		moved |= take_events(&r, 0);
		st = run(&r, &no_limit);
		if (st == PUMP_WANT_WRITE && !moved && !take_events(&r, 50))
			break;
	}
	assert_false(r.to.writable);
	in = r.p.in;
	/* More comes in: still not read. */
	r.from.readable = true;
	assert_int_equal(run(&r, &no_limit), PUMP_WANT_WRITE);
	assert_true(r.p.in == in);
	assert_true(r.p.in - r.p.out == r.p.held.len + r.p.in_pipe);
	if (splice) {
		assert_true(r.p.spliced > 0);
		/* Lent while in use, or given back and nothing in flight. */
		assert_int_equal(r.pipes.n_idle, r.p.pipe ? 0 : 1);
	}
	assert_int_equal(pump_flush(&r.p, &r.to, &r.room), r.p.held.len + r.p.in_pipe ? PUMP_WANT_WRITE : PUMP_WANT_READ);
	move(&r, r.sent, 50000);
	if (splice)
		assert_int_equal(r.pipes.n_idle, 1);
	rig_down(&r);
}

static void test_full_sink(void **state)
{
	for (int kind = UNIX_PAIR; kind <= TCP_PAIR; kind++)
		for (int splice = 0; splice <= 1; splice++)
			check_full_sink((enum kind)kind, splice);
}

static void test_never_reads_without_room(void **state)
{
	uint64_t no_limit = UINT64_MAX;
	int left = 0;
	struct rig r;

	rig_up(&r, UNIX_PAIR);
	feed(&r, 100);
	r.from.readable = true;
	r.to.writable = false;
	assert_int_equal(run(&r, &no_limit), PUMP_WANT_WRITE);
	assert_int_equal(ioctl(r.from.fd, FIONREAD, &left), 0);
	assert_int_equal(left, 100);
	assert_true(r.p.in == 0);
	/* Nor does it write or read where nothing is said to be. */
	r.from.readable = false;
	r.to.writable = true;
	assert_int_equal(run(&r, &no_limit), PUMP_WANT_READ);
	assert_true(r.p.in == 0);
	rig_down(&r);
}

static void test_flush_never_reads(void **state)
{
	struct rig r;

	rig_up(&r, UNIX_PAIR);
	feed(&r, 100);
	r.from.readable = true;
	buf_add_z(&r.p.held, "x");
	assert_int_equal(pump_flush(&r.p, &r.to, &r.room), PUMP_WANT_READ);
	assert_true(r.p.in == 0 && r.p.out == 1);
	assert_true(r.from.readable);
	rig_down(&r);
}

/* A source that never runs dry (a file) and a sink that takes all: others get their turn after LIMIT_TURN_BYTES. */
static void test_yield(void **state)
{
	uint64_t no_limit = UINT64_MAX;
	struct pipe_pool pipes = {0};
	struct pump_room room = {&pipes, copy_buffer};
	struct pump p = {.splicing = true};
	struct pump_end from = {.fd = memfd_create("source", 0), .readable = true},
			to = {.fd = open("/dev/null", O_WRONLY), .writable = true};

	assert_int_equal(ftruncate(from.fd, 3 * LIMIT_TURN_BYTES), 0);
	for (uint64_t turn = 1; turn <= 3; turn++) {
		assert_int_equal(pump_run(&p, &from, &to, &no_limit, &room), PUMP_YIELD);
		assert_true(p.in == turn * LIMIT_TURN_BYTES && p.out == p.in && p.spliced == p.in);
		assert_true(from.readable && to.writable);
		assert_null(p.pipe);
	}
	assert_int_equal(pump_run(&p, &from, &to, &no_limit, &room), PUMP_EOF);
	pump_clear(&p, &room);
	pipe_pool_clear(&pipes);
	close(from.fd);
	close(to.fd);
}

/* --- switching --- */

/* One write of n bytes, one event, one run: as small packets of a chatty protocol come. */
static void one_packet(struct rig *r, size_t n)
{
	uint64_t no_limit = UINT64_MAX, want = r->p.in + n;

	feed(r, r->sent + n);
	while (r->p.in < want) {
		take_events(r, 1000);
		run(r, &no_limit);
		drain(r, SIZE_MAX);
	}
	drain(r, SIZE_MAX);
	assert_true(r->p.in == want && r->p.out == want);
}

static void test_switches_on_after_two_full_reads(void **state)
{
	struct rig r;

	rig_up(&r, UNIX_PAIR);
	one_packet(&r, LIMIT_COPY_BYTES);
	assert_false(r.p.splicing);
	one_packet(&r, LIMIT_COPY_BYTES - 1); /* not full: the count begins anew */
	one_packet(&r, LIMIT_COPY_BYTES);
	assert_false(r.p.splicing);
	assert_true(r.p.spliced == 0);
	one_packet(&r, LIMIT_COPY_BYTES);
	assert_true(r.p.splicing);
	one_packet(&r, 100 * KIB);
	assert_true(r.p.spliced == 100 * KIB);
	rig_down(&r);
}

static void test_switches_off_when_small(void **state)
{
	for (int kind = UNIX_PAIR; kind <= TCP_PAIR; kind++) {
		struct rig r;

		rig_up(&r, (enum kind)kind);
		r.p.splicing = true;
		for (int i = 0; i < 3; i++)
			one_packet(&r, 1000);
		assert_true(r.p.splicing);
		one_packet(&r, 40 * KIB); /* a large one: the count begins anew */
		for (int i = 0; i < 3; i++)
			one_packet(&r, 1000);
		assert_true(r.p.splicing);
		one_packet(&r, 1000);
		assert_false(r.p.splicing);
		assert_true(r.p.spliced == 40 * KIB + 7000);
		one_packet(&r, 1000);
		assert_true(r.p.spliced == 40 * KIB + 7000);
		rig_down(&r);
	}
}

/* --- errors --- */

static void test_read_error(void **state)
{
	for (int splice = 0; splice <= 1; splice++) {
		struct linger now = {.l_onoff = 1};
		uint64_t no_limit = UINT64_MAX;
		enum pump_status st;
		struct rig r;

		rig_up(&r, TCP_PAIR);
		r.p.splicing = splice;
		setsockopt(r.src, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
		close(r.src);
		r.src = -1;
		do {
			assert_true(take_events(&r, 5000));
			st = run(&r, &no_limit);
		} while (st == PUMP_WANT_READ);
		assert_int_equal(st, PUMP_READ_ERROR);
		assert_int_equal(errno, ECONNRESET);
		assert_true(r.p.in == 0);
		rig_down(&r);
	}
}

/* The sink is gone: what was read is counted in, and not out. */
static void test_write_error(void **state)
{
	for (int kind = UNIX_PAIR; kind <= TCP_PAIR; kind++)
		for (int splice = 0; splice <= 1; splice++) {
			uint64_t no_limit = UINT64_MAX;
			struct linger now = {.l_onoff = 1};
			size_t fds = open_fds();
			enum pump_status st;
			struct rig r;

			rig_up(&r, (enum kind)kind);
			r.p.splicing = splice;
			setsockopt(r.dst, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
			close(r.dst);
			r.dst = -1;
			feed(&r, 3000);
			do {
				assert_true(take_events(&r, 5000));
				st = run(&r, &no_limit);
			} while (st == PUMP_WANT_READ);
			assert_int_equal(st, PUMP_WRITE_ERROR);
			assert_true(errno == EPIPE || errno == ECONNRESET);
			assert_true(r.p.in == 3000 && r.p.out == 0 && r.p.spliced == 0);
			/* A pipe with bytes in it must not serve somebody else. */
			assert_int_equal(r.p.in_pipe, splice ? 3000 : 0);
			pump_clear(&r.p, &r.room);
			assert_int_equal(r.pipes.n_idle, 0);
			rig_down(&r);
			assert_int_equal(open_fds(), fds);
		}
}

/* Part was written, then the sink went: `out` is what it took. */
static void test_write_error_in_the_middle(void **state)
{
	for (int splice = 0; splice <= 1; splice++) {
		uint64_t no_limit = UINT64_MAX, out;
		enum pump_status st;
		struct rig r;

		rig_up(&r, UNIX_PAIR);
		r.p.splicing = splice;
		do {
			feed(&r, 64 * MIB);
			take_events(&r, 0);
		} while (run(&r, &no_limit) != PUMP_WANT_WRITE);
		out = r.p.out;
		close(r.dst);
		r.dst = -1;
		r.to.writable = true;
		st = run(&r, &no_limit);
		assert_int_equal(st, PUMP_WRITE_ERROR);
		assert_int_equal(errno, EPIPE);
		assert_true(r.p.out == out);
		rig_down(&r);
	}
}

/* What the sink did not take cannot be kept: an error, never a hole in the stream. */
static void test_no_memory_for_the_rest(void **state)
{
	uint64_t no_limit = UINT64_MAX;
	enum pump_status st;
	struct rig r;

	rig_up(&r, UNIX_PAIR);
	r.p.held.failed = true; /* as after a failed allocation: nothing can be held */
	do {
		feed(&r, 64 * MIB);
		take_events(&r, 0);
		errno = 0;
		r.p.splicing = false;
		st = pump_run(&r.p, &r.from, &r.to, &no_limit, &r.room);
	} while (st == PUMP_WANT_READ || st == PUMP_YIELD);
	if (st == PUMP_WANT_WRITE) { /* the sink became full at the end of a buffer: one more byte of room, and again */
		drain(&r, 5000);
		r.to.writable = r.from.readable = true;
		st = pump_run(&r.p, &r.from, &r.to, &no_limit, &r.room);
	}
	assert_int_equal(st, PUMP_WRITE_ERROR);
	assert_int_equal(errno, ENOMEM);
	assert_true(r.p.in > r.p.out);
	rig_down(&r);
}

static int no_sigpipe(void **state)
{
	signal(SIGPIPE, SIG_IGN); /* as in serve: splice(2) has no MSG_NOSIGNAL */
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_small_flows_are_copied),
		cmocka_unit_test(test_large_flows),
		cmocka_unit_test(test_no_descriptors_for_pipes),
		cmocka_unit_test(test_held_goes_first),
		cmocka_unit_test(test_limit_to_the_byte),
		cmocka_unit_test(test_limit_at_the_end),
		cmocka_unit_test(test_full_sink),
		cmocka_unit_test(test_never_reads_without_room),
		cmocka_unit_test(test_flush_never_reads),
		cmocka_unit_test(test_yield),
		cmocka_unit_test(test_switches_on_after_two_full_reads),
		cmocka_unit_test(test_switches_off_when_small),
		cmocka_unit_test(test_read_error),
		cmocka_unit_test(test_write_error),
		cmocka_unit_test(test_write_error_in_the_middle),
		cmocka_unit_test(test_no_memory_for_the_rest),
	};

	return cmocka_run_group_tests_name("pump", tests, no_sigpipe, NULL);
}
