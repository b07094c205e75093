"""Tunnels: ends, resets, pressure and silence reach the other side as a direct connection would bring them."""
import concurrent.futures
import socket
import threading
import time

import pytest

from guard import SLACK
from lab import eventually
from wire import Client, ask_connect, connect_head, elapsed, open_tunnel, pattern

MIB = 1 << 20


def line(**words):
    """The first line of the bulk origin."""
    return (" ".join(k if v is True else "%s=%d" % (k, v) for k, v in words.items()) + "\n").encode()


def only(mark, wait=5):
    found = mark.tunnels(wait)
    assert len(found) == 1, found
    return found[0]


def check(guard, client, seen):
    """The log of a tunnel agrees with what the origin counted."""
    client.close()
    record = guard.ended(client)
    assert (record["source.bytes"], record["destination.bytes"]) == (seen["received"], seen["sent"]), (record, seen)
    return record


# --- ends ---

def test_client_half_close(shared, mark):
    """The origin sees the end behind every byte, and what it sends then still arrives."""
    c = open_tunnel(shared.port, "bulk.example.org:443")
    c.send(line(up=1000, down=MIB, eof=True) + pattern(1000)).end_output()
    assert c.rest() == pattern(MIB)
    seen = only(mark)
    assert seen["end"] == "eof" and seen["eof"]
    assert check(shared, c, seen)["egress_guard.close"] == "done"


def test_origin_half_close(shared, mark):
    """The origin ends first; the client may go on sending."""
    c = open_tunnel(shared.port, "drain.example.org:443")
    c.send(pattern(5000)).end_output()
    assert c.rest() == b"5000\n"
    check(shared, c, only(mark))
    c = open_tunnel(shared.port, "bulk.example.org:80")
    c.send(line(up=0, down=10))
    assert c.exactly(10) == pattern(10) and c.at_end()


def test_end_does_not_overtake_data(shared, mark):
    """8 MiB and the end at once, to an origin that reads slowly."""
    c = open_tunnel(shared.port, "bulk.example.org:443", timeout=20)
    c.send(line(up=8 * MIB, down=3, eof=True, rate=10 * MIB) + pattern(8 * MIB)).end_output()
    assert c.rest() == pattern(3)
    seen = only(mark)
    assert seen["end"] == "eof" and seen["received"] > 8 * MIB
    check(shared, c, seen)


def test_end_does_not_overtake_data_down(shared, mark):
    n = 4 * MIB  # what the buffers on the way surely hold
    c = open_tunnel(shared.port, "bulk.example.org:443", timeout=20)
    c.send(line(up=0, down=n))
    seen = only(mark)  # the origin has sent all and closed; the client has not read a byte
    got = []
    while True:
        time.sleep(0.005)
        part = c.sock.recv(200000)
        if not part:
            break
        got.append(part)
    assert b"".join(got) == pattern(n)
    check(shared, c, seen)


def test_last_bytes_and_end_together(shared, mark):
    for n in (0, 1, 1000, 70000):
        later = shared.lab.mark()
        c = open_tunnel(shared.port, "echo.example.org:443")
        c.send(pattern(n)).end_output()
        assert c.rest() == pattern(n)
        check(shared, c, only(later))


def test_half_close_both_orders(shared):
    """Echo through many small half-closed tunnels at once: nothing lost, whoever ends first."""
    def one(i):
        c = open_tunnel(shared.port, "echo.example.org:%d" % (443 if i % 2 else 80))
        c.send(pattern(i * 97))
        if i % 3 == 0:
            time.sleep(0.01)
        c.end_output()
        return c.rest() == pattern(i * 97)
    with concurrent.futures.ThreadPoolExecutor(40) as pool:
        assert all(pool.map(one, range(200)))


# --- resets ---

def test_client_reset_during_download(shared, mark):
    c = open_tunnel(shared.port, "bulk.example.org:443")
    c.send(line(up=0, down=1 << 32))
    c.exactly(100000)
    c.reset()
    start = time.monotonic()
    seen = only(mark)
    assert elapsed(start) < 1 and seen["end"] == "peer_reset"
    record = shared.ended(c)
    assert record["egress_guard.close"] == "client_reset" and record["event.outcome"] == "failure"
    assert 100000 <= record["destination.bytes"] <= seen["sent"]
    assert record["source.bytes"] == seen["received"]


