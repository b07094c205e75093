/* The dialer against real sockets, a real name server (dns_server.h) and a world of its own (two_namespaces.h). Skipped
 * where no namespace can be made. */
#include <fcntl.h>
#include <netinet/tcp.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <dirent.h>
#include <cmocka.h>

#include "base/clock.h"
#include "base/counter.h"
#include "dns_server.h"
#include "net/dialer.h"
#include "two_namespaces.h"

/* --- names --- */

#define ANSWER(name, if_a, if_aaaa) \
	static void name(struct packet *p, int type, bool tcp) \
	{ \
		if (type == T_A_) { \
			if_a; \
		} else { \
			if_aaaa; \
		} \
	}
#define A(text) put_a(p, NULL, 60, text)
#define AAAA(text) put_aaaa(p, NULL, 60, text)

ANSWER(good, A("93.184.216.34"), )
ANSWER(good6, , AAAA("2606:2800:216::34"))
ANSWER(refusing, A("93.184.216.35"), )
ANSWER(hole, A("93.184.216.36"), )
ANSWER(unreachable, A("93.184.216.37"), )
ANSWER(dead6, A("93.184.216.34"), AAAA("2606:2800:216::36"))
ANSWER(refusing_then_good, A("93.184.216.35"); A("93.184.216.34"), )
ANSWER(refusing_and_unreachable, A("93.184.216.35"); A("93.184.216.37"), )
ANSWER(mixed, A("93.184.216.34"); A("10.0.0.1"), )
ANSWER(mixed6, A("93.184.216.34"), AAAA("fd00::9"))
ANSWER(late_private, A("93.184.216.36"), AAAA("fd00::9"); p->delay_ms = 200)
ANSWER(late_good, A("93.184.216.36"), AAAA("2606:2800:216::34"); p->delay_ms = 120)
ANSWER(only_late_good, p->silent = true, AAAA("2606:2800:216::34"))
ANSWER(servfail_private, set_rcode(p, RC_SERVFAIL), AAAA("fd00::9"))
ANSWER(mapped_private, , AAAA("::ffff:10.0.0.9"))
ANSWER(mapped_good, , AAAA("::ffff:93.184.216.34"))
ANSWER(loopback, A("127.0.0.1"), AAAA("::1"))
ANSWER(any, A("0.0.0.0"), AAAA("::"))
ANSWER(metadata, A("169.254.169.254"), )
ANSWER(own, A("93.184.217.1"), )
ANSWER(own6, , AAAA("2606:2800:217::1"))
ANSWER(own_late, A("93.184.217.9"), )
ANSWER(hole_then_good, A("93.184.216.36"); A("93.184.216.34"), )
ANSWER(nothing, set_rcode(p, RC_NXDOMAIN), set_rcode(p, RC_NXDOMAIN))
ANSWER(failing, set_rcode(p, RC_SERVFAIL), set_rcode(p, RC_SERVFAIL))
ANSWER(silent, p->silent = true, p->silent = true)

/* The late family has more addresses than an answer may hold. */
static void late_too_many(struct packet *p, int type, bool tcp)
{
	if (type == T_A_) {
		A("93.184.216.36");
	} else if (tcp) {
		put_many(p, type, 33);
	} else {
		set_tc(p);
		p->delay_ms = 200;
	}
}

static bool flipped;
ANSWER(flipping, if (!flipped) A("93.184.216.34"); else A("127.0.0.1"); flipped = !flipped, )

#define S(fn) {#fn ".example.org", fn, 0, 0, 0}
static struct script scripts[] = {
	S(good), S(good6), S(refusing), S(hole), S(unreachable), S(dead6), S(refusing_then_good),
	S(refusing_and_unreachable),
	S(mixed), S(mixed6), S(late_private), S(late_too_many), S(late_good), S(only_late_good), S(servfail_private),
	S(mapped_private), S(mapped_good), S(loopback), S(any), S(metadata), S(own), S(own6), S(own_late),
	S(hole_then_good),
	S(nothing), S(failing), S(silent), S(flipping),
};
static struct dns_server server = {.scripts = scripts, .n_scripts = sizeof(scripts) / sizeof(scripts[0])};

/* --- the dialer --- */

static struct event_base *base;
static struct ownaddr *own_addresses;
static struct resolver *resolver;
static struct dialer *dialer;
static struct policy *policies[2];
static const struct policy *policy;
static int fd_ask; /* the second descriptor of ownaddr */

static const struct policy *policy_now(void *arg)
{
	return policy;
}

