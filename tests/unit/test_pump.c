/* The pump over real sockets: exact counts and bytes, by copy and by splice; limits and back-pressure. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <cmocka.h>

#include "pump_rig.h"

/* --- bytes and counts --- */

static void test_small_flows_are_copied(void **state)
{
	static const uint64_t sizes[] = {0, 1, 1000, LIMIT_COPY_BYTES - 1, LIMIT_COPY_BYTES};

	for (int kind = UNIX_PAIR; kind <= TCP_PAIR; kind++)
		for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
			struct rig r;

			rig_up(&r, (enum kind)kind);
			move(&r, sizes[i], SIZE_MAX);
			assert_true(r.p.spliced == 0);
			assert_int_equal(r.pipes.n_idle, 0);
			rig_down(&r);
		}
}

/* The same bytes and the same counts, whether copied or spliced, fast and slow readers. */
static void test_large_flows(void **state)
{
	static const size_t steps[] = {SIZE_MAX, 300 * KIB, 9973};

	for (int kind = UNIX_PAIR; kind <= TCP_PAIR; kind++)
		for (size_t i = 0; i < sizeof(steps) / sizeof(steps[0]); i++)
			for (int shortage = 0; shortage <= 1; shortage++) {
				struct rig r;

				rig_up(&r, (enum kind)kind);
				r.pipes.retry = shortage ? UINT32_MAX : 0;
				move(&r, 6 * MIB + 12345, steps[i]);
				if (shortage)
					assert_true(r.p.spliced == 0);
				else
					assert_true(r.p.spliced > MIB);
				rig_down(&r);
			}
}

/* No descriptors left for a pipe: the bytes go by copy, and by splice again later. */
static void test_no_descriptors_for_pipes(void **state)
{
	struct rlimit old, low;
	struct rig r;

	rig_up(&r, UNIX_PAIR);
	getrlimit(RLIMIT_NOFILE, &old);
	low = (struct rlimit){.rlim_cur = 3, .rlim_max = old.rlim_max};
	setrlimit(RLIMIT_NOFILE, &low);
	move(&r, 4 * MIB, SIZE_MAX);
	setrlimit(RLIMIT_NOFILE, &old);
	assert_true(r.p.spliced == 0);
	assert_true(r.p.splicing);
	assert_true(r.pipes.retry > 0); /* not one system call for each try */
	rig_down(&r);
}

static void test_held_goes_first(void **state)
{
	for (int big = 0; big <= 1; big++) {
		uint64_t held = big ? 50 * KIB : 5, no_limit = UINT64_MAX;
		struct rig r;

		rig_up(&r, TCP_PAIR);
		for (uint64_t i = 0; i < held; i++) {
			char c = pattern(i);

			buf_add(&r.p.held, &c, 1);
		}
		r.sent = held;
		feed(&r, held + 3000);
		shutdown(r.src, SHUT_WR);
		while (r.p.in < 3000 || r.p.held.len) {
			assert_true(take_events(&r, 5000) || r.to.writable);
			run(&r, &no_limit);
			drain(&r, SIZE_MAX);
		}
		while (r.got < held + 3000)
			drain(&r, SIZE_MAX);
		assert_true(r.p.in == 3000);           /* what was held was not read here */
		assert_true(r.p.out == held + 3000);
		rig_down(&r);
	}
}

/* --- the limit --- */

static void check_limit(enum kind kind, bool splice, uint64_t limit)
{
	uint64_t left = limit, end = limit + 100000;
	enum pump_status st;
	struct rig r;
	char byte;

	rig_up(&r, kind);
	r.p.splicing = splice;
	do {
		bool moved = feed(&r, end);

		moved |= take_events(&r, 0);
		st = run(&r, &left);
		moved |= drain(&r, SIZE_MAX);
		assert_true(st == PUMP_LIMIT || st == PUMP_WANT_READ || st == PUMP_WANT_WRITE || st == PUMP_YIELD);
		if (st != PUMP_LIMIT && st != PUMP_YIELD && !moved && !take_events(&r, 5000))
			fail_msg("stalled below the limit of %llu", (unsigned long long)limit);
	} while (st != PUMP_LIMIT);
	assert_true(left == 0);
	assert_true(r.p.in == limit && r.p.out == limit);
	if (splice && limit)
		assert_true(r.p.spliced > 0);
	while (r.got < limit)
		drain(&r, SIZE_MAX);
	/* It stays shut, also when asked again, and the next byte is still in the source. */
	take_events(&r, 0);
	assert_int_equal(run(&r, &left), PUMP_LIMIT);
	assert_true(r.p.in == limit);
	assert_int_equal(recv(r.dst, &byte, 1, 0), -1);
	assert_int_equal(recv(r.from.fd, &byte, 1, 0), 1);
	assert_int_equal(byte, pattern(limit));
	rig_down(&r);
}

static void test_limit_to_the_byte(void **state)
{
	static const uint64_t limits[] = {0, 1, 4095, LIMIT_COPY_BYTES - 1, LIMIT_COPY_BYTES, LIMIT_COPY_BYTES + 1,
					  2 * LIMIT_COPY_BYTES, LIMIT_PIPE_BYTES - 1, LIMIT_PIPE_BYTES, LIMIT_PIPE_BYTES + 1,
					  LIMIT_TURN_BYTES + 1, 3 * MIB - 1};

	for (int kind = UNIX_PAIR; kind <= TCP_PAIR; kind++)
		for (int splice = 0; splice <= 1; splice++)
			for (size_t i = 0; i < sizeof(limits) / sizeof(limits[0]); i++)
				check_limit((enum kind)kind, splice, limits[i]);
}

