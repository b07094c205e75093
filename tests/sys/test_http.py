"""Absolute-form requests: what goes up is exact, what comes down is whole, and two readings of one message never exist."""
import hashlib
import json
import time

import pytest

import places
from lab import eventually
from wire import Client, Response, ask, connect_head, get, pattern, refused, request

HOST = "http.example.org"
URL = "http://" + HOST


def up(mark):
    """The bytes that reached the origin, of the one connection that was made."""
    found = eventually(lambda: [r for r in mark.raw_requests() if r])
    assert found and len(found) == 1, found
    return found[0]


# --- what goes up ---

HEADS = [
    ("plain", b"GET http://http.example.org/size/5 HTTP/1.1\r\nHost: http.example.org\r\nUser-Agent: t\r\nAccept: */*\r\n\r\n",
     b"GET /size/5 HTTP/1.1\r\nHost: http.example.org\r\nUser-Agent: t\r\nAccept: */*\r\nVia: 1.1 egress-guard\r\n\r\n"),
    ("empty path", b"GET http://http.example.org HTTP/1.1\r\nHost: http.example.org\r\n\r\n",
     b"GET / HTTP/1.1\r\nHost: http.example.org\r\nVia: 1.1 egress-guard\r\n\r\n"),
    ("empty path, query", b"GET http://http.example.org?token=x HTTP/1.1\r\nHost: http.example.org\r\n\r\n",
     b"GET /?token=x HTTP/1.1\r\nHost: http.example.org\r\nVia: 1.1 egress-guard\r\n\r\n"),
    ("path as it is", b"GET http://http.example.org/a/../b//%2e%2E/c;d?e=%20f&g HTTP/1.1\r\nHost: http.example.org\r\n\r\n",
     b"GET /a/../b//%2e%2E/c;d?e=%20f&g HTTP/1.1\r\nHost: http.example.org\r\nVia: 1.1 egress-guard\r\n\r\n"),
    ("default port", b"GET http://http.example.org:80/ HTTP/1.1\r\nHost: http.example.org:80\r\n\r\n",
     b"GET / HTTP/1.1\r\nHost: http.example.org\r\nVia: 1.1 egress-guard\r\n\r\n"),
    ("scheme in capitals", b"GET HTTP://http.example.org/ HTTP/1.1\r\nHost: http.example.org\r\n\r\n",
     b"GET / HTTP/1.1\r\nHost: http.example.org\r\nVia: 1.1 egress-guard\r\n\r\n"),
    ("no host in 1.0", b"GET http://http.example.org/ HTTP/1.0\r\nX: y\r\n\r\n",
     b"GET / HTTP/1.1\r\nHost: http.example.org\r\nX: y\r\nVia: 1.0 egress-guard\r\n\r\n"),
    ("asterisk", b"OPTIONS http://http.example.org HTTP/1.1\r\nHost: http.example.org\r\n\r\n",
     b"OPTIONS * HTTP/1.1\r\nHost: http.example.org\r\nVia: 1.1 egress-guard\r\n\r\n"),
    ("hop-by-hop", b"GET http://http.example.org/ HTTP/1.1\r\nHost: http.example.org\r\nConnection: X-Own, keep-alive\r\nX-Own: 1\r\n"
     b"Keep-Alive: 5\r\nProxy-Connection: keep-alive\r\nTE: trailers\r\nTrailer: X\r\nX-End: 2\r\n\r\n",
     b"GET / HTTP/1.1\r\nHost: http.example.org\r\nX-End: 2\r\nVia: 1.1 egress-guard\r\n\r\n"),
    ("nominated basics stay", b"GET http://http.example.org/ HTTP/1.1\r\nConnection: Host, Content-Length, Connection\r\n"
     b"Host: http.example.org\r\n\r\n",
     b"GET / HTTP/1.1\r\nHost: http.example.org\r\nVia: 1.1 egress-guard\r\n\r\n"),
    ("nothing of the sandbox", b"GET http://http.example.org/ HTTP/1.1\r\nHost: http.example.org\r\nX-Forwarded-For: 10.1.2.3\r\n"
     b"Forwarded: for=10.1.2.3\r\nX-Real-IP: 10.1.2.3\r\nProxy-Authorization: Basic c2VjcmV0\r\nX-Forwarded-Host: inner\r\n\r\n",
     b"GET / HTTP/1.1\r\nHost: http.example.org\r\nVia: 1.1 egress-guard\r\n\r\n"),
    ("order and case kept", b"GET http://http.example.org/ HTTP/1.1\r\nB: 1\r\nhost:  http.example.org \r\na:2\r\nB: 3\r\nCookie: x=y\r\n"
     b"Authorization: Basic eA==\r\n\r\n",
     b"GET / HTTP/1.1\r\nHost: http.example.org\r\nB: 1\r\na: 2\r\nB: 3\r\nCookie: x=y\r\nAuthorization: Basic eA==\r\n"
     b"Via: 1.1 egress-guard\r\n\r\n"),
    ("line before the request", b"\r\nGET http://http.example.org/ HTTP/1.1\r\nHost: http.example.org\r\n\r\n",
     b"GET / HTTP/1.1\r\nHost: http.example.org\r\nVia: 1.1 egress-guard\r\n\r\n"),
    ("unknown method", b"PURGE http://http.example.org/ HTTP/1.1\r\nHost: http.example.org\r\n\r\n",
     b"PURGE / HTTP/1.1\r\nHost: http.example.org\r\nVia: 1.1 egress-guard\r\n\r\n"),
    ("trailing dot", b"GET http://http.example.org./ HTTP/1.1\r\nHost: http.example.org\r\n\r\n", None),
    ("literal", b"GET http://[2606:2800:220:1::34]/ HTTP/1.1\r\nHost: [2606:2800:220:1::34]\r\n\r\n",
     b"GET / HTTP/1.1\r\nHost: [2606:2800:220:1::34]\r\nVia: 1.1 egress-guard\r\n\r\n"),
    ("body", b"POST http://http.example.org/count HTTP/1.1\r\nHost: http.example.org\r\nContent-Length: 5\r\n\r\nhello",
     b"POST /count HTTP/1.1\r\nHost: http.example.org\r\nContent-Length: 5\r\nVia: 1.1 egress-guard\r\n\r\nhello"),
    ("body of a GET", b"GET http://http.example.org/count HTTP/1.1\r\nHost: http.example.org\r\nContent-Length: 10\r\n\r\n1234567890",
     b"GET /count HTTP/1.1\r\nHost: http.example.org\r\nContent-Length: 10\r\nVia: 1.1 egress-guard\r\n\r\n1234567890"),
    ("chunks", b"PUT http://http.example.org/count HTTP/1.1\r\nHost: http.example.org\r\nTransfer-Encoding: Chunked\r\n\r\n"
     b"5;a=\"b;c\"\r\nhello\r\n0A\r\n0123456789\r\n0\r\nX-Trailer: t\r\n\r\n", None),
    ("empty body", b"POST http://http.example.org/count HTTP/1.1\r\nHost: http.example.org\r\nContent-Length: 0\r\n\r\n",
     b"POST /count HTTP/1.1\r\nHost: http.example.org\r\nContent-Length: 0\r\nVia: 1.1 egress-guard\r\n\r\n"),
]


