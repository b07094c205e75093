/* The log: whole lines whatever happens, a queue that is bounded and says what it lost, and a reader that may be slow,
 * stuck or gone without anybody waiting for it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/clock.h"
#include "base/counter.h"
#include "base/log.h"
#include "limits.h"

static char folder[] = "/tmp/test_log.XXXXXX";
static char path[64], moved[64];

/* Content of a file, terminated; the caller frees. */
static char *content(const char *name, size_t *ret_n)
{
	struct buf b = {0};
	int fd = open(name, O_RDONLY);
	ssize_t n;

	assert_true(fd >= 0);
	do {
		char *to = buf_reserve(&b, 65536);

		assert_non_null(to);
		n = read(fd, to, 65535);
		assert_true(n >= 0);
		buf_commit(&b, (size_t)n);
	} while (n > 0);
	close(fd);
	*ret_n = b.len;
	b.mem[b.len] = '\0';
	return b.mem;
}

static void check_content(const char *name, const char *want)
{
	size_t n;
	char *text = content(name, &n);

	assert_string_equal(text, want);
	free(text);
}

static void log_text(const char *text)
{
	log_access(str_from(text));
}

static int setup(void **state)
{
	memcpy(folder + sizeof(folder) - 7, "XXXXXX", 6);
	if (!mkdtemp(folder))
		return -1;
	snprintf(path, sizeof(path), "%s/access.log", folder);
	snprintf(moved, sizeof(moved), "%s/access.log.1", folder);
	return 0;
}

static int teardown(void **state)
{
	log_close();
	unlink(path);
	unlink(moved);
	return rmdir(folder);
}

/* fd 2 becomes a pipe; returns its reading end, and the real one in *ret_real. */
static int pipe_as_stderr(int *ret_real)
{
	int fd[2];

	assert_int_equal(pipe2(fd, O_CLOEXEC), 0);
	*ret_real = dup(2);
	assert_int_equal(dup2(fd[1], 2), 2);
	close(fd[1]);
	return fd[0];
}

static void restore_stderr(int real)
{
	assert_int_equal(dup2(real, 2), 2);
	close(real);
}

static void test_level_words(void **state)
{
	enum log_level level = LOG_LEVEL_DEBUG;

	assert_true(log_level_from(STR_LIT("error"), &level));
	assert_int_equal(level, LOG_LEVEL_ERROR);
	assert_true(log_level_from(STR_LIT("debug"), &level));
	assert_int_equal(level, LOG_LEVEL_DEBUG);
	assert_false(log_level_from(STR_LIT("INFO"), &level));
	assert_false(log_level_from(STR_LIT(""), &level));
	assert_false(log_level_from(STR_LIT("inf"), &level));
	assert_int_equal(level, LOG_LEVEL_DEBUG);
}

static void test_file(void **state)
{
	struct stat st;
	uint64_t lines = counter_sum(COUNTER_LOG_LINES);
	mode_t mask = umask(0);

	assert_int_equal(log_open(path, LOG_LEVEL_INFO), 0);
	umask(mask);
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_mode & 07777, 0640);
	log_text("{\"a\":1}");
	log_text("{\"b\":2}\n");
	log_text("");
	log_close();
	check_content(path, "{\"a\":1}\n{\"b\":2}\n\n");
	assert_int_equal(counter_sum(COUNTER_LOG_LINES) - lines, 3);
	/* What was there stays. */
	assert_int_equal(log_open(path, LOG_LEVEL_INFO), 0);
	log_text("{\"c\":3}");
	log_close();
	log_close();
	check_content(path, "{\"a\":1}\n{\"b\":2}\n\n{\"c\":3}\n");
}

static void test_cannot_open(void **state)
{
	char name[96];

	assert_int_equal(log_open(folder, LOG_LEVEL_INFO), -EISDIR);
	snprintf(name, sizeof(name), "%s/none/access.log", folder);
	assert_int_equal(log_open(name, LOG_LEVEL_INFO), -ENOENT);
	log_close();
}

/* A line is on its way at once, without a next one to push it. */
static void test_written_soon(void **state)
{
	int real, fd = pipe_as_stderr(&real);
	struct pollfd p = {.fd = fd, .events = POLLIN};
	char text[16] = {0};

	assert_int_equal(log_open("stderr", LOG_LEVEL_INFO), 0);
	for (int i = 0; i < 3; i++) {
		uint64_t start = clock_mono_ms();

		log_text("one");
		assert_int_equal(poll(&p, 1, 5000), 1);
		assert_int_equal(read(fd, text, sizeof(text)), 4);
		assert_memory_equal(text, "one\n", 4);
		assert_true(clock_mono_ms() - start < 2000);
	}
	log_close();
	restore_stderr(real);
	close(fd);
}

