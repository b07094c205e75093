/* exchange: a request goes up, a response comes down, both at once.
 *
 * Up: the rewritten head, then the body as its framing says: counted bytes by the pump, chunks through the strict
 * decoder. Down: response heads are read whole, interim ones passed on, the final one rewritten; then its body the same way.
 * Heads and bodies are never mixed up, since each byte is read under the length that is left.
 *
 * What can break, and what becomes of it:
 *   - a kept origin connection dies before a byte of the response: the request is sent again on a new connection if it is
 *     idempotent and had no body (RFC 9110 9.2.2); both attempts' bytes count;
 *   - the origin fails before its head: the guard's own reply says so; after it: the client is reset, never given a
 *     short body with a clean end;
 *   - the origin answers before the whole request was sent: the answer is passed on with Connection: close, and what the
 *     client still sends is drained;
 *   - the client goes: the origin is reset. */
#include "relay/exchange.h"

#include <errno.h>
#include <stdlib.h>

#include "base/counter.h"
#include "http/fields.h"
#include "http/octet.h"
#include "limits.h"
#include "relay/access.h"
#include "relay/relay.h"
#include "relay/request.h"
#include "relay/tunnel.h"

struct exchange {
	/* up */
	struct buf head;             /* as forwarded; kept until the origin has answered, for one more try */
	struct framing up;
	uint64_t up_left;
	struct chunked up_chunks;
	bool up_done, up_broken;     /* all written; the origin takes no more */
	/* down */
	struct buf in;               /* from the origin, not yet used */
	size_t scanned;
	struct framing down;
	uint64_t down_left;
	struct chunked down_chunks;
	unsigned interims;
	bool answered;               /* the final head is on its way to the client */
	bool body_read;              /* the whole response body was read from the origin */
	/* both */
	bool http10, close_client, keep_origin;
	bool reused, may_retry, wants_upgrade;
	char offered[64];            /* the Upgrade field as sent; what does not fit is not offered */
	bool expects_continue;       /* the client waits for a 100 before it sends its body, and none has come */
};

struct exchange *exchange_free(struct exchange *x)
{
	if (!x)
		return NULL;
	buf_free(&x->head);
	buf_free(&x->in);
	free(x);
	return NULL;
}

bool exchange_answered(const struct exchange *x)
{
	return x->answered;
}

static bool is_idempotent(struct str method)
{
	static const char *const safe[] = {"GET", "HEAD", "OPTIONS", "PUT", "DELETE"};

	for (size_t i = 0; i < sizeof(safe) / sizeof(safe[0]); i++)
		if (str_eq(method, str_from(safe[i])))
			return true;
	return false;
}

int exchange_new(struct conn *c, const struct head *h, const struct target *t, const struct framing *body)
{
	struct exchange *x = calloc(1, sizeof(*x));
	const struct head_field *upgrade;

	if (!x)
		return -ENOMEM;
	upgrade = head_find(h, STR_LIT("Upgrade"), NULL);
	x->wants_upgrade = fields_wants_upgrade(h) && upgrade->value.n < sizeof(x->offered);
	if (x->wants_upgrade)
		memcpy(x->offered, upgrade->value.p, upgrade->value.n);
	fields_write_request(&x->head, h, t, body, x->wants_upgrade);
	if (x->head.failed) {
		exchange_free(x);
		return -ENOMEM;
	}
	x->up = *body;
	x->up_left = body->kind == FRAMING_LENGTH ? body->length : 0;
	chunked_init(&x->up_chunks);
	x->expects_continue = fields_expects_continue(h) == FIELDS_EXPECT_CONTINUE;
	x->http10 = h->minor == 0;
	/* RFC 9112 9.3: no persistence with an HTTP/1.0 client, whatever it says. */
	x->close_client = x->http10 || !fields_keeps_alive(h);
	x->may_retry = is_idempotent(h->method) && body->kind == FRAMING_NONE && !x->wants_upgrade;
	c->exchange = x;
	return 0;
}

void exchange_start(struct conn *c, bool reused)
{
	struct exchange *x = c->exchange;

	x->reused = reused;
	buf_add_str(&c->pump[CLIENT].held, buf_view(&x->head));
	if (!x->may_retry)
		buf_free(&x->head);
	conn_set_state(c, CONN_EXCHANGE);
	if (c->pump[CLIENT].held.failed)
		conn_close(c, CLOSE_INTERNAL_ERROR);
}

