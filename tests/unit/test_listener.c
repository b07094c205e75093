/* Listening: addresses, options that accepted sockets inherit, stale sockets, and what a shortage does. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/clock.h"
#include "base/counter.h"
#include "limits.h"
#include "net/listener.h"

static struct listen_address parsed(const char *text)
{
	struct listen_address a;
	const char *why = NULL;

	if (listen_address_parse(str_from(text), &a, &why) < 0)
		fail_msg("%s: %s", text, why);
	return a;
}

/* --- addresses --- */

static void test_good_addresses(void **state)
{
	static const struct {
		const char *text;
		int family;
		uint16_t port;
		const char *ip;
	} rows[] = {
		{"127.0.0.1:3128", AF_INET, 3128, "127.0.0.1"}, {"0.0.0.0:1", AF_INET, 1, "0.0.0.0"},
		{"255.255.255.255:65535", AF_INET, 65535, "255.255.255.255"}, {"[::1]:3128", AF_INET6, 3128, "::1"},
		{"[::]:80", AF_INET6, 80, "::"}, {"[2001:db8::5]:443", AF_INET6, 443, "2001:db8::5"},
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct listen_address a = parsed(rows[i].text);
		char ip[INET6_ADDRSTRLEN];

		assert_int_equal(a.fd, -1);
		assert_int_equal(a.sa.ss_family, rows[i].family);
		if (rows[i].family == AF_INET) {
			const struct sockaddr_in *in = (const struct sockaddr_in *)&a.sa;

			assert_int_equal(a.len, sizeof(*in));
			assert_int_equal(ntohs(in->sin_port), rows[i].port);
			inet_ntop(AF_INET, &in->sin_addr, ip, sizeof(ip));
		} else {
			const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *)&a.sa;

			assert_int_equal(a.len, sizeof(*in6));
			assert_int_equal(ntohs(in6->sin6_port), rows[i].port);
			assert_int_equal(in6->sin6_scope_id, 0);
			inet_ntop(AF_INET6, &in6->sin6_addr, ip, sizeof(ip));
		}
		assert_string_equal(ip, rows[i].ip);
	}
}

static void test_bad_addresses(void **state)
{
	static const char *const rows[] = {
		"", ":", ":80", "80", "127.0.0.1", "127.0.0.1:", "127.0.0.1:0", "127.0.0.1:65536", "127.0.0.1:080", "127.0.0.1:+80",
		"127.0.0.1:80 ", " 127.0.0.1:80", "127.0.0.1:8x", "127.1:80", "127.0.0.01:80", "0x7f.0.0.1:80", "256.0.0.1:80",
		"localhost:80", "example.org:80", "*:80", "::1:80", "[::1]", "[::1]80", "[::1:80", "::1]:80", "[]:80", "[::1%lo]:80",
		"[127.0.0.1]:80", "unix:", "fd:", "tcp:127.0.0.1:80", "127.0.0.1:80:80",
	};
	const struct listen_address before = {.fd = 77};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct listen_address a = before;
		const char *why = NULL;

		if (listen_address_parse(str_from(rows[i]), &a, &why) != -EINVAL)
			fail_msg("\"%s\" was taken", rows[i]);
		if (!why || !why[0])
			fail_msg("\"%s\": no reason", rows[i]);
		assert_memory_equal(&a, &before, sizeof(a));
	}
}

static void test_unix_paths(void **state)
{
	char text[200] = "unix:";
	struct listen_address a = parsed("unix:/run/x.sock");
	const struct sockaddr_un *un = (const struct sockaddr_un *)&a.sa;
	const char *why = NULL;

	assert_int_equal(un->sun_family, AF_UNIX);
	assert_string_equal(un->sun_path, "/run/x.sock");
	assert_int_equal(a.fd, -1);
	memset(text + 5, 'p', 107);
	a = parsed(text);
	assert_int_equal(strlen(un->sun_path), 107);
	text[112] = 'p';
	assert_int_equal(listen_address_parse(str_from(text), &a, &why), -EINVAL);
	assert_non_null(why);
	assert_int_equal(listen_address_parse((struct str){"unix:a\0b", 8}, &a, &why), -EINVAL);
}

/* --- opening --- */

