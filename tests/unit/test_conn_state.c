/* The states of a connection: which move is legal, how each end is called, and whole lives on a worker of its own.
 *
 * The worker is a real one on a real thread; its name server is a socket that never answers, so that a connection stays
 * in DIALING for as long as a test wants. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/clock.h"
#include "base/counter.h"
#include "base/log.h"
#include "net/listener.h"
#include "relay/relay.h"

/* --- the table --- */

/* As conn_state.def tells the states: whoever is CLOSED can only begin anew, whoever drains can only close. */
static bool may_follow(enum conn_state from, enum conn_state to)
{
	static const char *const rows[CONN_STATE_N] = {
		/* to:             CLOSED HEAD DIALING TUNNEL EXCHANGE DRAINING */
		[CONN_CLOSED] =   "  .      x     .       .       .        .",
		[CONN_HEAD] =     "  x      .     x       .       x        x",
		[CONN_DIALING] =  "  x      .     .       x       x        x",
		[CONN_TUNNEL] =   "  x      .     .       .       .        .",
		[CONN_EXCHANGE] = "  x      x     x       x       .        x",
		[CONN_DRAINING] = "  x      .     .       .       .        .",
	};
	const char *p = rows[from];

	for (int i = 0;; p++) {
		if (*p == ' ')
			continue;
		if (i++ == (int)to)
			return *p == 'x';
	}
}

/* Whether the move kills the process. */
static bool aborts(enum conn_state from, enum conn_state to)
{
	int status;
	pid_t child = fork();

	if (child == 0) {
		struct rlimit none = {0};
		struct conn c = {.state = from};

		setrlimit(RLIMIT_CORE, &none);
		signal(SIGABRT, SIG_DFL);
		conn_set_state(&c, to);
		_exit(c.state == to ? 0 : 3);
	}
	assert_true(child > 0);
	assert_int_equal(waitpid(child, &status, 0), child);
	if (WIFSIGNALED(status))
		assert_int_equal(WTERMSIG(status), SIGABRT);
	else
		assert_int_equal(WEXITSTATUS(status), 0);
	return WIFSIGNALED(status);
}

static void test_moves(void **state)
{
	for (int from = 0; from < CONN_STATE_N; from++)
		for (int to = 0; to < CONN_STATE_N; to++)
			if (aborts((enum conn_state)from, (enum conn_state)to) ==
			    may_follow((enum conn_state)from, (enum conn_state)to))
				fail_msg("from %d to %d", from, to);
}

static void test_tunnel_gauge(void **state)
{
	struct conn c = {.state = CONN_DIALING};
	uint64_t before = counter_sum(COUNTER_TUNNELS_OPEN);

	conn_set_state(&c, CONN_TUNNEL);
	assert_int_equal(counter_sum(COUNTER_TUNNELS_OPEN), before + 1);
	assert_true(c.since_ms == c.active_ms && conn_now_ms() - c.since_ms < 1000);
	conn_set_state(&c, CONN_CLOSED);
	assert_int_equal(counter_sum(COUNTER_TUNNELS_OPEN), before);
}

/* Each way to end has its word, and the metric has the same. */
static void test_ends(void **state)
{
	for (int why = 0; why < CLOSE_N; why++) {
		const struct counter_row *row = counter_row(close_counter((enum close_why)why));
		char labels[80];

		snprintf(labels, sizeof(labels), "reason=\"%s\"", close_word((enum close_why)why));
		assert_string_equal(row->labels, labels);
		assert_string_equal(row->metric, "egress_guard_closed_total");
		for (int other = 0; other < why; other++)
			assert_string_not_equal(close_word((enum close_why)other), close_word((enum close_why)why));
	}
}

/* --- lives --- */

static const char policy_text[] = "version: 1\nroles:\n  agent:\n    allow: [slow.example.org]\n    deny: [bad.example.org]\n";

struct rig {
	struct relay_shared shared;
	struct relay *relay;
	struct worker *worker;
	struct policy *policy;
	int name_server, wake;
	struct sockaddr_in address;
	uint64_t decided[VERDICT_N];
};

static struct policy *compile(const char *text)
{
	struct policy_problems problems = {0};
	struct policy *p = NULL;

	assert_int_equal(policy_compile(str_from(text), &p, &problems), 0);
	policy_problems_clear(&problems);
	return p;
}