/* --- ends that are not the good one --- */

/* The origin is of no more use. Before it has answered there is a reply, or another try; after it a reset. */
static void origin_failed(struct conn *c, enum verdict v, enum close_why why, const char *detail)
{
	struct exchange *x = c->exchange;

	if (x->answered) {
		conn_close(c, why);
		return;
	}
	if (!x->interims && x->reused && x->may_retry && !x->in.len && v == VERDICT_ORIGIN_CLOSED) {
		conn_drop_origin(c, false);
		x->reused = x->up_done = x->up_broken = false;
		request_dial(c);
		return;
	}
	conn_refuse(c, v, NULL, detail);
}

void exchange_timed_out(struct conn *c)
{
	struct exchange *x = c->exchange;

	/* A client that owes us its body is not the origin's fault, unless the origin takes nothing or was to say 100 first. */
	bool origin_owes = x->up_done || x->expects_continue || c->pump[CLIENT].held.len || c->pump[CLIENT].in_pipe;

	conn_give_up(c, origin_owes ? VERDICT_ORIGIN_TIMEOUT : VERDICT_BODY_TIMEOUT, NULL,
		     c->side[CLIENT].end.hup ? CLOSE_HALF_OPEN : CLOSE_IDLE);
}

/* --- up --- */

enum step { STEP_WAIT = 0, STEP_DONE, STEP_ENDED }; /* ENDED: the connection changed state; touch nothing */

/* After a write to the origin has failed: it may have answered all the same. */
static enum step up_broke(struct conn *c)
{
	struct exchange *x = c->exchange;

	if (c->pump[CLIENT].error == ENOMEM || c->pump[CLIENT].error == ENOBUFS) {
		conn_close(c, CLOSE_INTERNAL_ERROR);
		return STEP_ENDED;
	}
	x->up_broken = x->close_client = true;
	return STEP_WAIT;
}

static enum step client_ended_early(struct conn *c, ssize_t n)
{
	conn_close(c, n == -ENOMEM ? CLOSE_INTERNAL_ERROR : n < 0 ? CLOSE_CLIENT_RESET : CLOSE_CLIENT_TRUNCATED);
	return STEP_ENDED;
}

static enum step up_flush(struct conn *c)
{
	enum pump_status st = conn_flush(c, CLIENT);

	if (st == PUMP_WRITE_ERROR)
		return up_broke(c);
	return st == PUMP_WANT_READ ? STEP_DONE : STEP_WAIT;
}

static enum step up_length(struct conn *c)
{
	struct exchange *x = c->exchange;
	size_t early = c->in.len < x->up_left ? c->in.len : (size_t)x->up_left;

	if (early) {
		buf_add(&c->pump[CLIENT].held, buf_view(&c->in).p, early);
		buf_consume(&c->in, early);
		x->up_left -= early;
		if (c->pump[CLIENT].held.failed) {
			conn_close(c, CLOSE_INTERNAL_ERROR);
			return STEP_ENDED;
		}
	}
	switch (conn_pump(c, CLIENT, &x->up_left)) {
	case PUMP_WANT_READ:
	case PUMP_WANT_WRITE:
		return STEP_WAIT;
	case PUMP_YIELD:
		worker_again(c->relay->worker, &c->again);
		return STEP_WAIT;
	case PUMP_LIMIT:
		return STEP_DONE;
	case PUMP_EOF:
		return client_ended_early(c, 0);
	case PUMP_READ_ERROR:
		return client_ended_early(c, -ECONNRESET);
	case PUMP_WRITE_ERROR:
		return up_broke(c);
	}
	return STEP_WAIT;
}

/* Passes chunks from `in` into the pump's `held`, at most one buffer at a time. */
static enum chunked_result pass_chunks(struct chunked *chunks, struct buf *in, struct buf *held)
{
	struct str v = buf_view(in);
	size_t used = 0, written = 0;
	char *to = v.n ? buf_reserve(held, v.n) : NULL;
	enum chunked_result r;

	if (!to)
		return CHUNKED_MORE; /* the caller sees `failed` */
	r = chunked_pass(chunks, v.p, v.n, to, &used, &written);
	buf_commit(held, written);
	buf_consume(in, used);
	return r;
}

/* This direction has moved its share: the others first. */
static enum step next_turn(struct conn *c)
{
	worker_again(c->relay->worker, &c->again);
	return STEP_WAIT;
}

