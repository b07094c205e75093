/* The text of /metrics, read by a parser that forgives nothing (Prometheus format 0.0.4 and OpenMetrics 1.0), and the
 * server that hands it out. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <arpa/inet.h>
#include <ctype.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/counter.h"
#include "control/metrics.h"
#include "net/listener.h"

static const struct metrics_facts facts = {.policy_hash = 0x00ab12, .policy_loaded_s = 1796083644.5, .started_s = 1796083000,
					   .workers = 3};

/* --- a strict parser --- */

enum { FAMILIES_MAX = 200, SAMPLES_MAX = 500 };

struct sample {
	struct str name, labels, value; /* labels: what stands between the braces */
	size_t family;
};

struct parsed {
	struct str families[FAMILIES_MAX], types[FAMILIES_MAX];
	struct sample samples[SAMPLES_MAX];
	size_t n_families, n_samples;
	bool ended;
};

static bool is_name(struct str s)
{
	for (size_t i = 0; i < s.n; i++)
		if (!isalpha((unsigned char)s.p[i]) && s.p[i] != '_' && s.p[i] != ':' && !(i && isdigit((unsigned char)s.p[i])))
			return false;
	return s.n > 0;
}

/* Takes up to `stop`, which must be there and goes too. */
static struct str until(struct str *s, char stop)
{
	const char *p = memchr(s->p, stop, s->n);
	struct str out;

	if (!p)
		fail_msg("no '%c' in \"%.*s\"", stop, STR_ARG(*s));
	out = (struct str){s->p, (size_t)(p - s->p)};
	*s = str_skip(*s, out.n + 1);
	return out;
}

static bool starts(struct str s, const char *with)
{
	return s.n >= strlen(with) && !memcmp(s.p, with, strlen(with));
}

static void parse_labels(struct str s)
{
	for (;;) {
		assert_true(is_name(until(&s, '=')));
		assert_true(starts(s, "\""));
		s = str_skip(s, 1);
		for (size_t i = 0; i < s.n && s.p[i] != '"'; i++)
			assert_true(s.p[i] != '\\' && s.p[i] >= 0x20 && s.p[i] < 0x7f); /* values from fixed sets */
		assert_true(until(&s, '"').n > 0);
		if (!s.n)
			return;
		assert_int_equal(s.p[0], ',');
		s = str_skip(s, 1);
	}
}

static void parse_value(struct str s)
{
	char text[40], *end;

	assert_in_range(s.n, 1, sizeof(text) - 1);
	memcpy(text, s.p, s.n);
	text[s.n] = '\0';
	assert_true(isdigit((unsigned char)text[0])); /* nothing of ours is negative */
	strtod(text, &end);
	assert_int_equal(*end, '\0');
}

static void parse_sample(struct parsed *p, struct str line, bool openmetrics)
{
	struct sample *s = &p->samples[p->n_samples++];
	struct str family, type;
	size_t name = 0;

	assert_true(p->n_samples < SAMPLES_MAX);
	while (name < line.n && line.p[name] != '{' && line.p[name] != ' ')
		name++;
	s->name = (struct str){line.p, name};
	assert_true(is_name(s->name));
	line = str_skip(line, name);
	s->labels = (struct str){"", 0};
	if (starts(line, "{")) {
		line = str_skip(line, 1);
		s->labels = until(&line, '}');
		parse_labels(s->labels);
	}
	assert_true(starts(line, " "));
	s->value = str_skip(line, 1);
	parse_value(s->value);
	/* It belongs to the family that was announced last: samples of one stand together. */
	assert_true(p->n_families > 0 && p->types[p->n_families - 1].n > 0);
	s->family = p->n_families - 1;
	family = p->families[s->family];
	type = p->types[s->family];
	assert_true(starts(s->name, "egress_guard_"));
	if (str_eq(type, STR_LIT("counter"))) {
		assert_true(str_ends(s->name, STR_LIT("_total")));
		assert_null(memchr(s->value.p, '.', s->value.n));
		if (openmetrics)
			s->name.n -= 6;
	} else {
		assert_true(str_eq(type, STR_LIT("gauge")));
		assert_false(str_ends(s->name, STR_LIT("_total")));
	}
	if (!str_eq(family, s->name))
		fail_msg("sample %.*s in family %.*s", STR_ARG(s->name), STR_ARG(family));
	if (openmetrics)
		s->name.n += str_eq(type, STR_LIT("counter")) ? 6 : 0;
	for (size_t i = 0; i + 1 < p->n_samples; i++)
		if (str_eq(p->samples[i].name, s->name) && str_eq(p->samples[i].labels, s->labels))
			fail_msg("sample %.*s{%.*s} is there twice", STR_ARG(s->name), STR_ARG(s->labels));
}

