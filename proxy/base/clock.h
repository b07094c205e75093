/* The only clocks. Durations come from the monotonic one, log stamps from the wall one. */
#ifndef BASE_CLOCK_H
#define BASE_CLOCK_H

#include <stdint.h>
#include <sys/time.h>

typedef uint64_t clock_ns_fn(void *arg);

/* Nanoseconds since some fixed moment; never goes back. */
uint64_t clock_mono_ns(void);
static inline uint64_t clock_mono_ms(void)
{
	return clock_mono_ns() / 1000000;
}
static inline struct timeval clock_timeval_ms(uint64_t ms)
{
	return (struct timeval){.tv_sec = (time_t)(ms / 1000), .tv_usec = (suseconds_t)(ms % 1000 * 1000)};
}
/* Nanoseconds since 1970 UTC. */
uint64_t clock_wall_ns(void);

/* Replaces the monotonic clock of this process (scenarios run on virtual time); NULL restores it. Not thread-safe. */
void clock_set_source(clock_ns_fn *fn, void *arg);

/* Writes RFC 3339 UTC with milliseconds, "2026-12-01T00:07:24.123Z", terminated. */
enum { CLOCK_STAMP_LEN = 24 };
void clock_stamp(uint64_t wall_ns, char out[CLOCK_STAMP_LEN + 1]);

#endif