static void test_events(void **state)
{
	char text[2000], *all, *line, *save;
	size_t n;

	assert_int_equal(log_open(path, LOG_LEVEL_WARNING), 0);
	log_event(LOG_STARTED, "below the level");
	log_event(LOG_ACCEPT_PAUSED, "tab\t quote\" back\\ newline\n bad\xff end");
	memset(text, 'y', sizeof(text));
	text[sizeof(text) - 1] = '\0';
	log_event(LOG_WORKER_FAILED, "%s", text); /* cut, still whole JSON */
	log_close();
	all = content(path, &n);
	assert_null(strstr(all, "below"));
	line = strtok_r(all, "\n", &save);
	assert_non_null(strstr(line, "\"level\":\"warning\""));
	assert_non_null(strstr(line, "\"action\":\"accept-paused\""));
	assert_non_null(strstr(line, "\"message\":\"tab\\u0009 quote\\\" back\\\\ newline\\u000a bad\\u00ff end\"}"));
	assert_memory_equal(line, "{\"@timestamp\":\"20", 17);
	line = strtok_r(NULL, "\n", &save);
	assert_non_null(strstr(line, "\"action\":\"worker-failed\""));
	assert_string_equal(line + strlen(line) - 4, "yy\"}");
	assert_null(strtok_r(NULL, "\n", &save));
	free(all);
}

/* Before there is a log, the operator's terminal is it. */
static void test_event_without_a_log(void **state)
{
	int real, fd = pipe_as_stderr(&real);
	char text[100] = {0};

	log_event(LOG_ACCEPT_PAUSED, "so it is: %d", 7);
	restore_stderr(real);
	assert_true(read(fd, text, sizeof(text) - 1) > 0);
	assert_string_equal(text, "egress-guard: so it is: 7\n");
	close(fd);
}

static void test_line_too_long(void **state)
{
	uint64_t dropped = counter_sum(COUNTER_LOG_DROPPED);
	char *line = malloc(LIMIT_LOG_LINE_BYTES + 2), *all;
	size_t n;

	memset(line, 'x', LIMIT_LOG_LINE_BYTES + 1);
	assert_int_equal(log_open(path, LOG_LEVEL_INFO), 0);
	log_access((struct str){line, LIMIT_LOG_LINE_BYTES + 1});
	log_access((struct str){line, LIMIT_LOG_LINE_BYTES});
	log_close();
	assert_int_equal(counter_sum(COUNTER_LOG_DROPPED) - dropped, 1);
	all = content(path, &n);
	assert_non_null(strstr(all, "\"message\":\"1 log lines were dropped\""));
	assert_true(n > LIMIT_LOG_LINE_BYTES && n < LIMIT_LOG_LINE_BYTES + 500);
	free(all);
	free(line);
}

/* --- rotation --- */

static void test_reopen(void **state)
{
	assert_int_equal(log_reopen(), 0); /* nothing open: nothing to do */
	assert_int_equal(log_open(path, LOG_LEVEL_INFO), 0);
	log_text("before");
	assert_int_equal(rename(path, moved), 0);
	log_text("between");
	for (size_t n = 0; n < 15;) { /* both are written, to the file of the old name */
		char *text = content(moved, &n);

		free(text);
	}
	assert_int_equal(log_reopen(), 0);
	log_text("after");
	log_close();
	check_content(moved, "before\nbetween\n");
	check_content(path, "after\n");
}

static void test_reopen_fails(void **state)
{
	assert_int_equal(log_open(path, LOG_LEVEL_INFO), 0);
	log_text("one");
	assert_int_equal(rename(path, moved), 0);
	assert_int_equal(mkdir(path, 0700), 0);
	assert_int_equal(log_reopen(), -EISDIR);
	log_text("two"); /* the old file stays in use */
	log_close();
	check_content(moved, "one\ntwo\n");
	assert_int_equal(rmdir(path), 0);
}

/* --- readers that are slow, and disks that are full --- */

enum { LINE = 1000 };

static void fill_line(char line[LINE], unsigned number)
{
	int n = snprintf(line, LINE, "{\"n\":%u,\"x\":\"", number);

	memset(line + n, 'x', (size_t)(LINE - n));
	memcpy(line + LINE - 2, "\"}", 2);
}

