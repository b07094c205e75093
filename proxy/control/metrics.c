/* metrics: the counters of all threads, written when somebody asks.
 *
 * Rows of one metric stand together in counter.def, so HELP and TYPE come once, before its first sample. Every label value
 * is exported from the start, at zero, so that rate() sees the first event. OpenMetrics names a counter's family without
 * _total and ends with "# EOF"; the older format does neither. The one label whose values come from a table of codes
 * is `reason`. */
#include "control/metrics.h"

#include <errno.h>
#include <event2/buffer.h>
#include <event2/http.h>
#include <event2/listener.h>
#include <inttypes.h>
#include <stdlib.h>

#include "base/counter.h"
#include "base/fd.h"
#include "limits.h"
#include "policy/verdict.h"
#include "version.h"

struct metrics {
	struct evhttp *http;
	struct evconnlistener *listener;
	struct event *resume;
	metrics_facts_fn *facts;
	void *arg;
};

/* evhttp keeps the listener's own argument for itself. */
static struct metrics *the_one;

static void family(struct buf *b, const char *metric, const char *kind, const char *help, bool openmetrics)
{
	size_t n = strlen(metric);

	if (openmetrics && !strcmp(kind, "counter") && str_ends(str_from(metric), STR_LIT("_total")))
		n -= 6;
	buf_printf(b, "# HELP %.*s %s\n# TYPE %.*s %s\n", (int)n, metric, help, (int)n, metric, kind);
}

static void write_counters(struct buf *b, bool openmetrics)
{
	const char *last = "";

	for (int i = 0; i < COUNTER_N; i++) {
		const struct counter_row *row = counter_row((enum counter)i);

		if (strcmp(last, row->metric))
			family(b, row->metric, row->kind, row->help, openmetrics);
		last = row->metric;
		buf_printf(b, row->labels[0] ? "%s{%s} %" PRIu64 "\n" : "%s%s %" PRIu64 "\n", row->metric, row->labels,
			   counter_sum((enum counter)i));
	}
}

void metrics_write(struct buf *b, const struct metrics_facts *f, bool openmetrics)
{
	const char *requests = "egress_guard_requests_total";

	write_counters(b, openmetrics);
	family(b, requests, "counter", "Requests decided, by the code of the decision.", openmetrics);
	for (int v = VERDICT_ALLOW; v < VERDICT_N; v++)
		buf_printf(b, "%s{reason=\"%s\"} %" PRIu64 "\n", requests, verdict_code((enum verdict)v),
			   counter_sum_decided((enum verdict)v));
	family(b, "egress_guard_workers", "gauge", "Worker threads.", openmetrics);
	buf_printf(b, "egress_guard_workers %u\n", f->workers);
	family(b, "egress_guard_start_time_seconds", "gauge", "When the guard started, Unix time.", openmetrics);
	buf_printf(b, "egress_guard_start_time_seconds %.3f\n", f->started_s);
	family(b, "egress_guard_policy_load_time_seconds", "gauge", "When the policy in force was loaded, Unix time.",
	       openmetrics);
	buf_printf(b, "egress_guard_policy_load_time_seconds %.3f\n", f->policy_loaded_s);
	family(b, "egress_guard_policy_info", "gauge", "The policy in force, by the hash of its text.", openmetrics);
	buf_printf(b, "egress_guard_policy_info{hash=\"%016" PRIx64 "\"} 1\n", f->policy_hash);
	family(b, "egress_guard_build_info", "gauge", "The version of the guard.", openmetrics);
	buf_printf(b, "egress_guard_build_info{version=\"" GUARD_VERSION "\"} 1\n");
	if (openmetrics)
		buf_add_z(b, "# EOF\n");
}

static void on_request(struct evhttp_request *q, void *arg)
{
	struct metrics *m = arg;
	const char *accept = evhttp_find_header(evhttp_request_get_input_headers(q), "Accept");
	bool openmetrics = accept && strstr(accept, "application/openmetrics-text");
	struct metrics_facts facts = {0};
	struct evbuffer *body = evbuffer_new();
	struct buf b = {0};

	m->facts(m->arg, &facts);
	metrics_write(&b, &facts, openmetrics);
	if (!body || b.failed || evbuffer_add(body, buf_view(&b).p, buf_view(&b).n) < 0) {
		evhttp_send_error(q, HTTP_INTERNAL, NULL);
	} else {
		evhttp_add_header(evhttp_request_get_output_headers(q), "Content-Type",
				  openmetrics ? "application/openmetrics-text; version=1.0.0; charset=utf-8"
					      : "text/plain; version=0.0.4; charset=utf-8");
		evhttp_send_reply(q, HTTP_OK, "OK", body);
	}
	if (body)
		evbuffer_free(body);
	buf_free(&b);
}

static void on_resume(evutil_socket_t fd, short what, void *arg)
{
	struct metrics *m = arg;

	evconnlistener_enable(m->listener);
}

/* No descriptor for a scrape: without this libevent tries again at once, for ever, and says so each time. */
static void on_shortage(struct evconnlistener *listener, void *arg)
{
	const struct timeval later = {.tv_usec = LIMIT_ACCEPT_PAUSE_MS * 1000};

	evconnlistener_disable(listener);
	event_add(the_one->resume, &later);
}

int metrics_new(struct event_base *base, int fd, metrics_facts_fn *facts, void *arg, struct metrics **ret)
{
	struct metrics *m = calloc(1, sizeof(*m));
	struct evhttp_bound_socket *bound;

	if (!m) {
		fd_close(fd);
		return -ENOMEM;
	}
	m->facts = facts;
	m->arg = arg;
	m->http = evhttp_new(base);
	m->resume = event_new(base, -1, 0, on_resume, m);
	bound = m->http && m->resume ? evhttp_accept_socket_with_handle(m->http, fd) : NULL;
	if (!bound) {
		fd_close(fd);
		metrics_free(m);
		return -ENOMEM;
	}
	m->listener = evhttp_bound_socket_get_listener(bound);
	the_one = m;
	evconnlistener_set_error_cb(m->listener, on_shortage);
	/* An operator's scrape is small; nothing else is listened to. */
	evhttp_set_allowed_methods(m->http, EVHTTP_REQ_GET | EVHTTP_REQ_HEAD);
	evhttp_set_max_headers_size(m->http, 8192);
	evhttp_set_max_body_size(m->http, 0);
	evhttp_set_timeout(m->http, 10);
	evhttp_set_cb(m->http, "/metrics", on_request, m);
	*ret = m;
	return 0;
}

struct metrics *metrics_free(struct metrics *m)
{
	if (!m)
		return NULL;
	if (m->http)
		evhttp_free(m->http);
	if (m->resume)
		event_free(m->resume);
	free(m);
	return NULL;
}