/* The last byte under the limit is also the last byte there is: the limit is told first, the end when asked again. */
static void test_limit_at_the_end(void **state)
{
	uint64_t left = 1000;
	struct rig r;

	rig_up(&r, TCP_PAIR);
	feed(&r, 1000);
	shutdown(r.src, SHUT_WR);
	while (run(&r, &left) != PUMP_LIMIT)
		assert_true(take_events(&r, 5000));
	left = 5;
	while (run(&r, &left) != PUMP_EOF)
		assert_true(take_events(&r, 5000));
	assert_true(left == 5 && r.p.out == 1000);
	rig_down(&r);
}

/* --- back-pressure --- */

/* A sink that takes nothing: reading stops with at most one buffer or one pipe in flight, and goes on later. */
static void check_full_sink(enum kind kind, bool splice)
{
	uint64_t no_limit = UINT64_MAX, in;
	enum pump_status st = PUMP_WANT_READ;
	struct rig r;

	rig_up(&r, kind);
	r.p.splicing = splice;
	for (;;) { /* nobody reads: until neither the source nor the sink takes more */
		bool moved = feed(&r, 64 * MIB);

		moved |= take_events(&r, 0);
		st = run(&r, &no_limit);
		if (st == PUMP_WANT_WRITE && !moved && !take_events(&r, 50))
			break;
	}
	assert_false(r.to.writable);
	in = r.p.in;
	/* More comes in: still not read. */
	r.from.readable = true;
	assert_int_equal(run(&r, &no_limit), PUMP_WANT_WRITE);
	assert_true(r.p.in == in);
	assert_true(r.p.in - r.p.out == r.p.held.len + r.p.in_pipe);
	if (splice) {
		assert_true(r.p.spliced > 0);
		/* Lent while in use, or given back and nothing in flight. */
		assert_int_equal(r.pipes.n_idle, r.p.pipe ? 0 : 1);
	}
	assert_int_equal(pump_flush(&r.p, &r.to, &r.room), r.p.held.len + r.p.in_pipe ? PUMP_WANT_WRITE : PUMP_WANT_READ);
	move(&r, r.sent, 50000);
	if (splice)
		assert_int_equal(r.pipes.n_idle, 1);
	rig_down(&r);
}

static void test_full_sink(void **state)
{
	for (int kind = UNIX_PAIR; kind <= TCP_PAIR; kind++)
		for (int splice = 0; splice <= 1; splice++)
			check_full_sink((enum kind)kind, splice);
}

static void test_never_reads_without_room(void **state)
{
	uint64_t no_limit = UINT64_MAX;
	int left = 0;
	struct rig r;

	rig_up(&r, UNIX_PAIR);
	feed(&r, 100);
	r.from.readable = true;
	r.to.writable = false;
	assert_int_equal(run(&r, &no_limit), PUMP_WANT_WRITE);
	assert_int_equal(ioctl(r.from.fd, FIONREAD, &left), 0);
	assert_int_equal(left, 100);
	assert_true(r.p.in == 0);
	/* Nor does it write or read where nothing is said to be. */
	r.from.readable = false;
	r.to.writable = true;
	assert_int_equal(run(&r, &no_limit), PUMP_WANT_READ);
	assert_true(r.p.in == 0);
	rig_down(&r);
}

static void test_flush_never_reads(void **state)
{
	struct rig r;

	rig_up(&r, UNIX_PAIR);
	feed(&r, 100);
	r.from.readable = true;
	buf_add_z(&r.p.held, "x");
	assert_int_equal(pump_flush(&r.p, &r.to, &r.room), PUMP_WANT_READ);
	assert_true(r.p.in == 0 && r.p.out == 1);
	assert_true(r.from.readable);
	rig_down(&r);
}

/* A source that never runs dry (a file) and a sink that takes all: others get their turn after LIMIT_TURN_BYTES. */
static void test_yield(void **state)
{
	uint64_t no_limit = UINT64_MAX;
	struct pipe_pool pipes = {0};
	struct pump_room room = {&pipes, copy_buffer};
	struct pump p = {.splicing = true};
	struct pump_end from = {.fd = memfd_create("source", 0), .readable = true},
			to = {.fd = open("/dev/null", O_WRONLY), .writable = true};

	assert_int_equal(ftruncate(from.fd, 3 * LIMIT_TURN_BYTES), 0);
	for (uint64_t turn = 1; turn <= 3; turn++) {
		assert_int_equal(pump_run(&p, &from, &to, &no_limit, &room), PUMP_YIELD);
		assert_true(p.in == turn * LIMIT_TURN_BYTES && p.out == p.in && p.spliced == p.in);
		assert_true(from.readable && to.writable);
		assert_null(p.pipe);
	}
	assert_int_equal(pump_run(&p, &from, &to, &no_limit, &room), PUMP_EOF);
	pump_clear(&p, &room);
	pipe_pool_clear(&pipes);
	close(from.fd);
	close(to.fd);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_small_flows_are_copied),
		cmocka_unit_test(test_large_flows),
		cmocka_unit_test(test_no_descriptors_for_pipes),
		cmocka_unit_test(test_held_goes_first),
		cmocka_unit_test(test_limit_to_the_byte),
		cmocka_unit_test(test_limit_at_the_end),
		cmocka_unit_test(test_full_sink),
		cmocka_unit_test(test_never_reads_without_room),
		cmocka_unit_test(test_flush_never_reads),
		cmocka_unit_test(test_yield),
	};

	return cmocka_run_group_tests_name("pump", tests, no_sigpipe, NULL);
}