static enum step up_chunked(struct conn *c)
{
	struct exchange *x = c->exchange;
	struct buf *held = &c->pump[CLIENT].held;
	size_t turn = LIMIT_TURN_BYTES;

	for (;;) {
		enum step s = up_flush(c);
		enum chunked_result r;
		ssize_t n;

		if (s != STEP_DONE)
			return s;
		r = pass_chunks(&x->up_chunks, &c->in, held);
		if (held->failed)
			return client_ended_early(c, -ENOMEM);
		if (r == CHUNKED_BAD) {
			if (x->answered) {
				conn_close(c, CLOSE_CLIENT_FRAMING);
				return STEP_ENDED;
			}
			conn_drop_origin(c, true);
			conn_refuse(c, VERDICT_BAD_FRAMING, "the chunked body is malformed", NULL);
			return STEP_ENDED;
		}
		if (r == CHUNKED_DONE) {
			s = up_flush(c);
			/* What is left goes out with the next events; the body itself is over. */
			x->up.kind = FRAMING_NONE;
			return s;
		}
		if (held->len)
			continue;
		if (!turn)
			return next_turn(c);
		n = conn_read(c, CLIENT, &c->in, LIMIT_COPY_BYTES);
		if (n < 0)
			return client_ended_early(c, n);
		if (n == 0)
			return c->side[CLIENT].end.eof ? client_ended_early(c, 0) : STEP_WAIT;
		turn -= (size_t)n < turn ? (size_t)n : turn;
	}
}

static enum step run_up(struct conn *c)
{
	struct exchange *x = c->exchange;
	enum step s = STEP_WAIT;

	if (x->up_done || x->up_broken)
		return STEP_WAIT;
	switch (x->up.kind) {
	case FRAMING_NONE:
	case FRAMING_CLOSE:
		s = up_flush(c);
		break;
	case FRAMING_LENGTH:
		s = up_length(c);
		break;
	case FRAMING_CHUNKED:
		s = up_chunked(c);
		break;
	}
	if (s == STEP_DONE)
		x->up_done = true;
	return s;
}

/* --- down --- */

static enum step upgrade(struct conn *c)
{
	struct exchange *x = c->exchange;

	/* Both sides may have sent bytes of the new protocol behind their heads. */
	buf_add_str(&c->pump[ORIGIN].held, buf_view(&x->in));
	buf_add_str(&c->pump[CLIENT].held, buf_view(&c->in));
	if (c->pump[ORIGIN].held.failed || c->pump[CLIENT].held.failed) {
		conn_close(c, CLOSE_INTERNAL_ERROR);
		return STEP_ENDED;
	}
	buf_free(&c->in);
	c->exchange = exchange_free(x);
	tunnel_start(c);
	return STEP_ENDED;
}

/* RFC 9110 7.8: a server switches only to what the client has offered. */
static bool was_offered(const struct exchange *x, const struct head *h)
{
	const struct head_field *f = head_find(h, STR_LIT("Upgrade"), NULL);
	struct str list = str_from(x->offered), member;

	while (f && octets_next_member(&list, &member))
		if (str_ieq(member, f->value))
			return true;
	return false;
}

/* An interim response: passed on, but never to an HTTP/1.0 client (RFC 9110 15.2). */
static enum step interim_head(struct conn *c, const struct head *h)
{
	struct exchange *x = c->exchange;
	const struct framing none = {FRAMING_NONE, 0};

	if (h->status == 101) {
		if (!x->wants_upgrade || !x->up_done || !fields_wants_upgrade(h) || !was_offered(x, h)) {
			origin_failed(c, VERDICT_ORIGIN_PROTOCOL, CLOSE_ORIGIN_PROTOCOL, "101 without a request for it");
			return STEP_ENDED;
		}
		c->req.status = 101;
		fields_write_response(&c->pump[ORIGIN].held, h, &none, false, true);
		buf_consume(&x->in, h->len);
		return upgrade(c);
	}
	x->expects_continue = false;
	if (++x->interims > LIMIT_INTERIM_RESPONSES) {
		origin_failed(c, VERDICT_ORIGIN_PROTOCOL, CLOSE_ORIGIN_PROTOCOL, "too many interim responses");
		return STEP_ENDED;
	}
	if (!x->http10)
		fields_write_response(&c->pump[ORIGIN].held, h, &none, false, false);
	buf_consume(&x->in, h->len);
	x->scanned = 0;
	return STEP_DONE;
}

