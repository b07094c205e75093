/* Kernel assumption: when a non-blocking connect() fails, the socket becomes writable, SO_ERROR has the reason and
 * gives it once; when it succeeds, SO_ERROR is 0 and getpeername() works. Exit 0, 1, or 77 (cannot be tried). */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static int socket_error(int fd)
{
	int e = -1;
	socklen_t len = sizeof(e);

	return getsockopt(fd, SOL_SOCKET, SO_ERROR, &e, &len) < 0 ? -1 : e;
}

/* Connects and waits until the socket is writable. Returns it, or -1. */
static int attempt(const struct sockaddr_in *to)
{
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
	struct pollfd p = {.fd = fd, .events = POLLOUT};

	if (fd < 0 || (connect(fd, (const struct sockaddr *)to, sizeof(*to)) < 0 && errno != EINPROGRESS) ||
	    poll(&p, 1, 2000) != 1)
		return -1;
	return fd;
}

int main(void)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)}, peer;
	socklen_t len = sizeof(a), peer_len = sizeof(peer);
	int l = socket(AF_INET, SOCK_STREAM, 0), fd, first, second;

	if (l < 0 || bind(l, (struct sockaddr *)&a, len) < 0 || getsockname(l, (struct sockaddr *)&a, &len) < 0)
		return 77;
	fd = attempt(&a); /* bound, not listening: refused, and nobody else can take the port */
	first = fd < 0 ? -1 : socket_error(fd);
	second = fd < 0 ? -1 : socket_error(fd);
	if (first != ECONNREFUSED || second != 0) {
		printf("closed port: SO_ERROR %d, then %d; expected %d, then 0\n", first, second, ECONNREFUSED);
		return 1;
	}
	close(fd);
	if (listen(l, 1) < 0)
		return 77;
	fd = attempt(&a);
	first = fd < 0 ? -1 : socket_error(fd);
	if (first != 0 || getpeername(fd, (struct sockaddr *)&peer, &peer_len) < 0 || peer.sin_port != a.sin_port) {
		printf("open port: SO_ERROR %d, expected 0 and a peer\n", first);
		return 1;
	}
	puts("ok");
	return 0;
}
