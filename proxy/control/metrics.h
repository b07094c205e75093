/* GET /metrics for Prometheus, on the main thread (libevent's HTTP server, for operators only). */
#ifndef CONTROL_METRICS_H
#define CONTROL_METRICS_H

#include <event2/event.h>

#include "base/buf.h"

struct metrics;

/* Facts that are no counters. Called for each scrape. */
struct metrics_facts {
	uint64_t policy_hash;
	double policy_loaded_s;   /* wall time, seconds since 1970 */
	double started_s;
	unsigned workers;
};
typedef void metrics_facts_fn(void *arg, struct metrics_facts *ret);

/* Serves on a listening descriptor that it takes over (also on failure). Returns 0 or -errno. */
int metrics_new(struct event_base *base, int fd, metrics_facts_fn *facts, void *arg, struct metrics **ret);
struct metrics *metrics_free(struct metrics *m);

/* The text itself; `openmetrics` chooses OpenMetrics 1.0 over the Prometheus format 0.0.4. */
void metrics_write(struct buf *out, const struct metrics_facts *facts, bool openmetrics);

#endif
