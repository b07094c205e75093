/* The guard's own configuration: YAML in, values or problems with their places out. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>
#include <cmocka.h>

#include "config.h"

#define LISTEN "listen:\n  - address: 127.0.0.1:3128\n    role: agent\n"
#define BASE LISTEN "policy: policy.yaml\n" /* 4 lines */

/* Reads what must be good. */
static struct config good(const char *text)
{
	struct policy_problems problems = {0};
	struct config c;
	int r = config_read(str_from(text), "conf/guard.yaml", &c, &problems);

	if (r < 0)
		fail_msg("%s\n%d %s", text, r, problems.n ? problems.items[0].message : "");
	assert_int_equal(problems.n, 0);
	return c;
}

/* Equal, but that "..." in a wanted line stands for whatever follows in it. */
static bool same_text(const char *told, const char *want)
{
	for (; *want; told++, want++) {
		if (!strncmp(want, "...", 3)) {
			told += strcspn(told, "\n");
			want += 3;
		}
		if (*told != *want)
			return false;
	}
	return !*told;
}

/* Reads what must be bad, and compares every problem: "LINE:COLUMN: MESSAGE\n", in order of place. */
static void check_bad(const char *text, const char *want)
{
	const struct config untouched = {.max_connections = 4711};
	struct policy_problems problems = {0};
	struct config c = untouched;
	struct buf told = {0};
	int r = config_read(str_from(text), "conf/guard.yaml", &c, &problems);

	for (size_t i = 0; i < problems.n; i++)
		buf_printf(&told, "%u:%u: %s\n", problems.items[i].line, problems.items[i].column, problems.items[i].message);
	buf_add(&told, "", 1);
	if (!same_text(told.mem, want))
		fail_msg("%s\ngave\n%s\nnot\n%s", text, told.mem, want);
	assert_int_equal(r, -EINVAL);
	assert_memory_equal(&c, &untouched, sizeof(c));
	buf_free(&told);
	policy_problems_clear(&problems);
}

static void test_defaults(void **state)
{
	struct config c = good(BASE);

	assert_int_equal(c.n_listen, 1);
	assert_string_equal(c.listen[0].text, "127.0.0.1:3128");
	assert_string_equal(c.listen[0].role, "agent");
	assert_null(c.listen[0].fd_name);
	assert_int_equal(c.listen[0].address.sa.ss_family, AF_INET);
	assert_int_equal(c.listen[0].address.fd, -1);
	assert_string_equal(c.policy_path, "conf/policy.yaml");
	assert_false(c.has_metrics);
	assert_string_equal(c.dns_servers, "");
	assert_int_equal(c.dns_timeout_ms, 1000);
	assert_int_equal(c.dns_tries, 2);
	assert_int_equal(c.dns_cache, 10000);
	assert_int_equal(c.workers, 0);
	assert_int_equal(c.head_ms, 10000);
	assert_int_equal(c.connect_ms, 4000);
	assert_int_equal(c.idle_ms, 3600000);
	assert_int_equal(c.half_open_ms, 300000);
	assert_int_equal(c.drain_ms, 30000);
	assert_int_equal(c.max_connections, 20000);
	assert_string_equal(c.log_path, "stderr");
	assert_int_equal(c.log_level, LOG_LEVEL_INFO);
	config_clear(&c);
	assert_null(c.listen);
	config_clear(&c);
}

