/* Reading the texts of rules.
 *
 * A rule's host goes through host_parse(), as a request's does, so that both are compared in one canonical form. Before
 * that, what people write in other tools' lists is recognised and answered with what to write here: a lone "*", ".name",
 * globs, URLs, host:port, addresses without the key that marks them. Nothing is repaired in silence: a rule that would
 * mean something else than it seems to is refused.
 *
 * Names outside ASCII become A-labels by IDNA 2008 (RFC 5891) with the mapping of UTS #46, nontransitional, under
 * STD3 rules; the result is read again from the start, since the mapping can yield dots and digits.
 *
 * Blocks must not have host bits, and none may hold all of IPv4 or all of IPv6: such a rule is either a slip or belongs
 * in `unmatched`, and a built-in table judges every address in any case.
 *
 * -EINVAL follows a reported problem; -ENOMEM can come from libidn2 only. Nothing is kept. */
#include "rule.h"

#include <errno.h>
#include <idn2.h>
#include <stdio.h>

#include "problems.h"

enum { NAME_TEXT_MAX = 1024, /* bytes before IDNA: 253 characters of four */ HINT_MAX = 160 };

static const char *after(struct str s, const char *part)
{
	const char *p = memmem(s.p, s.n, part, strlen(part));

	return p ? p + strlen(part) : NULL;
}

static bool has(struct str s, char c)
{
	return s.n > 0 && memchr(s.p, c, s.n) != NULL;
}

static bool is_address_text(struct str s)
{
	struct addr_prefix block;
	struct addr a;

	if (s.n > 2 && s.p[0] == '[' && s.p[s.n - 1] == ']')
		s = (struct str){s.p + 1, s.n - 2};
	return addr_parse(s, &a) || addr_prefix_parse(s, &block) != -EINVAL;
}

/* The host inside "https://user@host:443/path". */
static struct str host_of_url(struct str s)
{
	const char *p = after(s, "://");
	size_t n = 0;

	if (p)
		s = str_skip(s, (size_t)(p - s.p));
	while (n < s.n && !strchr("/?#:", s.p[n]))
		n++;
	return (struct str){s.p, n};
}

/* Says what is wrong with a text that host_parse() would only call malformed. False when it has nothing to say. */
static bool told_odd_form(const struct yaml_node *n, struct policy_problems *problems)
{
	struct str s = n->text;
	const char *message = NULL;
	char hint[HINT_MAX] = "";

	if (s.n == 0) {
		message = "is no host name: it is empty";
		snprintf(hint, sizeof(hint), "write a name, or remove the item");
	} else if (str_eq(s, STR_LIT("*")) || str_eq(s, STR_LIT("**"))) {
		message = "is no host name; a wildcard needs a domain";
		snprintf(hint, sizeof(hint), "write \"*.example.com\", or \"unmatched: allow\" for every public host");
	} else if (is_address_text(s)) {
		message = "is an address, which needs a rule of its own kind";
		snprintf(hint, sizeof(hint), "write \"address: %.*s\" in place of the name",
			 (int)(s.p[0] == '[' ? s.n - 2 : s.n), s.p[0] == '[' ? s.p + 1 : s.p);
	} else if (after(s, "://") || has(s, '/')) {
		message = "is a URL or path, not a host name";
		snprintf(hint, sizeof(hint), "write the host alone: %s", problem_quote(host_of_url(s)).z);
	} else if (has(s, ':')) {
		message = "is no host name: there is a colon in it";
		snprintf(hint, sizeof(hint), "ports go into a list: {host: %s, ports: [443]}",
			 problem_quote(host_of_url(s)).z);
	} else if (has(s, ' ')) {
		message = "is no host name: there is a blank in it";
		snprintf(hint, sizeof(hint), "one name an item; is a \"- \" missing?");
	} else if (has(s, '#')) {
		message = "is no host name: there is a '#' in it";
		snprintf(hint, sizeof(hint), "a comment needs a blank before the '#'");
	} else if (s.p[0] == '.') {
		message = "is no host name: it starts with a dot";
		snprintf(hint, sizeof(hint), "\"*.example.com\" is every name below, \"example.com\" the name itself");
	} else if (s.p[0] == '-') {
		message = "is no host name: it starts with '-'";
		snprintf(hint, sizeof(hint), "a blank is missing after the '-' of a list item");
	} else {
		return false;
	}
	yaml_problem(problems, n, hint, "%s %s", problem_quote(s).z, message);
	return true;
}

