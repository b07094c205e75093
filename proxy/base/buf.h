/* A growable run of bytes: appended at the end, consumed at the front. The zero value is empty and valid. */
#ifndef BASE_BUF_H
#define BASE_BUF_H

#include <stdarg.h>
#include <stdint.h>
#include <stdbool.h>
#include <stddef.h>

#include "policy/str.h"

struct buf {
	char *mem;     /* owned */
	size_t cap;
	size_t off;    /* first live byte */
	size_t len;    /* live bytes */
	bool failed;   /* an append found no memory; the content is not to be used */
};

static inline struct str buf_view(const struct buf *b)
{
	return (struct str){b->mem ? b->mem + b->off : "", b->len};
}

/* Makes room for `n` more bytes and returns where they go, or NULL (then `failed` is set). Follow with buf_commit(). */
char *buf_reserve(struct buf *b, size_t n);
void buf_commit(struct buf *b, size_t n);

/* Appends; on no memory sets `failed` and appends nothing, so that a builder checks once at the end. */
void buf_add(struct buf *b, const void *p, size_t n);
void buf_add_str(struct buf *b, struct str s);
void buf_add_z(struct buf *b, const char *z);
/* A number in decimal. */
void buf_add_u64(struct buf *b, uint64_t v);
void buf_printf(struct buf *b, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Appends as the inside of a JSON string: quotes, backslashes, control bytes and all bytes from 0x7f up are escaped
 * (the latter as \u00XX), so that any bytes at all give one line of valid ASCII JSON. */
void buf_add_json(struct buf *b, struct str s);

/* Drops the first `n` bytes (n <= len). */
void buf_consume(struct buf *b, size_t n);
/* Empties but keeps the memory. */
void buf_reset(struct buf *b);
/* Frees the memory; the buffer is empty and valid again. */
void buf_free(struct buf *b);

#endif