/* Every line is whole and they come in order; returns how many, and the sum of what the gap lines tell. */
static unsigned check_lines(char *all, uint64_t *ret_missing)
{
	unsigned n = 0, last = 0, number;
	char *save, *end, want[LINE + 1] = {0};

	*ret_missing = 0;
	for (char *l = strtok_r(all, "\n", &save); l; l = strtok_r(NULL, "\n", &save)) {
		const char *gap = strstr(l, "\"message\":\"");

		if (gap) {
			assert_non_null(strstr(l, "\"action\":\"log-gap\""));
			assert_non_null(strstr(l, " log lines were dropped\"}"));
			*ret_missing += strtoull(gap + 11, NULL, 10);
			continue;
		}
		assert_memory_equal(l, "{\"n\":", 5);
		number = (unsigned)strtoul(l + 5, &end, 10);
		assert_int_equal(*end, ',');
		fill_line(want, number);
		assert_string_equal(l, want);
		assert_true(n == 0 || number > last);
		last = number;
		n++;
	}
	return n;
}

static char *read_until_end(int fd)
{
	struct buf b = {0};
	ssize_t n;

	do {
		char *to = buf_reserve(&b, 65536);

		n = read(fd, to, 65535);
		assert_true(n >= 0);
		buf_commit(&b, (size_t)n);
	} while (n > 0);
	b.mem[b.len] = '\0';
	return b.mem;
}

struct reading {
	int fd;
	char *all;
};

static void *reader(void *arg)
{
	struct reading *r = arg;

	r->all = read_until_end(r->fd);
	return NULL;
}

/* Nobody reads: logging costs no waiting, the queue is bounded, and what was lost is told once there is room. */
static void blocked_pipe(bool nonblocking)
{
	uint64_t dropped = counter_sum(COUNTER_LOG_DROPPED), lines = counter_sum(COUNTER_LOG_LINES), missing, lost, queued;
	const unsigned many = 3 * LIMIT_LOG_QUEUE_BYTES / LINE; /* the queue, what the writer may have taken, and one more */
	uint64_t start = clock_mono_ms(), took;
	struct reading r;
	int real;
	char line[LINE];
	pthread_t t;
	unsigned got;

	r.fd = pipe_as_stderr(&real);
	if (nonblocking)
		fcntl(2, F_SETFL, O_NONBLOCK);
	assert_int_equal(log_open("stderr", LOG_LEVEL_INFO), 0);
	for (unsigned i = 0; i < many; i++) {
		fill_line(line, i);
		log_access((struct str){line, LINE});
	}
	took = clock_mono_ms() - start;
	assert_int_equal(pthread_create(&t, NULL, reader, &r), 0);
	queued = counter_sum(COUNTER_LOG_LINES);
	while (counter_sum(COUNTER_LOG_LINES) == queued) { /* until one is taken: there is room again */
		fill_line(line, many);
		log_access((struct str){line, LINE});
		usleep(500);
	}
	lost = counter_sum(COUNTER_LOG_DROPPED) - dropped;
	log_close();
	restore_stderr(real);
	pthread_join(t, NULL);
	got = check_lines(r.all, &missing);
	free(r.all);
	close(r.fd);
	assert_true(took < 5000);
	assert_int_equal(got, counter_sum(COUNTER_LOG_LINES) - lines);
	assert_true(lost > many / 4);
	assert_int_equal(missing, lost);
}

static void test_blocked_pipe(void **state)
{
	blocked_pipe(false);
}

static void test_blocked_nonblocking_pipe(void **state)
{
	blocked_pipe(true);
}

/* A reader that never comes back must not keep the guard from ending. */
static void test_close_with_a_stuck_reader(void **state)
{
	int real, fd = pipe_as_stderr(&real), status;
	char line[LINE];
	pid_t child = fork();

	if (child == 0) {
		uint64_t start;

		if (log_open("stderr", LOG_LEVEL_INFO) < 0)
			_exit(2);
		for (unsigned i = 0; i < 200; i++) {
			fill_line(line, i);
			log_access((struct str){line, LINE});
		}
		alarm(20);
		start = clock_mono_ms();
		log_close();
		_exit(clock_mono_ms() - start < 10000 ? 0 : 3);
	}
	restore_stderr(real);
	assert_true(child > 0);
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	close(fd);
}

/* A full disk (here: a file that may not grow): what was written stays, a line cut in two does not swallow the next, and
 * the number of lost lines is told. */
