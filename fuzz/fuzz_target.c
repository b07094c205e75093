/* Targets: method, target and Host as lines of the input. What is accepted is canonical, and its canonical form is
 * accepted as the same target. */
#include "check.h"
#include "http/target.h"

/* Takes the next line off `*in`. */
static struct str next_line(struct str *in)
{
	const char *lf = in->n ? memchr(in->p, '\n', in->n) : NULL;
	struct str line = {in->p, lf ? (size_t)(lf - in->p) : in->n};

	*in = str_skip(*in, lf ? line.n + 1 : line.n);
	return line;
}

static void check_same_target(const struct policy_target *a, const struct policy_target *b)
{
	CHECK(a->port == b->port && a->host.kind == b->host.kind);
	CHECK(a->host.kind == HOST_ADDR ? addr_equal(&a->host.addr, &b->host.addr) :
					  str_eq(host_name(&a->host), host_name(&b->host)));
}

/* "CONNECT host:port" of the canonical host names the same place. */
static void check_canonical(const struct target *t)
{
	char text[HOST_TEXT_MAX + 8], host[HOST_TEXT_MAX], *copy;
	struct head h = {.minor = 0, .method = STR_LIT("CONNECT")};
	struct target again;
	const char *why;
	int n;

	CHECK(t->to.host.kind != HOST_NONE && t->to.port != 0);
	host_format(&t->to.host, host);
	n = snprintf(text, sizeof(text), "%s:%u", host, (unsigned int)t->to.port);
	CHECK(n > 0 && (size_t)n < sizeof(text));
	copy = exact_copy((struct str){text, (size_t)n});
	h.target = (struct str){copy, (size_t)n};
	CHECK(target_parse(&h, &again, &why) == VERDICT_ALLOW);
	check_same_target(&t->to, &again.to);
	for (const char *p = host; *p; p++)
		CHECK(strchr("abcdefghijklmnopqrstuvwxyz0123456789-_.:[]", *p) != NULL);
	free(copy);
}

/* What goes to the origin is made of these views: nothing but the path follows the authority. */
static void check_absolute(const struct head *h, const struct target *t)
{
	const char *end = h->target.p + h->target.n;

	CHECK(t->authority.n > 0 && t->path_query.n > 0);
	CHECK(t->authority.p > h->target.p && t->authority.p + t->authority.n <= end);
	CHECK(!memchr(t->authority.p, '@', t->authority.n) && !memchr(t->authority.p, '/', t->authority.n));
	CHECK(!memchr(t->path_query.p, '#', t->path_query.n));
	CHECK(t->slash == (t->path_query.p[0] == '?'));
	CHECK(t->slash || t->path_query.p[0] == '/' || str_eq(t->path_query, STR_LIT("*")));
	CHECK(t->explicit_port == (t->to.port != 80));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct str in = {(const char *)data, size}, method = next_line(&in);
	struct str target = next_line(&in), host = next_line(&in);
	struct head h = {.minor = method.n & 1};
	char *m = exact_copy(method), *t = exact_copy(target), *v = exact_copy(host);
	struct target ret;
	const char *why = NULL;
	enum verdict verdict;

	h.method = (struct str){m, method.n};
	h.target = (struct str){t, target.n};
	h.fields[0] = (struct head_field){STR_LIT("Host"), {v, host.n}};
	h.n_fields = 1;
	/* the head parser gives no empty target and no byte that is not printable ASCII */
	for (size_t i = 0; i < target.n; i++)
		if (target.p[i] <= ' ' || target.p[i] > '~')
			target.n = 0;
	if (target.n > 0) {
		verdict = target_parse(&h, &ret, &why);
		if (verdict == VERDICT_ALLOW) {
			check_canonical(&ret);
			CHECK(ret.connect == str_eq(h.method, STR_LIT("CONNECT")));
			if (!ret.connect)
				check_absolute(&h, &ret);
		} else {
			CHECK(why && *why);
			CHECK(verdict_row(verdict)->status >= 400);
		}
	}
	free(m);
	free(t);
	free(v);
	return 0;
}