static struct policy *compile(const char *text)
{
	struct policy_problems problems = {0};
	struct policy *p = NULL;

	if (policy_compile(str_from(text), &p, &problems) < 0)
		for (size_t i = 0; i < problems.n; i++)
			print_error("%u:%u: %s\n", problems.items[i].line, problems.items[i].column,
				    problems.items[i].message);
	policy_problems_clear(&problems);
	assert_non_null(p);
	return p;
}

static int setup_with(unsigned budget_ms, unsigned dns_ms, unsigned cache)
{
	char servers[64];
	struct resolver_config rc = {.servers = servers, .timeout_ms = dns_ms, .tries = 2, .cache_entries = cache};
	struct dialer_config dc = {.policy = policy_now, .budget_ms = budget_ms};
	int first;

	snprintf(servers, sizeof(servers), "127.0.0.1:%u", server.port);
	base = event_base_new();
	assert_non_null(base);
	first = open("/dev/null", O_RDONLY | O_CLOEXEC); /* the numbers that come next */
	fd_ask = open("/dev/null", O_RDONLY | O_CLOEXEC);
	close(first);
	close(fd_ask);
	assert_int_equal(ownaddr_new(base, &own_addresses), 0);
	assert_int_equal(resolver_new(base, &rc, &resolver), 0);
	dc.base = base;
	dc.resolver = resolver;
	dc.own = own_addresses;
	assert_int_equal(dialer_new(&dc, &dialer), 0);
	policies[0] = compile("version: 1\nroles:\n  agent:\n    allow: [\"*.example.org\", {address: 93.184.216.0/24}, {address: \"2606:2800:216::/48\"}]\n");
	policies[1] = compile("version: 1\nroles:\n  agent:\n    allow: [\"*.example.org\", {address: 93.184.216.0/24}, {address: \"2606:2800:216::/48\"}]\n"
			      "refuse:\n  addresses: [93.184.216.0/24]\n");
	policy = policies[0];
	return 0;
}

static int setup(void **state)
{
	return setup_with(900, 2000, 0);
}

static int teardown(void **state)
{
	dialer = dialer_free(dialer);
	resolver = resolver_free(resolver);
	own_addresses = ownaddr_free(own_addresses);
	event_base_free(base);
	policies[0] = policy_unref(policies[0]);
	policies[1] = policy_unref(policies[1]);
	return 0;
}

struct want {
	struct dial *dial;
	bool inside;
	int calls;
	struct dial_result result;
	struct want *cancel;
};

static void on_result(void *arg, const struct dial_result *r)
{
	struct want *w = arg;

	assert_false(w->inside);
	w->calls++;
	w->result = *r;
	w->dial = NULL;
	if (w->cancel)
		w->cancel->dial = dial_cancel(w->cancel->dial);
}

static void start_as(struct want *w, const char *role, const char *host, uint16_t port)
{
	struct policy_target target = {.port = port};
	struct dial_request request = {&target, str_from(role)};

	assert_true(host_parse(str_from(host), &target.host, NULL));
	w->inside = true;
	assert_int_equal(dial_start(dialer, &request, on_result, w, &w->dial), 0);
	w->inside = false;
}

static void start(struct want *w, const char *host)
{
	start_as(w, "agent", host, 443);
}

static void await(struct want *w)
{
	uint64_t until = clock_mono_ms() + 5000;

	while (w->dial && clock_mono_ms() < until)
		event_base_loop(base, EVLOOP_ONCE);
	assert_int_equal(w->calls, 1);
	assert_true((w->result.fd >= 0) == (w->result.verdict == VERDICT_ALLOW));
}

static int count_fds(void)
{
	DIR *d = opendir("/proc/self/fd");
	int n = 0;

	while (readdir(d))
		n++;
	closedir(d);
	return n;
}

static void assert_result_addr(const struct dial_result *r, const char *text)
{
	char got[ADDR_TEXT_MAX];

	assert_true(r->has_addr);
	addr_format(&r->addr, got);
	assert_string_equal(got, text);
}

static struct dial_result dial(const char *host)
{
	struct want w = {0};

	start(&w, host);
	await(&w);
	return w.result;
}

static void assert_connected(const char *host, const char *peer)
{
	struct dial_result r = dial(host);

	if (r.verdict != VERDICT_ALLOW)
		print_error("%s: %s\n", host, verdict_code(r.verdict));
	assert_int_equal(r.verdict, VERDICT_ALLOW);
	assert_result_addr(&r, peer);
	close(r.fd);
}