static void listen_somewhere(struct rig *r)
{
	struct listen_address a = {.fd = -1, .len = sizeof(r->address)};
	socklen_t len = sizeof(r->address);

	r->address = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	memcpy(&a.sa, &r->address, sizeof(r->address));
	assert_int_equal(listener_open(&a, false, &r->relay->entries[0].fd), 0);
	assert_int_equal(getsockname(r->relay->entries[0].fd, (struct sockaddr *)&r->address, &len), 0);
}

static int rig_up(void **state)
{
	struct sockaddr_in dns = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t len = sizeof(dns);
	struct rig *r = calloc(1, sizeof(*r));
	struct worker_config wc = {.on_start = relay_start, .on_mail = relay_mail, .on_again = relay_again,
				   .on_free = relay_free_conn, .on_stop = relay_stop, .connect_ms = 20000};
	char server[40];

	r->name_server = socket(AF_INET, SOCK_DGRAM, 0);
	assert_int_equal(bind(r->name_server, (struct sockaddr *)&dns, sizeof(dns)), 0);
	assert_int_equal(getsockname(r->name_server, (struct sockaddr *)&dns, &len), 0);
	snprintf(server, sizeof(server), "127.0.0.1:%u", ntohs(dns.sin_port));
	r->wake = eventfd(0, 0);
	r->policy = compile(policy_text);
	r->shared.timeouts = (struct relay_timeouts){.head_ms = 300, .idle_ms = 20000, .half_open_ms = 20000, .drain_ms = 100};
	r->shared.max_connections = 3;
	r->relay = relay_new(&r->shared, 1);
	snprintf(r->relay->entries[0].role, sizeof(r->relay->entries[0].role), "agent");
	listen_somewhere(r);
	wc.resolver = (struct resolver_config){.servers = server, .timeout_ms = 10000, .tries = 1, .cache_entries = 10};
	wc.policy = r->policy;
	wc.app = r->relay;
	wc.wake_fd = r->wake;
	assert_int_equal(worker_new(&wc, &r->worker), 0);
	assert_int_equal(worker_start(r->worker), 0);
	for (int v = 0; v < VERDICT_N; v++)
		r->decided[v] = counter_sum_decided((enum verdict)v);
	*state = r;
	return 0;
}

static void mail(struct rig *r, enum mail_kind kind)
{
	struct mail m = {.kind = kind};

	assert_int_equal(worker_send(r->worker, &m), 0);
}

static int rig_down(void **state)
{
	struct rig *r = *state;

	mail(r, MAIL_STOP);
	worker_free(r->worker); /* joins */
	assert_int_equal(atomic_load(&r->shared.open_connections), 0);
	relay_free(r->relay);
	policy_unref(r->policy);
	close(r->name_server);
	close(r->wake);
	free(r);
	return 0;
}

/* How many requests were decided with `v` since the rig stands, once that is `want`; and no other was. */
static void check_decided(struct rig *r, enum verdict v, uint64_t want)
{
	uint64_t end = clock_mono_ms() + 5000, all = 0;

	while (counter_sum_decided(v) - r->decided[v] < want && clock_mono_ms() < end)
		usleep(1000);
	assert_int_equal(counter_sum_decided(v) - r->decided[v], want);
	for (int i = 0; i < VERDICT_N; i++)
		all += counter_sum_decided((enum verdict)i) - r->decided[i];
	assert_int_equal(all, want);
}

static void wait_open(struct rig *r, unsigned want)
{
	uint64_t end = clock_mono_ms() + 5000;

	while (atomic_load(&r->shared.open_connections) != want && clock_mono_ms() < end)
		usleep(1000);
	assert_int_equal(atomic_load(&r->shared.open_connections), want);
}

static int client(struct rig *r, const char *text)
{
	struct timeval tv = {.tv_sec = 8};
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof(tv));
	assert_int_equal(connect(fd, (struct sockaddr *)&r->address, sizeof(r->address)), 0);
	assert_int_equal(send(fd, text, strlen(text), MSG_NOSIGNAL), strlen(text));
	return fd;
}

