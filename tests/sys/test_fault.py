"""Allocations and system calls that fail, one after another, in the shipped binary (tests/fault/failalloc.c).

Whatever fails: the guard neither dies nor hangs, nothing passes that it should refuse, a request is served right or
refused or cut off, the next one is served, no descriptor is lost, and counters and log tell the same story.
"""
import collections
import errno
import json
import mmap
import os
import signal
import socket
import struct
import subprocess
import time

import pytest

import places
from guard import BINARY, OPEN, SANITIZED, TOP, Guard, free_port
from lab import eventually
from wire import Client, Response, ask_connect, connect_head, pattern, refused, request

CALLS = ["memory", "realloc", "accept", "socket", "pipe", "epoll_ctl", "epoll_wait", "splice", "send", "recv", "write", "connect", "netlink"]
ALL = 0xffffffff
# What may be said of a request that met a failure; all of them invite another try.
TRANSIENT = {"overloaded", "dns_failed", "dns_timeout", "connect_timeout", "connect_unreachable", "connect_refused",
             "origin_closed", "internal_error"}
CONFIG = {"workers": 1, "resolver": {"timeout": "100ms", "tries": 2}, "timeouts": {"head": "3s", "connect": "700ms"}}
# ThreadSanitizer follows descriptors through the very calls that are stood in for here, and loses track of them.
pytestmark = pytest.mark.skipif("thread" in BINARY, reason="its descriptors cannot be followed by ThreadSanitizer")
SECONDS = 12 if SANITIZED else 4  # longer than any timeout above: whoever waits so long hangs


class Faults:
    """The plan shared with a running guard."""
    def __init__(self, path):
        self.path = str(path)
        with open(self.path, "wb") as f:
            f.write(bytes(mmap.PAGESIZE))
        with open(self.path, "r+b") as f:
            self.map = mmap.mmap(f.fileno(), mmap.PAGESIZE)

    def arm(self, calls, nth, many=1, error=0):
        mask = sum(1 << CALLS.index(c) for c in calls.split())
        self.map[4:28] = struct.pack("=6I", mask, nth, many, error, 0, 0)
        self.map[0:4] = struct.pack("=I", 1)

    def seen(self):
        return struct.unpack("=I", self.map[20:24])[0]

    def disarm(self):
        """How many calls were made to fail."""
        self.map[0:4] = struct.pack("=I", 0)
        return struct.unpack("=I", self.map[24:28])[0]


@pytest.fixture(scope="module")
def library(lab, tmp_path_factory):
    path = str(tmp_path_factory.mktemp("fault") / "failalloc.so")
    subprocess.run([os.environ.get("CC", "cc"), "-std=gnu11", "-O1", "-g", "-Wall", "-Wextra", "-Werror", "-fPIC", "-shared",
                    "-o", path, os.path.join(TOP, "tests", "fault", "failalloc.c")], check=True)
    with pytest.MonkeyPatch.context() as patch:  # the library stands before the sanitizer's own
        options = [o for o in [os.environ.get("ASAN_OPTIONS")] if o] + ["verify_asan_link_order=0"]
        patch.setenv("ASAN_OPTIONS", ":".join(options))
        yield path


def environment(library, faults):
    return {"LD_PRELOAD": library, "FAULT_PLAN": faults.path}