/* Wildcards: "*." in front, once, and nothing else. */
static bool told_odd_wildcard(const struct yaml_node *n, struct str rest, struct policy_problems *problems)
{
	if (!has(rest, '*') && rest.n > 0 && !str_eq(rest, STR_LIT(".")))
		return false;
	yaml_problem(problems, n, "write \"*.example.com\": every name below, at any depth, not the name itself",
		     "%s is no wildcard; the '*' stands for whole labels, at the start, before a domain",
		     problem_quote(n->text).z);
	return true;
}

static bool is_ascii(struct str s)
{
	for (size_t i = 0; i < s.n; i++)
		if ((unsigned char)s.p[i] >= 0x80)
			return false;
	return true;
}

static int parse_ascii(const struct yaml_node *n, struct str text, struct host *ret, struct policy_problems *problems)
{
	const char *why = "malformed";
	struct host h;

	if (!host_parse(text, &h, &why)) {
		yaml_problem(problems, n, NULL, "%s is no host name: %s", problem_quote(n->text).z, why);
		return -EINVAL;
	}
	if (h.kind != HOST_NAME) {
		yaml_problem(problems, n, "write \"address: ...\" for an address", "%s is an address, not a host name",
			     problem_quote(n->text).z);
		return -EINVAL;
	}
	*ret = h;
	return 0;
}

/* RFC 5891 by libidn2. `text` is followed by a NUL in the document, and holds none.
 *
 * libidn2 2.3.3 does not refuse what STD3 rules out, it drops it: "a*b" in fullwidth letters comes out as "ab". So the
 * name is converted with and without those rules, and the two must agree. */
static int parse_idn(const struct yaml_node *n, struct str text, struct host *ret, struct policy_problems *problems)
{
	int flags = IDN2_NFC_INPUT | IDN2_NONTRANSITIONAL, err = -EINVAL;
	char *ascii = NULL, *strict = NULL;
	int rc = idn2_to_ascii_8z(text.p, &ascii, flags);

	if (rc == IDN2_OK)
		rc = idn2_to_ascii_8z(text.p, &strict, flags | IDN2_USE_STD3_ASCII_RULES);
	if (rc == IDN2_MALLOC)
		err = -ENOMEM;
	else if (rc != IDN2_OK)
		yaml_problem(problems, n, "write its A-label form (xn--...)", "%s is no valid internationalized name: %s",
			     problem_quote(n->text).z, idn2_strerror(rc));
	else if (strcmp(ascii, strict) != 0)
		yaml_problem(problems, n, "leave out what is no letter, digit or '-'",
			     "%s is no valid internationalized name: it holds characters that no host name may",
			     problem_quote(n->text).z);
	else
		err = parse_ascii(n, str_from(ascii), ret, problems);
	idn2_free(ascii);
	idn2_free(strict);
	return err;
}

int rule_read_name(const struct yaml_node *n, struct rule_name *ret, struct policy_problems *problems)
{
	struct str text = n->text;
	bool wildcard;

	if (n->broken)
		return -EINVAL;
	if (n->kind != YAML_SCALAR) {
		yaml_problem(problems, n, NULL, "a %s stands here where a host name should be",
			     n->kind == YAML_LIST ? "list" : "map");
		return -EINVAL;
	}
	if (text.n > NAME_TEXT_MAX) {
		yaml_problem(problems, n, NULL, "%s is too long for a host name", problem_quote(text).z);
		return -EINVAL;
	}
	if (told_odd_form(n, problems))
		return -EINVAL;
	wildcard = text.n >= 2 && memcmp(text.p, "*.", 2) == 0;
	if (wildcard)
		text = str_skip(text, 2);
	if ((wildcard || has(text, '*')) && told_odd_wildcard(n, text, problems))
		return -EINVAL;
	ret->wildcard = wildcard;
	return is_ascii(text) ? parse_ascii(n, text, &ret->host, problems) : parse_idn(n, text, &ret->host, problems);
}

