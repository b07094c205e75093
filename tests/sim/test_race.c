/* Plays the scenario files of tests/sim/scenarios against the race machine. README.md describes the language.
 *
 * The player is the dialer without sockets: after each event it asks the machine until that says wait or over, notes
 * the starts with their moment, and when a line moves the clock it stops at each moment the machine wants to be
 * woken. */
#include <dirent.h>
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>

#include "net/race.h"
#include "policy/addr.h"

#ifndef SCENARIOS
#define SCENARIOS "tests/sim/scenarios"
#endif

struct start {
	uint64_t at_ms;
	struct addr addr;
};

struct player {
	const char *file;
	unsigned line;
	struct race race;
	uint64_t now_ms;
	enum race_do state;
	uint64_t wake_ms;
	struct start starts[64]; /* not yet expected by a line */
	size_t n_starts;
	bool failed;
};

static void complain(struct player *p, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void complain(struct player *p, const char *fmt, ...)
{
	char text[200];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	print_error("%s:%u: %s\n", p->file, p->line, text);
	p->failed = true;
}

static const char *text_of(const struct addr *a)
{
	static char text[ADDR_TEXT_MAX];

	addr_format(a, text);
	return text;
}

static void ask(struct player *p)
{
	size_t i = 0;

	p->wake_ms = 0;
	for (;;) {
		p->state = race_next(&p->race, p->now_ms, &i, &p->wake_ms);
		if (p->state != RACE_START)
			return;
		if (p->n_starts == sizeof(p->starts) / sizeof(p->starts[0])) {
			complain(p, "the machine starts attempts without end");
			return;
		}
		p->starts[p->n_starts++] = (struct start){p->now_ms, p->race.addrs[i]};
	}
}

static void move_clock(struct player *p, uint64_t to_ms)
{
	if (to_ms < p->now_ms)
		complain(p, "the clock would go back");
	while (!p->failed && p->state == RACE_WAIT && p->wake_ms != 0 && p->wake_ms <= to_ms) {
		if (p->wake_ms <= p->now_ms) {
			complain(p, "asks to be woken at %ju, which is not after %ju", (uintmax_t)p->wake_ms,
				 (uintmax_t)p->now_ms);
			return;
		}
		p->now_ms = p->wake_ms;
		ask(p);
	}
	p->now_ms = to_ms;
	if (p->n_starts > 0 && p->starts[0].at_ms < to_ms)
		complain(p, "nothing expected the start of %s at %ju", text_of(&p->starts[0].addr),
			 (uintmax_t)p->starts[0].at_ms);
}

static bool word_is(const char *word, const char *what)
{
	return word && strcmp(word, what) == 0;
}

static bool read_number(const char *word, uint64_t *ret)
{
	char *end;

	if (!word || !ascii_is_digit(word[0]))
		return false;
	errno = 0;
	*ret = strtoull(word, &end, 10);
	return errno == 0 && *end == '\0';
}

static void do_candidates(struct player *p, char **rest)
{
	struct addr addrs[LIMIT_ANSWER_ADDRESSES];
	size_t n = 0;
	bool complete = false;
	const char *word;

	while ((word = strtok_r(NULL, " \t", rest)) != NULL) {
		if (word_is(word, "complete"))
			complete = true;
		else if (n == LIMIT_ANSWER_ADDRESSES || !addr_parse(str_from(word), &addrs[n++]))
			complain(p, "not an address, or too many: %s", word);
	}
	race_candidates(&p->race, addrs, n, complete);
	ask(p);
}

static void do_fail(struct player *p, const char *word)
{
	struct addr a;

	if (!word || !addr_parse(str_from(word), &a)) {
		complain(p, "fail what?");
		return;
	}
	for (size_t i = 0; i < p->race.n; i++) {
		if (!addr_equal(&p->race.addrs[i], &a))
			continue;
		if (p->race.state[i] != RACE_DIALING)
			break;
		race_attempt_failed(&p->race, i, p->now_ms);
		ask(p);
		return;
	}
	complain(p, "%s is not being dialed", word);
}

static void expect_start(struct player *p, const char *word)
{
	struct addr a;

	if (!word || !addr_parse(str_from(word), &a))
		complain(p, "expect the start of what?");
	else if (p->n_starts == 0)
		complain(p, "no start; expected %s", word);
	else if (!addr_equal(&p->starts[0].addr, &a))
		complain(p, "%s started; expected %s", text_of(&p->starts[0].addr), word);
	else
		memmove(p->starts, p->starts + 1, --p->n_starts * sizeof(p->starts[0]));
}

static void do_expect(struct player *p, char **rest)
{
	const char *what = strtok_r(NULL, " \t", rest), *word = strtok_r(NULL, " \t", rest);
	uint64_t until = 0;

	if (word_is(what, "start")) {
		expect_start(p, word);
		return;
	}
	if (p->n_starts > 0)
		complain(p, "%s started", text_of(&p->starts[0].addr));
	if (word_is(what, "over")) {
		if (p->state != RACE_OVER)
			complain(p, "not over");
	} else if (word_is(what, "wait")) {
		if (word && !read_number(word, &until))
			complain(p, "wait until when?");
		if (p->state != RACE_WAIT)
			complain(p, "does not wait");
		else if (p->wake_ms != until)
			complain(p, "waits until %ju", (uintmax_t)p->wake_ms);
	} else {
		complain(p, "expect start, wait or over");
	}
}

static void play_line(struct player *p, char *line)
{
	char *rest = NULL, *comment = strchr(line, '#');
	const char *at, *verb;
	uint64_t ms;

	if (comment)
		*comment = '\0';
	line[strcspn(line, "\n")] = '\0';
	at = strtok_r(line, " \t", &rest);
	if (!at)
		return;
	if (!word_is(at, "at") || !read_number(strtok_r(NULL, " \t", &rest), &ms)) {
		complain(p, "a line begins with: at MS");
		return;
	}
	move_clock(p, ms);
	verb = strtok_r(NULL, " \t", &rest);
	if (word_is(verb, "candidates"))
		do_candidates(p, &rest);
	else if (word_is(verb, "fail"))
		do_fail(p, strtok_r(NULL, " \t", &rest));
	else if (word_is(verb, "expect"))
		do_expect(p, &rest);
	else
		complain(p, "candidates, fail or expect");
}

/* Plays the text of an open file. Returns whether all came as written. */
static bool play(const char *name, FILE *f)
{
	struct player p = {.file = name};
	char line[2000];

	race_init(&p.race);
	ask(&p);
	while (!p.failed && fgets(line, sizeof(line), f)) {
		p.line++;
		play_line(&p, line);
	}
	if (!p.failed && p.line == 0)
		complain(&p, "empty");
	if (!p.failed)
		move_clock(&p, p.now_ms + 60000);
	if (!p.failed && p.n_starts > 0)
		complain(&p, "nothing expected the start of %s at %ju", text_of(&p.starts[0].addr),
			 (uintmax_t)p.starts[0].at_ms);
	return !p.failed;
}

static int is_scenario(const struct dirent *d)
{
	size_t n = strlen(d->d_name);

	return n > 4 && strcmp(d->d_name + n - 4, ".txt") == 0;
}

static void test_scenarios(void **state)
{
	struct dirent **files;
	int n = scandir(SCENARIOS, &files, is_scenario, alphasort), failed = 0;

	assert_true(n >= 12);
	for (int i = 0; i < n; i++) {
		char path[512];
		FILE *f;

		snprintf(path, sizeof(path), "%s/%s", SCENARIOS, files[i]->d_name);
		f = fopen(path, "r");
		assert_non_null(f);
		failed += !play(path, f);
		fclose(f);
		free(files[i]);
	}
	free(files);
	assert_int_equal(failed, 0);
}

static bool play_text(const char *text)
{
	FILE *f = fmemopen((void *)(uintptr_t)text, strlen(text), "r");
	bool ok;

	assert_non_null(f);
	ok = play("wrong on purpose", f);
	fclose(f);
	return ok;
}

/* The player itself must be able to say no. */
static void test_wrong_scenarios_fail(void **state)
{
	assert_false(play_text("at 0 candidates 192.0.2.1 complete\n"));
	assert_false(play_text("at 0 candidates 192.0.2.1 complete\nat 0 expect start 192.0.2.2\n"));
	assert_false(play_text("at 0 candidates 192.0.2.1 complete\nat 1 expect start 192.0.2.1\n"));
	assert_false(play_text("at 0 candidates 192.0.2.1 192.0.2.2 complete\nat 0 expect start 192.0.2.1\n"));
	assert_false(play_text("at 0 candidates 192.0.2.1 complete\nat 0 expect start 192.0.2.1\nat 9 expect over\n"));
	assert_false(play_text("at 0 candidates 192.0.2.1 complete\nat 0 expect start 192.0.2.1\nat 9 expect wait 10\n"));
	assert_false(play_text("at 0 fail 192.0.2.1\n"));
	assert_false(play_text("at 5 expect wait\nat 4 expect wait\n"));
	assert_false(play_text("at 0 expect nonsense\n"));
	assert_false(play_text("candidates 192.0.2.1\n"));
	assert_true(play_text("at 0 candidates 192.0.2.1 complete\nat 0 expect start 192.0.2.1\nat 9 expect wait\n"));
}

/* More candidates than the list holds, and a list told twice: nothing is listed twice and nothing overflows. */
static void test_bounds(void **state)
{
	struct race r;
	struct addr addrs[LIMIT_ANSWER_ADDRESSES];

	race_init(&r);
	for (unsigned round = 0; round < 3; round++) {
		for (unsigned i = 0; i < LIMIT_ANSWER_ADDRESSES; i++)
			addrs[i] = addr_from_v4((const uint8_t[]){192, 0, 2, (uint8_t)(round * 20 + i)});
		race_candidates(&r, addrs, LIMIT_ANSWER_ADDRESSES, false);
	}
	assert_int_equal(r.n, LIMIT_ANSWER_ADDRESSES);
	for (size_t i = 0; i < r.n; i++)
		for (size_t k = 0; k < i; k++)
			assert_false(addr_equal(&r.addrs[i], &r.addrs[k]));
	race_attempt_failed(&r, 0, 5); /* not started: nothing happens */
	assert_int_equal(r.failed, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_scenarios),
		cmocka_unit_test(test_wrong_scenarios_fail),
		cmocka_unit_test(test_bounds),
	};

	return cmocka_run_group_tests_name("race", tests, NULL, NULL);
}