class Faulty:
    """A guard under faults, and what must be true of it in the end."""
    def __init__(self, lab, folder, library, **more):
        self.mark = lab.mark()
        self.faults = Faults(folder / "plan")
        self.guard = Guard(lab, folder / "guard", config=CONFIG, env=environment(library, self.faults), **more)
        self.number = 0
        for _ in range(2):
            for scenario in (tunnel, exchange):
                assert scenario(self) == "served"
        self.guard.quiet()
        self.fds = self.descriptors()

    @property
    def port(self):
        return self.guard.port

    def descriptors(self):
        """How many are open; the idle pipes of the pool, as many as there were busy directions at once, are not counted."""
        folder = "/proc/%d/fd/" % self.guard.process.pid
        kinds = []
        for fd in os.listdir(folder):
            try:
                kinds.append(os.readlink(folder + fd).split(":")[0])
            except FileNotFoundError:
                pass
        assert kinds.count("pipe") <= 8, kinds
        return len(kinds) - kinds.count("pipe")

    def name(self):
        """A new name, which is looked up."""
        self.number += 1
        return "n%d" % self.number

    def healthy(self):
        assert self.guard.alive(), self.guard.stderr()
        assert echo(self) == "served"

    def walk(self, scenario, calls, many=1, error=0, limit=600, good="served"):
        """Lets the first, second, ... call fail until there is none left to fail. Returns how often which outcome came."""
        outcomes = collections.Counter()
        for n in range(1, limit):
            self.faults.arm(calls, n, many, error)
            try:
                outcome = scenario(self)
            except BaseException as problem:
                raise AssertionError("%s: call %d of %s failing (%d): %r" % (scenario.__name__, n, calls, error, problem))
            failed = self.faults.disarm()
            outcomes[outcome] += 1
            self.healthy()
            if not failed:
                assert outcome == good, "nothing failed, and yet: %s" % outcome
                if os.environ.get("FAULT_SHOW"):
                    print(scenario.__name__, calls, many, error, dict(outcomes))
                return outcomes
        raise AssertionError("more than %d calls of %s" % (limit, calls))

    def finish(self):
        """Descriptors, places dialed, figures and log lines."""
        g = self.guard
        g.quiet()
        assert eventually(lambda: self.descriptors() <= self.fds, 5), "%d, %d before" % (self.descriptors(), self.fds)
        dialed = {a for a, _ in self.mark.dialed()}
        assert dialed <= {places.WEB4, places.BULK4, places.ECHO4}, dialed
        m = g.metrics()

        def total(name):
            return sum(v for k, v in m.items() if k.split("{")[0] == name)

        decided, ended = total("egress_guard_requests_total"), total("egress_guard_closed_total")
        dropped = total("egress_guard_log_dropped_total")
        assert m['egress_guard_requests_total{reason="allowed"}'] == ended, "allowed and ended differ"
        lines = eventually(lambda: (lambda found: found if len(found) + dropped == decided + ended else None)(g.log()), 5)
        assert lines, "%d lines of %d decisions and %d ends, %d dropped" % (len(g.log()), decided, ended, dropped)
        ends = [r for r in lines if r["event.action"] == "egress-ended"]
        if not dropped:
            assert len(ends) == ended
            assert sum(r["source.bytes"] for r in ends) == total("egress_guard_sent_bytes_total")
            assert sum(r["destination.bytes"] for r in ends) == total("egress_guard_received_bytes_total")
        assert total("egress_guard_tunnels") == 0
        g.stop()


@pytest.fixture
def faulty(lab, tmp_path, library, request):
    f = Faulty(lab, tmp_path, library)
    request.node.guards = [f.guard]
    try:
        yield f
        f.finish()
    finally:
        f.faults.disarm()
        f.guard.kill()


# --- what is tried ---

def reply_of(c):
    """The head that answers, None when the connection was cut before one, or the code of a refusal."""
    try:
        head = c.until(b"\r\n\r\n")
    except (EOFError, ConnectionError):
        assert not c.buffer, "half a head: %r" % c.buffer
        return None
    r = Response(head)
    if r.code is None:
        return r
    code = refused(head + c.rest()).code
    assert code in TRANSIENT, code
    return code


def tunnel_to(f, target, size):
    with Client(f.port, timeout=SECONDS) as c:
        try:
            c.send(connect_head(target))
        except ConnectionError:
            return "cut"
        r = reply_of(c)
        if not isinstance(r, Response):
            return r or "cut"
        assert r.status == 200, r
        got = b""
        try:
            c.send(b"up=%d down=%d\n" % (size, size) + pattern(size))
            got = c.exactly(size)
            assert got == pattern(size)
            return "served" if c.at_end() else "more"
        except (EOFError, ConnectionError):
            assert pattern(size).startswith(got or c.buffer), "wrong bytes"
            return "cut"


def tunnel(f):
    return tunnel_to(f, f.name() + ".wildbulk.example.org:443", 5000)


def download(f):
    """So much, and read so late, that it moves by splice."""
    size = 3 << 20
    with Client(f.port, timeout=SECONDS) as c:
        try:
            c.send(connect_head(f.name() + ".wildbulk.example.org:443"))
        except ConnectionError:
            return "cut"
        r = reply_of(c)
        if not isinstance(r, Response):
            return r or "cut"
        try:
            c.send(b"up=0 down=%d\n" % size)
            time.sleep(0.02)  # until all buffers are full
            assert c.exactly(size) == pattern(size)
            return "served" if c.at_end() else "more"
        except (EOFError, ConnectionError):
            assert pattern(size).startswith(c.buffer), "wrong bytes"
            return "cut"


