/* ownaddr: what the kernel delivers on this host, by rtnetlink.
 *
 * Two sockets. `watch` is in the groups of addresses and routes and only says that something changed; `ask` carries
 * one dump at a time, so that changes and answers never mix. Order at start: join, then dump, so nothing falls
 * between. A change that came before ownaddr_set() is lying in the watch socket by then: it is emptied first (one
 * recv() that finds nothing, when all is quiet), and if anything relevant was in it, or it overflowed (ENOBUFS), all
 * is read anew. Whole re-reads keep no history to get wrong.
 *
 * The set: interface addresses with their broadcast and anycast addresses, and every local, broadcast and anycast
 * route of the tables local and main. 127.0.0.0/8 is one block of it. Routes of these types in other tables apply to
 * marked packets only (transparent proxying) and would make "all addresses" own.
 *
 * Errors: at start, ownaddr_new() fails. Later a read that fails leaves the old set in force, marks it stale, and is
 * tried again by a timer and by each ownaddr_set(); so an address is never lost, and one that is missing is still
 * caught by the dialer, which compares both ends of a connected socket. Requests are answered by the kernel before
 * sendto() returns, so reading them waits for nothing; a second is the bound all the same. */
#include "net/ownaddr.h"

#include <errno.h>
#include <linux/rtnetlink.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/counter.h"
#include "base/fd.h"

enum {
	REPLY_BYTES = 64 * 1024, /* the kernel fills at most 32 KiB at a time */
	WAIT_MS = 1000,
	DUMP_TRIES = 5,          /* a dump that changes while it is read is read again */
	RETRY_MS = 500,
};

struct ownaddr {
	int watch, ask;
	uint32_t seq;
	struct event *changed, *retry;
	struct addrset set;
	bool stale;
	char buf[REPLY_BYTES] __attribute__((aligned(NLMSG_ALIGNTO)));
};

/* --- one message --- */

static bool wanted_route(const struct rtmsg *m)
{
	return m->rtm_type == RTN_LOCAL || m->rtm_type == RTN_BROADCAST || m->rtm_type == RTN_ANYCAST;
}

static bool relevant(const struct nlmsghdr *h)
{
	switch (h->nlmsg_type) {
	case RTM_NEWADDR:
	case RTM_DELADDR:
		return true;
	case RTM_NEWROUTE:
	case RTM_DELROUTE:
		return h->nlmsg_len >= NLMSG_LENGTH(sizeof(struct rtmsg)) && wanted_route(NLMSG_DATA(h));
	}
	return false;
}

/* Adds an attribute's address as a block of `bits` (of its family). What is no address of the family is an error: the
 * kernel does not send such a thing. */
static int add(struct addrset *s, int family, const struct rtattr *a, unsigned bits)
{
	static const uint8_t zero[16];
	unsigned size = family == AF_INET ? 4 : 16;
	const uint8_t *p = a ? RTA_DATA(a) : zero; /* a default route has no destination */
	struct addr_prefix prefix;

	if ((a && RTA_PAYLOAD(a) != size) || bits > size * 8)
		return -EPROTO;
	prefix.base = family == AF_INET ? addr_from_v4(p) : addr_from_v6(p);
	prefix.len = (uint8_t)(bits + (family == AF_INET ? 96 : 0));
	return addrset_add(s, prefix, portset_all(), 0);
}

static int take_address(struct addrset *s, const struct nlmsghdr *h)
{
	const struct ifaddrmsg *m = NLMSG_DATA(h);
	const struct rtattr *a = IFA_RTA(m), *local = NULL, *address = NULL;
	unsigned bits;
	int left;
	int r = 0;

	if (h->nlmsg_len < NLMSG_LENGTH(sizeof(*m)))
		return -EPROTO;
	if (m->ifa_family != AF_INET && m->ifa_family != AF_INET6)
		return 0;
	bits = m->ifa_family == AF_INET ? 32 : 128;
	left = (int)IFA_PAYLOAD(h);
	for (; RTA_OK(a, left) && r == 0; a = RTA_NEXT(a, left)) {
		if (a->rta_type == IFA_LOCAL)
			local = a;
		else if (a->rta_type == IFA_ADDRESS)
			address = a;
		else if (a->rta_type == IFA_BROADCAST || a->rta_type == IFA_ANYCAST)
			r = add(s, m->ifa_family, a, bits);
	}
	if (!local) /* on a point-to-point link IFA_ADDRESS is the other end */
		local = address;
	return r == 0 && local ? add(s, m->ifa_family, local, bits) : r;
}