/* True when a block reaches over all of IPv4, which lives inside IPv6 as ::ffff:0:0/96, or over all of IPv6. */
static bool holds_a_whole_family(const struct addr_prefix *p)
{
	struct addr zero_v4 = addr_from_v4((const uint8_t[4]){0, 0, 0, 0});

	return p->len == 0 || (p->len <= 96 && addr_in_prefix(&zero_v4, p));
}

/* ADDRESS/BITS was refused: says which half, and what was meant if that can be known. */
static void tell_block(const struct yaml_node *n, size_t slash, int err, const struct addr_prefix *meant,
		       struct policy_problems *problems)
{
	char text[ADDR_TEXT_MAX + 4], hint[HINT_MAX] = "write ADDRESS/BITS, as in 192.0.2.0/24 or 2001:db8::/32";
	struct problem_quote quoted = problem_quote(n->text);
	struct addr a;

	if (err == -EDOM) {
		addr_prefix_format(meant, text);
		snprintf(hint, sizeof(hint), "the block is %s; for the one address leave out the /BITS", text);
		yaml_problem(problems, n, hint, "%s has bits set past the length of the block", quoted.z);
	} else if (addr_parse((struct str){n->text.p, slash}, &a)) {
		snprintf(hint, sizeof(hint), "write the length of the block in plain decimal, 1 to %d",
			 memchr(n->text.p, ':', slash) ? 128 : 32);
		yaml_problem(problems, n, hint, "%s is no block: its length is malformed or too large", quoted.z);
	} else {
		yaml_problem(problems, n, hint, "%s is no block of addresses", quoted.z);
	}
}

int rule_read_block(const struct yaml_node *n, struct addr_prefix *ret, struct policy_problems *problems)
{
	struct addr_prefix block = {.len = 128};
	const char *slash;
	int err;

	if (n->broken)
		return -EINVAL;
	if (n->kind != YAML_SCALAR) {
		yaml_problem(problems, n, "quote IPv6 addresses and write them without brackets",
			     "a %s stands here where an address should be", n->kind == YAML_LIST ? "list" : "map");
		return -EINVAL;
	}
	slash = n->text.n ? memchr(n->text.p, '/', n->text.n) : NULL;
	if (!slash && !addr_parse(n->text, &block.base)) {
		yaml_problem(problems, n, "write 192.0.2.1, 192.0.2.0/24, \"2001:db8::1\" or \"2001:db8::/32\"",
			     "%s is no address", problem_quote(n->text).z);
		return -EINVAL;
	}
	err = slash ? addr_prefix_parse(n->text, &block) : 0;
	if (err < 0) {
		tell_block(n, (size_t)(slash - n->text.p), err, &block, problems);
		return -EINVAL;
	}
	if (holds_a_whole_family(&block)) {
		yaml_problem(problems, n, "name the blocks you mean; for every public host there is \"unmatched: allow\"",
			     "%s holds every IPv%d address, which no rule may", problem_quote(n->text).z,
			     has(n->text, ':') && !addr_is_v4(&block.base) && block.len == 0 ? 6 : 4);
		return -EINVAL;
	}
	*ret = block;
	return 0;
}

int rule_read_ports(const struct yaml_node *list, struct portset *ret, struct policy_problems *problems)
{
	struct portset ports = {0};
	uint64_t port;
	int err = 0;

	if (!list) {
		*ret = portset_all();
		return 0;
	}
	for (const struct yaml_node *n = list->child; n; n = n->next) {
		if (!yaml_uint(n, 1, 65535, &port, problems)) {
			err = -EINVAL;
		} else if (!portset_bit((uint16_t)port)) {
			yaml_problem(problems, n, "leave it out", "port %u can never be opened: the guard opens 80 and 443 only",
				     (unsigned)port);
			err = -EINVAL;
		} else {
			ports.bits |= portset_bit((uint16_t)port);
		}
	}
	if (err == 0)
		*ret = ports;
	return err;
}
