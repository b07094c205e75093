/* relay: a worker's connections as a whole.
 *
 * Starts the listeners on the worker's thread, takes the main thread's mail, and ends: MAIL_DRAIN closes the listeners and
 * the idle connections and lets the rest go on until they are done or timeouts.drain is over; MAIL_STOP ends all at once. */
#include "relay/relay.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"
#include "limits.h"
#include "net/listener.h"
#include "relay/rejudge.h"

struct accept_ctx {
	struct relay *relay;
	const struct relay_entry *entry;
};

/* A shortage repeats itself ten times a second: it is told once a minute. */
static void accepting_paused(struct relay *r, int error)
{
	uint64_t now = conn_now_ms();

	if (r->paused_told_ms && now - r->paused_told_ms < 60000)
		return;
	r->paused_told_ms = now;
	log_event(LOG_ACCEPT_PAUSED, "accepting pauses again and again: %s", strerror(error));
}

static bool on_accept(void *arg, int fd, const struct sockaddr_storage *peer)
{
	struct accept_ctx *a = arg;
	struct relay_shared *s = a->relay->shared;
	unsigned open;

	if (fd < 0) {
		accepting_paused(a->relay, -fd);
		return false;
	}
	open = atomic_fetch_add(&s->open_connections, 1) + 1;
	conn_accept(a->relay, a->entry, fd, peer, open > s->max_connections);
	return open < s->max_connections + s->overflow;
}

static void stop_all(struct relay *r, enum close_why why)
{
	struct conn *next;

	for (struct conn *c = r->conns; c; c = next) {
		next = c->next;
		if (c->state == CONN_DIALING || c->state == CONN_EXCHANGE) { /* asked and not answered: its client is told */
			conn_give_up(c, VERDICT_SHUTTING_DOWN, NULL, why);
			conn_run(c);
		}
		if (c->req.allowed)
			c->req.verdict = VERDICT_SHUTTING_DOWN;
		conn_close(c, why);
	}
	worker_stop(r->worker);
}

static void on_drain_over(evutil_socket_t fd, short what, void *arg)
{
	stop_all(arg, CLOSE_SHUTTING_DOWN);
}

static void close_listeners(struct relay *r)
{
	for (size_t i = 0; i < r->n_entries; i++)
		r->listeners[i] = listener_free(r->listeners[i]);
}

static void drain(struct relay *r)
{
	struct timeval tv = clock_timeval_ms(r->shared->timeouts.drain_ms);
	struct conn *next;

	/* Who is in the backlog gets an answer rather than a reset. */
	for (size_t i = 0; i < r->n_entries; i++)
		if (r->listeners[i])
			listener_accept_now(r->listeners[i]);
	close_listeners(r);
	for (struct conn *c = r->conns; c; c = next) {
		next = c->next;
		if (c->state != CONN_HEAD)
			continue;
		/* Its event may not have been told yet. Idle between two requests it closes itself; a new one gets a moment. */
		c->side[CLIENT].end.readable = true;
		conn_run(c);
	}
	event_add(r->drain_timer, &tv);
	if (!r->conns)
		worker_stop(r->worker);
}

void relay_conn_gone(struct relay *r)
{
	if (r->worker->draining && !r->conns)
		worker_stop(r->worker);
}

void relay_tick(struct relay *r)
{
	const struct timeval tv = {.tv_usec = LIMIT_TICK_MS * 1000};

	if (!r->ticking)
		r->ticking = event_add(r->tick_timer, &tv) == 0;
}

static void on_tick(evutil_socket_t fd, short what, void *arg)
{
	struct relay *r = arg;
	struct conn *next;

	r->ticking = false;
	for (struct conn *c = r->conns; c; c = next) {
		next = c->next;
		conn_look_again(c);
	}
	if (pipe_pool_trim(&r->worker->pipes))
		relay_tick(r);
}

int relay_start(struct worker *w)
{
	struct relay *r = w->app;
	int err = 0;

	r->worker = w;
	if (getrandom(&r->id_base, sizeof(r->id_base), 0) != sizeof(r->id_base))
		return -EIO;
	r->drain_timer = event_new(w->base, -1, 0, on_drain_over, r);
	r->tick_timer = event_new(w->base, -1, 0, on_tick, r);
	if (!r->drain_timer || !r->tick_timer)
		return -ENOMEM;
	for (size_t i = 0; i < r->n_entries && err == 0; i++) {
		r->accepts[i] = (struct accept_ctx){r, &r->entries[i]};
		if (r->entries[i].fd < 0)
			continue; /* a listener that belongs to another worker */
		err = listener_new(w->base, r->entries[i].fd, on_accept, &r->accepts[i], &r->listeners[i]);
		r->entries[i].fd = -1;
	}
	return err;
}

void relay_mail(struct worker *w, const struct mail *m)
{
	struct relay *r = w->app;

	switch (m->kind) {
	case MAIL_NONE:
		break;
	case MAIL_POLICY:
		rejudge_all(r);
		break;
	case MAIL_DRAIN:
		drain(r);
		break;
	case MAIL_STOP:
		stop_all(r, CLOSE_SHUTTING_DOWN);
		break;
	}
}

void relay_again(struct worker *w, struct turn_link *l)
{
	conn_run((struct conn *)((char *)l - offsetof(struct conn, again)));
}

void relay_free_conn(struct turn_link *l)
{
	conn_free((struct conn *)((char *)l - offsetof(struct conn, dead)));
}

void relay_stop(struct worker *w)
{
	struct relay *r = w->app;

	if (!r->worker)
		return;
	stop_all(r, CLOSE_SHUTTING_DOWN);
	close_listeners(r);
	if (r->drain_timer)
		event_free(r->drain_timer);
	if (r->tick_timer)
		event_free(r->tick_timer);
	r->drain_timer = r->tick_timer = NULL;
}

struct relay *relay_new(struct relay_shared *shared, size_t n_entries)
{
	struct relay *r = calloc(1, sizeof(*r));

	if (!r)
		return NULL;
	r->shared = shared;
	r->n_entries = n_entries;
	r->entries = calloc(n_entries, sizeof(*r->entries));
	r->listeners = calloc(n_entries, sizeof(*r->listeners));
	r->accepts = calloc(n_entries, sizeof(*r->accepts));
	if (!r->entries || !r->listeners || !r->accepts)
		return relay_free(r);
	for (size_t i = 0; i < n_entries; i++)
		r->entries[i].fd = -1;
	return r;
}

struct relay *relay_free(struct relay *r)
{
	if (!r)
		return NULL;
	for (size_t i = 0; r->entries && i < r->n_entries; i++)
		fd_close(r->entries[i].fd);
	free(r->entries);
	free(r->listeners);
	free(r->accepts);
	free(r);
	return NULL;
}
