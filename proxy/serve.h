/* The verbs that run or read without a running guard. Each returns the exit status. */
#ifndef PROXY_SERVE_H
#define PROXY_SERVE_H

#include "policy/policy.h"

/* Runs the guard in the foreground until SIGTERM or SIGINT. */
int serve_run(const char *config_path);

/* Reads and compiles a policy file, printing every problem as FILE:LINE:COLUMN: message to stderr. Returns 0 with
 * *ret (may be NULL to throw it away), or -errno; -EINVAL when the content is at fault. */
int serve_load_policy(const char *path, struct policy **ret);

/* Prints problems in the one form there is for them. */
void serve_print_problems(const char *path, const struct policy_problems *problems);

#endif