static void parse_line(struct parsed *p, struct str line, bool openmetrics)
{
	assert_false(p->ended);
	if (starts(line, "# HELP ")) {
		struct str rest = str_skip(line, 7), name = until(&rest, ' ');

		assert_true(is_name(name));
		assert_true(rest.n > 5);
		assert_int_equal(rest.p[rest.n - 1], '.');
		assert_null(memchr(rest.p, '\\', rest.n));
		for (size_t i = 0; i < p->n_families; i++)
			assert_false(str_eq(p->families[i], name)); /* one block a family */
		if (openmetrics)
			assert_false(str_ends(name, STR_LIT("_total")));
		assert_true(p->n_families < FAMILIES_MAX);
		p->types[p->n_families] = (struct str){"", 0};
		p->families[p->n_families++] = name;
	} else if (starts(line, "# TYPE ")) {
		struct str rest = str_skip(line, 7), name = until(&rest, ' ');

		assert_true(p->n_families > 0);
		assert_true(str_eq(name, p->families[p->n_families - 1])); /* right behind its HELP */
		assert_int_equal(p->types[p->n_families - 1].n, 0);
		assert_true(str_eq(rest, STR_LIT("counter")) || str_eq(rest, STR_LIT("gauge")));
		p->types[p->n_families - 1] = rest;
	} else if (openmetrics && str_eq(line, STR_LIT("# EOF"))) {
		p->ended = true;
	} else {
		parse_sample(p, line, openmetrics);
	}
}

static void parse(struct parsed *p, struct str text, bool openmetrics)
{
	*p = (struct parsed){0};
	assert_int_equal(text.p[text.n - 1], '\n');
	while (text.n)
		parse_line(p, until(&text, '\n'), openmetrics);
	assert_int_equal(p->ended, openmetrics);
	for (size_t i = 0; i < p->n_families; i++) {
		bool any = false;

		for (size_t k = 0; k < p->n_samples; k++)
			any |= p->samples[k].family == i;
		assert_true(any);
	}
}

static struct str value_of(const struct parsed *p, const char *name, const char *labels)
{
	for (size_t i = 0; i < p->n_samples; i++)
		if (str_eq(p->samples[i].name, str_from(name)) && str_eq(p->samples[i].labels, str_from(labels)))
			return p->samples[i].value;
	fail_msg("no sample %s{%s}", name, labels);
	return (struct str){0};
}

static void check_value(const struct parsed *p, const char *name, const char *labels, uint64_t want)
{
	char text[32];

	snprintf(text, sizeof(text), "%llu", (unsigned long long)want);
	if (!str_eq(value_of(p, name, labels), str_from(text)))
		fail_msg("%s{%s} is %.*s, not %s", name, labels, STR_ARG(value_of(p, name, labels)), text);
}

/* --- the text --- */

static void both(void (*check)(struct parsed *p, bool openmetrics))
{
	for (int openmetrics = 0; openmetrics <= 1; openmetrics++) {
		static struct parsed p;
		struct buf b = {0};

		metrics_write(&b, &facts, openmetrics);
		assert_false(b.failed);
		parse(&p, buf_view(&b), openmetrics);
		check(&p, openmetrics);
		buf_free(&b);
	}
}

/* Everything is there from the start, at zero. */
static void check_zeros(struct parsed *p, bool openmetrics)
{
	for (int v = VERDICT_ALLOW; v < VERDICT_N; v++) {
		char labels[80];

		snprintf(labels, sizeof(labels), "reason=\"%s\"", verdict_code((enum verdict)v));
		check_value(p, "egress_guard_requests_total", labels, 0);
	}
	for (int c = 0; c < COUNTER_N; c++) {
		const struct counter_row *row = counter_row((enum counter)c);

		check_value(p, row->metric, row->labels, 0);
	}
}

static void test_zeros(void **state)
{
	both(check_zeros);
}

static void check_counts(struct parsed *p, bool openmetrics)
{
	for (int v = VERDICT_ALLOW; v < VERDICT_N; v++) {
		char labels[80];

		snprintf(labels, sizeof(labels), "reason=\"%s\"", verdict_code((enum verdict)v));
		check_value(p, "egress_guard_requests_total", labels, 1000 + (uint64_t)v);
	}
	for (int c = 0; c < COUNTER_N; c++) {
		const struct counter_row *row = counter_row((enum counter)c);

		check_value(p, row->metric, row->labels, 18000000000000000000u + (uint64_t)c);
	}
}

