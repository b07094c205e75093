/* dialer: from a judged target to a connected socket, or to the reason why not.
 *
 * A dial looks its name up, judges all candidates of each answer, and hands the good ones to the race, which says
 * which to start when. One refused candidate refuses the dial, also when a late second family brings it while
 * attempts to the first are under way: they are closed. A literal is a dial with one candidate and no lookup.
 *
 * attempt_start() holds the only connect() for internet sockets of the tree, with the judgement on the line above
 * it, under the policy and the own addresses of that moment. What was judged is what is dialed: an IPv4 address
 * (mapped ones are the same value) by an AF_INET socket, any other by an AF_INET6 socket with IPV6_V6ONLY, so that
 * no spelling reaches IPv4 (tests/platform/v6only_mapped.c). When the socket is connected, SO_ERROR is read
 * (connect_error.c), the peer's address must be the judged one (connect_any.c shows how it could differ) and is
 * judged once more, since the policy may have changed meanwhile; a socket whose two ends have one address talks to
 * this host (own_address_ends.c).
 *
 * Everything that ends a dial runs from an event: `kick` starts it, so that nothing happens inside dial_start().
 * finish() releases all of a dial, then calls back: a callback may cancel other dials and start new ones.
 * dial_cancel() releases without a call. Losing attempts are closed by the same release, so no path leaks a
 * descriptor.
 *
 * Budget: one timer over everything. While nothing has been tried it means dns_timeout, later connect_timeout,
 * unless all attempts so far have failed: then the reason is theirs. dialer_free() cancels what is left. */
#include "net/dialer.h"

#include <errno.h>
#include <event2/event_struct.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/counter.h"
#include "base/fd.h"
#include "limits.h"
#include "net/race.h"

struct attempt {
	struct dial *dial;
	struct event ready;
	int fd; /* -1: not under way */
};

struct dial {
	struct dialer *dialer;
	struct dial *prev, *next;
	struct policy_target target;
	char role[POLICY_ROLE_NAME_MAX];
	size_t role_len;
	dial_fn *fn;
	void *arg;
	struct lookup *lookup;
	enum verdict failed_start; /* why the lookup could not begin; VERDICT_ALLOW: it did */
	struct race race;
	struct attempt attempts[LIMIT_ATTEMPTS];
	enum verdict failure;      /* the most telling of the attempts so far; VERDICT_UNDECIDED: none failed */
	struct event kick, budget, wake;
	uint64_t start_ns, connect_ns; /* connect_ns: when the first candidates were known, 0 before */
	bool dns_cached;
};

struct dialer {
	struct dialer_config config;
	struct dial *dials;
};

static void step(struct dial *d);

static struct timeval to_timeval(uint64_t ms)
{
	return (struct timeval){.tv_sec = (time_t)(ms / 1000), .tv_usec = (suseconds_t)(ms % 1000 * 1000)};
}

/* --- the end of a dial --- */

static void attempt_close(struct attempt *a)
{
	if (a->fd < 0)
		return;
	event_del(&a->ready);
	a->fd = fd_close(a->fd);
}

/* Closes and releases all but the memory. */
static void release(struct dial *d)
{
	for (size_t i = 0; i < LIMIT_ATTEMPTS; i++)
		attempt_close(&d->attempts[i]);
	d->lookup = lookup_cancel(d->lookup);
	event_del(&d->kick);
	event_del(&d->budget);
	event_del(&d->wake);
	if (d->prev)
		d->prev->next = d->next;
	else
		d->dialer->dials = d->next;
	if (d->next)
		d->next->prev = d->prev;
}

static void finish(struct dial *d, struct dial_result *result)
{
	uint64_t now = clock_mono_ns();
	dial_fn *fn = d->fn;
	void *arg = d->arg;

	result->lookup_ns = (d->connect_ns ? d->connect_ns : now) - d->start_ns;
	result->connect_ns = d->connect_ns ? now - d->connect_ns : 0;
	result->dns_cached = d->dns_cached;
	release(d);
	free(d);
	fn(arg, result);
}

static void fail(struct dial *d, enum verdict v)
{
	struct dial_result r = {.verdict = v, .fd = -1};

	finish(d, &r);
}

static void refuse(struct dial *d, const struct addr *a, const struct policy_decision *why)
{
	struct dial_result r = {.verdict = why->verdict, .fd = -1, .addr = *a, .has_addr = true};

	r.rule_line = why->rule_line;
	r.what = why->what;
	finish(d, &r);
}