def fields_of(raw):
    head, _, body = raw.partition(b"\r\n\r\n")
    lines = head.split(b"\r\n")
    return lines[0], lines[1:], body


@pytest.mark.parametrize("sent,expected", [h[1:] for h in HEADS], ids=[h[0] for h in HEADS])
def test_forwarded_bytes(shared, mark, sent, expected):
    with Client(shared.port) as c:
        c.send(sent)
        r = c.response()
        assert r.status == 200, r
    got = up(mark)
    if expected is None:
        assert b"egress-guard" in got
        return
    line, fields, body = fields_of(got)
    want_line, want_fields, want_body = fields_of(expected)
    # The place of the framing field is free; the order of all others is not.
    framing = [f for f in fields if f.lower().startswith((b"content-length", b"transfer-encoding"))]
    rest = [f for f in fields if f not in framing]
    want_framing = [f for f in want_fields if f.lower().startswith((b"content-length", b"transfer-encoding"))]
    assert (line, rest, sorted(framing), body) == (
        want_line, [f for f in want_fields if f not in want_framing], sorted(want_framing), want_body)


def test_chunked_request_is_written_anew(shared, mark):
    """No extension, no trailer, and a body of the same bytes."""
    with Client(shared.port) as c:
        c.send(HEADS[-2][1])
        r = c.response()
        assert json.loads(r.body) == {"method": "PUT", "bytes": 15, "sha256": hashlib.sha256(b"hello0123456789").hexdigest()}
    got = up(mark)
    assert b"Transfer-Encoding: chunked\r\n" in got and b"Content-Length" not in got
    assert got.endswith(b"\r\n0\r\n\r\n") and b"a=" not in got and b"X-Trailer" not in got


