"""SIGHUP: a good policy replaces the old one everywhere at once, a bad one changes nothing."""
import signal
import threading
import time

import pytest

from guard import OPEN
from lab import eventually
from wire import Client, ask_connect, get, open_tunnel, pattern, request

NARROW = """version: 1
roles:
  agent:
    allow: [http.example.org]
"""
BROKEN = [
    ("not yaml", "version: 1\nroles: [\n"),
    ("empty", ""),
    ("unknown key", OPEN + "colour: red\n"),
    ("duplicate key", OPEN + "version: 1\n"),
    ("allow everything by wildcard", "version: 1\nroles:\n  agent:\n    allow: [\"*\"]\n"),
    ("port widened", "version: 1\nroles:\n  agent:\n    allow:\n      - host: http.example.org\n        ports: [22]\n"),
    ("host bits", OPEN + "refuse:\n  addresses: [10.0.0.1/8]\n"),
    ("second document", OPEN + "---\nversion: 1\n"),
    ("alias", "version: 1\nroles: &a\n  agent: *a\n"),
    ("no version", OPEN.replace("version: 1\n", "")),
    ("allow_private", OPEN + "allow_private: true\n"),
    ("nul", OPEN + "\0"),
]


def test_good_policy_takes_over(guard, mark):
    g = guard(policy=NARROW)
    assert ask_connect(g.port, "echo.example.org:443").code == "host_not_allowed"
    g.reload(OPEN)
    open_tunnel(g.port, "echo.example.org:443").close()
    g.reload(NARROW)
    assert ask_connect(g.port, "echo.example.org:443").code == "host_not_allowed"
    open_tunnel(g.port, "http.example.org:443").close()


@pytest.fixture(scope="module")
def reloaded(lab, tmp_path_factory, request):
    from guard import Guard
    g = Guard(lab, tmp_path_factory.mktemp("reload"), policy=NARROW)
    request.module.shared_guards = [g]
    yield g
    g.stop()


@pytest.mark.parametrize("text", [b[1] for b in BROKEN], ids=[b[0] for b in BROKEN])
def test_broken_policy_changes_nothing(reloaded, text):
    g = reloaded
    tunnel = open_tunnel(g.port, "http.example.org:443")
    before = g.metrics()
    events = len(g.events("policy-refused"))
    g.reload(text, ok=False)
    after = g.metrics()
    for name in after:
        if name.startswith(("egress_guard_policy_info", "egress_guard_policy_load_time")):
            assert after[name] == before.get(name), name
    said = eventually(lambda: g.events("policy-refused")[events:])
    assert said and "policy.yaml:" in said[0]["message"] or "policy" in said[0]["message"]
    assert ask_connect(g.port, "echo.example.org:443").code == "host_not_allowed"
    open_tunnel(g.port, "http.example.org:80").close()
    tunnel.send(b"\x16\x03\x01 still there")
    tunnel.close()
    g.write_policy(NARROW)


def test_missing_policy_file_changes_nothing(guard):
    import os
    g = guard(policy=NARROW)
    os.remove(g.policy_file)
    g.reload(ok=False)
    open_tunnel(g.port, "http.example.org:80").close()
    assert ask_connect(g.port, "echo.example.org:443").code == "host_not_allowed"


def test_open_tunnels_are_judged_again(guard, mark):
    g = guard(policy=OPEN)
    stays, goes, literal = (open_tunnel(g.port, t) for t in ("http.example.org:80", "echo.example.org:80", "93.184.216.35:80"))
    for c in (goes, literal):
        c.send(b"ping")
        assert c.exactly(4) == b"ping"
    g.reload(NARROW)
    for c in (goes, literal):
        c.sock.settimeout(3)
        try:
            assert c.rest() == b""
        except ConnectionResetError:
            pass
        record = g.ended(c)
        assert record["egress_guard.close"] == "policy_changed"
    stays.send(b"GET /size/5 HTTP/1.1\r\nHost: http.example.org\r\n\r\n")
    assert stays.response().body == pattern(5)
    seen = [t for t in mark.tunnels(3)]
    assert len(seen) == 2 and all(t["received"] == 4 for t in seen)


def test_refused_address_cuts_open_tunnels(guard):
    g = guard(policy=OPEN)
    c = open_tunnel(g.port, "echo.example.org:80")
    kept = open_tunnel(g.port, "http.example.org:80")
    g.reload(OPEN + "refuse:\n  addresses: [93.184.216.35]\n")
    assert g.ended(c)["egress_guard.close"] == "policy_changed"
    kept.send(b"GET /size/5 HTTP/1.1\r\nHost: http.example.org\r\n\r\n")
    assert kept.response().body == pattern(5)


