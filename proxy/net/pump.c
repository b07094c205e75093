/* pump: one direction of bytes.
 *
 * Order is kept by one rule: first `held`, then the pipe, then new bytes; nothing new is read while older bytes wait, so
 * at most one buffer or one pipe is in flight in each direction.
 *
 * splice(2) says EAGAIN for "the pipe is full" and for "the socket has nothing" alike; here the pipe is always empty when
 * it is filled, so the answer speaks of the socket. How much is in the pipe is counted, never guessed.
 *
 * A read shorter than what was asked for means that the socket is empty for now: with edge-triggered events the next
 * byte brings a new edge. Only when the peer's FIN has been seen is there no further edge to wait for, and the pump reads
 * on until it gets the 0. A reset can hide: libevent reports EPOLLERR as readable and writable and keeps EPOLLRDHUP to itself,
 * so a reset that came together with the last bytes looks like bytes alone. Hence `unsure`: the relay looks again
 * at such sockets a few times a second, which costs less than a second read after each.
 *
 * On a write error the bytes in flight are lost: `in` has counted them and `out` has not. */
#include "net/pump.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/socket.h>

#include "limits.h"

enum {
	SMALL_SPLICE = 16 * 1024, /* below this a copy is cheaper: two system calls against three */
	SMALL_IN_A_ROW = 4,
	FULL_IN_A_ROW = 2,
};

/* Writes out of user space. Returns bytes written, 0 when the sink is full, -1 with p->error. */
static ssize_t push(struct pump *p, struct pump_end *to, const char *mem, size_t n)
{
	ssize_t done;

	do
		done = send(to->fd, mem, n, MSG_NOSIGNAL | MSG_DONTWAIT);
	while (done < 0 && errno == EINTR);
	if (done < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
		to->writable = false;
		return 0;
	}
	if (done > 0)
		p->out += (uint64_t)done;
	else if (done < 0)
		p->error = errno;
	return done;
}

static void give_pipe(struct pump *p, const struct pump_room *room)
{
	pipe_pool_give(room->pipes, p->pipe, p->in_pipe == 0);
	p->pipe = NULL;
	p->in_pipe = 0;
}

enum pump_status pump_flush(struct pump *p, struct pump_end *to, const struct pump_room *room)
{
	while (p->held.len) {
		struct str v = buf_view(&p->held);
		ssize_t n;

		if (!to->writable)
			return PUMP_WANT_WRITE;
		n = push(p, to, v.p, v.n);
		if (n < 0)
			return PUMP_WRITE_ERROR;
		buf_consume(&p->held, (size_t)n);
	}
	if (p->held.mem)
		buf_free(&p->held);
	while (p->in_pipe) {
		ssize_t n;

		if (!to->writable)
			return PUMP_WANT_WRITE;
		n = splice(p->pipe->r, NULL, to->fd, NULL, p->in_pipe, SPLICE_F_MOVE | SPLICE_F_NONBLOCK);
		if (n > 0) {
			p->in_pipe -= (size_t)n;
			p->out += (uint64_t)n;
			p->spliced += (uint64_t)n;
		} else if (n < 0 && errno == EAGAIN) {
			to->writable = false;
		} else if (n == 0 || errno != EINTR) {
			p->error = n == 0 ? EPIPE : errno;
			return PUMP_WRITE_ERROR;
		}
	}
	if (p->pipe)
		give_pipe(p, room);
	return PUMP_WANT_READ;
}

void pump_end_read(struct pump_end *from, ssize_t n, size_t want)
{
	from->unsure = n > 0 && (size_t)n < want && !from->hup;
	if (n == 0)
		from->eof = true;
	else if (from->unsure || (n < 0 && errno == EAGAIN))
		from->readable = false;
}

static void note_read(struct pump *p, struct pump_end *from, ssize_t n, size_t want)
{
	pump_end_read(from, n, want);
	if (n > 0)
		p->in += (uint64_t)n;
	p->error = n < 0 ? errno : 0;
}

/* Reads once by splice. Returns what splice() did; the pipe is held only when bytes are in it. */
static ssize_t fill_pipe(struct pump *p, struct pump_end *from, size_t want, const struct pump_room *room)
{
	ssize_t n;

	do
		n = splice(from->fd, NULL, p->pipe->w, NULL, want, SPLICE_F_MOVE | SPLICE_F_NONBLOCK);
	while (n < 0 && errno == EINTR);
	/* A short splice may be a pipe full of small packets: it proves nothing of the socket. */
	note_read(p, from, n, n > 0 ? (size_t)n : want);
	if (n > 0)
		p->in_pipe = (size_t)n;
	else
		give_pipe(p, room);
	/* An empty socket says nothing of the flow: it comes after every small packet. */
	if (n > 0)
		p->small = n < SMALL_SPLICE ? (uint8_t)(p->small + 1) : 0;
	if (p->small >= SMALL_IN_A_ROW) {
		p->splicing = false;
		p->small = p->full = 0;
	}
	return n;
}

/* Reads once into the copy buffer and writes it on. What the sink does not take is held. */
static ssize_t copy_once(struct pump *p, struct pump_end *from, struct pump_end *to, size_t want,
			 const struct pump_room *room, bool *ret_write_error)
{
	ssize_t n, done;

	do
		n = recv(from->fd, room->copy, want, MSG_DONTWAIT);
	while (n < 0 && errno == EINTR);
	note_read(p, from, n, want);
	if (n <= 0)
		return n;
	p->full = (size_t)n == LIMIT_COPY_BYTES ? (uint8_t)(p->full + 1) : 0;
	if (p->full >= FULL_IN_A_ROW)
		p->splicing = true;
	done = push(p, to, room->copy, (size_t)n);
	if (done >= 0 && done < n) {
		/* The next try finds out whether there is room again: a short send may have been one of memory. */
		buf_add(&p->held, room->copy + done, (size_t)(n - done));
		if (p->held.failed) {
			p->error = ENOMEM;
			done = -1;
		}
	}
	*ret_write_error = done < 0;
	return n;
}

enum pump_status pump_run(struct pump *p, struct pump_end *from, struct pump_end *to, uint64_t *limit,
			  const struct pump_room *room)
{
	size_t turn = LIMIT_TURN_BYTES;

	for (;;) {
		enum pump_status st = pump_flush(p, to, room);
		bool write_error = false;
		size_t want;
		ssize_t n;

		if (st != PUMP_WANT_READ)
			return st;
		if (*limit == 0)
			return PUMP_LIMIT;
		if (from->eof)
			return PUMP_EOF;
		if (!from->readable)
			return PUMP_WANT_READ;
		if (!to->writable)
			return PUMP_WANT_WRITE;
		if (turn == 0)
			return PUMP_YIELD;
		if (p->splicing)
			p->pipe = pipe_pool_take(room->pipes);
		want = p->pipe ? p->pipe->size : LIMIT_COPY_BYTES;
		if (want > *limit)
			want = (size_t)*limit;
		n = p->pipe ? fill_pipe(p, from, want, room) : copy_once(p, from, to, want, room, &write_error);
		if (n < 0 && p->error != EAGAIN)
			return PUMP_READ_ERROR;
		if (n > 0) {
			if (*limit != UINT64_MAX)
				*limit -= (uint64_t)n;
			turn -= (size_t)n < turn ? (size_t)n : turn;
		}
		if (write_error)
			return PUMP_WRITE_ERROR;
	}
}

void pump_clear(struct pump *p, const struct pump_room *room)
{
	buf_free(&p->held);
	give_pipe(p, room);
}
