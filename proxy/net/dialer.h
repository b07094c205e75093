/* The only connect(). Looks a name up, judges every candidate address, races the good ones, checks who answered.
 *
 * Lookup and connecting together stay within the budget. A candidate that policy_judge_address() refuses refuses the
 * whole answer (mixed answers). Each address is judged again on the line above connect() with the policy in force then;
 * getpeername() is compared after it; a socket whose own and peer addresses are equal is this host. */
#ifndef NET_DIALER_H
#define NET_DIALER_H

#include <event2/event.h>

#include "net/ownaddr.h"
#include "net/resolver.h"
#include "policy/policy.h"

struct dialer;
struct dial;

struct dialer_config {
	struct event_base *base;
	struct resolver *resolver;
	struct ownaddr *own;
	const struct policy *(*policy)(void *arg); /* the policy in force, borrowed for the moment of the call */
	void *policy_arg;
	unsigned budget_ms;
};

struct dial_request {
	const struct policy_target *target; /* copied */
	struct str role;                    /* copied; at most POLICY_ROLE_NAME_MAX bytes */
};

struct dial_result {
	enum verdict verdict;     /* VERDICT_ALLOW: fd is connected and yours */
	int fd;                   /* -1 unless allowed; non-blocking, close-on-exec, TCP_NODELAY */
	struct addr addr;         /* allowed: the peer; refused address_*: the address that refused */
	bool has_addr;
	uint32_t rule_line;
	const char *what;         /* static, follows the address or host; may be NULL */
	uint64_t lookup_ns, connect_ns;
	bool dns_cached;
};

/* Called exactly once, from the event loop, never from inside dial_start(); the dial is gone then. */
typedef void dial_fn(void *arg, const struct dial_result *result);

int dialer_new(const struct dialer_config *config, struct dialer **ret);
struct dialer *dialer_free(struct dialer *d);

/* The caller has judged the target already (policy_judge_target). Returns 0 with *ret, or -ENOMEM. */
int dial_start(struct dialer *d, const struct dial_request *request, dial_fn *fn, void *arg, struct dial **ret);
/* The client left: attempts are closed, the lookup goes on for others. Takes NULL. */
struct dial *dial_cancel(struct dial *d);

#endif
