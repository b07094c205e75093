/* The resolver against a real name server on loopback (dns_server.h) that answers well, badly, late or not at all. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "base/clock.h"
#include "base/counter.h"
#include "dns_scripts.h"
#include "net/resolver.h"

static struct dns_server server = {.scripts = scripts, .n_scripts = sizeof(scripts) / sizeof(scripts[0])};

/* --- lookups --- */

static struct event_base *base;
static struct resolver *resolver;

struct want {
	struct lookup *lookup;
	int calls;
	bool inside;        /* resolver_lookup() has not returned yet */
	bool stop;          /* leave the loop when complete */
	struct answer partial, answer;
	struct want *cancel; /* in the callback */
	const char *again;   /* look this up in the callback */
	struct want *again_into;
};

static void on_answer(void *arg, const struct answer *a);

static int look_up(struct want *w, const char *name)
{
	int r;

	w->inside = true;
	r = resolver_lookup(resolver, str_from(name), on_answer, w, &w->lookup);
	w->inside = false;
	return r;
}

static void on_answer(void *arg, const struct answer *a)
{
	struct want *w = arg;

	assert_false(w->inside);
	assert_non_null(w->lookup);
	w->calls++;
	if (!a->complete) {
		assert_int_equal(w->calls, 1);
		assert_int_equal(a->status, VERDICT_ALLOW);
		w->partial = *a;
		return;
	}
	w->answer = *a;
	w->lookup = NULL;
	if (w->cancel)
		w->cancel->lookup = lookup_cancel(w->cancel->lookup);
	if (w->again)
		assert_int_equal(look_up(w->again_into, w->again), 0);
	if (w->stop)
		event_base_loopbreak(base);
}

/* Runs the loop until the lookup is complete, or for five seconds. */
static void await(struct want *w)
{
	struct timeval most = {.tv_sec = 5};

	if (!w->lookup)
		return;
	w->stop = true;
	event_base_loopexit(base, &most);
	event_base_dispatch(base);
	assert_null(w->lookup);
}

static struct want ask(const char *name)
{
	struct want w = {0};

	assert_int_equal(look_up(&w, name), 0);
	await(&w);
	assert_int_equal(w.answer.complete, true);
	return w;
}

static void assert_addr(const struct answer *a, size_t i, const char *text)
{
	char got[ADDR_TEXT_MAX];

	assert_true(i < a->n);
	addr_format(&a->addrs[i], got);
	assert_string_equal(got, text);
}

static void assert_status(const char *name, enum verdict v)
{
	struct want w = ask(name);

	if (w.answer.status != v)
		print_error("%s: %s, expected %s\n", name, verdict_code(w.answer.status), verdict_code(v));
	assert_int_equal(w.answer.status, v);
	if (v != VERDICT_ALLOW)
		assert_int_equal(w.answer.n, 0);
}

static unsigned asked(const char *name)
{
	unsigned a, aaaa, tcp;

	server_count(&server, name, &a, &aaaa, &tcp);
	return a + aaaa + tcp;
}

static void open_resolver(const char *servers, unsigned cache)
{
	struct resolver_config config = {.servers = servers, .timeout_ms = 200, .tries = 2, .cache_entries = cache};

	base = event_base_new();
	assert_non_null(base);
	assert_int_equal(resolver_new(base, &config, &resolver), 0);
}

static int setup(void **state)
{
	char servers[64];

	snprintf(servers, sizeof(servers), "127.0.0.1:%u", server.port);
	open_resolver(servers, 100);
	return 0;
}

static int teardown(void **state)
{
	clock_set_source(NULL, NULL);
	resolver = resolver_free(resolver);
	event_base_free(base);
	return 0;
}

/* --- tests --- */

