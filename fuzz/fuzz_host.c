/* host_parse(), port_parse() and host_name_special() on any bytes.
 *
 * Held: what is accepted has one canonical form, which is a fixed point and takes every spelling with it (case, one
 * trailing dot); a name has nothing in it that a resolver, a log or the C library could read as something else, and is
 * never a number; an unbracketed literal is what inet_pton() says, too. */
#include <arpa/inet.h>
#include <stdint.h>
#include <stdlib.h>

#include "policy/host.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define CHECK(what) do { if (!(what)) abort(); } while (0)

static void check_name(const struct host *h)
{
	struct str name = host_name(h);
	struct in_addr in;
	struct addr a;
	size_t label = 0;

	CHECK(name.n >= 1 && name.n <= HOST_NAME_MAX_LEN && h->name[name.n] == '\0' && strlen(h->name) == name.n);
	for (size_t i = 0; i <= name.n; i++) {
		char c = h->name[i];

		if (i == name.n || c == '.') {
			CHECK(label >= 1 && label <= 63);
			CHECK(h->name[i - 1] != '-' && h->name[i - label] != '-');
			label = 0;
			continue;
		}
		CHECK((c >= 'a' && c <= 'z') || ascii_is_digit(c) || c == '-' || c == '_');
		label++;
	}
	CHECK(inet_aton(h->name, &in) == 0);
	CHECK(!addr_parse(name, &a));
	CHECK(memchr(name.p, '.', name.n) || host_name_special(name)); /* single labels never pass */
}

/* `text` in upper case and with a dot more must be the same host, or, with the dot, no host if it had one. */
static void check_spellings(struct str text, const struct host *h)
{
	char *p = malloc(text.n + 1);
	struct host other;

	for (size_t i = 0; i < text.n; i++)
		p[i] = text.p[i] >= 'a' && text.p[i] <= 'z' ? (char)(text.p[i] - 'a' + 'A') : text.p[i];
	CHECK(host_parse((struct str){p, text.n}, &other, NULL));
	CHECK(memcmp(&other, h, sizeof(other)) == 0);

	p[text.n] = '.';
	if (host_parse((struct str){p, text.n + 1}, &other, NULL)) {
		CHECK(h->kind == HOST_NAME && text.p[text.n - 1] != '.');
		CHECK(memcmp(&other, h, sizeof(other)) == 0);
	} else {
		CHECK(h->kind == HOST_ADDR || text.p[text.n - 1] == '.');
	}
	free(p);
}

static void check_host(struct str text)
{
	static const char *const empty = "";
	struct host h, back;
	char canonical[HOST_TEXT_MAX], again[HOST_TEXT_MAX];
	const char *why = empty;
	size_t n;

	if (!host_parse(text, &h, &why)) {
		CHECK(why != empty && why[0]);
		return;
	}
	CHECK(h.kind == HOST_NAME || h.kind == HOST_ADDR);
	n = host_format(&h, canonical);
	CHECK(n == strlen(canonical) && n < HOST_TEXT_MAX);
	CHECK(host_parse((struct str){canonical, n}, &back, NULL));
	CHECK(back.kind == h.kind);
	CHECK(host_format(&back, again) == n && memcmp(again, canonical, n) == 0);
	if (h.kind == HOST_NAME) {
		check_name(&h);
		CHECK(memcmp(&back, &h, sizeof(h)) == 0);
		CHECK(host_name_special(host_name(&h)) == host_name_special(host_name(&back)));
	} else {
		CHECK(addr_equal(&back.addr, &h.addr));
		CHECK(h.bracketed == (text.p[0] == '['));
		if (!h.bracketed) { /* the text was canonical already, and libc agrees */
			struct in_addr in;

			CHECK(str_eq(text, (struct str){canonical, n}));
			CHECK(inet_pton(AF_INET, canonical, &in) == 1 && memcmp(&in, h.addr.b + 12, 4) == 0);
		}
	}
	check_spellings(text, &h);
}

static void check_port(struct str text)
{
	uint16_t port = 0;
	char back[8];
	size_t n = sizeof(back);

	if (!port_parse(text, &port)) {
		CHECK(port == 0);
		return;
	}
	CHECK(port != 0);
	for (unsigned int v = port; v != 0; v /= 10)
		back[--n] = (char)('0' + v % 10);
	CHECK(str_eq(text, (struct str){back + n, sizeof(back) - n}));
}

/* The input is a host; a port too; and HOST:PORT cut at the last colon. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct str text = {(const char *)data, size};
	const char *colon = size ? memrchr(text.p, ':', size) : NULL;

	check_host(text);
	check_port(text);
	if (colon) {
		check_host((struct str){text.p, (size_t)(colon - text.p)});
		check_port(str_skip(text, (size_t)(colon - text.p) + 1));
	}
	return 0;
}
