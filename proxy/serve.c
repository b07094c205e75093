/* serve: boot, run, reload and stop, in numbered steps.
 *
 *   1 read the configuration    4 make the workers (names, own addresses)    7 start the workers, fit to the file limit
 *   2 load the policy           5 open the metrics                           8 all of them run: ready; the loop
 *   3 open the listeners        6 open the log                               9 drain and stop
 *
 * Until step 6 every error is one line on stderr and exit status 2; nothing has been served by then. The main thread owns
 * the signals, the policy loader and the metrics; workers are told by mail and wake it through an eventfd. A reload compiles the new policy on
 * this thread, then hands one reference to each worker; only when all have it in force is it called loaded. A file that
 * does not compile changes nothing. */
#include "serve.h"

#include <errno.h>
#include <event2/event.h>
#include <inttypes.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <systemd/sd-daemon.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/counter.h"
#include "base/fd.h"
#include "base/log.h"
#include "config.h"
#include "control/metrics.h"
#include "doors.h"
#include "limits.h"
#include "relay/relay.h"
#include "version.h"

enum { EXIT_BROKEN = 1, EXIT_USAGE = 2 };

/* What a worker has yet to be told. */
struct owed {
	bool policy;              /* the one in force */
	enum mail_kind word;      /* MAIL_DRAIN or MAIL_STOP; MAIL_NONE: nothing */
};

struct guard {
	struct config config;
	struct event_base *base;
	struct event *signals[5];
	struct event *wake, *retry;
	int wake_fd;
	struct policy *policy;
	double policy_loaded_s, started_s;
	struct relay_shared shared;
	struct worker **workers;
	struct relay **relays;
	struct owed *owed;        /* one per worker */
	uint64_t generation;      /* counts reloads */
	size_t n_workers;
	struct metrics *metrics;
	bool ready, reloading, stopping, failed;
};

static double wall_s(void)
{
	return (double)clock_wall_ns() / 1e9;
}

/* --- files --- */

void serve_print_problems(const char *path, const struct policy_problems *problems)
{
	for (size_t i = 0; i < problems->n; i++) {
		const struct policy_problem *p = &problems->items[i];

		/* While the guard runs its log is the place: stderr may have a reader that is stuck. */
		if (log_running())
			log_event(LOG_POLICY_PROBLEM, "%s:%" PRIu32 ":%" PRIu32 ": %s%s%s", path, p->line, p->column, p->message,
				  p->hint ? "; hint: " : "", p->hint ? p->hint : "");
		else
			fprintf(stderr, "%s:%" PRIu32 ":%" PRIu32 ": %s%s%s\n", path, p->line, p->column, p->message,
				p->hint ? "; hint: " : "", p->hint ? p->hint : "");
	}
	if (problems->dropped)
		log_event(LOG_POLICY_PROBLEM, "%s: and %zu more", path, problems->dropped);
}

static int read_text(const char *path, size_t max, char **ret, size_t *ret_n)
{
	int r = config_read_file(path, max, ret, ret_n);

	if (r == -EFBIG)
		log_event(LOG_POLICY_PROBLEM, "%s is larger than %zu bytes", path, max);
	else if (r < 0)
		log_event(LOG_POLICY_PROBLEM, "cannot read %s: %s", path, strerror(-r));
	return r;
}

/* What no policy may allow, asked of the very judges that will serve: a guard that fails this must not start. The table
 * of addresses is asked by itself, since a literal without an address rule is refused whatever the table says. */
