/* The host's own addresses, in a network namespace of the test's own, against the real kernel. Skipped where no
 * namespace can be made. */
#include <errno.h>
#include <fcntl.h>
#include <linux/rtnetlink.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/counter.h"
#include "net/ownaddr.h"

static struct event_base *base;
static struct ownaddr *own;
static int fd_watch, fd_ask;

static void ip(const char *arguments)
{
	char command[256];

	snprintf(command, sizeof(command), "ip %s", arguments);
	if (system(command) != 0)
		fail_msg("%s", command);
}

static bool is_own(const char *text)
{
	struct addr a;

	assert_true(addr_parse(str_from(text), &a));
	return addrset_find(ownaddr_set(own), &a, 0) != NULL;
}

static int setup(void **state)
{
	base = event_base_new();
	fd_watch = open("/dev/null", O_RDONLY | O_CLOEXEC); /* the numbers that its two sockets will get */
	fd_ask = open("/dev/null", O_RDONLY | O_CLOEXEC);
	close(fd_watch);
	close(fd_ask);
	assert_non_null(base);
	assert_int_equal(ownaddr_new(base, &own), 0);
	return 0;
}

static int teardown(void **state)
{
	own = ownaddr_free(own);
	event_base_free(base);
	return 0;
}

static void test_loopback(void **state)
{
	assert_true(is_own("127.0.0.1"));
	assert_true(is_own("127.200.3.4"));
	assert_true(is_own("::1"));
	assert_false(is_own("93.184.216.34"));
	assert_false(is_own("128.0.0.1"));
	assert_false(is_own("2606:2800::1"));
	assert_false(is_own("::"));
}

/* Known the moment after, without a turn of the loop; gone likewise. */
static void test_changes(void **state)
{
	assert_false(is_own("93.184.216.34"));
	ip("addr add 93.184.216.34/24 brd + dev d0");
	assert_true(is_own("93.184.216.34"));
	assert_true(is_own("93.184.216.255"));
	assert_false(is_own("93.184.216.35"));
	ip("addr add 2606:2800::7/64 dev d0 nodad");
	assert_true(is_own("2606:2800::7"));
	assert_false(is_own("2606:2800::8"));
	ip("addr del 93.184.216.34/24 dev d0");
	assert_false(is_own("93.184.216.34"));
	assert_true(is_own("2606:2800::7"));
	ip("addr del 2606:2800::7/64 dev d0");
	assert_false(is_own("2606:2800::7"));
}

static void test_routes(void **state)
{
	ip("route add local 198.18.0.0/15 dev lo");
	ip("-6 route add local 2606:2800:9::/48 dev lo");
	assert_true(is_own("198.19.3.4"));
	assert_false(is_own("198.20.0.0"));
	assert_true(is_own("2606:2800:9:ffff::1"));
	ip("route add local 203.0.114.0/24 dev lo table main");
	assert_true(is_own("203.0.114.9"));
	/* Used for marked packets only: not what a plain connection meets. */
	ip("route add local default dev lo table 100");
	ip("-6 route add local default dev lo table 100");
	assert_false(is_own("93.184.216.34"));
	assert_false(is_own("2606:2800::1"));
	/* Ordinary routes are not ours. */
	ip("route add 203.0.115.0/24 dev lo");
	assert_false(is_own("203.0.115.1"));
	ip("route del local 198.18.0.0/15 dev lo table local");
	assert_false(is_own("198.19.3.4"));
	ip("route flush table 100");
	ip("-6 route flush table 100");
}

/* The other end of a point-to-point link is not this host. */
static void test_peer(void **state)
{
	ip("addr add 203.0.113.1 peer 203.0.113.2 dev d0");
	assert_true(is_own("203.0.113.1"));
	assert_false(is_own("203.0.113.2"));
	ip("addr del 203.0.113.1 peer 203.0.113.2 dev d0");
}

