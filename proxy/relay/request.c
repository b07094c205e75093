/* request: from a head to a decision.
 *
 * The order is fixed: syntax of head, target and framing; then the policy's judgement of the target; then, and only then,
 * a lookup and a dial. Whatever refuses on the way gets the guard's own reply and ends the connection, so that nothing
 * behind a refused request is ever read as another one (RFC 9112 9.3).
 *
 * When the dial is through, the target is judged once more by the policy then in force: a reload may have come between.
 * An origin connection kept from the request before serves the same host and port only, and only after target and
 * address were judged again and the socket was found alive and silent. */
#include "relay/request.h"

#include <errno.h>
#include <stdio.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "base/counter.h"
#include "base/fd.h"
#include "http/fields.h"
#include "http/reply.h"
#include "limits.h"
#include "relay/access.h"
#include "relay/exchange.h"
#include "relay/relay.h"
#include "relay/tunnel.h"

static void request_begin(struct conn *c)
{
	struct relay *r = c->relay;

	c->req = (struct request){.start_ns = clock_mono_ns()};
	/* An odd multiplier walks through all 64-bit values: unique within the process, and told apart between two. */
	snprintf(c->req.id, sizeof(c->req.id), "%016llx",
		 (unsigned long long)(r->id_base + r->id_next++ * 0x9e3779b97f4a7c15u));
}

/* --- refusing --- */

static enum close_why close_of(enum verdict v)
{
	if (v == VERDICT_ORIGIN_CLOSED)
		return CLOSE_ORIGIN_CLOSED;
	if (v == VERDICT_ORIGIN_PROTOCOL)
		return CLOSE_ORIGIN_PROTOCOL;
	if (v == VERDICT_ORIGIN_TIMEOUT)
		return CLOSE_IDLE;
	if (v == VERDICT_BAD_FRAMING)
		return CLOSE_CLIENT_FRAMING;
	return CLOSE_REFUSED;
}

/* Who the sentence is about: an address that was refused, with the name it came from; else the target. */
static struct str subject_of(const struct conn *c, char *out, size_t size)
{
	char host[HOST_TEXT_MAX], addr[ADDR_TEXT_MAX];
	const struct request *q = &c->req;
	int n = 0;

	if (!q->known)
		return (struct str){"", 0};
	host_format(&q->to.host, host);
	if (q->has_addr && q->verdict >= VERDICT_ADDRESS_PRIVATE && q->verdict <= VERDICT_ADDRESS_DENIED) {
		addr_format(&q->addr, addr);
		if (q->to.host.kind == HOST_NAME)
			n = snprintf(out, size, "%s (%s)", host, addr);
		else
			n = snprintf(out, size, "%s", addr);
	} else {
		n = snprintf(out, size, "%s:%u", host, q->to.port);
	}
	return (struct str){out, n > 0 && (size_t)n < size ? (size_t)n : 0};
}

static void write_reply(struct conn *c, const char *what, const char *detail)
{
	char subject[HOST_TEXT_MAX + ADDR_TEXT_MAX + 8];
	struct request *q = &c->req;
	struct reply reply = {.verdict = q->verdict, .what = what, .request_id = q->id, .json = q->json,
			      .head_only = q->head_only};

	reply.subject = subject_of(c, subject, sizeof(subject));
	if (detail)
		reply.detail = str_from(detail);
	if (q->verdict == VERDICT_OVERLOADED || q->verdict == VERDICT_SHUTTING_DOWN)
		reply.retry_after_s = 2;
	reply_write(&c->pump[ORIGIN].held, &reply);
}

/* What is to be said of the end is in the log already. */
static void reply_and_drain(struct conn *c, const char *what, const char *detail)
{
	conn_drop_origin(c, false);
	c->dial = dial_cancel(c->dial);
	write_reply(c, what, detail);
	c->exchange = exchange_free(c->exchange);
	buf_free(&c->in);
	if (c->pump[ORIGIN].held.failed) {
		counter_inc(COUNTER_ALLOCATION_FAILURES);
		conn_close(c, CLOSE_INTERNAL_ERROR);
		return;
	}
	conn_set_state(c, CONN_DRAINING);
}

bool conn_can_answer(const struct conn *c)
{
	switch (c->state) {
	case CONN_HEAD:
	case CONN_DIALING:
		return true;
	case CONN_EXCHANGE:
		return !exchange_answered(c->exchange);
	case CONN_CLOSED:
	case CONN_TUNNEL:
	case CONN_DRAINING:
		break;
	}
	return false;
}

void conn_give_up(struct conn *c, enum verdict v, const char *what, enum close_why why)
{
	struct request *q = &c->req;

	if (!conn_can_answer(c)) {
		q->verdict = v;
		conn_close(c, why);
		return;
	}
	if (!q->allowed) {
		conn_refuse(c, v, what, NULL);
		return;
	}
	/* Let through and broken off before an answer: its end is told with the true cause, its client gets the reply. */
	q->verdict = v;
	access_ended(c, why);
	reply_and_drain(c, what, NULL);
}

