/* What the name server of test_resolver.c answers, by name: right, wrong, hostile, late, or nothing. */
#ifndef TESTS_DNS_SCRIPTS_H
#define TESTS_DNS_SCRIPTS_H

#include "dns_server.h"

static void one_each(struct packet *p, int type, bool tcp)
{
	if (type == T_A_)
		put_a(p, NULL, 60, "93.184.216.34");
	else
		put_aaaa(p, NULL, 60, "2606:2800:220:1::1");
}

static void only_a(struct packet *p, int type, bool tcp)
{
	if (type == T_A_)
		put_a(p, NULL, 60, "93.184.216.34");
}

static void ttl_zero(struct packet *p, int type, bool tcp)
{
	if (type == T_A_)
		put_a(p, NULL, 0, "93.184.216.34");
}

static void ttl_huge(struct packet *p, int type, bool tcp)
{
	if (type == T_A_)
		put_a(p, NULL, 0x7fffffff, "93.184.216.34");
}

/* The alias lives for 7 s, the address longer. */
static void cname(struct packet *p, int type, bool tcp)
{
	put_cname(p, NULL, 7, "real.example.net");
	if (type == T_A_)
		put_a(p, "real.example.net", 200, "93.184.216.35");
}

static void chain(struct packet *p, int type, unsigned links)
{
	char owner[32], target[32];

	for (unsigned i = 0; i < links; i++) {
		snprintf(owner, sizeof(owner), "c%u.example", i);
		snprintf(target, sizeof(target), "c%u.example", i + 1);
		put_cname(p, i == 0 ? NULL : owner, 60, target);
	}
	snprintf(owner, sizeof(owner), "c%u.example", links);
	if (type == T_A_)
		put_a(p, owner, 60, "93.184.216.36");
}

static void chain_of_ten(struct packet *p, int type, bool tcp)
{
	chain(p, type, 10);
}

static void chain_of_twenty(struct packet *p, int type, bool tcp)
{
	chain(p, type, 20);
}

static void loop_of_two(struct packet *p, int type, bool tcp)
{
	put_cname(p, NULL, 60, "b.example");
	put_cname(p, "b.example", 60, "loop.example.org");
}

static void loop_of_one(struct packet *p, int type, bool tcp)
{
	put_cname(p, NULL, 60, "self.example.org");
	if (type == T_A_)
		put_a(p, NULL, 60, "93.184.216.36");
}

static void nxdomain(struct packet *p, int type, bool tcp)
{
	set_rcode(p, RC_NXDOMAIN);
}

static void no_data(struct packet *p, int type, bool tcp)
{
}

static void nxdomain6(struct packet *p, int type, bool tcp)
{
	if (type == T_AAAA_)
		set_rcode(p, RC_NXDOMAIN);
	else
		put_a(p, NULL, 60, "93.184.216.34");
}

static void servfail(struct packet *p, int type, bool tcp)
{
	set_rcode(p, RC_SERVFAIL);
}

static void refused(struct packet *p, int type, bool tcp)
{
	set_rcode(p, RC_REFUSED);
}

static void formerr(struct packet *p, int type, bool tcp)
{
	set_rcode(p, RC_FORMERR);
}

static void odd_rcode(struct packet *p, int type, bool tcp)
{
	set_rcode(p, 9);
	one_each(p, type, tcp);
}

static void servfail6_no_data4(struct packet *p, int type, bool tcp)
{
	if (type == T_AAAA_)
		set_rcode(p, RC_SERVFAIL);
}

static void servfail6_data4(struct packet *p, int type, bool tcp)
{
	if (type == T_AAAA_)
		set_rcode(p, RC_SERVFAIL);
	else
		put_a(p, NULL, 60, "93.184.216.34");
}

static void silent(struct packet *p, int type, bool tcp)
{
	p->silent = true;
}

static void silent6_data4(struct packet *p, int type, bool tcp)
{
	one_each(p, type, tcp);
	p->silent = type == T_AAAA_;
}

static void silent6_nxdomain4(struct packet *p, int type, bool tcp)
{
	set_rcode(p, RC_NXDOMAIN);
	p->silent = type == T_AAAA_;
}

static void slow6_data4(struct packet *p, int type, bool tcp)
{
	one_each(p, type, tcp);
	p->delay_ms = type == T_AAAA_ ? 150 : 0;
}

static void slow_both(struct packet *p, int type, bool tcp)
{
	one_each(p, type, tcp);
	p->delay_ms = 80;
}

static void big(struct packet *p, int type, bool tcp)
{
	if (type == T_AAAA_)
		return;
	put_many(p, type, tcp ? 30 : 2);
	if (!tcp)
		set_tc(p);
}

static void big_untold(struct packet *p, int type, bool tcp)
{
	if (type == T_A_)
		put_many(p, type, 32); /* 12 + question + 32 * 16 bytes, without TC over UDP */
}

static void truncated_always(struct packet *p, int type, bool tcp)
{
	put_many(p, type, 2);
	set_tc(p);
}

static void truncated_hang_up(struct packet *p, int type, bool tcp)
{
	put_many(p, type, 2);
	set_tc(p);
	p->hang_up = true;
}

static void thirty_three(struct packet *p, int type, bool tcp)
{
	if (type == T_A_ && tcp)
		put_many(p, type, 33);
	else if (type == T_A_)
		set_tc(p);
}

