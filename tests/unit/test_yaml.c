/* Strict YAML: the tree and its places, what is refused and where, scalars with meaning. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>

#include "yaml.h"

static struct yaml_doc *parse(const char *text)
{
	struct policy_problems problems = {0};
	struct yaml_doc *doc = NULL;

	assert_int_equal(yaml_parse(str_from(text), &doc, &problems), 0);
	assert_int_equal(problems.n, 0);
	assert_non_null(doc);
	return doc;
}

static void check_place(const struct yaml_node *n, uint32_t line, uint32_t column, const char *text)
{
	assert_non_null(n);
	assert_int_equal(n->line, line);
	assert_int_equal(n->column, column);
	if (text)
		assert_true(str_eq(n->text, str_from(text)));
}

static void test_tree(void **state)
{
	struct yaml_doc *doc = parse("a: 1\nb:\n  - x\n  - 'y'\n  - {c: [], d: \"\"}\ne:\n");
	const struct yaml_node *root = yaml_root(doc), *b = yaml_get(root, "b");

	assert_int_equal(root->kind, YAML_MAP);
	assert_int_equal(root->n, 3);
	check_place(root, 1, 1, NULL);
	check_place(yaml_get(root, "a"), 1, 4, "1");
	check_place(yaml_get(root, "a")->key, 1, 1, "a");
	assert_int_equal(b->kind, YAML_LIST);
	assert_int_equal(b->n, 3);
	check_place(b->child, 3, 5, "x");
	assert_false(b->child->quoted);
	check_place(b->child->next, 4, 5, "y");
	assert_true(b->child->next->quoted);
	check_place(yaml_get(b->child->next->next, "c"), 5, 9, NULL);
	check_place(yaml_get(b->child->next->next, "d"), 5, 16, "");
	assert_null(b->child->next->next->next);
	assert_int_equal(yaml_get(root, "e")->text.n, 0);
	assert_null(yaml_get(root, "f"));
	assert_null(yaml_get(b, "c"));
	assert_null(yaml_get(NULL, "c"));
	assert_null(yaml_doc_free(doc));
	assert_null(yaml_doc_free(NULL));
	assert_null(yaml_root(NULL));
}

/* Columns count bytes, lines end with LF, CRLF or CR. */
static void test_places(void **state)
{
	struct yaml_doc *doc = parse("ü: [é, 日本, x]\r\nb: y\rc: z\n\n# ü\n  \nd: {\xf0\x9f\x98\x80: w}\n");
	const struct yaml_node *list = yaml_root(doc)->child;

	check_place(list, 1, 5, NULL);
	check_place(list->child, 1, 6, "é");
	check_place(list->child->next, 1, 10, "日本");
	check_place(list->child->next->next, 1, 18, "x");
	check_place(yaml_get(yaml_root(doc), "b"), 2, 4, "y");
	check_place(yaml_get(yaml_root(doc), "c"), 3, 4, "z");
	check_place(yaml_get(yaml_root(doc), "d")->child, 7, 11, "w");
	yaml_doc_free(doc);
}

static void test_empty(void **state)
{
	static const char *const texts[] = {"", "\n", "# only\n", "\r\n"};

	for (size_t i = 0; i < sizeof(texts) / sizeof(*texts); i++) {
		struct yaml_doc *doc = parse(texts[i]);

		assert_null(yaml_root(doc));
		yaml_doc_free(doc);
	}
}

/* Text is text: no booleans, numbers, nulls, times. */
static void test_plain_text(void **state)
{
	static const char *const words[] = {"no", "NO", "on", "y", "~", "null", "0o17", "1_000", "12:30", "0x1f", "1e3", ".inf"};
	char text[64];

	for (size_t i = 0; i < sizeof(words) / sizeof(*words); i++) {
		struct yaml_doc *doc;

		snprintf(text, sizeof(text), "k: %s\n", words[i]);
		doc = parse(text);
		check_place(yaml_get(yaml_root(doc), "k"), 1, 4, words[i]);
		yaml_doc_free(doc);
	}
}

