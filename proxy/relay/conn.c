/* conn: the life of a client connection.
 *
 *     accept -> HEAD -> DIALING -> TUNNEL -----------------> CLOSED
 *                ^  \         \-> EXCHANGE -> (HEAD again) -> CLOSED
 *                |   \--------------> DRAINING -------------> CLOSED
 *
 * Every event ends in conn_run(), which lets the handler of the present state do all it can and, when that moved the
 * connection to another state, lets the next handler go on. Both sockets are registered once, edge-triggered, for reading,
 * writing and the peer's FIN; nothing is ever switched on or off, a handler that wants no bytes just does not read.
 *
 * One timer per connection, lazily kept: the deadline is computed from the state and the time a byte last moved; a timer
 * that fires early is set anew. conn_close() is the only end: it writes the log line, closes or resets, takes every
 * event and callback away, and leaves the memory to the end of the turn. */
#include "relay/conn.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "base/counter.h"
#include "base/fd.h"
#include "limits.h"
#include "relay/access.h"
#include "relay/exchange.h"
#include "relay/relay.h"
#include "relay/request.h"
#include "relay/tunnel.h"

static const struct {
	const char *word;
	enum counter counter;
	bool abort;
} closes[CLOSE_N] = {
#define X(name, word, abort, text) {word, COUNTER_CLOSED_##name, abort},
#include "relay/close.def"
#undef X
};

/* Which state may follow which. CLOSED may follow all. */
static const unsigned legal[CONN_STATE_N] = {
	[CONN_CLOSED] = 1u << CONN_HEAD, /* a new connection */
	[CONN_HEAD] = 1u << CONN_DIALING | 1u << CONN_EXCHANGE | 1u << CONN_DRAINING | 1u << CONN_CLOSED,
	[CONN_DIALING] = 1u << CONN_TUNNEL | 1u << CONN_EXCHANGE | 1u << CONN_DRAINING | 1u << CONN_CLOSED,
	[CONN_TUNNEL] = 1u << CONN_CLOSED,
	[CONN_EXCHANGE] = 1u << CONN_HEAD | 1u << CONN_DIALING | 1u << CONN_TUNNEL | 1u << CONN_DRAINING | 1u << CONN_CLOSED,
	[CONN_DRAINING] = 1u << CONN_CLOSED,
};

const char *close_word(enum close_why why)
{
	return closes[why].word;
}

enum counter close_counter(enum close_why why)
{
	return closes[why].counter;
}

uint64_t conn_now_ms(void)
{
	return clock_mono_ms();
}

void conn_set_state(struct conn *c, enum conn_state to)
{
	if (!(legal[c->state] & 1u << to))
		abort();
	if (c->state == CONN_TUNNEL)
		counter_sub(COUNTER_TUNNELS_OPEN, 1);
	if (to == CONN_TUNNEL)
		counter_inc(COUNTER_TUNNELS_OPEN);
	c->state = to;
	c->since_ms = c->active_ms = conn_now_ms();
}

static struct pump_room room_of(struct conn *c)
{
	return (struct pump_room){.pipes = &c->relay->worker->pipes, .copy = c->relay->worker->copy};
}

/* --- counting: the three places where bytes move --- */

static void count(struct conn *c, enum side_id from, uint64_t in, uint64_t out)
{
	if (from == CLIENT) {
		c->req.up += out;
		counter_add(COUNTER_BYTES_UP, out);
	} else {
		c->req.down += in;
		c->req.to_client += out;
		counter_add(COUNTER_BYTES_DOWN, in);
	}
	c->active_ms = conn_now_ms();
}

static enum pump_status pump_and_count(struct conn *c, enum side_id from, uint64_t *limit)
{
	struct pump_room room = room_of(c);
	struct pump *p = &c->pump[from];
	struct pump_end *to = &c->side[!from].end;
	uint64_t in = p->in, out = p->out, spliced = p->spliced;
	enum pump_status st = limit ? pump_run(p, &c->side[from].end, to, limit, &room) : pump_flush(p, to, &room);

	if (p->in != in || p->out != out)
		count(c, from, p->in - in, p->out - out);
	if (p->spliced != spliced)
		counter_add(COUNTER_BYTES_SPLICED, p->spliced - spliced);
	if (c->side[from].end.unsure || p->spliced != spliced)
		relay_tick(c->relay);
	return st;
}

