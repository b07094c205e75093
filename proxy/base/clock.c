/* clock: the only place that reads the system's clocks, so that scenarios can put their own time in. */
#include "base/clock.h"

#include <stddef.h>
#include <string.h>
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
	/* Most stamps are of the same second as the one before on this thread. */
	static _Thread_local time_t last;
	static _Thread_local char day[20];
	time_t s = (time_t)(wall_ns / 1000000000u);
	unsigned ms = (unsigned)(wall_ns / 1000000u % 1000u);

	if (s != last || !day[0]) {
		struct tm tm;

		gmtime_r(&s, &tm);
		strftime(day, sizeof(day), "%Y-%m-%dT%H:%M:%S", &tm);
		last = s;
	}
	memcpy(out, day, 19);
	out[19] = '.';
	out[20] = (char)('0' + ms / 100);
	out[21] = (char)('0' + ms / 10 % 10);
	out[22] = (char)('0' + ms % 10);
	out[23] = 'Z';
	out[24] = '\0';
}
