/* What holds for every head, whichever side sent it. */
#ifndef FUZZ_HEADS_H
#define FUZZ_HEADS_H

#include "check.h"
#include "http/fields.h"

struct parse {
	enum head_result result;
	enum head_bad why;
	struct head head;
	char *copy; /* the views point into it */
};

/* Gives the input in pieces of `step` bytes (0: all at once), each call on its own exact copy. */
static inline void parse_in_steps(struct str in, bool response, size_t step, struct parse *p)
{
	size_t scanned = 0, n = step == 0 || step > in.n ? in.n : step;

	p->copy = NULL;
	for (;; n = in.n - n < step ? in.n : n + step) {
		free(p->copy);
		p->copy = exact_copy((struct str){in.p, n});
		p->why = HEAD_BAD_N;
		p->result = response ?
				    head_parse_response((struct str){p->copy, n}, &scanned, &p->head, &p->why) :
				    head_parse_request((struct str){p->copy, n}, &scanned, &p->head, &p->why);
		if (p->result != HEAD_MORE || n == in.n)
			return;
		CHECK(scanned <= n);
	}
}

static inline void check_same_view(struct str a, const struct parse *pa, struct str b, const struct parse *pb)
{
	CHECK(str_eq(a, b));
	CHECK(a.n == 0 || a.p - pa->copy == b.p - pb->copy);
}

static inline void check_same_parse(const struct parse *a, const struct parse *b)
{
	const struct head *x = &a->head, *y = &b->head;

	CHECK(a->result == b->result);
	CHECK(a->result != HEAD_BAD || a->why == b->why);
	if (a->result != HEAD_DONE)
		return;
	CHECK(x->len == y->len && x->minor == y->minor && x->status == y->status && x->n_fields == y->n_fields);
	check_same_view(x->method, a, y->method, b);
	check_same_view(x->target, a, y->target, b);
	check_same_view(x->reason, a, y->reason, b);
	for (size_t i = 0; i < x->n_fields; i++) {
		check_same_view(x->fields[i].name, a, y->fields[i].name, b);
		check_same_view(x->fields[i].value, a, y->fields[i].value, b);
	}
}

/* Parses in several ways that must agree; the first is left in *ret, its copy to be freed by the caller. */
static inline void parse_every_way(struct str in, bool response, struct parse *ret)
{
	const size_t steps[] = {1, 2, 3, 7, in.n / 2 + 1};
	struct parse other;

	parse_in_steps(in, response, 0, ret);
	for (size_t i = 0; i < sizeof(steps) / sizeof(steps[0]); i++) {
		if (steps[i] == 1 && in.n > 4096)
			continue; /* copies make it quadratic here */
		parse_in_steps(in, response, steps[i], &other);
		check_same_parse(ret, &other);
		free(other.copy);
	}
}

/* No byte of a parsed head can end a line or a string. */
static inline void check_clean(struct str s)
{
	for (size_t i = 0; i < s.n; i++)
		CHECK(s.p[i] != '\r' && s.p[i] != '\n' && s.p[i] != '\0');
}

static inline void check_clean_head(const struct head *h)
{
	check_clean(h->method);
	check_clean(h->target);
	check_clean(h->reason);
	for (size_t i = 0; i < h->n_fields; i++) {
		check_clean(h->fields[i].name);
		check_clean(h->fields[i].value);
		CHECK(h->fields[i].name.n > 0);
	}
}

static inline size_t count_fields(const struct head *h, struct str name)
{
	size_t n;

	head_find(h, name, &n);
	return n;
}

/* Parses what was written; false when it only grew past what one head may hold. */
static inline bool parse_written(const struct buf *out, bool response, struct parse *ret)
{
	CHECK(!out->failed);
	parse_in_steps(buf_view(out), response, 0, ret);
	if (ret->result == HEAD_BAD && (ret->why == HEAD_BAD_TOO_LARGE || ret->why == HEAD_BAD_TOO_MANY_FIELDS))
		return false;
	CHECK(ret->result == HEAD_DONE);
	CHECK(ret->head.len == out->len);
	check_clean_head(&ret->head);
	return true;
}

#endif
