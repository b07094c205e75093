/* clock: the only place that reads the system's clocks, so that scenarios can put their own time in. */
#include "base/clock.h"

#include <stddef.h>
#include <stdio.h>
#include <time.h>

static clock_ns_fn *source;
static void *source_arg;

static uint64_t read_ns(clockid_t id)
{
	struct timespec ts;

	clock_gettime(id, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

uint64_t clock_mono_ns(void)
{
	return source ? source(source_arg) : read_ns(CLOCK_MONOTONIC);
}

uint64_t clock_wall_ns(void)
{
	return read_ns(CLOCK_REALTIME);
}

void clock_set_source(clock_ns_fn *fn, void *arg)
{
	source = fn;
	source_arg = arg;
}

void clock_stamp(uint64_t wall_ns, char out[CLOCK_STAMP_LEN + 1])
{
	time_t s = (time_t)(wall_ns / 1000000000u);
	struct tm tm;
	char day[20];

	gmtime_r(&s, &tm);
	strftime(day, sizeof(day), "%Y-%m-%dT%H:%M:%S", &tm);
	snprintf(out, CLOCK_STAMP_LEN + 1, "%s.%03uZ", day, (unsigned)(wall_ns / 1000000u % 1000u));
}
