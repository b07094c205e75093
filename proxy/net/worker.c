/* worker: the loop of one thread.
 *
 * A turn is: wait for events and run their callbacks; serve what was put on the again list during the turn before; free
 * what was put on the end-of-turn list. Freeing is never done inside a callback, so a callback may still touch what it has
 * just closed.
 *
 * Mail: a ring with one writer (the main thread) and one reader (this one), woken through an eventfd. MAIL_POLICY replaces
 * the policy between two events, so one event is judged by one policy. At MAIL_STOP, or when the application calls
 * worker_stop(), the loop ends, the application frees what it has, and the main thread is woken through wake_fd.
 * A worker that cannot start says so through `state`; the main thread then ends the guard. */
#include "net/worker.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/counter.h"
#include "base/fd.h"
#include "limits.h"

static const struct policy *policy_now(void *arg)
{
	return ((struct worker *)arg)->policy;
}

static void wake_main(struct worker *w)
{
	uint64_t one = 1;

	/* An eventfd takes a write unless its count is about to overflow; then the main thread is awake anyway. */
	(void)!write(w->config.wake_fd, &one, sizeof(one));
}

static void take_mail(struct worker *w, const struct mail *m)
{
	switch (m->kind) {
	case MAIL_NONE:
		return;
	case MAIL_POLICY:
		policy_unref(w->policy);
		w->policy = m->policy;
		break;
	case MAIL_DRAIN:
		w->draining = true;
		break;
	case MAIL_STOP:
		w->stopping = true;
		break;
	}
	w->config.on_mail(w, m);
	/* Told only once on_mail() has judged what is open again. */
	if (m->kind == MAIL_POLICY) {
		atomic_store(&w->generation, m->generation);
		wake_main(w);
	}
}

static void on_mail_fd(evutil_socket_t fd, short what, void *arg)
{
	struct worker *w = arg;
	uint64_t count;

	if (read(fd, &count, sizeof(count)) < 0 && errno != EAGAIN)
		return;
	for (;;) {
		unsigned tail = atomic_load_explicit(&w->mail_tail, memory_order_relaxed);
		struct mail m;

		if (tail == atomic_load_explicit(&w->mail_head, memory_order_acquire))
			return;
		m = w->mails[tail % LIMIT_MAILBOX];
		atomic_store_explicit(&w->mail_tail, tail + 1, memory_order_release);
		take_mail(w, &m);
	}
}

int worker_send(struct worker *w, const struct mail *m)
{
	unsigned head = atomic_load_explicit(&w->mail_head, memory_order_relaxed);
	uint64_t one = 1;

	if (head - atomic_load_explicit(&w->mail_tail, memory_order_acquire) >= LIMIT_MAILBOX)
		return -EAGAIN;
	w->mails[head % LIMIT_MAILBOX] = *m;
	atomic_store_explicit(&w->mail_head, head + 1, memory_order_release);
	/* It is in the box, whatever becomes of the bell; an eventfd refuses only when it rings already. */
	(void)!write(w->mail_fd, &one, sizeof(one));
	return 0;
}

void worker_again(struct worker *w, struct turn_link *l)
{
	if (l->queued)
		return;
	l->queued = true;
	l->next = NULL;
	if (w->again_tail)
		w->again_tail->next = l;
	else
		w->again = l;
	w->again_tail = l;
}

void worker_forget_again(struct worker *w, struct turn_link *l)
{
	struct turn_link *prev = NULL;

	if (!l->queued)
		return;
	for (struct turn_link *i = w->again; i; prev = i, i = i->next) {
		if (i != l)
			continue;
		if (prev)
			prev->next = i->next;
		else
			w->again = i->next;
		if (w->again_tail == i)
			w->again_tail = prev;
		break;
	}
	l->queued = false;
}

void worker_free_later(struct worker *w, struct turn_link *l)
{
	l->next = w->to_free;
	w->to_free = l;
}

