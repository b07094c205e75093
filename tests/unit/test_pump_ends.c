/* The pump over real sockets: when it switches between copy and splice, and how it ends. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <cmocka.h>

#include "pump_rig.h"

/* --- switching --- */

/* One write of n bytes, one event, one run: as small packets of a chatty protocol come. */
static void one_packet(struct rig *r, size_t n)
{
	uint64_t no_limit = UINT64_MAX, want = r->p.in + n;

	feed(r, r->sent + n);
	while (r->p.in < want) {
		take_events(r, 1000);
		run(r, &no_limit);
		drain(r, SIZE_MAX);
	}
	drain(r, SIZE_MAX);
	assert_true(r->p.in == want && r->p.out == want);
}

static void test_switches_on_after_two_full_reads(void **state)
{
	struct rig r;

	rig_up(&r, UNIX_PAIR);
	one_packet(&r, LIMIT_COPY_BYTES);
	assert_false(r.p.splicing);
	one_packet(&r, LIMIT_COPY_BYTES - 1); /* not full: the count begins anew */
	one_packet(&r, LIMIT_COPY_BYTES);
	assert_false(r.p.splicing);
	assert_true(r.p.spliced == 0);
	one_packet(&r, LIMIT_COPY_BYTES);
	assert_true(r.p.splicing);
	one_packet(&r, 100 * KIB);
	assert_true(r.p.spliced == 100 * KIB);
	rig_down(&r);
}

static void test_switches_off_when_small(void **state)
{
	for (int kind = UNIX_PAIR; kind <= TCP_PAIR; kind++) {
		struct rig r;

		rig_up(&r, (enum kind)kind);
		r.p.splicing = true;
		for (int i = 0; i < 3; i++)
			one_packet(&r, 1000);
		assert_true(r.p.splicing);
		one_packet(&r, 40 * KIB); /* a large one: the count begins anew */
		for (int i = 0; i < 3; i++)
			one_packet(&r, 1000);
		assert_true(r.p.splicing);
		one_packet(&r, 1000);
		assert_false(r.p.splicing);
		assert_true(r.p.spliced == 40 * KIB + 7000);
		one_packet(&r, 1000);
		assert_true(r.p.spliced == 40 * KIB + 7000);
		rig_down(&r);
	}
}

/* A short read leaves a doubt that a tick looks into; a full one, an end and an error leave none. */
static void test_unsure(void **state)
{
	static const struct {
		ssize_t n;
		bool hup, readable, unsure, eof;
	} rows[] = {
		{100, false, true, false, false}, {99, false, false, true, false}, {1, false, false, true, false},
		{99, true, true, false, false},   {0, false, true, false, true},   {-1, false, false, false, false},
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct pump_end end = {.readable = true, .hup = rows[i].hup, .unsure = i % 2};

		errno = EAGAIN;
		pump_end_read(&end, rows[i].n, 100);
		assert_int_equal(end.readable, rows[i].readable);
		assert_int_equal(end.unsure, rows[i].unsure);
		assert_int_equal(end.eof, rows[i].eof);
		assert_int_equal(end.hup, rows[i].hup);
	}
}

/* --- errors --- */

static void test_read_error(void **state)
{
	for (int splice = 0; splice <= 1; splice++) {
		struct linger now = {.l_onoff = 1};
		uint64_t no_limit = UINT64_MAX;
		enum pump_status st;
		struct rig r;

		rig_up(&r, TCP_PAIR);
		r.p.splicing = splice;
		setsockopt(r.src, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
		close(r.src);
		r.src = -1;
		do {
			assert_true(take_events(&r, 5000));
			st = run(&r, &no_limit);
		} while (st == PUMP_WANT_READ);
		assert_int_equal(st, PUMP_READ_ERROR);
		assert_int_equal(r.p.error, ECONNRESET);
		assert_true(r.p.in == 0);
		rig_down(&r);
	}
}

/* The sink is gone: what was read is counted in, and not out. */
static void test_write_error(void **state)
{
	for (int kind = UNIX_PAIR; kind <= TCP_PAIR; kind++)
		for (int splice = 0; splice <= 1; splice++) {
			uint64_t no_limit = UINT64_MAX;
			struct linger now = {.l_onoff = 1};
			size_t fds = open_fds();
			enum pump_status st;
			struct rig r;

			rig_up(&r, (enum kind)kind);
			r.p.splicing = splice;
			setsockopt(r.dst, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
			close(r.dst);
			r.dst = -1;
			feed(&r, 3000);
			do {
				assert_true(take_events(&r, 5000));
				st = run(&r, &no_limit);
			} while (st == PUMP_WANT_READ);
			assert_int_equal(st, PUMP_WRITE_ERROR);
			assert_true(r.p.error == EPIPE || r.p.error == ECONNRESET);
			assert_true(r.p.in == 3000 && r.p.out == 0 && r.p.spliced == 0);
			/* A pipe with bytes in it must not serve somebody else. */
			assert_int_equal(r.p.in_pipe, splice ? 3000 : 0);
			pump_clear(&r.p, &r.room);
			assert_int_equal(r.pipes.n_idle, 0);
			rig_down(&r);
			assert_int_equal(open_fds(), fds);
		}
}

/* Part was written, then the sink went: `out` is what it took. */
static void test_write_error_in_the_middle(void **state)
{
	for (int splice = 0; splice <= 1; splice++) {
		uint64_t no_limit = UINT64_MAX, out;
		enum pump_status st;
		struct rig r;

		rig_up(&r, UNIX_PAIR);
		r.p.splicing = splice;
		do {
			feed(&r, 64 * MIB);
			take_events(&r, 0);
		} while (run(&r, &no_limit) != PUMP_WANT_WRITE);
		out = r.p.out;
		close(r.dst);
		r.dst = -1;
		r.to.writable = true;
		st = run(&r, &no_limit);
		assert_int_equal(st, PUMP_WRITE_ERROR);
		assert_int_equal(r.p.error, EPIPE);
		assert_true(r.p.out == out);
		rig_down(&r);
	}
}

/* What the sink did not take cannot be kept: an error, never a hole in the stream. */
static void test_no_memory_for_the_rest(void **state)
{
	uint64_t no_limit = UINT64_MAX;
	enum pump_status st;
	struct rig r;

	rig_up(&r, UNIX_PAIR);
	r.p.held.failed = true; /* as after a failed allocation: nothing can be held */
	do {
		feed(&r, 64 * MIB);
		take_events(&r, 0);
		r.p.error = 0;
		r.p.splicing = false;
		st = pump_run(&r.p, &r.from, &r.to, &no_limit, &r.room);
	} while (st == PUMP_WANT_READ || st == PUMP_YIELD);
	if (st == PUMP_WANT_WRITE) { /* the sink became full at the end of a buffer: one more byte of room, and again */
		drain(&r, 5000);
		r.to.writable = r.from.readable = true;
		st = pump_run(&r.p, &r.from, &r.to, &no_limit, &r.room);
	}
	assert_int_equal(st, PUMP_WRITE_ERROR);
	assert_int_equal(r.p.error, ENOMEM);
	assert_true(r.p.in > r.p.out);
	rig_down(&r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_switches_on_after_two_full_reads),
		cmocka_unit_test(test_switches_off_when_small),
		cmocka_unit_test(test_unsure),
		cmocka_unit_test(test_read_error),
		cmocka_unit_test(test_write_error),
		cmocka_unit_test(test_write_error_in_the_middle),
		cmocka_unit_test(test_no_memory_for_the_rest),
	};

	return cmocka_run_group_tests_name("pump_ends", tests, no_sigpipe, NULL);
}