static int open_at(struct listen_address *a, bool shared)
{
	int fd = -1, r = listener_open(a, shared, &fd);
	socklen_t len = sizeof(a->sa);

	assert_int_equal(r, 0);
	if (a->sa.ss_family != AF_UNIX)
		assert_int_equal(getsockname(fd, (struct sockaddr *)&a->sa, &len), 0);
	return fd;
}

/* Port 0 in the sockaddr: the kernel chooses; the text cannot say so. */
static int open_v4(struct listen_address *a, bool shared)
{
	*a = parsed("127.0.0.1:1");
	((struct sockaddr_in *)&a->sa)->sin_port = 0;
	return open_at(a, shared);
}

static int connect_to(const struct listen_address *a)
{
	int fd = socket(a->sa.ss_family, SOCK_STREAM, 0);

	assert_true(fd >= 0);
	assert_int_equal(connect(fd, (const struct sockaddr *)&a->sa, a->len), 0);
	return fd;
}

static int option(int fd, int level, int name)
{
	int value = -1;
	socklen_t len = sizeof(value);

	assert_int_equal(getsockopt(fd, level, name, &value, &len), 0);
	return value;
}

static void test_open_and_shared(void **state)
{
	struct listen_address a;
	int first = open_v4(&a, true), second = -1, third = -1;

	assert_true(fcntl(first, F_GETFL) & O_NONBLOCK);
	assert_true(fcntl(first, F_GETFD) & FD_CLOEXEC);
	assert_int_equal(option(first, SOL_SOCKET, SO_ACCEPTCONN), 1);
	assert_int_equal(listener_open(&a, true, &second), 0);
	assert_int_equal(listener_open(&a, false, &third), -EADDRINUSE);
	assert_int_equal(third, -1);
	close(first);
	close(second);
	assert_int_equal(listener_open(&a, false, &third), 0);
	assert_int_equal(listener_open(&a, true, &second), -EADDRINUSE);
	close(third);
}

static void test_v6_is_v6_only(void **state)
{
	struct listen_address a = parsed("[::1]:1");
	int fd = -1, r;

	((struct sockaddr_in6 *)&a.sa)->sin6_port = 0;
	r = listener_open(&a, false, &fd);
	if (r == -EADDRNOTAVAIL || r == -EAFNOSUPPORT)
		skip(); /* no IPv6 here */
	assert_int_equal(r, 0);
	assert_int_equal(option(fd, IPPROTO_IPV6, IPV6_V6ONLY), 1);
	close(fd);
}

static void test_passed_in(void **state)
{
	struct listen_address a = {.fd = socket(AF_INET, SOCK_STREAM, 0)};
	int fd = -1;

	assert_int_equal(listener_open(&a, false, &fd), -ENOTCONN); /* nobody listens on it */
	assert_int_equal(listen(a.fd, 1), 0);
	assert_false(fcntl(a.fd, F_GETFL) & O_NONBLOCK);
	assert_int_equal(listener_open(&a, false, &fd), 0);
	assert_int_equal(fd, a.fd);
	assert_true(fcntl(fd, F_GETFL) & O_NONBLOCK);
	assert_int_equal(option(fd, IPPROTO_TCP, TCP_NODELAY), 1);
	assert_int_equal(option(fd, SOL_SOCKET, SO_KEEPALIVE), 1);
	close(fd);
	a.fd = socket(AF_INET, SOCK_DGRAM, 0);
	assert_int_equal(listener_open(&a, false, &fd), -ENOTCONN);
	close(a.fd);
}

static void test_unix_sockets(void **state)
{
	char folder[] = "/tmp/test_listener.XXXXXX", text[80], old[200];
	struct listen_address a;
	int live, fd = -1, other;

	assert_non_null(mkdtemp(folder));
	snprintf(text, sizeof(text), "unix:%s/s", folder);
	a = parsed(text);
	live = open_at(&a, false);
	assert_int_equal(listener_open(&a, false, &fd), -EADDRINUSE); /* it answers */
	other = connect_to(&a);                                         /* and still does */
	close(other);
	close(live);
	assert_int_equal(access(text + 5, F_OK), 0); /* left behind by a dead process */
	live = open_at(&a, false);
	other = connect_to(&a);
	close(other);
	close(live);
	/* A live one that was bound by another spelling of its path. */
	assert_int_equal(unlink(text + 5), 0);
	assert_non_null(getcwd(old, sizeof(old)));
	assert_int_equal(chdir(folder), 0);
	{
		struct listen_address relative = parsed("unix:s"), dotted;
		char longer[100];

		live = open_at(&relative, false);
		assert_int_equal(listener_open(&a, false, &fd), -EADDRINUSE);
		close(live);
		assert_int_equal(unlink("s"), 0);
		snprintf(longer, sizeof(longer), "unix:%s/./s", folder);
		dotted = parsed(longer);
		live = open_at(&dotted, false);
		assert_int_equal(listener_open(&a, false, &fd), -EADDRINUSE);
		close(live);
	}
	assert_int_equal(chdir(old), 0);
	/* What is no socket is never removed. */
	assert_int_equal(unlink(text + 5), 0);
	close(open(text + 5, O_CREAT | O_WRONLY, 0600));
	assert_int_equal(listener_open(&a, false, &fd), -EADDRINUSE);
	assert_int_equal(access(text + 5, F_OK), 0);
	assert_int_equal(unlink(text + 5), 0);
	assert_int_equal(rmdir(folder), 0);
	assert_int_equal(listener_open(&a, false, &fd), -ENOENT);
	assert_int_equal(fd, -1);
}

