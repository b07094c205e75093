/* One client connection, from accept to the last byte.
 *
 * conn.c owns the states and the life of a connection; request.c turns a head into a decision; tunnel.c and exchange.c
 * move bytes. A connection ends only through conn_close(). It keeps the facts it was decided by (role, host, port,
 * address) and no policy, so that every fact can be judged again. */
#ifndef RELAY_CONN_H
#define RELAY_CONN_H

#include <event2/event_struct.h>

#include "base/buf.h"
#include "base/counter.h"
#include "http/head.h"
#include "http/target.h"
#include "net/dialer.h"
#include "net/pump.h"
#include "net/worker.h"

enum conn_state {
#define S(name) CONN_##name,
#include "relay/conn_state.def"
#undef S
};
enum { CONN_STATE_N = CONN_DRAINING + 1 };

enum close_why {
#define X(name, word, abort, text) CLOSE_##name,
#include "relay/close.def"
#undef X
	CLOSE_N
};

/* A side and the direction that starts there: pump[CLIENT] goes up, pump[ORIGIN] down. */
enum side_id { CLIENT = 0, ORIGIN = 1 };

struct side {
	struct pump_end end;
	bool cut;             /* with end.hup: it was a reset when it was first told */
	struct event event;
};

enum { METHOD_TEXT_MAX = 32, REQUEST_ID_LEN = 16 };

/* The request being served: facts, figures and what the log tells. */
struct request {
	struct policy_target to;
	struct addr addr;            /* what was dialed, or what was refused */
	bool has_addr;
	bool known;                  /* `to` is set */
	bool connect, json, head_only;
	bool dns_cached;
	bool allowed;                /* let through, and its end not yet told */
	enum verdict verdict;
	uint8_t minor;
	uint16_t status;             /* the origin's final response, 0: none seen */
	uint32_t rule_line;
	char method[METHOD_TEXT_MAX + 1];
	char id[REQUEST_ID_LEN + 1];
	uint64_t start_ns, decided_ns, lookup_ns, connect_ns;
	uint64_t up, down;           /* bytes written to, read from the origin for this request */
	uint64_t to_client;          /* written to the client's socket: `down` as delivered, and the guard's own heads */
};

struct relay;
struct relay_entry;
struct exchange;

struct conn {
	struct turn_link again, dead;
	struct conn *prev, *next;
	struct relay *relay;
	const struct relay_entry *entry;
	enum conn_state state;
	bool up_broken;              /* TUNNEL: the origin takes no more bytes; what it sent is still served */
	bool overloaded;             /* came when the guard was full: answered and let go */
	struct side side[2];
	struct pump pump[2];
	struct event timer;
	uint64_t timer_at_ms;        /* 0: not pending */
	uint64_t since_ms;           /* when the state was entered, or the head begun */
	uint64_t active_ms;          /* when a byte last moved */
	struct buf in;               /* from the client, not yet used */
	size_t scanned;
	size_t drained;
	struct request req;
	struct dial *dial;
	struct exchange *exchange;   /* EXCHANGE, and DIALING for one */
	/* the origin kept from the request before: facts to compare and judge again */
	struct policy_target origin_to;
	struct addr origin_addr;
	struct addr peer;            /* the client */
	uint16_t peer_port;
	bool has_peer;
};

/* Takes over a descriptor. On failure (no memory) it is closed. */
void conn_accept(struct relay *r, const struct relay_entry *entry, int fd, const struct sockaddr_storage *peer,
		 bool overloaded);

/* The one setter of `state`; aborts on a move that is not in the table of conn.c. */
void conn_set_state(struct conn *c, enum conn_state to);
/* Does whatever can be done now. Call when something has changed. */
void conn_run(struct conn *c);
/* Reads again what a short read left unsure (see net/pump.c); the connection may be closed then. */
void conn_look_again(struct conn *c);
/* Ends the connection: tells the log, closes or resets both sides, frees at the end of the turn. */
void conn_close(struct conn *c, enum close_why why);
/* Frees the memory; the worker's end-of-turn list calls it. */
void conn_free(struct conn *c);

/* Gives the connection its origin socket, and takes it away again (`reset`: with an RST). */
int conn_attach_origin(struct conn *c, int fd, const struct addr *a);
void conn_drop_origin(struct conn *c, bool reset);

/* Whether the client can still be given a reply of the guard: it asked and no answer has begun. */
bool conn_can_answer(const struct conn *c);
/* Cannot go on: `v` is the reply where one can be given, `why` the end that is told where the request was let through. */
void conn_give_up(struct conn *c, enum verdict v, const char *what, enum close_why why);
/* Sends the guard's own reply and ends in DRAINING; if a response was begun already, closes instead. */
void conn_refuse(struct conn *c, enum verdict v, const char *what, const char *detail);

/* A side has been read to its end: was it an end? Linux gives a socket's error once, to whichever call is next, so a send may
 * eat a reset (a splice that wrote a part even without a word), and recv() then shows an end where there was none. The state of
 * the connection tells: after a FIN it waits for ours, after a reset it is closed. */
bool conn_was_reset(const struct conn *c, enum side_id id);

/* Pumps from one side to the other and counts. */
enum pump_status conn_pump(struct conn *c, enum side_id from, uint64_t *limit);
enum pump_status conn_flush(struct conn *c, enum side_id from);
/* Reads what a side has, at most `max` more bytes, into `b`, counting origin bytes. Returns bytes read, 0 when nothing is there
 * or at the end (then side's eof is set), or -errno. */
ssize_t conn_read(struct conn *c, enum side_id from, struct buf *b, size_t max);

uint64_t conn_now_ms(void);
const char *close_word(enum close_why why);
enum counter close_counter(enum close_why why);

#endif
