/* fd: small duties around descriptors that several modules share. */
#include "base/fd.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

int fd_close(int fd)
{
	int keep = errno;

	if (fd >= 0)
		close(fd);
	errno = keep;
	return -1;
}

int fd_set_nonblock(int fd)
{
	int flags = fcntl(fd, F_GETFL);

	if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) < 0)
		return -errno;
	return 0;
}

size_t fd_raise_limit(void)
{
	struct rlimit r;

	if (getrlimit(RLIMIT_NOFILE, &r) < 0)
		return 0;
	r.rlim_cur = r.rlim_max;
	if (setrlimit(RLIMIT_NOFILE, &r) < 0 && getrlimit(RLIMIT_NOFILE, &r) < 0)
		return 0;
	return (size_t)r.rlim_cur;
}

void fd_reset(int fd)
{
	/* tcp(7) has no option for this; a zero linger time makes close() abort (RFC 9293 3.10.4). */
	struct linger now = {.l_onoff = 1, .l_linger = 0};

	if (fd < 0)
		return;
	setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
	close(fd);
}