/* --- judging --- */

static struct policy_decision judge(struct dial *d, const struct addr *a)
{
	const struct dialer_config *c = &d->dialer->config;
	const struct policy *policy = c->policy(c->policy_arg);
	int role = policy_role(policy, (struct str){d->role, d->role_len});

	return policy_judge_address(policy, role, a, d->target.port, ownaddr_set(c->own));
}

/* The caller has judged the target before the lookup; the policy may be another by now, so both judgements. */
static struct policy_decision judge_all(struct dial *d, const struct addr *a)
{
	const struct dialer_config *c = &d->dialer->config;
	const struct policy *policy = c->policy(c->policy_arg);
	const struct addrset *own = ownaddr_set(c->own);
	int role = policy_role(policy, (struct str){d->role, d->role_len});
	struct policy_decision decision = policy_judge_target(policy, role, &d->target, own);

	return decision.verdict != VERDICT_ALLOW ? decision : policy_judge_address(policy, role, a, d->target.port, own);
}

/* --- attempts --- */

static enum verdict verdict_of_errno(int e)
{
	switch (e) {
	case ECONNREFUSED:
	case ECONNRESET:
	case ENOTCONN: /* accepted and gone before we looked */
		return VERDICT_CONNECT_REFUSED;
	case ETIMEDOUT:
		return VERDICT_CONNECT_TIMEOUT;
	case EMFILE:
	case ENFILE:
	case ENOBUFS:
	case ENOMEM:
	case EADDRNOTAVAIL: /* no source port left */
	case EAGAIN:
		return VERDICT_OVERLOADED;
	}
	return VERDICT_CONNECT_UNREACHABLE; /* ENETUNREACH, EHOSTUNREACH, EACCES, EPERM, EAFNOSUPPORT, ... */
}

/* The last failure speaks for the dial, but "unreachable" (often a missing family) only when nothing else happened. */
static void attempt_failed(struct dial *d, size_t i, int e)
{
	enum verdict v = verdict_of_errno(e);

	if (v != VERDICT_CONNECT_UNREACHABLE || d->failure == VERDICT_UNDECIDED)
		d->failure = v;
	attempt_close(&d->attempts[i]);
	race_attempt_failed(&d->race, i, clock_mono_ms());
}

union socket_address {
	struct sockaddr sa;
	struct sockaddr_in v4;
	struct sockaddr_in6 v6;
	struct sockaddr_storage any;
};

static socklen_t to_sockaddr(const struct addr *a, uint16_t port, union socket_address *ret)
{
	memset(ret, 0, sizeof(*ret));
	if (addr_is_v4(a)) {
		ret->v4.sin_family = AF_INET;
		ret->v4.sin_port = htons(port);
		memcpy(&ret->v4.sin_addr, a->b + 12, 4);
		return sizeof(ret->v4);
	}
	ret->v6.sin6_family = AF_INET6;
	ret->v6.sin6_port = htons(port);
	memcpy(&ret->v6.sin6_addr, a->b, 16);
	return sizeof(ret->v6);
}

static bool from_sockaddr(const union socket_address *s, struct addr *ret_addr, uint16_t *ret_port)
{
	if (s->sa.sa_family == AF_INET) {
		*ret_addr = addr_from_v4((const uint8_t *)&s->v4.sin_addr);
		*ret_port = ntohs(s->v4.sin_port);
		return true;
	}
	if (s->sa.sa_family == AF_INET6) {
		*ret_addr = addr_from_v6(s->v6.sin6_addr.s6_addr);
		*ret_port = ntohs(s->v6.sin6_port);
		return true;
	}
	return false;
}

/* A socket as an origin connection has to be. Returns it, or -errno. */
static int open_socket(const struct addr *a)
{
	static const int on = 1;
	int family = addr_is_v4(a) ? AF_INET : AF_INET6;
	int fd = socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, IPPROTO_TCP);
	int e;

	if (fd < 0)
		return -errno;
	if (family == AF_INET6 && setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof(on)) < 0) {
		e = -errno;
		close(fd);
		return e;
	}
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
	return fd;
}

