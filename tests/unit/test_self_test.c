/* What serve asks of a policy before it starts (proxy/serve.c, self_test): each probe gets its own verdict, under every
 * policy that a person could write. A probe that some policy answers otherwise would keep a good guard from starting;
 * one that a hole in the table answers with the verdict of another check would let a bad one start. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>

#include <cmocka.h>

#include "policy/policy.h"

static const struct {
	const char *host;
	enum verdict verdict;
} probes[] = {
	{"169.254.169.254", VERDICT_ADDRESS_LINK_LOCAL}, {"127.0.0.1", VERDICT_ADDRESS_LOOPBACK},
	{"10.0.0.1", VERDICT_ADDRESS_PRIVATE},           {"[::1]", VERDICT_ADDRESS_LOOPBACK},
	{"[fd00:ec2::254]", VERDICT_ADDRESS_METADATA},   {"[64:ff9b::a9fe:a9fe]", VERDICT_ADDRESS_LINK_LOCAL},
	{"224.0.0.1", VERDICT_ADDRESS_MULTICAST},        {"240.0.0.1", VERDICT_ADDRESS_RESERVED},
	{"localhost", VERDICT_NAME_SPECIAL},             {"metadata.google.internal", VERDICT_NAME_SPECIAL},
};
enum { PROBES = sizeof(probes) / sizeof(probes[0]) };

#define ALL "[{address: 0.0.0.0/1}, {address: 128.0.0.0/1}, {address: '::/1'}, {address: '8000::/1'}]"

static const char *const policies[] = {
	"version: 1\nroles: {}\n",
	"version: 1\nroles:\n  a: {}\n",
	"version: 1\nroles:\n  a: {allow: " ALL ", unmatched: allow}\n",
	"version: 1\nroles:\n  a: {allow: " ALL ", ports: [443]}\n  b: {ports: [80], unmatched: allow}\n",
	"version: 1\nroles:\n  a: {deny: " ALL ", allow: [example.org, '*.example.org']}\n",
	"version: 1\nrefuse: {addresses: [10.0.0.0/8, 169.254.0.0/16, 0.0.0.0/1, 128.0.0.0/1, '8000::/1', '::/1']}\n"
	"roles:\n  a: {unmatched: allow}\n",
};

static struct policy *compile(const char *text)
{
	struct policy_problems problems = {0};
	struct policy *p = NULL;
	int r = policy_compile(str_from(text), &p, &problems);

	if (r < 0 && problems.n)
		print_error("%s\n", problems.items[0].message);
	assert_int_equal(r, 0);
	policy_problems_clear(&problems);
	return p;
}

static enum verdict judge(const struct policy *p, int role, const struct policy_target *t)
{
	return t->host.kind == HOST_ADDR ? policy_judge_address(p, role, &t->host.addr, t->port, NULL).verdict
					 : policy_judge_target(p, role, t, NULL).verdict;
}

static void test_exact_verdicts(void **state)
{
	static const uint16_t ports[] = {80, 443};

	for (size_t i = 0; i < sizeof(policies) / sizeof(policies[0]); i++) {
		struct policy *p = compile(policies[i]);

		for (int role = -1; role < (int)policy_n_roles(p); role++) {
			for (size_t n = 0; n < 2 * PROBES; n++) {
				struct policy_target t = {.port = ports[n % 2]};

				assert_true(host_parse(str_from(probes[n / 2].host), &t.host, NULL));
				if (judge(p, role, &t) != probes[n / 2].verdict)
					fail_msg("policy %zu, role %d: %s port %u is %s, not %s", i, role, probes[n / 2].host,
						 (unsigned)t.port, verdict_code(judge(p, role, &t)),
						 verdict_code(probes[n / 2].verdict));
				/* And as a target: refused, whatever the reason. */
				assert_int_not_equal(policy_judge_target(p, role, &t, NULL).verdict, VERDICT_ALLOW);
				t.port = 22;
				assert_int_equal(policy_judge_target(p, role, &t, NULL).verdict, VERDICT_PORT_NOT_ALLOWED);
			}
		}
		policy_unref(p);
	}
}

/* The probes are worth something only if a plain address passes the same judge. */
static void test_public_address_passes(void **state)
{
	struct policy *p = compile(policies[2]);
	struct policy_target t = {.port = 443};

	assert_true(host_parse(str_from("93.184.216.34"), &t.host, NULL));
	assert_int_equal(judge(p, 0, &t), VERDICT_ALLOW);
	policy_unref(p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_exact_verdicts),
		cmocka_unit_test(test_public_address_passes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
