/* The pool of pipes: sizes, reuse, bounds, and what happens when there are none to be had. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>
#include <cmocka.h>

#include "limits.h"
#include "net/pipe_pool.h"

static size_t open_fds(void)
{
	DIR *d = opendir("/proc/self/fd");
	size_t n = 0;

	while (readdir(d))
		n++;
	closedir(d);
	return n;
}

static void limit_fds(rlim_t n, struct rlimit *ret_old)
{
	struct rlimit low;

	getrlimit(RLIMIT_NOFILE, ret_old);
	low = (struct rlimit){.rlim_cur = n, .rlim_max = ret_old->rlim_max};
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &low), 0);
}

static void test_a_pipe(void **state)
{
	struct pipe_pool pool = {0};
	size_t fds = open_fds();
	struct pipe *p = pipe_pool_take(&pool);
	char byte;

	assert_non_null(p);
	assert_int_equal(p->size, (size_t)fcntl(p->w, F_GETPIPE_SZ));
	assert_true(p->size >= LIMIT_COPY_BYTES);
	for (int i = 0; i < 2; i++) {
		int fd = i ? p->w : p->r;

		assert_true(fcntl(fd, F_GETFD) & FD_CLOEXEC);
		assert_true(fcntl(fd, F_GETFL) & O_NONBLOCK);
	}
	assert_int_equal(read(p->r, &byte, 1), -1);
	assert_int_equal(errno, EAGAIN);
	pipe_pool_give(&pool, p, true);
	assert_int_equal(pool.n_idle, 1);
	assert_ptr_equal(pipe_pool_take(&pool), p); /* the same again */
	assert_int_equal(pool.n_idle, 0);
	pipe_pool_give(&pool, p, true);
	pipe_pool_clear(&pool);
	assert_int_equal(pool.n_idle, 0);
	assert_int_equal(open_fds(), fds);
	pipe_pool_give(&pool, NULL, true);
	pipe_pool_give(&pool, NULL, false);
	pipe_pool_clear(&pool);
}

/* Bytes left in a pipe belong to somebody: it must never be lent again. */
static void test_not_empty(void **state)
{
	struct pipe_pool pool = {0};
	size_t fds = open_fds();
	struct pipe *p = pipe_pool_take(&pool);

	assert_int_equal(write(p->w, "secret", 6), 6);
	pipe_pool_give(&pool, p, false);
	assert_int_equal(pool.n_idle, 0);
	assert_null(pool.idle);
	assert_int_equal(open_fds(), fds);
}

static void test_bounded(void **state)
{
	struct pipe *all[LIMIT_PIPES_IDLE + 5];
	struct pipe_pool pool = {0};
	size_t fds = open_fds(), n = 0;

	for (; n < sizeof(all) / sizeof(all[0]); n++) {
		all[n] = pipe_pool_take(&pool);
		if (!all[n])
			break; /* the user's pipe pages are spent (pipe(7)) */
		for (size_t i = 0; i < n; i++)
			assert_ptr_not_equal(all[i], all[n]);
	}
	assert_true(n > 10);
	for (size_t i = 0; i < n; i++)
		pipe_pool_give(&pool, all[i], true);
	assert_int_equal(pool.n_idle, n < LIMIT_PIPES_IDLE ? n : LIMIT_PIPES_IDLE);
	assert_int_equal(open_fds(), fds + 2 * pool.n_idle);
	pipe_pool_clear(&pool);
	assert_int_equal(open_fds(), fds);
}

/* Without descriptors there is no pipe; a try is made only now and then, and succeeds once there are some. */
static void test_shortage(void **state)
{
	struct pipe_pool pool = {0};
	struct rlimit old;
	struct pipe *p;
	unsigned tries = 0;

	limit_fds(3, &old);
	assert_null(pipe_pool_take(&pool));
	setrlimit(RLIMIT_NOFILE, &old);
	assert_true(pool.retry > 0);
	while (!(p = pipe_pool_take(&pool)))
		assert_true(tries++ < 10000);
	assert_true(tries > 10); /* the shortage was believed for a while */
	pipe_pool_give(&pool, p, true);
	pipe_pool_clear(&pool);
}

/* Idle pipes are lent out also while new ones cannot be made. */
static void test_shortage_with_idle(void **state)
{
	struct pipe_pool pool = {0};
	struct pipe *p = pipe_pool_take(&pool);
	struct rlimit old;

	pipe_pool_give(&pool, p, true);
	limit_fds(3, &old);
	assert_ptr_equal(pipe_pool_take(&pool), p);
	assert_null(pipe_pool_take(&pool));
	pipe_pool_give(&pool, p, true);
	assert_ptr_equal(pipe_pool_take(&pool), p);
	setrlimit(RLIMIT_NOFILE, &old);
	pipe_pool_give(&pool, p, true);
	pipe_pool_clear(&pool);
}

/* One descriptor is not two: nothing leaks when the second end cannot be had. */
static void test_one_descriptor_left(void **state)
{
	struct pipe_pool pool = {0};
	size_t fds = open_fds();
	struct rlimit old;
	int next = dup(0);

	close(next);
	limit_fds((rlim_t)next + 1, &old);
	assert_null(pipe_pool_take(&pool));
	setrlimit(RLIMIT_NOFILE, &old);
	assert_int_equal(open_fds(), fds);
}

/* What was not needed between two calls is closed; what was in use in between stays. */
static void test_trim(void **state)
{
	struct pipe_pool pool = {0};
	size_t fds = open_fds();
	struct pipe *p[4];

	for (int i = 0; i < 4; i++)
		p[i] = pipe_pool_take(&pool);
	for (int i = 0; i < 4; i++)
		pipe_pool_give(&pool, p[i], true);
	assert_int_equal(pipe_pool_trim(&pool), 4); /* all were in use since the last call */
	p[0] = pipe_pool_take(&pool);
	p[1] = pipe_pool_take(&pool);
	pipe_pool_give(&pool, p[0], true);
	pipe_pool_give(&pool, p[1], true);
	assert_int_equal(pipe_pool_trim(&pool), 2); /* two at once, never more */
	assert_int_equal(open_fds(), fds + 4);
	p[0] = pipe_pool_take(&pool);
	assert_int_equal(pipe_pool_trim(&pool), 0); /* lent out is not idle, and one was not needed */
	assert_int_equal(open_fds(), fds + 2);
	pipe_pool_give(&pool, p[0], true);
	assert_int_equal(pipe_pool_trim(&pool), 1);
	assert_int_equal(pipe_pool_trim(&pool), 0);
	assert_int_equal(pipe_pool_trim(&pool), 0);
	assert_int_equal(open_fds(), fds);
	pipe_pool_clear(&pool);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_a_pipe),
		cmocka_unit_test(test_not_empty),
		cmocka_unit_test(test_bounded),
		cmocka_unit_test(test_shortage),
		cmocka_unit_test(test_shortage_with_idle),
		cmocka_unit_test(test_one_descriptor_left),
		cmocka_unit_test(test_trim),
	};

	return cmocka_run_group_tests_name("pipe_pool", tests, NULL, NULL);
}
