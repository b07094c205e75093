/* origin SOCKET FILE - the lab's bulk origin: one epoll loop that serves raw TCP behaviours and counts every byte.
 *
 * FILE has one listener a line, "ADDRESS,PORT,BEHAVIOUR":
 *   echo    sends back what comes; at end of input sends the rest and closes
 *   bulk    obeys its first line, see origin_bulk.c
 *   banner  sends a banner at once, then echoes
 *   drain   reads to the end of input, then sends the count as a decimal line and closes
 *   hold    accepts and neither reads, writes nor closes
 *   reset   accepts and resets
 *   close   accepts and closes
 *   watch   an address nobody may dial: records who came, closes
 *
 * Control (JSON lines on SOCKET): any request with "since" answers {"mark": N, "connections": [...]} with the records
 * from that number on; "wait" (milliseconds) holds the answer until all of them have ended or the time is over. */
#include "origin.h"
#include "number.h"
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

static const char *const behaviour_names[] = { "echo", "bulk", "banner", "drain", "hold", "reset", "close", "watch" };
static const char *const end_names[] = { "open", "done", "eof", "peer_reset", "reset", "mismatch", "error" };

struct listener {
	enum kind kind;
	int fd;
	enum behaviour behaviour;
	char address[INET6_ADDRSTRLEN];
	uint16_t port;
};

struct asker {
	int fd;
	uint32_t since;
	uint64_t until_ms;
	struct asker *next;
};

static int epoll_fd;
struct record *records;
static uint32_t n_records, cap_records;
char buffer[BUFFER];
static struct conn *paced; /* look at the clock each round */
static struct conn *busy;  /* used up their turn: edge-triggered events will not tell again */
static struct conn *dead;  /* freed at the end of the round */
static struct asker *askers;

uint64_t now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

static void die(const char *what)
{
	fprintf(stderr, "origin: %s: %s\n", what, strerror(errno));
	exit(1);
}

static void *must(void *p)
{
	if (!p)
		die("memory");
	return p;
}

static void watch_fd(int fd, void *object, uint32_t events)
{
	struct epoll_event e = { .events = events, .data.ptr = object };

	if (epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &e) < 0)
		die("epoll_ctl");
}

/* --- connections --- */

void conn_pace(struct conn *c)
{
	if (c->paced)
		return;
	c->paced = true;
	c->prev_paced = NULL;
	c->next_paced = paced;
	if (paced)
		paced->prev_paced = c;
	paced = c;
}