enum pump_status conn_pump(struct conn *c, enum side_id from, uint64_t *limit)
{
	return pump_and_count(c, from, limit);
}

enum pump_status conn_flush(struct conn *c, enum side_id from)
{
	return pump_and_count(c, from, NULL);
}

ssize_t conn_read(struct conn *c, enum side_id from, struct buf *b, size_t max)
{
	struct pump_end *end = &c->side[from].end;
	char *copy = c->relay->worker->copy;
	size_t want = max < LIMIT_COPY_BYTES ? max : LIMIT_COPY_BYTES;
	ssize_t n;

	if (!end->readable || end->eof || !want)
		return 0;
	do
		n = recv(end->fd, copy, want, MSG_DONTWAIT);
	while (n < 0 && errno == EINTR);
	pump_end_read(end, n, want);
	if (n < 0)
		return errno == EAGAIN ? 0 : -errno;
	if (end->unsure)
		relay_tick(c->relay);
	if (from == ORIGIN && n > 0)
		count(c, ORIGIN, (uint64_t)n, 0);
	else
		c->active_ms = conn_now_ms();
	buf_add(b, copy, (size_t)n);
	return b->failed ? -ENOMEM : n;
}

/* --- time --- */

/* When this connection has waited long enough, in the terms of clock_mono_ms(); 0: never by itself. */
static uint64_t deadline(const struct conn *c)
{
	const struct relay_timeouts *t = &c->relay->shared->timeouts;

	switch (c->state) {
	case CONN_CLOSED:
	case CONN_DIALING: /* the dialer has a budget of its own */
		return 0;
	case CONN_HEAD:
		if (!c->in.len && c->relay->worker->draining) /* it may have a request under way to us */
			return c->since_ms + LIMIT_LAST_REQUEST_MS;
		if (!c->in.len && c->req.id[0])
			return c->active_ms + t->idle_ms; /* between two requests */
		return c->since_ms + t->head_ms;
	case CONN_TUNNEL:
		if (c->side[CLIENT].end.eof || c->side[ORIGIN].end.eof)
			return c->active_ms + t->half_open_ms;
		return c->active_ms + t->idle_ms;
	case CONN_EXCHANGE:
		if (c->side[CLIENT].end.hup) /* it may only have finished speaking, or be gone */
			return c->active_ms + t->half_open_ms;
		return c->active_ms + t->idle_ms;
	case CONN_DRAINING:
		return c->since_ms + LIMIT_DRAIN_MS;
	}
	return 0;
}

/* Returns false when there is no memory for the timer. */
static bool arm(struct conn *c)
{
	uint64_t at = deadline(c), now;
	struct timeval tv;

	if (!at || (c->timer_at_ms && c->timer_at_ms <= at))
		return true;
	now = conn_now_ms();
	at = at > now ? at - now : 0;
	tv = clock_timeval_ms(at);
	if (event_add(&c->timer, &tv) < 0)
		return false;
	c->timer_at_ms = now + at;
	return true;
}

/* Without its timer nothing might ever end a connection. */
static void arm_or_close(struct conn *c)
{
	if (arm(c))
		return;
	counter_inc(COUNTER_ALLOCATION_FAILURES);
	conn_close(c, CLOSE_INTERNAL_ERROR);
}

static void timed_out(struct conn *c)
{
	switch (c->state) {
	case CONN_CLOSED:
	case CONN_DIALING:
		return;
	case CONN_HEAD:
		if (c->in.len) {
			request_unreadable(c, VERDICT_HEAD_TIMEOUT, NULL);
			return;
		}
		conn_close(c, CLOSE_CLIENT_CLOSED);
		return;
	case CONN_TUNNEL:
		conn_close(c, c->side[CLIENT].end.eof || c->side[ORIGIN].end.eof ? CLOSE_HALF_OPEN : CLOSE_IDLE);
		return;
	case CONN_EXCHANGE:
		exchange_timed_out(c);
		return;
	case CONN_DRAINING:
		conn_close(c, CLOSE_REFUSED);
		return;
	}
}

static void on_timer(evutil_socket_t fd, short what, void *arg)
{
	struct conn *c = arg;

	c->timer_at_ms = 0;
	/* The loop's idea of now may lag behind by the length of a turn. */
	if (deadline(c) && deadline(c) <= conn_now_ms() + 1)
		timed_out(c);
	if (c->state != CONN_CLOSED)
		conn_run(c);
}

