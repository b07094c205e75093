/* A pump moves bytes in one direction between two sockets.
 *
 * Small flows are copied through the worker's shared buffer; a flow that fills it twice in a row moves by splice(2) through
 * a pooled pipe, until it becomes small again. A pump owns memory or a pipe only while bytes are in flight. It counts
 * what it reads and what it writes, in the same place where it moves them. */
#ifndef NET_PUMP_H
#define NET_PUMP_H

#include <stdint.h>
#include <sys/types.h>

#include "base/buf.h"
#include "net/pipe_pool.h"

/* What is known of one socket. The event callback sets readable, writable and hup; the pumps clear the first two when the
 * kernel says EAGAIN. Edge-triggered: a bit cleared wrongly stalls the connection, one set wrongly costs a system call. */
struct pump_end {
	int fd;
	bool readable, writable;
	bool hup;     /* the peer has sent its FIN (EPOLLRDHUP): read on after a short read */
	bool unsure;  /* `readable` was cleared by a short read alone: look again before long */
	bool eof;     /* read() has returned 0 */
	bool shut;    /* shutdown(SHUT_WR) done */
};

struct pump {
	struct buf held;         /* goes out before anything else that is read */
	struct pipe *pipe;       /* lent; only while in_pipe > 0 or inside pump_run() */
	size_t in_pipe;
	uint64_t in, out;        /* bytes read from the source (not what was put in `held`), bytes written to the sink */
	uint64_t spliced;
	uint8_t full, small;     /* reads in a row that filled the buffer; splices in a row that were small */
	bool splicing;
	int error;               /* errno of the last PUMP_READ_ERROR or PUMP_WRITE_ERROR */
};

enum pump_status {
	PUMP_WANT_READ = 0,  /* all is through; waiting for the source */
	PUMP_WANT_WRITE,     /* the sink takes no more now */
	PUMP_LIMIT,          /* `limit` bytes were read and all are written */
	PUMP_EOF,            /* the source has ended and all is written */
	PUMP_YIELD,          /* moved its share; call again later */
	PUMP_READ_ERROR,     /* see `error` */
	PUMP_WRITE_ERROR,    /* see `error`; what was in flight is lost */
};

struct pump_room {
	struct pipe_pool *pipes;
	char *copy;          /* LIMIT_COPY_BYTES */
};

/* Moves until something stops it. At most `*limit` bytes are read from the source, and *limit is lowered by what was;
 * UINT64_MAX means no limit. Never reads when the sink would not take it, so memory stays bounded. */
enum pump_status pump_run(struct pump *p, struct pump_end *from, struct pump_end *to, uint64_t *limit,
			  const struct pump_room *room);

/* Only writes out what is held or in the pipe; never reads. PUMP_WANT_READ: nothing is left. */
enum pump_status pump_flush(struct pump *p, struct pump_end *to, const struct pump_room *room);

/* Notes what a read of `want` bytes that returned `n` (errno when < 0) says of the socket. */
void pump_end_read(struct pump_end *from, ssize_t n, size_t want);

/* Drops what is in flight. */
void pump_clear(struct pump *p, const struct pump_room *room);

#endif