static void sixteen_each(struct packet *p, int type, bool tcp)
{
	put_many(p, type, 16);
	if (!tcp)
		set_tc(p);
}

static void seventeen_each(struct packet *p, int type, bool tcp)
{
	put_many(p, type, 17);
	if (!tcp)
		set_tc(p);
}

static void many_records(struct packet *p, int type, bool tcp)
{
	if (!tcp)
		set_tc(p);
	for (unsigned i = 0; tcp && i < 1000; i++)
		put_a(p, "other.example", 60, "93.184.216.34");
}

static void pointer_to_itself(struct packet *p, int type, bool tcp)
{
	put_a(p, NULL, 60, "93.184.216.34");
	p->b[p->n - 16] = (uint8_t)(0xc0 | (p->n - 16) >> 8);
	p->b[p->n - 15] = (uint8_t)(p->n - 16);
}

static void pointer_past_end(struct packet *p, int type, bool tcp)
{
	put_a(p, NULL, 60, "93.184.216.34");
	p->b[p->n - 16] = 0xff;
	p->b[p->n - 15] = 0xff;
}

static void short_record(struct packet *p, int type, bool tcp)
{
	put_rr(p, NULL, T_A_, 1, 60, 3);
	p->n += 3;
}

static void record_past_end(struct packet *p, int type, bool tcp)
{
	put_rr(p, NULL, (unsigned)type, 1, 60, 400);
	p->n += 4;
}

static void class_chaos(struct packet *p, int type, bool tcp)
{
	put_rr(p, NULL, T_A_, 3, 60, 4);
	p->n += 4;
}

static void other_owner(struct packet *p, int type, bool tcp)
{
	put_a(p, "evil.example", 60, "93.184.216.34");
}

static void hostile_target(struct packet *p, int type, bool tcp)
{
	put_cname(p, NULL, 60, "a\r\n\x1b<script>.example");
}

static void mapped(struct packet *p, int type, bool tcp)
{
	if (type == T_AAAA_)
		put_aaaa(p, NULL, 60, "::ffff:10.0.0.9");
}

static void not_a_reply(struct packet *p, int type, bool tcp)
{
	one_each(p, type, tcp);
	p->b[2] &= 0x7f;
}

static void wrong_question(struct packet *p, int type, bool tcp)
{
	one_each(p, type, tcp);
	p->b[13] = 'x';
}

static void wrong_id(struct packet *p, int type, bool tcp)
{
	one_each(p, type, tcp);
	p->b[0] ^= 0x55;
}

static struct script scripts[] = {
	{.name = "ok.example.org", .fn = one_each}, {.name = "OK2.example.org", .fn = one_each},
	{.name = "joined.example.org", .fn = slow_both}, {.name = "late.example.org", .fn = slow_both},
	{.name = "a.example.org", .fn = only_a}, {.name = "ttl0.example.org", .fn = ttl_zero},
	{.name = "ttlhuge.example.org", .fn = ttl_huge}, {.name = "cname.example.org", .fn = cname},
	{.name = "chain10.example.org", .fn = chain_of_ten}, {.name = "chain20.example.org", .fn = chain_of_twenty},
	{.name = "loop.example.org", .fn = loop_of_two}, {.name = "self.example.org", .fn = loop_of_one},
	{.name = "nx.example.org", .fn = nxdomain}, {.name = "nodata.example.org", .fn = no_data},
	{.name = "nx6.example.org", .fn = nxdomain6}, {.name = "servfail.example.org", .fn = servfail},
	{.name = "refused.example.org", .fn = refused}, {.name = "formerr.example.org", .fn = formerr},
	{.name = "rcode9.example.org", .fn = odd_rcode}, {.name = "half.example.org", .fn = servfail6_no_data4},
	{.name = "halfok.example.org", .fn = servfail6_data4}, {.name = "silent.example.org", .fn = silent},
	{.name = "*.silent.test", .fn = silent}, {.name = "silent6.example.org", .fn = silent6_data4},
	{.name = "silent6nx.example.org", .fn = silent6_nxdomain4}, {.name = "slow6.example.org", .fn = slow6_data4},
	{.name = "big.example.org", .fn = big}, {.name = "biguntold.example.org", .fn = big_untold},
	{.name = "tc.example.org", .fn = truncated_always}, {.name = "hangup.example.org", .fn = truncated_hang_up},
	{.name = "33.example.org", .fn = thirty_three}, {.name = "16.example.org", .fn = sixteen_each},
	{.name = "17.example.org", .fn = seventeen_each}, {.name = "1000.example.org", .fn = many_records},
	{.name = "ptrself.example.org", .fn = pointer_to_itself}, {.name = "ptrend.example.org", .fn = pointer_past_end},
	{.name = "short.example.org", .fn = short_record}, {.name = "past.example.org", .fn = record_past_end},
	{.name = "chaos.example.org", .fn = class_chaos}, {.name = "owner.example.org", .fn = other_owner},
	{.name = "hostile.example.org", .fn = hostile_target}, {.name = "mapped.example.org", .fn = mapped},
	{.name = "noqr.example.org", .fn = not_a_reply}, {.name = "wrongq.example.org", .fn = wrong_question},
	{.name = "wrongid.example.org", .fn = wrong_id}, {.name = "*.ok.test", .fn = one_each},
};

#endif
