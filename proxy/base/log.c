/* log: one bounded queue, one writer thread.
 *
 * log_access() copies a finished line into the queue under a mutex held for the copy alone; the writer takes the whole
 * queue in exchange for an empty one and writes it with as few write(2) calls as the kernel takes. A full queue drops the
 * line and counts it; the count is told by a log-gap line once there is room. A write error (a full disk) drops what
 * could not be written, counts it the same way and goes on, on a line of its own: the guard's figures do not depend on
 * the log. At shutdown log_close() lets the writer finish what is queued; a reader that is stuck is not waited for long. */
#include "base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/counter.h"
#include "base/fd.h"
#include "limits.h"

enum { CLOSE_WAIT_S = 3 };

static struct {
	pthread_mutex_t lock;
	pthread_cond_t more;
	pthread_t writer;
	bool running, ending;
	struct buf queue;      /* under lock */
	uint64_t dropped;      /* under lock: lines lost and not yet told of */
	uint64_t told;         /* under lock: lines lost that `queue` tells of */
	size_t told_at;        /* under lock: where it does */
	int fd;                /* under lock */
	bool own_fd;
	char *path;
	enum log_level level;
} the = {.lock = PTHREAD_MUTEX_INITIALIZER, .more = PTHREAD_COND_INITIALIZER, .fd = 2, .level = LOG_LEVEL_INFO};

static const struct {
	const char *word;
	enum log_level level;
} events[LOG_EVENT_N] = {
#define E(name, word, level) {word, LOG_LEVEL_##level},
#include "base/log_event.def"
#undef E
};

static const char *const level_words[] = {"error", "warning", "info", "debug"};

bool log_level_from(struct str word, enum log_level *ret)
{
	for (size_t i = 0; i < sizeof(level_words) / sizeof(level_words[0]); i++)
		if (str_eq(word, str_from(level_words[i]))) {
			*ret = (enum log_level)i;
			return true;
		}
	return false;
}

static void event_line(struct buf *b, enum log_event event, struct str message)
{
	char stamp[CLOCK_STAMP_LEN + 1];

	clock_stamp(clock_wall_ns(), stamp);
	buf_printf(b,
		   "{\"@timestamp\":\"%s\",\"ecs\":{\"version\":\"8.11\"},\"log\":{\"level\":\"%s\"},"
		   "\"event\":{\"kind\":\"event\",\"dataset\":\"egress_guard.guard\",\"action\":\"%s\"},\"message\":\"",
		   stamp, level_words[events[event].level], events[event].word);
	buf_add_json(b, message);
	buf_add_z(b, "\"}\n");
}

/* Under the lock. */
static void tell_gap(void)
{
	size_t before = the.queue.len;
	char text[80];

	snprintf(text, sizeof(text), "%llu log lines were dropped", (unsigned long long)the.dropped);
	event_line(&the.queue, LOG_LOG_GAP, str_from(text));
	if (the.queue.failed) {
		the.queue.failed = false;
		the.queue.len = before; /* not half a line */
		return;
	}
	if (!the.told)
		the.told_at = before;
	the.told += the.dropped;
	the.dropped = 0;
}

/* Under the lock. */
static void append(struct str line)
{
	if (the.dropped && the.queue.len + line.n + 512 < LIMIT_LOG_QUEUE_BYTES)
		tell_gap();
	if (the.queue.len + line.n + 1 > LIMIT_LOG_QUEUE_BYTES || line.n > LIMIT_LOG_LINE_BYTES ||
	    !buf_reserve(&the.queue, line.n + 1)) {
		the.queue.failed = false;
		the.dropped++;
		counter_inc(COUNTER_LOG_DROPPED);
		return;
	}
	buf_add_str(&the.queue, line);
	if (!line.n || line.p[line.n - 1] != '\n')
		buf_add(&the.queue, "\n", 1);
	counter_inc(COUNTER_LOG_LINES);
}

/* Writes all of it; returns the number of bytes that could not be written. */
static size_t write_all(int fd, struct str s)
{
	while (s.n) {
		ssize_t n = write(fd, s.p, s.n);

		if (n > 0)
			s = str_skip(s, (size_t)n);
		else if (n < 0 && errno == EAGAIN)
			usleep(10000); /* somebody made our stderr non-blocking: wait for its reader */
		else if (n < 0 && errno == EINTR)
			continue;
		else
			return s.n;
	}
	return 0;
}

/* Woken by the first line of a burst: the others come along, for one write and one wake-up. Under the lock. */
static void gather(void)
{
	struct timespec until;
	uint64_t ns = clock_mono_ns() + LIMIT_LOG_GATHER_MS * 1000000ull;

	until = (struct timespec){.tv_sec = (time_t)(ns / 1000000000u), .tv_nsec = (long)(ns % 1000000000u)};
	while (!the.ending && the.queue.len < LIMIT_LOG_QUEUE_BYTES / 4 &&
	       pthread_cond_timedwait(&the.more, &the.lock, &until) == 0)
		;
}

/* Lines whose end is among the last `left` bytes: those that the file has not got, or not whole. */
static size_t count_lines(struct str s, size_t left)
{
	size_t n = 0;

	for (const char *p = s.p + s.n - left, *end = s.p + s.n; p < end; n++, p++)
		p = memchr(p, '\n', (size_t)(end - p));
	return n;
}

