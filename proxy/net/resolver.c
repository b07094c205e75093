/* resolver: one query pair per name in flight, a cache behind it, and callbacks from the loop only.
 *
 * Names become "flights": a name, its two family queries and the lookups that wait for it. A flight is in the table
 * while a query is out; a hit in the cache makes a flight that is complete from birth and never in the table, so that
 * both are delivered alike. Lookups hang on a list: that of their flight while they wait, `due` when there is something
 * to tell. Telling happens in deliver(), an event of its own; c-ares callbacks and resolver_lookup() only move lookups
 * there. Before each callback the lookup is in a state in which it may be cancelled, or is gone already, so a callback
 * may cancel any lookup and start new ones (those are told in the next turn).
 *
 * Two c-ares channels. Queries go out on the UDP one; a truncated reply is handed to us and asked for again on the TCP
 * one. In one channel c-ares would answer a failing TCP connection by closing the UDP socket of that server as well and
 * taking one try from every query in flight there: a name with large answers could make the lookups of others fail.
 *
 * Errors: a query that cannot even be sent ends like one that failed. There is no cancelling in c-ares: when all
 * waiters have left, the query goes on for the cache and ends by itself. resolver_free() destroys the channels (their
 * callbacks only take note) and frees all flights and lookups; it must not be called from a callback. */
#include "net/resolver.h"

#include <ares_nameser.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>

#include "base/counter.h"
#include "net/dnscache.h"
#include "net/dnschannel.h"
#include "net/dnsreply.h"
#include "net/nameservers.h"
#include "policy/host.h"

#define HASH_NONFATAL_OOM 1 /* a failed add leaves hh.tbl NULL instead of ending the process */
#define uthash_nonfatal_oom(e) ((void)(e))
#include <uthash.h>

/* A circular list: removal needs no head, so a lookup need not know which list it is on. */
struct link {
	struct link *prev, *next;
};

/* How a family ended, in order of weight: without any address the weightier of the two speaks for the name. */
enum outcome { GOT_NO_DATA = 0, GOT_NO_NAME, GOT_TIMED_OUT, GOT_FAILED, GOT_NO_MEMORY, GOT_TOO_MANY, GOT_DATA };

enum { FAMILY_V6, FAMILY_V4, FAMILIES };

struct family {
	struct flight *flight;
	int af;
	bool pending;
	enum outcome outcome;
	struct dnsreply reply; /* GOT_DATA */
};

struct flight {
	UT_hash_handle hh;
	struct resolver *resolver;
	struct link waiters;
	size_t n_lookups;          /* on `waiters` or on a list of the resolver */
	bool in_table, complete;
	bool partial;              /* one family has addresses and the other had its delay */
	struct event *delay;
	struct family family[FAMILIES];
	struct answer answer;      /* once complete */
	size_t name_len;
	char name[HOST_TEXT_MAX];
};

struct lookup {
	struct link link;
	struct flight *flight;
	lookup_fn *fn;
	void *arg;
	bool told;                 /* has had the partial answer */
};

enum { CHANNEL_UDP, CHANNEL_TCP, CHANNELS };

struct resolver {
	struct event_base *base;
	struct dnschannel *channel[CHANNELS];
	struct dnscache *cache;
	struct flight *table;
	struct link due;
	struct event *deliver;
	bool dying;
};

/* --- lists --- */

static void list_init(struct link *l)
{
	l->prev = l->next = l;
}

static void list_remove(struct link *l)
{
	l->prev->next = l->next;
	l->next->prev = l->prev;
	list_init(l);
}

static void list_append(struct link *head, struct link *l)
{
	l->prev = head->prev;
	l->next = head;
	head->prev->next = l;
	head->prev = l;
}

/* Moves all of `from` to the end of `to`. */
static void list_move_all(struct link *to, struct link *from)
{
	if (from->next == from)
		return;
	from->next->prev = to->prev;
	to->prev->next = from->next;
	from->prev->next = to;
	to->prev = from->prev;
	list_init(from);
}

static struct lookup *lookup_of(struct link *l)
{
	return (struct lookup *)((char *)l - offsetof(struct lookup, link));
}

/* --- flights --- */

static struct flight *flight_free(struct flight *f)
{
	if (f->in_table)
		HASH_DEL(f->resolver->table, f);
	if (f->delay)
		event_free(f->delay);
	free(f);
	return NULL;
}

static void flight_drop_if_unused(struct flight *f)
{
	if (f->complete && f->n_lookups == 0)
		flight_free(f);
}

/* Everything the flight's lookups can be told is told from the loop. */
static void make_due(struct flight *f)
{
	struct resolver *r = f->resolver;

	list_move_all(&r->due, &f->waiters);
	event_active(r->deliver, 0, 0);
}

