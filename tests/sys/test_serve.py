"""Starting and stopping: what cannot be served is said in one line with exit status 2; what is served ends well."""
import os
import re
import signal
import socket
import subprocess
import threading
import time
import urllib.request

import pytest

from guard import BINARY, DEFAULTS, OPEN, free_port, merged, yaml
from lab import eventually
from wire import Client, ask_connect, elapsed, get, open_tunnel, pattern, refused, request


def serve(folder, config=None, policy=OPEN, text=None, args=None):
    """Runs a guard that should not come up; gives (exit status, stderr)."""
    base = {"listen": [{"address": "127.0.0.1:%d" % free_port(), "role": "agent"}], "policy": "policy.yaml"}
    if policy is not None:
        (folder / "policy.yaml").write_text(policy)
    (folder / "guard.yaml").write_text(text if text is not None else yaml(merged(merged(DEFAULTS, base), config or {})) + "\n")
    done = subprocess.run([BINARY] + (args or ["serve", "--config", str(folder / "guard.yaml")]), stdin=subprocess.DEVNULL,
                          capture_output=True, text=True, timeout=10)
    return done.returncode, done.stderr


BAD_CONFIGS = [
    ("unknown key", {"colour": "red"}, "colour"),
    ("unknown key inside", {"timeouts": {"lunch": "1h"}}, "lunch"),
    ("no unit", {"timeouts": {"head": 10}}, "head"),
    ("unknown unit", {"timeouts": {"head": "10 parsecs"}}, "head"),
    ("negative time", {"timeouts": {"head": "-1s"}}, "head"),
    ("no listener", {"listen": None}, "listen"),
    ("bad address", {"listen": [{"address": "localhost:http", "role": "agent"}]}, "address"),
    ("no port", {"listen": [{"address": "127.0.0.1", "role": "agent"}]}, "address"),
    ("no policy", {"policy": None}, "policy"),
    ("workers", {"workers": "many"}, "workers"),
    ("zero connections", {"limits": {"connections": 0}}, "connections"),
    ("bad level", {"log": {"level": "loud"}}, "level"),
    ("bad server", {"resolver": {"servers": ["dns.example.org"]}}, "servers"),
    ("unwritable log", {"log": {"access": "/nonexistent/folder/access.log"}}, "/nonexistent/folder/access.log"),
    ("unknown role", {"listen": [{"address": "127.0.0.1:%d" % free_port(), "role": "nobody"}]}, "nobody"),
    ("foreign address", {"listen": [{"address": "198.51.100.1:3128", "role": "agent"}]}, "198.51.100.1"),
]


@pytest.mark.parametrize("config,word", [b[1:] for b in BAD_CONFIGS], ids=[b[0] for b in BAD_CONFIGS])
def test_bad_config(tmp_path, config, word):
    status, said = serve(tmp_path, config)
    assert status == 2, (status, said)
    lines = [line for line in said.splitlines() if line.strip()]
    assert len(lines) == 1, said
    place = re.search(r"guard\.yaml:(\d+):\d+: ", said)
    told = (tmp_path / "guard.yaml").read_text().split("\n")[int(place.group(1)) - 1] if place else ""
    assert word in said or word in told, (said, told)


@pytest.mark.parametrize("policy,word", [
    (None, "policy.yaml"), ("", "policy.yaml"), ("version: 2\nroles: {}\n", "version"),
    (OPEN + "allow_private: true\n", "allow_private"), ("version: 1\nroles:\n  agent:\n    alow: []\n", "alow"),
], ids=["missing", "empty", "version", "unknown key", "typo"])
def test_bad_policy(tmp_path, policy, word):
    status, said = serve(tmp_path, policy=policy)
    assert status == 2 and word in said, (status, said)


def test_problem_has_its_place(tmp_path):
    (tmp_path / "policy.yaml").write_text(OPEN)
    status, said = serve(tmp_path, text="listen:\n  - address: 127.0.0.1:1\n    role: agent\npolicy: policy.yaml\ncolour: red\n")
    assert status == 2 and "guard.yaml:5:1:" in said, said