static void test_everything(void **state)
{
	struct config c = good("listen:\n"
			       "  - address: 127.0.0.1:3128\n"
			       "    role: agent\n"
			       "  - {address: \"[::1]:3129\", role: other}\n"
			       "  - {role: third, address: \"unix:/run/guard.sock\"}\n"
			       "  - address: fd:proxy\n"
			       "    role: fourth\n"
			       "policy: /etc/guard/policy.yaml\n"
			       "metrics: 127.0.0.1:9108\n"
			       "resolver: {servers: [192.0.2.53, \"192.0.2.54:5353\", \"[2001:db8::53]:53\"], timeout: 250ms, "
			       "tries: 3, cache: 0}\n"
			       "workers: 3\n"
			       "timeouts: {head: 5s, connect: 1s, idle: 2d, half_open: 1m, drain: 0s}\n"
			       "limits: {connections: 7}\n"
			       "log: {access: access.log, level: debug}\n");

	assert_int_equal(c.n_listen, 4);
	assert_int_equal(c.listen[1].address.sa.ss_family, AF_INET6);
	assert_int_equal(ntohs(((struct sockaddr_in6 *)&c.listen[1].address.sa)->sin6_port), 3129);
	assert_string_equal(c.listen[1].role, "other");
	assert_string_equal(((struct sockaddr_un *)&c.listen[2].address.sa)->sun_path, "/run/guard.sock");
	assert_string_equal(c.listen[3].fd_name, "proxy");
	assert_string_equal(c.listen[3].text, "fd:proxy");
	assert_string_equal(c.policy_path, "/etc/guard/policy.yaml");
	assert_true(c.has_metrics);
	assert_int_equal(ntohs(((struct sockaddr_in *)&c.metrics.sa)->sin_port), 9108);
	assert_string_equal(c.dns_servers, "192.0.2.53,192.0.2.54:5353,[2001:db8::53]:53");
	assert_int_equal(c.dns_timeout_ms, 250);
	assert_int_equal(c.dns_tries, 3);
	assert_int_equal(c.dns_cache, 0);
	assert_int_equal(c.workers, 3);
	assert_int_equal(c.head_ms, 5000);
	assert_int_equal(c.connect_ms, 1000);
	assert_int_equal(c.idle_ms, 2 * 86400000u);
	assert_int_equal(c.half_open_ms, 60000);
	assert_int_equal(c.drain_ms, 0);
	assert_int_equal(c.max_connections, 7);
	assert_string_equal(c.log_path, "conf/access.log");
	assert_int_equal(c.log_level, LOG_LEVEL_DEBUG);
	config_clear(&c);
}

/* Each key with the ends of its range, and one step beyond them. */
static void test_ranges(void **state)
{
	static const struct {
		const char *section, *key, *low, *high;
		uint64_t low_value, high_value;
		const char *too_low, *too_high, *range;
		size_t offset;
	} rows[] = {
#define AT(member) offsetof(struct config, member)
		{"resolver", "timeout", "50ms", "60s", 50, 60000, "49ms", "61s", "50ms to 60000ms", AT(dns_timeout_ms)},
		{"resolver", "tries", "1", "10", 1, 10, "0", "11", "1 to 10", AT(dns_tries)},
		{"resolver", "cache", "0", "1000000", 0, 1000000, NULL, "1000001", "0 to 1000000", AT(dns_cache)},
		{"timeouts", "head", "10ms", "1h", 10, 3600000, "9ms", "61m", "10ms to 3600000ms", AT(head_ms)},
		{"timeouts", "connect", "10ms", "1h", 10, 3600000, "0s", "2h", "10ms to 3600000ms", AT(connect_ms)},
		{"timeouts", "idle", "10ms", "30d", 10, 2592000000u, "9ms", "31d", "10ms to 2592000000ms", AT(idle_ms)},
		{"timeouts", "half_open", "10ms", "720h", 10, 2592000000u, "0ms", "721h", "10ms to 2592000000ms",
		 AT(half_open_ms)},
		{"timeouts", "drain", "0s", "1d", 0, 86400000, NULL, "25h", "0ms to 86400000ms", AT(drain_ms)},
		{"limits", "connections", "1", "1000000", 1, 1000000, "0", "1000001", "1 to 1000000", AT(max_connections)},
#undef AT
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		const char *const values[] = {rows[i].low, rows[i].high, rows[i].too_low, rows[i].too_high};

		for (int k = 0; k < 4; k++) {
			char text[300], want[300];

			if (!values[k])
				continue;
			snprintf(text, sizeof(text), BASE "%s:\n  %s: %s\n", rows[i].section, rows[i].key, values[k]);
			if (k < 2) {
				struct config c = good(text);
				uint64_t *got = (uint64_t *)((char *)&c + rows[i].offset);

				assert_true(*got == (k ? rows[i].high_value : rows[i].low_value));
				config_clear(&c);
				continue;
			}
			snprintf(want, sizeof(want), "6:%zu: %s is not in the range %s\n", strlen(rows[i].key) + 5, values[k],
				 rows[i].range);
			check_bad(text, want);
		}
	}
}