static int take_route(struct addrset *s, const struct nlmsghdr *h)
{
	const struct rtmsg *m = NLMSG_DATA(h);
	const struct rtattr *a, *dst = NULL;
	uint32_t table;
	int left;

	if (h->nlmsg_len < NLMSG_LENGTH(sizeof(*m)))
		return -EPROTO;
	if ((m->rtm_family != AF_INET && m->rtm_family != AF_INET6) || !wanted_route(m))
		return 0;
	table = m->rtm_table;
	left = (int)RTM_PAYLOAD(h);
	for (a = RTM_RTA(m); RTA_OK(a, left); a = RTA_NEXT(a, left)) {
		if (a->rta_type == RTA_DST)
			dst = a;
		else if (a->rta_type == RTA_TABLE && RTA_PAYLOAD(a) == sizeof(table))
			memcpy(&table, RTA_DATA(a), sizeof(table));
	}
	if (table != RT_TABLE_LOCAL && table != RT_TABLE_MAIN)
		return 0;
	return add(s, m->rtm_family, dst, m->rtm_dst_len);
}

static int take(struct addrset *s, const struct nlmsghdr *h)
{
	switch (h->nlmsg_type) {
	case RTM_NEWADDR:
		return take_address(s, h);
	case RTM_NEWROUTE:
		return take_route(s, h);
	}
	return 0;
}

/* --- dumps --- */

/* One datagram from the kernel into buf. Returns its length; -EAGAIN when there is none, -errno. */
static int receive(struct ownaddr *o, int fd)
{
	struct sockaddr_nl from;
	struct iovec iov = {o->buf, sizeof(o->buf)};
	struct msghdr m = {.msg_name = &from, .msg_namelen = sizeof(from), .msg_iov = &iov, .msg_iovlen = 1};
	ssize_t n;

	do {
		n = recvmsg(fd, &m, MSG_DONTWAIT);
	} while (n < 0 && errno == EINTR);
	if (n < 0)
		return -errno;
	if (m.msg_flags & MSG_TRUNC)
		return -EMSGSIZE;
	return from.nl_pid == 0 ? (int)n : 0; /* another process cannot speak for the kernel */
}

/* Handles the messages of one datagram. Returns true when the dump is over. An error is kept in *error, the first
 * one, and the rest read all the same: the kernel starts no dump on a socket while another has not been read to its
 * end. */
static bool handle_part(struct ownaddr *o, int n, struct addrset *set, int *error)
{
	for (const struct nlmsghdr *h = (void *)o->buf; NLMSG_OK(h, n); h = NLMSG_NEXT(h, n)) {
		const struct nlmsgerr *err = NLMSG_DATA(h);
		int r = 0;

		if (h->nlmsg_seq != o->seq)
			continue;
		if (h->nlmsg_type == NLMSG_ERROR) {
			bool told = h->nlmsg_len >= NLMSG_LENGTH(sizeof(*err)) && err->error < 0;

			if (*error == 0)
				*error = told ? err->error : -EPROTO;
			return true;
		}
		if (h->nlmsg_flags & NLM_F_DUMP_INTR) /* what has been read so far may not fit together */
			r = -EINTR;
		else if (h->nlmsg_type != NLMSG_DONE)
			r = take(set, h);
		if (*error == 0)
			*error = r;
		if (h->nlmsg_type == NLMSG_DONE)
			return true;
	}
	return false;
}

static int dump(struct ownaddr *o, void *request, size_t size, struct addrset *set)
{
	struct nlmsghdr *h = request;
	int error = 0;

	h->nlmsg_len = (uint32_t)size;
	h->nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP;
	h->nlmsg_seq = ++o->seq;
	if (send(o->ask, request, size, MSG_DONTWAIT | MSG_NOSIGNAL) != (ssize_t)size)
		return -EIO;
	for (;;) {
		struct pollfd p = {.fd = o->ask, .events = POLLIN};
		int n = receive(o, o->ask);

		if (n >= 0 && handle_part(o, n, set, &error))
			return error;
		if (n == -EAGAIN && poll(&p, 1, WAIT_MS) == 0)
			return -ETIMEDOUT;
		if (n < 0 && n != -EAGAIN)
			return n;
	}
}

static int dump_addresses(struct ownaddr *o, struct addrset *set)
{
	struct {
		struct nlmsghdr h;
		struct ifaddrmsg m;
	} request = {.h.nlmsg_type = RTM_GETADDR};

	return dump(o, &request, sizeof(request), set);
}

/* Asks for one table (and, type given, for routes of that type only), so that a large main table costs nothing. */
static int dump_routes(struct ownaddr *o, struct addrset *set, unsigned char family, unsigned char table,
		       unsigned char type)
{
	struct {
		struct nlmsghdr h;
		struct rtmsg m;
	} request = {.h.nlmsg_type = RTM_GETROUTE, .m = {.rtm_family = family, .rtm_table = table, .rtm_type = type}};
	int r = dump(o, &request, sizeof(request), set);

	/* A table that nothing was put into does not exist, nor does a family that the kernel was built without. */
	return r == -ENOENT || r == -EOPNOTSUPP || r == -EAFNOSUPPORT ? 0 : r;
}

