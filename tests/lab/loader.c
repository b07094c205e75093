/* loader - opens many tunnels through a proxy to the bulk origin, moves bytes both ways and checks every one of them.
 *
 *   loader [--proxy A:P] --target HOST:P [--tunnels N] [--concurrent C] [--up BYTES] [--down BYTES] [--words "..."]
 *          [--barrier] [--early] [--fin] [--raw] [--tag N] [--timeout SECONDS]
 *
 * --concurrent C keeps C tunnels open at a time (all by default); --barrier opens all of them before any byte moves;
 * --early sends the first bytes in one segment with the CONNECT head; --fin ends the output when all is sent; --raw does
 * not compare; --words are passed to the origin (see origin_bulk.c). Without --proxy it connects straight to an IPv4 target.
 *
 * Prints one JSON object: ok, failed, up and down (tunnel bytes, the origin's first line counted), seconds, max_open, statuses,
 * first_error. Exits 0 when every tunnel did all that was asked. */
#include "number.h"
#include <arpa/inet.h>
#include <errno.h>
#include <getopt.h>
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
#include <time.h>
#include <unistd.h>

enum { PERIOD = 65521, BUFFER = 256 * 1024, HEAD = 1024, TURN = 8 };
enum state { IDLE, HEAD_OUT, HEAD_IN, WAITING, MOVING, OVER };

struct tunnel {
	int fd;
	enum state state;
	bool readable, writable, eof_in, shut, busy;
	size_t out_at, in_len;
	uint64_t up_sent, down_seen;
	size_t line_sent;
	char in[HEAD];
	struct tunnel *next_busy;
};

static struct {
	const char *target, *words;
	struct sockaddr_in first_hop;
	bool proxied, barrier, early, fin, raw;
	uint64_t tunnels, concurrent, up, down, tag;
	unsigned timeout;
} opt = { .tunnels = 1, .timeout = 120, .words = "" };

static char pattern[PERIOD * 2 + BUFFER], buffer[BUFFER];
static char head[1024], line[512], early[1536];
static size_t head_len, line_len, early_len;
static int epoll_fd;
static struct tunnel *tunnels, *busy;
static uint64_t next_tunnel, n_open, n_waiting, max_open, n_ok, n_failed, sum_up, sum_down;
static uint64_t statuses[600];
static char first_error[200];
static bool released;

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void die(const char *what)
{
	fprintf(stderr, "loader: %s: %s\n", what, strerror(errno));
	exit(2);
}

static void end(struct tunnel *t, const char *error)
{
	if (t->state == OVER)
		return;
	if (t->state == WAITING)
		n_waiting--;
	t->state = OVER;
	close(t->fd);
	n_open--;
	sum_up += t->up_sent + t->line_sent;
	sum_down += t->down_seen;
	if (!error) {
		n_ok++;
		return;
	}
	n_failed++;
	if (!first_error[0])
		snprintf(first_error, sizeof first_error, "%s (tunnel %ld: %llu up, %llu down)", error, (long)(t - tunnels),
			 (unsigned long long)t->up_sent, (unsigned long long)t->down_seen);
}

