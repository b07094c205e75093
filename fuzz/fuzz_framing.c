/* The chunked coding: the cut of the input has no say, the output never overtakes the input, it holds the same data,
 * and it is a fixed point. The first byte chooses the size of the pieces. */
#include "check.h"
#include "http/framing.h"

struct passed {
	enum chunked_result result;
	size_t consumed, written;
	char *out;
};

static void pass(struct str in, size_t step, bool dechunk, struct passed *p)
{
	struct chunked c;
	size_t n, consumed, written;
	char *piece;

	chunked_init(&c);
	c.dechunk = dechunk;
	*p = (struct passed){.result = CHUNKED_MORE, .out = malloc(in.n + 1)};
	CHECK(p->out);
	while (p->result == CHUNKED_MORE && p->consumed < in.n) {
		n = in.n - p->consumed < step ? in.n - p->consumed : step;
		piece = exact_copy((struct str){in.p + p->consumed, n});
		p->result = chunked_pass(&c, piece, n, piece, &consumed, &written);
		CHECK(written <= consumed && consumed <= n);
		CHECK(consumed == n || p->result != CHUNKED_MORE);
		memcpy(p->out + p->written, piece, written);
		free(piece);
		p->consumed += consumed;
		p->written += written;
	}
}

static void check_same(const struct passed *a, const struct passed *b)
{
	CHECK(a->result == b->result && a->consumed == b->consumed && a->written == b->written);
	CHECK(memcmp(a->out, b->out, a->written) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct passed whole, pieces, data_of_in, data_of_out, again;
	struct str in, out;
	size_t step;

	if (size < 1)
		return 0;
	step = 1u + data[0] % 16;
	in = (struct str){(const char *)data + 1, size - 1};
	pass(in, in.n + 1, false, &whole);
	pass(in, step, false, &pieces);
	check_same(&whole, &pieces);
	pass(in, step, true, &data_of_in);
	CHECK(data_of_in.result == whole.result && data_of_in.consumed == whole.consumed);
	out = (struct str){whole.out, whole.written};
	pass(out, out.n + 1, false, &again);
	pass(out, step, true, &data_of_out);
	/* of a body that stops short, or turned bad, the output is good as far as it goes */
	CHECK(again.result == (whole.result == CHUNKED_DONE ? CHUNKED_DONE : CHUNKED_MORE));
	CHECK(again.consumed == out.n && again.written == out.n && memcmp(again.out, out.p, out.n) == 0);
	CHECK(data_of_out.written == data_of_in.written);
	CHECK(memcmp(data_of_out.out, data_of_in.out, data_of_in.written) == 0);
	free(whole.out);
	free(pieces.out);
	free(data_of_in.out);
	free(data_of_out.out);
	free(again.out);
	return 0;
}