static void test_success(void **state)
{
	struct want w = ask("ok.example.org");

	assert_int_equal(w.answer.status, VERDICT_ALLOW);
	assert_int_equal(w.calls, 1);
	assert_int_equal(w.answer.n, 2);
	assert_addr(&w.answer, 0, "2606:2800:220:1::1");
	assert_addr(&w.answer, 1, "93.184.216.34");
	assert_false(w.answer.cached);
	w = ask("a.example.org");
	assert_int_equal(w.answer.n, 1);
	w = ask("nx6.example.org");
	assert_int_equal(w.answer.n, 1);
	w = ask("halfok.example.org");
	assert_int_equal(w.answer.n, 1);
	assert_addr(&w.answer, 0, "93.184.216.34");
	w = ask("chain10.example.org");
	assert_addr(&w.answer, 0, "93.184.216.36");
	w = ask("mapped.example.org");
	assert_addr(&w.answer, 0, "10.0.0.9");
}

static void test_failures(void **state)
{
	assert_status("nx.example.org", VERDICT_DNS_NOT_FOUND);
	assert_status("nodata.example.org", VERDICT_DNS_NOT_FOUND);
	assert_status("servfail.example.org", VERDICT_DNS_FAILED);
	assert_status("refused.example.org", VERDICT_DNS_FAILED);
	assert_status("formerr.example.org", VERDICT_DNS_FAILED);
	assert_status("rcode9.example.org", VERDICT_DNS_FAILED);
	assert_status("half.example.org", VERDICT_DNS_FAILED);
	assert_status("silent.example.org", VERDICT_DNS_TIMEOUT);
	assert_status("silent6nx.example.org", VERDICT_DNS_TIMEOUT);
}

static void test_hostile_replies(void **state)
{
	assert_status("loop.example.org", VERDICT_DNS_FAILED);
	assert_status("self.example.org", VERDICT_DNS_FAILED);
	assert_status("chain20.example.org", VERDICT_DNS_FAILED);
	assert_status("ptrself.example.org", VERDICT_DNS_FAILED);
	assert_status("ptrend.example.org", VERDICT_DNS_FAILED);
	assert_status("past.example.org", VERDICT_DNS_FAILED);
	assert_status("hostile.example.org", VERDICT_DNS_FAILED);
	assert_status("noqr.example.org", VERDICT_DNS_FAILED);
	assert_status("short.example.org", VERDICT_DNS_NOT_FOUND);
	assert_status("chaos.example.org", VERDICT_DNS_NOT_FOUND);
	assert_status("owner.example.org", VERDICT_DNS_NOT_FOUND);
	assert_status("wrongq.example.org", VERDICT_DNS_TIMEOUT);
	assert_status("wrongid.example.org", VERDICT_DNS_TIMEOUT);
}

static void test_large_answers(void **state)
{
	struct want w = ask("big.example.org");
	unsigned a, aaaa, tcp;

	assert_int_equal(w.answer.status, VERDICT_ALLOW);
	assert_int_equal(w.answer.n, 30);
	server_count(&server, "big.example.org", &a, &aaaa, &tcp);
	assert_int_equal(a, 1);
	assert_int_equal(aaaa, 1);
	assert_int_equal(tcp, 1);
	w = ask("biguntold.example.org");
	assert_int_equal(w.answer.n, 32);
	w = ask("16.example.org");
	assert_int_equal(w.answer.n, 32);
	assert_addr(&w.answer, 0, "2606:2800::1");
	assert_addr(&w.answer, 16, "93.184.216.1");
	assert_status("17.example.org", VERDICT_DNS_FAILED);
	assert_status("33.example.org", VERDICT_DNS_FAILED);
	assert_status("1000.example.org", VERDICT_DNS_FAILED);
	assert_status("tc.example.org", VERDICT_DNS_FAILED);
}

/* A server that hangs up on TCP fails the lookup that needs it, and no lookup that does not. */
static void test_tcp_failure_is_alone(void **state)
{
	struct want bad[8] = {{0}}, slow = {0};

	assert_int_equal(look_up(&slow, "late.example.org"), 0);
	for (int i = 0; i < 8; i++)
		assert_int_equal(look_up(&bad[i], "hangup.example.org"), 0);
	await(&slow);
	assert_int_equal(slow.answer.status, VERDICT_ALLOW);
	assert_int_equal(slow.answer.n, 2);
	for (int i = 0; i < 8; i++) {
		await(&bad[i]);
		assert_int_equal(bad[i].answer.status, VERDICT_DNS_FAILED);
	}
	assert_int_equal(asked("late.example.org"), 2);
	assert_status("OK2.example.org", VERDICT_ALLOW);
}