static int read_all(struct ownaddr *o, struct addrset *set)
{
	static const unsigned char family[] = {AF_INET, AF_INET6}, type[] = {RTN_LOCAL, RTN_BROADCAST, RTN_ANYCAST};
	int r = dump_addresses(o, set);

	for (size_t f = 0; f < sizeof(family); f++) {
		if (r == 0)
			r = dump_routes(o, set, family[f], RT_TABLE_LOCAL, RTN_UNSPEC);
		for (size_t t = 0; t < sizeof(type) && r == 0; t++)
			r = dump_routes(o, set, family[f], RT_TABLE_MAIN, type[t]);
	}
	return r;
}

static int refresh(struct ownaddr *o)
{
	static const struct timeval again = {.tv_usec = RETRY_MS * 1000};
	struct addrset set;
	int r = -EINTR;

	for (int i = 0; i < DUMP_TRIES && r == -EINTR; i++) {
		memset(&set, 0, sizeof(set));
		r = read_all(o, &set);
		if (r < 0)
			addrset_clear(&set);
	}
	o->stale = r < 0;
	if (r < 0) {
		if (o->retry)
			evtimer_add(o->retry, &again);
		return r;
	}
	addrset_seal(&set);
	addrset_clear(&o->set);
	o->set = set;
	return 0;
}

static void refresh_counted(struct ownaddr *o)
{
	counter_inc(COUNTER_OWN_READS);
	if (refresh(o) < 0)
		counter_inc(COUNTER_OWN_READ_ERRORS);
}

/* --- changes --- */

/* Empties the watch socket. True when something in it, or lost from it, may concern us. */
static bool drain(struct ownaddr *o)
{
	bool changed = false;

	for (;;) {
		int n = receive(o, o->watch);

		if (n == -EAGAIN)
			return changed;
		if (n < 0)
			changed = true;
		if (n < 0 && n != -ENOBUFS && n != -EMSGSIZE)
			return true;
		for (const struct nlmsghdr *h = (void *)o->buf; NLMSG_OK(h, n); h = NLMSG_NEXT(h, n))
			changed |= relevant(h);
	}
}

static void on_changed(evutil_socket_t fd, short what, void *arg)
{
	struct ownaddr *o = arg;

	if (drain(o))
		refresh_counted(o);
}

static void on_retry(evutil_socket_t fd, short what, void *arg)
{
	struct ownaddr *o = arg;

	if (o->stale)
		refresh_counted(o);
}

const struct addrset *ownaddr_set(struct ownaddr *o)
{
	if (drain(o) || o->stale)
		refresh_counted(o);
	return &o->set;
}

/* --- making and ending --- */

static int open_netlink(uint32_t groups, int *ret)
{
	struct sockaddr_nl self = {.nl_family = AF_NETLINK, .nl_groups = groups};
	int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, NETLINK_ROUTE);
	int e;

	if (fd < 0)
		return -errno;
	if (bind(fd, (struct sockaddr *)&self, sizeof(self)) < 0) {
		e = -errno;
		close(fd);
		return e;
	}
	*ret = fd;
	return 0;
}

int ownaddr_new(struct event_base *base, struct ownaddr **ret)
{
	static const int on = 1;
	struct ownaddr *o = calloc(1, sizeof(*o));
	int r;

	if (!o)
		return -ENOMEM;
	o->watch = o->ask = -1;
	r = open_netlink(RTMGRP_IPV4_IFADDR | RTMGRP_IPV6_IFADDR | RTMGRP_IPV4_ROUTE | RTMGRP_IPV6_ROUTE, &o->watch);
	if (r == 0)
		r = open_netlink(0, &o->ask);
	if (r == 0) {
		/* Lets the kernel filter dumps; one that cannot sends all, and take_route() filters. */
		setsockopt(o->ask, SOL_NETLINK, NETLINK_GET_STRICT_CHK, &on, sizeof(on));
		r = refresh(o);
	}
	if (r < 0)
		goto fail;
	r = -ENOMEM;
	o->retry = evtimer_new(base, on_retry, o);
	o->changed = event_new(base, o->watch, EV_READ | EV_PERSIST, on_changed, o);
	if (!o->retry || !o->changed || event_add(o->changed, NULL) != 0)
		goto fail;
	*ret = o;
	return 0;
fail:
	ownaddr_free(o);
	return r;
}

struct ownaddr *ownaddr_free(struct ownaddr *o)
{
	if (!o)
		return NULL;
	if (o->changed)
		event_free(o->changed);
	if (o->retry)
		event_free(o->retry);
	fd_close(o->watch);
	fd_close(o->ask);
	addrset_clear(&o->set);
	free(o);
	return NULL;
}
