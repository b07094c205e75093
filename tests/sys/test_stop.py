"""SIGTERM: whoever has asked is told, from the backlog or in the middle of a request; nobody is met by a bare reset."""
import collections
import signal
import socket
import threading
import time

import pytest

from guard import SANITIZED
from lab import eventually
from script import URL, Origin
from wire import Client, Response, connect_head, elapsed, refused, request

CROWD = 300


def answer(c):
    """What a client of the crowd got, read to its end: a refusal's code, or "tunnel"; a reset or a bare end by name."""
    try:
        head = c.until(b"\r\n\r\n")
        if Response(head).status == 200:
            return "tunnel"
        return refused(head + c.rest()).code
    except (OSError, EOFError) as e:
        return type(e).__name__


@pytest.mark.parametrize("late", [False, True], ids=["asked before", "asks in a moment"])
def test_backlog_is_answered(guard, late):
    """The guard stands still while a crowd connects: the kernel takes it in, and SIGTERM is there when it goes on.
    A client whose request is still under way to the guard at that moment is answered as well."""
    g = guard(config={"workers": 1, "timeouts": {"drain": "5s"}})
    g.signal(signal.SIGSTOP)
    crowd = []
    for _ in range(CROWD):
        crowd.append(Client(g.port))
        if not late:
            crowd[-1].send(connect_head("echo.example.org:443"))
    g.signal(signal.SIGTERM)
    g.signal(signal.SIGCONT)
    if late:
        assert eventually(lambda: not accepts(g.port)), "still listening"
        for c in crowd:
            c.send(connect_head("echo.example.org:443"))
    answers = collections.Counter(answer(c) for c in crowd)
    assert set(answers) <= {"shutting_down", "tunnel"} and sum(answers.values()) == CROWD, answers
    for c in crowd:
        c.close()
    g.process.wait(8)
    g.check_end()
    assert len(g.log("egress-refused")) + len(g.log("egress-allowed")) == CROWD


def accepts(port):
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
        return True
    except OSError:
        return False


def test_silent_client_does_not_hold_the_stop(guard):
    """Connected, and nothing asked: it gets its moment, not the whole drain."""
    g = guard(config={"timeouts": {"drain": "20s", "head": "20s"}})
    with Client(g.port) as c:
        assert eventually(lambda: g.metric("egress_guard_connections") == 1)
        start = time.monotonic()
        g.signal(signal.SIGTERM)
        assert c.at_end()
        g.process.wait(5)
    assert elapsed(start) < 3 * (3 if SANITIZED else 1)
    g.check_end()


@pytest.mark.parametrize("ask", [
    request(URL + "/"),
    request(URL + "/", [("Content-Length", "1000")], "POST") + b"some of it",
], ids=["asked", "still sending"])
def test_unanswered_exchange_is_told_at_the_end_of_the_drain(guard, ask):
    g = guard(config={"timeouts": {"drain": "300ms"}})
    there, over = threading.Event(), threading.Event()

    def serve(s):
        s.recv(65536)
        there.set()
        over.wait(10)
    with Origin(serve), Client(g.port) as c:
        c.send(ask)
        assert there.wait(5)
        start = time.monotonic()
        g.signal(signal.SIGTERM)
        r = refused(c.rest())
        over.set()
        assert (r.status, r.code) == (503, "shutting_down") and elapsed(start) > 0.25
        g.process.wait(5)
    g.check_end()
    ended = g.ended(c)
    assert (ended["event.reason"], ended["egress_guard.close"]) == ("shutting_down", "shutting_down")
    assert ended["event.outcome"] == "failure"


def test_answer_cut_by_the_stop_is_no_clean_end(guard):
    """An answer that has begun cannot become a refusal: its client is reset."""
    g = guard(config={"timeouts": {"drain": "300ms"}})
    over = threading.Event()

    def serve(s):
        s.recv(65536)
        s.sendall(b"HTTP/1.1 200 OK\r\n\r\npartial")
        over.wait(10)
    with Origin(serve), Client(g.port) as c:
        c.send(request(URL + "/"))
        c.until(b"partial")
        g.signal(signal.SIGTERM)
        with pytest.raises(ConnectionResetError):
            c.rest()
        over.set()
        g.process.wait(5)
    g.check_end()
    assert g.ended(c)["egress_guard.close"] == "shutting_down"