static bool self_test(const struct policy *p)
{
	static const struct {
		const char *host;
		enum verdict verdict;
	} probes[] = {
		{"169.254.169.254", VERDICT_ADDRESS_LINK_LOCAL}, {"127.0.0.1", VERDICT_ADDRESS_LOOPBACK},
		{"10.0.0.1", VERDICT_ADDRESS_PRIVATE},           {"[::1]", VERDICT_ADDRESS_LOOPBACK},
		{"[fd00:ec2::254]", VERDICT_ADDRESS_METADATA},   {"[64:ff9b::a9fe:a9fe]", VERDICT_ADDRESS_LINK_LOCAL},
		{"224.0.0.1", VERDICT_ADDRESS_MULTICAST},        {"240.0.0.1", VERDICT_ADDRESS_RESERVED},
		{"localhost", VERDICT_NAME_SPECIAL},             {"metadata.google.internal", VERDICT_NAME_SPECIAL},
	};
	struct policy_target t;

	for (int role = -1; role < (int)policy_n_roles(p); role++) {
		for (size_t i = 0; i < 2 * sizeof(probes) / sizeof(probes[0]); i++) {
			enum verdict expected = probes[i / 2].verdict, said;

			t.port = i % 2 ? 443 : 80;
			if (!host_parse(str_from(probes[i / 2].host), &t.host, NULL))
				return false;
			said = t.host.kind == HOST_ADDR ? policy_judge_address(p, role, &t.host.addr, t.port, NULL).verdict
							: policy_judge_target(p, role, &t, NULL).verdict;
			if (said != expected)
				return false;
			t.port = 22;
			if (policy_judge_target(p, role, &t, NULL).verdict != VERDICT_PORT_NOT_ALLOWED)
				return false;
		}
	}
	return true;
}

int serve_load_policy(const char *path, struct policy **ret)
{
	struct policy_problems problems = {0};
	struct policy *p = NULL;
	char *text;
	size_t n;
	int r = read_text(path, POLICY_TEXT_MAX, &text, &n);

	if (r < 0)
		return r;
	r = policy_compile((struct str){text, n}, &p, &problems);
	serve_print_problems(path, &problems);
	if (r == -ENOMEM)
		log_event(LOG_POLICY_PROBLEM, "%s: out of memory", path);
	if (r == 0 && !self_test(p)) {
		log_event(LOG_POLICY_PROBLEM, "%s: self-test failed: a built-in refusal did not hold", path);
		p = policy_unref(p);
		r = -EINVAL;
	}
	policy_problems_clear(&problems);
	free(text);
	if (r == 0 && ret)
		*ret = p;
	else
		policy_unref(p);
	return r;
}

/* Every listener's role must be there: a guard that refuses everything by a misspelt name surprises. */
static int check_roles(const struct guard *g, const struct policy *p)
{
	for (size_t i = 0; i < g->config.n_listen; i++) {
		const struct config_listen *l = &g->config.listen[i];

		if (policy_role(p, str_from(l->role)) < 0) {
			log_event(LOG_POLICY_PROBLEM, "%s: no role \"%s\", which the listener %s needs",
				g->config.policy_path, l->role, l->text);
			return -EINVAL;
		}
	}
	return 0;
}

static int read_config(struct guard *g, const char *path)
{
	struct policy_problems problems = {0};
	struct resolver_config dns;
	const char *why = NULL;
	char *text;
	size_t n;
	int r = read_text(path, 1024 * 1024, &text, &n);

	if (r < 0)
		return r;
	r = config_read((struct str){text, n}, path, &g->config, &problems);
	serve_print_problems(path, &problems);
	if (r == -ENOMEM)
		fprintf(stderr, "egress-guard: %s: out of memory\n", path);
	policy_problems_clear(&problems);
	free(text);
	if (r < 0)
		return r;
	dns = (struct resolver_config){.servers = g->config.dns_servers, .timeout_ms = (unsigned)g->config.dns_timeout_ms,
				       .tries = (unsigned)g->config.dns_tries};
	r = resolver_check(&dns, &why);
	if (r < 0)
		fprintf(stderr, "egress-guard: no name server to ask: %s\n", why ? why : strerror(-r));
	return r;
}

static int load_first_policy(struct guard *g)
{
	int r = serve_load_policy(g->config.policy_path, &g->policy);

	if (r == 0)
		r = check_roles(g, g->policy);
	g->policy_loaded_s = wall_s();
	return r;
}

static size_t count_processors(void)
{
	cpu_set_t set;

	if (sched_getaffinity(0, sizeof(set), &set) < 0 || CPU_COUNT(&set) < 1)
		return 1;
	return (size_t)CPU_COUNT(&set);
}

