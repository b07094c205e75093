/* Boot step 4: the listening sockets of all workers, and how many connections the file limit allows. */
#ifndef PROXY_DOORS_H
#define PROXY_DOORS_H

#include "config.h"
#include "relay/relay.h"

/* Opens every listener of the configuration into the entries of the workers' relays: a TCP one once per worker, a unix or
 * passed-in one for a single worker. Says what failed on stderr. Returns 0 or -errno; what was opened is the relays'. */
int doors_open(struct config *config, struct relay **relays, size_t n_workers);

/* Removes the files of the unix sockets that doors_open() made, once. Call before the listening sockets are closed: while they
 * listen nobody else takes the path, afterwards the file there may be a successor's. */
void doors_close(struct config *config);

/* Raises the limit of open files and returns how many connections fit into it, at most `wanted`, and how
 * many more may be let in to be told so. Call when all else is open. */
unsigned doors_fit(unsigned wanted, size_t n_workers, unsigned *ret_overflow);

#endif
