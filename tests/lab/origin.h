/* What the files of the lab's origin share: connections, their records, and the calls that move bytes and count them. */
#pragma once
#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

enum { PERIOD = 65521, BUFFER = 256 * 1024, LINE_MAX_BYTES = 256, TURN = 8, HEAD_KEPT = 32 };
enum behaviour { ECHO, BULK, BANNER, DRAIN, HOLD, RESET, CLOSE, WATCH };
enum end { OPEN, END_DONE, END_EOF, END_PEER_RESET, END_RESET, END_MISMATCH, END_ERROR };

/* What is told of a connection; kept after its end. */
struct record {
	uint64_t received, sent; /* all bytes, the first line and the banner too */
	uint64_t tag;
	uint16_t port, peer_port;
	uint8_t behaviour, end, saw_eof;
	char address[INET6_ADDRSTRLEN];
	uint8_t head[HEAD_KEPT];
	uint8_t head_len;
};

enum kind { K_LISTENER, K_CONN, K_CONTROL };

struct conn {
	enum kind kind; /* first: what an epoll event points to */
	int fd;
	uint32_t record;
	enum behaviour behaviour;
	bool line_done, eof_in, raw, stay, after_eof, writable, readable, has_reset, has_upreset;
	uint64_t up, down, up_seen, down_sent, reset_at, upreset_at, rate, srate;
	uint64_t start_ms, not_before_ms;
	char line[LINE_MAX_BYTES];
	size_t line_len;
	char *pending; /* echo: bytes read and not yet written */
	size_t pending_at, pending_len;
	struct conn *next_paced, *prev_paced;
	bool paced;
	struct conn *next_busy, *next_dead;
	bool busy;
};

/* --- origin.c --- */

extern struct record *records; /* by conn.record; moves when it grows */
extern char buffer[BUFFER];    /* free for any turn of any connection; nothing in it lasts longer */

uint64_t now_ms(void);
/* From now on the connection has a turn each few milliseconds, whatever its socket says. */
void conn_pace(struct conn *c);
/* Closes; all after the first call do nothing. The connection stays readable memory until the end of the round, its fd -1. */
void conn_end(struct conn *c, enum end end);
/* Sends up to n bytes and counts them. -1: nothing now, or the connection is over. */
int conn_send(struct conn *c, const char *p, size_t n);
/* Reads up to n bytes and counts them. -1: nothing now, or over; 0: end of input. */
ssize_t conn_recv(struct conn *c, char *p, size_t n, int flags);

/* --- origin_bulk.c --- */

void bulk_init(void); /* before the first connection */
void bulk_turn(struct conn *c);
/* True when another turn can move bytes though no event will tell. */
bool bulk_has_work(const struct conn *c);