static int make_relays(struct guard *g)
{
	g->relays = calloc(g->n_workers, sizeof(*g->relays));
	if (!g->relays)
		return -ENOMEM;
	for (size_t w = 0; w < g->n_workers; w++) {
		g->relays[w] = relay_new(&g->shared, g->config.n_listen);
		if (!g->relays[w])
			return -ENOMEM;
	}
	return 0;
}

static void metrics_facts(void *arg, struct metrics_facts *ret)
{
	struct guard *g = arg;

	*ret = (struct metrics_facts){.policy_hash = policy_hash(g->policy), .policy_loaded_s = g->policy_loaded_s,
				      .started_s = g->started_s, .workers = (unsigned)g->n_workers};
}

static int open_metrics(struct guard *g)
{
	int fd, r;

	if (!g->config.has_metrics)
		return 0;
	r = listener_open(&g->config.metrics, false, &fd);
	if (r == 0)
		r = metrics_new(g->base, fd, metrics_facts, g, &g->metrics);
	if (r < 0)
		fprintf(stderr, "egress-guard: cannot serve metrics: %s\n", strerror(-r));
	return r;
}

/* --- reload --- */

/* Sends each worker what it is owed; what finds a full mailbox stays owed until the next try. */
static void post(struct guard *g)
{
	const struct timeval soon = {.tv_usec = 20 * 1000};
	bool some_owed = false;

	for (size_t i = 0; i < g->n_workers; i++) {
		struct owed *o = &g->owed[i];
		struct mail policy = {.kind = MAIL_POLICY, .policy = g->policy, .generation = g->generation};
		struct mail word = {.kind = o->word};

		if (o->policy) {
			policy_ref(g->policy);
			o->policy = worker_send(g->workers[i], &policy) < 0;
			if (o->policy)
				policy_unref(g->policy);
		}
		if (o->word != MAIL_NONE && worker_send(g->workers[i], &word) == 0)
			o->word = MAIL_NONE;
		some_owed |= o->policy || o->word != MAIL_NONE;
	}
	if (some_owed)
		event_add(g->retry, &soon);
}

static void tell_all(struct guard *g, enum mail_kind word)
{
	for (size_t i = 0; i < g->n_workers; i++)
		g->owed[i].word = word;
	post(g);
}

static void on_retry(evutil_socket_t fd, short what, void *arg)
{
	post(arg);
}

static void reload(struct guard *g)
{
	struct policy *p;
	int r = log_reopen();

	if (r < 0)
		log_event(LOG_LOG_REOPEN_FAILED, "%s: %s; the old file stays in use", g->config.log_path, strerror(-r));
	sd_notify(0, "RELOADING=1");
	r = serve_load_policy(g->config.policy_path, &p);
	if (r == 0 && check_roles(g, p) < 0) {
		policy_unref(p);
		r = -EINVAL;
	}
	if (r < 0) {
		counter_inc(COUNTER_RELOADS_FAILED);
		log_event(LOG_POLICY_REFUSED, "%s was not loaded (%s); the policy %016" PRIx64 " stays in force",
			  g->config.policy_path, r == -EINVAL ? "it has errors" : strerror(-r), policy_hash(g->policy));
		sd_notify(0, "READY=1");
		return;
	}
	policy_unref(g->policy);
	g->policy = p;
	g->reloading = true;
	g->generation++;
	for (size_t i = 0; i < g->n_workers; i++)
		g->owed[i].policy = true;
	post(g);
}

/* All workers judge by the new policy: now it is loaded. */
static void finish_reload(struct guard *g)
{
	for (size_t i = 0; i < g->n_workers; i++)
		if (atomic_load(&g->workers[i]->generation) != g->generation)
			return;
	g->reloading = false;
	g->policy_loaded_s = wall_s();
	counter_inc(COUNTER_RELOADS_OK);
	log_event(LOG_POLICY_LOADED, "%s is in force: %zu roles, hash %016" PRIx64, g->config.policy_path,
		  policy_n_roles(g->policy), policy_hash(g->policy));
	sd_notify(0, "READY=1");
}

