"""A request that was let through and then has no answer to come still gets one from the guard, with its true cause."""
import threading

import pytest

from guard import OPEN
from lab import eventually
from script import URL, Origin, head_of
from wire import Client, Response, connect_head, refused, request

NOTHING_ALLOWED = "version: 1\nroles:\n  agent:\n    allow: []\n"
EXPECTING = [("Expect", "100-continue"), ("Content-Length", "5")]


def silent(s):
    """Reads, and says nothing until the other side ends."""
    while s.recv(65536):
        pass


def split_interims(raw):
    """The interim responses, and the bytes behind them."""
    interims = []
    while raw.startswith(b"HTTP/1.1 1"):
        head, _, raw = raw.partition(b"\r\n\r\n")
        interims.append(Response(head + b"\r\n\r\n"))
    return interims, raw


def test_origin_dies_behind_a_100(guard):
    g = guard()

    def serve(s):
        head_of(s)
        s.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
        s.recv(1)
    with Origin(serve) as origin, Client(g.port) as c:
        c.send(request(URL + "/", EXPECTING, "POST"))
        assert c.head().status == 100
        for s in origin.open:
            s.shutdown(2)
        r = refused(c.rest())
    assert (r.status, r.code) == (502, "origin_closed")
    ended = g.ended(c)
    assert (ended["event.reason"], ended["event.outcome"]) == ("origin_closed", "failure")


def test_too_many_interim_responses(guard):
    g = guard()

    def serve(s):
        head_of(s)
        s.sendall(b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n" * 200)
        s.recv(1)
    with Origin(serve), Client(g.port) as c:
        c.send(request(URL + "/"))
        interims, raw = split_interims(c.rest())
        r = refused(raw)
    assert (r.status, r.code) == (502, "origin_protocol")
    assert 1 <= len(interims) < 200 and {i.status for i in interims} == {103}


@pytest.mark.parametrize("data,status,code", [
    (request(URL + "/"), 504, "origin_timeout"),
    (request(URL + "/", [("Content-Length", "1000")], "POST") + b"some of it", 408, "body_timeout"),
    (request(URL + "/", [("Transfer-Encoding", "chunked")], "POST") + b"5\r\nhello\r\n", 408, "body_timeout"),
    (request(URL + "/", EXPECTING, "POST"), 504, "origin_timeout"),
], ids=["nothing owed", "body owed", "chunks owed", "100 owed by the origin"])
def test_time_is_over(guard, data, status, code):
    """Whose silence it was decides: a client is not told to blame the origin for what it did not send itself."""
    g = guard(config={"timeouts": {"idle": "400ms"}})
    with Origin(silent), Client(g.port) as c:
        c.send(data)
        r = refused(c.rest())
    assert (r.status, r.code) == (status, code)
    ended = g.ended(c)
    assert (ended["event.reason"], ended["egress_guard.close"]) == (code, "idle_timeout")


def test_body_owed_behind_a_100(guard):
    """The origin has said 100: from then on the body is the client's debt."""
    g = guard(config={"timeouts": {"idle": "400ms"}})

    def serve(s):
        head_of(s)
        s.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
        silent(s)
    with Origin(serve), Client(g.port) as c:
        c.send(request(URL + "/", EXPECTING, "POST"))
        interims, raw = split_interims(c.rest())
        r = refused(raw)
    assert [i.status for i in interims] == [100] and (r.status, r.code) == (408, "body_timeout")


def test_reload_refuses_an_unanswered_exchange(guard):
    """The reply names why the new policy refuses, the log that it was a new one. One that still allows is not felt."""
    g = guard()
    asked = threading.Event()

    def serve(s):
        head_of(s)
        asked.set()
        silent(s)
    with Origin(serve), Client(g.port) as c:
        c.send(request(URL + "/"))
        assert asked.wait(5)
        g.reload(OPEN + "# the same again\n")
        g.reload(NOTHING_ALLOWED)
        r = refused(c.rest())
    assert (r.status, r.code) == (403, "host_not_allowed")
    ended = g.ended(c)
    assert (ended["event.reason"], ended["egress_guard.close"]) == ("host_not_allowed", "policy_changed")


@pytest.mark.parametrize("n", [2, 5])
def test_requests_before_a_half_close_are_all_answered(guard, n):
    """A client that sends its requests in one go and ends its output still wants every answer."""
    g = guard()

    def serve(s):
        while head_of(s):
            s.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
    with Origin(serve), Client(g.port) as c:
        c.send(request(URL + "/") * n).end_output()
        assert [(r.status, r.body) for r in (c.response() for _ in range(n))] == [(200, b"ok")] * n
        assert c.at_end()
    assert {r["egress_guard.close"] for r in g.records_of(c, n)} == {"done"}


def test_switch_to_what_was_not_offered(guard):
    g = guard()

    def serve(s):
        head_of(s)
        s.sendall(b"HTTP/1.1 101 Switching\r\nConnection: upgrade\r\nUpgrade: other\r\n\r\n")
        s.recv(1)
    with Origin(serve), Client(g.port) as c:
        c.send(request(URL + "/", [("Connection", "Upgrade"), ("Upgrade", "websocket, second")]))
        assert refused(c.rest(), 502).code == "origin_protocol"


def test_reload_refuses_what_is_being_dialed(guard):
    """The denied address answers nothing: without the reload the reply would be a timeout that advises to retry."""
    g = guard(config={"timeouts": {"connect": "20s"}})
    with Client(g.port, timeout=10) as c:
        c.send(connect_head("blackhole.example.org:443"))
        assert eventually(lambda: g.metric("egress_guard_dial_attempts_total") == 1)
        g.reload("version: 1\nroles:\n  agent:\n    unmatched: allow\n    deny: [blackhole.example.org]\n")
        assert refused(c.rest(), 403).code == "host_denied"