/* The socket is connected to somebody: is it whom we judged? Ends the dial either way, or fails the attempt. */
static void attempt_connected(struct dial *d, size_t i)
{
	struct attempt *at = &d->attempts[i];
	const struct addr *judged = &d->race.addrs[i];
	struct dial_result r = {.verdict = VERDICT_ALLOW};
	struct policy_decision decision;
	union socket_address peer, own;
	socklen_t peer_len = sizeof(peer), own_len = sizeof(own);
	struct addr own_addr;
	uint16_t port, own_port;

	if (getpeername(at->fd, &peer.sa, &peer_len) < 0 || getsockname(at->fd, &own.sa, &own_len) < 0 ||
	    !from_sockaddr(&peer, &r.addr, &port) || !from_sockaddr(&own, &own_addr, &own_port)) {
		attempt_failed(d, i, errno);
		step(d);
		return;
	}
	decision = judge(d, &r.addr);
	if (decision.verdict == VERDICT_ALLOW && addr_equal(&own_addr, &r.addr)) {
		decision.verdict = VERDICT_ADDRESS_OWN;
		decision.what = verdict_row(VERDICT_ADDRESS_OWN)->what;
	}
	if (!addr_equal(&r.addr, judged) || port != d->target.port) {
		counter_inc(COUNTER_DIAL_PEER_MISMATCH);
		if (decision.verdict == VERDICT_ALLOW) {
			decision.verdict = VERDICT_INTERNAL_ERROR;
			decision.what = "is not the address that was dialed";
		}
	}
	if (decision.verdict != VERDICT_ALLOW) {
		refuse(d, &r.addr, &decision);
		return;
	}
	event_del(&at->ready);
	r.fd = at->fd;
	at->fd = -1;
	r.has_addr = true;
	r.rule_line = decision.rule_line;
	r.what = decision.what;
	finish(d, &r);
}

static void on_ready(evutil_socket_t fd, short what, void *arg)
{
	struct attempt *a = arg;
	struct dial *d = a->dial;
	size_t i = (size_t)(a - d->attempts);
	int e = 0;
	socklen_t len = sizeof(e);

	if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &e, &len) < 0)
		e = errno;
	if (e == 0) {
		attempt_connected(d, i);
		return;
	}
	attempt_failed(d, i, e);
	step(d);
}

/* Returns false when the dial is over. */
static bool attempt_start(struct dial *d, size_t i)
{
	struct attempt *at = &d->attempts[i];
	const struct addr *a = &d->race.addrs[i];
	struct policy_decision decision;
	union socket_address to;
	socklen_t len = to_sockaddr(a, d->target.port, &to);
	int fd = open_socket(a), e;

	if (fd < 0) {
		attempt_failed(d, i, -fd);
		return true;
	}
	at->fd = fd; /* from here on release() closes it */
	event_assign(&at->ready, d->dialer->config.base, fd, EV_WRITE, on_ready, at);
	decision = judge_all(d, a);
	if (decision.verdict != VERDICT_ALLOW) {
		refuse(d, a, &decision);
		return false;
	}
	e = connect(fd, &to.sa, len) < 0 ? errno : 0;
	counter_inc(COUNTER_DIAL_ATTEMPTS);
	if (e == 0) {
		attempt_connected(d, i);
		return false;
	}
	if (e == EINPROGRESS || e == EINTR)
		e = event_add(&at->ready, NULL) == 0 ? 0 : ENOMEM;
	if (e != 0)
		attempt_failed(d, i, e);
	return true;
}

/* Does what the race says until it says wait. The dial may be gone afterwards. */
static void step(struct dial *d)
{
	for (;;) {
		uint64_t now = clock_mono_ms(), wake = 0;
		struct timeval tv;
		size_t i = 0;

		switch (race_next(&d->race, now, &i, &wake)) {
		case RACE_START:
			if (!attempt_start(d, i))
				return;
			continue;
		case RACE_OVER:
			fail(d, d->failure == VERDICT_UNDECIDED ? VERDICT_INTERNAL_ERROR : d->failure);
			return;
		case RACE_WAIT:
			event_del(&d->wake);
			if (wake == 0)
				return;
			wake = wake > now ? wake - now : 1;
			tv = to_timeval(wake);
			event_add(&d->wake, &tv);
			return;
		}
	}
}

static void on_wake(evutil_socket_t fd, short what, void *arg)
{
	step(arg);
}

/* --- candidates --- */

