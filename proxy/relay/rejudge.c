/* rejudge: role, host, port and address against the policy in force, for each open connection.
 *
 * A connection that both policies allow is not touched: no event, no timer, no byte. */
#include "relay/rejudge.h"

#include "relay/tunnel.h"

static bool refused(struct relay *r, const struct conn *c, const struct policy_target *to, const struct addr *a)
{
	const struct policy *p = r->worker->policy;
	int role = policy_role(p, str_from(c->entry->role));
	const struct addrset *own = ownaddr_set(r->worker->own);

	return policy_judge_target(p, role, to, own).verdict != VERDICT_ALLOW ||
	       policy_judge_address(p, role, a, to->port, own).verdict != VERDICT_ALLOW;
}

void rejudge_all(struct relay *r)
{
	struct conn *next;

	for (struct conn *c = r->conns; c; c = next) {
		next = c->next;
		if (c->side[ORIGIN].end.fd < 0 || !refused(r, c, &c->origin_to, &c->origin_addr))
			continue;
		switch (c->state) {
		case CONN_CLOSED:
		case CONN_DIALING:
		case CONN_DRAINING:
			break;
		case CONN_HEAD:
			conn_drop_origin(c, false);
			break;
		case CONN_TUNNEL:
		case CONN_EXCHANGE:
			c->req.verdict = VERDICT_POLICY_CHANGED;
			tunnel_cut(c, CLOSE_POLICY_CHANGED);
			break;
		}
	}
}
