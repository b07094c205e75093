"""At every limit there is an answer, the limit is exact, and what was held is given back."""
import concurrent.futures
import re
import socket
import time

import pytest

from guard import SANITIZED, SLACK
from lab import eventually
from wire import Client, ask_connect, connect_head, elapsed, get, open_tunnel, pattern, refused, request

MIB = 1 << 20


def test_connection_limit_is_exact(guard):
    g = guard(config={"limits": {"connections": 10}})
    g.quiet()
    held = [open_tunnel(g.port, "echo.example.org:443") for _ in range(10)]
    for _ in range(3):
        with Client(g.port) as c:
            c.send(connect_head("echo.example.org:443"))
            r = refused(c.rest())
            assert r.status == 503 and r.code == "overloaded" and int(r.get("Retry-After")) >= 1
    for c in held:  # the ten are not disturbed
        c.send(b"x")
        assert c.exactly(1) == b"x"
    held.pop().close()
    again = eventually(lambda: try_tunnel(g))
    assert again, "the freed place is not used"
    again.close()
    for c in held:
        c.close()
    g.quiet()


def try_tunnel(g):
    c = Client(g.port)
    if c.tunnel("echo.example.org:443").status == 200:
        return c
    c.close()
    return None


def test_limit_follows_the_descriptors(guard):
    """With few descriptors the limit is lower than asked for, said at start, and kept: the rest get an answer."""
    g = guard(files=200, config={"workers": 1, "limits": {"connections": 1000}})
    said = eventually(lambda: g.events("fd-limit-low"))
    limit = int(re.search(r"limits.connections is (\d+)", said[0]["message"]).group(1))
    assert 20 <= limit <= 100
    g.quiet()
    clients = [open_tunnel(g.port, "echo.example.org:443") for _ in range(limit)]
    for _ in range(15):
        assert ask_connect(g.port, "echo.example.org:443").code == "overloaded"
    for c in clients:
        c.send(b"x")
        assert c.exactly(1) == b"x"
        c.close()
    g.quiet()
    open_tunnel(g.port, "echo.example.org:443").close()


def test_out_of_descriptors(guard):
    """Accepting pauses, what stands goes on, nothing spins, and it recovers."""
    g = guard(files=120, config={"workers": 1})
    good = open_tunnel(g.port, "echo.example.org:443")
    crowd = [Client(g.port, timeout=2) for _ in range(300)]
    assert eventually(lambda: g.metric("egress_guard_accept_pauses_total") > 0)
    assert g.fds() < 120  # the limit by descriptors keeps some for those who are served
    cpu, start = g.cpu(), time.monotonic()
    for _ in range(20):
        good.send(b"x")
        assert good.exactly(1) == b"x"
        time.sleep(0.05)
    assert g.cpu() - cpu < 0.1 * elapsed(start) + 0.05, "spinning"
    for c in crowd:
        c.close()
    good.send(b"x")
    assert good.exactly(1) == b"x"
    good.close()
    g.quiet()
    assert g.metric("egress_guard_accept_pauses_total") > 0
    last = eventually(lambda: try_tunnel(g))  # the end of the crowd may still stand in the queue
    assert last
    last.close()


def test_slow_heads_time_out(guard):
    g = guard(config={"timeouts": {"head": "800ms"}})
    silent = Client(g.port)
    partial = Client(g.port)
    partial.send(b"GET http://http.example.org/ HTTP/1.1\r\nHo")
    dripping = Client(g.port)
    start = time.monotonic()
    data = request("http://http.example.org/size/1", [("X-Long", "y" * 500)])
    for i in range(len(data)):
        if elapsed(start) > 6:
            break
        try:
            dripping.send(data[i:i + 1])
        except OSError:
            break
        time.sleep(0.1)
    # head_timeout, then the two seconds in which the reply is drained
    assert elapsed(start) < 5, "a byte now and then must not win more time"
    r = refused(partial.rest())
    assert (r.status, r.code) == (408, "head_timeout")
    try:
        got = silent.rest()
        assert got == b"" or refused(got).code == "head_timeout"
    except ConnectionResetError:
        pass
    assert get(g.port, "http://http.example.org/size/1").status == 200
    g.quiet()