static enum step final_head(struct conn *c, const struct head *h)
{
	struct exchange *x = c->exchange;
	struct framing as_sent;
	const char *why = NULL;

	if (framing_of_response(h, str_from(c->req.head_only ? "HEAD" : c->req.method), &x->down, &why) !=
	    VERDICT_ALLOW) {
		origin_failed(c, VERDICT_ORIGIN_PROTOCOL, CLOSE_ORIGIN_PROTOCOL, why);
		return STEP_ENDED;
	}
	as_sent = x->down;
	x->down_left = x->down.kind == FRAMING_LENGTH ? x->down.length : UINT64_MAX;
	chunked_init(&x->down_chunks);
	if (x->down.kind == FRAMING_CHUNKED && x->http10) {
		/* An HTTP/1.0 client gets the plain bytes and the end of the connection. */
		x->down_chunks.dechunk = true;
		as_sent.kind = FRAMING_CLOSE;
	}
	/* Bytes the client still owes make what follows them unreadable: this response is the last. */
	if (as_sent.kind == FRAMING_CLOSE || !x->up_done || c->relay->worker->draining)
		x->close_client = true;
	x->keep_origin = fields_keeps_alive(h) && x->down.kind != FRAMING_CLOSE;
	c->req.status = (uint16_t)h->status;
	fields_write_response(&c->pump[ORIGIN].held, h, &as_sent, x->close_client, false);
	buf_consume(&x->in, h->len);
	buf_free(&x->head);
	x->answered = true;
	return STEP_DONE;
}

static enum step read_head(struct conn *c)
{
	struct exchange *x = c->exchange;
	struct head *h = &c->relay->head;
	enum head_bad why = 0;
	ssize_t n;

	for (;;) {
		enum step s;

		switch (x->in.len ? head_parse_response(buf_view(&x->in), &x->scanned, h, &why) : HEAD_MORE) {
		case HEAD_BAD:
			origin_failed(c, VERDICT_ORIGIN_PROTOCOL, CLOSE_ORIGIN_PROTOCOL, head_bad_text(why));
			return STEP_ENDED;
		case HEAD_DONE:
			s = h->status < 200 ? interim_head(c, h) : final_head(c, h);
			if (s == STEP_DONE && c->pump[ORIGIN].held.failed) {
				conn_close(c, CLOSE_INTERNAL_ERROR);
				return STEP_ENDED;
			}
			if (s != STEP_DONE || x->answered)
				return s;
			continue;
		case HEAD_MORE:
			break;
		}
		n = conn_read(c, ORIGIN, &x->in, LIMIT_HEAD_BYTES);
		if (n == -ENOMEM) {
			conn_close(c, CLOSE_INTERNAL_ERROR);
			return STEP_ENDED;
		}
		if (n < 0 || c->side[ORIGIN].end.eof) {
			origin_failed(c, VERDICT_ORIGIN_CLOSED, n < 0 ? CLOSE_ORIGIN_RESET : CLOSE_ORIGIN_CLOSED, NULL);
			return STEP_ENDED;
		}
		if (n == 0)
			return STEP_WAIT;
	}
}

static enum step down_flush(struct conn *c)
{
	switch (conn_flush(c, ORIGIN)) {
	case PUMP_WANT_READ:
		return STEP_DONE;
	case PUMP_WANT_WRITE:
	case PUMP_YIELD:
	case PUMP_LIMIT:
	case PUMP_EOF:
		return STEP_WAIT;
	case PUMP_READ_ERROR:
	case PUMP_WRITE_ERROR:
		break;
	}
	conn_close(c, CLOSE_CLIENT_RESET);
	return STEP_ENDED;
}

static enum step down_pump(struct conn *c)
{
	struct exchange *x = c->exchange;
	size_t early = x->in.len < x->down_left ? x->in.len : (size_t)x->down_left;