void worker_stop(struct worker *w)
{
	w->stopping = true;
}

static void end_of_turn(struct worker *w)
{
	struct turn_link *last = w->again_tail;

	/* Only what was queued until now; what queues itself again waits for the next turn. */
	while (w->again) {
		struct turn_link *l = w->again;

		w->again = l->next;
		if (!w->again)
			w->again_tail = NULL;
		l->queued = false;
		w->config.on_again(w, l);
		if (l == last)
			break;
	}
	while (w->to_free) {
		struct turn_link *l = w->to_free;

		w->to_free = l->next;
		w->config.on_free(l);
	}
}

static void *worker_main(void *arg)
{
	struct worker *w = arg;
	int r = counter_attach();

	if (r == 0)
		r = w->config.on_start(w);
	if (r == 0) {
		atomic_store(&w->state, WORKER_RUNNING);
		wake_main(w);
	}
	while (r == 0 && !w->stopping) {
		int flags = EVLOOP_ONCE | (w->again ? EVLOOP_NONBLOCK : 0);

		if (event_base_loop(w->base, flags) < 0) {
			r = -EIO;
			break;
		}
		end_of_turn(w);
	}
	w->config.on_stop(w);
	end_of_turn(w);
	atomic_store(&w->state, r < 0 ? r : WORKER_ENDED);
	wake_main(w);
	return NULL;
}

int worker_new(const struct worker_config *config, struct worker **ret)
{
	struct worker *w = calloc(1, sizeof(*w));
	struct dialer_config dc;
	int r = -ENOMEM;

	if (!w)
		return -ENOMEM;
	w->config = *config;
	w->app = config->app;
	w->mail_fd = -1;
	w->base = event_base_new();
	w->copy = malloc(LIMIT_COPY_BYTES);
	w->mails = calloc(LIMIT_MAILBOX, sizeof(*w->mails));
	if (!w->base || !w->copy || !w->mails)
		goto fail;
	w->mail_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	if (w->mail_fd < 0) {
		r = -errno;
		goto fail;
	}
	w->mail_event = event_new(w->base, w->mail_fd, EV_READ | EV_PERSIST, on_mail_fd, w);
	if (!w->mail_event || event_add(w->mail_event, NULL) < 0)
		goto fail;
	r = ownaddr_new(w->base, &w->own);
	if (r < 0)
		goto fail;
	r = resolver_new(w->base, &config->resolver, &w->resolver);
	if (r < 0)
		goto fail;
	dc = (struct dialer_config){.base = w->base, .resolver = w->resolver, .own = w->own, .policy = policy_now,
				    .policy_arg = w, .budget_ms = config->connect_ms};
	r = dialer_new(&dc, &w->dialer);
	if (r < 0)
		goto fail;
	w->policy = policy_ref(config->policy);
	*ret = w;
	return 0;
fail:
	worker_free(w);
	return r;
}

int worker_start(struct worker *w)
{
	int r = -pthread_create(&w->thread, NULL, worker_main, w);

	if (r < 0)
		w->thread = 0;
	return r;
}

struct worker *worker_free(struct worker *w)
{
	if (!w)
		return NULL;
	if (w->thread)
		pthread_join(w->thread, NULL);
	/* Mail that nobody read any more still holds references. */
	for (unsigned i = atomic_load(&w->mail_tail); w->mails && i != atomic_load(&w->mail_head); i++)
		policy_unref(w->mails[i % LIMIT_MAILBOX].policy);
	dialer_free(w->dialer);
	resolver_free(w->resolver);
	ownaddr_free(w->own);
	pipe_pool_clear(&w->pipes);
	policy_unref(w->policy);
	if (w->mail_event)
		event_free(w->mail_event);
	fd_close(w->mail_fd);
	if (w->base)
		event_base_free(w->base);
	free(w->mails);
	free(w->copy);
	free(w);
	return NULL;
}