@pytest.mark.parametrize("size", [1, 65535, 65536, 65537, 3_000_000])
@pytest.mark.parametrize("chunked", [False, True], ids=["length", "chunked"])
def test_bodies_both_ways(shared, size, chunked):
    body = pattern(size)
    with Client(shared.port) as c:
        if chunked:
            c.send(b"POST %s/echo HTTP/1.1\r\nHost: %s\r\nTransfer-Encoding: chunked\r\n\r\n" % (URL.encode(), HOST.encode()))
            for i in range(0, size, 70001):
                part = body[i:i + 70001]
                c.send(b"%x\r\n%s\r\n" % (len(part), part))
            c.send(b"0\r\n\r\n")
        else:
            c.send(request(URL + "/echo", method="POST", body=body))
        r = c.response()
        assert r.status == 200 and r.body == body
        c.send(request(URL + "/size/3"))  # the connection is in step
        assert c.response().body == pattern(3)


def test_expect_continue(shared, mark):
    with Client(shared.port) as c:
        c.send(b"PUT %s/count HTTP/1.1\r\nHost: %s\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\r\n" % (
            URL.encode(), HOST.encode()))
        r = c.head()
        assert r.status == 100
        c.send(b"body")
        r = c.response()
        assert r.status == 200 and json.loads(r.body)["bytes"] == 4
        c.send(request(URL + "/size/3"))
        assert c.response().body == pattern(3)
    assert b"Expect: 100-continue\r\n" in mark.raw_requests()[0]


def test_expect_continue_refused_by_the_origin(shared):
    """A final status without the body; the body is not sent, and is not read as a request."""
    with Client(shared.port) as c:
        c.send(b"PUT %s/final/413 HTTP/1.1\r\nHost: %s\r\nExpect: 100-continue\r\nContent-Length: 400\r\n\r\n" % (
            URL.encode(), HOST.encode()))
        r = c.response()
        assert r.status == 413
        assert (r.get("Connection") or "").lower() == "close"
        assert c.at_end()
    assert shared.ended(c)["source.bytes"] < 400


def test_unknown_expectation(shared, mark):
    r = refused(ask(shared.port, request(URL + "/", [("Expect", "dance")])))
    assert (r.status, r.code) == (417, "expectation_failed")
    mark.silent()


def test_early_final_answer_to_a_large_upload(shared):
    """The origin answers and closes before it has read the body: the client gets that answer."""
    with Client(shared.port) as c:
        c.send(b"POST %s/final/401 HTTP/1.1\r\nHost: %s\r\nContent-Length: 100000\r\n\r\n" % (URL.encode(), HOST.encode()))
        try:
            c.send(pattern(1000))
            r = c.response()
        except ConnectionError:
            pytest.fail("the answer was lost")
        assert r.status == 401