static const struct {
	struct str text;
	uint32_t line, column;
	const char *message, *hint; /* parts of them */
} refused[] = {
	{STR_LIT("\xef\xbb\xbf" "a: b\n"), 1, 1, "byte order mark", "without BOM"},     /* f041 */
	{STR_LIT("\xff\xfe" "a\0:\0"), 1, 1, "UTF-16", "UTF-8"},                         /* f041 */
	{STR_LIT("\xfe\xff" "\0a\0:"), 1, 1, "UTF-16", "UTF-8"},
	{STR_LIT("a\0:\0 \0b\0"), 1, 1, "UTF-16", "UTF-8"},
	{STR_LIT("allow: [a]\xc2\x85" "deny: [b]\n"), 1, 11, "NEL", "remove"},           /* f041 */
	{STR_LIT("a: b\xe2\x80\xa8" "c: d\n"), 1, 5, "line break that only some", NULL}, /* f041 */
	{STR_LIT("a: b\xe2\x80\xa9" "c: d\n"), 1, 5, "line break that only some", NULL},
	{STR_LIT("a: b\nc: \0d\n"), 2, 4, "a NUL byte", NULL},                           /* f047 */
	{STR_LIT("a: b\x1b[2J\n"), 1, 5, "a control character", NULL},
	{STR_LIT("a: b\x7f\n"), 1, 5, "a control character", NULL},
	{STR_LIT("a: b\xc2\x9b\n"), 1, 5, "a control character", NULL},
	{STR_LIT("a: b # \xe2\x80\xae\n"), 1, 8, "direction of text here (U+202E)", NULL},
	{STR_LIT("a: x\xe2\x80\x8by\n"), 1, 5, "an invisible character here (U+200B)", NULL},
	{STR_LIT("a:\xc2\xa0" "b\n"), 1, 3, "not the ordinary space", NULL},
	{STR_LIT("a: b\xef\xbb\xbf\n"), 1, 5, "byte order mark", NULL},
	{STR_LIT("a: \xc0\xaf\n"), 1, 4, "byte 0xc0", "UTF-8"},
	{STR_LIT("a: \xe2\x82"), 1, 4, "byte 0xe2", NULL},
	{STR_LIT("a: \xed\xa0\x80\n"), 1, 4, "byte 0xed", NULL},
	{STR_LIT("a: \xf4\x90\x80\x80\n"), 1, 4, "byte 0xf4", NULL},
	{STR_LIT("a: \xf5\n"), 1, 4, "byte 0xf5", NULL},
	{STR_LIT("a: \xef\xbf\xbf\n"), 1, 4, "no character", NULL},
	{STR_LIT("a: b\n---\nc: d\n"), 2, 1, "second document", NULL},
	{STR_LIT("%TAG ! tag:x,2000:\n---\na: b\n"), 1, 1, "directives", NULL},
	{STR_LIT("a: &x b\n"), 1, 4, "anchors", NULL},
	{STR_LIT("a: *x\n"), 1, 4, "aliases", "quote"},
	{STR_LIT("a: !!str b\n"), 1, 4, "tags", NULL},
	{STR_LIT("a: ! b\n"), 1, 4, "tags", NULL},
	{STR_LIT("<<: {a: b}\n"), 1, 1, "merge keys", NULL},
	{STR_LIT("a: b\nc: d\na: e\n"), 3, 1, "given twice, first at line 1, column 1", NULL},
	{STR_LIT("[a, b]: c\n"), 1, 1, "cannot be a key", NULL},
	{STR_LIT("a: \"x\\ny\"\n"), 1, 4, "tab or line break", NULL},                    /* f043 */
	{STR_LIT("a: |\n  x\n"), 1, 4, "tab or line break", NULL},
	{STR_LIT("a: \"x\\0y\"\n"), 1, 4, "a NUL byte", NULL},                           /* f042 */
	{STR_LIT("a:\n\t- b\n"), 2, 1, "cannot start any token", "spaces"},              /* f040 */
	{STR_LIT("a: *.example.org\n"), 1, 4, "alias", "must be quoted: \"*.example.org\""},
	{STR_LIT("a:\n - *\n"), 2, 4, "alias", "must be quoted: \"*\""},
	{STR_LIT("a: [b, *.c]\n"), 1, 8, "alias", "must be quoted: \"*.c\""},
	{STR_LIT("a: @b\n"), 1, 4, "YAML syntax", "'@' must be quoted"},
	{STR_LIT("a: %b\n"), 1, 4, "YAML syntax", "'%' must be quoted"},
	{STR_LIT("a: `b`\n"), 1, 4, "YAML syntax", "'`' must be quoted"},
	{STR_LIT("a: [::1]\n"), 1, 5, "YAML syntax", "IPv6"},                            /* f046 */
	{STR_LIT("a: b: c\n"), 1, 5, "mapping values", "colon"},
	{STR_LIT("a: 'b\n"), 1, 4, "quoted scalar", NULL},
	{STR_LIT("a: {b: c\n"), 2, 1, "YAML syntax", NULL},
};