static void test_workers(void **state)
{
	struct config c = good(BASE "workers: auto\n");

	assert_int_equal(c.workers, 0);
	config_clear(&c);
	c = good(BASE "workers: 256\n");
	assert_int_equal(c.workers, 256);
	config_clear(&c);
	check_bad(BASE "workers: 0\n", "5:10: 0 is not in the range 1 to 256\n");
	check_bad(BASE "workers: 257\n", "5:10: 257 is not in the range 1 to 256\n");
	check_bad(BASE "workers: many\n", "5:10: \"many\" is no number\n");
	check_bad(BASE "workers: [1]\n", "5:10: a list stands here where a number should be\n");
}

static void test_paths(void **state)
{
	static const struct {
		const char *config, *written, *want;
	} rows[] = {
		{"conf/guard.yaml", "p.yaml", "conf/p.yaml"},     {"guard.yaml", "p.yaml", "p.yaml"},
		{"/etc/guard/g.yaml", "p.yaml", "/etc/guard/p.yaml"}, {"/g.yaml", "p.yaml", "/p.yaml"},
		{"conf/guard.yaml", "/abs/p.yaml", "/abs/p.yaml"}, {"a/b/g.yaml", "../p.yaml", "a/b/../p.yaml"},
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct policy_problems problems = {0};
		struct config c;
		char text[300];

		snprintf(text, sizeof(text), LISTEN "policy: %s\nlog: {access: %s}\n", rows[i].written, rows[i].written);
		assert_int_equal(config_read(str_from(text), rows[i].config, &c, &problems), 0);
		assert_string_equal(c.policy_path, rows[i].want);
		assert_string_equal(c.log_path, rows[i].want);
		config_clear(&c);
	}
}

static void test_log_words(void **state)
{
	static const char *const words[] = {"stderr", "stdout"}, *const levels[] = {"error", "warning", "info", "debug"};

	for (int i = 0; i < 2; i++) {
		char text[200];
		struct config c;

		snprintf(text, sizeof(text), BASE "log:\n  access: %s\n", words[i]);
		c = good(text);
		assert_string_equal(c.log_path, words[i]);
		config_clear(&c);
	}
	for (int i = 0; i < 4; i++) {
		char text[200];
		struct config c;

		snprintf(text, sizeof(text), BASE "log:\n  level: %s\n", levels[i]);
		c = good(text);
		assert_int_equal(c.log_level, i);
		config_clear(&c);
	}
	check_bad(BASE "log:\n  level: loud\n", "6:10: unknown level\n");
	check_bad(BASE "log:\n  access: \"\"\n", "6:11: access must be a text\n");
}

static void test_unknown_keys(void **state)
{
	check_bad("colour: blue\n" BASE, "1:1: unknown key \"colour\"\n");
	check_bad(BASE "timeouts:\n  haed: 1s\n", "6:3: unknown key \"haed\"\n");
	check_bad(BASE "limits: {conections: 5}\n", "5:10: unknown key \"conections\"\n");
	check_bad(BASE "resolver: {server: []}\n", "5:12: unknown key \"server\"\n");
	check_bad(BASE "log: {file: x}\n", "5:7: unknown key \"file\"\n");
	check_bad("listen:\n  - address: 127.0.0.1:3128\n    role: agent\n    port: 80\npolicy: p\n",
		  "4:5: unknown key \"port\"\n");
	check_bad(BASE "policy: again.yaml\n", "5:1: key \"policy\" is given twice, first at line 4, column 1\n");
}

static void test_shapes(void **state)
{
	check_bad("", "1:1: the configuration must be a map of keys\n");
	check_bad("- a\n- b\n", "1:1: the configuration must be a map of keys\n");
	check_bad("word\n", "1:1: the configuration must be a map of keys\n");
	check_bad(BASE "timeouts: 5s\n", "5:11: timeouts must be a map of keys\n");
	check_bad(BASE "limits: []\n", "5:9: limits must be a map of keys\n");
	check_bad(BASE "log: stderr\n", "5:6: log must be a map of keys\n");
	check_bad(BASE "resolver: [192.0.2.1]\n", "5:11: resolver must be a map of keys\n");
	check_bad(BASE "resolver:\n  servers: 192.0.2.1\n", "6:12: servers must be a list of addresses\n");
	check_bad(BASE "timeouts:\n  head: 5\n", "6:9: \"5\" is no duration\n");
	check_bad(BASE "timeouts:\n  head: 5 s\n", "6:9: \"5 s\" is no duration\n");
	check_bad(BASE "timeouts:\n  head: -5s\n", "6:9: \"-5s\" is no duration\n");
	check_bad(BASE "limits:\n  connections: 1e3\n", "6:16: \"1e3\" is no number\n");
	check_bad(BASE "metrics: [a]\n", "5:10: metrics must be a text\n");
	check_bad(LISTEN "policy: {a: b}\n", "4:9: policy must be a text\n");
	check_bad(LISTEN "policy:\n", "4:8: policy must be a text\n");
}