/* --- the loop --- */

static void stop(struct guard *g)
{
	bool again = g->stopping;

	g->stopping = true;
	if (!again) {
		sd_notify(0, "STOPPING=1");
		doors_close(&g->config);
		log_event(LOG_STOPPING, "stopping: open connections have %" PRIu64 " s", g->config.drain_ms / 1000);
	}
	tell_all(g, again ? MAIL_STOP : MAIL_DRAIN);
}

static void on_signal(evutil_socket_t sig, short what, void *arg)
{
	struct guard *g = arg;

	if (sig == SIGHUP && !g->stopping)
		reload(g);
	else if (sig == SIGUSR1)
		log_event(log_reopen() < 0 ? LOG_LOG_REOPEN_FAILED : LOG_LOG_REOPENED, "log %s", g->config.log_path);
	else if (sig == SIGTERM || sig == SIGINT)
		stop(g);
}

static void all_ready(struct guard *g)
{
	g->ready = true;
	log_event(LOG_STARTED, "egress-guard " GUARD_VERSION ": %zu listeners, %zu workers, policy %016" PRIx64,
		  g->config.n_listen, g->n_workers, policy_hash(g->policy));
	sd_notify(0, "READY=1");
}

static void on_wake(evutil_socket_t fd, short what, void *arg)
{
	struct guard *g = arg;
	size_t ended = 0, running = 0;
	uint64_t count;

	if (read(fd, &count, sizeof(count)) < 0)
		return;
	for (size_t i = 0; i < g->n_workers; i++) {
		int state = atomic_load(&g->workers[i]->state);
		bool over = state < 0 || state == WORKER_ENDED;

		running += state == WORKER_RUNNING;
		ended += over;
		if (over && (state < 0 || !g->stopping) && !g->failed) {
			g->failed = g->stopping = true;
			log_event(LOG_WORKER_FAILED, "worker %zu ended: %s", i, state < 0 ? strerror(-state) : "unexpectedly");
			if (!g->ready) /* an error at start is told where the others are */
				fprintf(stderr, "egress-guard: cannot start: %s\n", strerror(state < 0 ? -state : EIO));
			tell_all(g, MAIL_STOP);
		}
	}
	if (!g->ready && running == g->n_workers)
		all_ready(g);
	if (g->reloading)
		finish_reload(g);
	if (ended == g->n_workers)
		event_base_loopbreak(g->base);
}

static void library_says(int severity, const char *text)
{
	log_event(LOG_LIBRARY, "libevent: %s", text);
}

static int watch_signals(struct guard *g)
{
	static const int watched[] = {SIGHUP, SIGTERM, SIGINT, SIGUSR1};

	event_set_log_callback(library_says);
	signal(SIGPIPE, SIG_IGN);
	for (size_t i = 0; i < sizeof(watched) / sizeof(watched[0]); i++) {
		g->signals[i] = evsignal_new(g->base, watched[i], on_signal, g);
		if (!g->signals[i] || event_add(g->signals[i], NULL) < 0)
			return -ENOMEM;
	}
	g->wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	if (g->wake_fd < 0)
		return -errno;
	g->wake = event_new(g->base, g->wake_fd, EV_READ | EV_PERSIST, on_wake, g);
	g->retry = event_new(g->base, -1, 0, on_retry, g);
	if (!g->wake || !g->retry || event_add(g->wake, NULL) < 0)
		return -ENOMEM;
	return 0;
}

/* --- workers --- */