void conn_end(struct conn *c, enum end end)
{
	struct linger reset = { 1, 0 };
	struct record *r = &records[c->record];

	if (r->end != OPEN)
		return;
	r->end = end;
	if (end == END_RESET || end == END_MISMATCH)
		setsockopt(c->fd, SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
	close(c->fd);
	c->fd = -1;
	if (c->paced) {
		if (c->prev_paced)
			c->prev_paced->next_paced = c->next_paced;
		else
			paced = c->next_paced;
		if (c->next_paced)
			c->next_paced->prev_paced = c->prev_paced;
	}
	free(c->pending);
	c->pending = NULL;
	c->next_dead = dead;
	dead = c;
}

int conn_send(struct conn *c, const char *p, size_t n)
{
	ssize_t k = send(c->fd, p, n, MSG_NOSIGNAL);

	if (k >= 0) {
		records[c->record].sent += (uint64_t)k;
		return (int)k;
	}
	if (errno == EAGAIN)
		c->writable = false;
	else
		conn_end(c, errno == ECONNRESET || errno == EPIPE ? END_PEER_RESET : END_ERROR);
	return -1;
}

ssize_t conn_recv(struct conn *c, char *p, size_t n, int flags)
{
	struct record *r = &records[c->record];
	ssize_t k = recv(c->fd, p, n, flags);

	if (k > 0) {
		if (!flags && r->head_len < HEAD_KEPT) {
			size_t m = (size_t)k < (size_t)(HEAD_KEPT - r->head_len) ? (size_t)k
										: (size_t)(HEAD_KEPT - r->head_len);
			memcpy(r->head + r->head_len, p, m);
			r->head_len = (uint8_t)(r->head_len + m);
		}
		r->received += (uint64_t)k;
	} else if (k == 0) {
		c->eof_in = true;
		r->saw_eof = 1;
		c->readable = false;
	} else if (errno == EAGAIN) {
		c->readable = false;
	} else {
		conn_end(c, errno == ECONNRESET ? END_PEER_RESET : END_ERROR);
	}
	return k;
}

static void echo_turn(struct conn *c)
{
	for (int turn = 0; turn < TURN && c->fd >= 0; turn++) {
		if (c->pending_at < c->pending_len) {
			int k;

			if (!c->writable)
				return;
			k = conn_send(c, c->pending + c->pending_at, c->pending_len - c->pending_at);
			if (k < 0)
				return;
			c->pending_at += (size_t)k;
			continue;
		}
		c->pending_at = c->pending_len = 0;
		if (c->eof_in) {
			conn_end(c, END_EOF);
			return;
		}
		if (!c->readable)
			return;
		if (!c->pending)
			c->pending = must(malloc(BUFFER));
		ssize_t k = conn_recv(c, c->pending, BUFFER, 0);
		if (k > 0)
			c->pending_len = (size_t)k;
		else if (k < 0)
			return;
	}
}

static void drain_turn(struct conn *c)
{
	char text[32];
	int n;

	while (c->readable && c->fd >= 0 && !c->eof_in)
		conn_recv(c, buffer, BUFFER, 0);
	if (c->fd < 0 || !c->eof_in)
		return;
	n = snprintf(text, sizeof text, "%llu\n", (unsigned long long)records[c->record].received);
	if (conn_send(c, text, (size_t)n) == n)
		conn_end(c, END_EOF);
}

static void conn_turn(struct conn *c)
{
	switch (c->behaviour) {
	case BULK:
		bulk_turn(c);
		break;
	case ECHO:
	case BANNER:
		echo_turn(c);
		break;
	case DRAIN:
		drain_turn(c);
		break;
	case HOLD:
		break; /* the kernel's word of a reset is in the events */
	case WATCH:
		while (c->readable && c->fd >= 0 && !c->eof_in)
			conn_recv(c, buffer, BUFFER, 0);
		if (c->fd >= 0 && c->eof_in)
			conn_end(c, END_EOF);
		break;
	case RESET:
	case CLOSE:
		break;
	}
}

static void conn_begin(const struct listener *l, int fd, const struct sockaddr_storage *peer)
{
	struct conn *c = must(calloc(1, sizeof *c));
	struct record *r;
	int one = 1;

	if (n_records == cap_records) {
		cap_records = cap_records ? cap_records * 2 : 4096;
		records = must(realloc(records, cap_records * sizeof *records));
	}
	r = &records[n_records];
	memset(r, 0, sizeof *r);
	r->behaviour = (uint8_t)l->behaviour;
	r->port = l->port;
	r->peer_port = ntohs(((const struct sockaddr_in *)peer)->sin_port);
	memcpy(r->address, l->address, sizeof r->address);
	c->kind = K_CONN;
	c->fd = fd;
	c->record = n_records++;
	c->behaviour = l->behaviour;
	c->readable = c->writable = true;
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
	if (l->behaviour == RESET || l->behaviour == CLOSE) {
		conn_end(c, l->behaviour == RESET ? END_RESET : END_DONE);
		return;
	}
	watch_fd(fd, c, EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET);
	if (l->behaviour == BANNER)
		conn_send(c, "220 banner.example.org speaks first\r\n", 37);
}

static void accept_all(const struct listener *l)
{
	for (int i = 0; i < 256; i++) {
		struct sockaddr_storage peer;
		socklen_t len = sizeof peer;
		int fd = accept4(l->fd, (struct sockaddr *)&peer, &len, SOCK_NONBLOCK | SOCK_CLOEXEC);

		if (fd < 0)
			return;
		conn_begin(l, fd, &peer);
	}
}

/* --- control --- */

static void print_record(FILE *f, uint32_t i)
{
	const struct record *r = &records[i];

	fprintf(f, "{\"id\":%u,\"address\":\"%s\",\"port\":%u,\"peer_port\":%u,\"behaviour\":\"%s\",\"end\":\"%s\",\"eof\":%s,"
		   "\"received\":%llu,\"sent\":%llu,\"tag\":%llu,\"head\":\"", i, r->address, r->port, r->peer_port,
		behaviour_names[r->behaviour], end_names[r->end], r->saw_eof ? "true" : "false",
		(unsigned long long)r->received, (unsigned long long)r->sent, (unsigned long long)r->tag);
	for (size_t k = 0; k < r->head_len; k++)
		fprintf(f, "%02x", r->head[k]);
	fputs("\"}", f);
}

static void answer(int fd, uint32_t since)
{
	FILE *f;
	int flags = fcntl(fd, F_GETFL);

	fcntl(fd, F_SETFL, flags & ~O_NONBLOCK);
	f = fdopen(fd, "w");
	if (!f) {
		close(fd);
		return;
	}
	fprintf(f, "{\"mark\":%u,\"connections\":[", n_records);
	for (uint32_t i = since; i < n_records; i++) {
		if (i > since)
			fputs(",\n", f);
		print_record(f, i);
	}
	fputs("]}\n", f);
	fclose(f);
}

static bool all_ended(uint32_t since)
{
	for (uint32_t i = since; i < n_records; i++)
		if (records[i].end == OPEN)
			return false;
	return true;
}

static uint64_t number_of(const char *request, const char *key, uint64_t missing)
{
	const char *p = strstr(request, key);

	if (!p)
		return missing;
	p += strlen(key);
	return strtoull(p + strspn(p, "\": "), NULL, 10);
}

static void control_accept(const struct listener *l)
{
	int fd = accept4(l->fd, NULL, NULL, SOCK_CLOEXEC);
	struct timeval second = { 2, 0 };
	char request[512];
	ssize_t n;
	uint64_t wait;
	struct asker *a;

	if (fd < 0)
		return;
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &second, sizeof second);
	n = recv(fd, request, sizeof request - 1, 0);
	if (n <= 0) {
		close(fd);
		return;
	}
	request[n] = 0;
	wait = number_of(request, "\"wait\"", 0);
	a = must(calloc(1, sizeof *a));
	*a = (struct asker){ fd, (uint32_t)number_of(request, "\"since\"", n_records), now_ms() + wait, askers };
	askers = a;
}