static void test_listeners(void **state)
{
	char many[64 * 60 + 200] = "policy: p\nlisten:\n";
	struct config c;

	check_bad("policy: p\n", "1:1: listen must be a list of 1 to 64 addresses\n");
	check_bad("policy: p\nlisten: []\n", "2:9: listen must be a list of 1 to 64 addresses\n");
	check_bad("policy: p\nlisten: 127.0.0.1:80\n", "2:9: listen must be a list of 1 to 64 addresses\n");
	check_bad("policy: p\nlisten: [127.0.0.1:80]\n", "2:10: each listener is a map with address and role\n");
	check_bad("policy: p\nlisten:\n  - role: agent\n", "3:5: the listener has no address\n");
	check_bad("policy: p\nlisten:\n  - address: 127.0.0.1:80\n", "3:5: the listener has no role\n");
	check_bad("policy: p\nlisten:\n  - address: []\n    role: {}\n",
		  "3:14: address must be a text\n4:11: role must be a text\n");
	check_bad("policy: p\nlisten:\n  - {address: \"127.0.0.1:80\", role: 01234567890123456789012345678901234567890123456789"
		  "012345678901234}\n",
		  "3:37: a role name has at most 64 bytes\n");
	check_bad("policy: p\nlisten:\n  - {address: \"localhost:80\", role: a}\n",
		  "3:15: not an address to listen on: expected an IP address, not a name\n");
	check_bad("policy: p\nlisten:\n  - {address: \"127.0.0.1\", role: a}\n",
		  "3:15: not an address to listen on: expected ADDRESS:PORT, \"[IPv6]:PORT\" or unix:PATH\n");
	check_bad(BASE "metrics: 127.0.0.1\n",
		  "5:10: not an address to listen on: expected ADDRESS:PORT, \"[IPv6]:PORT\" or unix:PATH\n");
	for (int i = 0; i < 64; i++)
		snprintf(many + strlen(many), sizeof(many) - strlen(many), "  - {address: \"127.0.0.1:%d\", role: a}\n", i + 1);
	c = good(many);
	assert_int_equal(c.n_listen, 64);
	config_clear(&c);
	snprintf(many + strlen(many), sizeof(many) - strlen(many), "  - {address: \"127.0.0.1:80\", role: a}\n");
	check_bad(many, "3:3: listen must be a list of 1 to 64 addresses\n");
}

static void test_servers(void **state)
{
	check_bad(LISTEN "policy: p\nresolver:\n  servers: [192.0.2.1, nonsense]\n",
		  "6:24: not a name server: ...\n");
	check_bad(LISTEN "policy: p\nresolver:\n  servers: [{a: b}]\n", "6:13: a server must be a text\n");
}

/* All of them at once, in the order of their places. */
static void test_every_problem_is_told(void **state)
{
	check_bad("workers: none\n"
		  "log: {level: x}\n"
		  "limits: {connections: 0}\n"
		  "timeouts: {head: 1, idle: 2}\n"
		  "colour: blue\n"
		  "listen:\n"
		  "  - address: x\n"
		  "metrics: y\n",
		  "1:1: policy is missing: the guard has nothing to allow by\n"
		  "1:10: \"none\" is no number\n"
		  "2:14: unknown level\n"
		  "3:23: 0 is not in the range 1 to 1000000\n"
		  "4:18: \"1\" is no duration\n"
		  "4:27: \"2\" is no duration\n"
		  "5:1: unknown key \"colour\"\n"
		  "7:5: the listener has no role\n"
		  "7:14: not an address to listen on: expected ADDRESS:PORT, \"[IPv6]:PORT\" or unix:PATH\n"
		  "8:10: not an address to listen on: expected ADDRESS:PORT, \"[IPv6]:PORT\" or unix:PATH\n");
}

