/* The policy language end to end: YAML in; problems or verdicts out.
 *
 * Most cases are files under policies/ (its README has the notation). Here are the program that reads them, the files
 * that cannot be written as text, sizes, and what happens when memory runs out. Runs from the top of the tree. */
#include <dirent.h>
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <cmocka.h>

#include "policy.h"
#include "schema.h"

#define FOLDER "tests/unit/policies"

/* --- memory that runs out: the Nth allocation from now fails, in every library of the process --- */

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
void *__libc_malloc(size_t n);
void *__libc_calloc(size_t k, size_t n);
void *__libc_realloc(void *p, size_t n);
void __libc_free(void *p);

static long allocations_left = -1; /* negative: no limit */
static bool failed_once;
static long living;

static bool allocation_fails(void)
{
	if (allocations_left < 0)
		return false;
	if (allocations_left > 0) {
		allocations_left--;
		return false;
	}
	failed_once = true;
	errno = ENOMEM;
	return true;
}

void *malloc(size_t n)
{
	void *p = allocation_fails() ? NULL : __libc_malloc(n);

	living += p != NULL;
	return p;
}

void *calloc(size_t k, size_t n)
{
	void *p = allocation_fails() ? NULL : __libc_calloc(k, n);

	living += p != NULL;
	return p;
}

void *realloc(void *old, size_t n)
{
	void *p = allocation_fails() ? NULL : __libc_realloc(old, n);

	living += p != NULL && !old;
	return p;
}

void free(void *p)
{
	living -= p != NULL;
	__libc_free(p);
}
#endif

/* --- reading --- */

struct text {
	char *p;
	size_t n;
};

static struct text read_file(const char *path)
{
	struct text t = {malloc(1 << 20), 0};
	FILE *f = fopen(path, "rb");

	if (!f)
		fail_msg("cannot open %s (run from the top of the tree)", path);
	t.n = fread(t.p, 1, (1 << 20) - 1, f);
	t.p[t.n] = '\0';
	fclose(f);
	return t;
}

static struct policy *compile(const char *text)
{
	struct policy_problems ps = {0};
	struct policy *p = NULL;
	int err = policy_compile(str_from(text), &p, &ps);

	if (err < 0)
		fail_msg("%u:%u: %s", ps.items[0].line, ps.items[0].column, ps.items[0].message);
	assert_int_equal(ps.n, 0);
	return p;
}

static struct addr address(const char *text)
{
	struct addr a;

	assert_true(addr_parse(str_from(text), &a));
	return a;
}

static void own_addresses(struct addrset *own)
{
	assert_int_equal(addrset_add(own, (struct addr_prefix){address("203.0.114.1"), 128}, portset_all(), 0), 0);
	assert_int_equal(addrset_add(own, (struct addr_prefix){address("2600:1::1"), 128}, portset_all(), 0), 0);
	addrset_seal(own);
}

static bool parse_target(const char *text, struct policy_target *ret)
{
	const char *colon = strrchr(text, ':');

	return colon && host_parse((struct str){text, (size_t)(colon - text)}, &ret->host, NULL) &&
	       port_parse(str_from(colon + 1), &ret->port);
}

static struct policy_decision ask(const struct policy *p, const char *role, const char *target)
{
	struct policy_target t;

	if (!parse_target(target, &t))
		fail_msg("bad target %s", target);
	return policy_judge_target(p, policy_role(p, str_from(role)), &t, NULL);
}

/* --- the files --- */

static void check_decision(const char *where, const char *line, struct policy_decision d, const char *code,
			   unsigned rule_line)
{
	assert_non_null(d.what);
	if (strcmp(verdict_code(d.verdict), code) != 0 || d.rule_line != rule_line)
		fail_msg("%s: \"%s\": got %s %u", where, line, verdict_code(d.verdict), d.rule_line);
}

/* The next word of a line, which is cut up. */
static char *word(char **line)
{
	char *w;

	do
		w = strsep(line, " ");
	while (w && *w == '\0');
	return w ? w : "";
}

static unsigned number(const char *digits)
{
	return (unsigned)strtoul(digits, NULL, 10);
}

