/* Addresses as 16 bytes: reading, writing and comparing them.
 *
 * One value for each address: IPv4 lives in its mapped form, so whoever compares, sorts or stores addresses cannot
 * treat 127.0.0.1 and ::ffff:7f00:1 differently, and the kernel, which connects both over IPv4, agrees.
 *
 * Reading is strict. inet_aton() and getaddrinfo() take "127.1", "0x7f.1", "017700000001" and "127.0.0.1 x" for
 * addresses; nothing here may. A dotted quad is read by the few lines of parse_v4(). IPv6 text goes to inet_pton(),
 * which is as strict as RFC 4291 2.2, also about a dotted tail (the unit tests hold it to that), but only when it is
 * bounded and made of hex digits, ':' and '.' alone: no NUL, zone, blank or bracket reaches the C string.
 *
 * Writing is RFC 5952, in own code for one reason: inet_ntop() writes ::7f00:1 as "::127.0.0.1", which reads as if it
 * were IPv4, and no longer tells it from the mapped form at a glance. What addr_format() writes, addr_parse() reads
 * back to the same bytes, and writing that again gives the same text.
 *
 * Pure: no state, no allocation. Every failure leaves the out-parameters untouched, but for -EDOM as the header
 * says. */
#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>

#include "addr.h"

enum { V4_AT = 12, V4_BITS = 96 }; /* where the IPv4 address begins in the mapped form, in bytes and bits */

static const uint8_t mapped[V4_AT] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff}; /* RFC 4291 2.5.5.2 */

struct addr addr_from_v4(const uint8_t octets[4])
{
	struct addr a;

	memcpy(a.b, mapped, V4_AT);
	memcpy(a.b + V4_AT, octets, 4);
	return a;
}

struct addr addr_from_v6(const uint8_t bytes[16])
{
	struct addr a;

	memcpy(a.b, bytes, sizeof(a.b));
	return a;
}

bool addr_is_v4(const struct addr *a)
{
	return memcmp(a->b, mapped, V4_AT) == 0;
}

bool addr_equal(const struct addr *a, const struct addr *b)
{
	return memcmp(a->b, b->b, sizeof(a->b)) == 0;
}

static bool same_bits(const struct addr *a, const struct addr *b, unsigned int n)
{
	unsigned int whole = n / 8, rest = n % 8;

	return memcmp(a->b, b->b, whole) == 0 && (rest == 0 || ((a->b[whole] ^ b->b[whole]) >> (8 - rest)) == 0);
}

bool addr_in_prefix(const struct addr *a, const struct addr_prefix *p)
{
	return same_bits(a, &p->base, p->len) && (p->len >= V4_BITS || !addr_is_v4(a));
}

bool addr_prefix_encloses(const struct addr_prefix *outer, const struct addr_prefix *inner)
{
	return outer->len <= inner->len && same_bits(&outer->base, &inner->base, outer->len);
}

/* --- reading --- */

/* Plain decimal of at most three digits up to `max`: no sign, no blank, no leading zero. */
static bool parse_decimal(struct str text, unsigned int max, unsigned int *ret)
{
	unsigned int v = 0;

	if (text.n == 0 || text.n > 3 || (text.n > 1 && text.p[0] == '0'))
		return false;
	for (size_t i = 0; i < text.n; i++) {
		if (!ascii_is_digit(text.p[i]))
			return false;
		v = 10 * v + (unsigned int)(text.p[i] - '0');
	}
	if (v > max)
		return false;
	*ret = v;
	return true;
}

static bool parse_v4(struct str text, uint8_t out[4])
{
	for (int i = 0; i < 4; i++) {
		const char *dot = i < 3 && text.n ? memchr(text.p, '.', text.n) : NULL;
		struct str octet = {text.p, i < 3 ? (dot ? (size_t)(dot - text.p) : 0) : text.n};
		unsigned int v;

		if (!parse_decimal(octet, 255, &v))
			return false;
		out[i] = (uint8_t)v;
		if (i < 3)
			text = str_skip(text, octet.n + 1);
	}
	return true;
}