/* What the strict reader of YAML refuses does not hide the rest; nothing is told twice. */
static void test_yaml_problems(void **state)
{
	check_bad(BASE "policy: again.yaml\nworkers: 0\n",
		  "5:1: key \"policy\" is given twice, first at line 4, column 1\n6:10: 0 is not in the range 1 to 256\n");
	check_bad(LISTEN "policy: *p\nlog: &l {level: x}\nworkers: !!int 5\n",
		  "4:9: aliases...\n5:6: anchors...\n6:10: tags...\n");
	check_bad("listen:\n  - *a\n  - &b {}\npolicy: p\nresolver: {servers: *s}\n",
		  "2:5: aliases...\n3:5: anchors...\n5:21: aliases...\n");
	check_bad("workers: 0\nlisten:\n  - {address: [}\n", "3:16: YAML syntax: ...\n");
	check_bad("listen: *l\npolicy: \"a\\nb\"\n", "1:9: aliases...\n2:9: the text holds a tab or line break\n");
}

/* The configuration that is shipped reads well. */
static void test_shipped(void **state)
{
	struct policy_problems problems = {0};
	struct config c;
	char *text;
	size_t n;

	if (access("conf/egress-guard.yaml", R_OK) < 0)
		skip(); /* not started in the top folder */
	assert_int_equal(config_read_file("conf/egress-guard.yaml", 65536, &text, &n), 0);
	assert_int_equal(config_read((struct str){text, n}, "conf/egress-guard.yaml", &c, &problems), 0);
	config_clear(&c);
	free(text);
}

/* --- files --- */

static void write_file(const char *path, size_t n)
{
	int fd = open(path, O_CREAT | O_WRONLY | O_TRUNC, 0600);

	assert_true(fd >= 0);
	for (size_t i = 0; i < n; i += 1000) {
		char part[1000];

		memset(part, 'a' + (int)(i / 1000 % 26), sizeof(part));
		assert_int_equal(write(fd, part, n - i < 1000 ? n - i : 1000), n - i < 1000 ? n - i : 1000);
	}
	close(fd);
}

static void test_read_file(void **state)
{
	static const size_t sizes[] = {0, 1, 65534, 65535, 65536, 65537, 200000, 300000};
	char folder[] = "/tmp/test_config.XXXXXX", path[64], *text = NULL;
	size_t n = 0;

	assert_non_null(mkdtemp(folder));
	snprintf(path, sizeof(path), "%s/file", folder);
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		write_file(path, sizes[i]);
		assert_int_equal(config_read_file(path, 300000, &text, &n), 0);
		assert_int_equal(n, sizes[i]);
		assert_int_equal(text[n], '\0');
		for (size_t k = 0; k < n; k++)
			if (text[k] != (char)('a' + k / 1000 % 26))
				fail_msg("byte %zu is wrong", k);
		free(text);
	}
	text = NULL;
	assert_int_equal(config_read_file(path, 299999, &text, &n), -EFBIG);
	assert_int_equal(config_read_file("/dev/zero", 100000, &text, &n), -EFBIG); /* has no end */
	assert_int_equal(config_read_file(folder, 300000, &text, &n), -EISDIR);
	assert_int_equal(unlink(path), 0);
	assert_int_equal(config_read_file(path, 300000, &text, &n), -ENOENT);
	assert_null(text);
	assert_int_equal(rmdir(folder), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_defaults),
		cmocka_unit_test(test_everything),
		cmocka_unit_test(test_ranges),
		cmocka_unit_test(test_workers),
		cmocka_unit_test(test_paths),
		cmocka_unit_test(test_log_words),
		cmocka_unit_test(test_unknown_keys),
		cmocka_unit_test(test_shapes),
		cmocka_unit_test(test_listeners),
		cmocka_unit_test(test_servers),
		cmocka_unit_test(test_every_problem_is_told),
		cmocka_unit_test(test_yaml_problems),
		cmocka_unit_test(test_shipped),
		cmocka_unit_test(test_read_file),
	};

	return cmocka_run_group_tests_name("config", tests, NULL, NULL);
}