static void test_counts(void **state)
{
	for (int v = 0; v < VERDICT_N; v++)
		for (int i = 0; i < 1000 + v; i++)
			counter_decided((enum verdict)v);
	for (int c = 0; c < COUNTER_N; c++)
		counter_add((enum counter)c, 18000000000000000000u + (uint64_t)c);
	both(check_counts);
	for (int c = 0; c < COUNTER_N; c++)
		counter_sub((enum counter)c, 18000000000000000000u + (uint64_t)c);
}

static void check_facts(struct parsed *p, bool openmetrics)
{
	check_value(p, "egress_guard_workers", "", 3);
	check_value(p, "egress_guard_policy_info", "hash=\"000000000000ab12\"", 1);
	assert_true(str_eq(value_of(p, "egress_guard_start_time_seconds", ""), STR_LIT("1796083000.000")));
	assert_true(str_eq(value_of(p, "egress_guard_policy_load_time_seconds", ""), STR_LIT("1796083644.500")));
}

static void test_facts(void **state)
{
	both(check_facts);
}

/* --- the server --- */

static void tell_facts(void *arg, struct metrics_facts *ret)
{
	*ret = facts;
	++*(int *)arg;
}

/* One request over a real connection; the answer, terminated, in `out`. */
static void ask(struct event_base *base, uint16_t port, const char *request, char *out, size_t size)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK), .sin_port = htons(port)};
	int fd = socket(AF_INET, SOCK_STREAM, 0);
	size_t n = 0;

	assert_int_equal(connect(fd, (struct sockaddr *)&a, sizeof(a)), 0);
	assert_int_equal(send(fd, request, strlen(request), 0), strlen(request));
	for (int i = 0; i < 2000; i++) {
		struct timeval tick = {.tv_usec = 2000};
		ssize_t got = recv(fd, out + n, size - n - 1, MSG_DONTWAIT);

		if (got == 0)
			break;
		n += got > 0 ? (size_t)got : 0;
		event_base_loopexit(base, &tick);
		event_base_dispatch(base);
	}
	out[n] = '\0';
	close(fd);
}

static void test_server(void **state)
{
	static char answer[200000];
	static struct parsed p;
	struct event_base *base = event_base_new();
	struct listen_address a = {.fd = -1};
	struct metrics *m = NULL;
	const char *why, *body;
	int fd = -1, asked = 0;
	socklen_t len = sizeof(a.sa);

	assert_int_equal(listen_address_parse(STR_LIT("127.0.0.1:1"), &a, &why), 0);
	((struct sockaddr_in *)&a.sa)->sin_port = 0;
	assert_int_equal(listener_open(&a, false, &fd), 0);
	assert_int_equal(getsockname(fd, (struct sockaddr *)&a.sa, &len), 0);
	assert_int_equal(metrics_new(base, fd, tell_facts, &asked, &m), 0);
	for (int openmetrics = 0; openmetrics <= 1; openmetrics++) {
		ask(base, ntohs(((struct sockaddr_in *)&a.sa)->sin_port),
		    openmetrics ? "GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
				  "Accept: application/openmetrics-text;version=1.0.0,text/plain;q=0.5\r\n\r\n"
				: "GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\nAccept: */*\r\n\r\n",
		    answer, sizeof(answer));
		assert_int_equal(asked, openmetrics + 1);
		assert_memory_equal(answer, "HTTP/1.1 200 OK\r\n", 17);
		assert_non_null(strstr(answer, openmetrics ? "Content-Type: application/openmetrics-text; version=1.0.0; "
							     "charset=utf-8\r\n"
							   : "Content-Type: text/plain; version=0.0.4; charset=utf-8\r\n"));
		body = strstr(answer, "\r\n\r\n") + 4;
		parse(&p, str_from(body), openmetrics);
	}
	ask(base, ntohs(((struct sockaddr_in *)&a.sa)->sin_port), "GET /other HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
	    answer, sizeof(answer));
	assert_memory_equal(answer, "HTTP/1.1 404 ", 13);
	ask(base, ntohs(((struct sockaddr_in *)&a.sa)->sin_port),
	    "POST /metrics HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\nConnection: close\r\n\r\n", answer, sizeof(answer));
	assert_memory_equal(answer, "HTTP/1.1 501 ", 13);
	assert_int_equal(asked, 2);
	assert_null(metrics_free(m));
	assert_null(metrics_free(NULL));
	event_base_free(base);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_zeros),
		cmocka_unit_test(test_counts),
		cmocka_unit_test(test_facts),
		cmocka_unit_test(test_server),
	};

	return cmocka_run_group_tests_name("metrics", tests, NULL, NULL);
}