static void test_full_disk(void **state)
{
	struct rlimit old, small;
	uint64_t dropped = counter_sum(COUNTER_LOG_DROPPED), missing;
	char line[LINE], *all;
	unsigned whole = 0;
	size_t n;

	signal(SIGXFSZ, SIG_IGN);
	getrlimit(RLIMIT_FSIZE, &old);
	small = (struct rlimit){.rlim_cur = 3 * LINE + LINE / 2, .rlim_max = old.rlim_max};
	assert_int_equal(log_open(path, LOG_LEVEL_INFO), 0);
	setrlimit(RLIMIT_FSIZE, &small);
	for (unsigned i = 0; i < 5; i++) {
		fill_line(line, i);
		log_access((struct str){line, LINE});
	}
	while (counter_sum(COUNTER_LOG_DROPPED) == dropped)
		usleep(1000);
	setrlimit(RLIMIT_FSIZE, &old);
	for (unsigned i = 5; i < 8; i++) {
		fill_line(line, i);
		log_access((struct str){line, LINE});
	}
	log_close();
	assert_int_equal(counter_sum(COUNTER_LOG_DROPPED) - dropped, 2);
	all = content(path, &n);
	/* Take the torn piece out: it must be a line of its own, the beginning of line 3. */
	fill_line(line, 3);
	for (char *l = all, *end; *l; l = end + 1) {
		end = strchr(l, '\n');
		assert_non_null(end);
		if (!memcmp(l, line, 8) && end - l < LINE) {
			assert_memory_equal(l, line, (size_t)(end - l));
			memmove(l, end + 1, strlen(end + 1) + 1);
			whole++;
			break;
		}
	}
	assert_int_equal(whole, 1);
	assert_int_equal(check_lines(all, &missing), 6);
	assert_int_equal(missing, 2);
	free(all);
}

/* --- threads --- */

enum { THREADS = 4, EACH = 3000 };

static void *write_many(void *arg)
{
	char line[400];
	unsigned thread = *(unsigned *)arg;

	if (counter_attach() < 0)
		return NULL;
	for (unsigned i = 0; i < EACH; i++) {
		int n = snprintf(line, sizeof(line), "<%u %u %.*s>", thread, i, (int)(i % 300),
				 "......................................................................................................"
				 "......................................................................................................"
				 "......................................................................................................");

		log_access((struct str){line, (size_t)n});
		if (i % 500 == 0)
			log_event(LOG_STARTED, "<event>");
	}
	return arg;
}

static void test_four_threads(void **state)
{
	unsigned numbers[THREADS], next[THREADS] = {0}, events = 0, thread, i;
	uint64_t dropped = counter_sum(COUNTER_LOG_DROPPED);
	pthread_t t[THREADS];
	char *all, *save, *end;
	size_t n;

	assert_int_equal(log_open(path, LOG_LEVEL_INFO), 0);
	for (unsigned k = 0; k < THREADS; k++) {
		numbers[k] = k;
		assert_int_equal(pthread_create(&t[k], NULL, write_many, &numbers[k]), 0);
	}
	for (unsigned k = 0; k < 20; k++) /* the file changes under them */
		assert_int_equal(log_reopen(), 0);
	for (unsigned k = 0; k < THREADS; k++) {
		void *ok;

		pthread_join(t[k], &ok);
		assert_ptr_equal(ok, &numbers[k]);
	}
	log_close();
	assert_int_equal(counter_sum(COUNTER_LOG_DROPPED), dropped);
	all = content(path, &n);
	for (char *l = strtok_r(all, "\n", &save); l; l = strtok_r(NULL, "\n", &save)) {
		if (l[0] == '{') {
			assert_string_equal(l + strlen(l) - 9, "<event>\"}");
			events++;
			continue;
		}
		assert_int_equal(l[0], '<');
		thread = (unsigned)strtoul(l + 1, &end, 10);
		i = (unsigned)strtoul(end, &end, 10);
		assert_int_equal(*end, ' ');
		assert_in_range(thread, 0, THREADS - 1);
		assert_int_equal(i, next[thread]++); /* each thread's own order is kept */
		assert_int_equal(strspn(strrchr(l, ' ') + 1, "."), i % 300);
		assert_int_equal(l[strlen(l) - 1], '>');
	}
	for (unsigned k = 0; k < THREADS; k++)
		assert_int_equal(next[k], EACH);
	assert_int_equal(events, THREADS * EACH / 500);
	free(all);
}

#define IN_FOLDER(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_level_words),
		IN_FOLDER(test_file),
		IN_FOLDER(test_cannot_open),
		IN_FOLDER(test_written_soon),
		IN_FOLDER(test_events),
		IN_FOLDER(test_event_without_a_log),
		IN_FOLDER(test_line_too_long),
		IN_FOLDER(test_reopen),
		IN_FOLDER(test_reopen_fails),
		IN_FOLDER(test_blocked_pipe),
		IN_FOLDER(test_blocked_nonblocking_pipe),
		IN_FOLDER(test_close_with_a_stuck_reader),
		IN_FOLDER(test_full_disk),
		IN_FOLDER(test_four_threads),
	};

	return cmocka_run_group_tests_name("log", tests, NULL, NULL);
}
