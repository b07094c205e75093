/* doors: opens what clients come in by.
 *
 * A TCP listener is opened once per worker with SO_REUSEPORT, so that the kernel spreads connections; a unix or passed-in
 * socket belongs to one worker. An error ends the boot: the sockets opened until then are in the relays' entries and are
 * closed with them. */
#include "doors.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/un.h>
#include <systemd/sd-daemon.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/log.h"
#include "limits.h"

static int open_failed(const struct config_listen *l, int r)
{
	fprintf(stderr, "egress-guard: cannot listen on %s: %s\n", l->text, strerror(-r));
	return r;
}

/* With SO_REUSEPORT a second guard of the same user could bind too and take half of the connections: ask without it first. */
static int probe_port(const struct config_listen *l)
{
	int fd, r = listener_open(&l->address, false, &fd);

	if (r == 0)
		fd_close(fd);
	return r;
}

static int find_passed_fd(struct config_listen *l)
{
	char **names = NULL;
	int n = sd_listen_fds_with_names(0, &names), found = -ENOENT;

	for (int i = 0; i < n; i++) {
		if (found < 0 && !strcmp(names[i], l->fd_name))
			found = SD_LISTEN_FDS_START + i;
		free(names[i]);
	}
	free(names);
	return found;
}

static int open_one(struct config *config, size_t i, struct relay **relays, size_t n_workers)
{
	struct config_listen *l = &config->listen[i];
	bool tcp = !l->fd_name && l->address.sa.ss_family != AF_UNIX;
	int r;

	if (l->fd_name) {
		l->address.fd = find_passed_fd(l);
		if (l->address.fd < 0) {
			fprintf(stderr, "egress-guard: no socket named \"%s\" was passed in\n", l->fd_name);
			return -ENOENT;
		}
	}
	r = tcp ? probe_port(l) : 0;
	for (size_t w = 0; r == 0 && w < n_workers; w++) {
		struct relay_entry *e = &relays[w]->entries[i];

		snprintf(e->role, sizeof(e->role), "%s", l->role);
		if (tcp || w == i % n_workers)
			r = listener_open(&l->address, tcp, &e->fd);
	}
	l->opened = r == 0;
	return r < 0 ? open_failed(l, r) : 0;
}

int doors_open(struct config *config, struct relay **relays, size_t n_workers)
{
	int r = 0;

	for (size_t i = 0; i < config->n_listen && r == 0; i++)
		r = open_one(config, i, relays, n_workers);
	return r;
}

void doors_close(struct config *config)
{
	for (size_t i = 0; i < config->n_listen; i++) {
		struct config_listen *l = &config->listen[i];

		if (l->opened && l->address.sa.ss_family == AF_UNIX)
			unlink(((const struct sockaddr_un *)&l->address.sa)->sun_path);
		l->opened = false;
	}
}

static size_t count_open_fds(void)
{
	DIR *d = opendir("/proc/self/fd");
	size_t n = 0;

	if (!d)
		return 64; /* not to be told: more than there are */
	while (readdir(d))
		n++;
	closedir(d);
	return n;
}

unsigned doors_fit(unsigned wanted, size_t n_workers, unsigned *ret_overflow)
{
	/* Two sockets a connection, beside what is open already, those who are only told that there is no room, a few pipes,
	 * name servers and second attempts for each worker, scrapes, and the log anew. Without pipes bytes are copied. */
	size_t have = fd_raise_limit(), spare = count_open_fds() + 12 * n_workers + 8;
	size_t overflow = have / 32 < LIMIT_OVERFLOW ? have / 32 : LIMIT_OVERFLOW;
	size_t fit = have > spare + overflow + 2 ? (have - spare - overflow) / 2 : 1;

	*ret_overflow = (unsigned)(have ? overflow : LIMIT_OVERFLOW);
	if (!have || wanted <= fit)
		return wanted;
	log_event(LOG_FD_LIMIT_LOW, "open files are limited to %zu: limits.connections is %zu instead of %u", have, fit,
		  wanted);
	return (unsigned)fit;
}
