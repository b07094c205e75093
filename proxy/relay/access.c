/* access: the two lines of a request, in Elastic Common Schema names, nested.
 *
 * Whatever came from outside goes through buf_add_json(), here and nowhere else. `source.bytes` is what was
 * written to the origin, `destination.bytes` what was read from it; event.outcome tells whether the request was let
 * through (a refusal is "failure", whoever is to blame); event.reason is the code of policy/verdict.def. */
#include "relay/access.h"

#include <inttypes.h>

#include "base/clock.h"
#include "base/counter.h"
#include "base/log.h"
#include "relay/relay.h"

static void add_source(struct buf *b, const struct conn *c, bool bytes)
{
	char text[ADDR_TEXT_MAX];

	buf_add_z(b, ",\"source\":{");
	if (c->has_peer) {
		addr_format(&c->peer, text);
		buf_printf(b, "\"ip\":\"%s\",\"port\":%u%s", text, c->peer_port, bytes ? "," : "");
	}
	if (bytes)
		buf_printf(b, "\"bytes\":%" PRIu64, c->req.up);
	buf_add_z(b, "}");
}

static void add_destination(struct buf *b, const struct conn *c, bool bytes)
{
	const struct request *q = &c->req;
	char text[HOST_TEXT_MAX];
	const char *comma = "";

	buf_add_z(b, ",\"destination\":{");
	if (q->known) {
		host_format(&q->to.host, text);
		buf_printf(b, "\"address\":\"%s\",\"port\":%u", text, q->to.port);
		if (q->to.host.kind == HOST_NAME)
			buf_printf(b, ",\"domain\":\"%s\"", text);
		comma = ",";
	}
	if (q->has_addr) {
		addr_format(&q->addr, text);
		buf_printf(b, "%s\"ip\":\"%s\"", comma, text);
		comma = ",";
	}
	if (bytes)
		buf_printf(b, "%s\"bytes\":%" PRIu64, comma, q->down);
	buf_add_z(b, "}");
}

static void add_common(struct buf *b, const struct conn *c)
{
	const struct request *q = &c->req;

	if (q->has_addr && q->allowed)
		buf_printf(b, ",\"network\":{\"transport\":\"tcp\",\"type\":\"%s\",\"direction\":\"egress\"}",
			   addr_is_v4(&q->addr) ? "ipv4" : "ipv6");
	else
		buf_add_z(b, ",\"network\":{\"transport\":\"tcp\",\"direction\":\"egress\"}");
	if (q->method[0]) {
		buf_add_z(b, ",\"http\":{\"version\":\"1.");
		buf_printf(b, "%u\",\"request\":{\"method\":\"", q->minor);
		buf_add_json(b, str_from(q->method));
		buf_add_z(b, "\"}");
		if (q->status)
			buf_printf(b, ",\"response\":{\"status_code\":%u}", q->status);
		buf_add_z(b, "}");
	}
	if (q->rule_line)
		buf_printf(b, ",\"rule\":{\"id\":\"policy:%" PRIu32 "\"}", q->rule_line);
	buf_add_z(b, ",\"user\":{\"roles\":[\"");
	buf_add_json(b, str_from(c->entry->role));
	buf_add_z(b, "\"]}");
}

static void begin(struct buf *b, const struct conn *c, const char *action, const char *types, const char *outcome,
		  uint64_t duration_ns)
{
	char stamp[CLOCK_STAMP_LEN + 1];

	clock_stamp(clock_wall_ns(), stamp);
	buf_printf(b,
		   "{\"@timestamp\":\"%s\",\"ecs\":{\"version\":\"8.11\"},\"event\":{\"kind\":\"event\","
		   "\"dataset\":\"egress_guard.access\",\"category\":[\"network\"],\"type\":[%s],\"action\":\"%s\","
		   "\"outcome\":\"%s\",\"reason\":\"%s\",\"id\":\"%s\",\"duration\":%" PRIu64 "}",
		   stamp, types, action, outcome, verdict_code(c->req.verdict), c->req.id, duration_ns);
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

	q->decided = true;
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
	buf_printf(&b, ",\"egress_guard\":{\"worker\":%u,\"lookup_ns\":%" PRIu64 ",\"connect_ns\":%" PRIu64 "}",
		   c->relay->worker->config.index, q->lookup_ns, q->connect_ns);
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
	buf_printf(&b,
		   ",\"egress_guard\":{\"worker\":%u,\"close\":\"%s\",\"delivered_bytes\":%" PRIu64 "}",
		   c->relay->worker->config.index, close_word(why), q->to_client);
	finish(&b);
}
