/* Puts the test into a network namespace of its own and makes a second one, joined by a veth pair, with addresses that look
 * public; nothing can leave the machine. For one test program.
 *
 *   here 93.184.217.1, 2606:2800:217::1  ---  world 93.184.216.34 and 2606:2800:216::34 (ports 80 and 443 listen)
 *
 * In world .35 refuses (nothing listens), .36 swallows every packet (world routes nothing on); .37 is unreachable by a
 * route of this side. */
#ifndef TESTS_TWO_NAMESPACES_H
#define TESTS_TWO_NAMESPACES_H

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

static inline bool run(const char *command)
{
	return system(command) == 0;
}

static inline void listen_on(int family, const char *address, uint16_t port)
{
	struct sockaddr_in6 a6 = {.sin6_family = AF_INET6, .sin6_port = htons(port)};
	struct sockaddr_in a4 = {.sin_family = AF_INET, .sin_port = htons(port)};
	int fd = socket(family, SOCK_STREAM, 0);

	inet_pton(AF_INET, address, &a4.sin_addr);
	inet_pton(AF_INET6, address, &a6.sin6_addr);
	if (bind(fd, family == AF_INET ? (struct sockaddr *)&a4 : (struct sockaddr *)&a6,
		 family == AF_INET ? sizeof(a4) : sizeof(a6)) < 0 || listen(fd, 1000) < 0)
		_exit(1); /* nothing is ever accepted: connecting is all there is to see */
}

static inline void world(int ready, int go)
{
	char c = 'x';

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (unshare(CLONE_NEWNET) < 0 || write(ready, &c, 1) != 1 || read(go, &c, 1) != 1)
		_exit(1);
	if (!run("ip link set lo up && ip link set w0 up && ip addr add 100.64.0.1/30 dev w0 && "
		 "ip addr add fd00:64::1/64 dev w0 nodad && ip addr add 93.184.216.34/32 dev lo && "
		 "ip addr add 93.184.216.35/32 dev lo && ip addr add 2606:2800:216::34/128 dev lo nodad && "
		 "ip route add 93.184.217.1 via 100.64.0.2 && ip -6 route add 2606:2800:217::1 via fd00:64::2"))
		_exit(1);
	listen_on(AF_INET, "93.184.216.34", 80);
	listen_on(AF_INET, "93.184.216.34", 443);
	listen_on(AF_INET6, "2606:2800:216::34", 443);
	if (write(ready, &c, 1) != 1)
		_exit(1);
	for (;;)
		pause();
}

/* A fresh link drops IPv6 for a moment (neighbours are not answered before the addresses have settled). */
static inline bool ipv6_works(void)
{
	struct sockaddr_in6 a = {.sin6_family = AF_INET6, .sin6_port = htons(443)};
	bool ok = false;

	inet_pton(AF_INET6, "2606:2800:216::34", &a.sin6_addr);
	for (int i = 0; i < 30 && !ok; i++) {
		int fd = socket(AF_INET6, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
		struct pollfd p = {.fd = fd, .events = POLLOUT};
		int e = -1;
		socklen_t len = sizeof(e);

		connect(fd, (struct sockaddr *)&a, sizeof(a));
		ok = poll(&p, 1, 100) == 1 && getsockopt(fd, SOL_SOCKET, SO_ERROR, &e, &len) == 0 && e == 0;
		close(fd);
	}
	return ok;
}

/* Returns the process that holds the world open (to be killed), or -1. */
static inline pid_t make_world(void)
{
	int ready[2], go[2];
	char c = 'x', command[200];
	pid_t pid;

	if ((unshare(CLONE_NEWNET) < 0 && unshare(CLONE_NEWUSER | CLONE_NEWNET) < 0) || pipe2(ready, O_CLOEXEC) < 0 ||
	    pipe2(go, O_CLOEXEC) < 0)
		return -1;
	pid = fork();
	if (pid == 0)
		world(ready[1], go[0]);
	close(ready[1]);
	close(go[0]);
	snprintf(command, sizeof(command), "ip link add g0 type veth peer name w0 netns %d", (int)pid);
	if (pid < 0 || read(ready[0], &c, 1) != 1 || !run(command) ||
	    !run("ip link set lo up && ip link set g0 up && ip addr add 100.64.0.2/30 dev g0 && "
		 "ip addr add fd00:64::2/64 dev g0 nodad && ip addr add 93.184.217.1/32 dev g0 && "
		 "ip addr add 2606:2800:217::1/128 dev g0 nodad && "
		 "ip route add default via 100.64.0.1 src 93.184.217.1 && "
		 "ip -6 route add default via fd00:64::1 src 2606:2800:217::1 && "
		 "ip route add unreachable 93.184.216.37") ||
	    write(go[1], &c, 1) != 1 || read(ready[0], &c, 1) != 1)
		return -1;
	close(ready[0]);
	close(go[1]);
	return ipv6_works() ? pid : -1;
}

#endif