static void test_refused(void **state)
{
	for (size_t i = 0; i < sizeof(refused) / sizeof(*refused); i++) {
		struct policy_problems ps = {0};
		struct yaml_doc *doc = NULL;

		assert_int_equal(yaml_parse(refused[i].text, &doc, &ps), -EINVAL);
		assert_null(doc);
		assert_true(ps.n == 1 || ps.items[1].line != ps.items[0].line || ps.items[1].column != ps.items[0].column);
		if (ps.items[0].line != refused[i].line || ps.items[0].column != refused[i].column ||
		    !strstr(ps.items[0].message, refused[i].message))
			fail_msg("row %zu: %u:%u: %s", i, ps.items[0].line, ps.items[0].column, ps.items[0].message);
		if (refused[i].hint && (!ps.items[0].hint || !strstr(ps.items[0].hint, refused[i].hint)))
			fail_msg("row %zu: hint %s", i, ps.items[0].hint ? ps.items[0].hint : "(none)");
		policy_problems_clear(&ps);
	}
}

static char *repeat(const char *piece, size_t times, const char *end)
{
	size_t n = strlen(piece);
	char *z = malloc(n * times + strlen(end) + 1);

	assert_non_null(z);
	for (size_t i = 0; i < times; i++)
		memcpy(z + n * i, piece, n);
	memcpy(z + n * times, end, strlen(end) + 1);
	return z;
}

/* f029: the depth limit is met before libyaml's own quadratic work is. */
static void test_depth(void **state)
{
	static const struct {
		const char *piece, *end;
		size_t times;
		bool ok;
	} rows[] = {
		{"[", "", 1000000, false}, {"{a: ", "", 5000, false}, {"- ", "a\n", 5000, false}, {"? ", "a\n", 5000, false},
		{"[", "]]]]]]]]]]]]]]]]", 16, true}, {"[", "]]]]]]]]]]]]]]]]]", 17, false},
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		char *text = repeat(rows[i].piece, rows[i].times, rows[i].end);
		struct policy_problems ps = {0};
		struct yaml_doc *doc = NULL;

		assert_int_equal(yaml_parse(str_from(text), &doc, &ps), rows[i].ok ? 0 : -EINVAL);
		if (!rows[i].ok)
			assert_non_null(strstr(ps.items[ps.n - 1].message, "levels deep"));
		policy_problems_clear(&ps);
		yaml_doc_free(doc);
		free(text);
	}
}

static void test_limits(void **state)
{
	char *text = repeat(" ", POLICY_TEXT_MAX, "\n");
	char *nodes = repeat("- a\n", YAML_NODES_MAX, "- a\n");
	struct policy_problems ps = {0};
	struct yaml_doc *doc = NULL;

	assert_int_equal(yaml_parse(str_from(text), &doc, &ps), -EINVAL);
	assert_non_null(strstr(ps.items[0].message, "bytes, more than"));
	policy_problems_clear(&ps);
	assert_int_equal(yaml_parse((struct str){text, POLICY_TEXT_MAX}, &doc, &ps), 0);
	doc = yaml_doc_free(doc);
	assert_int_equal(yaml_parse(str_from(nodes), &doc, &ps), -EINVAL);
	assert_non_null(strstr(ps.items[0].message, "keys and values"));
	policy_problems_clear(&ps);
	assert_null(doc);
	free(text);
	free(nodes);
}