# --- what comes down ---

@pytest.mark.parametrize("size", [0, 1, 1000, 65536, 5_000_000])
@pytest.mark.parametrize("kind", ["size", "chunked", "close"])
def test_bodies_down(shared, size, kind):
    with Client(shared.port) as c:
        c.send(request("%s/%s/%d" % (URL, kind, size)))
        r = c.response()
        assert r.status == 200 and r.body == pattern(size)
        if kind != "close":
            c.send(request(URL + "/size/3"))
            assert c.response().body == pattern(3)


def test_chunked_response_is_written_anew(shared):
    with Client(shared.port) as c:
        c.send(request(URL + "/chunked/2500"))
        c.head()
        raw = c.until(b"0\r\n\r\n")
    assert b"ext" not in raw and b"X-Trailer" not in raw


@pytest.mark.parametrize("path,length", [("/size/1000", "1000"), ("/chunked/1000", None), ("/status/200", "0")])
def test_head_has_no_body(shared, path, length):
    with Client(shared.port) as c:
        c.send(request(URL + path, method="HEAD"))
        r = c.response("HEAD")
        assert r.status == 200 and r.get("Content-Length") == length
        c.send(request(URL + "/size/3"))
        assert c.response().body == pattern(3)


@pytest.mark.parametrize("status", [204, 304])
def test_statuses_without_a_body(shared, status):
    with Client(shared.port) as c:
        c.send(request("%s/status/%d" % (URL, status)))
        r = c.response()
        assert r.status == status and r.get("ETag") == '"e"'
        c.send(request(URL + "/size/3"))
        assert c.response().body == pattern(3)


def test_cookies_keep_their_order(shared):
    r = get(shared.port, URL + "/cookies")
    names = [n for n, _ in r.fields if n in ("Set-Cookie", "X-Between")]
    assert r.all("Set-Cookie") == ["a=1", "b=2; Path=/", "a=3"] and names == ["Set-Cookie", "X-Between", "Set-Cookie", "Set-Cookie"]


def test_hop_by_hop_fields_of_the_response(shared):
    r = get(shared.port, URL + "/hop")
    assert r.body == b"hop" and r.get("X-Kept") == "k"
    for name in ("X-Secret", "Keep-Alive", "Proxy-Authenticate", "Upgrade"):
        assert r.get(name) is None, name
    assert r.get("Via") == "1.1 egress-guard"


def test_interim_responses(shared):
    with Client(shared.port) as c:
        c.send(request(URL + "/earlyhints"))
        r = c.response()
        assert r.status == 200 and r.body == b"hints"
        assert [i.status for i in r.interim] == [103] and r.interim[0].get("Link") == "</x>; rel=preload"


@pytest.mark.parametrize("path,body", [("/earlyhints", b"hints"), ("/chunked/2500", pattern(2500)), ("/size/10", pattern(10))])
def test_http_1_0_client(shared, path, body):
    """No interim response, no chunks, and the end of the connection after one answer."""
    raw = ask(shared.port, b"GET %s%s HTTP/1.0\r\nConnection: keep-alive\r\n\r\n" % (URL.encode(), path.encode()))
    head, _, rest = raw.partition(b"\r\n\r\n")
    r = Response(head + b"\r\n\r\n")
    assert r.status == 200 and rest == body and r.get("Transfer-Encoding") is None


# --- connections ---

def test_keep_alive_both_sides(shared, mark):
    with Client(shared.port) as c:
        for i in range(5):
            c.send(request("%s/size/%d" % (URL, i)))
            assert c.response().body == pattern(i)
    assert len(mark.web_connections()) == 1
    assert len(mark.dialed()) == 1


def test_pipelining(shared, mark):
    with Client(shared.port) as c:
        c.send(b"".join(request("%s/size/%d" % (URL, i)) for i in range(20)))
        for i in range(20):
            assert c.response().body == pattern(i)


