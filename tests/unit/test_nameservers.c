/* The texts that name the servers: the configuration's and resolv.conf's. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <cmocka.h>

#include "net/nameservers.h"

static void assert_servers(const char *text, int result, size_t n)
{
	struct nameservers s = {.n = 0};
	const char *why = NULL;
	int r = nameservers_parse(str_from(text), &s, &why);

	if (r != result || s.n != n)
		print_error("\"%s\": %d with %zu\n", text, r, s.n);
	assert_int_equal(r, result);
	assert_int_equal(s.n, n);
	assert_true((why != NULL) == (result < 0));
}

static void test_server_texts(void **state)
{
	struct nameservers s;
	const char *why;
	char text[ADDR_TEXT_MAX];

	assert_servers("192.0.2.53", 0, 1);
	assert_servers("192.0.2.53:5353,[2001:db8::53]:53,2001:db8::54,[2001:db8::55]", 0, 4);
	assert_servers("::ffff:192.0.2.1", 0, 1);
	assert_servers("1.1.1.1,1.1.1.2,1.1.1.3,1.1.1.4,1.1.1.5,1.1.1.6,1.1.1.7,1.1.1.8", 0, 8);
	assert_servers("1.1.1.1,1.1.1.2,1.1.1.3,1.1.1.4,1.1.1.5,1.1.1.6,1.1.1.7,1.1.1.8,1.1.1.9", -EINVAL, 0);
	assert_servers("", -EINVAL, 0);
	assert_servers(",", -EINVAL, 0);
	assert_servers("192.0.2.53,", -EINVAL, 0);
	assert_servers("192.0.2.53, 192.0.2.54", -EINVAL, 0);
	assert_servers("192.0.2.53:0", -EINVAL, 0);
	assert_servers("192.0.2.53:", -EINVAL, 0);
	assert_servers("192.0.2.53:65536", -EINVAL, 0);
	assert_servers("192.0.2.053", -EINVAL, 0);
	assert_servers("[2001:db8::53", -EINVAL, 0);
	assert_servers("[2001:db8::53]5", -EINVAL, 0);
	assert_servers("[2001:db8::53]:", -EINVAL, 0);
	assert_servers("[192.0.2.1]:53", -EINVAL, 0);
	assert_servers("[]:53", -EINVAL, 0);
	assert_servers("[", -EINVAL, 0);
	assert_servers("fe80::1%eth0", -EINVAL, 0);
	assert_servers("dns.example.org", -EINVAL, 0);
	assert_servers("0.0.0.0", -EINVAL, 0);
	assert_servers("::", -EINVAL, 0);
	assert_int_equal(nameservers_parse(STR_LIT("[2001:db8::53]:5353"), &s, &why), 0);
	addr_format(&s.items[0].addr, text);
	assert_string_equal(text, "2001:db8::53");
	assert_int_equal(s.items[0].port, 5353);
}

static void assert_resolv_conf(struct str text, int result, size_t n)
{
	struct nameservers s = {.n = 0};
	const char *why = NULL;
	int r = nameservers_parse_resolv_conf(text, &s, &why);

	if (r != result || s.n != n)
		print_error("%.*s: %d with %zu\n", STR_ARG(text), r, s.n);
	assert_int_equal(r, result);
	assert_int_equal(s.n, n);
	for (size_t i = 0; i < s.n; i++)
		assert_int_equal(s.items[i].port, 53);
}

static void test_resolv_conf(void **state)
{
	assert_resolv_conf(STR_LIT("nameserver 192.0.2.1\nnameserver 2001:db8::1\n"), 0, 2);
	assert_resolv_conf(STR_LIT("# nameserver 192.0.2.9\n;nameserver 192.0.2.8\nsearch x\noptions ndots:5 rotate\n"
				   "  nameserver\t192.0.2.1 trailing\r\nnameserver 192.0.2.2"), 0, 2);
	assert_resolv_conf(STR_LIT("\0nameserver 192.0.2.1\n\0\nnameserver 192.0.2.2\n"), 0, 1);
	assert_resolv_conf(STR_LIT("nameserver fe80::1%eth0\nnameserver 192.0.2.2\n"), 0, 1);
	assert_resolv_conf(STR_LIT(""), -EINVAL, 0);
	assert_resolv_conf(STR_LIT("search example.org\n"), -EINVAL, 0);
	assert_resolv_conf(STR_LIT("nameservers 192.0.2.1\n"), -EINVAL, 0);
	assert_resolv_conf(STR_LIT("nameserver\n"), -EINVAL, 0);
	assert_resolv_conf(STR_LIT("nameserver 192.0.2.1\nnameserver 192.0.2\n"), -EINVAL, 0);
	assert_resolv_conf(STR_LIT("nameserver 192.0.2.1:53\n"), -EINVAL, 0);
	assert_resolv_conf(STR_LIT("nameserver [2001:db8::1]\n"), -EINVAL, 0);
	assert_resolv_conf(STR_LIT("nameserver 192.0.2.1\0\n"), -EINVAL, 0);
	assert_resolv_conf(STR_LIT("nameserver fe80::1%eth0\n"), -EINVAL, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_server_texts),
		cmocka_unit_test(test_resolv_conf),
	};

	return cmocka_run_group_tests_name("nameservers", tests, NULL, NULL);
}
