/* dnscache: a hash of names in order of use.
 *
 * uthash keeps its elements in a list in order of insertion. A hit takes its entry out and appends it again, so the
 * head is always the name not asked for the longest: that one goes when the cache is full. Entries past their time
 * are dropped when they are met; nobody sweeps, because the bound holds without it.
 *
 * An entry is one allocation of the size it needs: the addresses, then the name. On no memory an entry is simply not
 * kept. The clock is the monotonic one of base/clock.h, so a step of the wall clock neither ends nor prolongs
 * anything. */
#include "net/dnscache.h"

#include <errno.h>
#include <stdlib.h>

#include "base/clock.h"

#define HASH_NONFATAL_OOM 1 /* a failed add leaves the element out (hh.tbl is NULL) instead of ending the process */
#define uthash_nonfatal_oom(e) ((void)(e))
#include <uthash.h>

struct entry {
	UT_hash_handle hh;
	uint64_t until_ms;
	enum verdict status;
	uint8_t n;
	uint8_t name_len;
	struct addr addrs[]; /* n of them, then the bytes of the name */
};

struct dnscache {
	struct entry *table;
	size_t max;
};

static char *entry_name(struct entry *e)
{
	return (char *)&e->addrs[e->n];
}

int dnscache_new(size_t entries, struct dnscache **ret)
{
	struct dnscache *c = calloc(1, sizeof(*c));

	if (!c)
		return -ENOMEM;
	c->max = entries;
	*ret = c;
	return 0;
}

static void drop(struct dnscache *c, struct entry *e)
{
	HASH_DEL(c->table, e);
	free(e);
}

struct dnscache *dnscache_free(struct dnscache *c)
{
	if (!c)
		return NULL;
	while (c->table)
		drop(c, c->table);
	free(c);
	return NULL;
}

static struct entry *find(struct dnscache *c, struct str name)
{
	struct entry *e = NULL;

	if (name.n == 0 || name.n > UINT8_MAX)
		return NULL;
	HASH_FIND(hh, c->table, name.p, name.n, e);
	return e;
}

/* Puts an entry at the young end. Returns false when there was no memory for it; it is freed then. */
static bool append(struct dnscache *c, struct entry *e)
{
	HASH_ADD_KEYPTR(hh, c->table, entry_name(e), e->name_len, e);
	if (e->hh.tbl)
		return true;
	free(e);
	return false;
}

bool dnscache_get(struct dnscache *c, struct str name, struct answer *ret)
{
	struct entry *e = find(c, name);

	if (!e)
		return false;
	if (clock_mono_ms() >= e->until_ms) {
		drop(c, e);
		return false;
	}
	ret->status = e->status;
	ret->complete = true;
	ret->cached = true;
	ret->n = e->n;
	memcpy(ret->addrs, e->addrs, e->n * sizeof(e->addrs[0]));
	HASH_DEL(c->table, e);
	append(c, e);
	return true;
}

void dnscache_put(struct dnscache *c, struct str name, const struct answer *a, uint32_t ttl_s)
{
	uint32_t max = a->status == VERDICT_ALLOW ? LIMIT_TTL_MAX_S : LIMIT_TTL_NEGATIVE_S;
	struct entry *e = find(c, name);

	if (e)
		drop(c, e);
	if (!a->complete || c->max == 0 || name.n == 0 || name.n > UINT8_MAX || a->n > LIMIT_ANSWER_ADDRESSES)
		return;
	e = malloc(sizeof(*e) + a->n * sizeof(e->addrs[0]) + name.n);
	if (!e)
		return;
	if (ttl_s < LIMIT_TTL_MIN_S)
		ttl_s = LIMIT_TTL_MIN_S;
	if (ttl_s > max)
		ttl_s = max;
	memset(&e->hh, 0, sizeof(e->hh));
	e->until_ms = clock_mono_ms() + (uint64_t)ttl_s * 1000;
	e->status = a->status;
	e->n = (uint8_t)a->n;
	e->name_len = (uint8_t)name.n;
	memcpy(e->addrs, a->addrs, a->n * sizeof(e->addrs[0]));
	memcpy(entry_name(e), name.p, name.n);
	while (HASH_COUNT(c->table) >= c->max)
		drop(c, c->table);
	append(c, e);
}

size_t dnscache_count(const struct dnscache *c)
{
	return HASH_COUNT(c->table);
}