static void test_one_family_late(void **state)
{
	struct want w = {0}, second = {0}, other = {0};
	uint64_t start = clock_mono_ms();

	assert_int_equal(look_up(&w, "slow6.example.org"), 0);
	await(&w);
	assert_true(clock_mono_ms() - start >= 140);
	assert_int_equal(w.calls, 2);
	assert_int_equal(w.partial.n, 1);
	assert_addr(&w.partial, 0, "93.184.216.34");
	assert_int_equal(w.answer.n, 2);
	w = ask("slow6.example.org");
	assert_true(w.answer.cached);
	assert_int_equal(w.answer.n, 2);

	memset(&w, 0, sizeof(w));
	assert_int_equal(look_up(&w, "silent6.example.org"), 0);
	while (w.calls == 0)
		event_base_loop(base, EVLOOP_ONCE);
	assert_int_equal(w.partial.n, 1);
	/* An incomplete answer is not in the cache; who comes now joins, and is told the same at once. */
	assert_int_equal(look_up(&second, "silent6.example.org"), 0);
	assert_int_equal(look_up(&other, "ok.example.org"), 0);
	await(&other);
	assert_int_equal(second.calls, 1);
	assert_false(second.partial.cached);
	await(&second);
	assert_int_equal(second.calls, 2);
	assert_null(w.lookup);
	assert_int_equal(w.calls, 2);
	assert_int_equal(w.answer.status, VERDICT_ALLOW);
	assert_int_equal(w.answer.n, 1);
}

static void test_joined(void **state)
{
	struct want w[5] = {{0}};
	uint64_t joined = counter_sum(COUNTER_DNS_JOINED), queries = counter_sum(COUNTER_DNS_QUERIES);
	unsigned a, aaaa, tcp;

	for (int i = 0; i < 5; i++)
		assert_int_equal(look_up(&w[i], "joined.example.org"), 0);
	for (int i = 0; i < 5; i++) {
		await(&w[i]);
		assert_int_equal(w[i].answer.n, 2);
		assert_false(w[i].answer.cached);
	}
	server_count(&server, "joined.example.org", &a, &aaaa, &tcp);
	assert_int_equal(a, 1);
	assert_int_equal(aaaa, 1);
	assert_int_equal(tcp, 0);
	assert_int_equal(counter_sum(COUNTER_DNS_JOINED) - joined, 4);
	assert_int_equal(counter_sum(COUNTER_DNS_QUERIES) - queries, 2);
}

/* Nothing but the name itself is asked, whatever the environment says. */
static void test_environment_has_no_say(void **state)
{
	char servers[64], aliases[] = "/tmp/test_resolver.XXXXXX";
	int fd = mkstemp(aliases);
	unsigned unknown = server.unknown, before = asked("*.ok.test");

	assert_true(fd >= 0);
	assert_true(write(fd, "single evil.ok.test\n", 20) == 20);
	close(fd);
	setenv("HOSTALIASES", aliases, 1);
	setenv("LOCALDOMAIN", "ok.test", 1);
	setenv("RES_OPTIONS", "ndots:9 retrans:60000 retry:1 rotate", 1);
	teardown(state);
	snprintf(servers, sizeof(servers), "127.0.0.1:%u", server.port);
	open_resolver(servers, 0);
	assert_status("nx.example.org", VERDICT_DNS_NOT_FOUND);
	assert_status("single", VERDICT_DNS_FAILED);
	assert_status("silent.example.org", VERDICT_DNS_TIMEOUT);
	assert_int_equal(asked("*.ok.test"), before);
	assert_int_equal(server.unknown - unknown, 4); /* "single": two families, two tries, REFUSED */
	unsetenv("HOSTALIASES");
	unsetenv("LOCALDOMAIN");
	unsetenv("RES_OPTIONS");
	unlink(aliases);
}

static uint64_t virtual_ns;

static uint64_t virtual_clock(void *arg)
{
	return virtual_ns;
}