/* "#? ROLE TARGET CODE LINE" and "#@ ROLE ADDRESS PORT CODE LINE" */
static void check_judged(const char *where, char *line, const struct policy *p, const struct addrset *own)
{
	char *whole = strdup(line), *rest = line + 2;
	bool target = line[1] == '?';
	int role = policy_role(p, str_from(word(&rest)));
	const char *what = word(&rest), *code;
	struct policy_decision d;

	if (target) {
		struct policy_target t;

		if (!parse_target(what, &t))
			fail_msg("%s: bad target %s", where, what);
		d = policy_judge_target(p, role, &t, own);
	} else {
		struct addr a = address(what);

		d = policy_judge_address(p, role, &a, (uint16_t)number(word(&rest)), own);
	}
	code = word(&rest);
	check_decision(where, whole, d, code, number(word(&rest)));
	free(whole);
}

/* "#! LINE:COLUMN message | hint" */
static void check_problem(const char *where, char *line, const struct policy_problems *ps, size_t i)
{
	char *whole = strdup(line), *rest = line + 2, *message, *hint, *column = word(&rest);
	unsigned at_line = number(strsep(&column, ":")), at_column = number(column ? column : "");

	message = rest ? rest : "";
	hint = strstr(message, " | ");
	if (hint) {
		*hint = '\0';
		hint += 3;
	}
	assert_true(message[0] != '\0');
	if (i >= ps->n)
		fail_msg("%s: \"%s\": no such problem", where, whole);
	if (ps->items[i].line != at_line || ps->items[i].column != at_column || !strstr(ps->items[i].message, message))
		fail_msg("%s: \"%s\": got %u:%u %s", where, whole, ps->items[i].line, ps->items[i].column,
			 ps->items[i].message);
	if (hint && (!ps->items[i].hint || !strstr(ps->items[i].hint, hint)))
		fail_msg("%s: \"%s\": hint is %s", where, whole, ps->items[i].hint ? ps->items[i].hint : "(none)");
	free(whole);
}

/* Returns the number of expectations in the file. */
static size_t check_file(const char *name, const struct addrset *own)
{
	char path[512];
	struct policy_problems ps = {0};
	struct policy *p = NULL;
	size_t n_problems = 0, n = 0;
	struct text t;
	int err;

	snprintf(path, sizeof(path), FOLDER "/%s", name);
	t = read_file(path);
	err = policy_compile((struct str){t.p, t.n}, &p, &ps);
	for (char *rest = t.p, *line; (line = strsep(&rest, "\n"));) {
		if (line[0] != '#' || line[1] == '\0' || !strchr("!?@", line[1]))
			continue;
		n++;
		if (line[1] == '!')
			check_problem(name, line, &ps, n_problems++);
		else
			check_judged(name, line, p, own);
	}
	if (ps.n > n_problems)
		fail_msg("%s: unexpected %u:%u %s", name, ps.items[n_problems].line, ps.items[n_problems].column,
			 ps.items[n_problems].message);
	assert_int_equal(err, n_problems ? -EINVAL : 0);
	assert_true((p != NULL) == (err == 0));
	policy_problems_clear(&ps);
	policy_unref(p);
	free(t.p);
	return n;
}

static void test_files(void **state)
{
	struct addrset own = {0};
	struct dirent *e;
	size_t n_files = 0, n = 0;
	DIR *d = opendir(FOLDER);

	assert_non_null(d);
	own_addresses(&own);
	while ((e = readdir(d))) {
		if (!strstr(e->d_name, ".yaml"))
			continue;
		n += check_file(e->d_name, &own);
		n_files++;
	}
	closedir(d);
	addrset_clear(&own);
	print_message("%zu files, %zu expectations\n", n_files, n);
	assert_true(n_files >= 28 && n >= 250);
}

