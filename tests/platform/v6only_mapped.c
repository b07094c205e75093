/* Kernel assumption: an AF_INET6 socket connects to an IPv4-mapped address over IPv4, unless IPV6_V6ONLY is set;
 * then it does not at all. Hence the option on every AF_INET6 socket of the dialer. Exit 0, 1, or 77 (cannot be
 * tried). */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static int mapped_connect(in_port_t port, int only)
{
	struct sockaddr_in6 to = {.sin6_family = AF_INET6, .sin6_port = port};
	int fd = socket(AF_INET6, SOCK_STREAM, 0), e = 0;

	if (fd < 0 || inet_pton(AF_INET6, "::ffff:127.0.0.1", &to.sin6_addr) != 1 ||
	    setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &only, sizeof(only)) < 0)
		return -1;
	if (connect(fd, (struct sockaddr *)&to, sizeof(to)) < 0)
		e = errno;
	close(fd);
	return e;
}

int main(void)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t len = sizeof(a);
	int l = socket(AF_INET, SOCK_STREAM, 0), open, only;

	if (l < 0 || bind(l, (struct sockaddr *)&a, len) < 0 || listen(l, 8) < 0 ||
	    getsockname(l, (struct sockaddr *)&a, &len) < 0)
		return 77;
	open = mapped_connect(a.sin_port, 0);
	only = mapped_connect(a.sin_port, 1);
	if (open < 0 || only < 0) {
		puts("skipped: no IPv6 sockets");
		return 77;
	}
	if (open != 0) {
		printf("without IPV6_V6ONLY: %s; expected a connection over IPv4\n", strerror(open));
		return 1;
	}
	if (only != ENETUNREACH) {
		printf("with IPV6_V6ONLY: %s; expected ENETUNREACH\n", only ? strerror(only) : "a connection");
		return 1;
	}
	puts("ok");
	return 0;
}
