/* Any bytes as a policy file.
 *
 * What must hold: a file that does not compile gives no policy and at least one problem, each a printable line, in order
 * of place; a file that compiles gives no problem, and then no role reaches a special address, a special name, an own
 * address or a third port, and no literal without an address rule that holds it; what a candidate judgement refuses
 * is refused as a target too; compiling again gives the same verdicts. Besides fixed targets, every word of the file that reads
 * as a host is asked for, so that the rules of the file are met. */
#include <errno.h>

#include "check.h"
#include "policy.h"

enum { WORDS_MAX = 64 };

static const char *const fixed[] = {
	"127.0.0.1", "10.1.2.3", "169.254.169.254", "[::1]", "[fd00:ec2::254]", "[64:ff9b::7f00:1]", "0.0.0.0", "224.0.0.1",
	"[2002:7f00:1::]", "168.63.129.16", "[2606:4700::5efe:a00:1]", "localhost", "a.localhost", "metadata.google.internal",
	"x.internal", "printer.local", "single", "203.0.114.1", "[64:ff9b::cb00:7201]", "1.1.1.1", "8.8.8.8", "example.org",
	"a.example.org", "xn--bcher-kva.example",
};

static void check_problems(const struct policy_problems *ps)
{
	for (size_t i = 0; i < ps->n; i++) {
		const struct policy_problem *p = &ps->items[i], *before = i ? p - 1 : NULL;

		CHECK(p->line >= 1 && p->column >= 1 && p->message[0] != '\0');
		CHECK(!before || before->line < p->line || (before->line == p->line && before->column <= p->column));
		for (const char *z = p->message; *z; z++)
			CHECK((unsigned char)*z >= ' ' && *z != 0x7f);
		for (const char *z = p->hint ? p->hint : ""; *z; z++)
			CHECK((unsigned char)*z >= ' ' && *z != 0x7f);
	}
	CHECK(ps->n <= POLICY_PROBLEMS_MAX);
}

static bool same(struct policy_decision a, struct policy_decision b)
{
	return a.verdict == b.verdict && a.rule_line == b.rule_line && strcmp(a.what, b.what) == 0;
}

static void check_host(const struct policy *p, const struct policy *q, const struct host *host,
		       const struct addrset *own)
{
	static const uint16_t ports[] = {80, 443, 22, 8080, 0};

	for (int role = -1; role <= (int)policy_n_roles(p); role++) {
		bool exists = role >= 0 && role < (int)policy_n_roles(p);

		for (size_t i = 0; i < sizeof(ports) / sizeof(*ports); i++) {
			struct policy_target t = {.host = *host, .port = ports[i]};
			struct policy_decision d = policy_judge_target(p, role, &t, own), c;

			CHECK(d.what && d.verdict != VERDICT_UNDECIDED);
			CHECK(same(d, policy_judge_target(q, role, &t, own)));
			CHECK(policy_judge_target(NULL, role, &t, own).verdict != VERDICT_ALLOW);
			if (host->kind == HOST_ADDR) {
				c = policy_judge_address(p, role, &host->addr, ports[i], own);
				CHECK(same(c, policy_judge_address(q, role, &host->addr, ports[i], own)));
				CHECK(c.verdict == VERDICT_ALLOW || d.verdict == c.verdict);
				CHECK(c.verdict != VERDICT_ALLOW ||
				     addr_judge_special(&host->addr, NULL, 0, NULL) == VERDICT_ALLOW);
			}
			if (d.verdict != VERDICT_ALLOW)
				continue;
			CHECK(exists && (ports[i] == 80 || ports[i] == 443));
			if (host->kind == HOST_ADDR) {
				CHECK(d.rule_line > 0);
				CHECK(addr_judge_special(&host->addr, NULL, 0, NULL) == VERDICT_ALLOW);
				CHECK(!addrset_find(own, &host->addr, 0));
			} else {
				CHECK(!host_name_special(host_name(host)));
			}
		}
	}
}

static void check_words(const struct policy *p, const struct policy *q, struct str text, const struct addrset *own)
{
	size_t words = 0;

	for (size_t i = 0; i < text.n && words < WORDS_MAX; i++) {
		struct host host, below;
		char name[HOST_TEXT_MAX + 2];
		size_t from = i;

		while (i < text.n && !strchr(" \t\r\n,\"'*{}", text.p[i]))
			i++;
		if (i == from || !host_parse((struct str){text.p + from, i - from}, &host, NULL))
			continue;
		words++;
		check_host(p, q, &host, own);
		if (host.kind != HOST_NAME)
			continue;
		snprintf(name, sizeof(name), "x.%s", host.name);
		if (host_parse(str_from(name), &below, NULL))
			check_host(p, q, &below, own);
	}
}

static struct addrset *own_addresses(void)
{
	static struct addrset own;
	struct addr a;

	if (own.sealed)
		return &own;
	CHECK(addr_parse(STR_LIT("203.0.114.1"), &a));
	CHECK(addrset_add(&own, (struct addr_prefix){a, 128}, portset_all(), 0) == 0);
	addrset_seal(&own);
	return &own;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct str text = {(const char *)data, size};
	struct policy_problems ps = {0}, again = {0};
	struct policy *const untouched = (struct policy *)&ps;
	struct policy *p = untouched, *q = untouched;
	const struct addrset *own = own_addresses();
	int err = policy_compile(text, &p, &ps);

	CHECK(policy_compile(text, &q, &again) == err);
	check_problems(&ps);
	if (err < 0) {
		CHECK(err == -EINVAL && p == untouched && q == untouched && ps.n > 0 && again.n == ps.n);
	} else {
		CHECK(ps.n == 0 && ps.dropped == 0 && p != q && policy_hash(p) == policy_hash(q));
		for (size_t i = 0; i < sizeof(fixed) / sizeof(*fixed); i++) {
			struct host host;

			CHECK(host_parse(str_from(fixed[i]), &host, NULL));
			check_host(p, q, &host, own);
		}
		check_words(p, q, text, own);
		policy_unref(p);
		policy_unref(q);
	}
	policy_problems_clear(&ps);
	policy_problems_clear(&again);
	return 0;
}