static void serve_askers(void)
{
	for (struct asker **p = &askers; *p;) {
		struct asker *a = *p;

		if (!all_ended(a->since) && a->until_ms > now_ms()) {
			p = &a->next;
			continue;
		}
		*p = a->next;
		answer(a->fd, a->since);
		free(a);
	}
}

/* --- start --- */

static int bind_tcp(const char *address, uint16_t port)
{
	struct sockaddr_in6 a6 = { .sin6_family = AF_INET6, .sin6_port = htons(port) };
	struct sockaddr_in a4 = { .sin_family = AF_INET, .sin_port = htons(port) };
	bool six = strchr(address, ':') != NULL;
	int one = 1, fd = socket(six ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

	if (fd < 0)
		die("socket");
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
	if (six)
		setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &one, sizeof one);
	if (inet_pton(six ? AF_INET6 : AF_INET, address, six ? (void *)&a6.sin6_addr : (void *)&a4.sin_addr) != 1 ||
	    bind(fd, six ? (struct sockaddr *)&a6 : (struct sockaddr *)&a4, six ? sizeof a6 : sizeof a4) < 0 ||
	    listen(fd, 8192) < 0)
		die(address);
	return fd;
}

/* Takes one line of FILE apart: its commas and its end become zeros. */
static bool parse_listener(char *line, struct listener *l)
{
	char *port = strchr(line, ','), *name = port ? strchr(port + 1, ',') : NULL;
	uint64_t number;
	size_t b = 0;

	if (!name)
		return false;
	*port++ = *name++ = 0;
	name[strcspn(name, "\n")] = 0;
	while (b < sizeof behaviour_names / sizeof *behaviour_names && strcmp(behaviour_names[b], name) != 0)
		b++;
	if (b == sizeof behaviour_names / sizeof *behaviour_names || strlen(line) >= sizeof l->address ||
	    !read_number(port, 0, UINT16_MAX, &number))
		return false;
	l->behaviour = (enum behaviour)b;
	l->port = (uint16_t)number;
	memcpy(l->address, line, strlen(line) + 1);
	return true;
}

