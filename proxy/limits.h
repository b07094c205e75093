/* Every maximum of the guard, with its unit and reason. Constants only: any layer may include this. */
#ifndef PROXY_LIMITS_H
#define PROXY_LIMITS_H

enum {
	/* --- heads --- */
	LIMIT_HEAD_BYTES = 32 * 1024,     /* request or response head; RFC 9112 3 asks for lines of 8000 at least */
	LIMIT_HEAD_FIELDS = 128,          /* field lines of one head */
	LIMIT_CHUNK_EXT_BYTES = 1024,     /* extensions of one chunk, dropped anyway */
	LIMIT_TRAILER_BYTES = 8 * 1024,   /* trailer section, dropped anyway */
	LIMIT_INTERIM_RESPONSES = 16,     /* 1xx before one final response */

	/* --- connections --- */
	LIMIT_EARLY_BYTES = 64 * 1024,    /* sent by a client behind a CONNECT head, before the tunnel stands */
	LIMIT_DRAIN_BYTES = 8 * 1024 * 1024, /* read and dropped after a reply, so that no reset eats it */
	LIMIT_DRAIN_MS = 2000,
	LIMIT_LAST_REQUEST_MS = 500,      /* when stopping: for a client that has connected and said nothing yet */
	LIMIT_OVERFLOW = 256,             /* connections over the limit that are answered with `overloaded`, at the most */
	LIMIT_ACCEPT_BATCH = 64,          /* accepts a turn, so that open tunnels are served in between */
	LIMIT_ACCEPT_PAUSE_MS = 100,      /* after EMFILE, until the next try */

	/* --- names --- */
	LIMIT_ANSWER_ADDRESSES = 32,      /* of one name; more make the answer refused as failed */
	LIMIT_LOOKUP_WAITERS = 1024,      /* connections waiting for one name */
	LIMIT_LOOKUPS = 4096,             /* names in flight per worker */
	LIMIT_TTL_MIN_S = 1,              /* a TTL of 0 still serves the waiters of one query */
	LIMIT_TTL_MAX_S = 300,
	LIMIT_TTL_NEGATIVE_S = 5,         /* not found, failed, timed out */
	LIMIT_RESOLUTION_DELAY_MS = 50,   /* RFC 8305 3: after the first family's answer, wait this long for the other */

	/* --- dialing (RFC 8305 8) --- */
	LIMIT_ATTEMPT_DELAY_MS = 250,
	LIMIT_ATTEMPTS = 8,               /* addresses tried for one request */

	/* --- moving bytes --- */
	LIMIT_COPY_BYTES = 64 * 1024,     /* the worker's shared copy buffer */
	LIMIT_PIPE_BYTES = 256 * 1024,    /* a pooled pipe */
	LIMIT_PIPES_IDLE = 64,            /* kept in a worker's pool */
	LIMIT_TURN_BYTES = 1024 * 1024,   /* one direction may move this much before others get their turn */

	LIMIT_TICK_MS = 250,              /* after a short read, until the socket is read again to find a hidden reset */

	/* --- mailbox --- */
	LIMIT_MAILBOX = 1024,             /* messages waiting for one worker */

	/* --- logs --- */
	LIMIT_LOG_QUEUE_BYTES = 8 * 1024 * 1024, /* lines not yet written; past it lines are dropped and counted */
	LIMIT_LOG_GATHER_MS = 20,                /* a line waits this long for others before it is written */
	LIMIT_LOG_LINE_BYTES = 16 * 1024,
};

#endif