static int make_workers(struct guard *g)
{
	struct worker_config wc = {
		.resolver = {.servers = g->config.dns_servers, .timeout_ms = (unsigned)g->config.dns_timeout_ms,
			     .tries = (unsigned)g->config.dns_tries, .cache_entries = (unsigned)g->config.dns_cache},
		.connect_ms = (unsigned)g->config.connect_ms,
		.policy = g->policy,
		.on_start = relay_start,
		.on_mail = relay_mail,
		.on_again = relay_again,
		.on_free = relay_free_conn,
		.on_stop = relay_stop,
		.wake_fd = g->wake_fd,
	};

	g->workers = calloc(g->n_workers, sizeof(*g->workers));
	g->owed = calloc(g->n_workers, sizeof(*g->owed));
	if (!g->workers || !g->owed)
		return -ENOMEM;
	for (size_t i = 0; i < g->n_workers; i++) {
		int r;

		wc.index = (unsigned)i;
		wc.app = g->relays[i];
		r = worker_new(&wc, &g->workers[i]);
		if (r < 0)
			return r;
	}
	return 0;
}

static int start_workers(struct guard *g)
{
	sigset_t all, old;
	int r = 0;

	/* Signals are the main thread's. */
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	for (size_t i = 0; i < g->n_workers && r == 0; i++)
		r = worker_start(g->workers[i]);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	return r;
}

/* --- all steps --- */

static void guard_clear(struct guard *g)
{
	metrics_free(g->metrics);
	for (size_t i = 0; i < g->n_workers; i++) {
		if (g->workers)
			worker_free(g->workers[i]);
		if (g->relays)
			relay_free(g->relays[i]);
	}
	for (size_t i = 0; i < sizeof(g->signals) / sizeof(g->signals[0]); i++)
		if (g->signals[i])
			event_free(g->signals[i]);
	if (g->wake)
		event_free(g->wake);
	if (g->retry)
		event_free(g->retry);
	fd_close(g->wake_fd);
	if (g->base)
		event_base_free(g->base);
	policy_unref(g->policy);
	doors_close(&g->config);
	free(g->workers);
	free(g->relays);
	free(g->owed);
	config_clear(&g->config);
}

static int cannot_start(int r)
{
	fprintf(stderr, "egress-guard: cannot start: %s\n", strerror(-r));
	return r;
}

static int boot(struct guard *g, const char *config_path)
{
	int r = read_config(g, config_path);

	if (r < 0)
		return r;
	r = load_first_policy(g);
	if (r < 0)
		return r;
	g->shared.timeouts = (struct relay_timeouts){.head_ms = g->config.head_ms, .idle_ms = g->config.idle_ms,
						     .half_open_ms = g->config.half_open_ms,
						     .drain_ms = g->config.drain_ms};
	g->shared.max_connections = (unsigned)g->config.max_connections;
	g->n_workers = g->config.workers ? (size_t)g->config.workers : count_processors();
	r = make_relays(g);
	if (r < 0)
		return cannot_start(r);
	r = doors_open(&g->config, g->relays, g->n_workers);
	if (r < 0)
		return r;
	g->base = event_base_new();
	r = g->base ? watch_signals(g) : -ENOMEM;
	if (r == 0)
		r = make_workers(g);
	if (r < 0)
		return cannot_start(r);
	r = open_metrics(g);
	if (r < 0)
		return r;
	r = log_open(g->config.log_path, g->config.log_level);
	if (r < 0)
		fprintf(stderr, "egress-guard: cannot write the log %s: %s\n", g->config.log_path, strerror(-r));
	return r;
}

int serve_run(const char *config_path)
{
	struct guard g = {.wake_fd = -1, .started_s = wall_s()};
	sigset_t all;
	int r;

	counter_attach();
	r = boot(&g, config_path);
	if (r < 0) {
		guard_clear(&g);
		return EXIT_USAGE;
	}
	g.shared.max_connections = doors_fit(g.shared.max_connections, g.n_workers, &g.shared.overflow);
	r = start_workers(&g);
	if (r < 0) {
		log_event(LOG_WORKER_FAILED, "cannot start the workers: %s", strerror(-r));
		g.failed = g.stopping = true;
		tell_all(&g, MAIL_STOP);
	} else {
		event_base_dispatch(g.base);
	}
	log_event(LOG_STOPPED, "stopped");
	/* The handlers go with their events; a signal after that must not cost the last lines of the log. */
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, NULL);
	guard_clear(&g);
	log_close();
	if (!g.failed)
		return 0;
	return g.ready ? EXIT_BROKEN : EXIT_USAGE;
}