/* What is shipped must load, and mean what its comments say. */
static void test_shipped(void **state)
{
	static const char *const paths[] = {"conf/policy.yaml", "conf/policy.minimal.yaml"};

	for (size_t i = 0; i < 2; i++) {
		struct text t = read_file(paths[i]);
		struct policy *p = compile(t.p);

		assert_true(i == 1 || policy_role(p, STR_LIT("agent")) >= 0);
		assert_int_equal(ask(p, "agent", "unlisted.example.net:443").verdict, VERDICT_HOST_NOT_ALLOWED);
		policy_unref(p);
		free(t.p);
	}
}

/* Each key of the schema is in the manual, and the first word of a choice refuses. */
static void test_manual(void **state)
{
	static const struct schema_section *const sections[] = {&schema_top, &schema_role, &schema_refuse, &schema_rule};
	struct text t = read_file("policy/policy.5");
	char want[64];

	for (size_t i = 0; i < 4; i++) {
		for (size_t k = 0; k < sections[i]->n; k++) {
			snprintf(want, sizeof(want), "\n.It Cm %s", sections[i]->keys[k].name);
			if (!strstr(t.p, want))
				fail_msg("policy.5 lacks the key %s", sections[i]->keys[k].name);
		}
	}
	assert_string_equal(schema_refusals[0], "refuse");
	free(t.p);
}

/* --- what holds without any policy --- */

static void test_nothing_allows(void **state)
{
	static const char *const targets[] = {"example.org:443", "1.1.1.1:443", "[2606:4700::1]:80", "a.b:80"};
	struct policy *p = compile("version: 1\nroles: {a: {unmatched: allow, allow: [{address: 1.1.1.1}]}}\n");
	struct policy_target none = {.port = 443};
	struct addr a = address("1.1.1.1");

	for (size_t i = 0; i < 4; i++) {
		struct policy_target t;

		assert_true(parse_target(targets[i], &t));
		for (int role = -2; role < 3; role++) {
			assert_int_equal(policy_judge_target(NULL, role, &t, NULL).verdict, VERDICT_HOST_NOT_ALLOWED);
			if (role != 0)
				assert_int_equal(policy_judge_target(p, role, &t, NULL).verdict, VERDICT_HOST_NOT_ALLOWED);
		}
	}
	assert_int_equal(policy_judge_address(NULL, 0, &a, 443, NULL).verdict, VERDICT_HOST_NOT_ALLOWED);
	assert_int_equal(policy_judge_address(p, 1, &a, 443, NULL).verdict, VERDICT_HOST_NOT_ALLOWED);
	assert_int_equal(policy_judge_address(p, 0, &a, 443, NULL).verdict, VERDICT_ALLOW);
	assert_int_equal(policy_judge_address(p, 0, &a, 0, NULL).verdict, VERDICT_PORT_NOT_ALLOWED);
	assert_int_equal(policy_judge_target(p, 0, &none, NULL).verdict, VERDICT_BAD_TARGET);
	assert_int_equal(policy_judge_target(p, 0, &(struct policy_target){0}, NULL).verdict, VERDICT_PORT_NOT_ALLOWED);
	assert_int_equal((struct policy_decision){0}.verdict, VERDICT_UNDECIDED);
	policy_unref(p);
}

/* The sentence a client is told: HOST and then this. */
static void test_words(void **state)
{
	struct policy *p = compile("version: 1\nroles: {a: {allow: [{host: a.example.org, ports: [443]}]}}\n");

	assert_string_equal(ask(p, "a", "a.example.org:80").what, "is allowed, but not on this port");
	assert_string_equal(ask(p, "a", "1.1.1.1:443").what, "is an IP address and needs an address rule");
	assert_string_equal(ask(p, "a", "b.example.org:80").what, "is not on the allow list");
	assert_string_equal(ask(p, "a", "b.example.org:22").what, "is refused: only ports 80 and 443 are ever opened");
	assert_string_equal(ask(p, "b", "b.example.org:80").what, "is refused: the client has no role in the policy");
	assert_string_equal(ask(NULL, "b", "b.example.org:80").what, "is refused: there is no policy");
	assert_string_equal(ask(p, "a", "localhost:80").what, "is a special-use name");
	policy_unref(p);
}

