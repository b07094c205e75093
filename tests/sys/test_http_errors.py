"""Absolute-form requests that go wrong: bad origins, bad requests, and what the guard itself answers. Nothing malformed is
passed on, in neither direction, and nothing behind it is read as a message of its own."""
import json
import socket
import time

import pytest

from lab import eventually
from wire import Client, Response, ask, connect_head, get, pattern, refused, request

HOST = "http.example.org"
URL = "http://" + HOST


# --- bad origins ---

def raw_path(data):
    return "/raw/" + data.hex()


BAD_RESPONSES = [
    ("not http", b"SSH-2.0-OpenSSH_9.2\r\n\r\n"),
    ("version 2", b"HTTP/2.0 200 OK\r\n\r\n"),
    ("version 1.10", b"HTTP/1.10 200 OK\r\n\r\n"),
    ("short status", b"HTTP/1.1 20 OK\r\nContent-Length: 0\r\n\r\n"),
    ("letters in status", b"HTTP/1.1 2O0 OK\r\nContent-Length: 0\r\n\r\n"),
    ("two lengths", b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab"),
    ("plus length", b"HTTP/1.1 200 OK\r\nContent-Length: +1\r\n\r\na"),
    ("negative length", b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\na"),
    ("hex length", b"HTTP/1.1 200 OK\r\nContent-Length: 0x1\r\n\r\na"),
    ("huge length", b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999\r\n\r\na"),
    ("length and chunked", b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n"),
    ("chunked twice", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n"),
    ("nul in a value", b"HTTP/1.1 200 OK\r\nX: a\0b\r\nContent-Length: 0\r\n\r\n"),
    ("bare cr in a value", b"HTTP/1.1 200 OK\r\nX: a\rSet-Cookie: b\r\nContent-Length: 0\r\n\r\n"),
    ("folded line", b"HTTP/1.1 200 OK\r\nX: a\r\n b\r\nContent-Length: 0\r\n\r\n"),
    ("no colon", b"HTTP/1.1 200 OK\r\nContent-Length 0\r\n\r\n"),
    ("36 KiB of head", bytes(36000)),
    ("head cut short", b"HTTP/1.1 200 OK\r\nContent-Le"),
]


@pytest.mark.parametrize("data", [b[1] for b in BAD_RESPONSES], ids=[b[0] for b in BAD_RESPONSES])
def test_malformed_response(shared, data):
    """A gateway's error, complete, and never a byte of what the origin said."""
    path = raw_path(data) if len(data) < 10000 else "/headlarge"
    r = refused(ask(shared.port, request(URL + path)))
    assert r.status == 502 and r.code in ("origin_protocol", "origin_closed"), r
    assert b"SSH" not in r.body and b"Set-Cookie" not in r.body


def test_origin_closes_without_an_answer(shared):
    r = refused(ask(shared.port, request(URL + "/closenow")))
    assert (r.status, r.code) == (502, "origin_closed")


def test_origin_that_never_answers(guard):
    g = guard(config={"timeouts": {"idle": "500ms"}})
    r = refused(ask(g.port, request(URL + "/hang")))
    assert (r.status, r.code) == (504, "origin_timeout")


BROKEN_BODIES = [
    ("half a length", "/truncate/10000"),
    ("no last chunk", "/truncatechunked/3000"),
    ("reset", "/reset/5000"),
    ("bad chunk size", raw_path(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\nXYZ\r\n")),
    ("chunk size overflow", raw_path(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n10000000000000005\r\nabcde\r\n0\r\n\r\n")),
    ("chunk without its end", raw_path(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabcX\r\n0\r\n\r\n")),
]


def test_blank_before_a_colon_is_taken_out(shared):
    """RFC 9112 5.1: from a response a proxy removes it."""
    r = get(shared.port, URL + raw_path(b"HTTP/1.1 200 OK\r\nX-Own : 1\r\nContent-Length : 2\r\n\r\nok"))
    assert r.body == b"ok" and r.get("X-Own") == "1" and b" :" not in r.raw_head


@pytest.mark.parametrize("path", [b[1] for b in BROKEN_BODIES], ids=[b[0] for b in BROKEN_BODIES])
def test_broken_body_is_never_a_clean_end(shared, path):
    with Client(shared.port) as c:
        c.send(request(URL + path))
        c.head()
        with pytest.raises(ConnectionResetError):
            raw = c.rest()
            assert not raw.endswith(b"0\r\n\r\n")
    ended = shared.ended(c)
    assert ended["event.outcome"] == "failure"
    assert ended["egress_guard.close"] in ("origin_truncated", "origin_reset", "origin_protocol")


def test_bytes_behind_a_response_are_no_response(shared, mark):
    """An origin (or a smuggler) that sends more than one answer: the second never answers the next request."""
    evil = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokHTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil"
    with Client(shared.port) as c:
        c.send(request(URL + "/rawkeep/" + evil.hex()))
        assert c.response().body == b"ok"
        time.sleep(0.05)
        c.send(request(URL + "/size/3"))
        assert c.response().body == pattern(3)
    assert len(mark.web_connections()) == 2


# --- bad requests ---

def framed(fields, body=b"", target=URL + "/count", method="POST"):
    return ("%s %s HTTP/1.1\r\nHost: %s\r\n" % (method, target, HOST)).encode() + fields + b"\r\n" + body


SMUGGLED = request(URL + "/smuggled")
BAD_FRAMING = [
    ("length 0 and 31", framed(b"Content-Length: 0\r\nContent-Length: 31\r\n", SMUGGLED)),
    ("length list", framed(b"Content-Length: 5, 6\r\n", b"hello" + SMUGGLED)),
    ("plus", framed(b"Content-Length: +5\r\n", b"hello" + SMUGGLED)),
    ("minus", framed(b"Content-Length: -1\r\n", SMUGGLED)),
    ("minus zero", framed(b"Content-Length: -0\r\n", SMUGGLED)),
    ("hex", framed(b"Content-Length: 0x10\r\n", SMUGGLED)),
    ("octal", framed(b"Content-Length: 010\r\n", SMUGGLED)),
    ("underscore", framed(b"Content-Length: 1_0\r\n", SMUGGLED)),
    ("letter", framed(b"Content-Length: 1Z\r\n", SMUGGLED)),
    ("empty", framed(b"Content-Length: \r\n", SMUGGLED)),
    ("vertical tab", framed(b"Content-Length: \x0b5\r\n", SMUGGLED)),
    ("too large", framed(b"Content-Length: 99999999999999999999\r\n", SMUGGLED)),
    ("blank before colon", framed(b"Content-Length : 34\r\n", SMUGGLED)),
    ("length and chunked", framed(b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n", b"0\r\n\r\n" + SMUGGLED)),
    ("chunked not last", framed(b"Transfer-Encoding: chunked, identity\r\n", b"0\r\n\r\n" + SMUGGLED)),
    ("chunked twice", framed(b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n", b"0\r\n\r\n" + SMUGGLED)),
    ("identity", framed(b"Transfer-Encoding: identity\r\n", SMUGGLED)),
    ("xchunked", framed(b"Transfer-Encoding: xchunked\r\n", b"0\r\n\r\n" + SMUGGLED)),
    ("chunked with a parameter", framed(b"Transfer-Encoding: chunked;q=1\r\n", b"0\r\n\r\n" + SMUGGLED)),
    ("vertical tab chunked", framed(b"Transfer-Encoding: \x0bchunked\r\n", b"0\r\n\r\n" + SMUGGLED)),
    ("folded", framed(b"Transfer-Encoding:\r\n chunked\r\n", b"0\r\n\r\n" + SMUGGLED)),
    ("name over two lines", framed(b"Transfer-\r\nEncoding: chunked\r\n", b"0\r\n\r\n" + SMUGGLED)),
    ("gzip first", framed(b"Transfer-Encoding: gzip, chunked\r\n", b"0\r\n\r\n" + SMUGGLED)),
    ("no length in 1.0", b"POST %s/count HTTP/1.0\r\n\r\n" % URL.encode() + SMUGGLED),
    ("length in CONNECT", b"CONNECT http.example.org:80 HTTP/1.1\r\nHost: http.example.org\r\nContent-Length: 3\r\n\r\nabc"),
    ("chunked in CONNECT", b"CONNECT http.example.org:80 HTTP/1.1\r\nHost: http.example.org\r\nTransfer-Encoding: chunked\r\n\r\n"),
    ("two hosts", framed(b"Host: http.example.org\r\n")),
    ("no host", b"GET http://http.example.org/ HTTP/1.1\r\n\r\n"),
    ("bare lf", b"GET http://http.example.org/ HTTP/1.1\nHost: http.example.org\n\n" + SMUGGLED),
    ("x85 in a name", framed(b"X\x85: y\r\n")),
    ("nul in a name", framed(b"Content\0Length: 5\r\n", b"hello")),
    ("parenthesis in a name", framed(b"Fo(o: y\r\n")),
    ("two spaces", b"GET  http://http.example.org/ HTTP/1.1\r\nHost: http.example.org\r\n\r\n"),
    ("userinfo", b"GET http://user:pw@http.example.org/ HTTP/1.1\r\nHost: http.example.org\r\n\r\n"),
    ("fragment", b"GET http://http.example.org/#x HTTP/1.1\r\nHost: http.example.org\r\n\r\n"),
    ("backslash", b"GET http://http.example.org\\@10.0.0.5/ HTTP/1.1\r\nHost: http.example.org\r\n\r\n"),
    ("markup", b"GET http://<script>alert(1)</script>/ HTTP/1.1\r\nHost: x\r\n\r\n"),
    ("escape", b"GET http://a\x1b[31m.example/ HTTP/1.1\r\nHost: x\r\n\r\n"),
    ("version 1.32", b"GET http://http.example.org/ HTTP/1.32\r\nHost: http.example.org\r\n\r\n"),
    ("version large", b"GET http://http.example.org/ HTTP/4294967295.255\r\nHost: http.example.org\r\n\r\n"),
    ("version 2", b"GET http://http.example.org/ HTTP/2.0\r\nHost: http.example.org\r\n\r\n"),
    ("version small", b"GET http://http.example.org/ http/1.1\r\nHost: http.example.org\r\n\r\n"),
    ("version short", b"GET http://http.example.org/ HTTP/1\r\nHost: http.example.org\r\n\r\n"),
    ("version junk", b"GET http://http.example.org/ HTTP/1.1 x\r\nHost: http.example.org\r\n\r\n"),
    ("version none", b"GET http://http.example.org/\r\n\r\n"),
    ("version cr", b"GET http://http.example.org/ HTTP/\r\r1.1\r\n\r\n"),
    ("small connect", b"connect http.example.org:443 HTTP/1.1\r\nHost: http.example.org\r\n\r\n"),
    ("tab", b"CONNECT\thttp.example.org:443 HTTP/1.1\r\nHost: http.example.org\r\n\r\n"),
    ("odd method", b"G=\":<>(e),[T];?\" http://http.example.org/ HTTP/1.1\r\nHost: http.example.org\r\n\r\n"),
    ("tls hello", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(200)),
    ("socks5", b"\x05\x01\x00"),
    ("socks4", b"\x04\x01\x01\xbb\x08\x08\x08\x08\x00"),
    ("proxy v1", b"PROXY TCP4 10.1.2.3 10.0.0.1 1 2\r\nCONNECT http.example.org:443 HTTP/1.1\r\n\r\n"),
    ("proxy v2", b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c" + bytes(12)),
    ("preface", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
]


@pytest.mark.parametrize("data", [b[1] for b in BAD_FRAMING], ids=[b[0] for b in BAD_FRAMING])
def test_bad_request(shared, mark, data):
    raw = ask(shared.port, data, timeout=4)
    r = refused(raw)  # exactly one reply: nothing behind it was read as a request
    assert r.status in (400, 405, 411, 501, 505), r
    assert b"\x1b" not in raw and b"<script>" not in raw and b"pw@" not in raw
    mark.silent()


BAD_CHUNKS = [
    ("minus", b"-1\r\n"), ("overflow", b"FFFFFFFFFFFFFFFF\r\n"), ("overflow 17", b"10000000000000005\r\nhello\r\n"),
    ("signed overflow", b"7FFFFFFFFFFFFFFF\r\n"), ("prefix", b"0x5\r\nhello\r\n"), ("blank", b" 5\r\nhello\r\n"), ("empty size", b"\r\n"),
    ("word", b"INVALID!!!\r\n"), ("cr cr", b"5;a=b\r\r\nhello\r\n"), ("cr in extension", b"5\r\r;ABCD\r\nhello\r\n"),
    ("lf only", b"5\nhello\n0\n\n"), ("no end of data", b"5\r\nhelloX\r\n"), ("long extension", b"5;" + b"a" * 100000 + b"\r\nhello\r\n"),
    ("long trailer", b"0\r\n" + b"X: " + b"y" * 100000 + b"\r\n\r\n"), ("bad trailer", b"0\r\nnot a field\r\n\r\n"),
]


@pytest.mark.parametrize("chunks", [b[1] for b in BAD_CHUNKS], ids=[b[0] for b in BAD_CHUNKS])
def test_bad_chunks(shared, mark, chunks):
    """400, or the reset of a request already under way; nothing behind it reaches anybody."""
    data = framed(b"Transfer-Encoding: chunked\r\n", chunks + SMUGGLED)
    try:
        r = refused(ask(shared.port, data, timeout=4))
        assert (r.status, r.code) == (400, "bad_framing")
    except ConnectionResetError:
        pass
    assert not [q for q in mark.requests() if "smuggled" in q["line"]]


def test_large_chunk_size_is_taken(shared):
    """4 GiB and more in one chunk is no overflow; the client just leaves."""
    with Client(shared.port) as c:
        c.send(framed(b"Transfer-Encoding: chunked\r\n", b"100000000\r\n" + b"x" * 100000))
        c.sock.settimeout(0.3)
        with pytest.raises(socket.timeout):
            c.more()


def test_body_cut_short_by_the_client(shared, mark):
    with Client(shared.port) as c:
        c.send(framed(b"Content-Length: 100\r\n", b"short")).end_output()
        try:
            c.rest()
        except ConnectionResetError:
            pass
    assert shared.ended(c)["egress_guard.close"] == "client_truncated"


@pytest.mark.parametrize("size,status", [(8000, 200), (30000, 200), (40000, 431), (1 << 20, 431)])
def test_request_line_length(shared, size, status):
    path = "/x/" + "a" * size
    with Client(shared.port) as c:
        try:
            c.send(request(URL + path))
        except ConnectionError:
            pass
        assert c.response().status == status


def test_head_limits(shared, mark):
    for fields in ([("X-Forwarded-For", ", ".join(["10.0.0.1"] * 6000))], [("X%d" % i, "y") for i in range(200)]):
        r = refused(ask(shared.port, request(URL + "/", fields)))
        assert (r.status, r.code) == (431, "head_too_large")
    mark.silent()


def test_method_of_33_kilobytes(shared):
    r = refused(ask(shared.port, b"A" * 33000 + b" http://http.example.org/ HTTP/1.1\r\nHost: http.example.org\r\n\r\n"))
    assert r.status in (400, 431, 501)


@pytest.mark.parametrize("data,status,code", [
    (request("https://tls.example.org/"), 501, "scheme_not_supported"),
    (request("ws://http.example.org/"), 501, "scheme_not_supported"),
    (request("ftp://http.example.org/"), 501, "scheme_not_supported"),
    (request(URL + "/", method="TRACE"), 405, "method_not_allowed"),
    (request(URL + "/", [("Via", "1.1 other, 1.1 egress-guard")]), 502, "loop_detected"),
], ids=["https", "ws", "ftp", "trace", "loop"])
def test_refused_kinds(shared, mark, data, status, code):
    r = refused(ask(shared.port, data))
    assert (r.status, r.code) == (status, code)
    mark.silent()


# --- the guard's own words ---

def test_refusal_in_text(shared):
    r = refused(ask(shared.port, request("http://denied.example/")))
    assert r.status == 403 and r.get("Content-Type").startswith("text/plain")
    assert r.reason.startswith("egress refused: denied.example") and r.reason.endswith("(host_denied)")
    assert b"denied.example" in r.body and b"host_denied" in r.body


def test_refusal_in_json(shared):
    r = refused(ask(shared.port, request("http://denied.example/", [("Accept", "application/json")])))
    body = json.loads(r.body)
    assert r.get("Content-Type").startswith("application/json")
    assert body["refused"] == "host_denied" and body["retry"] is False and body["request_id"]
    assert set(body) >= {"refused", "message", "rule", "retry", "request_id"}
    line = eventually(lambda: [x for x in shared.log("egress-refused") if x["event.id"] == body["request_id"]])
    assert line and line[0]["event.reason"] == "host_denied"


def test_refusal_of_a_head_request(shared):
    with Client(shared.port) as c:
        c.send(request("http://denied.example/", method="HEAD"))
        head, _, body = c.rest().partition(b"\r\n\r\n")
    r = Response(head + b"\r\n\r\n")
    assert r.status == 403 and body == b"" and int(r.get("Content-Length")) > 0


def test_connect_reply_is_bare(shared):
    """RFC 9110 9.3.6: no framing fields; and the words that every client takes."""
    for version in ("1.1", "1.0"):
        with Client(shared.port) as c:
            c.send(connect_head("echo.example.org:443", version))
            assert c.until(b"\r\n\r\n") == b"HTTP/1.1 200 Connection established\r\n\r\n"


def test_connect_without_host(shared):
    with Client(shared.port) as c:
        c.send(b"CONNECT echo.example.org:443 HTTP/1.0\r\n\r\n")
        assert c.response("CONNECT").status == 200


def test_connect_with_expectation(shared):
    with Client(shared.port) as c:
        c.send(b"CONNECT echo.example.org:443 HTTP/1.1\r\nHost: echo.example.org\r\nExpect: 100-continue\r\n\r\n")
        assert c.head().status in (200, 417)


def test_refusal_survives_unread_input(shared):
    """The client is still sending: the reply must not be lost to a reset."""
    for _ in range(10):
        with Client(shared.port) as c:
            c.send(connect_head("denied.example:443") + b"\x16\x03\x01" + bytes(60000))
            r = refused(c.rest())
            assert r.code == "host_denied"


def test_host_that_disagrees(shared, mark):
    """Refused, or forwarded under the target's own name: never under the other."""
    raw = ask(shared.port, b"GET http://http.example.org/size/1 HTTP/1.1\r\nHost: denied.example\r\nConnection: close\r\n\r\n")
    if raw.startswith(b"HTTP/1.1 400"):
        mark.silent()
    else:
        assert [dict(r["fields"])["Host"] for r in mark.requests()] == [HOST]
