/* The verdict table: that its rows keep the promises that replies, logs and metrics build on. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>

#include <cmocka.h>

#include "policy/verdict.h"

static void test_zero_is_refusal(void **state)
{
	enum verdict zero = 0;

	assert_int_equal(zero, VERDICT_UNDECIDED);
	assert_int_not_equal(VERDICT_ALLOW, 0);
	assert_int_equal(verdict_row(zero)->status, 500);
}

static void test_out_of_range(void **state)
{
	static const int values[] = {-1, VERDICT_N, VERDICT_N + 1, 1000000, -1000000};

	for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++) {
		assert_ptr_equal(verdict_row((enum verdict)values[i]), verdict_row(VERDICT_UNDECIDED));
		assert_string_equal(verdict_code((enum verdict)values[i]), "undecided");
	}
}

/* RFC 9209 2.3: the registered error types, of which a reply may name no other. */
static bool registered(const char *error)
{
	static const char *const types[] = {
		"dns_timeout", "dns_error", "destination_not_found", "destination_unavailable",
		"destination_ip_prohibited",
		"destination_ip_unroutable", "connection_refused", "connection_terminated", "connection_timeout",
		"connection_read_timeout", "connection_write_timeout", "connection_limit_reached", "tls_protocol_error",
		"tls_certificate_error", "tls_alert_received", "http_request_error", "http_request_denied",
		"http_response_incomplete", "http_response_header_section_size", "http_response_header_size",
		"http_response_body_size", "http_response_trailer_section_size", "http_response_trailer_size",
		"http_response_transfer_coding", "http_response_content_coding", "http_response_timeout",
		"http_upgrade_failed", "http_protocol_error", "proxy_internal_response", "proxy_internal_error",
		"proxy_configuration_error", "proxy_loop_detected",
	};

	for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++)
		if (strcmp(error, types[i]) == 0)
			return true;
	return false;
}

static void test_rows(void **state)
{
	for (int v = 0; v < VERDICT_N; v++) {
		const struct verdict_row *r = verdict_row((enum verdict)v);
		enum verdict back = VERDICT_N;

		assert_true(r->code[0] && r->what[0]);
		assert_true(verdict_from_code(str_from(r->code), &back)); /* also proves that no code stands twice */
		assert_int_equal(back, v);
		assert_string_equal(verdict_code((enum verdict)v), r->code);
		for (const char *p = r->code; *p; p++)
			assert_true((*p >= 'a' && *p <= 'z') || *p == '_' || ascii_is_digit(*p));
		for (const char *p = r->what; *p; p++) /* goes into a status line, a quoted string and JSON */
			assert_true(*p >= ' ' && *p <= '~' && *p != '"' && *p != '\\');
		if (r->status == 0) {
			assert_string_equal(r->proxy_status, "");
		} else {
			assert_in_range(r->status, 400, 599);
			if (!registered(r->proxy_status))
				fail_msg("%s: %s", r->code, r->proxy_status);
		}
		if (r->status == 403 || r->status == 402) /* clients hammer what they think will pass; these never do */
			assert_false(r->retry);
	}
	assert_int_equal(verdict_row(VERDICT_ALLOW)->status, 0);
}

/* The codes of the public contract, with their statuses. */
static void test_contract(void **state)
{
	static const struct {
		const char *code;
		int status;
	} cases[] = {
		{"bad_request", 400},        {"bad_target", 400},         {"bad_framing", 400},
		{"head_too_large", 431},     {"method_not_allowed", 405}, {"scheme_not_supported", 501},
		{"port_not_allowed", 403},   {"host_not_allowed", 403},   {"host_denied", 403},
		{"name_special", 403},       {"address_private", 403},    {"address_loopback", 403},
		{"address_link_local", 403}, {"address_metadata", 403},   {"address_multicast", 403},
		{"address_reserved", 403},   {"address_own", 403},        {"address_denied", 403},
		{"dns_not_found", 502},      {"dns_failed", 502},         {"dns_timeout", 504},
		{"connect_refused", 502},    {"connect_unreachable", 502}, {"connect_timeout", 504},
		{"origin_protocol", 502},    {"shutting_down", 503},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		enum verdict v;

		if (!verdict_from_code(str_from(cases[i].code), &v))
			fail_msg("no code %s", cases[i].code);
		assert_int_equal(verdict_row(v)->status, cases[i].status);
	}
}

static void test_unknown_codes(void **state)
{
	static const struct str cases[] = {STR_LIT(""), STR_LIT("allow"), STR_LIT("ALLOWED"), STR_LIT("allowed "),
					   STR_LIT("allowed\0"), STR_LIT("address_"), STR_LIT("address_privat")};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		enum verdict v = VERDICT_BAD_TARGET;

		assert_false(verdict_from_code(cases[i], &v));
		assert_int_equal(v, VERDICT_BAD_TARGET);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_zero_is_refusal), cmocka_unit_test(test_out_of_range),
		cmocka_unit_test(test_rows),
		cmocka_unit_test(test_contract),        cmocka_unit_test(test_unknown_codes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
