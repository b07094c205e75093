"""Every byte once: what the log and the metrics say is what the origins counted."""
import concurrent.futures
import hashlib
import json
import ssl

import pytest

from lab import eventually
from wire import Client, ask_connect, connect_head, get, open_tunnel, pattern, request

HOST = "http.example.org"
URL = "http://" + HOST
MIB = 1 << 20


def counts(record):
    return record["source.bytes"], record["destination.bytes"]


def wire_counts(connections):
    return sum(c["received"] for c in connections), sum(c["sent"] for c in connections)


EXCHANGES = [
    ("get", request(URL + "/size/1000"), "GET"),
    ("get nothing", request(URL + "/size/0"), "GET"),
    ("get large", request(URL + "/size/3000000"), "GET"),
    ("get chunked", request(URL + "/chunked/100000"), "GET"),
    ("get until close", request(URL + "/close/100000"), "GET"),
    ("head", request(URL + "/size/1000", method="HEAD"), "HEAD"),
    ("304", request(URL + "/status/304"), "GET"),
    ("204", request(URL + "/status/204"), "GET"),
    ("post", request(URL + "/echo", method="POST", body=pattern(300000)), "POST"),
    ("put chunked", b"PUT %s/count HTTP/1.1\r\nHost: %s\r\nTransfer-Encoding: chunked\r\n\r\n5;x=y\r\nhello\r\n0\r\nT: t\r\n\r\n" % (
        URL.encode(), HOST.encode()), "PUT"),
    ("early hints", request(URL + "/earlyhints"), "GET"),
    ("1.0", b"GET %s/chunked/5000 HTTP/1.0\r\n\r\n" % URL.encode(), "GET"),
]


@pytest.mark.parametrize("data,method", [e[1:] for e in EXCHANGES], ids=[e[0] for e in EXCHANGES])
def test_exchange(shared, mark, data, method):
    """Heads, framing and bodies as they crossed the wire to the origin."""
    with Client(shared.port) as c:
        c.send(data)
        r = c.response(method)
        assert r.status < 400
    assert counts(shared.ended(c)) == wire_counts(mark.web_connections(3))


def test_each_request_of_a_connection(shared, mark):
    with Client(shared.port) as c:
        for i in range(10):
            c.send(request("%s/size/%d" % (URL, i * 1000)))
            c.response()
    records = shared.records_of(c, 10)
    ups, downs = zip(*map(counts, records))
    assert (sum(ups), sum(downs)) == wire_counts(mark.web_connections(3))
    for i, record in enumerate(records):
        assert record["destination.bytes"] > i * 1000


@pytest.mark.parametrize("path,outcome", [("/truncate/100000", "failure"), ("/truncatechunked/5000", "failure"),
                                          ("/reset/50000", "failure")])
def test_broken_exchange(shared, mark, path, outcome):
    with Client(shared.port) as c:
        c.send(request(URL + path))
        try:
            c.rest()
        except ConnectionResetError:
            pass
    record = shared.ended(c)
    up, down = wire_counts(mark.web_connections(3))
    assert record["event.outcome"] == outcome and record["source.bytes"] == up
    # A reset may throw away bytes that the origin has written and nobody could read.
    assert record["destination.bytes"] == down if "reset" not in path else record["destination.bytes"] <= down


def test_failed_exchange_counts_what_went_up(shared, mark):
    """No response came: the request's bytes left all the same, and the log line of the refusal has them."""
    with Client(shared.port) as c:
        c.send(request(URL + "/closenow"))
        assert c.response().code == "origin_closed"
    records = [r for r in eventually(lambda: [r for r in shared.log() if r["source.port"] == c.port
                                              and r["@timestamp"] >= c.since and r["source.bytes"] is not None])]
    up, down = wire_counts(mark.web_connections(3))
    assert sum(r["source.bytes"] for r in records) == up and sum(r["destination.bytes"] for r in records) == down


def test_retried_exchange_counts_both_tries(shared, mark):
    with Client(shared.port) as c:
        for _ in range(4):
            c.send(request(URL + "/once"))
            c.response()
    records = shared.records_of(c, 4)
    seen = mark.web_connections(3)
    assert (sum(r["source.bytes"] for r in records), sum(r["destination.bytes"] for r in records)) == wire_counts(seen)


def test_own_replies_are_nobodys_spend(shared):
    for target in ("denied.example:443", "10.0.0.5:80", "refused.example.org:443"):
        with Client(shared.port) as c:
            c.send(connect_head(target) + b"early bytes")
            c.rest()
        record = shared.records_of(c, action="egress-refused")[0]
        assert counts(record) == (0, 0)


def test_tls_through_a_tunnel(shared, mark, lab):
    """The origin's raw byte counts, handshake and all, are the log's."""
    context = ssl.create_default_context(cafile=lab.ca)
    c = open_tunnel(shared.port, "tls.example.org:443")
    with context.wrap_socket(c.sock, server_hostname="tls.example.org") as tls:
        tls.sendall(request("https://tls.example.org/size/500000").replace(b"https://tls.example.org", b""))
        got = b""
        while len(got) < 500000:
            part = tls.recv(65536)
            assert part
            got += part
        assert got.endswith(pattern(500000)[-1000:])
        c.sock = tls.unwrap()
    c.close()
    assert counts(shared.ended(c)) == wire_counts(mark.web_connections(3))


