/* Kernel assumption: a connection to an address of this host has that address at both ends, which is how the dialer
 * tells that an origin is this host when it learned of the address too late. It does not hold for 127.0.0.2 and the
 * like, whose source is 127.0.0.1: those must be refused by the table. And whatever a local route covers is
 * delivered here. Exit 0, 1, or 77 (cannot be tried). */
#include <arpa/inet.h>
#include <ifaddrs.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* Connects to `to` and gives the address of the near end. Returns 0, or -1 when nothing connects. */
static int near_end(struct in_addr to, in_port_t port, struct in_addr *ret)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = port, .sin_addr = to}, own;
	socklen_t len = sizeof(own);
	int fd = socket(AF_INET, SOCK_STREAM, 0);
	int r = fd < 0 || connect(fd, (struct sockaddr *)&a, sizeof(a)) < 0 ||
		getsockname(fd, (struct sockaddr *)&own, &len) < 0;

	if (fd >= 0)
		close(fd);
	if (r)
		return -1;
	*ret = own.sin_addr;
	return 0;
}

int main(void)
{
	struct sockaddr_in any = {.sin_family = AF_INET};
	socklen_t len = sizeof(any);
	struct in_addr from, odd = {htonl(0x7f090909)};
	struct ifaddrs *all = NULL;
	int l = socket(AF_INET, SOCK_STREAM, 0), tried = 0;

	if (l < 0 || bind(l, (struct sockaddr *)&any, len) < 0 || listen(l, 64) < 0 ||
	    getsockname(l, (struct sockaddr *)&any, &len) < 0 || getifaddrs(&all) < 0)
		return 77;
	for (struct ifaddrs *i = all; i && tried < 32; i = i->ifa_next) {
		struct sockaddr_in *a = (struct sockaddr_in *)i->ifa_addr;

		if (!a || a->sin_family != AF_INET)
			continue;
		tried++;
		if (near_end(a->sin_addr, any.sin_port, &from) < 0 || from.s_addr != a->sin_addr.s_addr) {
			printf("connected to %s, the near end is another address\n", inet_ntoa(a->sin_addr));
			return 1;
		}
	}
	freeifaddrs(all);
	if (near_end(odd, any.sin_port, &from) < 0) {
		puts("127.9.9.9 is not delivered here");
		return 1;
	}
	if (from.s_addr == odd.s_addr) {
		puts("127.9.9.9 has equal ends: the comment above is out of date");
		return 1;
	}
	puts(tried ? "ok" : "skipped: no interface has an IPv4 address");
	return tried ? 0 : 77;
}
