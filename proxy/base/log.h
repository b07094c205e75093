/* Two logs, both JSON lines with ECS names: what happened to requests (access) and what happened to the guard (events).
 *
 * Lines are queued in memory and written by one thread with blocking writes, so that a slow reader of the log never
 * stalls traffic. When the queue is full, lines are dropped and counted, and the first line that fits again
 * is preceded by one that says how many are missing. */
#ifndef BASE_LOG_H
#define BASE_LOG_H

#include "base/buf.h"

enum log_level { LOG_LEVEL_ERROR = 0, LOG_LEVEL_WARNING, LOG_LEVEL_INFO, LOG_LEVEL_DEBUG };

enum log_event {
#define E(name, word, level) LOG_##name,
#include "base/log_event.def"
#undef E
	LOG_EVENT_N
};

/* Starts the writer for access lines on `path` ("stderr", "stdout" or a file, created 0640 and appended to). Returns 0 or
 * -errno. */
int log_open(const char *path, enum log_level level);
/* Opens the file anew (after rotation). On failure the old one stays in use: -errno. */
int log_reopen(void);
/* Writes what is queued and ends the writer. Safe without log_open(). */
void log_close(void);
/* Whether the writer runs: from then on nobody but it should write to stderr, whose reader may be stuck. */
bool log_running(void);

/* Queues one access line: `line` without newline, at most LIMIT_LOG_LINE_BYTES. Any thread. */
void log_access(struct str line);

/* Says something of the guard itself, at the event's level: goes to stderr until log_open(), then into the same stream as
 * the access log. Any thread. */
void log_event(enum log_event event, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

bool log_level_from(struct str word, enum log_level *ret);

#endif