/* Cached for exactly `s` seconds: there a moment before, asked again at the end. */
static void assert_kept_for(const char *name, uint64_t s)
{
	struct want w = ask(name);
	unsigned before = asked(name);
	enum verdict status = w.answer.status;

	assert_false(w.answer.cached);
	virtual_ns += s * 1000000000 - 1000000;
	w = ask(name);
	assert_true(w.answer.cached);
	assert_true(w.answer.complete);
	assert_int_equal(w.answer.status, status);
	assert_int_equal(asked(name), before);
	virtual_ns += 1000000;
	w = ask(name);
	assert_false(w.answer.cached);
	assert_true(asked(name) > before);
}

static void test_cache(void **state)
{
	virtual_ns = clock_mono_ns();
	clock_set_source(virtual_clock, NULL);
	assert_kept_for("ok.example.org", 60);
	assert_kept_for("ttl0.example.org", LIMIT_TTL_MIN_S);
	assert_kept_for("ttlhuge.example.org", LIMIT_TTL_MAX_S);
	assert_kept_for("cname.example.org", 7);
	assert_kept_for("nx.example.org", LIMIT_TTL_NEGATIVE_S);
	assert_kept_for("nodata.example.org", LIMIT_TTL_NEGATIVE_S);
	assert_kept_for("servfail.example.org", LIMIT_TTL_NEGATIVE_S);
	assert_kept_for("halfok.example.org", LIMIT_TTL_NEGATIVE_S); /* the half that failed is asked again soon */
}

static void test_cancel(void **state)
{
	struct want w[4] = {{0}}, cached = {0}, fresh = {0};

	for (int i = 0; i < 4; i++)
		assert_int_equal(look_up(&w[i], "joined.example.org"), 0);
	w[0].cancel = &w[2];
	w[0].again = "a.example.org";
	w[0].again_into = &fresh;
	w[1].lookup = lookup_cancel(w[1].lookup);
	await(&w[3]);
	assert_int_equal(w[0].calls, 1);
	assert_int_equal(w[1].calls, 0);
	assert_int_equal(w[2].calls, 0);
	assert_int_equal(w[3].calls, 1);
	await(&fresh);
	assert_int_equal(fresh.answer.status, VERDICT_ALLOW);

	/* One from the cache, before it was told. */
	assert_int_equal(look_up(&cached, "joined.example.org"), 0);
	assert_null(lookup_cancel(cached.lookup));
	assert_null(lookup_cancel(NULL));

	/* All have left: the query goes on for the cache. */
	memset(w, 0, sizeof(w));
	assert_int_equal(look_up(&w[0], "slow6.example.org"), 0);
	w[0].lookup = lookup_cancel(w[0].lookup);
	for (int i = 0; i < 40 && asked("slow6.example.org") < 2; i++)
		event_base_loop(base, EVLOOP_NONBLOCK);
	event_base_loopexit(base, &(struct timeval){.tv_usec = 300000});
	event_base_dispatch(base);
	w[1] = ask("slow6.example.org");
	assert_true(w[1].answer.cached);
	assert_int_equal(w[0].calls, 0);
}

/* Freed with queries in flight, answers waiting to be told, and a lookup that was told its first half. */
static void test_free_in_flight(void **state)
{
	struct want partial = {0}, due = {0}, waiting = {0}, left = {0};

	ask("ok.example.org");
	assert_int_equal(look_up(&partial, "silent6.example.org"), 0);
	while (partial.calls == 0)
		event_base_loop(base, EVLOOP_ONCE);
	assert_int_equal(look_up(&waiting, "silent.example.org"), 0);
	assert_int_equal(look_up(&left, "late.example.org"), 0);
	left.lookup = lookup_cancel(left.lookup);
	assert_int_equal(look_up(&due, "ok.example.org"), 0);
	resolver = resolver_free(resolver);
	assert_int_equal(due.calls, 0);
	assert_int_equal(waiting.calls, 0);
	assert_int_equal(partial.calls, 1);
	assert_null(resolver_free(NULL));
}