/* Fails as said, with no connect() at all when `attempts` is 0. */
static void assert_fails(const char *host, enum verdict v, const char *address, unsigned attempts)
{
	uint64_t before = counter_sum(COUNTER_DIAL_ATTEMPTS);
	struct dial_result r = dial(host);

	if (r.verdict != v)
		print_error("%s: %s, expected %s\n", host, verdict_code(r.verdict), verdict_code(v));
	assert_int_equal(r.verdict, v);
	assert_int_equal(counter_sum(COUNTER_DIAL_ATTEMPTS) - before, attempts);
	if (address)
		assert_result_addr(&r, address);
	else
		assert_false(r.has_addr);
	if (address)
		assert_non_null(r.what);
}

/* --- tests --- */

static void test_connected(void **state)
{
	struct dial_result r = dial("good.example.org");
	int on = 0;
	socklen_t len = sizeof(on);

	assert_int_equal(r.verdict, VERDICT_ALLOW);
	assert_result_addr(&r, "93.184.216.34");
	assert_true(fcntl(r.fd, F_GETFL) & O_NONBLOCK);
	assert_true(fcntl(r.fd, F_GETFD) & FD_CLOEXEC);
	assert_int_equal(getsockopt(r.fd, IPPROTO_TCP, TCP_NODELAY, &on, &len), 0);
	assert_int_not_equal(on, 0);
	assert_true(r.lookup_ns > 0 && r.connect_ns > 0);
	assert_int_equal(write(r.fd, "x", 1), 1);
	close(r.fd);
	assert_connected("good6.example.org", "2606:2800:216::34");
	assert_connected("mapped_good.example.org", "93.184.216.34");
	assert_connected("93.184.216.34", "93.184.216.34");
	assert_connected("[2606:2800:216::34]", "2606:2800:216::34");
	assert_connected("[::ffff:93.184.216.34]", "93.184.216.34");
}

static void test_not_reached(void **state)
{
	assert_fails("refusing.example.org", VERDICT_CONNECT_REFUSED, NULL, 1);
	assert_fails("unreachable.example.org", VERDICT_CONNECT_UNREACHABLE, NULL, 1);
	assert_fails("hole.example.org", VERDICT_CONNECT_TIMEOUT, NULL, 1);
	assert_fails("refusing_and_unreachable.example.org", VERDICT_CONNECT_REFUSED, NULL, 2);
	assert_fails("93.184.216.35", VERDICT_CONNECT_REFUSED, NULL, 1);
	assert_fails("nothing.example.org", VERDICT_DNS_NOT_FOUND, NULL, 0);
	assert_fails("failing.example.org", VERDICT_DNS_FAILED, NULL, 0);
	assert_fails("silent.example.org", VERDICT_DNS_TIMEOUT, NULL, 0);
}

static void test_race(void **state)
{
	uint64_t begin = clock_mono_ms();

	assert_connected("dead6.example.org", "93.184.216.34");
	assert_true(clock_mono_ms() - begin >= LIMIT_ATTEMPT_DELAY_MS - 1);
	assert_connected("refusing_then_good.example.org", "93.184.216.34");
	assert_connected("late_good.example.org", "2606:2800:216::34");
	assert_connected("only_late_good.example.org", "2606:2800:216::34");
}

static void test_refused_before_connecting(void **state)
{
	assert_fails("mixed.example.org", VERDICT_ADDRESS_PRIVATE, "10.0.0.1", 0);
	assert_fails("mixed6.example.org", VERDICT_ADDRESS_PRIVATE, "fd00::9", 0);
	assert_fails("servfail_private.example.org", VERDICT_ADDRESS_PRIVATE, "fd00::9", 0);
	assert_fails("mapped_private.example.org", VERDICT_ADDRESS_PRIVATE, "10.0.0.9", 0);
	assert_fails("loopback.example.org", VERDICT_ADDRESS_LOOPBACK, "::1", 0);
	assert_fails("127.0.0.1", VERDICT_ADDRESS_LOOPBACK, "127.0.0.1", 0);
	assert_fails("[::1]", VERDICT_ADDRESS_LOOPBACK, "::1", 0);
	assert_fails("metadata.example.org", VERDICT_ADDRESS_LINK_LOCAL, "169.254.169.254", 0);
	assert_fails("own.example.org", VERDICT_ADDRESS_OWN, "93.184.217.1", 0);
	assert_fails("own6.example.org", VERDICT_ADDRESS_OWN, "2606:2800:217::1", 0);
	assert_fails("93.184.217.1", VERDICT_ADDRESS_OWN, "93.184.217.1", 0);
	assert_int_not_equal(dial("any.example.org").verdict, VERDICT_ALLOW);
}