def echo(f):
    """The healthy one: a name that is looked up already."""
    with Client(f.port, timeout=SECONDS) as c:
        r = c.tunnel("echo.example.org:443", early=b"early")
        assert r.status == 200, r
        c.send(b"-late").end_output()
        return "served" if c.rest() == b"early-late" else "wrong"


def one_exchange(c, url, method, body, want):
    try:
        c.send(request(url, method=method, body=body))
        r = reply_of(c)
        if not isinstance(r, Response):
            return r or "cut"
        assert r.status == 200, r
        if r.get("Transfer-Encoding"):
            got = c.chunks()
        else:
            got = c.exactly(int(r.get("Content-Length")))
    except (EOFError, ConnectionError):
        return "cut"
    assert got == want, "wrong body"
    return "served"


def exchange(f):
    """Two requests on one connection, with bodies both ways; the origin's connection is kept between them."""
    host = f.name() + ".wild.example.org"
    with Client(f.port, timeout=SECONDS) as c:
        outcome = one_exchange(c, "http://%s/chunked/3000" % host, "GET", b"", pattern(3000))
        if outcome == "served":
            outcome = one_exchange(c, "http://%s/echo" % host, "POST", pattern(4000), pattern(4000))
        return outcome


def forbidden(f):
    """None of these may ever pass, whatever fails on the way to the judgement."""
    for target, codes in (("10.0.0.5:80", {"address_private"}), ("denied.example:443", {"host_denied"}),
                          ("127.0.0.1.nip.example.org:80", {"address_loopback"}),
                          ("own.example.org:443", {"address_own"}), ("example.org:22", {"port_not_allowed"})):
        with Client(f.port, timeout=SECONDS) as c:
            try:
                c.send(connect_head(target))
                head = c.until(b"\r\n\r\n")
            except (EOFError, ConnectionError):
                assert not c.buffer
                continue
            code = refused(head + c.rest()).code
            assert code in codes | TRANSIENT, (target, code)
    return "refused"


# --- memory ---

@pytest.mark.parametrize("many", [1, ALL], ids=["once", "from-then-on"])
@pytest.mark.parametrize("scenario", [tunnel, exchange], ids=lambda s: s.__name__)
def test_memory(faulty, scenario, many):
    outcomes = faulty.walk(scenario, "memory realloc", many)
    assert sum(outcomes.values()) > 5 and outcomes["served"] < sum(outcomes.values()), outcomes


def test_memory_for_timers(lab, tmp_path, library, request):
    """A connection whose timer cannot be set is not kept: nothing would ever end it."""
    faults = Faults(tmp_path / "plan")
    g = Guard(lab, tmp_path / "guard", config=dict(CONFIG, timeouts={"head": "300ms"}), env=environment(library, faults))
    request.node.guards = [g]
    try:
        faults.arm("realloc", 1, ALL)
        clients = []
        for _ in range(40):
            try:
                clients.append(Client(g.port, timeout=SECONDS).send(b"CONNECT "))
            except ConnectionError:
                pass
        for c in clients:
            try:
                raw = c.rest()
                assert not raw or refused(raw).code in TRANSIENT | {"head_timeout"}
            except ConnectionError:
                pass
        assert faults.disarm() > 0
        g.quiet()
        assert ask_connect(g.port, "echo.example.org:443").status == 200
        g.stop()
    finally:
        g.kill()


def test_memory_download(faulty):
    faulty.walk(download, "memory realloc")


@pytest.mark.parametrize("many", [1, ALL], ids=["once", "from-then-on"])
def test_memory_forbidden(faulty, many):
    faulty.walk(forbidden, "memory realloc", many, good="refused")


# --- system calls ---

@pytest.mark.parametrize("scenario", [tunnel, exchange], ids=lambda s: s.__name__)
def test_interrupted(faulty, scenario):
    """EINTR is no failure: everything is served, whichever call it meets."""
    for calls in ("accept", "epoll_wait", "send", "recv", "write"):
        outcomes = faulty.walk(scenario, calls, error=errno.EINTR)
        assert set(outcomes) == {"served"}, (calls, outcomes)
    for n in range(1, 20):
        faulty.faults.arm("splice epoll_wait", n, 1, errno.EINTR)
        assert download(faulty) == "served"
        faulty.faults.disarm()