static bool parse_v6(struct str text, uint8_t out[16])
{
	char z[ADDR_TEXT_MAX];

	if (text.n >= sizeof(z))
		return false;
	for (size_t i = 0; i < text.n; i++) {
		char c = ascii_lower(text.p[i]);

		if (!ascii_is_digit(c) && !(c >= 'a' && c <= 'f') && c != ':' && c != '.')
			return false;
		z[i] = c;
	}
	z[text.n] = '\0';
	return inet_pton(AF_INET6, z, out) == 1;
}

bool addr_parse(struct str text, struct addr *ret)
{
	uint8_t v4[4], v6[16];

	if (parse_v4(text, v4)) {
		*ret = addr_from_v4(v4);
		return true;
	}
	if (parse_v6(text, v6)) {
		*ret = addr_from_v6(v6);
		return true;
	}
	return false;
}

/* Clears the bits past `len`; says whether any was set. */
static bool clear_host_bits(struct addr *a, unsigned int len)
{
	bool any = false;

	for (unsigned int i = len / 8; i < sizeof(a->b); i++) {
		uint8_t keep = i == len / 8 ? (uint8_t)(0xff00 >> (len % 8)) : 0;

		any |= (a->b[i] & (uint8_t)~keep) != 0;
		a->b[i] &= keep;
	}
	return any;
}

int addr_prefix_parse(struct str text, struct addr_prefix *ret)
{
	const char *slash = text.n ? memchr(text.p, '/', text.n) : NULL;
	struct addr_prefix p;
	struct str base;
	unsigned int bits;
	bool as_v4, any;

	if (!slash)
		return -EINVAL;
	base = (struct str){text.p, (size_t)(slash - text.p)};
	if (!addr_parse(base, &p.base))
		return -EINVAL;
	as_v4 = base.n != 0 && !memchr(base.p, ':', base.n);
	if (!parse_decimal(str_skip(text, base.n + 1), as_v4 ? 32 : 128, &bits))
		return -EINVAL;
	p.len = (uint8_t)(as_v4 ? V4_BITS + bits : bits);
	any = clear_host_bits(&p.base, p.len);
	*ret = p;
	return any ? -EDOM : 0;
}

/* --- writing --- */

/* RFC 5952 4.2: the longest run of zero groups, the first of equals, never one group alone. Returns its length. */
static int longest_zero_run(const uint8_t b[16], int *ret_start)
{
	int best = 0, start = -1;

	for (int i = 0; i < 8;) {
		int from = i;

		while (i < 8 && b[2 * i] == 0 && b[2 * i + 1] == 0)
			i++;
		if (i - from > best) {
			best = i - from;
			start = from;
		}
		if (i == from)
			i++;
	}
	if (best < 2)
		return 0;
	*ret_start = start;
	return best;
}

static size_t format_v6(const uint8_t b[16], char out[ADDR_TEXT_MAX])
{
	int start = -1, run = longest_zero_run(b, &start);
	size_t n = 0;

	for (int i = 0; i < 8; i++) {
		if (run != 0 && i == start) {
			out[n++] = ':';
			i += run - 1;
			if (i == 7)
				out[n++] = ':';
			continue;
		}
		if (i != 0)
			out[n++] = ':';
		n += (size_t)snprintf(out + n, ADDR_TEXT_MAX - n, "%x", (unsigned int)(b[2 * i] << 8 | b[2 * i + 1]));
	}
	out[n] = '\0';
	return n;
}

size_t addr_format(const struct addr *a, char out[ADDR_TEXT_MAX])
{
	const uint8_t *o = a->b + V4_AT;

	if (!addr_is_v4(a))
		return format_v6(a->b, out);
	return (size_t)snprintf(out, ADDR_TEXT_MAX, "%u.%u.%u.%u", o[0], o[1], o[2], o[3]);
}

size_t addr_prefix_format(const struct addr_prefix *p, char out[ADDR_TEXT_MAX + 4])
{
	bool v4 = p->len >= V4_BITS && addr_is_v4(&p->base);
	size_t n = addr_format(&p->base, out);

	return n + (size_t)snprintf(out + n, ADDR_TEXT_MAX + 4 - n, "/%u", v4 ? p->len - V4_BITS : p->len);
}
