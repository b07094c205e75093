/* listener: accept4() and nothing else.
 *
 * At most LIMIT_ACCEPT_BATCH connections a turn. Errors of accept() are of two kinds (accept(2)): those of the
 * connection that was being accepted (ECONNABORTED, EPROTO, the network errors), which are counted and passed over; and
 * those of this host (EMFILE, ENFILE, ENOBUFS, ENOMEM), after which the listener is silent for LIMIT_ACCEPT_PAUSE_MS
 * instead of spinning. The kernel's backlog keeps the clients meanwhile.
 *
 * TCP_NODELAY and SO_KEEPALIVE set on a listening socket hold for what it accepts (tests/platform proves it). */
#include "net/listener.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/counter.h"
#include "base/fd.h"
#include "limits.h"
#include "policy/host.h"

struct listener {
	int fd;
	struct event *event;
	struct event *resume;
	accept_fn *fn;
	void *arg;
};

enum {
	BACKLOG = 4096,
	ACCEPTS = 0x10000, /* __SO_ACCEPTCON, in the flags of /proc/net/unix */
};

static int parse_unix(struct str path, struct listen_address *ret, const char **ret_why)
{
	struct sockaddr_un un = {.sun_family = AF_UNIX};

	if (!path.n || path.n >= sizeof(un.sun_path) || memchr(path.p, '\0', path.n)) {
		*ret_why = "a unix socket path has 1 to 107 bytes";
		return -EINVAL;
	}
	memcpy(un.sun_path, path.p, path.n);
	memset(ret, 0, sizeof(*ret));
	memcpy(&ret->sa, &un, sizeof(un));
	ret->len = sizeof(un);
	ret->fd = -1;
	return 0;
}

int listen_address_parse(struct str text, struct listen_address *ret, const char **ret_why)
{
	struct str unix_word = STR_LIT("unix:");
	size_t colon = text.n;
	struct host host;
	uint16_t port;

	if (text.n > unix_word.n && !memcmp(text.p, unix_word.p, unix_word.n))
		return parse_unix(str_skip(text, unix_word.n), ret, ret_why);
	while (colon > 0 && text.p[colon - 1] != ':')
		colon--;
	if (!colon || !port_parse(str_skip(text, colon), &port)) {
		*ret_why = "expected ADDRESS:PORT, \"[IPv6]:PORT\" or unix:PATH";
		return -EINVAL;
	}
	if (!host_parse((struct str){text.p, colon - 1}, &host, ret_why))
		return -EINVAL;
	if (host.kind != HOST_ADDR) {
		*ret_why = "expected an IP address, not a name";
		return -EINVAL;
	}
	memset(ret, 0, sizeof(*ret));
	ret->fd = -1;
	if (addr_is_v4(&host.addr)) {
		struct sockaddr_in in = {.sin_family = AF_INET, .sin_port = htons(port)};

		memcpy(&in.sin_addr, host.addr.b + 12, 4);
		memcpy(&ret->sa, &in, sizeof(in));
		ret->len = sizeof(in);
	} else {
		struct sockaddr_in6 in6 = {.sin6_family = AF_INET6, .sin6_port = htons(port)};

		memcpy(&in6.sin6_addr, host.addr.b, 16);
		memcpy(&ret->sa, &in6, sizeof(in6));
		ret->len = sizeof(in6);
	}
	return 0;
}

/* Whether `bound`, a path that some socket was bound to, may be `path` by another spelling. */
static bool same_place(const char *bound, const char *path, const struct stat *st)
{
	const char *a = strrchr(bound, '/'), *b = strrchr(path, '/');
	struct stat other;

	if (bound[0] == '@')
		return false; /* abstract */
	if (bound[0] == '/')
		return stat(bound, &other) == 0 && other.st_dev == st->st_dev && other.st_ino == st->st_ino;
	return !strcmp(a ? a + 1 : bound, b ? b + 1 : path); /* beneath a folder not known here */
}

/* Whether any listening socket of this namespace is bound to the path (proc(5), /proc/net/unix: the path is the last column). */
static bool unix_in_use(const char *path, const struct stat *st)
{
	FILE *f = fopen("/proc/net/unix", "re");
	char line[512];
	bool found = false;

	if (!f)
		return true; /* not known: leave the file alone */
	while (!found && fgets(line, sizeof(line), f)) {
		const char *bound = line;
		bool listening = false;

		line[strcspn(line, "\n")] = '\0';
		for (int i = 0; i < 7; i++) { /* Num RefCount Protocol Flags Type St Inode Path */
			if (i == 3)
				listening = strtoul(bound, NULL, 16) & ACCEPTS;
			bound += strcspn(bound, " ");
			bound += strspn(bound, " ");
		}
		/* A connection that was accepted there carries the path too, but keeps nobody out. */
		found = listening && bound[0] && (!strcmp(bound, path) || same_place(bound, path, st));
	}
	fclose(f);
	return found;
}

