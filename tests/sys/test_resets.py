"""An origin that resets: its client sees a reset, behind every byte that came before it, and never a clean end."""
import signal
import socket
import threading
import time

import pytest

from lab import eventually
from script import TARGET, URL, Origin, fill, head_of, reset
from wire import Client, connect_head, request

ROUNDS = 4


def upload(c):
    """Sends until the connection is over; gives how it ended, as the client's kernel tells it, and what came before.
    The news of a reset comes once, by whichever call is next: both are one thread's, so that none is lost."""
    got, until = b"", time.monotonic() + 5
    c.sock.setblocking(False)
    while time.monotonic() < until:
        for call in (lambda: c.sock.recv(65536), lambda: c.sock.send(b"x" * 1000)):
            try:
                done = call()
            except BlockingIOError:
                continue
            except ConnectionResetError:
                return "reset", got
            except BrokenPipeError:
                return "end", got
            if isinstance(done, bytes):
                got += done
                if not done:
                    return "end", got
        time.sleep(0.0005)
    return "nothing", got


@pytest.fixture
def meet(guard):
    """Runs an upload whose bytes and whose origin's reset await the guard at the same time, so that its own send is
    what meets the reset and takes the news of it away from reading. The guard is stopped for it: `pause` is the time
    until it stands still. Without one it is often caught between the reading of the bytes and their sending."""
    def run(start, prefix, pause):
        told = threading.Event()

        def serve(s):
            head_of(s)
            s.sendall(prefix + b"partial")
            told.wait(5)
            reset(s)
        with Origin(serve) as origin, Client(g.port) as c:
            start(c)
            before = c.until(b"partial")
            g.signal(signal.SIGSTOP)
            time.sleep(pause)
            c.send(b"x" * 1000)
            told.set()
            assert eventually(lambda: origin.said)
            time.sleep(0.02)  # the reset is with the guard's kernel by now
            g.signal(signal.SIGCONT)
            how, after = upload(c)
        assert after == b"" and before.endswith(b"partial")
        return how, g.ended(c)
    g = guard()
    return run


@pytest.mark.parametrize("pause", [0, 0.05])
def test_tunnel_reset_while_uploading(meet, pause):
    def start(c):
        assert c.tunnel(TARGET).status == 200
        c.send(b"\r\n\r\n")
    for _ in range(ROUNDS if pause else 4 * ROUNDS):
        how, ended = meet(start, b"", pause)
        assert (how, ended["egress_guard.close"]) == ("reset", "origin_reset")


@pytest.mark.parametrize("pause", [0, 0.05])
def test_exchange_reset_while_uploading(meet, pause):
    """A body that only the end of the connection ends: cut short it must not look whole."""
    for _ in range(ROUNDS if pause else 4 * ROUNDS):
        how, ended = meet(lambda c: c.send(request(URL + "/", [("Content-Length", "100000000")], "POST")),
                          b"HTTP/1.1 200 OK\r\n\r\n", pause)
        assert (how, ended["egress_guard.close"], ended["event.outcome"]) == ("reset", "origin_reset", "failure")


def test_reset_behind_an_end_in_order(guard):
    """An origin that has said all, ends, and resets what the client still sends: what it said is whole. (When both come
    at once the guard cannot tell, and does not call it whole.)"""
    g = guard()

    def serve(s):
        head_of(s)
        s.sendall(b"HTTP/1.1 200 OK\r\n\r\npartial")
        s.shutdown(socket.SHUT_WR)
        time.sleep(0.1)
        reset(s)
    for _ in range(ROUNDS):
        with Origin(serve), Client(g.port) as c:
            c.send(request(URL + "/", [("Content-Length", "100000000")], "POST"))
            c.until(b"partial")
            how, after = upload(c)
            assert (how, after) == ("end", b"")
            assert g.ended(c)["egress_guard.close"] == "done"


def stalled(port, data):
    """A client that asks and then reads nothing, with little room in its kernel."""
    c = Client.__new__(Client)
    c.sock = socket.socket()
    c.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    c.sock.settimeout(10)
    c.sock.connect(("127.0.0.1", port))
    c.buffer, c.port, c.since = b"", c.sock.getsockname()[1], ""
    return c.send(data)


HEADS = {"tunnel": b"", "length": b"HTTP/1.1 200 OK\r\nContent-Length: 1000000000\r\n\r\n",
         "close": b"HTTP/1.1 200 OK\r\n\r\n"}


@pytest.mark.parametrize("kind", list(HEADS))
def test_reset_comes_behind_the_bytes(guard, kind):
    """The client reads nothing until long after the reset. What the guard's kernel has acknowledged to the origin by
    then is still read, all of it, and written to the client before the reset is passed on."""
    g = guard()

    def serve(s):
        head_of(s)
        s.sendall(HEADS[kind])
        n = len(HEADS[kind]) + fill(s)
        reset(s)
        return n
    with Origin(serve) as origin:
        c = stalled(g.port, connect_head(TARGET) if kind == "tunnel" else request(URL + "/"))
        if kind == "tunnel":
            assert c.response("CONNECT").status == 200
            c.send(b"\r\n\r\n")
        assert eventually(lambda: origin.said, 15)
        acknowledged = origin.said[0]
        assert acknowledged > 1 << 20, "too little in flight to tell anything"
        time.sleep(0.2)  # a guard that passes the reset on at once has done so by now
        with pytest.raises(ConnectionResetError):
            while c.sock.recv(65536):
                pass
        c.close()
    ended = g.ended(c)
    assert ended["egress_guard.close"] == "origin_reset"
    assert ended["destination.bytes"] == acknowledged
    assert ended["egress_guard.delivered_bytes"] >= acknowledged - len(HEADS[kind])