static void test_limits(void **state)
{
	struct want w = {0}, *many = calloc(LIMIT_LOOKUPS, sizeof(*many));
	char name[64];
	unsigned i;

	assert_non_null(many);
	for (i = 0; i < LIMIT_LOOKUP_WAITERS; i++)
		assert_int_equal(look_up(&many[0], "silent.example.org"), 0);
	assert_int_equal(look_up(&w, "silent.example.org"), -EBUSY);
	assert_null(w.lookup);
	for (i = 1; i < LIMIT_LOOKUPS; i++) {
		snprintf(name, sizeof(name), "n%u.silent.test", i);
		assert_int_equal(look_up(&many[i], name), 0);
	}
	assert_int_equal(look_up(&w, "one-too-many.silent.test"), -EBUSY);
	assert_int_equal(look_up(&w, "silent.example.org"), -EBUSY);
	teardown(state);
	free(many);
	setup(state);
}

static void test_names_that_host_parse_refuses(void **state)
{
	struct want w = {0};
	char label[300];

	memset(label, 'a', sizeof(label));
	assert_int_equal(look_up(&w, ""), -EINVAL);
	assert_int_equal(look_up(&w, "a\\.b.example.org"), -EINVAL);
	assert_int_equal(look_up(&w, "a b.example.org"), -EINVAL);
	assert_int_equal(resolver_lookup(resolver, (struct str){"a\0b.example", 11}, on_answer, &w, &w.lookup), -EINVAL);
	assert_int_equal(resolver_lookup(resolver, (struct str){label, 254}, on_answer, &w, &w.lookup), -EINVAL);
	/* A label too long is c-ares' business, from inside the call: told from the loop all the same. */
	assert_int_equal(resolver_lookup(resolver, (struct str){label, 200}, on_answer, &w, &w.lookup), 0);
	await(&w);
	assert_int_equal(w.answer.status, VERDICT_DNS_FAILED);
}

/* The first server is dead, the second works; and one over IPv6 that nobody answers at. */
static void test_several_servers(void **state)
{
	char servers[128];
	int fd = socket(AF_INET, SOCK_DGRAM, 0);
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t len = sizeof(a);

	assert_int_equal(bind(fd, (struct sockaddr *)&a, len), 0);
	assert_int_equal(getsockname(fd, (struct sockaddr *)&a, &len), 0);
	close(fd);
	teardown(state);
	snprintf(servers, sizeof(servers), "127.0.0.1:%u,[::1]:%u,127.0.0.1:%u", ntohs(a.sin_port), ntohs(a.sin_port),
		 server.port);
	open_resolver(servers, 0);
	assert_status("ok.example.org", VERDICT_ALLOW);
	assert_status("nx.example.org", VERDICT_DNS_NOT_FOUND);
}

static void test_no_servers(void **state)
{
	struct resolver_config config = {.timeout_ms = 200, .tries = 2, .resolv_conf = "/nonexistent/resolv.conf"};
	struct resolver *r = NULL;
	const char *why = NULL;

	assert_int_equal(resolver_check(&config, &why), -EINVAL);
	assert_non_null(why);
	assert_int_equal(resolver_new(base, &config, &r), -EINVAL);
	assert_null(r);
	config.resolv_conf = "/dev/null";
	assert_int_equal(resolver_check(&config, &why), -EINVAL);
	config.resolv_conf = "/dev/zero";
	assert_int_equal(resolver_check(&config, &why), -EINVAL);
	config.servers = "192.0.2.1";
	assert_int_equal(resolver_check(&config, &why), 0);
	config.tries = 0;
	assert_int_equal(resolver_check(&config, &why), -EINVAL);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
	const struct CMUnitTest tests[] = {
		T(test_success), T(test_failures), T(test_hostile_replies), T(test_large_answers),
		T(test_tcp_failure_is_alone), T(test_one_family_late), T(test_joined), T(test_environment_has_no_say),
		T(test_cache), T(test_cancel), T(test_free_in_flight), T(test_limits),
		T(test_names_that_host_parse_refuses), T(test_several_servers), T(test_no_servers),
	};
#undef T
	int r;

	if (counter_attach() < 0 || !server_start(&server, "127.0.0.1", 0))
		return 1;
	r = cmocka_run_group_tests_name("resolver", tests, NULL, NULL);
	server_stop(&server);
	return r;
}