/* --- events --- */

static bool is_cut(const struct side *s)
{
	struct tcp_info info = {0};
	socklen_t len = sizeof(info);

	/* Behind our own FIN a true end closes the connection too; but then nothing is sent any more that could eat a reset. */
	return !s->end.shut && getsockopt(s->end.fd, IPPROTO_TCP, TCP_INFO, &info, &len) == 0 && info.tcpi_state == TCP_CLOSE;
}

bool conn_was_reset(const struct conn *c, enum side_id id)
{
	const struct side *s = &c->side[id];

	return s->end.hup ? s->cut : is_cut(s);
}

static void note_event(struct side *s, short what)
{
	if (what & EV_READ)
		s->end.readable = true;
	if (what & EV_WRITE)
		s->end.writable = true;
	if ((what & EV_CLOSED) && !s->end.hup) {
		s->end.hup = true;
		s->cut = is_cut(s);
	}
	if (what & EV_CLOSED)
		s->end.readable = true;
}

/* The origin takes nothing, so nobody reads from the client; its reset ends the connection all the same. Only reading would
 * tell, or this. (The origin's reset is left to be read behind its last bytes.) */
static void notice_reset(struct conn *c)
{
	int e = 0;
	socklen_t len = sizeof(e);

	if (getsockopt(c->side[CLIENT].end.fd, SOL_SOCKET, SO_ERROR, &e, &len) < 0 || e == 0)
		return;
	if (c->state == CONN_DIALING)
		request_given_up(c);
	else
		conn_close(c, CLOSE_CLIENT_RESET);
}

static void on_event(struct conn *c, enum side_id id, short what)
{
	note_event(&c->side[id], what);
	conn_run(c);
	/* EPOLLERR comes as readable and writable. What has been read to its end has told already. */
	if (id == CLIENT && c->state != CONN_CLOSED && c->side[CLIENT].end.readable && (what & EV_READ) && (what & EV_WRITE))
		notice_reset(c);
}

static void on_client(evutil_socket_t fd, short what, void *arg)
{
	on_event(arg, CLIENT, what);
}

static void on_origin(evutil_socket_t fd, short what, void *arg)
{
	on_event(arg, ORIGIN, what);
}

void conn_look_again(struct conn *c)
{
	bool any = false;

	for (int i = CLIENT; i <= ORIGIN; i++) {
		struct pump_end *end = &c->side[i].end;

		if (end->fd < 0 || !end->unsure)
			continue;
		end->unsure = false;
		end->readable = true;
		any = true;
	}
	if (any)
		conn_run(c);
}

static int watch(struct conn *c, enum side_id id, int fd)
{
	struct side *s = &c->side[id];

	s->cut = false;
	s->end = (struct pump_end){.fd = fd, .writable = true};
	event_assign(&s->event, c->relay->worker->base, fd, EV_READ | EV_WRITE | EV_CLOSED | EV_ET | EV_PERSIST,
		     id == CLIENT ? on_client : on_origin, c);
	if (event_add(&s->event, NULL) < 0) {
		s->end.fd = -1;
		return -ENOMEM;
	}
	return 0;
}

int conn_attach_origin(struct conn *c, int fd, const struct addr *a)
{
	int r = watch(c, ORIGIN, fd);

	if (r < 0) {
		fd_close(fd);
		return r;
	}
	c->origin_to = c->req.to;
	c->origin_addr = *a;
	return 0;
}

static void close_side(struct side *s, bool reset)
{
	if (s->end.fd < 0)
		return;
	event_del(&s->event);
	if (reset)
		fd_reset(s->end.fd);
	else
		fd_close(s->end.fd);
	s->end.fd = -1;
}

void conn_drop_origin(struct conn *c, bool reset)
{
	struct pump_room room = room_of(c);

	close_side(&c->side[ORIGIN], reset);
	pump_clear(&c->pump[CLIENT], &room);
}

/* --- draining: the end of a refused or finished connection --- */