static void add_family(struct answer *a, const struct family *m)
{
	if (m->outcome != GOT_DATA)
		return;
	memcpy(a->addrs + a->n, m->reply.addrs, m->reply.n * sizeof(a->addrs[0]));
	a->n += m->reply.n;
}

static enum verdict status_of(enum outcome o)
{
	switch (o) {
	case GOT_NO_DATA:
	case GOT_NO_NAME:
		return VERDICT_DNS_NOT_FOUND;
	case GOT_TIMED_OUT:
		return VERDICT_DNS_TIMEOUT;
	case GOT_NO_MEMORY:
		return VERDICT_OVERLOADED;
	case GOT_FAILED:
	case GOT_TOO_MANY:
		return VERDICT_DNS_FAILED;
	case GOT_DATA:
		return VERDICT_ALLOW;
	}
	return VERDICT_DNS_FAILED;
}

/* What is known now. More addresses than an answer may hold are never judged in part: the name has failed. A family
 * that failed beside one with addresses is left out. */
static void build_answer(const struct flight *f, struct answer *a, uint32_t *ret_ttl_s)
{
	const struct family *m6 = &f->family[FAMILY_V6], *m4 = &f->family[FAMILY_V4];
	enum outcome worst = m6->outcome > m4->outcome ? m6->outcome : m4->outcome; /* GOT_DATA counts as the most */
	bool too_many = m6->outcome == GOT_TOO_MANY || m4->outcome == GOT_TOO_MANY ||
			m6->reply.n + m4->reply.n > LIMIT_ANSWER_ADDRESSES;
	uint32_t ttl = LIMIT_TTL_MAX_S;

	memset(a, 0, sizeof(*a));
	a->complete = !m6->pending && !m4->pending;
	a->status = too_many ? VERDICT_DNS_FAILED : status_of(worst);
	if (a->status == VERDICT_ALLOW) {
		add_family(a, m6);
		add_family(a, m4);
	}
	for (int i = 0; i < FAMILIES; i++) {
		enum outcome o = f->family[i].outcome;

		if (o == GOT_DATA && f->family[i].reply.ttl_s < ttl)
			ttl = f->family[i].reply.ttl_s;
		if (o != GOT_DATA && o != GOT_NO_DATA && ttl > LIMIT_TTL_NEGATIVE_S)
			ttl = LIMIT_TTL_NEGATIVE_S; /* ask again soon for the half that is missing */
	}
	*ret_ttl_s = ttl;
}

static struct str flight_name(const struct flight *f)
{
	return (struct str){f->name, f->name_len};
}

static void flight_complete(struct flight *f)
{
	struct resolver *r = f->resolver;
	uint32_t ttl_s;

	build_answer(f, &f->answer, &ttl_s);
	f->complete = true;
	if (f->delay)
		evtimer_del(f->delay);
	if (f->in_table) {
		HASH_DEL(r->table, f);
		f->in_table = false;
	}
	if (f->answer.status != VERDICT_OVERLOADED)
		dnscache_put(r->cache, flight_name(f), &f->answer, ttl_s);
	make_due(f);
	flight_drop_if_unused(f);
}

static void on_delay(evutil_socket_t fd, short what, void *arg)
{
	struct flight *f = arg;

	f->partial = true;
	make_due(f);
}

static void family_done(struct family *m, enum outcome o)
{
	static const struct timeval delay = {.tv_usec = LIMIT_RESOLUTION_DELAY_MS * 1000};
	struct flight *f = m->flight;

	m->pending = false;
	m->outcome = o;
	if (f->resolver->dying)
		return;
	if (!f->family[FAMILY_V6].pending && !f->family[FAMILY_V4].pending)
		flight_complete(f);
	else if (o == GOT_DATA)
		evtimer_add(f->delay, &delay); /* if it fails, lookups wait for the other family */
}

/* --- queries --- */

static enum outcome outcome_of_status(int status)
{
	if (status == ARES_ETIMEOUT)
		return GOT_TIMED_OUT;
	return status == ARES_ENOMEM ? GOT_NO_MEMORY : GOT_FAILED;
}

static enum outcome outcome_of_reply(enum dnsreply_kind kind)
{
	switch (kind) {
	case DNSREPLY_BAD:
	case DNSREPLY_TRUNCATED:
		return GOT_FAILED;
	case DNSREPLY_NO_MEMORY:
		return GOT_NO_MEMORY;
	case DNSREPLY_TOO_MANY:
		return GOT_TOO_MANY;
	case DNSREPLY_NO_NAME:
		return GOT_NO_NAME;
	case DNSREPLY_NO_DATA:
		return GOT_NO_DATA;
	case DNSREPLY_DATA:
		return GOT_DATA;
	}
	return GOT_FAILED;
}

