/* The relay of one worker: its connections, what they were configured with, and the door for the boot code. */
#ifndef RELAY_RELAY_H
#define RELAY_RELAY_H

#include <stdatomic.h>

#include "http/head.h"
#include "net/worker.h"
#include "relay/conn.h"

struct relay_timeouts {
	uint64_t head_ms, idle_ms, half_open_ms, drain_ms;
};

/* A listener's identity: what a connection that came through it may do. Lives as long as the process. */
struct relay_entry {
	char role[POLICY_ROLE_NAME_MAX + 1];
	int fd;                    /* this worker's listening socket; taken over by relay_start() */
};

struct relay_shared {
	struct relay_timeouts timeouts;
	unsigned max_connections;
	unsigned overflow;         /* this many more are answered with `overloaded`; beyond them the backlog waits */
	_Atomic unsigned open_connections; /* over all workers */
};

struct relay {
	struct worker *worker;
	struct relay_shared *shared;
	struct relay_entry *entries;
	size_t n_entries;
	struct listener **listeners;
	struct accept_ctx *accepts;
	struct conn *conns;              /* all that are not CLOSED */
	struct head head;                /* scratch for whoever parses */
	uint64_t id_base, id_next;       /* request ids */
	uint64_t paused_told_ms;         /* when the log last said that accepting pauses */
	struct event *drain_timer;
	struct event *tick_timer;
	bool ticking;                    /* the timer is pending */
};

/* The hooks of worker_config; w->app is the struct relay. */
int relay_start(struct worker *w);
void relay_mail(struct worker *w, const struct mail *m);
void relay_again(struct worker *w, struct turn_link *l);
void relay_free_conn(struct turn_link *l);
void relay_stop(struct worker *w);

/* Something is to be looked after in LIMIT_TICK_MS: a socket that may have more to tell than its last event said, or a pipe
 * that nobody may need any more. */
void relay_tick(struct relay *r);

/* A connection has ended; when the worker drains and it was the last, the worker stops. */
void relay_conn_gone(struct relay *r);

struct relay *relay_new(struct relay_shared *shared, size_t n_entries);
struct relay *relay_free(struct relay *r);

#endif
