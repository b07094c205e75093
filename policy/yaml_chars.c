/* Characters of a strict file.
 *
 * A policy is read by people and by a parser, and both must see the same text. So a file is UTF-8 (RFC 3629) without a
 * byte order mark, and holds nothing that is invisible, that changes the direction of text, that only one of the two
 * takes for a line break (YAML 1.1 does so with U+0085, U+2028 and U+2029), or that looks like a blank and is none.
 * The same table judges the values of scalars, where an escape could bring such a character back.
 *
 * The scan reports each place, then says whether the parser may still be tried: characters that are merely unwanted
 * do not stop the search for more problems. */
#include "yaml_chars.h"

#include "problems.h"

static const struct yaml_bad_char not_utf8 = {0, 0, true, "no valid UTF-8"};

/* Sorted, no overlaps. */
static const struct yaml_bad_char bad_chars[] = {
	{0x0000, 0x0000, true, "a NUL byte"},
	{0x0001, 0x0008, true, "a control character"},
	{0x000b, 0x000c, true, "a control character"},
	{0x000e, 0x001f, true, "a control character"},
	{0x007f, 0x0084, true, "a control character"},
	{0x0085, 0x0085, true, "a line break that only some programs see (NEL)"},
	{0x0086, 0x009f, true, "a control character"},
	{0x00a0, 0x00a0, false, "a blank that is not the ordinary space"},
	{0x00ad, 0x00ad, false, "an invisible character"},
	{0x034f, 0x034f, false, "an invisible character"},
	{0x061c, 0x061c, false, "a character that changes the direction of text"},
	{0x115f, 0x1160, false, "an invisible character"},
	{0x17b4, 0x17b5, false, "an invisible character"},
	{0x180b, 0x180f, false, "an invisible character"},
	{0x2000, 0x200a, false, "a blank that is not the ordinary space"},
	{0x200b, 0x200d, false, "an invisible character"},
	{0x200e, 0x200f, false, "a character that changes the direction of text"},
	{0x2028, 0x2029, true, "a line break that only some programs see"},
	{0x202a, 0x202e, false, "a character that changes the direction of text"},
	{0x202f, 0x202f, false, "a blank that is not the ordinary space"},
	{0x205f, 0x205f, false, "a blank that is not the ordinary space"},
	{0x2060, 0x2065, false, "an invisible character"},
	{0x2066, 0x2069, false, "a character that changes the direction of text"},
	{0x206a, 0x206f, false, "an invisible character"},
	{0x3164, 0x3164, false, "an invisible character"},
	{0xfe00, 0xfe0f, false, "an invisible character"},
	{0xfeff, 0xfeff, true, "a byte order mark"},
	{0xffa0, 0xffa0, false, "an invisible character"},
	{0xfff0, 0xfffb, false, "an invisible character"},
	{0xfffe, 0xffff, true, "no character at all"},
	{0x1bca0, 0x1bca3, false, "an invisible character"},
	{0x1d173, 0x1d17a, false, "an invisible character"},
	{0xe0000, 0xe0fff, false, "an invisible character"},
};

/* Decodes one character (RFC 3629 4): no overlong forms, no surrogates, nothing past U+10FFFF. False: *ret_len is the
 * number of bytes that can be no part of a later character. */
static bool decode(const unsigned char *p, size_t n, uint32_t *ret_c, size_t *ret_len)
{
	static const uint32_t smallest[5] = {0, 0, 0x80, 0x800, 0x10000};
	size_t len = p[0] < 0x80 ? 1 : p[0] >= 0xf0 ? 4 : p[0] >= 0xe0 ? 3 : 2;
	uint32_t c = len == 1 ? p[0] : p[0] & (0xffu >> (len + 1));
	size_t i = 1;

	*ret_len = 1;
	if ((p[0] >= 0x80 && p[0] < 0xc2) || p[0] > 0xf4)
		return false;
	for (; i < len && i < n && (p[i] & 0xc0) == 0x80; i++)
		c = c << 6 | (p[i] & 0x3f);
	*ret_len = i;
	if (i < len || c < smallest[len] || c > 0x10ffff || (c >= 0xd800 && c <= 0xdfff))
		return false;
	*ret_c = c;
	return true;
}

const struct yaml_bad_char *yaml_char_look(const unsigned char *p, size_t n, size_t *ret_len)
{
	size_t lo = 0, hi = sizeof(bad_chars) / sizeof(*bad_chars);
	uint32_t c = 0;

	if (p[0] >= 0x20 && p[0] < 0x7f) {
		*ret_len = 1;
		return NULL;
	}
	if (!decode(p, n, &c, ret_len))
		return &not_utf8;
	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;

		if (c < bad_chars[mid].first)
			hi = mid;
		else if (c > bad_chars[mid].last)
			lo = mid + 1;
		else
			return &bad_chars[mid];
	}
	return NULL;
}

static void report(struct policy_problems *problems, const struct yaml_bad_char *bad, const unsigned char *p, size_t n,
		   uint32_t line, uint32_t column)
{
	uint32_t c = 0;
	size_t len;

	if (bad == &not_utf8 || !decode(p, n, &c, &len))
		problems_add(problems, line, column, "save the file as UTF-8", "byte 0x%02x is no valid UTF-8", p[0]);
	else
		problems_add(problems, line, column, "remove it", "the file holds %s here (U+%04X)", bad->what, c);
}

static bool looks_like_utf16(struct str text)
{
	const unsigned char *p = (const unsigned char *)text.p;

	if (text.n < 2)
		return false;
	return (p[0] == 0xff && p[1] == 0xfe) || (p[0] == 0xfe && p[1] == 0xff) || (p[0] == 0) != (p[1] == 0);
}

bool yaml_chars_scan(struct str text, size_t *ret_skip, struct policy_problems *problems)
{
	const unsigned char *p = (const unsigned char *)text.p;
	size_t skip = text.n >= 3 && memcmp(p, "\xef\xbb\xbf", 3) == 0 ? 3 : 0;
	size_t line_start = 0, len;
	uint32_t line = 1;
	bool readable = true;

	if (looks_like_utf16(text)) {
		problems_add(problems, 1, 1, "save the file as UTF-8", "the file is UTF-16 or UTF-32");
		return false;
	}
	if (skip)
		problems_add(problems, 1, 1, "save the file as UTF-8 without BOM", "the file starts with a byte order mark");
	for (size_t i = skip; i < text.n; i += len) {
		const struct yaml_bad_char *bad = yaml_char_look(p + i, text.n - i, &len);

		if (bad) {
			report(problems, bad, p + i, text.n - i, line, (uint32_t)(i - line_start + 1));
			readable = readable && !bad->unreadable;
		}
		if (p[i] == '\n' || (p[i] == '\r' && !(i + 1 < text.n && p[i + 1] == '\n'))) {
			line++;
			line_start = i + 1;
		}
	}
	if (readable)
		*ret_skip = skip;
	return readable;
}
