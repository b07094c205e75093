/* dnschannel: c-ares on libevent, told everything and left to find out nothing.
 *
 * Servers, the empty search list, tries, timeouts and the order of lookups are all set, SERVERS, DOMAINS and
 * SORTLIST with none, so c-ares opens no file and heeds no environment variable (LOCALDOMAIN, RES_OPTIONS,
 * HOSTALIASES). ares_query() asks for the name as it is. Replies are checked for address, id and question;
 * NOCHECKRESP would switch that off, so SERVFAIL, REFUSED and NOTIMP arrive as ARES_ECONNREFUSED once all servers
 * have been tried. No EDNS: after one FORMERR c-ares toggles it for the whole channel and misjudges queries in
 * flight; without it 28 A records fit a reply, and larger ones come by TCP, which cannot be spoofed. The UDP port
 * stays the same for as long as any query is out, and this version has no option against it: behind an untrusted
 * network a validating resolver on loopback is the cure.
 *
 * Sockets: c-ares says which it wants watched, and says so right before it closes one, so no event outlives its
 * descriptor. Events are level-triggered, because c-ares does not always read to the end.
 *
 * Timers: ares_timeout() walks all queries, so it is called only when the timer has fired or is not set. In between
 * "no later than one first timeout from now" holds without it, because c-ares sets no shorter timeout than that.
 *
 * Errors: a query that cannot be sent ends by its callback like one that failed; without memory for an event the
 * socket stays unwatched and its queries time out. */
#include "net/dnschannel.h"

#include <ares_nameser.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <sys/time.h>

#include "base/clock.h"

struct watch {
	struct watch *next;
	struct dnschannel *channel;
	int fd;
	struct event *event;
};

struct dnschannel {
	struct event_base *base;
	ares_channel ares;
	struct watch *watches;
	struct event *timer;
	unsigned timeout_ms;
	uint64_t timer_ms; /* when it fires; 0: not set */
};

static void set_timer(struct dnschannel *c, uint64_t in_ms)
{
	struct timeval tv = {.tv_sec = (time_t)(in_ms / 1000), .tv_usec = (suseconds_t)(in_ms % 1000 * 1000)};

	if (evtimer_add(c->timer, &tv) == 0)
		c->timer_ms = clock_mono_ms() + in_ms;
}

/* After every call into c-ares. */
static void arm(struct dnschannel *c)
{
	struct timeval tv;
	uint64_t first = c->timeout_ms;

	if (c->timer_ms != 0) {
		if (c->timer_ms > clock_mono_ms() + first)
			set_timer(c, first);
		return;
	}
	if (ares_timeout(c->ares, NULL, &tv))
		set_timer(c, (uint64_t)tv.tv_sec * 1000 + (uint64_t)tv.tv_usec / 1000 + 1); /* it rounds down */
}

static void on_timer(evutil_socket_t fd, short what, void *arg)
{
	struct dnschannel *c = arg;

	c->timer_ms = 0;
	ares_process_fd(c->ares, ARES_SOCKET_BAD, ARES_SOCKET_BAD);
	arm(c);
}

static void on_socket(evutil_socket_t fd, short what, void *arg)
{
	struct watch *w = arg;
	struct dnschannel *c = w->channel; /* w may be gone after the next call */

	ares_process_fd(c->ares, what & EV_READ ? fd : ARES_SOCKET_BAD, what & EV_WRITE ? fd : ARES_SOCKET_BAD);
	arm(c);
}

/* What c-ares wants watched; neither: right before it closes the socket. */
static void on_socket_state(void *arg, ares_socket_t fd, int readable, int writable)
{
	struct dnschannel *c = arg;
	short what = (short)((readable ? EV_READ : 0) | (writable ? EV_WRITE : 0));
	struct watch **at = &c->watches, *w;

	while (*at && (*at)->fd != fd)
		at = &(*at)->next;
	w = *at;
	if (w) {
		event_free(w->event);
		*at = w->next;
	}
	if (what == 0 || (!w && !(w = calloc(1, sizeof(*w))))) {
		free(w);
		return;
	}
	w->channel = c;
	w->fd = fd;
	w->event = event_new(c->base, fd, (short)(what | EV_PERSIST), on_socket, w);
	if (!w->event || event_add(w->event, NULL) != 0) {
		if (w->event)
			event_free(w->event);
		free(w);
		return;
	}
	w->next = c->watches;
	c->watches = w;
}

static int set_servers(ares_channel ares, const struct nameservers *servers)
{
	struct ares_addr_port_node nodes[NAMESERVERS_MAX] = {{0}};

	for (size_t i = 0; i < servers->n; i++) {
		const struct nameserver *s = &servers->items[i];

		nodes[i].next = i + 1 < servers->n ? &nodes[i + 1] : NULL;
		nodes[i].udp_port = nodes[i].tcp_port = s->port;
		if (addr_is_v4(&s->addr)) {
			nodes[i].family = AF_INET;
			memcpy(&nodes[i].addr.addr4, s->addr.b + 12, 4);
		} else {
			nodes[i].family = AF_INET6;
			memcpy(&nodes[i].addr.addr6, s->addr.b, 16);
		}
	}
	return ares_set_servers_ports(ares, nodes) == ARES_SUCCESS ? 0 : -ENOMEM;
}

int dnschannel_new(struct event_base *base, const struct dnschannel_config *config, const struct nameservers *servers,
		   struct dnschannel **ret)
{
	struct dnschannel *c = calloc(1, sizeof(*c));
	struct ares_options o = {
		.flags = ARES_FLAG_NOSEARCH | ARES_FLAG_NOALIASES | (config->tcp ? ARES_FLAG_USEVC : ARES_FLAG_IGNTC),
		.timeout = (int)config->timeout_ms,
		.tries = (int)config->tries,
		.ndots = 1,
		.lookups = (char[]){"b"},
		.sock_state_cb = on_socket_state,
		.sock_state_cb_data = c,
	};
	int mask = ARES_OPT_FLAGS | ARES_OPT_TIMEOUTMS | ARES_OPT_TRIES | ARES_OPT_NDOTS | ARES_OPT_LOOKUPS |
		   ARES_OPT_SERVERS | ARES_OPT_DOMAINS | ARES_OPT_SORTLIST | ARES_OPT_NOROTATE | ARES_OPT_SOCK_STATE_CB;

	if (!c)
		return -ENOMEM;
	c->base = base;
	c->timeout_ms = config->timeout_ms;
	c->timer = evtimer_new(base, on_timer, c);
	if (!c->timer || ares_init_options(&c->ares, &o, mask) != ARES_SUCCESS) {
		c->ares = NULL;
		goto fail;
	}
	if (set_servers(c->ares, servers) < 0)
		goto fail;
	*ret = c;
	return 0;
fail:
	dnschannel_free(c);
	return -ENOMEM;
}

void dnschannel_query(struct dnschannel *c, const char *name, int type, ares_callback fn, void *arg)
{
	ares_query(c->ares, name, ns_c_in, type, fn, arg);
	arm(c);
}

struct dnschannel *dnschannel_free(struct dnschannel *c)
{
	if (!c)
		return NULL;
	if (c->ares)
		ares_destroy(c->ares);
	while (c->watches) { /* none are left unless c-ares closed a socket without saying so */
		struct watch *w = c->watches;

		c->watches = w->next;
		event_free(w->event);
		free(w);
	}
	if (c->timer)
		event_free(c->timer);
	free(c);
	return NULL;
}