def test_client_reset_during_upload(shared, mark):
    c = open_tunnel(shared.port, "bulk.example.org:443")
    c.send(line(up=1 << 32, down=0))
    c.send(pattern(3 * MIB))
    eventually(lambda: mark.tunnels(0, True)[0]["received"] > 3 * MIB)
    c.reset()
    seen = only(mark)
    assert seen["end"] == "peer_reset"
    check(shared, c, seen)


@pytest.mark.parametrize("after", [0, 1000, 100000])
def test_origin_reset(shared, mark, after):
    """However the reset falls together with the last bytes."""
    for _ in range(8):
        c = open_tunnel(shared.port, "bulk.example.org:443", timeout=3)
        c.send(line(up=0, down=1 << 30, reset=after))
        with pytest.raises(ConnectionResetError):
            c.rest()  # an orderly end would be a lie
        record = shared.ended(c)
        assert record["egress_guard.close"] == "origin_reset"
        assert record["destination.bytes"] <= after


def test_origin_reset_while_reading(shared, mark):
    c = open_tunnel(shared.port, "bulk.example.org:443")
    c.send(line(up=1 << 30, down=0, upreset=50000))
    with pytest.raises((ConnectionResetError, BrokenPipeError)):
        for _ in range(200):
            c.send(pattern(65536))
            time.sleep(0.002)
    assert shared.ended(c)["egress_guard.close"] == "origin_reset"


def test_origin_that_resets_at_once(shared):
    for _ in range(20):
        with Client(shared.port) as c:
            c.send(connect_head("reset.example.org:443"))
            try:
                head = c.until(b"\r\n\r\n")
                assert head.startswith((b"HTTP/1.1 200", b"HTTP/1.1 502"))
                if head.startswith(b"HTTP/1.1 200"):
                    with pytest.raises((ConnectionResetError, BrokenPipeError)):
                        c.rest()
            except ConnectionResetError:
                pass


def test_origin_that_closes_at_once(shared):
    for _ in range(20):
        with Client(shared.port) as c:
            c.send(connect_head("close.example.org:443"))
            head = c.until(b"\r\n\r\n")
            assert head.startswith((b"HTTP/1.1 200", b"HTTP/1.1 502"))
            if head.startswith(b"HTTP/1.1 200"):
                assert c.rest() == b""


# --- who speaks when ---

def test_server_speaks_first(shared):
    for _ in range(20):
        with Client(shared.port) as c:
            c.send(connect_head("banner.example.org:443"))
            raw = c.exactly(len(b"HTTP/1.1 200 Connection established\r\n\r\n") + 37)
            assert raw == b"HTTP/1.1 200 Connection established\r\n\r\n220 banner.example.org speaks first\r\n"
            c.send(b"hi")
            assert c.exactly(2) == b"hi"


@pytest.mark.parametrize("size", [1, 517, 20000, 60000, 200000])
def test_early_data_once(shared, mark, size):
    """Bytes behind the head, in one segment with it, arrive once and first."""
    with Client(shared.port) as c:
        c.send(connect_head("bulk.example.org:443") + line(up=size + 7, down=5) + pattern(size))
        assert c.response("CONNECT").status == 200
        c.send(pattern(7, size))
        assert c.rest() == pattern(5)
    seen = only(mark)
    assert seen["end"] in ("done", "eof")
    check(shared, c, seen)


def test_200_comes_only_after_the_connection(shared):
    for name, code, status in (("refused.example.org", "connect_refused", 502),
                               ("unreachable.example.org", "connect_unreachable", 502)):
        r = ask_connect(shared.port, name + ":443")
        assert (r.status, r.code) == (status, code)


def test_black_hole(shared):
    start = time.monotonic()
    r = ask_connect(shared.port, "blackhole.example.org:443")
    assert (r.status, r.code) == (504, "connect_timeout")
    assert 1.5 < elapsed(start) < 3


def test_many_addresses_one_of_them_good(guard):
    g = guard(config={"timeouts": {"connect": "4s"}})
    start = time.monotonic()
    open_tunnel(g.port, "many.example.org:80").close()
    assert elapsed(start) < 2


# --- pressure ---