/* Reads to an end in order, and closes. */
static void check_reply(int fd, const char *begins, const char *contains)
{
	char text[4000];
	size_t n = 0;
	ssize_t got;

	while ((got = recv(fd, text + n, sizeof(text) - n - 1, 0)) > 0)
		n += (size_t)got;
	assert_int_equal(got, 0); /* no reset */
	text[n] = '\0';
	if (strncmp(text, begins, strlen(begins)) || !strstr(text, contains))
		fail_msg("not %s with %s: %s", begins, contains, text);
	close(fd);
}

/* The connection has asked the silent name server. */
static void wait_query(struct rig *r)
{
	struct pollfd p = {.fd = r->name_server, .events = POLLIN};
	char junk[600];

	assert_int_equal(poll(&p, 1, 5000), 1);
	while (recv(r->name_server, junk, sizeof(junk), MSG_DONTWAIT) > 0)
		;
}

static void test_refusals(void **state)
{
	static const struct {
		const char *request, *begins;
		enum verdict v;
	} rows[] = {
		{"nonsense\r\n\r\n", "HTTP/1.1 400 ", VERDICT_BAD_REQUEST},
		{"CONNECT x\r\n", "HTTP/1.1 ", VERDICT_BAD_REQUEST},
		{"CONNECT 169.254.169.254:80 HTTP/1.1\r\nHost: 169.254.169.254:80\r\n\r\n", "HTTP/1.1 403 ",
		 VERDICT_ADDRESS_LINK_LOCAL},
		{"CONNECT bad.example.org:443 HTTP/1.1\r\nHost: bad.example.org:443\r\n\r\n", "HTTP/1.1 403 ", VERDICT_HOST_DENIED},
		{"CONNECT other.example.org:443 HTTP/1.1\r\nHost: other.example.org:443\r\n\r\n", "HTTP/1.1 403 ",
		 VERDICT_HOST_NOT_ALLOWED},
		{"GET http://slow.example.org:8080/ HTTP/1.1\r\nHost: slow.example.org:8080\r\n\r\n", "HTTP/1.1 403 ",
		 VERDICT_PORT_NOT_ALLOWED},
	};
	struct rig *r = *state;

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		for (int v = 0; v < VERDICT_N; v++)
			r->decided[v] = counter_sum_decided((enum verdict)v);
		check_reply(client(r, rows[i].request), rows[i].begins, "X-Egress-Reason: ");
		check_decided(r, rows[i].v, 1);
		wait_open(r, 0);
	}
}

/* Who says nothing is let go after timeouts.head; who says half of it is told so. */
static void test_head_times(void **state)
{
	struct rig *r = *state;
	int fd = client(r, "");
	char byte;

	assert_int_equal(recv(fd, &byte, 1, 0), 0);
	close(fd);
	wait_open(r, 0);
	check_decided(r, VERDICT_HEAD_TIMEOUT, 0);
	check_reply(client(r, "CONNECT slow.example.org:443 HTTP/1.1\r\nHost:"), "HTTP/1.1 408 ", "(head_timeout)");
	check_decided(r, VERDICT_HEAD_TIMEOUT, 1);
	wait_open(r, 0);
}

static void test_client_goes_at_once(void **state)
{
	struct linger now = {.l_onoff = 1};
	struct rig *r = *state;
	int fd = client(r, "");

	close(fd);
	fd = client(r, "CONN");
	setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
	close(fd);
	wait_open(r, 0);
	check_reply(client(r, "nonsense\r\n\r\n"), "HTTP/1.1 400 ", "");
	check_decided(r, VERDICT_BAD_REQUEST, 1);
}

/* Beyond the limit a client is answered, and the ones within it are not disturbed. */
static void test_overload(void **state)
{
	const char *slow = "CONNECT slow.example.org:443 HTTP/1.1\r\nHost: slow.example.org:443\r\n\r\n";
	struct rig *r = *state;
	int fd[3];

	for (int i = 0; i < 3; i++)
		fd[i] = client(r, slow);
	wait_open(r, 3);
	check_reply(client(r, slow), "HTTP/1.1 503 ", "(overloaded)");
	check_decided(r, VERDICT_OVERLOADED, 1);
	for (int i = 0; i < 3; i++)
		close(fd[i]);
}

static void test_client_resets_while_dialing(void **state)
{
	struct linger now = {.l_onoff = 1};
	struct rig *r = *state;
	int fd = client(r, "CONNECT slow.example.org:443 HTTP/1.1\r\nHost: slow.example.org:443\r\n\r\n");

	wait_query(r);
	setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
	close(fd);
	check_decided(r, VERDICT_CLIENT_GONE, 1);
	wait_open(r, 0);
}