/* More changes than the socket holds: it overflows, and all is read anew. */
static void test_overflow(void **state)
{
	FILE *f = popen("ip -batch -", "w");

	assert_non_null(f);
	for (int i = 0; i < 4000; i++)
		fprintf(f, "addr add 198.18.%d.%d/32 dev d0\n", i / 250, i % 250 + 1);
	assert_int_equal(pclose(f), 0);
	for (int i = 0; i < 4000; i += 499) {
		char text[32];

		snprintf(text, sizeof(text), "198.18.%d.%d", i / 250, i % 250 + 1);
		assert_true(is_own(text));
	}
	assert_true(is_own("198.18.15.250"));
	assert_false(is_own("198.18.16.1"));
	ip("addr flush dev d0 to 198.18.0.0/16");
	assert_false(is_own("198.18.0.1"));
	assert_true(is_own("127.0.0.1"));
}

/* The loop alone keeps the set current too, and an unchanged host is not read again. */
static void test_loop(void **state)
{
	uint64_t reads = counter_sum(COUNTER_OWN_READS);

	assert_true(is_own("127.0.0.1"));
	assert_true(is_own("127.0.0.1"));
	assert_int_equal(counter_sum(COUNTER_OWN_READS), reads);
	ip("addr add 93.184.216.40/32 dev d0");
	event_base_loop(base, EVLOOP_ONCE);
	assert_int_equal(counter_sum(COUNTER_OWN_READS), reads + 1);
	assert_true(is_own("93.184.216.40"));
	assert_int_equal(counter_sum(COUNTER_OWN_READS), reads + 1);
	ip("addr del 93.184.216.40/32 dev d0");
}

/* A read that fails costs no address, and is made up for by the timer. */
static void test_failed_read(void **state)
{
	int kept = dup(fd_ask), null = open("/dev/null", O_RDWR | O_CLOEXEC);
	uint64_t errors = counter_sum(COUNTER_OWN_READ_ERRORS);

	ip("addr add 93.184.216.41/32 dev d0");
	assert_true(is_own("93.184.216.41"));
	assert_true(dup2(null, fd_ask) == fd_ask);
	ip("addr add 93.184.216.42/32 dev d0");
	assert_true(is_own("93.184.216.41"));
	assert_true(is_own("127.0.0.1"));
	assert_false(is_own("93.184.216.42"));
	assert_true(counter_sum(COUNTER_OWN_READ_ERRORS) > errors);
	assert_true(dup2(kept, fd_ask) == fd_ask);
	errors = counter_sum(COUNTER_OWN_READS);
	while (counter_sum(COUNTER_OWN_READS) == errors)
		event_base_loop(base, EVLOOP_ONCE);
	errors = counter_sum(COUNTER_OWN_READS);
	assert_true(is_own("93.184.216.42"));
	assert_int_equal(counter_sum(COUNTER_OWN_READS), errors);
	close(kept);
	close(null);
	ip("addr del 93.184.216.41/32 dev d0");
	ip("addr del 93.184.216.42/32 dev d0");
}

/* What another process sends to the socket is not the kernel's word, and harms nothing. */
static void test_forged_message(void **state)
{
	struct sockaddr_nl to = {.nl_family = AF_NETLINK};
	socklen_t len = sizeof(to);
	struct nlmsghdr h = {.nlmsg_len = sizeof(h), .nlmsg_type = RTM_NEWADDR};
	int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);
	uint64_t reads = counter_sum(COUNTER_OWN_READS);

	assert_int_equal(getsockname(fd_watch, (struct sockaddr *)&to, &len), 0);
	to.nl_groups = 0;
	if (sendto(fd, &h, sizeof(h), 0, (struct sockaddr *)&to, sizeof(to)) == sizeof(h)) {
		assert_true(is_own("127.0.0.1"));
		assert_int_equal(counter_sum(COUNTER_OWN_READS), reads);
	}
	close(fd);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
	const struct CMUnitTest tests[] = {
		T(test_loopback), T(test_changes), T(test_routes), T(test_peer), T(test_overflow), T(test_loop),
		T(test_failed_read), T(test_forged_message),
	};
#undef T

	if ((unshare(CLONE_NEWNET) < 0 && unshare(CLONE_NEWUSER | CLONE_NEWNET) < 0) ||
	    system("ip link set lo up && ip link add d0 type veth peer name d1 && ip link set d0 up") != 0) {
		puts("# skipped: no network namespace of its own with a veth pair");
		return 0;
	}
	if (counter_attach() < 0)
		return 1;
	return cmocka_run_group_tests_name("ownaddr", tests, NULL, NULL);
}