/* The good half was being dialed when the bad half came. */
static void test_refused_while_dialing(void **state)
{
	assert_fails("late_private.example.org", VERDICT_ADDRESS_PRIVATE, "fd00::9", 1);
	assert_fails("late_too_many.example.org", VERDICT_DNS_FAILED, NULL, 1);
}

static void test_unknown_means_no(void **state)
{
	struct want w = {0};
	uint64_t before = counter_sum(COUNTER_DIAL_ATTEMPTS);

	start_as(&w, "nobody", "good.example.org", 443);
	await(&w);
	assert_int_not_equal(w.result.verdict, VERDICT_ALLOW);
	memset(&w, 0, sizeof(w));
	start_as(&w, "a-role-with-a-name-that-is-much-longer-than-any-role-can-have-in-a-policy", "93.184.216.34", 443);
	await(&w);
	assert_int_not_equal(w.result.verdict, VERDICT_ALLOW);
	memset(&w, 0, sizeof(w));
	start_as(&w, "agent", "93.184.216.34", 22);
	await(&w);
	assert_int_not_equal(w.result.verdict, VERDICT_ALLOW);
	policy = NULL;
	assert_int_not_equal(dial("good.example.org").verdict, VERDICT_ALLOW);
	assert_int_not_equal(dial("93.184.216.34").verdict, VERDICT_ALLOW);
	assert_int_equal(counter_sum(COUNTER_DIAL_ATTEMPTS), before);
}

/* A name that flips between a public and a loopback address: each dial lives by its own answer. */
static void test_flipping(void **state)
{
	for (int i = 0; i < 20; i++) {
		struct dial_result r = dial("flipping.example.org");

		if (r.verdict == VERDICT_ALLOW) {
			assert_result_addr(&r, "93.184.216.34");
			close(r.fd);
		} else {
			assert_int_equal(r.verdict, VERDICT_ADDRESS_LOOPBACK);
		}
		assert_int_equal(r.verdict == VERDICT_ALLOW, i % 2 == 0);
	}
}

static void change_policy(evutil_socket_t fd, short what, void *arg)
{
	policy = policies[1];
}

/* The policy changes while the first address is silent: the second is judged by the new one, and not dialed. */
static void test_policy_change(void **state)
{
	struct timeval tv = {.tv_usec = 100000};
	struct want w = {0};
	uint64_t before = counter_sum(COUNTER_DIAL_ATTEMPTS);

	event_base_once(base, -1, EV_TIMEOUT, change_policy, NULL, &tv);
	start(&w, "hole_then_good.example.org");
	await(&w);
	assert_int_equal(w.result.verdict, VERDICT_ADDRESS_DENIED);
	assert_result_addr(&w.result, "93.184.216.34");
	assert_true(w.result.rule_line > 0);
	assert_int_equal(counter_sum(COUNTER_DIAL_ATTEMPTS) - before, 1);
}

/* The policy changes between connect() and its success. */
static void test_policy_change_while_connecting(void **state)
{
	struct want w = {0};

	start(&w, "93.184.216.34");
	event_base_loop(base, EVLOOP_NONBLOCK);
	if (w.calls == 0)
		policy = policies[1];
	await(&w);
	if (policy == policies[1])
		assert_int_equal(w.result.verdict, VERDICT_ADDRESS_DENIED);
	else
		close(w.result.fd);
}

/* An address of this host that was not known in time is noticed by both ends being the same. */
static void test_own_address_unknown(void **state)
{
	int kept = dup(fd_ask), null = open("/dev/null", O_RDWR | O_CLOEXEC), listener;
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(443)};

	assert_true(dup2(null, fd_ask) == fd_ask);
	assert_true(run("ip addr add 93.184.217.9/32 dev g0"));
	inet_pton(AF_INET, "93.184.217.9", &a.sin_addr);
	listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_int_equal(bind(listener, (struct sockaddr *)&a, sizeof(a)), 0);
	assert_int_equal(listen(listener, 8), 0);
	assert_fails("own_late.example.org", VERDICT_ADDRESS_OWN, "93.184.217.9", 1);
	assert_true(dup2(kept, fd_ask) == fd_ask);
	assert_fails("own_late.example.org", VERDICT_ADDRESS_OWN, "93.184.217.9", 0);
	close(listener);
	close(kept);
	close(null);
	assert_true(run("ip addr del 93.184.217.9/32 dev g0"));
}

