"""The ways in: unix sockets that change hands, sockets passed in by a service manager, and the metrics' door when there
are no descriptors left."""
import ctypes
import os
import re
import resource
import signal
import socket
import subprocess
import time

import pytest

import places
from guard import BINARY, OPEN, free_port
from lab import eventually
from wire import Client

SYS_PIDFD_GETFD = 438
TARGET = places.ECHO4 + ":443"


# --- unix sockets ---

class UnixClient(Client):
    def __init__(self, path):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(10)
        self.sock.connect(path)
        self.buffer = b""


def answers(path):
    try:
        with UnixClient(path) as c:
            return c.tunnel(TARGET).status == 200
    except OSError:
        return False


def doors(path):
    """Without metrics and with a TCP listener of its own: two guards at once must meet nowhere but on the path."""
    port = free_port()
    return {"port": port, "wait": False, "config": {
        "listen": [{"address": "unix:" + path, "role": "agent"}, {"address": "127.0.0.1:%d" % port, "role": "agent"}],
        "timeouts": {"drain": "20s"}}}


@pytest.fixture
def unix_guard(guard, lab):
    def make(path):
        more = doors(path)
        port = more.pop("port")
        lab.own_ports.add(port)
        g = guard(**more)
        g.port = port
        assert eventually(lambda: g.stderr() or answers(path)), "it does not listen"
        return g
    return make


@pytest.mark.parametrize("by", ["unix", "tcp"])
def test_successor_takes_the_path_of_a_draining_guard(unix_guard, tmp_path, by):
    """The old one still serves a tunnel. One that came in by the socket keeps nobody out; without such a one nothing
    holds the old file any more, and the new one may even have its inode. When the old guard ends, the file is not its
    own."""
    path = str(tmp_path / "proxy.sock")
    old = unix_guard(path)
    with UnixClient(path) if by == "unix" else Client(old.port) as c:
        assert c.tunnel(TARGET).status == 200
        old.signal(signal.SIGTERM)
        assert eventually(lambda: not answers(path))
        new = unix_guard(path)
        assert new.alive() and answers(path), new.stderr()
        c.send(b"still")
        assert c.exactly(5) == b"still"
    old.process.wait(5)
    old.check_end()
    assert os.path.exists(path), "the old guard has removed the new one's socket"
    assert answers(path)
    new.stop()
    assert not os.path.exists(path)


def test_second_guard_is_kept_out(unix_guard, guard, tmp_path):
    """The path of one that still listens is its own, before and after the other has failed to start."""
    path = str(tmp_path / "proxy.sock")
    first = unix_guard(path)
    more = doors(path)
    more.pop("port")
    second = guard(**more)
    assert second.process.wait(5) == 2
    second.checked = True  # ended as it should, with 2
    assert len(second.stderr().splitlines()) == 1 and path in second.stderr()
    assert first.alive() and answers(path)


# --- sockets that were passed in ---

def start_with_socket(folder, sock, config=""):
    """A guard with fd:door, as systemd starts it (sd_listen_fds(3))."""
    (folder / "policy.yaml").write_text(OPEN)
    (folder / "guard.yaml").write_text('listen:\n  - {address: "fd:door", role: agent}\npolicy: policy.yaml\n'
                                       'log: {access: %s}\nworkers: 1\n%s' % (folder / "access.log", config))
    return subprocess.Popen(
        ["/bin/bash", "-c",
         'exec 3<&"$1"; LISTEN_PID=$$ LISTEN_FDS=1 LISTEN_FDNAMES=door exec "$2" serve --config "$3"', "bash",
         str(sock.fileno()), BINARY, str(folder / "guard.yaml")],
        pass_fds=(sock.fileno(),), stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)


def ended(p):
    """Its exit status and what it said; one that does not end is killed, and gives None."""
    try:
        said = p.communicate(timeout=5)[1]
        return p.returncode, said
    except subprocess.TimeoutExpired:
        p.kill()
        return None, p.communicate()[1]


def sockets_of(pid):
    """The guard's own sockets, as duplicates (pidfd_getfd(2)): their options can be asked for."""
    handle = os.pidfd_open(pid)
    try:
        for name in os.listdir("/proc/%d/fd" % pid):
            try:
                if not os.readlink("/proc/%d/fd/%s" % (pid, name)).startswith("socket:"):
                    continue
            except OSError:
                continue
            fd = ctypes.CDLL(None, use_errno=True).syscall(SYS_PIDFD_GETFD, handle, int(name), 0)
            assert fd >= 0, os.strerror(ctypes.get_errno())
            with socket.socket(fileno=fd) as s:
                yield s
    finally:
        os.close(handle)


def peer(s):
    try:
        return s.getpeername()
    except OSError:
        return None


def test_passed_socket_gets_its_options(tmp_path, lab):
    """Whoever opened it has set none: what is accepted from it is as quick, and as sure to notice a dead client."""
    with socket.create_server(("127.0.0.1", 0)) as s:
        s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 0)
        port = s.getsockname()[1]
        lab.own_ports.add(port)
        p = start_with_socket(tmp_path, s)
        try:
            with Client(port) as first:  # its socket was made when the guard was not there yet
                assert first.tunnel(TARGET).status == 200
            with Client(port) as c:
                assert c.tunnel(TARGET).status == 200
                found = [(mine.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY),
                          mine.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE))
                         for mine in sockets_of(p.pid) if peer(mine) == ("127.0.0.1", c.port)]
            assert len(found) == 1 and all(found[0]), found
            p.send_signal(signal.SIGTERM)
            assert ended(p)[0] == 0
        finally:
            p.kill()
            p.wait()


def unconnected():
    return socket.socket()


def datagram():
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    s.bind(("127.0.0.1", 0))
    return s


def bound_only():
    s = socket.socket()
    s.bind(("127.0.0.1", 0))
    return s


@pytest.mark.parametrize("make", [unconnected, bound_only, datagram])
def test_passed_socket_that_does_not_listen(tmp_path, make):
    with make() as s:
        status, said = ended(start_with_socket(tmp_path, s))
    assert status == 2, (status, said)
    assert len(said.splitlines()) == 1 and "fd:door" in said, said


# --- no descriptor left ---

def test_scrape_without_a_descriptor(guard):
    """It waits its turn, quietly: no spinning, and no line that is not the guard's own."""
    g = guard(config={"workers": 1}, files=200)
    crowd = [Client(g.port) for _ in range(150)]
    assert eventually(lambda: g.metric("egress_guard_connections") >= 50)
    # The guard keeps some for this by its own reckoning; so the limit comes down to the first that is not taken.
    taken = {int(n) for n in os.listdir("/proc/%d/fd" % g.process.pid)}
    low = min(set(range(300)) - taken)
    resource.prlimit(g.process.pid, resource.RLIMIT_NOFILE, (low, low))
    with Client(g.metrics_port) as scrape:
        scrape.send(b"GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        said, cpu = len(g.stderr()), g.cpu()
        time.sleep(1)
        assert g.cpu() - cpu < 0.3, "%.2f s of processor time in a second of waiting" % (g.cpu() - cpu)
        assert len(g.stderr()) == said, g.stderr()[said:][:500]
        assert not re.search(r"^\[\w+\] ", g.stderr(), re.M), "a library speaks in the guard's place"
        for c in crowd:
            c.close()
        assert scrape.response().status == 200  # no answer is lost by the waiting