/* The list stays short however much is wrong, and what it holds is in order. */
static void test_capped(void **state)
{
	char *text = repeat("\x01\n", 1000, "");
	struct policy_problems ps = {0};
	struct yaml_doc *doc = NULL;

	assert_int_equal(yaml_parse(str_from(text), &doc, &ps), -EINVAL);
	assert_int_equal(ps.n, POLICY_PROBLEMS_MAX);
	assert_int_equal(ps.dropped, 1000 - POLICY_PROBLEMS_MAX);
	for (size_t i = 0; i < ps.n; i++)
		assert_int_equal(ps.items[i].line, i + 1);
	policy_problems_clear(&ps);
	assert_int_equal(ps.n, 0);
	assert_int_equal(ps.dropped, 0);
	free(text);
}

/* After a problem the rest is still read; after a syntax error what came before is still there. */
static void test_partial(void **state)
{
	struct policy_problems ps = {0};
	struct yaml_doc *doc = NULL;
	const struct yaml_node *root;

	assert_int_equal(yaml_parse_partial(STR_LIT("a: &x b\nc: [d, e]\nf: [g, *.h]\n"), &doc, &ps), 0);
	assert_int_equal(ps.n, 2);
	root = yaml_root(doc);
	assert_true(root->broken);
	assert_true(yaml_get(root, "a")->broken);
	assert_false(yaml_get(root, "c")->broken);
	assert_int_equal(yaml_get(root, "c")->n, 2);
	assert_true(yaml_get(root, "f")->broken);
	assert_int_equal(yaml_get(root, "f")->n, 1);
	policy_problems_clear(&ps);
	yaml_doc_free(doc);
}

static const struct yaml_node *value(struct yaml_doc **doc, const char *text)
{
	char all[128];

	snprintf(all, sizeof(all), "k: %s\n", text);
	*doc = parse(all);
	return yaml_get(yaml_root(*doc), "k");
}

enum scalar_kind { UINT, BOOL, DURATION, SIZE };

static const struct {
	enum scalar_kind kind;
	const char *text;
	bool ok;
	uint64_t want;
} scalars[] = {
	{UINT, "0", true, 0}, {UINT, "7", true, 7}, {UINT, "1000", true, 1000}, {UINT, "1001", false, 0},
	{UINT, "007", false, 0}, {UINT, "+7", false, 0}, {UINT, "-7", false, 0}, {UINT, "'7'", false, 0},
	{UINT, "0x7", false, 0}, {UINT, "7.0", false, 0}, {UINT, "1_0", false, 0}, {UINT, "", false, 0},
	{UINT, "[7]", false, 0}, {UINT, "{a: b}", false, 0}, {UINT, "18446744073709551616", false, 0},
	{UINT, "99999999999999999999999", false, 0}, {UINT, "7 8", false, 0}, {UINT, "\xd9\xa3", false, 0},
	{BOOL, "true", true, 1}, {BOOL, "false", true, 0}, {BOOL, "True", false, 0}, {BOOL, "yes", false, 0},
	{BOOL, "no", false, 0}, {BOOL, "on", false, 0}, {BOOL, "1", false, 0}, {BOOL, "'true'", false, 0},
	{BOOL, "", false, 0}, {BOOL, "~", false, 0}, {BOOL, "[true]", false, 0},
	{DURATION, "250ms", true, 250}, {DURATION, "10s", true, 10000}, {DURATION, "5m", true, 300000},
	{DURATION, "1h", true, 3600000}, {DURATION, "2d", true, 172800000}, {DURATION, "0s", true, 0},
	{DURATION, "10", false, 0}, {DURATION, "s", false, 0}, {DURATION, "10 s", false, 0}, {DURATION, "1.5s", false, 0},
	{DURATION, "10S", false, 0}, {DURATION, "8d", false, 0}, {DURATION, "-1s", false, 0}, {DURATION, "010s", false, 0},
	{DURATION, "999999999999999999d", false, 0}, {DURATION, "1h30m", false, 0}, {DURATION, "[1s]", false, 0},
	{SIZE, "0B", true, 0}, {SIZE, "10B", true, 10}, {SIZE, "1kB", true, 1000}, {SIZE, "50MB", true, 50000000},
	{SIZE, "10GB", true, 10000000000}, {SIZE, "1TB", true, 1000000000000}, {SIZE, "1KiB", true, 1024},
	{SIZE, "1MiB", true, 1048576}, {SIZE, "2GiB", true, 2147483648}, {SIZE, "1TiB", true, 1099511627776},
	{SIZE, "10", false, 0}, {SIZE, "1KB", false, 0}, {SIZE, "1gb", false, 0}, {SIZE, "1 GB", false, 0},
	{SIZE, "1.5GB", false, 0}, {SIZE, "99999999999TiB", false, 0}, {SIZE, "GB", false, 0}, {SIZE, "{a: b}", false, 0},
};