static void begin(struct tunnel *t)
{
	struct epoll_event e = { .events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET, .data.ptr = t };
	int one = 1;

	t->fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (t->fd < 0)
		die("socket");
	setsockopt(t->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
	t->state = opt.proxied ? HEAD_OUT : MOVING;
	n_open++;
	max_open = n_open > max_open ? n_open : max_open;
	if (connect(t->fd, (struct sockaddr *)&opt.first_hop, sizeof opt.first_hop) < 0 && errno != EINPROGRESS) {
		end(t, strerror(errno));
		return;
	}
	epoll_ctl(epoll_fd, EPOLL_CTL_ADD, t->fd, &e);
}

/* --- moving --- */

/* -1: cannot go on now, or the tunnel is over. */
static ssize_t put(struct tunnel *t, const char *p, size_t n)
{
	ssize_t k = send(t->fd, p, n, MSG_NOSIGNAL);

	if (k < 0 && errno == EAGAIN)
		t->writable = false;
	else if (k < 0)
		end(t, strerror(errno));
	return k;
}

static bool take_down(struct tunnel *t, const char *p, size_t n)
{
	while (n) {
		size_t at = t->down_seen % PERIOD, m = n < PERIOD ? n : PERIOD;

		if (t->down_seen + m > opt.down || (!opt.raw && memcmp(pattern + at, p, m) != 0)) {
			end(t, "wrong bytes came down");
			return false;
		}
		t->down_seen += m;
		p += m;
		n -= m;
	}
	return true;
}

static void head_out(struct tunnel *t)
{
	const char *p = opt.early ? early : head;
	size_t n = opt.early ? early_len : head_len;

	while (t->writable && t->out_at < n) {
		ssize_t k = put(t, p + t->out_at, n - t->out_at);

		if (k < 0)
			return;
		t->out_at += (size_t)k;
	}
	if (t->out_at == n) {
		t->state = HEAD_IN;
		if (opt.early) {
			t->line_sent = line_len;
			t->up_sent = early_len - head_len - line_len;
		}
	}
}

static void head_in(struct tunnel *t)
{
	char *stop;

	while (t->readable && t->state == HEAD_IN) {
		ssize_t k = recv(t->fd, t->in + t->in_len, HEAD - 1 - t->in_len, 0);

		if (k < 0 && errno == EAGAIN) {
			t->readable = false;
			return;
		}
		if (k <= 0) {
			end(t, k < 0 ? strerror(errno) : "closed before a reply");
			return;
		}
		t->in_len += (size_t)k;
		t->in[t->in_len] = 0;
		stop = strstr(t->in, "\r\n\r\n");
		if (!stop && t->in_len < HEAD - 1)
			continue;
		unsigned status = !strncmp(t->in, "HTTP/1.1 ", 9) ? (unsigned)strtoul(t->in + 9, NULL, 10) : 0;

		statuses[status < 600 ? status : 0]++;
		if (status != 200 || !stop) {
			t->in[strcspn(t->in, "\r")] = 0;
			end(t, t->in);
			return;
		}
		t->state = opt.barrier && !released ? WAITING : MOVING;
		n_waiting += t->state == WAITING;
		take_down(t, stop + 4, t->in_len - (size_t)(stop + 4 - t->in));
	}
}

static void move_up(struct tunnel *t)
{
	for (int turn = 0; turn < TURN && t->writable && t->state == MOVING; turn++) {
		ssize_t k;

		if (t->line_sent < line_len) {
			k = put(t, line + t->line_sent, line_len - t->line_sent);
			if (k > 0)
				t->line_sent += (size_t)k;
			continue;
		}
		uint64_t left = opt.up - t->up_sent;

		if (!left)
			break;
		k = put(t, pattern + t->up_sent % PERIOD, left < BUFFER ? (size_t)left : BUFFER);
		if (k > 0)
			t->up_sent += (uint64_t)k;
	}
	if (t->state == MOVING && opt.fin && !t->shut && t->line_sent == line_len && t->up_sent == opt.up) {
		shutdown(t->fd, SHUT_WR);
		t->shut = true;
	}
}

static void move_down(struct tunnel *t)
{
	for (int turn = 0; turn < TURN && t->readable && t->state == MOVING; turn++) {
		ssize_t k = recv(t->fd, opt.raw ? NULL : buffer, opt.raw ? BUFFER * 4 : BUFFER, opt.raw ? MSG_TRUNC : 0);

		if (k > 0 && opt.raw) {
			t->down_seen += (uint64_t)k;
		} else if (k > 0) {
			if (!take_down(t, buffer, (size_t)k))
				return;
		} else if (k < 0 && errno == EAGAIN) {
			t->readable = false;
		} else if (k < 0) {
			end(t, strerror(errno));
		} else if (t->down_seen == opt.down && t->up_sent == opt.up && t->line_sent == line_len) {
			end(t, NULL);
		} else {
			end(t, "closed too early");
		}
	}
}

static void run(struct tunnel *t)
{
	if (t->state == HEAD_OUT)
		head_out(t);
	if (t->state == HEAD_IN)
		head_in(t);
	if (t->state == MOVING) {
		move_up(t);
		move_down(t);
	}
	if (!t->busy && t->state == MOVING &&
	    (t->readable || (t->writable && (t->up_sent < opt.up || t->line_sent < line_len)))) {
		t->busy = true;
		t->next_busy = busy;
		busy = t;
	}
}

static void release(void)
{
	released = true;
	for (uint64_t i = 0; i < next_tunnel; i++) {
		if (tunnels[i].state != WAITING)
			continue;
		n_waiting--;
		tunnels[i].state = MOVING;
		run(&tunnels[i]);
	}
}

/* --- start and report --- */

static uint64_t number(const char *text, uint64_t max)
{
	uint64_t value;

	if (!read_number(text, 0, max, &value)) {
		errno = EINVAL;
		die(text);
	}
	return value;
}

/* ADDRESS:PORT, IPv4 */
static void parse_address(const char *text)
{
	char host[INET_ADDRSTRLEN];
	size_t len = strcspn(text, ":");

	errno = EINVAL;
	if (!text[len] || len >= sizeof host)
		die(text);
	memcpy(host, text, len);
	host[len] = 0;
	opt.first_hop.sin_family = AF_INET;
	opt.first_hop.sin_port = htons((uint16_t)number(text + len + 1, UINT16_MAX));
	if (inet_pton(AF_INET, host, &opt.first_hop.sin_addr) != 1) {
		errno = EINVAL;
		die(text);
	}
}

static void parse(int argc, char **argv)
{
	static const struct option options[] = {
		{ "proxy", 1, 0, 'p' },	  { "target", 1, 0, 't' },  { "tunnels", 1, 0, 'n' }, { "concurrent", 1, 0, 'c' },
		{ "up", 1, 0, 'u' },	  { "down", 1, 0, 'd' },    { "words", 1, 0, 'w' },   { "barrier", 0, 0, 'b' },
		{ "early", 0, 0, 'e' },	  { "fin", 0, 0, 'f' },	    { "raw", 0, 0, 'r' },     { "tag", 1, 0, 'T' },
		{ "timeout", 1, 0, 'x' }, { NULL, 0, 0, 0 },
	};

	for (int c; (c = getopt_long(argc, argv, "", options, NULL)) != -1;) {
		switch (c) {
		case 'p': parse_address(optarg); opt.proxied = true; break;
		case 't': opt.target = optarg; break;
		case 'n': opt.tunnels = number(optarg, UINT64_MAX); break;
		case 'c': opt.concurrent = number(optarg, UINT64_MAX); break;
		case 'u': opt.up = number(optarg, UINT64_MAX); break;
		case 'd': opt.down = number(optarg, UINT64_MAX); break;
		case 'w': opt.words = optarg; break;
		case 'b': opt.barrier = true; break;
		case 'e': opt.early = true; break;
		case 'f': opt.fin = true; break;
		case 'r': opt.raw = true; break;
		case 'T': opt.tag = number(optarg, UINT64_MAX); break;
		case 'x': opt.timeout = (unsigned)number(optarg, UINT32_MAX); break;
		default: exit(2);
		}
	}
	if (!opt.target)
		die("--target");
	if (!opt.proxied)
		parse_address(opt.target);
	if (!opt.concurrent || opt.barrier)
		opt.concurrent = opt.tunnels;
}

static void prepare(void)
{
	size_t n;

	for (size_t i = 0; i < sizeof pattern; i++) {
		size_t at = i % PERIOD;

		pattern[i] = (char)(at * 131 + (at >> 8) * 17 + 7);
	}
	head_len = (size_t)snprintf(head, sizeof head, "CONNECT %s HTTP/1.1\r\nHost: %s\r\n\r\n", opt.target, opt.target);
	line_len = (size_t)snprintf(line, sizeof line, "up=%llu down=%llu tag=%llu%s %s\n", (unsigned long long)opt.up,
				    (unsigned long long)opt.down, (unsigned long long)opt.tag, opt.raw ? " raw" : "", opt.words);
	n = opt.up < 500 ? (size_t)opt.up : 500;
	memcpy(early, head, head_len);
	memcpy(early + head_len, line, line_len);
	memcpy(early + head_len + line_len, pattern, n);
	early_len = head_len + line_len + n;
}

static void report(double seconds)
{
	const char *comma = "";

	printf("{\"ok\":%llu,\"failed\":%llu,\"up\":%llu,\"down\":%llu,\"max_open\":%llu,\"seconds\":%.3f,\"statuses\":{",
	       (unsigned long long)n_ok, (unsigned long long)n_failed, (unsigned long long)sum_up,
	       (unsigned long long)sum_down, (unsigned long long)max_open, seconds);
	for (unsigned i = 0; i < 600; i++) {
		if (!statuses[i])
			continue;
		printf("%s\"%u\":%llu", comma, i, (unsigned long long)statuses[i]);
		comma = ",";
	}
	printf("},\"first_error\":\"");
	for (const char *p = first_error; *p; p++)
		putchar(*p == '"' || *p == '\\' || *p < ' ' ? '?' : *p);
	printf("\"}\n");
}

int main(int argc, char **argv)
{
	struct epoll_event events[512];
	struct rlimit files;
	double start = now();

	signal(SIGPIPE, SIG_IGN);
	parse(argc, argv);
	prepare();
	getrlimit(RLIMIT_NOFILE, &files);
	files.rlim_cur = files.rlim_max;
	setrlimit(RLIMIT_NOFILE, &files);
	epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	tunnels = calloc(opt.tunnels, sizeof *tunnels);
	if (!tunnels)
		die("memory");
	while (n_ok + n_failed < opt.tunnels && now() - start < opt.timeout) {
		while (next_tunnel < opt.tunnels && n_open < opt.concurrent)
			begin(&tunnels[next_tunnel++]);
		if (opt.barrier && !released && next_tunnel == opt.tunnels && n_waiting == n_open)
			release();
		int n = epoll_wait(epoll_fd, events, 512, busy ? 0 : 100);
		struct tunnel *list = busy, *next;

		busy = NULL;
		for (int i = 0; i < n; i++) {
			struct tunnel *t = events[i].data.ptr;

			if (t->state == OVER)
				continue;
			t->readable |= (events[i].events & (EPOLLIN | EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0;
			t->writable |= (events[i].events & EPOLLOUT) != 0;
			run(t);
		}
		for (struct tunnel *t = list; t; t = next) {
			next = t->next_busy;
			t->busy = false;
			if (t->state != OVER)
				run(t);
		}
	}
	for (uint64_t i = 0; i < next_tunnel; i++)
		if (tunnels[i].state != OVER)
			end(&tunnels[i], "not done in time");
	report(now() - start);
	return n_ok == opt.tunnels ? 0 : 1;
}