/* A request that was waiting for its name when the guard stops is told of too: to its client, and to the counters. */
static void stopped_while_dialing(struct rig *r, enum mail_kind kind, const char *request)
{
	int fd = client(r, request);

	wait_query(r);
	mail(r, kind);
	check_reply(fd, "HTTP/1.1 503 ", "(shutting_down)");
	check_decided(r, VERDICT_SHUTTING_DOWN, 1);
	wait_open(r, 0);
}

static void test_stop_while_dialing(void **state)
{
	stopped_while_dialing(*state, MAIL_STOP,
			      "CONNECT slow.example.org:443 HTTP/1.1\r\nHost: slow.example.org:443\r\n\r\n");
}

static void test_drain_while_dialing(void **state)
{
	stopped_while_dialing(*state, MAIL_DRAIN, "GET http://slow.example.org/ HTTP/1.1\r\nHost: slow.example.org\r\n\r\n");
}

/* A new policy is in force for the next request, on a connection that is open already. */
static void test_new_policy(void **state)
{
	struct mail m = {.kind = MAIL_POLICY, .generation = 7};
	struct rig *r = *state;
	uint64_t end = clock_mono_ms() + 5000;
	int fd = client(r, "CONNECT slow.example.org:443 HTTP/1.1\r\n");

	m.policy = compile("version: 1\nroles:\n  agent:\n    allow: [only.example.org]\n");
	assert_int_equal(worker_send(r->worker, &m), 0);
	while (atomic_load(&r->worker->generation) != 7 && clock_mono_ms() < end)
		usleep(1000);
	assert_true(atomic_load(&r->worker->generation) == 7);
	assert_int_equal(send(fd, "Host: slow.example.org:443\r\n\r\n", 30, 0), 30);
	check_reply(fd, "HTTP/1.1 403 ", "(host_not_allowed)");
	check_decided(r, VERDICT_HOST_NOT_ALLOWED, 1);
}

/* Everything queued behind one another in one piece, and one byte at a time. */
static void test_bytes_one_by_one(void **state)
{
	static const char request[] = "CONNECT bad.example.org:443 HTTP/1.1\r\nHost: bad.example.org:443\r\n\r\n";
	struct rig *r = *state;
	int fd = client(r, "");

	for (size_t i = 0; i < sizeof(request) - 1; i++) {
		assert_int_equal(send(fd, request + i, 1, MSG_NOSIGNAL), 1);
		usleep(200);
	}
	check_reply(fd, "HTTP/1.1 403 ", "(host_denied)");
	/* What stands behind a refused request is never read as another one. */
	check_reply(client(r, "CONNECT bad.example.org:443 HTTP/1.1\r\nHost: bad.example.org:443\r\n\r\n"
			      "CONNECT slow.example.org:443 HTTP/1.1\r\nHost: slow.example.org:443\r\n\r\n"),
		    "HTTP/1.1 403 ", "(host_denied)");
	check_decided(r, VERDICT_HOST_DENIED, 2);
}

/* The access lines of these lives go nowhere: counted like any others, read by the system tests. */
static int log_up(void **state)
{
	signal(SIGPIPE, SIG_IGN);
	return log_open("/dev/null", LOG_LEVEL_ERROR);
}

static int log_down(void **state)
{
	log_close();
	return 0;
}

#define LIFE(f) cmocka_unit_test_setup_teardown(f, rig_up, rig_down)

int main(void)
{
	const struct CMUnitTest tables[] = {
		cmocka_unit_test(test_moves),
		cmocka_unit_test(test_tunnel_gauge),
		cmocka_unit_test(test_ends),
	};
	const struct CMUnitTest lives[] = {
		LIFE(test_refusals),
		LIFE(test_head_times),
		LIFE(test_client_goes_at_once),
		LIFE(test_overload),
		LIFE(test_client_resets_while_dialing),
		LIFE(test_stop_while_dialing),
		LIFE(test_drain_while_dialing),
		LIFE(test_new_policy),
		LIFE(test_bytes_one_by_one),
	};
	int failed = cmocka_run_group_tests_name("conn_state", tables, NULL, NULL);

	return cmocka_run_group_tests_name("conn_life", lives, log_up, log_down) + failed;
}
