/* access: the two lines of a request, in Elastic Common Schema names, nested.
 *
 * Whatever came from outside goes through buf_add_json(), here and nowhere else. `source.bytes` is what was
 * written to the origin, `destination.bytes` what was read from it; event.outcome tells whether the request was let
 * through (a refusal is "failure", whoever is to blame); event.reason is the code of policy/verdict.def. */
#include "relay/access.h"

#include "base/clock.h"
#include "base/counter.h"
#include "base/log.h"
#include "relay/relay.h"

enum { LINE_USUAL = 1024 }; /* bytes; so that a line is one allocation */

/* The text of a field that needs no escaping: a number, an address, a name that host_parse() made. */
static void add_number(struct buf *b, const char *before, uint64_t v)
{
	buf_add_z(b, before);
	buf_add_u64(b, v);
}

static void add_text(struct buf *b, const char *before, const char *z)
{
	buf_add_z(b, before);
	buf_add_z(b, z);
	buf_add(b, "\"", 1);
}

static void add_source(struct buf *b, const struct conn *c, bool bytes)
{
	char text[ADDR_TEXT_MAX];

	buf_add_z(b, ",\"source\":{");
	if (c->has_peer) {
		addr_format(&c->peer, text);
		add_text(b, "\"ip\":\"", text);
		add_number(b, ",\"port\":", c->peer_port);
	}
	if (bytes)
		add_number(b, c->has_peer ? ",\"bytes\":" : "\"bytes\":", c->req.up);
	buf_add_z(b, "}");
}

static void add_destination(struct buf *b, const struct conn *c, bool bytes)
{
	const struct request *q = &c->req;
	char text[HOST_TEXT_MAX];
	bool any = false;

	buf_add_z(b, ",\"destination\":{");
	if (q->known) {
		host_format(&q->to.host, text);
		add_text(b, "\"address\":\"", text);
		add_number(b, ",\"port\":", q->to.port);
		if (q->to.host.kind == HOST_NAME)
			add_text(b, ",\"domain\":\"", text);
		any = true;
	}
	if (q->has_addr) {
		addr_format(&q->addr, text);
		add_text(b, any ? ",\"ip\":\"" : "\"ip\":\"", text);
		any = true;
	}
	if (bytes)
		add_number(b, any ? ",\"bytes\":" : "\"bytes\":", q->down);
	buf_add_z(b, "}");
}

static void add_common(struct buf *b, const struct conn *c)
{
	const struct request *q = &c->req;

	buf_add_z(b, ",\"network\":{\"transport\":\"tcp\"");
	if (q->has_addr && q->allowed)
		add_text(b, ",\"type\":\"", addr_is_v4(&q->addr) ? "ipv4" : "ipv6");
	buf_add_z(b, ",\"direction\":\"egress\"}");
	if (q->method[0]) {
		buf_add_z(b, q->minor ? ",\"http\":{\"version\":\"1.1\"" : ",\"http\":{\"version\":\"1.0\"");
		buf_add_z(b, ",\"request\":{\"method\":\"");
		buf_add_json(b, str_from(q->method));
		buf_add_z(b, "\"}");
		if (q->status) {
			add_number(b, ",\"response\":{\"status_code\":", q->status);
			buf_add_z(b, "}");
		}
		buf_add_z(b, "}");
	}
	if (q->rule_line) {
		add_number(b, ",\"rule\":{\"id\":\"policy:", q->rule_line);
		buf_add_z(b, "\"}");
	}
	buf_add_z(b, ",\"user\":{\"roles\":[\"");
	buf_add_json(b, str_from(c->entry->role));
	buf_add_z(b, "\"]}");
}

static void begin(struct buf *b, const struct conn *c, const char *action, const char *types, const char *outcome,
		  uint64_t duration_ns)
{
	char stamp[CLOCK_STAMP_LEN + 1];

	clock_stamp(clock_wall_ns(), stamp);
	buf_reserve(b, LINE_USUAL);
	add_text(b, "{\"@timestamp\":\"", stamp);
	buf_add_z(b, ",\"ecs\":{\"version\":\"8.11\"},\"event\":{\"kind\":\"event\","
		     "\"dataset\":\"egress_guard.access\",\"category\":[\"network\"],\"type\":[");
	buf_add_z(b, types);
	add_text(b, "],\"action\":\"", action);
	add_text(b, ",\"outcome\":\"", outcome);
	add_text(b, ",\"reason\":\"", verdict_code(c->req.verdict));
	add_text(b, ",\"id\":\"", c->req.id);
	add_number(b, ",\"duration\":", duration_ns);
	buf_add_z(b, "}");
}

static void finish(struct buf *b)
{
	buf_add_z(b, "}\n");
	if (b->failed)
		counter_inc(COUNTER_LOG_DROPPED);
	else
		log_access(buf_view(b));
	buf_free(b);
}

void access_decided(struct conn *c, const char *detail)
{
	struct request *q = &c->req;
	bool ok = q->verdict == VERDICT_ALLOW;
	struct buf b = {0};

	q->decided_ns = clock_mono_ns();
	counter_decided(q->verdict);
	begin(&b, c, ok ? "egress-allowed" : "egress-refused",
	      ok ? "\"connection\",\"allowed\",\"start\"" : "\"connection\",\"denied\",\"end\"", ok ? "success" : "failure",
	      q->decided_ns - q->start_ns);
	if (!ok) {
		buf_add_z(&b, ",\"message\":\"");
		buf_add_json(&b, str_from(detail ? detail : verdict_row(q->verdict)->what));
		buf_add_z(&b, "\"");
	}
	add_source(&b, c, !ok);
	add_destination(&b, c, !ok);
	add_common(&b, c);
	add_number(&b, ",\"egress_guard\":{\"worker\":", c->relay->worker->config.index);
	add_number(&b, ",\"lookup_ns\":", q->lookup_ns);
	add_number(&b, ",\"connect_ns\":", q->connect_ns);
	buf_add_z(&b, q->dns_cached ? ",\"dns_cached\":true}" : ",\"dns_cached\":false}");
	finish(&b);
}

void access_ended(struct conn *c, enum close_why why)
{
	struct request *q = &c->req;
	struct buf b = {0};

	counter_inc(close_counter(why));
	begin(&b, c, "egress-ended", "\"connection\",\"end\"", why == CLOSE_DONE ? "success" : "failure",
	      clock_mono_ns() - q->start_ns);
	add_source(&b, c, true);
	add_destination(&b, c, true);
	add_common(&b, c);
	q->allowed = false; /* its end is told once */
	add_number(&b, ",\"egress_guard\":{\"worker\":", c->relay->worker->config.index);
	add_text(&b, ",\"close\":\"", close_word(why));
	add_number(&b, ",\"delivered_bytes\":", q->to_client);
	buf_add_z(&b, "}");
	finish(&b);
}
