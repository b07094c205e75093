/* Answers by name, for as long as their TTL says. Bounded; addresses and failures only, never a verdict on them: what
 * comes out is judged like what comes from the wire. One per resolver, on its thread. */
#ifndef NET_DNSCACHE_H
#define NET_DNSCACHE_H

#include "net/resolver.h"

struct dnscache;

/* At most `entries` names; 0 keeps nothing. Returns 0 or -ENOMEM. */
int dnscache_new(size_t entries, struct dnscache **ret);
struct dnscache *dnscache_free(struct dnscache *c);

/* Fills *ret, with `cached` set, and returns true when the name is known and its time is not over. */
bool dnscache_get(struct dnscache *c, struct str name, struct answer *ret);

/* Keeps a complete answer for `ttl_s`, clamped to LIMIT_TTL_MIN_S..LIMIT_TTL_MAX_S; one without addresses for at most
 * LIMIT_TTL_NEGATIVE_S. Replaces what is there. When full, the name not asked for the longest goes. Without memory, or
 * for an incomplete answer, nothing is kept, not even what was there. */
void dnscache_put(struct dnscache *c, struct str name, const struct answer *a, uint32_t ttl_s);

size_t dnscache_count(const struct dnscache *c);

#endif