static void drain_run(struct conn *c)
{
	struct pump_end *end = &c->side[CLIENT].end;
	struct buf junk = {0};
	ssize_t n;

	switch (conn_flush(c, ORIGIN)) {
	case PUMP_WANT_READ:
		break;
	case PUMP_WANT_WRITE:
	case PUMP_YIELD:
		return;
	case PUMP_WRITE_ERROR:
	case PUMP_READ_ERROR:
	case PUMP_EOF:
	case PUMP_LIMIT:
		conn_close(c, CLOSE_CLIENT_RESET);
		return;
	}
	if (!end->shut) {
		shutdown(end->fd, SHUT_WR);
		end->shut = true;
	}
	do {
		n = conn_read(c, CLIENT, &junk, LIMIT_COPY_BYTES);
		c->drained += junk.len;
		buf_reset(&junk);
	} while (n > 0 && c->drained < LIMIT_DRAIN_BYTES);
	buf_free(&junk);
	if (n < 0 || end->eof || c->drained >= LIMIT_DRAIN_BYTES)
		conn_close(c, CLOSE_REFUSED);
}

/* --- running and ending --- */

void conn_run(struct conn *c)
{
	enum conn_state before;

	do {
		before = c->state;
		switch (c->state) {
		case CONN_CLOSED:
			return;
		case CONN_HEAD:
			request_run(c);
			break;
		case CONN_DIALING:
			request_wait(c);
			break;
		case CONN_TUNNEL:
			tunnel_run(c);
			break;
		case CONN_EXCHANGE:
			exchange_run(c);
			break;
		case CONN_DRAINING:
			drain_run(c);
			break;
		}
	} while (c->state != before);
	arm_or_close(c);
}

void conn_accept(struct relay *r, const struct relay_entry *entry, int fd, const struct sockaddr_storage *peer,
		 bool overloaded)
{
	struct conn *c = calloc(1, sizeof(*c));

	if (!c) {
		counter_inc(COUNTER_ALLOCATION_FAILURES);
		fd_close(fd);
		atomic_fetch_sub(&r->shared->open_connections, 1);
		return;
	}
	c->relay = r;
	c->entry = entry;
	c->overloaded = overloaded;
	c->side[CLIENT].end.fd = c->side[ORIGIN].end.fd = -1;
	if (peer->ss_family == AF_INET) {
		const struct sockaddr_in *in = (const struct sockaddr_in *)peer;

		c->peer = addr_from_v4((const uint8_t *)&in->sin_addr);
		c->peer_port = ntohs(in->sin_port);
		c->has_peer = true;
	} else if (peer->ss_family == AF_INET6) {
		const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *)peer;

		c->peer = addr_from_v6(in6->sin6_addr.s6_addr);
		c->peer_port = ntohs(in6->sin6_port);
		c->has_peer = true;
	}
	event_assign(&c->timer, r->worker->base, -1, 0, on_timer, c);
	if (watch(c, CLIENT, fd) < 0) {
		counter_inc(COUNTER_ALLOCATION_FAILURES);
		fd_close(fd);
		atomic_fetch_sub(&r->shared->open_connections, 1);
		free(c);
		return;
	}
	c->next = r->conns;
	if (c->next)
		c->next->prev = c;
	r->conns = c;
	counter_inc(COUNTER_CONNECTIONS_OPEN);
	conn_set_state(c, CONN_HEAD);
	arm_or_close(c);
}

void conn_close(struct conn *c, enum close_why why)
{
	struct pump_room room = room_of(c);
	bool reset = closes[why].abort;

	if (c->state == CONN_CLOSED)
		return;
	if (c->req.allowed)
		access_ended(c, why);
	c->dial = dial_cancel(c->dial);
	close_side(&c->side[CLIENT], reset && !c->side[CLIENT].end.shut);
	close_side(&c->side[ORIGIN], reset);
	pump_clear(&c->pump[CLIENT], &room);
	pump_clear(&c->pump[ORIGIN], &room);
	event_del(&c->timer);
	c->exchange = exchange_free(c->exchange);
	buf_free(&c->in);
	if (c->prev)
		c->prev->next = c->next;
	else
		c->relay->conns = c->next;
	if (c->next)
		c->next->prev = c->prev;
	worker_forget_again(c->relay->worker, &c->again);
	conn_set_state(c, CONN_CLOSED);
	counter_sub(COUNTER_CONNECTIONS_OPEN, 1);
	atomic_fetch_sub(&c->relay->shared->open_connections, 1);
	worker_free_later(c->relay->worker, &c->dead);
	relay_conn_gone(c->relay);
}

void conn_free(struct conn *c)
{
	free(c);
}
