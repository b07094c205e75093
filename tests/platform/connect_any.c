/* Kernel assumption: connect() to the unspecified address reaches a listener on loopback, and getpeername() tells
 * the address really reached. The dialer relies on the second half to notice the first. Exit 0, 1, or 77 (cannot be
 * tried). */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static int try_v4(void)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)}, peer;
	socklen_t len = sizeof(a), peer_len = sizeof(peer);
	int l = socket(AF_INET, SOCK_STREAM, 0), c = socket(AF_INET, SOCK_STREAM, 0);

	if (l < 0 || c < 0 || bind(l, (struct sockaddr *)&a, len) < 0 || listen(l, 1) < 0 ||
	    getsockname(l, (struct sockaddr *)&a, &len) < 0)
		return 77;
	a.sin_addr.s_addr = htonl(INADDR_ANY);
	if (connect(c, (struct sockaddr *)&a, sizeof(a)) < 0) {
		perror("connect to 0.0.0.0");
		return 1;
	}
	if (getpeername(c, (struct sockaddr *)&peer, &peer_len) < 0 || peer.sin_addr.s_addr != htonl(INADDR_LOOPBACK)) {
		puts("the peer of a connection to 0.0.0.0 is not said to be 127.0.0.1");
		return 1;
	}
	close(l);
	close(c);
	return 0;
}

static int try_v6(void)
{
	struct sockaddr_in6 a = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT}, peer;
	socklen_t len = sizeof(a), peer_len = sizeof(peer);
	int l = socket(AF_INET6, SOCK_STREAM, 0), c = socket(AF_INET6, SOCK_STREAM, 0);

	if (l < 0 || c < 0 || bind(l, (struct sockaddr *)&a, len) < 0 || listen(l, 1) < 0 ||
	    getsockname(l, (struct sockaddr *)&a, &len) < 0)
		return 77;
	a.sin6_addr = in6addr_any;
	if (connect(c, (struct sockaddr *)&a, sizeof(a)) < 0) {
		perror("connect to [::]");
		return 1;
	}
	if (getpeername(c, (struct sockaddr *)&peer, &peer_len) < 0 || !IN6_IS_ADDR_LOOPBACK(&peer.sin6_addr)) {
		puts("the peer of a connection to [::] is not said to be ::1");
		return 1;
	}
	close(l);
	close(c);
	return 0;
}

int main(void)
{
	int v4 = try_v4(), v6 = try_v6();

	if (v4 == 1 || v6 == 1)
		return 1;
	puts(v4 || v6 ? "skipped: no loopback of one family" : "ok");
	return v4 ? v4 : v6;
}