/* --- accepting --- */

struct taker {
	int shortage; /* errno that the listener told */
	struct event_base *base;
	struct listener *l;
	struct listen_address address;
	int fd[300];
	struct sockaddr_storage peer;
	size_t n, refuse_after;
};

static bool take(void *arg, int fd, const struct sockaddr_storage *peer)
{
	struct taker *t = arg;

	if (fd < 0) { /* the listener pauses by itself */
		assert_null(peer);
		t->shortage = -fd;
		return false;
	}
	assert_true(t->n < sizeof(t->fd) / sizeof(t->fd[0]));
	t->fd[t->n++] = fd;
	t->peer = *peer;
	return !t->refuse_after || t->n % t->refuse_after;
}

static int taker_up(void **state)
{
	struct taker *t = calloc(1, sizeof(*t));

	t->base = event_base_new();
	assert_int_equal(listener_new(t->base, open_v4(&t->address, false), take, t, &t->l), 0);
	*state = t;
	return 0;
}

static int taker_down(void **state)
{
	struct taker *t = *state;

	listener_free(t->l);
	for (size_t i = 0; i < t->n; i++)
		close(t->fd[i]);
	event_base_free(t->base);
	free(t);
	return 0;
}

/* Runs the loop until n connections are there, at most `ms`. */
static void run_until(struct taker *t, size_t n, unsigned ms)
{
	uint64_t end = clock_mono_ms() + ms;

	while (t->n < n && clock_mono_ms() < end) {
		struct timeval tick = {.tv_usec = 5000};

		event_base_loopexit(t->base, &tick);
		event_base_dispatch(t->base);
	}
}

static void test_accept(void **state)
{
	struct taker *t = *state;
	uint64_t accepted = counter_sum(COUNTER_CONNECTIONS_ACCEPTED);
	int c = connect_to(&t->address);
	struct sockaddr_in own;
	socklen_t len = sizeof(own);

	run_until(t, 1, 5000);
	assert_int_equal(t->n, 1);
	assert_int_equal(counter_sum(COUNTER_CONNECTIONS_ACCEPTED) - accepted, 1);
	assert_int_equal(getsockname(c, (struct sockaddr *)&own, &len), 0);
	assert_int_equal(((struct sockaddr_in *)&t->peer)->sin_port, own.sin_port);
	assert_int_equal(((struct sockaddr_in *)&t->peer)->sin_addr.s_addr, own.sin_addr.s_addr);
	assert_true(fcntl(t->fd[0], F_GETFL) & O_NONBLOCK);
	assert_true(fcntl(t->fd[0], F_GETFD) & FD_CLOEXEC);
	/* Set on the listening socket only. */
	assert_int_equal(option(t->fd[0], IPPROTO_TCP, TCP_NODELAY), 1);
	assert_int_equal(option(t->fd[0], SOL_SOCKET, SO_KEEPALIVE), 1);
	close(c);
}

