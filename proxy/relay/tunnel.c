/* tunnel: bytes both ways until both sides have ended.
 *
 * A side's FIN is passed on with shutdown(SHUT_WR) once every byte before it is written (it must not overtake them); the
 * other direction goes on. When both directions have ended the tunnel is done. A reset on one side resets the other, so
 * that nobody takes a broken stream for a whole one. Back-pressure is the pump's: it never reads what the other side
 * would not take.
 *
 * A reset of the client is passed on at once, whatever is in flight: nobody waits for it any more. A reset of the origin
 * is passed on when every byte that came before it is written to the client; what is then still in the client's socket may
 * be lost with it, as in any reset.
 *
 * A write error towards the origin means that it is gone for our bytes. What it sent before it went may still be in its
 * socket (a server that answers and closes while the client still sends), so the way down is served to its end and the
 * reset comes after. A client that cannot be written to is gone at once. */
#include "relay/tunnel.h"

#include <errno.h>
#include <sys/socket.h>

#include "relay/relay.h"

void tunnel_start(struct conn *c)
{
	conn_set_state(c, CONN_TUNNEL);
}

/* Passes the end of a direction on. Returns true: this direction is over. */
static bool finish(struct conn *c, enum side_id from)
{
	struct pump_end *to = &c->side[!from].end;

	/* When the other direction is over too, close() comes next and says the same. */
	if (!to->shut && !(to->eof && c->side[from].end.shut)) {
		shutdown(to->fd, SHUT_WR);
		to->shut = true;
	}
	return true;
}

static bool run_direction(struct conn *c, enum side_id from, enum close_why *ret_close)
{
	uint64_t no_limit = UINT64_MAX;

	if (from == CLIENT && c->up_broken)
		return true;
	switch (conn_pump(c, from, &no_limit)) {
	case PUMP_WANT_READ:
	case PUMP_WANT_WRITE:
	case PUMP_LIMIT:
		return false;
	case PUMP_YIELD:
		worker_again(c->relay->worker, &c->again);
		return false;
	case PUMP_EOF:
		if (conn_was_reset(c, from)) {
			*ret_close = from == CLIENT ? CLOSE_CLIENT_RESET : CLOSE_ORIGIN_RESET;
			return false;
		}
		return finish(c, from);
	case PUMP_READ_ERROR:
		*ret_close = from == CLIENT ? CLOSE_CLIENT_RESET : CLOSE_ORIGIN_RESET;
		return false;
	case PUMP_WRITE_ERROR:
		if (c->pump[from].error == ENOMEM || c->pump[from].error == ENOBUFS) /* our own trouble: the other side lives and would wait */
			*ret_close = CLOSE_INTERNAL_ERROR;
		else if (from == ORIGIN)
			*ret_close = CLOSE_CLIENT_RESET;
		else
			c->up_broken = true;
		return c->up_broken;
	}
	return false;
}

void tunnel_run(struct conn *c)
{
	enum close_why why_up = CLOSE_N, why_down = CLOSE_N;
	bool up = run_direction(c, CLIENT, &why_up);
	bool down = run_direction(c, ORIGIN, &why_down);

	if (why_up != CLOSE_N || why_down != CLOSE_N)
		conn_close(c, why_up != CLOSE_N ? why_up : why_down);
	else if (up && down)
		conn_close(c, c->up_broken ? CLOSE_ORIGIN_RESET : CLOSE_DONE);
}

void tunnel_cut(struct conn *c, enum close_why why)
{
	/* RFC 8446 6: alert record, TLS 1.2 in the record layer, fatal access_denied (49). */
	static const char denied[] = {0x15, 0x03, 0x03, 0x00, 0x02, 0x02, 0x31};

	/* Once the origin has spoken, an alert in the clear would only corrupt its stream. */
	if (c->req.connect && c->req.to.port == 443 && !c->req.down && !c->pump[ORIGIN].held.len &&
	    send(c->side[CLIENT].end.fd, denied, sizeof(denied), MSG_NOSIGNAL | MSG_DONTWAIT) > 0) {
		/* A side that has its FIN is closed, not reset: the alert must arrive. */
		shutdown(c->side[CLIENT].end.fd, SHUT_WR);
		c->side[CLIENT].end.shut = true;
	}
	conn_close(c, why);
}