	if (early) {
		buf_add(&c->pump[ORIGIN].held, buf_view(&x->in).p, early);
		buf_consume(&x->in, early);
		if (x->down_left != UINT64_MAX)
			x->down_left -= early;
		if (c->pump[ORIGIN].held.failed) {
			conn_close(c, CLOSE_INTERNAL_ERROR);
			return STEP_ENDED;
		}
	}
	switch (conn_pump(c, ORIGIN, &x->down_left)) {
	case PUMP_WANT_READ:
	case PUMP_WANT_WRITE:
		return STEP_WAIT;
	case PUMP_YIELD:
		worker_again(c->relay->worker, &c->again);
		return STEP_WAIT;
	case PUMP_LIMIT:
		return STEP_DONE;
	case PUMP_EOF:
		if (x->down.kind == FRAMING_CLOSE && !conn_was_reset(c, ORIGIN))
			return STEP_DONE;
		conn_close(c, x->down.kind == FRAMING_CLOSE ? CLOSE_ORIGIN_RESET : CLOSE_ORIGIN_TRUNCATED);
		return STEP_ENDED;
	case PUMP_READ_ERROR:
		conn_close(c, CLOSE_ORIGIN_RESET);
		return STEP_ENDED;
	case PUMP_WRITE_ERROR:
		conn_close(c, c->pump[ORIGIN].error == ENOMEM || c->pump[ORIGIN].error == ENOBUFS ? CLOSE_INTERNAL_ERROR
												  : CLOSE_CLIENT_RESET);
		return STEP_ENDED;
	}
	return STEP_WAIT;
}

static enum step down_chunked(struct conn *c)
{
	struct exchange *x = c->exchange;
	struct buf *held = &c->pump[ORIGIN].held;
	size_t turn = LIMIT_TURN_BYTES;

	for (;;) {
		enum step s = down_flush(c);
		enum chunked_result r;
		ssize_t n;

		if (s != STEP_DONE || x->body_read)
			return s;
		r = pass_chunks(&x->down_chunks, &x->in, held);
		if (held->failed) {
			conn_close(c, CLOSE_INTERNAL_ERROR);
			return STEP_ENDED;
		}
		if (r == CHUNKED_BAD) {
			conn_close(c, CLOSE_ORIGIN_PROTOCOL);
			return STEP_ENDED;
		}
		x->body_read = r == CHUNKED_DONE;
		if (held->len || x->body_read)
			continue;
		if (!turn)
			return next_turn(c);
		n = conn_read(c, ORIGIN, &x->in, LIMIT_COPY_BYTES);
		if (n < 0 || c->side[ORIGIN].end.eof) {
			conn_close(c, n == -ENOMEM ? CLOSE_INTERNAL_ERROR
						   : n < 0 ? CLOSE_ORIGIN_RESET : CLOSE_ORIGIN_TRUNCATED);
			return STEP_ENDED;
		}
		if (n == 0)
			return STEP_WAIT;
		turn -= (size_t)n < turn ? (size_t)n : turn;
	}
}

static enum step run_down(struct conn *c)
{
	struct exchange *x = c->exchange;

	if (!x->answered) {
		enum step s = read_head(c);

		if (s == STEP_ENDED || !x->answered) {
			/* Interim responses must not wait for the final one. */
			return s == STEP_ENDED ? s : down_flush(c) == STEP_ENDED ? STEP_ENDED : STEP_WAIT;
		}
	}
	switch (x->down.kind) {
	case FRAMING_NONE:
		return down_flush(c);
	case FRAMING_LENGTH:
	case FRAMING_CLOSE:
		return down_pump(c);
	case FRAMING_CHUNKED:
		return down_chunked(c);
	}
	return STEP_WAIT;
}

/* --- the good end --- */

static void finished(struct conn *c)
{
	struct exchange *x = c->exchange;
	/* A client that has ended may have left more requests before its end. */
	bool close_client = x->close_client || !x->up_done || (c->side[CLIENT].end.eof && !c->in.len);
	bool keep_origin = x->keep_origin && x->up_done && !x->in.len && !c->side[ORIGIN].end.eof && !close_client;

	access_ended(c, CLOSE_DONE);
	c->exchange = exchange_free(x);
	if (!keep_origin)
		conn_drop_origin(c, false);
	if (close_client && c->side[CLIENT].end.eof && !c->in.len) {
		conn_close(c, CLOSE_DONE);
		return;
	}
	conn_set_state(c, close_client ? CONN_DRAINING : CONN_HEAD);
}

void exchange_run(struct conn *c)
{
	struct exchange *x = c->exchange;

	if (run_up(c) == STEP_ENDED)
		return;
	if (run_down(c) == STEP_DONE && x->answered)
		finished(c);
}