static void test_scalars(void **state)
{
	for (size_t i = 0; i < sizeof(scalars) / sizeof(*scalars); i++) {
		struct policy_problems ps = {0};
		struct yaml_doc *doc;
		const struct yaml_node *n = value(&doc, scalars[i].text);
		uint64_t got = 77;
		bool flag = false, ok = false;

		switch (scalars[i].kind) {
		case UINT:
			ok = yaml_uint(n, 0, 1000, &got, &ps);
			break;
		case BOOL:
			ok = yaml_bool(n, &flag, &ps);
			got = ok ? flag : 77;
			break;
		case DURATION:
			ok = yaml_duration_ms(n, 0, 7 * 86400000, &got, &ps);
			break;
		case SIZE:
			ok = yaml_size_bytes(n, &got, &ps);
			break;
		}
		if (ok != scalars[i].ok || got != (ok ? scalars[i].want : 77) || ps.n != !ok)
			fail_msg("\"%s\": %d %llu, %zu problems", scalars[i].text, ok, (unsigned long long)got, ps.n);
		if (!ok)
			check_place(n, ps.items[0].line, ps.items[0].column, NULL);
		policy_problems_clear(&ps);
		yaml_doc_free(doc);
	}
}

static void test_keys(void **state)
{
	static const char *const known[] = {"allow", "deny", "unmatched", NULL};
	struct policy_problems ps = {0};
	struct yaml_doc *doc = parse("alow: x\ndeny: y\nDENY_: z\nelsewhere: w\n");

	yaml_check_keys(yaml_root(doc), known, &ps);
	assert_int_equal(ps.n, 3);
	assert_string_equal(ps.items[0].message, "unknown key \"alow\"");
	assert_string_equal(ps.items[0].hint, "did you mean \"allow\"?");
	assert_string_equal(ps.items[1].hint, "did you mean \"deny\"?");
	assert_string_equal(ps.items[2].hint, "the keys here are: allow, deny, unmatched");
	policy_problems_clear(&ps);
	yaml_doc_free(doc);
	assert_string_equal(yaml_nearest(STR_LIT("unmatchde"), known), "unmatched");
	assert_null(yaml_nearest(STR_LIT("xyz"), known));
	assert_null(yaml_nearest(STR_LIT(""), known));
	assert_null(yaml_nearest(STR_LIT("a"), known));
}

/* Whatever a file holds, a message is one printable line. */
static void test_messages_are_printable(void **state)
{
	struct policy_problems ps = {0};

	yaml_problem(&ps, NULL, "a\nb", "x\x1b[2J\r\n%s\xff", "\xe2\x80\xae");
	assert_int_equal(ps.items[0].line, 1);
	assert_int_equal(ps.items[0].column, 1);
	assert_string_equal(ps.items[0].message, "x?[2J????");
	assert_string_equal(ps.items[0].hint, "a?b");
	policy_problems_clear(&ps);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_tree),    cmocka_unit_test(test_places),  cmocka_unit_test(test_empty),
		cmocka_unit_test(test_plain_text), cmocka_unit_test(test_refused), cmocka_unit_test(test_depth),
		cmocka_unit_test(test_limits),  cmocka_unit_test(test_capped),  cmocka_unit_test(test_partial),
		cmocka_unit_test(test_scalars), cmocka_unit_test(test_keys),    cmocka_unit_test(test_messages_are_printable),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