static void test_roles(void **state)
{
	struct policy *p = compile("version: 1\nroles: {b: {}, a: {}, ab: {}, 'spiffe://example.org/x': {}}\n");

	assert_int_equal(policy_n_roles(p), 4);
	for (int i = 0; i < 4; i++)
		assert_int_equal(policy_role(p, str_from(policy_role_name(p, i))), i);
	assert_int_equal(policy_role(p, STR_LIT("A")), -1);
	assert_int_equal(policy_role(p, STR_LIT("")), -1);
	assert_int_equal(policy_role(p, STR_LIT("abc")), -1);
	assert_int_equal(policy_role(p, STR_LIT("a\0")), -1);
	assert_int_equal(policy_role(NULL, STR_LIT("a")), -1);
	assert_null(policy_role_name(p, 4));
	assert_null(policy_role_name(p, -1));
	assert_null(policy_role_name(NULL, 0));
	assert_int_equal(policy_n_roles(NULL), 0);
	policy_unref(p);
}

static void test_references(void **state)
{
	struct policy *p = compile("version: 1\nroles: {}\n");

	assert_ptr_equal(policy_ref(p), p);
	assert_null(policy_unref(p));
	assert_int_equal(policy_n_roles(p), 0);
	assert_null(policy_unref(p));
	assert_null(policy_unref(NULL));
	assert_null(policy_ref(NULL));
}

static void test_hash(void **state)
{
	struct policy *p = compile("version: 1\nroles: {}\n");

	/* FNV-1a of the 21 bytes, worked out with another implementation */
	assert_true(policy_hash(p) == UINT64_C(0x6206e590261eec49));
	assert_true(policy_hash(NULL) == 0);
	policy_unref(p);
}

/* --- files that are no text --- */

static void test_raw(void **state)
{
	static const struct {
		struct str text;
		int err;
	} rows[] = {
		{STR_LIT("version: 1\r\nroles: {}\r\n"), 0},                                            /* f047 */
		{STR_LIT("version: 1\nroles: {}"), 0},
		{STR_LIT("\xef\xbb\xbfversion: 1\nroles: {}\n"), -EINVAL},                              /* f041 */
		{STR_LIT("\xff\xfev\0e\0r\0"), -EINVAL},                                                /* f041 */
		{STR_LIT("version: 1\nroles: {a: {allow: [a]\xc2\x85" "deny: [b]}}\n"), -EINVAL},       /* f041 */
		{STR_LIT("version: 1\nroles: {}\n\0"), -EINVAL},                                        /* f047 */
		{STR_LIT("version: 1\nroles: {}\n# \xff\n"), -EINVAL},
		{STR_LIT("version: 1\nroles: {}\n# \xe2\x80\xae\n"), -EINVAL},
		{STR_LIT("\xef\xbb\xbf"), -EINVAL},
		{STR_LIT(""), -EINVAL},
		{STR_LIT("---\n"), -EINVAL},
		{STR_LIT("''\n"), -EINVAL},
		{STR_LIT("[]"), -EINVAL},
		{STR_LIT("{}"), -EINVAL},
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		struct policy_problems ps = {0};
		struct policy *p = NULL;

		if (policy_compile(rows[i].text, &p, &ps) != rows[i].err)
			fail_msg("row %zu", i);
		assert_true((p != NULL) == (rows[i].err == 0));
		assert_true((ps.n > 0) == (rows[i].err != 0));
		policy_problems_clear(&ps);
		policy_unref(p);
	}
}

/* --- sizes --- */

static char *many(size_t n, const char *head, const char *each)
{
	char *z = malloc(64 + n * 64);
	size_t k = 0;

	assert_non_null(z);
	k += (size_t)snprintf(z, 64, "%s", head);
	for (size_t i = 0; i < n; i++) {
		const char *mark = strchr(each, '#');

		k += (size_t)snprintf(z + k, 64, "%.*s%zu%s", (int)(mark - each), each, i, mark + 1);
	}
	return z;
}