def test_tunnel_cut_before_tls_gets_an_alert(guard):
    """On 443, before the origin has spoken: TLS alert access_denied, so that the client can name the cause."""
    g = guard(policy=OPEN)
    c = open_tunnel(g.port, "hold.example.org:443")
    g.reload(NARROW)
    c.sock.settimeout(3)
    got = c.rest()
    assert got[0] == 0x15 and got[3:] == b"\x00\x02\x02\x31"


def test_kept_origin_connection_is_judged_again(guard, mark):
    g = guard(policy=OPEN)
    with Client(g.port) as c:
        c.send(request("http://http.example.org/size/1"))
        assert c.response().status == 200
        g.reload(OPEN + "refuse:\n  addresses: [93.184.216.34]\n")
        try:
            c.send(request("http://http.example.org/size/2"))
            r = c.response()
            assert r.status == 403 and r.code == "address_denied"
        except (EOFError, ConnectionError):
            pass  # closed between the requests: as good
    assert [r["line"] for r in mark.requests()] == ["GET /size/1 HTTP/1.1"]


def test_lookup_in_flight_is_judged_by_the_new_policy(guard, mark):
    """Asked under the old policy, resolved under the new one: refused, and no byte reaches the origin."""
    g = guard(policy=OPEN)
    c = Client(g.port)
    c.send(b"CONNECT a.slow-600.hostile.example:80 HTTP/1.1\r\nHost: x\r\n\r\n")
    time.sleep(0.15)
    g.reload(NARROW)
    c.send(b"early")
    assert c.response("CONNECT").code in ("host_not_allowed", "policy_changed")
    assert not [w for w in mark.web_connections(1) if w["received"]]


def test_address_refused_during_the_lookup_is_not_dialed(guard, mark):
    g = guard(policy=OPEN)
    c = Client(g.port)
    c.send(b"CONNECT b.slow-600.hostile.example:80 HTTP/1.1\r\nHost: x\r\n\r\n")
    time.sleep(0.15)
    g.reload(OPEN + "refuse:\n  addresses: [93.184.216.34]\n")
    assert c.response("CONNECT").code == "address_denied"
    assert not mark.dialed()


def test_reload_under_load(guard, load, mark):
    """Thirty reloads, good, bad and other, while tunnels move: nobody is disturbed, nothing is let through."""
    g = guard(policy=OPEN)
    stop, bad = threading.Event(), []

    def denied():
        while not stop.is_set():
            r = ask_connect(g.port, "denied.example:443")
            if (r.status, r.code) != (403, "host_denied"):
                bad.append(r)

    def small():
        while not stop.is_set():
            r = get(g.port, "http://http.example.org/size/1000")
            if r.body != pattern(1000):
                bad.append(r)
    threads = [threading.Thread(target=f) for f in (denied, small, denied, small)]
    for t in threads:
        t.start()
    result = {}
    loader = threading.Thread(target=lambda: result.update(load(
        g.port, "bulk.example.org:443", tunnels=200, up=100000, down=200000, words="srate=100000 rate=60000", check=False)))
    loader.start()
    texts = [OPEN, BROKEN[0][1], OPEN + "refuse:\n  names: [\"*.nowhere.example\"]\n"]
    for i in range(30):
        g.reload(texts[i % 3], ok=i % 3 != 1)
    loader.join()
    stop.set()
    for t in threads:
        t.join()
    assert not bad, bad[:3]
    assert result["failed"] == 0 and result["ok"] == 200, result
    assert sum(t["received"] for t in mark.tunnels(5)) == result["up"]
    g.quiet()
    assert g.metric('egress_guard_closed_total{reason="policy_changed"}') == 0


def test_many_signals_in_a_row(guard):
    g = guard(policy=OPEN)
    for _ in range(200):
        g.signal(signal.SIGHUP)
    assert eventually(lambda: g.metric('egress_guard_policy_reloads_total{outcome="success"}') >= 1)
    open_tunnel(g.port, "http.example.org:80").close()


def test_role_that_is_gone(guard):
    """A listener whose role the new policy does not know refuses everything."""
    g = guard(policy=OPEN)
    open_tunnel(g.port, "http.example.org:80").close()
    g.write_policy(NARROW.replace("agent:", "other:"))
    before = g.metrics()
    g.signal(signal.SIGHUP)
    eventually(lambda: g.metrics() != before and [k for k in g.metrics() if "reloads" in k and g.metrics()[k]], 3)
    r = ask_connect(g.port, "http.example.org:80")
    if r.status == 200:  # the file was turned down because a listener needs the role: the old one stays
        assert g.metric('egress_guard_policy_reloads_total{outcome="failure"}') == 1
    else:
        assert r.status == 403