@pytest.mark.parametrize("direction", ["down", "up"])
def test_slow_reader_bounds_memory(guard, mark, direction):
    """The far side takes 10 kB a second; 2 GiB wait at their source, not in the guard."""
    g = guard()
    g.quiet()
    base = g.rss()
    clients = [open_tunnel(g.port, "bulk.example.org:443") for _ in range(8)]
    stop = threading.Event()

    def feed(c):
        c.sock.settimeout(0.2)
        data = pattern(MIB)
        while not stop.is_set():
            try:
                c.sock.send(data)
            except (socket.timeout, OSError):
                pass
    for c in clients:
        if direction == "down":
            c.send(line(up=0, down=1 << 31))
        else:
            c.send(line(up=1 << 31, down=0, rate=10000, raw=True))
    threads = [threading.Thread(target=feed, args=(c,)) for c in clients] if direction == "up" else []
    for t in threads:
        t.start()
    most, cpu = 0, g.cpu()
    for _ in range(15):
        time.sleep(0.1)
        most = max(most, g.rss())
        if direction == "down":
            for c in clients:
                c.sock.recv(1000)
    stop.set()
    for t in threads:
        t.join()
    used = g.cpu() - cpu
    for c in clients:
        c.reset()
    assert most - base < 8 * MIB + SLACK, (base, most)
    g.quiet(3)  # a reset is passed on at once, also while bytes wait that nobody takes
    assert used < 0.8, "%.2f s of CPU while nothing could move" % used
    seen = mark.tunnels(5)
    assert all(s["sent"] < 64 * MIB for s in seen), "the source was read on"


def test_memory_is_flat_while_a_gigabyte_passes(guard, load, mark):
    g = guard()
    base = g.rss()
    load(g.port, "bulk.example.org:443", up=0, down=1 << 30, raw=True)
    assert g.rss() - base < 6 * MIB + SLACK
    assert g.metric("egress_guard_spliced_bytes_total") > 1 << 29


# --- silence ---

def test_idle_tunnel_is_closed_at_the_limit(guard, mark):
    g = guard(config={"timeouts": {"idle": "700ms", "half_open": "10s"}})
    c = open_tunnel(g.port, "hold.example.org:443")
    c.send(b"\x16\x03\x01")
    start = time.monotonic()
    try:
        c.rest()
    except ConnectionResetError:
        pass
    assert 0.5 < elapsed(start) < 2.5
    assert g.ended(c)["egress_guard.close"] == "idle_timeout"
    assert only(mark)["end"] != "open"


def test_a_byte_now_and_then_keeps_a_tunnel(guard):
    g = guard(config={"timeouts": {"idle": "700ms"}})
    c = open_tunnel(g.port, "echo.example.org:443")
    for _ in range(6):
        time.sleep(0.35)
        c.send(b"x")
        assert c.exactly(1) == b"x"


def test_traffic_one_way_keeps_a_tunnel(guard):
    g = guard(config={"timeouts": {"idle": "500ms"}})
    c = open_tunnel(g.port, "bulk.example.org:443")
    c.send(line(up=0, down=30000, srate=10000))
    assert c.rest() == pattern(30000)


def test_half_open_limit(guard, mark):
    g = guard(config={"timeouts": {"idle": "30s", "half_open": "600ms"}})
    c = open_tunnel(g.port, "hold.example.org:443")
    c.end_output()
    start = time.monotonic()
    try:
        c.rest()
    except ConnectionResetError:
        pass
    assert 0.4 < elapsed(start) < 2.5
    assert g.ended(c)["egress_guard.close"] == "half_open_timeout"
    assert only(mark)["end"] != "open"


def test_half_open_with_traffic_goes_on(guard):
    """One side has ended; as long as bytes move, the limit does not strike."""
    g = guard(config={"timeouts": {"half_open": "2s"}})
    c = open_tunnel(g.port, "bulk.example.org:443")
    c.send(line(up=0, down=40000, srate=10000, eof=True)).end_output()
    assert c.rest() == pattern(40000)


def test_client_that_stops_reading(guard, mark):
    """A client that reads nothing for longer than the idle limit is let go, and the log says so."""
    g = guard(config={"timeouts": {"idle": "700ms"}})
    c = open_tunnel(g.port, "bulk.example.org:443")
    c.send(line(up=0, down=1 << 30))
    record = g.ended(c, timeout=10)
    assert record["egress_guard.close"] == "idle_timeout"
    assert only(mark)["end"] == "peer_reset"


# --- what is left behind ---