static void test_many_rules(void **state)
{
	static const char *const each[] = {"      - h#.example.org\n", "      - {host: h#.example.org, ports: [443]}\n",
					   "      - \"*.h#.example.org\"\n"};

	for (size_t i = 0; i < 3; i++) {
		char *z = many(100000, "version: 1\nroles:\n  a:\n    allow:\n", each[i]);
		struct timespec from, to;
		struct policy *p;
		char target[64];

		clock_gettime(CLOCK_MONOTONIC, &from);
		p = compile(z);
		clock_gettime(CLOCK_MONOTONIC, &to);
		print_message("100000 rules: %ld ms\n",
			      (to.tv_sec - from.tv_sec) * 1000 + (to.tv_nsec - from.tv_nsec) / 1000000);
		for (size_t k = 0; k < 100000; k += 997) {
			snprintf(target, sizeof(target), "%sh%zu.example.org:443", i == 2 ? "x." : "", k);
			assert_int_equal(ask(p, "a", target).verdict, VERDICT_ALLOW);
			assert_int_equal(ask(p, "a", target).rule_line, 5 + k);
		}
		assert_int_equal(ask(p, "a", "h100000.example.org:443").verdict, VERDICT_HOST_NOT_ALLOWED);
		policy_unref(p);
		free(z);
	}
}

static void test_many_keys(void **state)
{
	char *z = many(100000, "version: 1\nroles: {}\n", "k#: 1\n");
	struct policy_problems ps = {0};
	struct policy *p = NULL;

	assert_int_equal(policy_compile(str_from(z), &p, &ps), -EINVAL);
	assert_int_equal(ps.n, POLICY_PROBLEMS_MAX);
	assert_int_equal(ps.n + ps.dropped, 100000);
	assert_null(p);
	policy_problems_clear(&ps);
	free(z);
}

static void test_too_many_roles(void **state)
{
	char *z = many(POLICY_ROLES_MAX + 1, "version: 1\nroles:\n", "  r#: {}\n");
	struct policy_problems ps = {0};
	struct policy *p = NULL;

	assert_int_equal(policy_compile(str_from(z), &p, &ps), -EINVAL);
	assert_non_null(strstr(ps.items[0].message, "\"roles\" has 1001 entries, more than 1000"));
	policy_problems_clear(&ps);
	free(z);
}

/* Whatever allocation fails: no policy, no problem that is none, nothing left behind. */
static void test_out_of_memory(void **state)
{
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
	static const struct {
		const char *text;
		int err;
	} rows[] = {
		{"version: 1\nroles: {a: {allow: [a.example.org, 'b\xc3\xbc.example', {address: 1.1.1.1}], deny: ['*.x.org']}}\n"
		 "refuse: {names: [x.example.org], addresses: [8.8.8.8]}\n", 0},
		{"version: 2\nroles: {a: {alow: ['*'], allow: [*.x], deny: &x []}}\n", -EINVAL},
	};

	for (size_t i = 0; i < 2; i++) {
		int err = -ENOMEM;

		for (long n = 0; err == -ENOMEM; n++) {
			struct policy_problems ps = {0};
			struct policy *p = NULL;
			long before = living;

			failed_once = false;
			allocations_left = n;
			err = policy_compile(str_from(rows[i].text), &p, &ps);
			allocations_left = -1;
			assert_int_equal(err, failed_once ? -ENOMEM : rows[i].err);
			assert_true((p != NULL) == (err == 0));
			policy_problems_clear(&ps);
			policy_unref(p);
			assert_int_equal(living, before);
			assert_true(n < 10000);
		}
		assert_int_equal(err, rows[i].err);
	}
#else
	skip(); /* the sanitizer has the allocator */
#endif
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_files),       cmocka_unit_test(test_shipped),       cmocka_unit_test(test_manual),
		cmocka_unit_test(test_nothing_allows), cmocka_unit_test(test_words),      cmocka_unit_test(test_roles),
		cmocka_unit_test(test_references),  cmocka_unit_test(test_hash),          cmocka_unit_test(test_raw),
		cmocka_unit_test(test_many_rules),  cmocka_unit_test(test_many_keys),     cmocka_unit_test(test_too_many_roles),
		cmocka_unit_test(test_out_of_memory),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
