/* rejudge: role, host, port and address against the policy in force, for each open connection.
 *
 * A connection that both policies allow is not touched: no event, no timer, no byte. */
#include "relay/rejudge.h"

#include "relay/tunnel.h"

static struct policy_decision judge(const struct policy *p, const struct addrset *own, const struct conn *c)
{
	const struct policy_target *to = &c->origin_to;
	int role = policy_role(p, str_from(c->entry->role));
	struct policy_decision d = policy_judge_target(p, role, to, own);

	return d.verdict != VERDICT_ALLOW ? d : policy_judge_address(p, role, &c->origin_addr, to->port, own);
}

static void refuse(struct conn *c, const struct policy_decision *d)
{
	switch (c->state) {
	case CONN_CLOSED:
	case CONN_DIALING:
	case CONN_DRAINING:
		break;
	case CONN_HEAD:
		conn_drop_origin(c, false);
		break;
	case CONN_EXCHANGE:
		if (conn_can_answer(c)) {
			conn_give_up(c, d->verdict, d->what, CLOSE_POLICY_CHANGED);
			conn_run(c);
			break;
		}
		c->req.verdict = VERDICT_POLICY_CHANGED;
		conn_close(c, CLOSE_POLICY_CHANGED);
		break;
	case CONN_TUNNEL:
		c->req.verdict = VERDICT_POLICY_CHANGED;
		tunnel_cut(c, CLOSE_POLICY_CHANGED);
		break;
	}
}

/* Addresses are judged by the dialer as it goes; the target is known already, and attempts to it are under way. */
static void rejudge_dial(const struct policy *p, const struct addrset *own, struct conn *c)
{
	int role = policy_role(p, str_from(c->entry->role));
	struct policy_decision d = policy_judge_target(p, role, &c->req.to, own);

	if (d.verdict == VERDICT_ALLOW)
		return;
	conn_give_up(c, d.verdict, d.what, CLOSE_POLICY_CHANGED);
	conn_run(c);
}

void rejudge_all(struct relay *r)
{
	const struct addrset *own = ownaddr_set(r->worker->own); /* one set for all: it holds until the loop runs */
	struct policy_decision d;
	struct conn *next;

	for (struct conn *c = r->conns; c; c = next) {
		next = c->next;
		if (c->state == CONN_DIALING) {
			rejudge_dial(r->worker->policy, own, c);
			continue;
		}
		if (c->side[ORIGIN].end.fd < 0)
			continue;
		d = judge(r->worker->policy, own, c);
		if (d.verdict != VERDICT_ALLOW)
			refuse(c, &d);
	}
}