static int dns_type(const struct family *m)
{
	return m->af == AF_INET6 ? ns_t_aaaa : ns_t_a;
}

static void on_tcp_reply(void *arg, int status, int timeouts, unsigned char *p, int n)
{
	struct family *m = arg;

	if (p)
		family_done(m, outcome_of_reply(dnsreply_read(p, (size_t)n, m->af, true, &m->reply)));
	else
		family_done(m, outcome_of_status(status));
}

static void on_udp_reply(void *arg, int status, int timeouts, unsigned char *p, int n)
{
	struct family *m = arg;
	struct resolver *r = m->flight->resolver;
	enum dnsreply_kind kind = DNSREPLY_BAD;

	if (p)
		kind = dnsreply_read(p, (size_t)n, m->af, false, &m->reply);
	if (kind == DNSREPLY_TRUNCATED && !r->dying) {
		counter_inc(COUNTER_DNS_TRUNCATED);
		dnschannel_query(r->channel[CHANNEL_TCP], m->flight->name, dns_type(m), on_tcp_reply, m);
		return;
	}
	family_done(m, p ? outcome_of_reply(kind) : outcome_of_status(status));
}

static void flight_start(struct flight *f)
{
	struct dnschannel *udp = f->resolver->channel[CHANNEL_UDP];
	struct family *m6 = &f->family[FAMILY_V6], *m4 = &f->family[FAMILY_V4];

	/* Both first: either callback may run inside the call. AAAA goes out before A (RFC 8305 3). After the second
	 * call the flight may be gone. */
	m6->pending = m4->pending = true;
	counter_add(COUNTER_DNS_QUERIES, FAMILIES);
	dnschannel_query(udp, f->name, ns_t_aaaa, on_udp_reply, m6);
	dnschannel_query(udp, f->name, ns_t_a, on_udp_reply, m4);
}

static struct flight *flight_new(struct resolver *r, struct str name)
{
	struct flight *f = calloc(1, sizeof(*f));

	if (!f)
		return NULL;
	f->resolver = r;
	list_init(&f->waiters);
	for (int i = 0; i < FAMILIES; i++) {
		f->family[i].flight = f;
		f->family[i].af = i == FAMILY_V6 ? AF_INET6 : AF_INET;
	}
	memcpy(f->name, name.p, name.n);
	f->name_len = name.n;
	return f;
}

/* A flight that is going to ask. NULL without memory. */
static struct flight *flight_new_asking(struct resolver *r, struct str name)
{
	struct flight *f = flight_new(r, name);

	if (!f)
		return NULL;
	f->delay = evtimer_new(r->base, on_delay, f);
	if (f->delay)
		HASH_ADD(hh, r->table, name[0], f->name_len, f);
	if (!f->delay || !f->hh.tbl)
		return flight_free(f);
	f->in_table = true;
	return f;
}

/* --- lookups --- */

/* Backslashes would be escapes to c-ares, and an empty name the root. */
static bool name_ok(struct str name)
{
	if (name.n == 0 || name.n > HOST_NAME_MAX_LEN)
		return false;
	for (size_t i = 0; i < name.n; i++) {
		char c = name.p[i];

		if (!ascii_is_alpha(c) && !ascii_is_digit(c) && c != '-' && c != '_' && c != '.')
			return false;
	}
	return true;
}

/* Finds or makes the flight of a name. *ret_start: its queries are still to be sent. */
static int get_flight(struct resolver *r, struct str name, struct flight **ret, bool *ret_start)
{
	struct answer cached;
	struct flight *f = NULL;
	bool start = false;

	HASH_FIND(hh, r->table, name.p, name.n, f);
	if (f) {
		if (f->n_lookups >= LIMIT_LOOKUP_WAITERS)
			return -EBUSY;
		counter_inc(COUNTER_DNS_JOINED);
	} else if (dnscache_get(r->cache, name, &cached)) {
		f = flight_new(r, name);
		if (!f)
			return -ENOMEM;
		f->answer = cached;
		f->complete = true;
		counter_inc(COUNTER_DNS_CACHE_HITS);
	} else {
		if (HASH_COUNT(r->table) >= LIMIT_LOOKUPS)
			return -EBUSY;
		f = flight_new_asking(r, name);
		if (!f)
			return -ENOMEM;
		start = true;
	}
	*ret = f;
	*ret_start = start;
	return 0;
}