def test_missing_config(tmp_path):
    status, said = serve(tmp_path, args=["serve", "--config", str(tmp_path / "none.yaml")])
    assert status == 2 and "none.yaml" in said and len(said.splitlines()) == 1


@pytest.mark.parametrize("args", [[], ["serve"], ["serve", "--config"], ["serve", "--colour", "x"], ["fly"]])
def test_wrong_usage(tmp_path, args):
    done = subprocess.run([BINARY] + args, capture_output=True, text=True, timeout=10)
    assert done.returncode == 2 and done.stderr


def test_help(tmp_path):
    for args in (["--help"], ["serve", "--help"]):
        done = subprocess.run([BINARY] + args, capture_output=True, text=True, timeout=10)
        assert done.returncode == 0 and "serve" in done.stdout + done.stderr


def test_port_in_use(guard, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        status, said = serve(tmp_path, {"listen": [{"address": "127.0.0.1:%d" % port, "role": "agent"}]})
    assert status == 2 and str(port) in said


def test_two_guards_do_not_share_a_port(guard, tmp_path):
    """SO_REUSEPORT is for the workers of one guard, not for a second one that takes half of the clients."""
    g = guard()
    status, said = serve(tmp_path, {"listen": [{"address": "127.0.0.1:%d" % g.port, "role": "agent"}]})
    assert status == 2 and str(g.port) in said


def test_several_listeners(guard):
    second, third = free_port(), free_port()
    policy = OPEN + """  narrow:
    allow: [http.example.org]
"""
    g = guard(policy=policy)
    g.stop()
    g = guard(policy=policy, config={"listen": [
        {"address": "127.0.0.1:%d" % g.port, "role": "agent"}, {"address": "127.0.0.1:%d" % second, "role": "narrow"},
        {"address": "[::1]:%d" % third, "role": "narrow"}]}, wait=False)
    g.lab.own_ports |= {second, third}
    assert eventually(lambda: accepts("127.0.0.1", second))
    assert ask_connect(second, "echo.example.org:443").code == "host_not_allowed"
    open_tunnel(second, "http.example.org:443").close()
    c = Client(third, host="::1")
    assert c.tunnel("echo.example.org:443").code == "host_not_allowed"


def accepts(host, port):
    try:
        socket.create_connection((host, port), 1).close()
        return True
    except OSError:
        return False


def test_unix_listener(guard, tmp_path):
    path = str(tmp_path / "proxy.sock")
    port = free_port()
    g = guard(config={"listen": [{"address": "unix:" + path, "role": "agent"},
                                 {"address": "127.0.0.1:%d" % port, "role": "agent"}]}, wait=False)
    assert eventually(lambda: os.path.exists(path) and accepts("127.0.0.1", port))
    g.lab.own_ports.add(port)
    s = socket.socket(socket.AF_UNIX)
    s.settimeout(5)
    s.connect(path)
    s.sendall(request("http://http.example.org/size/10", [("Connection", "close")]))
    got = b""
    while True:
        part = s.recv(65536)
        if not part:
            break
        got += part
    assert got.startswith(b"HTTP/1.1 200") and got.endswith(pattern(10))
    g.stop()
    assert not os.path.exists(path), "the socket file is left behind"


def test_log_to_stderr(guard):
    g = guard(config={"log": {"access": "stderr"}})
    ask_connect(g.port, "denied.example:443")
    assert eventually(lambda: "host_denied" in g.stderr())
    g.stop()


def test_sigterm_when_idle_is_quick(guard):
    g = guard()
    start = time.monotonic()
    g.stop()
    assert elapsed(start) < 1
    assert [e for e in g.events("guard-stopped")], g.lines()[-3:]


def test_sigint_is_sigterm(guard):
    g = guard()
    g.signal(signal.SIGINT)
    g.process.wait(5)
    g.check_end()


def test_drain_lets_transfers_end(guard, mark):
    """SIGTERM: no new connections, what is under way may finish, then exit 0."""
    g = guard(config={"timeouts": {"drain": "8s"}})
    c = open_tunnel(g.port, "bulk.example.org:443")
    c.send(b"up=0 down=600000 srate=400000\n")
    c.exactly(1000)
    kept = Client(g.port)
    kept.send(request("http://http.example.org/slow/500"))
    time.sleep(0.1)
    g.signal(signal.SIGTERM)
    time.sleep(0.1)
    try:
        with Client(g.port, timeout=2) as late:
            late.send(request("http://http.example.org/"))
            got = late.rest()
            assert not got or refused(got).code == "shutting_down"
    except OSError:
        pass
    r = kept.response()
    assert r.status == 200 and r.body == b"slow" and (r.get("Connection") or "").lower() == "close"
    assert c.rest() == pattern(600000)[1000:]
    c.close()
    start = time.monotonic()
    g.process.wait(5)
    assert elapsed(start) < 2
    g.check_end()
    assert mark.tunnels()[0]["end"] in ("done", "eof")


def test_drain_ends(guard, mark):
    """What does not end by itself is cut at the limit, counted and logged."""
    g = guard(config={"timeouts": {"drain": "700ms"}})
    c = open_tunnel(g.port, "echo.example.org:443")
    c.send(b"hello")
    assert c.exactly(5) == b"hello"
    start = time.monotonic()
    g.signal(signal.SIGTERM)
    g.process.wait(5)
    assert 0.5 < elapsed(start) < 2.5
    g.check_end()
    record = g.log("egress-ended")[-1]
    assert record["egress_guard.close"] == "shutting_down" and record["source.bytes"] == 5
    assert record["destination.bytes"] == 5


def test_second_sigterm_ends_the_drain(guard):
    g = guard(config={"timeouts": {"drain": "30s"}})
    c = open_tunnel(g.port, "echo.example.org:443")
    g.signal(signal.SIGTERM)
    time.sleep(0.3)
    assert g.alive()
    g.signal(signal.SIGTERM)
    try:
        g.process.wait(3)
    except subprocess.TimeoutExpired:
        c.close()  # a second signal is not promised to hurry; the end of the last tunnel is
        g.process.wait(3)
    g.check_end()


def test_stop_under_load(guard, load):
    g = guard(config={"timeouts": {"drain": "500ms"}})
    worker = threading.Thread(target=lambda: load(g.port, "bulk.example.org:443", tunnels=2000, concurrent=50, up=50000,
                                                  down=50000, check=False, timeout=20))
    worker.start()
    time.sleep(0.4)
    g.stop()
    worker.join()


def test_log_is_whole_after_stop(guard, load):
    g = guard()
    load(g.port, "bulk.example.org:443", tunnels=500, concurrent=50, up=100, down=100)
    g.stop()
    assert len(g.log("egress-allowed")) == 500 and len(g.log("egress-ended")) == 500


def test_metrics_formats(guard):
    g = guard()
    get(g.port, "http://http.example.org/size/1")
    text = g.scrape()
    for name in ("egress_guard_connections", "egress_guard_sent_bytes_total", "egress_guard_requests_total",
                 "egress_guard_policy_info", "egress_guard_build_info"):
        assert "# TYPE %s " % name in text, name
    asked = urllib.request.Request("http://127.0.0.1:%d/metrics" % g.metrics_port,
                                   headers={"Accept": "application/openmetrics-text"})
    with urllib.request.urlopen(asked, timeout=5) as r:
        assert "openmetrics" in r.headers["Content-Type"]
        assert r.read().decode().endswith("# EOF\n")


def test_log_rotation(guard):
    """SIGUSR1 or SIGHUP opens the file anew; whichever, no line is lost."""
    g = guard()
    ask_connect(g.port, "denied.example:443")
    assert eventually(lambda: g.log("egress-refused"))
    os.rename(g.log_file, g.log_file + ".1")
    g.signal(signal.SIGHUP)
    assert eventually(lambda: os.path.exists(g.log_file)), "the file was not opened anew"
    ask_connect(g.port, "denied.example:443")
    assert eventually(lambda: g.log("egress-refused"))
