/* buf: bytes appended at the end and consumed at the front.
 *
 * Memory doubles as needed; consumed room at the front is used again before more is asked for. When there is no memory an
 * append does nothing but set `failed`, and stays so until buf_reset() or buf_free(): whoever builds a message checks
 * once, before sending it. */
#include "base/buf.h"

#include <stdio.h>
#include <stdlib.h>

char *buf_reserve(struct buf *b, size_t n)
{
	size_t need = b->len + n, cap = b->cap ? b->cap : 256;
	char *mem;

	if (b->failed || need < n)
		goto fail;
	if (b->cap - b->off - b->len >= n && b->mem)
		return b->mem + b->off + b->len;
	if (b->off && need <= b->cap) {
		memmove(b->mem, b->mem + b->off, b->len);
		b->off = 0;
		return b->mem + b->len;
	}
	while (cap < need) {
		if (cap > SIZE_MAX / 2)
			goto fail;
		cap *= 2;
	}
	mem = malloc(cap);
	if (!mem)
		goto fail;
	if (b->len)
		memcpy(mem, b->mem + b->off, b->len);
	free(b->mem);
	b->mem = mem;
	b->cap = cap;
	b->off = 0;
	return b->mem + b->len;
fail:
	b->failed = true;
	return NULL;
}

void buf_commit(struct buf *b, size_t n)
{
	b->len += n;
}

void buf_add(struct buf *b, const void *p, size_t n)
{
	char *to;

	if (!n)
		return;
	to = buf_reserve(b, n);
	if (!to)
		return;
	memcpy(to, p, n);
	b->len += n;
}

void buf_add_str(struct buf *b, struct str s)
{
	buf_add(b, s.p, s.n);
}

void buf_add_z(struct buf *b, const char *z)
{
	buf_add(b, z, strlen(z));
}

void buf_add_u64(struct buf *b, uint64_t v)
{
	char text[20];
	size_t at = sizeof(text);

	do {
		text[--at] = (char)('0' + v % 10);
		v /= 10;
	} while (v);
	buf_add(b, text + at, sizeof(text) - at);
}

void buf_printf(struct buf *b, const char *fmt, ...)
{
	va_list ap, again;
	char *to = buf_reserve(b, 128);
	int n;

	if (!to)
		return;
	va_start(ap, fmt);
	va_copy(again, ap);
	n = vsnprintf(to, 128, fmt, ap);
	if (n >= 128) {
		to = buf_reserve(b, (size_t)n + 1);
		if (to)
			n = vsnprintf(to, (size_t)n + 1, fmt, again);
	}
	if (n < 0)
		b->failed = true;
	else if (to)
		b->len += (size_t)n;
	va_end(again);
	va_end(ap);
}

void buf_add_json(struct buf *b, struct str s)
{
	size_t from = 0;

	for (size_t i = 0; i < s.n; i++) {
		unsigned char c = (unsigned char)s.p[i];
		if (c >= 0x20 && c < 0x7f && c != '"' && c != '\\')
			continue;
		buf_add(b, s.p + from, i - from);
		if (c == '"' || c == '\\')
			buf_printf(b, "\\%c", c);
		else
			buf_printf(b, "\\u%04x", c);
		from = i + 1;
	}
	if (s.n > from)
		buf_add(b, s.p + from, s.n - from);
}

void buf_consume(struct buf *b, size_t n)
{
	b->off += n;
	b->len -= n;
	if (!b->len)
		b->off = 0;
}

void buf_reset(struct buf *b)
{
	b->off = b->len = 0;
	b->failed = false;
}

void buf_free(struct buf *b)
{
	free(b->mem);
	*b = (struct buf){0};
}
