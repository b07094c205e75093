/* conf/egress-guard.yaml: what the guard reads once, at start. */
#ifndef PROXY_CONFIG_H
#define PROXY_CONFIG_H

#include "base/log.h"
#include "net/listener.h"
#include "policy/policy.h"

struct config_listen {
	struct listen_address address;
	char *text;                /* as written, for messages */
	char *fd_name;             /* fd:NAME, to be found among the sockets of the service manager; else NULL */
	char role[POLICY_ROLE_NAME_MAX + 1];
	bool opened;               /* the listening socket was made, and its file not yet removed */
};

struct config {
	struct config_listen *listen;
	size_t n_listen;
	char *policy_path;         /* absolute or relative to the working directory */
	bool has_metrics;
	struct listen_address metrics;
	char *dns_servers;         /* "", or a list for the resolver */
	uint64_t dns_timeout_ms, dns_tries, dns_cache;
	uint64_t workers;          /* 0: one per processor */
	uint64_t head_ms, connect_ms, idle_ms, half_open_ms, drain_ms;
	uint64_t max_connections;
	char *log_path;
	enum log_level log_level;
};

/* Reads `text`, the content of `path` (paths inside are relative to its folder). Returns 0, -EINVAL with every problem, or
 * -ENOMEM. On failure *ret is untouched. */
int config_read(struct str text, const char *path, struct config *ret, struct policy_problems *problems);
void config_clear(struct config *c);

/* Reads a whole file of at most `max` bytes. Returns 0 with *ret (terminated, yours to free) and *ret_n, or -errno
 * (-EFBIG: larger). */
int config_read_file(const char *path, size_t max, char **ret, size_t *ret_n);

#endif