/* A socket file that nobody holds is of a guard that died: only then may it go. */
static int remove_stale(const struct listen_address *a)
{
	const struct sockaddr_un *un = (const struct sockaddr_un *)&a->sa;
	struct stat st;

	if (lstat(un->sun_path, &st) < 0)
		return errno == ENOENT ? 0 : -errno;
	if (!S_ISSOCK(st.st_mode) || unix_in_use(un->sun_path, &st))
		return -EADDRINUSE;
	return unlink(un->sun_path) < 0 ? -errno : 0;
}

static int set_options(int fd, int family, bool shared)
{
	int one = 1;

	if (family == AF_UNIX)
		return 0;
	if (setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)) < 0 ||
	    (shared && setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &one, sizeof(one)) < 0) ||
	    (family == AF_INET6 && setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &one, sizeof(one)) < 0) ||
	    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one)) < 0 ||
	    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof(one)) < 0)
		return -errno;
	return 0;
}

/* Somebody else has opened it: what the sockets accepted from it must have is set here. A unix socket takes no TCP options. */
static int prepare_passed(int fd)
{
	int listening = 0, type = 0, one = 1;
	socklen_t len = sizeof(listening), type_len = sizeof(type);

	if (getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listening, &len) < 0 ||
	    getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &type_len) < 0)
		return -errno;
	if (!listening || type != SOCK_STREAM)
		return -ENOTCONN;
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof(one));
	return fd_set_nonblock(fd);
}

int listener_open(const struct listen_address *a, bool shared, int *ret_fd)
{
	int family = a->sa.ss_family, fd, r;

	if (a->fd >= 0) {
		*ret_fd = a->fd;
		return prepare_passed(a->fd);
	}
	if (family == AF_UNIX) {
		r = remove_stale(a);
		if (r < 0)
			return r;
	}
	fd = socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -errno;
	r = set_options(fd, family, shared);
	if (r == 0 && (bind(fd, (const struct sockaddr *)&a->sa, a->len) < 0 || listen(fd, BACKLOG) < 0))
		r = -errno;
	if (r < 0) {
		fd_close(fd);
		return r;
	}
	*ret_fd = fd;
	return 0;
}

static void pause_accepting(struct listener *l)
{
	struct timeval tv = {.tv_usec = LIMIT_ACCEPT_PAUSE_MS * 1000};

	counter_inc(COUNTER_ACCEPT_PAUSES);
	/* Without a timer to wake it, it had better not fall asleep. */
	if (event_add(l->resume, &tv) == 0)
		event_del(l->event);
}

static void on_resume(evutil_socket_t fd, short what, void *arg)
{
	struct listener *l = arg;

	/* The timer's slot is free again: setting it anew cannot fail. */
	if (event_add(l->event, NULL) < 0)
		pause_accepting(l);
}

/* Accepts one batch. Returns whether there may be more. */
static bool accept_batch(struct listener *l)
{
	for (int i = 0; i < LIMIT_ACCEPT_BATCH; i++) {
		struct sockaddr_storage peer = {0};
		socklen_t len = sizeof(peer);
		int c = accept4(l->fd, (struct sockaddr *)&peer, &len, SOCK_NONBLOCK | SOCK_CLOEXEC);

		if (c >= 0) {
			counter_inc(COUNTER_CONNECTIONS_ACCEPTED);
			if (!l->fn(l->arg, c, &peer)) {
				pause_accepting(l);
				return false;
			}
			continue;
		}
		if (errno == EAGAIN || errno == EWOULDBLOCK)
			return false;
		if (errno == EINTR)
			continue;
		counter_inc(COUNTER_ACCEPT_ERRORS);
		if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
			l->fn(l->arg, -errno, NULL);
			pause_accepting(l);
			return false;
		}
	}
	return true;
}

static void on_readable(evutil_socket_t fd, short what, void *arg)
{
	accept_batch(arg);
}

void listener_accept_now(struct listener *l)
{
	while (accept_batch(l))
		;
}

int listener_new(struct event_base *base, int fd, accept_fn *fn, void *arg, struct listener **ret)
{
	struct listener *l = calloc(1, sizeof(*l));

	if (!l) {
		fd_close(fd);
		return -ENOMEM;
	}
	*l = (struct listener){.fd = fd, .fn = fn, .arg = arg};
	l->event = event_new(base, fd, EV_READ | EV_PERSIST, on_readable, l);
	l->resume = event_new(base, -1, 0, on_resume, l);
	if (!l->event || !l->resume || event_add(l->event, NULL) < 0) {
		listener_free(l);
		return -ENOMEM;
	}
	*ret = l;
	return 0;
}

struct listener *listener_free(struct listener *l)
{
	if (!l)
		return NULL;
	if (l->event)
		event_free(l->event);
	if (l->resume)
		event_free(l->resume);
	fd_close(l->fd);
	free(l);
	return NULL;
}