def test_pipelined_requests_are_each_judged(shared, mark):
    """In order; the refused one ends the connection, and nothing behind it is read as a request."""
    with Client(shared.port) as c:
        c.send(request(URL + "/size/1") + request("http://denied.example/b") + request(URL + "/size/3") +
               connect_head("echo.example.org:80"))
        assert c.response().body == pattern(1)
        r = refused(c.rest())
    assert (r.status, r.code) == (403, "host_denied")
    assert [q["line"] for q in mark.requests()] == ["GET /size/1 HTTP/1.1"]
    assert {a for a, _ in mark.dialed()} == {places.WEB4}


def test_hosts_change_on_one_connection(shared, mark):
    with Client(shared.port) as c:
        for host in (HOST, "www.example.org", HOST, "v6.example.org"):
            c.send(request("http://%s/size/2" % host))
            assert c.response().body == pattern(2)
    hosts = [dict(r["fields"])["Host"] for r in mark.requests()]
    assert hosts == [HOST, "www.example.org", HOST, "v6.example.org"]
    for connection in mark.web_connections():
        assert len({dict(r["fields"])["Host"] for r in connection["requests"]}) == 1


def test_connect_after_a_request(shared):
    with Client(shared.port) as c:
        c.send(request(URL + "/size/2"))
        assert c.response().body == pattern(2)
        assert c.tunnel("echo.example.org:80").status == 200
        c.send(b"ping")
        assert c.exactly(4) == b"ping"


def test_clients_do_not_share_origin_connections(shared, mark):
    for _ in range(3):
        assert get(shared.port, URL + "/size/1").status == 200
    assert len(mark.web_connections()) == 3


def test_origin_that_closes_a_kept_connection(shared, mark):
    """A safe request is sent again on a new connection; the client sees nothing of it."""
    with Client(shared.port) as c:
        for _ in range(3):
            c.send(request(URL + "/once"))
            assert c.response().body == b"once"
            time.sleep(0.05)
    assert len(mark.web_connections()) == 3


def test_connection_close_of_the_client(shared):
    with Client(shared.port) as c:
        c.send(request(URL + "/size/2", [("Connection", "close")]))
        r = c.response()
        assert r.body == pattern(2) and c.at_end()


def test_upgrade(shared, mark):
    with Client(shared.port) as c:
        c.send(request(URL + "/upgrade", [("Connection", "Upgrade"), ("Upgrade", "websocket"), ("Sec-WebSocket-Key", "x")]))
        r = c.response()
        assert r.status == 101 and r.get("Upgrade") == "websocket" and r.get("Connection").lower() == "upgrade"
        assert r.get("Sec-WebSocket-Accept") == "x"
        for i in (1, 10, 100000):
            c.send(pattern(i))
            assert c.exactly(i) == pattern(i)
    assert b"Upgrade: websocket\r\n" in mark.raw_requests()[0]
    ended, seen = shared.ended(c), mark.web_connections(2)[0]
    assert (ended["source.bytes"], ended["destination.bytes"]) == (seen["received"], seen["sent"])


def test_upgrade_with_bytes_behind_the_head(shared):
    with Client(shared.port) as c:
        c.send(request(URL + "/upgrade", [("Connection", "Upgrade"), ("Upgrade", "websocket")]) + b"early")
        assert c.response().status == 101
        assert c.exactly(5) == b"early"


def test_upgrade_not_granted(shared):
    with Client(shared.port) as c:
        c.send(request(URL + "/size/4", [("Connection", "Upgrade"), ("Upgrade", "websocket")]))
        assert c.response().body == pattern(4)
        c.send(request(URL + "/size/3"))
        assert c.response().body == pattern(3)


def test_101_that_nobody_asked_for(shared):
    r = get(shared.port, URL + "/upgrade")
    assert (r.status, r.code) == (502, "origin_protocol")
