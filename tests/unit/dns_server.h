/* A name server for tests: a thread on 127.0.0.1 (UDP and TCP, one port) that answers by a table of scripts.
 *
 * Header-only, for one test program. Each script builds the reply it wants, right or wrong; queries are counted. */
#ifndef TESTS_DNS_SERVER_H
#define TESTS_DNS_SERVER_H

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { T_A_ = 1, T_CNAME_ = 5, T_AAAA_ = 28 };
enum { RC_OK = 0, RC_FORMERR = 1, RC_SERVFAIL = 2, RC_NXDOMAIN = 3, RC_NOTIMP = 4, RC_REFUSED = 5 };

struct packet {
	uint8_t b[65535];
	size_t n;
	bool silent;       /* send nothing */
	bool hang_up;      /* TCP: close instead of answering */
	unsigned delay_ms; /* UDP: send later */
};

typedef void script_fn(struct packet *p, int type, bool tcp);

struct script {
	const char *name; /* "*.x": any name that ends so */
	script_fn *fn;
	unsigned asked_a, asked_aaaa, asked_tcp;
};

struct dns_server {
	struct script *scripts;
	size_t n_scripts;
	pthread_mutex_t lock;
	pthread_t thread;
	int udp, tcp, stop;
	uint16_t port;
	unsigned unknown; /* queries for names that no script has */
};

static inline void put16(struct packet *p, unsigned v)
{
	p->b[p->n++] = (uint8_t)(v >> 8);
	p->b[p->n++] = (uint8_t)v;
}

static inline void put_name(struct packet *p, const char *name)
{
	while (*name) {
		size_t len = strcspn(name, ".");

		p->b[p->n++] = (uint8_t)len;
		memcpy(p->b + p->n, name, len);
		p->n += len;
		name += len + (name[len] == '.');
	}
	p->b[p->n++] = 0;
}

static inline void set_rcode(struct packet *p, unsigned rcode)
{
	p->b[3] = (uint8_t)((p->b[3] & 0xf0) | rcode);
}

static inline void set_tc(struct packet *p)
{
	p->b[2] |= 2;
}

/* Everything up to the data; the owner is `owner`, or the question's name by compression. */
static inline void put_rr(struct packet *p, const char *owner, unsigned type, unsigned class, uint32_t ttl,
			  unsigned len)
{
	unsigned count = (unsigned)p->b[6] << 8 | p->b[7];

	count++;
	p->b[6] = (uint8_t)(count >> 8);
	p->b[7] = (uint8_t)count;
	if (owner)
		put_name(p, owner);
	else
		put16(p, 0xc00c);
	put16(p, type);
	put16(p, class);
	put16(p, ttl >> 16);
	put16(p, ttl & 0xffff);
	put16(p, len);
}

static inline void put_a(struct packet *p, const char *owner, uint32_t ttl, const char *text)
{
	put_rr(p, owner, T_A_, 1, ttl, 4);
	inet_pton(AF_INET, text, p->b + p->n);
	p->n += 4;
}

static inline void put_aaaa(struct packet *p, const char *owner, uint32_t ttl, const char *text)
{
	put_rr(p, owner, T_AAAA_, 1, ttl, 16);
	inet_pton(AF_INET6, text, p->b + p->n);
	p->n += 16;
}

static inline void put_cname(struct packet *p, const char *owner, uint32_t ttl, const char *target)
{
	size_t at;

	put_rr(p, owner, T_CNAME_, 1, ttl, 0);
	at = p->n;
	put_name(p, target);
	p->b[at - 2] = (uint8_t)((p->n - at) >> 8);
	p->b[at - 1] = (uint8_t)(p->n - at);
}

/* n addresses of the family asked for. */
static inline void put_many(struct packet *p, int type, unsigned n)
{
	char text[64];

	for (unsigned i = 1; i <= n; i++) {
		snprintf(text, sizeof(text), type == T_A_ ? "93.184.216.%u" : "2606:2800::%x", i);
		if (type == T_A_)
			put_a(p, NULL, 60, text);
		else
			put_aaaa(p, NULL, 60, text);
	}
}

static inline bool script_matches(const char *pattern, const char *name)
{
	size_t n = strlen(name), m = strlen(pattern);

	if (pattern[0] != '*')
		return strcasecmp(pattern, name) == 0;
	return n >= m - 1 && strcasecmp(name + n - (m - 1), pattern + 1) == 0;
}

static inline struct script *server_script(struct dns_server *s, const char *name)
{
	for (size_t i = 0; i < s->n_scripts; i++)
		if (script_matches(s->scripts[i].name, name))
			return &s->scripts[i];
	return NULL;
}

/* Builds the reply to a query of n bytes. False when it is no query. */
static inline bool server_reply(struct dns_server *s, const uint8_t *q, size_t n, bool tcp, struct packet *p)
{
	char name[256];
	size_t pos = 12, len = 0;
	struct script *script;
	int type;

	if (n < 17 || n > 512)
		return false;
	while (pos < n && q[pos] != 0) {
		size_t label = q[pos];

		if (label > 63 || pos + 1 + label >= n || len + label + 1 >= sizeof(name))
			return false;
		memcpy(name + len, q + pos + 1, label);
		len += label;
		name[len++] = '.';
		pos += label + 1;
	}
	if (len == 0 || pos + 5 > n)
		return false;
	name[len - 1] = '\0';
	type = q[pos + 1] << 8 | q[pos + 2];
	p->n = pos + 5;
	p->silent = p->hang_up = false;
	p->delay_ms = 0;
	memcpy(p->b, q, p->n);
	p->b[2] |= 0x80;
	p->b[3] = 0x80;
	memset(p->b + 6, 0, 6);
	pthread_mutex_lock(&s->lock);
	script = server_script(s, name);
	if (script && tcp)
		script->asked_tcp++;
	else if (script && type == T_A_)
		script->asked_a++;
	else if (script && type == T_AAAA_)
		script->asked_aaaa++;
	else
		s->unknown++;
	pthread_mutex_unlock(&s->lock);
	if (script)
		script->fn(p, type, tcp);
	else
		set_rcode(p, RC_REFUSED);
	return true;
}