def test_accept(faulty):
    """The client waits in the backlog, and is served."""
    for error in (errno.ECONNABORTED, errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM, errno.EPROTO):
        for many in (1, 3):
            before = faulty.guard.metric("egress_guard_accept_errors_total")
            outcomes = faulty.walk(echo, "accept", many, error)
            assert set(outcomes) == {"served"}, outcomes
            assert faulty.guard.metric("egress_guard_accept_errors_total") > before


@pytest.mark.parametrize("calls, errors", [
    ("socket", [errno.EMFILE, errno.ENOBUFS]), ("connect", [errno.EADDRNOTAVAIL, errno.ENOBUFS]),
    ("epoll_ctl", [errno.ENOMEM, errno.ENOSPC]), ("send", [errno.ENOBUFS, errno.ENOMEM]),
    ("recv", [errno.ENOMEM, errno.ENOBUFS])], ids=lambda v: v if isinstance(v, str) else "")
def test_calls(faulty, calls, errors):
    for error in errors:
        for scenario in (tunnel, exchange):
            faulty.walk(scenario, calls, error=error)
            faulty.walk(scenario, calls, ALL, error)


def test_calls_forbidden(faulty):
    for calls, error in (("socket", errno.EMFILE), ("epoll_ctl", errno.ENOMEM), ("send", errno.ENOBUFS),
                         ("recv", errno.ENOMEM)):
        faulty.walk(forbidden, calls, ALL, error, good="refused")


def test_pipes(faulty):
    """Without pipes everything is copied."""
    for error in (errno.EMFILE, errno.ENFILE):
        assert set(faulty.walk(download, "pipe", ALL, error)) == {"served"}
    assert faulty.guard.metric("egress_guard_spliced_bytes_total") == 0


def test_splice(faulty):
    """A splice that fails cuts the tunnel and nothing else."""
    for n in (1, 2, 3, 7):
        for many in (1, ALL):
            faulty.faults.arm("splice", n, many, errno.ENOMEM)
            outcome = download(faulty)
            assert faulty.faults.disarm() > 0
            assert outcome == "cut"
            faulty.healthy()
    assert download(faulty) == "served"
    assert faulty.guard.metric("egress_guard_spliced_bytes_total") > 1 << 20


def test_netlink(faulty):
    """The host's own addresses cannot be read: refused as ever, or not served at all."""
    for error in (errno.ENOMEM, errno.EINTR):
        faulty.walk(forbidden, "netlink", 1, error, good="refused")
        faulty.walk(tunnel, "netlink", 1, error)
    for scenario, good in ((forbidden, "refused"), (tunnel, "served")):
        faulty.walk(scenario, "netlink", ALL, errno.ENOMEM, good=good)
        faulty.walk(scenario, "netlink", 1, errno.ENOBUFS, good=good)


def test_log_cannot_be_written(faulty):
    """A full disk: every request is served, and what the log has lost is told in it and counted."""
    g = faulty.guard
    g.quiet()
    time.sleep(0.1)  # what was logged until now is written
    faulty.faults.arm("write", 1, ALL, errno.ENOSPC)
    for _ in range(3):
        assert echo(faulty) == "served"
    lost = eventually(lambda: (lambda n: n if n >= 6 else None)(g.metric("egress_guard_log_dropped_total")), 5)
    assert faulty.faults.disarm() > 0
    assert lost == 6
    assert echo(faulty) == "served"
    gap = eventually(lambda: g.events("log-gap"), 5)
    assert [r["message"] for r in gap] == ["6 log lines were dropped"]


# --- starting and reloading ---

def policy_denying(name):
    return OPEN.replace("      - denied.example\n      - \"*.denied.example\"\n", "      - %s\n" % name)


def asks(port, name):
    with Client(port, timeout=SECONDS) as c:
        c.send(connect_head(name + ":80"))
        head = c.until(b"\r\n\r\n")
        r = Response(head)
        return r.code or "served"


def test_reload(lab, tmp_path, library, request):
    """A reload that fails half-way changes nothing; one that succeeds is whole."""
    path = str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notify:
        notify.bind(path)
        notify.settimeout(5)
        faults = Faults(tmp_path / "plan")
        g = Guard(lab, tmp_path / "guard", policy=policy_denying("allowed.example"), config=CONFIG,
                  env=dict(environment(library, faults), NOTIFY_SOCKET=path))
        request.node.guards = [g]
        try:
            assert notify.recv(100) == b"READY=1"
            reload_under_faults(g, faults, notify)
            g.stop()
        finally:
            g.kill()