/* Writes a queue. Returns how many lines were lost; `*torn` says that the file ends within a line. */
static uint64_t write_queue(int fd, struct str s, uint64_t told, size_t told_at, bool *torn)
{
	size_t left, lost;

	if (*torn && write_all(fd, STR_LIT("\n")) == 0)
		*torn = false;
	left = write_all(fd, s);
	if (!left)
		return 0;
	if (left < s.n)
		*torn = s.p[s.n - left - 1] != '\n';
	lost = count_lines(s, left);
	if (told && told_at >= s.n - left)
		lost--; /* the line that tells of lost ones is not one of them */
	else
		told = 0;
	counter_add(COUNTER_LOG_DROPPED, lost);
	return lost + told;
}

static void *writer_main(void *arg)
{
	struct buf taken = {0};
	bool torn = false;

	pthread_mutex_lock(&the.lock);
	for (;;) {
		struct buf swap = the.queue;
		uint64_t told = the.told, lost;
		size_t told_at = the.told_at;
		int fd = the.fd;

		if (!swap.len) {
			if (the.ending)
				break;
			pthread_cond_wait(&the.more, &the.lock);
			gather();
			continue;
		}
		the.queue = taken;
		the.told = 0;
		taken = swap;
		pthread_mutex_unlock(&the.lock);
		lost = write_queue(fd, buf_view(&taken), told, told_at, &torn);
		/* A burst is over: give its memory back. */
		if (taken.cap > 1024 * 1024)
			buf_free(&taken);
		else
			buf_reset(&taken);
		pthread_mutex_lock(&the.lock);
		the.dropped += lost;
	}
	pthread_mutex_unlock(&the.lock);
	buf_free(&taken);
	return NULL;
}

static int open_path(const char *path, int *ret_fd, bool *ret_own)
{
	int fd;

	if (!strcmp(path, "stderr") || !strcmp(path, "stdout")) {
		*ret_fd = path[3] == 'e' ? 2 : 1;
		*ret_own = false;
		return 0;
	}
	fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOCTTY, 0640);
	if (fd < 0)
		return -errno;
	*ret_fd = fd;
	*ret_own = true;
	return 0;
}

/* Waits are measured by the clock that nobody sets. */
static int init_more(void)
{
	pthread_condattr_t attr;
	int r = -pthread_condattr_init(&attr);

	if (r == 0)
		r = -pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	if (r == 0)
		r = -pthread_cond_init(&the.more, &attr);
	pthread_condattr_destroy(&attr);
	return r;
}

/* Signals are the main thread's, also in the last moments, when it has none of its handlers left. */
static int start_writer(void)
{
	sigset_t all, old;
	int r;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	r = -pthread_create(&the.writer, NULL, writer_main, NULL);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	return r;
}

int log_open(const char *path, enum log_level level)
{
	int r = open_path(path, &the.fd, &the.own_fd);

	if (r < 0)
		return r;
	the.path = strdup(path);
	the.level = level;
	r = the.path ? init_more() : -ENOMEM;
	if (r == 0)
		r = start_writer();
	if (r < 0)
		return r;
	the.running = true;
	return 0;
}

bool log_running(void)
{
	return the.running;
}

int log_reopen(void)
{
	int fd, old = -1, r;
	bool own;

	if (!the.running || !the.own_fd)
		return 0;
	r = open_path(the.path, &fd, &own);
	if (r < 0)
		return r;
	/* The number stays the same, so that a write under way in the writer thread ends in one file or the other. */
	pthread_mutex_lock(&the.lock);
	old = the.fd;
	r = dup3(fd, old, O_CLOEXEC) < 0 ? -errno : 0;
	pthread_mutex_unlock(&the.lock);
	fd_close(fd);
	return r;
}

/* Whether the writer has ended. One that is stuck in write(2) keeps its memory and its descriptor. */
static bool join_writer(void)
{
	uint64_t ns = clock_wall_ns();
	struct timespec until = {.tv_sec = (time_t)(ns / 1000000000u) + CLOSE_WAIT_S};

	return pthread_timedjoin_np(the.writer, NULL, &until) == 0;
}

void log_close(void)
{
	if (!the.running)
		return;
	pthread_mutex_lock(&the.lock);
	the.ending = true;
	pthread_cond_signal(&the.more);
	pthread_mutex_unlock(&the.lock);
	the.running = false;
	if (!join_writer())
		return;
	the.ending = false;
	buf_free(&the.queue);
	free(the.path);
	the.path = NULL;
	if (the.own_fd)
		fd_close(the.fd);
	the.fd = 2;
	the.own_fd = false;
}

void log_access(struct str line)
{
	bool wake;

	pthread_mutex_lock(&the.lock);
	wake = !the.queue.len;
	append(line);
	wake = wake || the.queue.len >= LIMIT_LOG_QUEUE_BYTES / 4;
	pthread_mutex_unlock(&the.lock);
	if (wake)
		pthread_cond_signal(&the.more);
}

void log_event(enum log_event event, const char *fmt, ...)
{
	char text[1024];
	struct buf b = {0};
	va_list ap;

	if (events[event].level > the.level)
		return;
	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	if (!the.running) {
		dprintf(2, "egress-guard: %s\n", text);
		return;
	}
	event_line(&b, event, str_from(text));
	if (!b.failed)
		log_access(buf_view(&b));
	buf_free(&b);
}