/* Without descriptors it neither spins nor gives up; the clients wait in the backlog. */
static void test_out_of_descriptors(void **state)
{
	struct taker *t = *state;
	uint64_t errors = counter_sum(COUNTER_ACCEPT_ERRORS), pauses = counter_sum(COUNTER_ACCEPT_PAUSES), n;
	struct rlimit old, low;
	int c[3];

	for (int i = 0; i < 3; i++)
		c[i] = connect_to(&t->address);
	getrlimit(RLIMIT_NOFILE, &old);
	low = (struct rlimit){.rlim_cur = 3, .rlim_max = old.rlim_max};
	setrlimit(RLIMIT_NOFILE, &low);
	run_until(t, 1, 3 * LIMIT_ACCEPT_PAUSE_MS);
	setrlimit(RLIMIT_NOFILE, &old);
	assert_int_equal(t->n, 0);
	n = counter_sum(COUNTER_ACCEPT_PAUSES) - pauses;
	assert_in_range(n, 1, 4);
	assert_int_equal(counter_sum(COUNTER_ACCEPT_ERRORS) - errors, n);
	assert_int_equal(t->shortage, EMFILE);
	run_until(t, 3, 5000);
	assert_int_equal(t->n, 3);
	for (int i = 0; i < 3; i++)
		close(c[i]);
}

/* The callee says "enough": a pause after each second connection. */
static void test_pause_by_the_callee(void **state)
{
	struct taker *t = *state;
	uint64_t pauses = counter_sum(COUNTER_ACCEPT_PAUSES), errors = counter_sum(COUNTER_ACCEPT_ERRORS);
	uint64_t start = clock_mono_ms();
	int c[5];

	t->refuse_after = 2;
	for (int i = 0; i < 5; i++)
		c[i] = connect_to(&t->address);
	run_until(t, 5, 5000);
	assert_int_equal(t->n, 5);
	assert_int_equal(counter_sum(COUNTER_ACCEPT_PAUSES) - pauses, 2);
	assert_int_equal(counter_sum(COUNTER_ACCEPT_ERRORS), errors);
	assert_true(clock_mono_ms() - start >= 2 * LIMIT_ACCEPT_PAUSE_MS - 10);
	for (int i = 0; i < 5; i++)
		close(c[i]);
}

/* In one turn a bounded number, so that open tunnels are served in between; the rest in the next turns. */
static void test_batches(void **state)
{
	struct taker *t = *state;
	int c[LIMIT_ACCEPT_BATCH + 20];
	size_t n = sizeof(c) / sizeof(c[0]);

	for (size_t i = 0; i < n; i++)
		c[i] = connect_to(&t->address);
	event_base_loop(t->base, EVLOOP_ONCE);
	assert_int_equal(t->n, LIMIT_ACCEPT_BATCH);
	run_until(t, n, 5000);
	assert_int_equal(t->n, n);
	for (size_t i = 0; i < n; i++)
		close(c[i]);
}

/* Before it closes everybody in the backlog is taken, or they would be reset. */
static void test_accept_now_takes_all(void **state)
{
	struct taker *t = *state;
	int c[2 * LIMIT_ACCEPT_BATCH + 20];
	size_t n = sizeof(c) / sizeof(c[0]);

	for (size_t i = 0; i < n; i++)
		c[i] = connect_to(&t->address);
	listener_accept_now(t->l);
	assert_int_equal(t->n, n);
	listener_accept_now(t->l); /* nobody there */
	assert_int_equal(t->n, n);
	for (size_t i = 0; i < n; i++)
		close(c[i]);
}

static void test_free_while_paused(void **state)
{
	struct taker *t = *state;
	int c = connect_to(&t->address);

	t->refuse_after = 1;
	run_until(t, 1, 5000);
	t->l = listener_free(t->l);
	assert_null(t->l);
	run_until(t, 2, 2 * LIMIT_ACCEPT_PAUSE_MS); /* its timer must not come */
	assert_int_equal(t->n, 1);
	close(c);
}

#define WITH_TAKER(f) cmocka_unit_test_setup_teardown(f, taker_up, taker_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_good_addresses),
		cmocka_unit_test(test_bad_addresses),
		cmocka_unit_test(test_unix_paths),
		cmocka_unit_test(test_open_and_shared),
		cmocka_unit_test(test_v6_is_v6_only),
		cmocka_unit_test(test_passed_in),
		cmocka_unit_test(test_unix_sockets),
		WITH_TAKER(test_accept),
		WITH_TAKER(test_out_of_descriptors),
		WITH_TAKER(test_pause_by_the_callee),
		WITH_TAKER(test_batches),
		WITH_TAKER(test_accept_now_takes_all),
		WITH_TAKER(test_free_while_paused),
	};

	return cmocka_run_group_tests_name("listener", tests, NULL, NULL);
}
