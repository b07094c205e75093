/* The two judgements.
 *
 * policy_judge_target() runs once a request, before any lookup; policy_judge_address() runs for each address, on the line
 * above connect(). Both first apply what no policy can change (the two ports, special names, the table of special
 * addresses, the host's own addresses), then the policy. Each step either decides or passes on; what passes every
 * step without a rule that allows it is refused, and so is what meets no policy or no role.
 *
 * An address can be the wrapping of another: behind 64:ff9b::/96 (RFC 6052) a translator connects to the IPv4 address
 * inside, and an ISATAP interface id (RFC 5214 6.1) names one too. The built-in table unwraps on its own; here the inner
 * address must pass the own, refuse and deny lists as well. Allow rules never look inside: they hold what they say.
 *
 * Pure functions of immutable data: any thread, no allocation, no failure. */
#include "compile.h"
#include "policy.h"

static struct policy_decision decide(enum verdict verdict, uint32_t line, const char *what)
{
	return (struct policy_decision){verdict, line, what ? what : verdict_row(verdict)->what};
}

static const struct role *role_of(const struct policy *p, int role)
{
	return p && role >= 0 && (size_t)role < p->n_roles ? &p->roles[role] : NULL;
}

static struct policy_decision no_role(const struct policy *p)
{
	return decide(VERDICT_HOST_NOT_ALLOWED, 0,
		      p ? "is refused: the client has no role in the policy" : "is refused: there is no policy");
}

static struct policy_decision wrong_port(void)
{
	return decide(VERDICT_PORT_NOT_ALLOWED, 0, "is refused: only ports 80 and 443 are ever opened");
}

/* `a` and the IPv4 address inside it, if any. Returns how many. */
static size_t faces(const struct addr *a, struct addr out[2])
{
	static const struct addr_prefix nat64 = {{{0x00, 0x64, 0xff, 0x9b}}, 96}; /* RFC 6052 2.1 */
	static const uint8_t isatap[4] = {0x00, 0x00, 0x5e, 0xfe};                /* RFC 5214 6.1 */
	uint8_t id[4];

	out[0] = *a;
	if (addr_is_v4(a))
		return 1;
	memcpy(id, a->b + 8, sizeof(id));
	id[0] &= (uint8_t)~0x02; /* the u bit: globally unique or not */
	if (!addr_in_prefix(a, &nat64) && memcmp(id, isatap, sizeof(id)) != 0)
		return 1;
	out[1] = addr_from_v4(a->b + 12);
	return 2;
}

static const struct addrset_item *find_face(const struct addrset *set, const struct addr *face, size_t n, uint16_t port)
{
	const struct addrset_item *it = NULL;

	for (size_t i = 0; i < n && !it; i++)
		it = addrset_find(set, &face[i], port);
	return it;
}

struct policy_decision policy_judge_address(const struct policy *p, int role, const struct addr *a, uint16_t port,
					    const struct addrset *own)
{
	const struct role *r = role_of(p, role);
	const struct addrset_item *it;
	struct addr face[2];
	size_t n = faces(a, face);
	const struct addr_special *row = NULL;
	enum verdict special = addr_judge_special(a, NULL, 0, &row);

	if (!portset_bit(port))
		return wrong_port();
	if (special != VERDICT_ALLOW)
		return decide(special, 0, row ? row->what : NULL);
	if (own && find_face(own, face, n, 0))
		return decide(VERDICT_ADDRESS_OWN, 0, "is an address of this host");
	if (!r)
		return no_role(p);
	it = find_face(&p->refuse_addresses, face, n, port);
	if (!it)
		it = find_face(&r->deny_addresses, face, n, port);
	if (it)
		return decide(VERDICT_ADDRESS_DENIED, it->line, NULL);
	return decide(VERDICT_ALLOW, 0, NULL);
}

/* A rule allows the host: does the role's own list of ports? */
static struct policy_decision allow_by(const struct role *r, uint16_t port, uint32_t line)
{
	if (!portset_has(r->ports, port))
		return decide(VERDICT_PORT_NOT_ALLOWED, r->ports_line, "is refused: the role may not use this port");
	return decide(VERDICT_ALLOW, line, NULL);
}

static struct policy_decision judge_literal(const struct policy *p, int role, const struct addr *a, uint16_t port,
					    const struct addrset *own)
{
	struct policy_decision d = policy_judge_address(p, role, a, port, own);
	const struct role *r = role_of(p, role);
	const struct addrset_item *it;

	if (d.verdict != VERDICT_ALLOW || !r)
		return d;
	it = addrset_find(&r->allow_addresses, a, port);
	if (it)
		return allow_by(r, port, it->line);
	it = addrset_find(&r->allow_addresses, a, 0);
	if (it)
		return decide(VERDICT_PORT_NOT_ALLOWED, it->line, "is allowed, but not on this port");
	return decide(VERDICT_HOST_NOT_ALLOWED, 0, "is an IP address and needs an address rule");
}

static struct policy_decision judge_name(const struct policy *p, const struct role *r, struct str name, uint16_t port)
{
	uint32_t line;

	line = hostset_find(&p->refuse_names, name, port);
	if (!line)
		line = hostset_find(&r->deny, name, port);
	if (line)
		return decide(VERDICT_HOST_DENIED, line, NULL);
	line = hostset_find(&r->allow, name, port);
	if (line)
		return allow_by(r, port, line);
	line = hostset_find(&r->allow, name, 0);
	if (line)
		return decide(VERDICT_PORT_NOT_ALLOWED, line, "is allowed, but not on this port");
	if (r->unmatched_allow)
		return allow_by(r, port, r->unmatched_line);
	return decide(VERDICT_HOST_NOT_ALLOWED, r->unmatched_line, NULL);
}

struct policy_decision policy_judge_target(const struct policy *p, int role, const struct policy_target *target,
					   const struct addrset *own)
{
	const struct role *r = role_of(p, role);
	const char *special;

	if (!portset_bit(target->port))
		return wrong_port();
	switch (target->host.kind) {
	case HOST_NONE:
		break;
	case HOST_ADDR:
		return judge_literal(p, role, &target->host.addr, target->port, own);
	case HOST_NAME:
		special = host_name_special(host_name(&target->host));
		if (special)
			return decide(VERDICT_NAME_SPECIAL, 0, special);
		return r ? judge_name(p, r, host_name(&target->host), target->port) : no_role(p);
	}
	return decide(VERDICT_BAD_TARGET, 0, "is no host");
}