void conn_refuse(struct conn *c, enum verdict v, const char *what, const char *detail)
{
	struct request *q = &c->req;

	if (!conn_can_answer(c)) {
		conn_close(c, close_of(v));
		return;
	}
	q->verdict = v;
	if (q->allowed)
		access_ended(c, close_of(v));
	else
		access_decided(c, what ? what : detail);
	reply_and_drain(c, what, detail);
}

void request_unreadable(struct conn *c, enum verdict v, const char *why)
{
	conn_drop_origin(c, false);
	request_begin(c);
	conn_refuse(c, v, why, NULL);
}

/* --- the way to the origin --- */

static struct policy_decision judge_target(struct conn *c)
{
	struct worker *w = c->relay->worker;
	const struct addrset *own = c->req.to.host.kind == HOST_ADDR ? ownaddr_set(w->own) : NULL;

	return policy_judge_target(w->policy, policy_role(w->policy, str_from(c->entry->role)), &c->req.to, own);
}

static void refuse_decision(struct conn *c, const struct policy_decision *d)
{
	c->req.rule_line = d->rule_line;
	if (c->req.to.host.kind == HOST_ADDR) {
		c->req.addr = c->req.to.host.addr;
		c->req.has_addr = true;
	}
	conn_refuse(c, d->verdict, d->what, NULL);
}

static void allow(struct conn *c)
{
	c->req.verdict = VERDICT_ALLOW;
	c->req.allowed = true;
	access_decided(c, NULL);
}

static void start_tunnel(struct conn *c)
{
	struct buf *down = &c->pump[ORIGIN].held, *up = &c->pump[CLIENT].held;

	buf_add_z(down, REPLY_CONNECT_OK);
	*up = c->in; /* what came early goes first */
	c->in = (struct buf){0};
	tunnel_start(c);
	if (down->failed || up->failed)
		conn_close(c, CLOSE_INTERNAL_ERROR);
}

static void on_dialed(void *arg, const struct dial_result *result)
{
	struct conn *c = arg;
	struct policy_decision d;
	bool again = c->req.allowed; /* a second try for an exchange: decided and told already */

	c->dial = NULL;
	c->req.lookup_ns += result->lookup_ns;
	c->req.connect_ns += result->connect_ns;
	c->req.dns_cached = result->dns_cached;
	if (result->has_addr) {
		c->req.addr = result->addr;
		c->req.has_addr = true;
	}
	if (result->verdict != VERDICT_ALLOW) {
		if (result->has_addr)
			c->req.rule_line = result->rule_line; /* what let the name through did not refuse the address */
		conn_refuse(c, result->verdict, result->what, NULL);
		conn_run(c);
		return;
	}
	d = judge_target(c);
	if (d.verdict != VERDICT_ALLOW) {
		fd_close(result->fd);
		refuse_decision(c, &d);
		conn_run(c);
		return;
	}
	if (conn_attach_origin(c, result->fd, &result->addr) < 0) {
		counter_inc(COUNTER_ALLOCATION_FAILURES);
		conn_refuse(c, VERDICT_OVERLOADED, NULL, NULL);
		conn_run(c);
		return;
	}
	if (!again)
		allow(c);
	if (c->req.connect)
		start_tunnel(c);
	else
		exchange_start(c, false);
	conn_run(c);
}

void request_dial(struct conn *c)
{
	struct dial_request q = {.target = &c->req.to, .role = str_from(c->entry->role)};

	conn_set_state(c, CONN_DIALING);
	if (dial_start(c->relay->worker->dialer, &q, on_dialed, c, &c->dial) < 0) {
		counter_inc(COUNTER_ALLOCATION_FAILURES);
		conn_refuse(c, VERDICT_OVERLOADED, NULL, NULL);
	}
}

void request_given_up(struct conn *c)
{
	if (!c->req.allowed) {
		c->req.verdict = VERDICT_CLIENT_GONE;
		access_decided(c, NULL);
	}
	conn_close(c, CLOSE_CLIENT_RESET);
}

void request_wait(struct conn *c)
{
	ssize_t n = 1;

	while (n > 0 && c->in.len < LIMIT_EARLY_BYTES)
		n = conn_read(c, CLIENT, &c->in, LIMIT_EARLY_BYTES - c->in.len);
	if (n == -ENOMEM) {
		counter_inc(COUNTER_ALLOCATION_FAILURES);
		conn_refuse(c, VERDICT_OVERLOADED, NULL, NULL);
	} else if (n < 0) {
		request_given_up(c);
	}
}

/* --- the origin kept from the request before --- */

/* An idle origin has nothing to say: bytes or an end make it useless. */
static bool origin_is_idle(struct conn *c)
{
	char byte;

	return recv(c->side[ORIGIN].end.fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) < 0 && errno == EAGAIN;
}