struct late {
	uint64_t due_ms;
	struct sockaddr_in to;
	size_t n;
	uint8_t b[512];
};

static inline uint64_t server_now_ms(void)
{
	struct timespec ts;

	timespec_get(&ts, TIME_UTC);
	return (uint64_t)ts.tv_sec * 1000 + (uint64_t)ts.tv_nsec / 1000000;
}

static inline void serve_udp(struct dns_server *s, struct late *late, size_t n_late)
{
	static struct packet p;
	uint8_t q[600];
	struct sockaddr_in from;
	socklen_t len = sizeof(from);
	ssize_t n = recvfrom(s->udp, q, sizeof(q), MSG_DONTWAIT, (struct sockaddr *)&from, &len);

	if (n < 0 || !server_reply(s, q, (size_t)n, false, &p) || p.silent)
		return;
	if (p.delay_ms == 0) {
		sendto(s->udp, p.b, p.n, 0, (struct sockaddr *)&from, len);
		return;
	}
	for (size_t i = 0; i < n_late; i++) {
		if (late[i].due_ms != 0 || p.n > sizeof(late[i].b))
			continue;
		late[i].due_ms = server_now_ms() + p.delay_ms;
		late[i].to = from;
		late[i].n = p.n;
		memcpy(late[i].b, p.b, p.n);
		return;
	}
}

/* Serves what one connection asks until it is closed or a script hangs up. */
static inline void serve_tcp(struct dns_server *s)
{
	static struct packet p;
	int fd = accept(s->tcp, NULL, NULL);
	uint8_t q[600], size[2];
	struct timeval tv = {.tv_sec = 0, .tv_usec = 300000};

	if (fd < 0)
		return;
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof(tv));
	while (recv(fd, size, 2, MSG_WAITALL) == 2) {
		size_t n = (size_t)size[0] << 8 | size[1];

		if (n > sizeof(q) || recv(fd, q, n, MSG_WAITALL) != (ssize_t)n || !server_reply(s, q, n, true, &p) ||
		    p.hang_up)
			break;
		if (p.silent)
			continue;
		size[0] = (uint8_t)(p.n >> 8);
		size[1] = (uint8_t)p.n;
		if (send(fd, size, 2, MSG_MORE | MSG_NOSIGNAL) != 2 || send(fd, p.b, p.n, MSG_NOSIGNAL) != (ssize_t)p.n)
			break;
	}
	close(fd);
}

static inline void *server_thread(void *arg)
{
	struct dns_server *s = arg;
	struct late late[64] = {{0}};
	struct pollfd fds[3] = {{s->udp, POLLIN, 0}, {s->tcp, POLLIN, 0}, {s->stop, POLLIN, 0}};

	for (;;) {
		poll(fds, 3, 5);
		if (fds[2].revents)
			return NULL;
		if (fds[0].revents)
			serve_udp(s, late, 64);
		if (fds[1].revents)
			serve_tcp(s);
		for (size_t i = 0; i < 64; i++) {
			if (late[i].due_ms == 0 || late[i].due_ms > server_now_ms())
				continue;
			sendto(s->udp, late[i].b, late[i].n, 0, (struct sockaddr *)&late[i].to, sizeof(late[i].to));
			late[i].due_ms = 0;
		}
	}
}

static inline bool server_start(struct dns_server *s, const char *address, uint16_t port)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(port)};
	socklen_t len = sizeof(a);
	int size = 4 * 1024 * 1024, on = 1;

	inet_pton(AF_INET, address, &a.sin_addr);
	pthread_mutex_init(&s->lock, NULL);
	s->tcp = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	s->udp = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	s->stop = eventfd(0, EFD_CLOEXEC);
	setsockopt(s->udp, SOL_SOCKET, SO_RCVBUF, &size, sizeof(size));
	setsockopt(s->tcp, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
	if (bind(s->tcp, (struct sockaddr *)&a, len) < 0 || listen(s->tcp, 64) < 0 ||
	    getsockname(s->tcp, (struct sockaddr *)&a, &len) < 0 || bind(s->udp, (struct sockaddr *)&a, len) < 0)
		return false;
	s->port = ntohs(a.sin_port);
	return pthread_create(&s->thread, NULL, server_thread, s) == 0;
}

static inline void server_stop(struct dns_server *s)
{
	uint64_t one = 1;

	if (write(s->stop, &one, sizeof(one)) != sizeof(one))
		abort();
	pthread_join(s->thread, NULL);
	close(s->udp);
	close(s->tcp);
	close(s->stop);
	pthread_mutex_destroy(&s->lock);
}

/* Queries so far for a name: A and AAAA over UDP, or all over TCP. */
static inline void server_count(struct dns_server *s, const char *name, unsigned *ret_a, unsigned *ret_aaaa,
				unsigned *ret_tcp)
{
	struct script *script;

	pthread_mutex_lock(&s->lock);
	script = server_script(s, name);
	*ret_a = script ? script->asked_a : 0;
	*ret_aaaa = script ? script->asked_aaaa : 0;
	*ret_tcp = script ? script->asked_tcp : 0;
	pthread_mutex_unlock(&s->lock);
}

#endif