def test_nothing_is_left_behind(guard, mark):
    """Every way to end, many times: descriptors return to their number, no CLOSE_WAIT, no open gauge."""
    g = guard(config={"timeouts": {"connect": "500ms", "idle": "2s", "half_open": "500ms", "head": "1s"}})

    def one(i):
        kind = i % 12
        c = Client(g.port)
        try:
            if kind == 0:
                c.reset()
            elif kind == 1:
                c.send(connect_head("denied.example:443"))
                c.rest()
            elif kind == 2:
                c.send(connect_head("refused.example.org:443"))
                c.rest()
            elif kind == 3:
                c.send(connect_head("blackhole.example.org:443"))
                c.reset()
            elif kind == 4:
                c.send(connect_head("echo.example.org:443"))
                c.reset()
            elif kind == 5:
                c.send(connect_head("reset.example.org:443"))
                c.rest()
            elif kind == 6:
                c.tunnel("echo.example.org:443")
                c.send(b"x").end_output()
                c.rest()
            elif kind == 7:
                c.tunnel("bulk.example.org:443")
                c.send(line(up=0, down=MIB))
                c.exactly(1000)
                c.reset()
            elif kind == 8:
                c.tunnel("hold.example.org:443")
                c.end_output()
                c.rest()
            elif kind == 9:
                c.send(b"GET http://http.example.org/truncate/100000 HTTP/1.1\r\nHost: http.example.org\r\n\r\n")
                c.rest()
            elif kind == 10:
                c.send(b"GET http://http.example.org/size/100000 HTTP/1.1\r\nHost: http.example.org\r\n\r\n")
                c.exactly(100)
            else:
                c.send(b"GET http://http.exam")
        except OSError:
            pass
        c.close()
    with concurrent.futures.ThreadPoolExecutor(24) as pool:
        list(pool.map(one, range(60)))
        g.quiet()
        time.sleep(0.2)
        base = g.fds()
        list(pool.map(one, range(600)))
    g.quiet()
    assert eventually(lambda: g.fds() <= base, 5), (base, g.fds())
    assert not g.sockets("CLOSE-WAIT")
    assert g.metric("egress_guard_tunnels") == 0


@pytest.mark.slow
def test_more_than_4_gib(guard, load, mark):
    """5 GiB each way through one tunnel, counted to the byte."""
    g = guard()
    n = 5 << 30
    report = load(g.port, "bulk.example.org:443", up=n, down=n, raw=True)
    seen = only(mark)
    assert seen["received"] == report["up"] and seen["sent"] == report["down"] == n
    record = g.wait_log(1, "egress-ended")[0]
    assert (record["source.bytes"], record["destination.bytes"]) == (report["up"], n)
    assert g.metric("egress_guard_sent_bytes_total") == report["up"]
    assert g.metric("egress_guard_received_bytes_total") == n


@pytest.mark.slow
def test_more_than_4_gib_of_content_length(guard, mark):
    g = guard()
    n = (4 << 30) + 12345
    with Client(g.port, timeout=60) as c:
        c.send(b"GET http://http.example.org/size/%d HTTP/1.1\r\nHost: http.example.org\r\n\r\n" % n)
        r = c.head()
        assert int(r.get("Content-Length")) == n
        left = n - len(c.buffer)
        scratch = bytearray(1 << 20)
        while left:
            k = c.sock.recv_into(scratch, min(left, 1 << 20))
            assert k
            left -= k
        c.buffer = b""
        c.send(b"GET http://http.example.org/size/3 HTTP/1.1\r\nHost: http.example.org\r\n\r\n")
        assert c.response().body == pattern(3)
    first = g.records_of(c, 2)[0]
    assert first["destination.bytes"] > n


def test_early_data_to_a_dead_end_is_bounded(guard):
    """A client that sends and sends while the guard still dials is not stored without end."""
    g = guard(config={"timeouts": {"connect": "1500ms"}})
    base = g.rss()
    clients = []
    for _ in range(20):
        c = Client(g.port)
        c.send(connect_head("blackhole.example.org:443"))
        c.sock.setblocking(False)
        clients.append(c)
    until = time.monotonic() + 1
    data = pattern(MIB)
    most = 0
    while time.monotonic() < until:
        for c in clients:
            try:
                c.sock.send(data)
            except OSError:
                pass
        most = max(most, g.rss())
        time.sleep(0.02)
    assert most - base < 20 * MIB + SLACK
    for c in clients:
        c.close()


