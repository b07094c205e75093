/* Names to addresses, through c-ares, one resolver per worker thread. It resolves; it never judges.
 *
 * One query per name and family in flight, however many wait. Answers are cached by name with clamped TTLs; verdicts
 * never are. Literals must not be handed in. Names must come from host_parse(). */
#ifndef NET_RESOLVER_H
#define NET_RESOLVER_H

#include <event2/event.h>

#include "limits.h"
#include "policy/addr.h"
#include "policy/verdict.h"

struct resolver;
struct lookup;

struct resolver_config {
	const char *servers;  /* "192.0.2.53:53,[2001:db8::53]:53"; NULL or "": those of resolv_conf */
	const char *resolv_conf; /* path, NULL: /etc/resolv.conf; only its nameserver lines count */
	unsigned timeout_ms;  /* of the first try */
	unsigned tries;
	unsigned cache_entries;
};

/* An answer: what is known of a name. Valid during the callback only. */
struct answer {
	enum verdict status;  /* VERDICT_ALLOW: at least one address; else dns_not_found, dns_failed, dns_timeout,
	                         overloaded */
	bool complete;        /* both families have answered (or failed) */
	bool cached;
	size_t n;
	struct addr addrs[LIMIT_ANSWER_ADDRESSES]; /* AAAA first, then A, in the order of the reply */
};

/* Called once or twice, never from inside resolver_lookup(): with complete = false when one family has
 * addresses and the other has been silent for LIMIT_RESOLUTION_DELAY_MS; and with complete = true at the end. After the
 * complete call the lookup is gone. */
typedef void lookup_fn(void *arg, const struct answer *answer);

int resolver_new(struct event_base *base, const struct resolver_config *config, struct resolver **ret);
/* Starts or joins a lookup. Returns 0 with *ret, to be ended by the complete callback or lookup_cancel(); -EBUSY when a
 * limit of limits.h is reached; -EINVAL for a name that host_parse() would not have let through; -ENOMEM. A name from
 * the cache is answered from the event loop too. */
int resolver_lookup(struct resolver *r, struct str name, lookup_fn *fn, void *arg, struct lookup **ret);
/* The waiter leaves; the query goes on for the others and for the cache. Takes NULL; safe inside callbacks. */
struct lookup *lookup_cancel(struct lookup *l);
/* Ends all: waiters are not called, their lookups are gone. Not from inside a callback. */
struct resolver *resolver_free(struct resolver *r);

/* Validates servers text or file without starting anything: 0, or -EINVAL with *ret_why. For clear errors at start. */
int resolver_check(const struct resolver_config *config, const char **ret_why);

#endif
