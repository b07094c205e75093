/* dnsreply: what a reply says, read by c-ares' parsers behind a few checks that they do not make.
 *
 * c-ares has matched the id, the question and the server's address already. It looks neither at QR, the opcode and
 * TC of a TCP reply, nor at unknown response codes; it follows aliases by their order in the packet, so a loop looks
 * like a name without data; and it has no bound on the number of records. Hence: the header is judged first, sizes
 * are bounded (a hostile reply costs at most DNSREPLY_RECORDS_MAX names of at most 50 compression jumps), then the
 * alias chain is walked once from the question, and only then are the records read. A loop, or a chain longer than
 * DNSREPLY_CNAMES_MAX, is a failure and not "no such name".
 *
 * The parsers cap each TTL by those of the aliases. Room is made for one address more than may be accepted, so that
 * "too many" is noticed and never cut. Record types other than asked for, and records of other owners, are skipped. */
#include "net/dnsreply.h"

#include <ares.h>
#include <ares_dns.h>
#include <ares_nameser.h>
#include <netinet/in.h>
#include <string.h>
#include <strings.h>

struct alias {
	char *owner, *target;
};

/* A name at *pos; moves *pos behind it. NULL when malformed or (*ret_kind) without memory. */
static char *take_name(const uint8_t *p, size_t n, size_t *pos, enum dnsreply_kind *ret_kind)
{
	char *name = NULL;
	long len = 0;
	int status;

	if (*pos >= n)
		return NULL;
	status = ares_expand_name(p + *pos, p, (int)n, &name, &len);
	if (status == ARES_ENOMEM)
		*ret_kind = DNSREPLY_NO_MEMORY;
	if (status != ARES_SUCCESS)
		return NULL;
	*pos += (size_t)len;
	return name;
}

/* Follows the chain from the question. True when it ends. */
static bool chain_ends(const char *question, const struct alias *aliases, size_t n)
{
	const char *name = question;

	for (size_t hops = 0; hops <= n; hops++) {
		size_t i = 0;

		while (i < n && strcasecmp(aliases[i].owner, name) != 0)
			i++;
		if (i == n)
			return true;
		name = aliases[i].target;
	}
	return false;
}

/* Reads the aliases of the answer section. Returns DNSREPLY_DATA when they make a chain that ends. */
static enum dnsreply_kind check_aliases(const uint8_t *p, size_t n, unsigned records)
{
	struct alias aliases[DNSREPLY_CNAMES_MAX];
	enum dnsreply_kind kind = DNSREPLY_BAD;
	size_t pos = NS_HFIXEDSZ, n_aliases = 0;
	char *question = take_name(p, n, &pos, &kind), *owner = NULL;

	pos += NS_QFIXEDSZ;
	if (!question)
		return kind;
	for (unsigned i = 0; i < records; i++) {
		size_t len, data;

		owner = take_name(p, n, &pos, &kind);
		if (!owner || n - pos < NS_RRFIXEDSZ)
			goto out;
		len = DNS_RR_LEN(p + pos);
		data = pos + NS_RRFIXEDSZ;
		if (n - data < len)
			goto out;
		if (DNS_RR_TYPE(p + pos) == ns_t_cname && DNS_RR_CLASS(p + pos) == ns_c_in) {
			size_t at = data;

			if (n_aliases == DNSREPLY_CNAMES_MAX)
				goto out;
			aliases[n_aliases].target = take_name(p, n, &at, &kind);
			if (!aliases[n_aliases].target)
				goto out;
			aliases[n_aliases++].owner = owner;
			owner = NULL;
		}
		ares_free_string(owner);
		owner = NULL;
		pos = data + len;
	}
	if (chain_ends(question, aliases, n_aliases))
		kind = DNSREPLY_DATA;
out:
	while (n_aliases > 0) {
		n_aliases--;
		ares_free_string(aliases[n_aliases].owner);
		ares_free_string(aliases[n_aliases].target);
	}
	ares_free_string(owner);
	ares_free_string(question);
	return kind;
}

/* The header alone: DNSREPLY_DATA when the records are worth reading. */
static enum dnsreply_kind check_header(const uint8_t *p, size_t n, bool tcp)
{
	if (n < NS_HFIXEDSZ || !DNS_HEADER_QR(p) || DNS_HEADER_OPCODE(p) != ns_o_query || DNS_HEADER_QDCOUNT(p) != 1)
		return DNSREPLY_BAD;
	if (DNS_HEADER_TC(p))
		return tcp ? DNSREPLY_BAD : DNSREPLY_TRUNCATED;
	if (DNS_HEADER_RCODE(p) == ns_r_nxdomain)
		return DNSREPLY_NO_NAME;
	if (DNS_HEADER_RCODE(p) != ns_r_noerror)
		return DNSREPLY_BAD;
	if (n > DNSREPLY_BYTES_MAX || DNS_HEADER_ANCOUNT(p) > DNSREPLY_RECORDS_MAX)
		return DNSREPLY_TOO_MANY;
	return DNS_HEADER_ANCOUNT(p) == 0 ? DNSREPLY_NO_DATA : DNSREPLY_DATA;
}

static void take(struct dnsreply *r, struct addr a, int ttl)
{
	uint32_t ttl_s = ttl < 0 ? 0 : (uint32_t)ttl; /* RFC 2181 8: a TTL with the top bit set counts as zero */

	if (r->n == 0 || ttl_s < r->ttl_s)
		r->ttl_s = ttl_s;
	r->addrs[r->n++] = a;
}

static enum dnsreply_kind read_records(const uint8_t *p, size_t n, int family, struct dnsreply *ret)
{
	struct ares_addrttl v4[LIMIT_ANSWER_ADDRESSES + 1];
	struct ares_addr6ttl v6[LIMIT_ANSWER_ADDRESSES + 1];
	struct dnsreply r = {0};
	int count = LIMIT_ANSWER_ADDRESSES + 1;
	int status = family == AF_INET ? ares_parse_a_reply(p, (int)n, NULL, v4, &count)
				       : ares_parse_aaaa_reply(p, (int)n, NULL, v6, &count);

	if (status == ARES_ENOMEM)
		return DNSREPLY_NO_MEMORY;
	if (status == ARES_ENODATA || (status == ARES_SUCCESS && count == 0))
		return DNSREPLY_NO_DATA;
	if (status != ARES_SUCCESS)
		return DNSREPLY_BAD;
	if (count > LIMIT_ANSWER_ADDRESSES)
		return DNSREPLY_TOO_MANY;
	for (int i = 0; i < count; i++) {
		if (family == AF_INET)
			take(&r, addr_from_v4((const uint8_t *)&v4[i].ipaddr), v4[i].ttl);
		else
			take(&r, addr_from_v6((const uint8_t *)&v6[i].ip6addr), v6[i].ttl);
	}
	*ret = r;
	return DNSREPLY_DATA;
}

enum dnsreply_kind dnsreply_read(const uint8_t *p, size_t n, int family, bool tcp, struct dnsreply *ret)
{
	enum dnsreply_kind kind = check_header(p, n, tcp);

	if (kind == DNSREPLY_DATA)
		kind = check_aliases(p, n, DNS_HEADER_ANCOUNT(p));
	if (kind == DNSREPLY_DATA)
		kind = read_records(p, n, family, ret);
	/* c-ares hands over 512 bytes of a UDP reply at most: one of that size that cannot be read was cut. */
	if (kind == DNSREPLY_BAD && !tcp && n == NS_PACKETSZ)
		kind = DNSREPLY_TRUNCATED;
	return kind;
}