static void read_listeners(const char *path)
{
	FILE *f = fopen(path, "r");
	char line[200];

	if (!f)
		die(path);
	while (fgets(line, sizeof line, f)) {
		struct listener *l = must(calloc(1, sizeof *l));

		if (!parse_listener(line, l)) {
			errno = EINVAL;
			die(line);
		}
		l->fd = bind_tcp(l->address, l->port);
		l->kind = K_LISTENER;
		watch_fd(l->fd, l, EPOLLIN);
	}
	fclose(f);
}

static void open_control(const char *path)
{
	struct sockaddr_un u = { .sun_family = AF_UNIX };
	struct listener *l = must(calloc(1, sizeof *l));

	snprintf(u.sun_path, sizeof u.sun_path, "%s", path);
	l->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (l->fd < 0 || bind(l->fd, (struct sockaddr *)&u, sizeof u) < 0 || listen(l->fd, 64) < 0)
		die(path);
	l->kind = K_CONTROL;
	watch_fd(l->fd, l, EPOLLIN);
}

static bool has_work(const struct conn *c)
{
	if (c->fd < 0 || c->behaviour == HOLD)
		return false;
	if (c->behaviour == BULK)
		return bulk_has_work(c);
	if (c->pending_at < c->pending_len)
		return c->writable;
	return c->readable && !c->eof_in;
}

static void conn_run(struct conn *c)
{
	if (c->fd < 0)
		return;
	conn_turn(c);
	if (!c->busy && has_work(c)) {
		c->busy = true;
		c->next_busy = busy;
		busy = c;
	}
}

static void on_conn(struct conn *c, uint32_t events)
{
	if (c->fd < 0)
		return;
	if (events & (EPOLLIN | EPOLLRDHUP | EPOLLHUP | EPOLLERR))
		c->readable = true;
	if (events & EPOLLOUT)
		c->writable = true;
	if ((c->behaviour == HOLD || c->rate) && events & EPOLLERR)
		conn_end(c, END_PEER_RESET); /* it would take long to read what stands before the error */
	else if (c->behaviour == HOLD && events & EPOLLHUP)
		conn_end(c, END_EOF);
	else if (c->behaviour == HOLD && events & EPOLLRDHUP)
		records[c->record].saw_eof = 1;
	else
		conn_run(c);
}

static void round_of(struct epoll_event *events, int n)
{
	struct conn *list = busy, *next;

	busy = NULL;
	for (int i = 0; i < n; i++) {
		void *object = events[i].data.ptr;

		switch (*(enum kind *)object) {
		case K_LISTENER:
			accept_all(object);
			break;
		case K_CONTROL:
			control_accept(object);
			break;
		case K_CONN:
			on_conn(object, events[i].events);
			break;
		}
	}
	for (struct conn *c = list; c; c = next) {
		next = c->next_busy;
		c->busy = false;
		conn_run(c);
	}
	for (struct conn *c = paced; c; c = next) {
		next = c->next_paced;
		conn_run(c);
	}
	serve_askers();
}

/* A dead connection may stand in the busy list still: it is freed only when it left it. */
static void free_dead(void)
{
	struct conn *keep = NULL, *next;

	for (struct conn *c = dead; c; c = next) {
		next = c->next_dead;
		if (c->busy) {
			c->next_dead = keep;
			keep = c;
		} else {
			free(c);
		}
	}
	dead = keep;
}

int main(int argc, char **argv)
{
	struct epoll_event events[512];
	struct rlimit files;

	if (argc != 3)
		return 2;
	signal(SIGPIPE, SIG_IGN);
	getrlimit(RLIMIT_NOFILE, &files);
	files.rlim_cur = files.rlim_max;
	setrlimit(RLIMIT_NOFILE, &files);
	bulk_init();
	epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	read_listeners(argv[2]);
	open_control(argv[1]);
	for (;;) {
		int n = epoll_wait(epoll_fd, events, 512, busy ? 0 : paced || askers ? 5 : -1);

		round_of(events, n > 0 ? n : 0);
		free_dead();
	}
}
