/* A worker: one thread, one event_base, and everything that its connections share without locks.
 *
 * The main thread talks to it through a mailbox alone. What is freed while events are handled goes on the end-of-turn
 * list; what has moved its share of bytes goes on the again list and is served once the others had their turn. */
#ifndef NET_WORKER_H
#define NET_WORKER_H

#include <event2/event.h>
#include <pthread.h>
#include <stdatomic.h>

#include "net/dialer.h"
#include "net/pipe_pool.h"
#include "policy/policy.h"

struct worker;

/* A link of the end-of-turn lists; embed it. `next` is NULL or a link, `queued` says whether it is on a list. */
struct turn_link {
	struct turn_link *next;
	bool queued;
};

enum mail_kind { MAIL_NONE = 0, MAIL_POLICY, MAIL_DRAIN, MAIL_STOP };

struct mail {
	enum mail_kind kind;
	struct policy *policy; /* MAIL_POLICY: a reference that the worker takes over */
	uint64_t generation;   /* MAIL_POLICY: which reload it came by */
};

enum worker_state { WORKER_STARTING = 0, WORKER_RUNNING, WORKER_ENDED };

struct worker_config {
	unsigned index;
	struct resolver_config resolver;
	unsigned connect_ms;
	struct policy *policy;                  /* the worker takes a reference of its own */
	/* All run on the worker's thread. */
	int (*on_start)(struct worker *w);      /* 0, or -errno: the thread ends */
	void (*on_mail)(struct worker *w, const struct mail *m); /* after w->policy has been replaced */
	void (*on_again)(struct worker *w, struct turn_link *l);
	void (*on_free)(struct turn_link *l);
	void (*on_stop)(struct worker *w);      /* the loop has ended; everything may be freed */
	void *app;
	int wake_fd;                            /* an eventfd of the main thread: written to when the thread runs, when it ends
	                                           and when a policy is in force */
};

struct worker {
	struct worker_config config;
	void *app;
	struct event_base *base;
	struct ownaddr *own;
	struct resolver *resolver;
	struct dialer *dialer;
	struct pipe_pool pipes;
	struct policy *policy;       /* in force on this thread; one reference */
	char *copy;                  /* LIMIT_COPY_BYTES for whoever is running */
	bool draining;
	pthread_t thread;
	_Atomic uint64_t generation; /* of the policy in force and judged by, for the main thread to see */
	_Atomic int state;           /* enum worker_state, or -errno: failed */
	/* private */
	bool stopping;
	struct turn_link *again, *again_tail, *to_free;
	struct event *mail_event;
	int mail_fd;
	_Atomic unsigned mail_head, mail_tail;
	struct mail *mails;
};

/* Makes the worker with its resolver and dialer; everything that can fail by configuration fails here, on the main
 * thread. Returns 0 or -errno with *ret untouched. */
int worker_new(const struct worker_config *config, struct worker **ret);
int worker_start(struct worker *w);
/* From the main thread only. Returns 0 (the mail is taken over), or -EAGAIN when the mailbox is full. */
int worker_send(struct worker *w, const struct mail *m);
/* Joins the thread (which must have been told to stop) and frees all. Takes NULL. */
struct worker *worker_free(struct worker *w);

/* On the worker's thread: serve this again after the others; a link already queued stays where it is. */
void worker_again(struct worker *w, struct turn_link *l);
void worker_forget_again(struct worker *w, struct turn_link *l);
/* On the worker's thread: on_free() gets it when this turn is over. */
void worker_free_later(struct worker *w, struct turn_link *l);
/* Ends the loop after this turn. */
void worker_stop(struct worker *w);

#endif