int resolver_lookup(struct resolver *r, struct str name, lookup_fn *fn, void *arg, struct lookup **ret)
{
	struct lookup *l;
	struct flight *f = NULL;
	bool start = false;
	int e;

	if (!name_ok(name))
		return -EINVAL;
	l = calloc(1, sizeof(*l));
	if (!l)
		return -ENOMEM;
	e = get_flight(r, name, &f, &start);
	if (e < 0) {
		free(l);
		return e;
	}
	l->flight = f;
	l->fn = fn;
	l->arg = arg;
	f->n_lookups++;
	*ret = l;
	list_append(&f->waiters, &l->link);
	if (start)
		flight_start(f);
	else if (f->complete || f->partial)
		make_due(f);
	return 0;
}

struct lookup *lookup_cancel(struct lookup *l)
{
	struct flight *f;

	if (!l)
		return NULL;
	f = l->flight;
	list_remove(&l->link);
	free(l);
	f->n_lookups--;
	flight_drop_if_unused(f);
	return NULL;
}

static void tell_end(struct lookup *l)
{
	struct flight *f = l->flight;
	lookup_fn *fn = l->fn;
	void *arg = l->arg;

	free(l); /* the lookup is gone; its flight stays, by the count, until the callback is back */
	fn(arg, &f->answer);
	f->n_lookups--;
	flight_drop_if_unused(f);
}

static void tell_partial(struct lookup *l)
{
	struct flight *f = l->flight;
	struct answer a;
	uint32_t ttl_s;

	list_append(&f->waiters, &l->link);
	if (!f->partial || l->told)
		return;
	l->told = true;
	build_answer(f, &a, &ttl_s);
	if (a.status == VERDICT_ALLOW)
		l->fn(l->arg, &a); /* l may be gone now */
}

static void deliver(evutil_socket_t fd, short what, void *arg)
{
	struct resolver *r = arg;
	struct link now;

	list_init(&now);
	list_move_all(&now, &r->due);
	while (now.next != &now) {
		struct lookup *l = lookup_of(now.next);

		list_remove(&l->link);
		if (l->flight->complete)
			tell_end(l);
		else
			tell_partial(l);
	}
}

/* --- making and ending --- */

static int read_servers(const struct resolver_config *config, struct nameservers *ret, const char **ret_why)
{
	if (config->servers && config->servers[0] != '\0')
		return nameservers_parse(str_from(config->servers), ret, ret_why);
	if (config->resolv_conf)
		return nameservers_read_resolv_conf(config->resolv_conf, ret, ret_why);
	return nameservers_read_resolv_conf("/etc/resolv.conf", ret, ret_why);
}

int resolver_check(const struct resolver_config *config, const char **ret_why)
{
	struct nameservers servers;

	if (config->timeout_ms == 0 || config->timeout_ms > 60000 || config->tries == 0 || config->tries > 10) {
		*ret_why = "the timeout must be 1 ms to 60 s and the tries 1 to 10";
		return -EINVAL;
	}
	return read_servers(config, &servers, ret_why);
}

int resolver_new(struct event_base *base, const struct resolver_config *config, struct resolver **ret)
{
	struct nameservers servers;
	const char *why;
	struct resolver *r;
	int e = resolver_check(config, &why);

	if (e == 0)
		e = read_servers(config, &servers, &why);
	if (e < 0)
		return e;
	if (ares_library_init(ARES_LIB_INIT_ALL) != ARES_SUCCESS)
		return -ENOMEM;
	r = calloc(1, sizeof(*r));
	if (!r) {
		ares_library_cleanup();
		return -ENOMEM;
	}
	r->base = base;
	list_init(&r->due);
	r->deliver = event_new(base, -1, 0, deliver, r);
	e = r->deliver ? dnscache_new(config->cache_entries, &r->cache) : -ENOMEM;
	for (int i = 0; e == 0 && i < CHANNELS; i++) {
		struct dnschannel_config c = {config->timeout_ms, config->tries, i == CHANNEL_TCP};

		/* A server that closes its connection after an answer costs each other query on it a try. */
		c.tries += c.tcp ? 2 : 0;
		e = dnschannel_new(base, &c, &servers, &r->channel[i]);
	}
	if (e < 0) {
		resolver_free(r);
		return e;
	}
	*ret = r;
	return 0;
}

struct resolver *resolver_free(struct resolver *r)
{
	if (!r)
		return NULL;
	r->dying = true;
	for (int i = 0; i < CHANNELS; i++)
		r->channel[i] = dnschannel_free(r->channel[i]);
	while (r->table) {
		struct flight *f = r->table;

		HASH_DEL(r->table, f);
		f->in_table = false;
		list_move_all(&r->due, &f->waiters);
		f->complete = true; /* so that the last of its lookups takes it along */
		flight_drop_if_unused(f);
	}
	while (r->due.next != &r->due)
		lookup_cancel(lookup_of(r->due.next));
	dnscache_free(r->cache);
	if (r->deliver)
		event_free(r->deliver);
	free(r);
	ares_library_cleanup();
	return NULL;
}