static void test_cached(void **state)
{
	struct dial_result r;

	teardown(state);
	setup_with(900, 2000, 10);
	r = dial("good.example.org");
	assert_false(r.dns_cached);
	close(r.fd);
	r = dial("good.example.org");
	assert_true(r.dns_cached);
	close(r.fd);
	/* Addresses are cached, verdicts are not. */
	policy = policies[1];
	assert_fails("good.example.org", VERDICT_ADDRESS_DENIED, "93.184.216.34", 0);
}

/* Cancelled at once, while looking up, while connecting, and from another's callback; nothing is left open. */
static void test_cancel(void **state)
{
	struct want w[4] = {{0}};
	int fds;

	assert_connected("good.example.org", "93.184.216.34");
	fds = count_fds();
	start(&w[0], "93.184.216.34");
	w[0].dial = dial_cancel(w[0].dial);
	start(&w[0], "hole.example.org");
	start(&w[1], "late_good.example.org");
	start(&w[2], "good.example.org");
	w[0].dial = dial_cancel(w[0].dial);
	w[2].cancel = &w[1];
	await(&w[2]);
	assert_int_equal(w[2].result.verdict, VERDICT_ALLOW);
	close(w[2].result.fd);
	start(&w[3], "93.184.216.36");
	event_base_loopexit(base, &(struct timeval){.tv_usec = 400000});
	event_base_dispatch(base);
	w[3].dial = dial_cancel(w[3].dial);
	assert_int_equal(w[0].calls, 0);
	assert_int_equal(w[1].calls, 0);
	assert_int_equal(w[3].calls, 0);
	assert_null(dial_cancel(NULL));
	assert_int_equal(count_fds(), fds);
}

/* Every way to end, many times: as many descriptors as before. */
static void test_no_leak(void **state)
{
	static const char *names[] = {"good", "dead6", "refusing", "mixed", "late_private", "nothing", "late_good"};
	struct want w[70] = {{0}};
	int fds;

	assert_connected("good.example.org", "93.184.216.34");
	fds = count_fds();
	for (size_t i = 0; i < 70; i++) {
		char name[64];

		snprintf(name, sizeof(name), "%s.example.org", names[i % 7]);
		start(&w[i], name);
	}
	for (size_t i = 0; i < 70; i++) {
		await(&w[i]);
		if (w[i].result.fd >= 0)
			close(w[i].result.fd);
	}
	assert_int_equal(count_fds(), fds);
}

static void test_no_descriptors(void **state)
{
	struct rlimit old, now;
	struct dial_result r;
	int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);

	assert_int_equal(getrlimit(RLIMIT_NOFILE, &old), 0);
	now = old;
	now.rlim_cur = (rlim_t)fd;
	close(fd);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &now), 0);
	r = dial("93.184.216.34");
	setrlimit(RLIMIT_NOFILE, &old);
	assert_int_equal(r.verdict, VERDICT_OVERLOADED);
	assert_connected("93.184.216.34", "93.184.216.34");
}

static void test_free_in_flight(void **state)
{
	struct want w[3] = {{0}};

	start(&w[0], "silent.example.org");
	start(&w[1], "93.184.216.36");
	event_base_loop(base, EVLOOP_NONBLOCK);
	start(&w[2], "93.184.216.34");
	dialer = dialer_free(dialer);
	for (int i = 0; i < 3; i++)
		assert_int_equal(w[i].calls, 0);
	assert_null(dialer_free(NULL));
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
	const struct CMUnitTest tests[] = {
		T(test_connected), T(test_not_reached), T(test_race), T(test_refused_before_connecting),
		T(test_refused_while_dialing), T(test_unknown_means_no), T(test_flipping), T(test_policy_change),
		T(test_policy_change_while_connecting), T(test_own_address_unknown), T(test_cached), T(test_cancel),
		T(test_no_leak), T(test_no_descriptors), T(test_free_in_flight),
	};
#undef T
	pid_t pid = make_world();
	int r;

	if (pid < 0) {
		puts("# skipped: no network namespaces of its own");
		return 0;
	}
	if (counter_attach() < 0 || !server_start(&server, "127.0.0.1", 0))
		return 1;
	r = cmocka_run_group_tests_name("dialer", tests, NULL, NULL);
	server_stop(&server);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	return r;
}