def reload_under_faults(g, faults, notify):
    names = ["allowed.example", "denied.example"]
    denied, failed, n, tried, succeeded = 0, 1, 1, 0, 0
    while failed:
        g.write_policy(policy_denying(names[1 - denied]))
        faults.arm("memory realloc", n)
        g.signal(signal.SIGHUP)
        while notify.recv(100) != b"READY=1":
            pass
        failed = faults.disarm()
        m = g.metrics()
        ok = m['egress_guard_policy_reloads_total{outcome="success"}'] - succeeded
        succeeded += ok
        tried += 1
        assert succeeded + m['egress_guard_policy_reloads_total{outcome="failure"}'] == tried
        if ok:
            denied = 1 - denied
        assert asks(g.port, names[denied]) == "host_denied", n
        assert asks(g.port, names[1 - denied]) == "served", n
        n += 1
    assert ok and tried > 20 and succeeded < tried


def test_start(lab, tmp_path, library):
    """It starts and serves, or says why not and ends with 2; or with 1, when it had booted and a worker could not start."""
    faults = Faults(tmp_path / "plan")
    port = free_port()
    lab.own_ports.add(port)
    (tmp_path / "policy.yaml").write_text(OPEN)
    config, log = tmp_path / "guard.yaml", tmp_path / "access.log"
    config.write_text("listen:\n  - address: 127.0.0.1:%d\n    role: agent\npolicy: policy.yaml\nworkers: 1\n"
                      "log: {access: access.log}\n" % port)
    notify = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    notify.bind(str(tmp_path / "notify"))
    notify.setblocking(False)
    env = dict(os.environ, **environment(library, faults), NOTIFY_SOCKET=str(tmp_path / "notify"))

    def ready():
        try:
            return notify.recv(100) == b"READY=1"
        except BlockingIOError:
            return False

    def ask_denied(p):
        try:
            return asks(port, "denied.example")
        except (ConnectionError, EOFError):
            return "cut" if p.poll() is None else "ended"

    def start(n, many):
        """How many failed, and the exit status."""
        log.write_text("")
        faults.arm("memory realloc", n, many)
        with subprocess.Popen([BINARY, "serve", "--config", str(config)], env=env, stdin=subprocess.DEVNULL,
                              stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as p:
            try:
                assert eventually(lambda: ready() or p.poll() is not None, SECONDS, 0.002), "it hangs"
                assert ask_denied(p) in TRANSIENT | {"host_denied", "cut", "ended"}
                failed = faults.disarm()
                if eventually(lambda: p.poll() is not None or ask_denied(p) == "host_denied", SECONDS) and p.poll() is None:
                    p.terminate()
                text = p.communicate(timeout=SECONDS)[1]
            except BaseException as problem:
                raise AssertionError("allocation %d: %r" % (n, problem))
            finally:
                p.kill()
        while ready():
            pass
        assert p.returncode in (0, 1, 2), "allocation %d: ended with %d: %s" % (n, p.returncode, text[-4000:])
        assert p.returncode != 2 or "egress-guard: " in text, "allocation %d: no word of why" % n
        assert p.returncode != 1 or many > 1 or "worker-failed" in log.read_text(), "allocation %d: no word of why" % n
        return failed, p.returncode

    # A stride through all of them meets each stage: the readers, the workers, the listeners.
    with notify:
        for many in (1, ALL):
            seen, n, failed = collections.Counter(), 1, 1
            while failed:
                failed, status = start(n, many)
                seen[status] += 1
                n += 1 + n // (8 if SANITIZED else 20)
            assert status == 0 and seen[2] > 10, seen


def test_second_guard_leaves_the_first_alone(lab, tmp_path, guard):
    """A guard that cannot have a unix socket because another one serves it does not take it away."""
    path = str(tmp_path / "proxy.sock")
    listen = {"listen": [{"address": "unix:" + path, "role": "agent"}]}
    first = guard(config=dict(listen), wait=False)
    assert eventually(lambda: os.path.exists(path), 5)
    second = guard(config=dict(listen), wait=False)
    assert second.process.wait(10) == 2
    second.checked = True
    assert "cannot listen on unix:" in second.stderr()
    with socket.socket(socket.AF_UNIX) as s:
        s.settimeout(5)
        s.connect(path)
        s.sendall(connect_head("denied.example:80"))
        assert b"(host_denied)" in s.recv(1000)
    first.stop()
    assert not os.path.exists(path)