def test_log_sums_are_the_metrics(guard, mark):
    """Tunnels, exchanges, refusals and failures, many at once: three ledgers, one sum."""
    g = guard()

    def one(i):
        kind = i % 7
        try:
            if kind == 0:
                c = open_tunnel(g.port, "bulk.example.org:443")
                c.send(b"up=%d down=%d\n" % (i * 31, i * 1009) + pattern(i * 31))
                assert c.rest() == pattern(i * 1009)
                c.close()
            elif kind == 1:
                assert get(g.port, "%s/size/%d" % (URL, i * 700)).body == pattern(i * 700)
            elif kind == 2:
                assert get(g.port, URL + "/echo", method="POST", body=pattern(i * 300)).body == pattern(i * 300)
            elif kind == 3:
                ask_connect(g.port, "denied.example:443")
            elif kind == 4:
                assert get(g.port, URL + "/closenow").status == 502
            elif kind == 5:
                c = open_tunnel(g.port, "echo.example.org:80")
                c.send(pattern(i * 100)).end_output()
                assert c.rest() == pattern(i * 100)
                c.close()
            else:
                c = Client(g.port)
                for n in range(3):
                    c.send(request("%s/chunked/%d" % (URL, i * 10 + n)))
                    assert c.response().body == pattern(i * 10 + n)
                c.close()
        except ConnectionResetError:
            pytest.fail("a tunnel was reset")
    with concurrent.futures.ThreadPoolExecutor(20) as pool:
        list(pool.map(one, range(210)))
    g.quiet()
    tunnels, web = mark.tunnels(5), mark.web_connections(3)
    received = sum(t["received"] for t in tunnels) + sum(c["received"] for c in web)
    sent = sum(t["sent"] for t in tunnels) + sum(c["sent"] for c in web)
    expected = (received, sent)
    assert eventually(lambda: sums(g) == expected), (sums(g), expected)
    metrics = g.metrics()
    assert (metrics["egress_guard_sent_bytes_total"], metrics["egress_guard_received_bytes_total"]) == expected
    assert metrics["egress_guard_log_dropped_total"] == 0


def sums(g):
    lines = [r for r in g.log() if r["source.bytes"] is not None]
    return sum(r["source.bytes"] for r in lines), sum(r["destination.bytes"] for r in lines)


def test_each_decision_has_one_line_and_one_count(guard):
    g = guard()
    for target in ["denied.example:443"] * 3 + ["10.0.0.5:80"] * 2 + ["x.private.hostile.example:80", "foo:80", "example.org:22"]:
        ask_connect(g.port, target)
    assert get(g.port, URL + "/size/1").status == 200
    g.quiet()
    lines = eventually(lambda: (lambda r: r if len(r) == 10 else None)(g.log()))
    assert lines, g.log()
    codes = {}
    for r in lines:
        if r["event.action"] != "egress-ended":
            codes[r["event.reason"]] = codes.get(r["event.reason"], 0) + 1
    assert codes == {"host_denied": 3, "address_private": 3, "name_special": 1, "port_not_allowed": 1, "allowed": 1}
    metrics = g.metrics()
    for code, n in codes.items():
        assert metrics['egress_guard_requests_total{reason="%s"}' % code] == n, code
    assert len({r["event.id"] for r in lines}) == 9


def test_log_line_holds_the_facts(shared, mark):
    with Client(shared.port) as c:
        c.send(request(URL + "/size/10", [("User-Agent", "x")]))
        c.response()
    r = shared.ended(c)
    assert r["@timestamp"].endswith("Z") and r["ecs.version"]
    assert r["event.outcome"] == "success" and r["event.duration"] > 0 and r["event.reason"] == "allowed"
    assert r["destination.domain"] == HOST and r["destination.port"] == 80 and r["destination.ip"] == "93.184.216.34"
    assert r["source.ip"] == "127.0.0.1" and r["http.request.method"] == "GET" and r["http.response.status_code"] == 200
    assert "User-Agent" not in json.dumps(r) and "/size" not in json.dumps(r)


def test_hostile_bytes_do_not_break_the_log(shared):
    """Whatever a client sends, each line of the log is one JSON object (lines() fails on anything else)."""
    for data in (b"GET http://a\x00b\n{\"event\":1}/ HTTP/1.1\r\n\r\n", b"CONNECT \"}{\\:443 HTTP/1.1\r\n\r\n",
                 b"\x1b[2J\xff\xfe " * 20 + b"\r\n\r\n", b"M\x7fTHOD http://x/ HTTP/1.1\r\n\r\n"):
        with Client(shared.port) as c:
            c.send(data)
            c.rest()
    assert shared.lines()
    with open(shared.log_file, "rb") as f:
        assert not [b for b in f.read() if b < 32 and b != 10]


def test_bodies_are_not_changed_by_counting(shared):
    body = pattern(2 * MIB, 12345)
    r = get(shared.port, URL + "/count", method="POST", body=body)
    assert json.loads(r.body)["sha256"] == hashlib.sha256(body).hexdigest()