static void candidates(struct dial *d, const struct addr *addrs, size_t n, bool complete)
{
	if (d->connect_ns == 0)
		d->connect_ns = clock_mono_ns();
	for (size_t i = 0; i < n; i++) {
		struct policy_decision decision = judge(d, &addrs[i]);

		if (decision.verdict != VERDICT_ALLOW) {
			refuse(d, &addrs[i], &decision);
			return;
		}
	}
	race_candidates(&d->race, addrs, n, complete);
	step(d);
}

static void on_answer(void *arg, const struct answer *a)
{
	struct dial *d = arg;

	if (a->complete)
		d->lookup = NULL;
	d->dns_cached = a->cached;
	if (a->status != VERDICT_ALLOW) /* also when a first part was good: the whole is not to be trusted then */
		fail(d, a->status);
	else
		candidates(d, a->addrs, a->n, a->complete);
}

static void on_kick(evutil_socket_t fd, short what, void *arg)
{
	struct dial *d = arg;

	if (d->failed_start != VERDICT_ALLOW)
		fail(d, d->failed_start);
	else
		candidates(d, &d->target.host.addr, 1, true);
}

static void on_budget(evutil_socket_t fd, short what, void *arg)
{
	struct dial *d = arg;

	if (d->race.started == 0)
		fail(d, d->target.host.kind == HOST_NAME ? VERDICT_DNS_TIMEOUT : VERDICT_CONNECT_TIMEOUT);
	else if (d->race.failed == d->race.started)
		fail(d, d->failure);
	else
		fail(d, VERDICT_CONNECT_TIMEOUT);
}

/* --- starting --- */

/* Starts the lookup, or sees to it that the loop starts (or fails) the dial. Only for want of memory not 0. */
static int begin(struct dial *d)
{
	int e;

	d->failed_start = VERDICT_ALLOW;
	switch (d->target.host.kind) {
	case HOST_NAME:
		e = resolver_lookup(d->dialer->config.resolver, host_name(&d->target.host), on_answer, d, &d->lookup);
		if (e == 0 || e == -ENOMEM)
			return e;
		d->failed_start = e == -EBUSY ? VERDICT_OVERLOADED : VERDICT_INTERNAL_ERROR;
		break;
	case HOST_ADDR:
		break;
	case HOST_NONE:
		d->failed_start = VERDICT_INTERNAL_ERROR;
		break;
	}
	event_active(&d->kick, 0, 0);
	return 0;
}

int dial_start(struct dialer *dialer, const struct dial_request *request, dial_fn *fn, void *arg, struct dial **ret)
{
	const struct dialer_config *c = &dialer->config;
	struct timeval budget = to_timeval(c->budget_ms);
	struct dial *d = calloc(1, sizeof(*d));

	if (!d)
		return -ENOMEM;
	d->dialer = dialer;
	d->target = *request->target;
	d->role_len = request->role.n <= sizeof(d->role) ? request->role.n : 0; /* no role has an empty name */
	memcpy(d->role, request->role.p, d->role_len);
	d->fn = fn;
	d->arg = arg;
	d->start_ns = clock_mono_ns();
	race_init(&d->race);
	for (size_t i = 0; i < LIMIT_ATTEMPTS; i++)
		d->attempts[i] = (struct attempt){.dial = d, .fd = -1};
	evtimer_assign(&d->kick, c->base, on_kick, d);
	evtimer_assign(&d->budget, c->base, on_budget, d);
	evtimer_assign(&d->wake, c->base, on_wake, d);
	if (event_add(&d->budget, &budget) != 0 || begin(d) < 0) {
		event_del(&d->budget);
		free(d);
		return -ENOMEM;
	}
	d->next = dialer->dials;
	if (d->next)
		d->next->prev = d;
	dialer->dials = d;
	*ret = d;
	return 0;
}

struct dial *dial_cancel(struct dial *d)
{
	if (!d)
		return NULL;
	release(d);
	free(d);
	return NULL;
}

int dialer_new(const struct dialer_config *config, struct dialer **ret)
{
	struct dialer *d = calloc(1, sizeof(*d));

	if (!d)
		return -ENOMEM;
	d->config = *config;
	*ret = d;
	return 0;
}

struct dialer *dialer_free(struct dialer *d)
{
	if (!d)
		return NULL;
	while (d->dials)
		dial_cancel(d->dials);
	free(d);
	return NULL;
}