def test_slow_heads_do_not_hinder_others(guard):
    g = guard(config={"timeouts": {"head": "5s"}})
    slow = [Client(g.port).send(b"CONNECT echo.exam") for _ in range(500)]
    start = time.monotonic()
    for _ in range(20):
        open_tunnel(g.port, "echo.example.org:443").close()
    assert elapsed(start) < 1
    for c in slow:
        c.close()
    g.quiet()


def test_many_idle_tunnels_are_cheap(guard, load):
    g = guard()
    open_tunnel(g.port, "echo.example.org:443").close()
    g.quiet()
    base = g.rss()
    clients = []
    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        clients = list(pool.map(lambda _: open_tunnel(g.port, "echo.example.org:443"), range(1500)))
    per = (g.rss() - base) / 1500
    assert per < (40000 if SANITIZED else 4096), "%.0f bytes a tunnel" % per
    cpu = g.cpu()
    time.sleep(0.5)
    assert g.cpu() - cpu < 0.06, "idle tunnels cost CPU"
    for c in clients:
        c.close()
    g.quiet()


def test_memory_and_descriptors_stay(guard, load):
    """Exchanges, tunnels and refusals in thousands; then everything is as before."""
    g = guard()

    def batch():
        load(g.port, "bulk.example.org:443", tunnels=1500, concurrent=30, up=3000, down=7000)
        load(g.port, "denied.example:443", tunnels=500, concurrent=10, check=False)
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            for r in pool.map(lambda i: get(g.port, "http://http.example.org/size/%d" % i), range(200)):
                assert r.status == 200
        g.quiet()
    batch()
    memory, files = g.rss(), g.fds()
    for _ in range(2):
        batch()
    assert g.rss() - memory < 1 * MIB + SLACK, (memory, g.rss())
    assert eventually(lambda: g.fds() <= files), (files, g.fds())


def test_connections_that_vanish_at_once(guard):
    """Connect and reset, thousands of times, also before accept() gets to them."""
    g = guard()
    g.quiet()
    base = g.fds()
    for _ in range(3000):
        s = socket.socket()
        s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        s.connect(("127.0.0.1", g.port))
        s.close()
    g.quiet()
    assert eventually(lambda: g.fds() <= base), (base, g.fds())
    open_tunnel(g.port, "echo.example.org:443").close()


def test_distinct_names_do_not_grow_the_cache_for_ever(guard, load):
    g = guard(config={"resolver": {"cache": 200}})

    def ask_many(start):
        with concurrent.futures.ThreadPoolExecutor(30) as pool:
            list(pool.map(lambda i: ask_connect(g.port, "n%d.wild.example.org:80" % i), range(start, start + 800)))
    ask_many(0)
    memory = g.rss()
    ask_many(1000)
    ask_many(2000)
    assert g.rss() - memory < 1 * MIB + SLACK, (memory, g.rss())


def test_lookups_in_flight_are_bounded(guard):
    """Hundreds of names that nobody answers: each client gets its answer, none hangs."""
    g = guard(config={"resolver": {"timeout": "300ms", "tries": 1}, "timeouts": {"connect": "1500ms"}})
    with concurrent.futures.ThreadPoolExecutor(150) as pool:
        results = list(pool.map(lambda i: ask_connect(g.port, "z%d.silent.hostile.example:80" % i), range(600)))
    assert {r.code for r in results} <= {"dns_timeout", "overloaded"}
    g.quiet()


@pytest.mark.parametrize("workers", [1, 2, 4])
def test_any_number_of_workers(guard, load, workers):
    g = guard(config={"workers": workers})
    assert g.metric("egress_guard_workers") == workers
    load(g.port, "bulk.example.org:443", tunnels=300, concurrent=60, up=10000, down=10000)
    assert get(g.port, "http://http.example.org/size/100").body == pattern(100)
