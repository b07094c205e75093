/* Descriptors: limits, flags and a reserve for the moment when there are none left. */
#ifndef BASE_FD_H
#define BASE_FD_H

#include <stdbool.h>
#include <stddef.h>

/* Closes if >= 0 and returns -1, so that `x = fd_close(x)` never closes twice. Keeps errno. */
int fd_close(int fd);
/* Returns 0 or -errno. */
int fd_set_nonblock(int fd);
/* Raises the soft limit of open files to the hard one. Returns the limit now in force, 0 when it cannot be told. */
size_t fd_raise_limit(void);
/* Closes so that the peer gets a reset (RST) instead of an end of data: for a transfer that broke off. */
void fd_reset(int fd);

#endif