static bool can_reuse(struct conn *c)
{
	struct worker *w = c->relay->worker;
	struct policy_decision d;

	if (c->side[ORIGIN].end.fd < 0)
		return false;
	if (c->origin_to.port != c->req.to.port || !host_equal(&c->origin_to.host, &c->req.to.host))
		return false;
	d = policy_judge_address(w->policy, policy_role(w->policy, str_from(c->entry->role)), &c->origin_addr,
				 c->origin_to.port, ownaddr_set(w->own));
	return d.verdict == VERDICT_ALLOW && origin_is_idle(c);
}

/* --- heads --- */

/* Reads everything a head says; VERDICT_ALLOW when it is a request that may be judged. */
static enum verdict understand(struct conn *c, const struct head *h, struct target *t, struct framing *body,
			       const char **ret_why)
{
	const struct head_field *accept = head_find(h, STR_LIT("Accept"), NULL);
	struct request *q = &c->req;
	enum verdict v;

	q->minor = (uint8_t)h->minor;
	q->json = accept && reply_accepts_json(accept->value);
	q->head_only = str_eq(h->method, STR_LIT("HEAD"));
	snprintf(q->method, sizeof(q->method), "%.*s", h->method.n < METHOD_TEXT_MAX ? (int)h->method.n : METHOD_TEXT_MAX,
		 h->method.p);
	v = target_parse(h, t, ret_why);
	if (v != VERDICT_ALLOW)
		return v;
	q->to = t->to;
	q->known = true;
	q->connect = t->connect;
	v = framing_of_request(h, body, ret_why);
	if (v != VERDICT_ALLOW)
		return v;
	if (!t->connect && fields_expects_continue(h) == FIELDS_EXPECT_UNKNOWN)
		return VERDICT_EXPECTATION_FAILED;
	if (fields_has_own_via(h))
		return VERDICT_LOOP_DETECTED;
	return VERDICT_ALLOW;
}

static void handle(struct conn *c, const struct head *h)
{
	struct policy_decision d;
	struct framing body = {0};
	const char *why = NULL;
	struct target t;
	enum verdict v;

	request_begin(c);
	c->scanned = 0;
	v = understand(c, h, &t, &body, &why);
	if (v != VERDICT_ALLOW) {
		conn_refuse(c, v, why, NULL);
		return;
	}
	if (c->overloaded || c->relay->worker->draining) {
		conn_refuse(c, c->overloaded ? VERDICT_OVERLOADED : VERDICT_SHUTTING_DOWN, NULL, NULL);
		return;
	}
	d = judge_target(c);
	if (d.verdict != VERDICT_ALLOW) {
		refuse_decision(c, &d);
		return;
	}
	c->req.rule_line = d.rule_line;
	if (!c->req.connect && exchange_new(c, h, &t, &body) < 0) {
		counter_inc(COUNTER_ALLOCATION_FAILURES);
		conn_refuse(c, VERDICT_OVERLOADED, NULL, NULL);
		return;
	}
	buf_consume(&c->in, h->len);
	if (!c->req.connect && can_reuse(c)) {
		counter_inc(COUNTER_ORIGIN_REUSED);
		c->req.addr = c->origin_addr;
		c->req.has_addr = true;
		allow(c);
		exchange_start(c, true);
		return;
	}
	conn_drop_origin(c, false);
	request_dial(c);
}

void request_run(struct conn *c)
{
	struct head *h = &c->relay->head;
	enum head_bad why = 0;

	if (c->side[ORIGIN].end.fd >= 0 && c->side[ORIGIN].end.readable) {
		c->side[ORIGIN].end.readable = false;
		if (!origin_is_idle(c))
			conn_drop_origin(c, false);
	}
	for (;;) {
		bool waiting = !c->in.len;
		ssize_t n;

		switch (c->in.len ? head_parse_request(buf_view(&c->in), &c->scanned, h, &why) : HEAD_MORE) {
		case HEAD_DONE:
			handle(c, h);
			return;
		case HEAD_BAD:
			request_unreadable(c, head_bad_verdict(why), head_bad_text(why));
			return;
		case HEAD_MORE:
			break;
		}
		n = conn_read(c, CLIENT, &c->in, LIMIT_COPY_BYTES);
		if (n == -ENOMEM) {
			counter_inc(COUNTER_ALLOCATION_FAILURES);
			request_unreadable(c, VERDICT_OVERLOADED, NULL);
			return;
		}
		if (n < 0) {
			conn_close(c, CLOSE_CLIENT_RESET);
			return;
		}
		if (n == 0 && c->side[CLIENT].end.eof) {
			if (c->in.len)
				request_unreadable(c, VERDICT_BAD_REQUEST, "the head ended before its empty line");
			else
				conn_close(c, CLOSE_CLIENT_CLOSED);
			return;
		}
		if (n == 0) {
			if (waiting)
				buf_free(&c->in); /* an idle connection costs no buffer */
			if (waiting && c->relay->worker->draining && c->req.id[0])
				conn_close(c, CLOSE_CLIENT_CLOSED); /* between two requests; a new client may be about to ask */
			return;
		}
		if (waiting && c->req.id[0])
			c->since_ms = conn_now_ms(); /* the next request has begun */
	}
}
