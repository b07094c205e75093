"""What the guard was built for, as one list: each line of it is proven here from the outside, with real programs."""
import json
import os
import signal
import subprocess
import time

import pytest

import places
from guard import OPEN, SLACK
from lab import eventually
from wire import ask, ask_connect, connect_head, refused

LONG = bool(os.environ.get("LONG"))


def curl(g, *args):
    return subprocess.run(["curl", "-sS", "--max-time", "20", "-x", "http://127.0.0.1:%d" % g.port, *args], capture_output=True)


def test_https_fetch_and_its_bytes(guard, mark, lab):
    """curl fetches over https through the guard, and the log's bytes are the origin's."""
    g = guard()
    done = curl(g, "--cacert", lab.ca, "https://tls.example.org/size/1000000")
    assert done.returncode == 0, done.stderr
    from wire import pattern
    assert done.stdout == pattern(1000000)
    record = g.wait_log(1, "egress-ended", "tls.example.org")[0]
    seen = mark.web_connections(3)
    assert len(seen) == 1 and seen[0]["tls"]
    assert (record["source.bytes"], record["destination.bytes"]) == (seen[0]["received"], seen[0]["sent"])


REFUSED = [
    ("169.254.169.254:80", 403, "address_link_local"),
    ("x.private.hostile.example:443", 403, "address_private"),
    ("[64:ff9b::a9fe:a9fe]:80", 403, "address_link_local"),
    ("http.example.org:22", 403, "port_not_allowed"),
    ("2130706433:80", 400, "bad_target"),
    ("127.0.0.1:80", 403, "address_loopback"),
    ("[::ffff:169.254.169.254]:80", 403, "address_link_local"),
    ("metadata.google.internal:80", 403, "name_special"),
    ("denied.example:443", 403, "host_denied"),
]


@pytest.mark.parametrize("target,status,code", REFUSED)
def test_refused_and_never_dialed(shared, mark, target, status, code):
    r = refused(ask(shared.port, connect_head(target)))
    assert (r.status, r.code) == (status, code)
    assert not mark.dialed()
    line = eventually(lambda: [x for x in shared.log("egress-refused") if x["event.reason"] == code])
    assert line


def test_rebinding_name_is_never_dialed(shared, mark):
    """Public on the first question, private on the second: asked again and again until it has turned."""
    name = "d%d.rebind.hostile.example" % os.getpid()
    codes = set()
    for _ in range(8):
        r = ask_connect(shared.port, name + ":443")
        codes.add(r.status if r.status == 200 else r.code)
        time.sleep(0.25)
    assert codes == {200, "address_private"}
    assert {a for a, _ in mark.dialed()} == {places.WEB4}


def test_thousand_tunnels(guard, load, mark):
    """1000 tunnels at once, 1 MiB each way through each, every byte checked at both ends and counted in the log."""
    g = guard(config={"timeouts": {"connect": "10s"}})
    n = 1 << 20
    report = load(g.port, "bulk.example.org:443", tunnels=1000, up=n, down=n, barrier=True, timeout=90)
    assert report["ok"] == 1000 and report["max_open"] == 1000 and report["down"] == 1000 * n
    seen = mark.tunnels(10)
    assert len(seen) == 1000 and {s["end"] for s in seen} <= {"done", "eof"}
    assert sum(s["received"] for s in seen) == report["up"] and sum(s["sent"] for s in seen) == report["down"]
    records = g.wait_log(1000, "egress-ended", timeout=20)
    assert sum(r["source.bytes"] for r in records) == report["up"]
    assert sum(r["destination.bytes"] for r in records) == report["down"]
    by_origin = sorted((s["received"], s["sent"]) for s in seen)
    assert sorted((r["source.bytes"], r["destination.bytes"]) for r in records) == by_origin
    assert g.metric("egress_guard_sent_bytes_total") == report["up"]
    assert g.metric("egress_guard_received_bytes_total") == report["down"]


def test_many_tunnels_leave_nothing(guard, load):
    """20 000 tunnels one after another (200 000 with LONG=1): descriptors and memory are where they were."""
    g = guard(config={"log": {"level": "error"}})
    load(g.port, "bulk.example.org:443", tunnels=2000, concurrent=8, up=100, down=200)
    g.quiet()
    memory, files = g.rss(), g.fds()
    n = 200000 if LONG else 20000
    report = load(g.port, "bulk.example.org:443", tunnels=n, concurrent=8, up=100, down=200, timeout=600)
    assert report["ok"] == n
    g.quiet()
    assert eventually(lambda: g.fds() <= files), (files, g.fds())
    assert g.rss() - memory < (1 << 20) + SLACK, (memory, g.rss())
    assert not g.sockets("CLOSE-WAIT")


def test_reload_while_it_works(guard, load):
    """SIGHUP with a good and a broken policy under load: all tunnels end well, and the guard says which was which."""
    g = guard()
    running = subprocess.Popen([g.lab.bin + "/loader", "--proxy", "127.0.0.1:%d" % g.port, "--target", "bulk.example.org:443",
                                "--tunnels", "3000", "--concurrent", "100", "--up", "20000", "--down", "20000"],
                               stdout=subprocess.PIPE, text=True)
    for i in range(10):
        g.reload(OPEN if i % 2 else "version: 1\nroles: {agent: {allow: [\n", ok=bool(i % 2))
        time.sleep(0.02)
    report = json.loads(running.communicate(timeout=60)[0])
    assert report["ok"] == 3000 and report["failed"] == 0, report
    assert g.metric('egress_guard_policy_reloads_total{outcome="success"}') == 5
    assert g.metric('egress_guard_policy_reloads_total{outcome="failure"}') == 5
    assert len(eventually(lambda: (lambda e: e if len(e) == 5 else None)(g.events("policy-refused"))) or []) == 5


def test_a_person_sees_why(shared):
    """What curl prints of a refusal names the cause."""
    done = curl(shared, "-i", "https://169.254.169.254/")
    assert done.returncode == 56 and b"403" in done.stderr
    assert b"egress refused: 169.254.169.254" in done.stdout and b"address_link_local" in done.stdout
    done = curl(shared, "http://denied.example/")
    assert done.returncode == 0 and b"denied.example" in done.stdout and b"host_denied" in done.stdout


def test_ends_well(guard):
    g = guard()
    curl(g, "http://http.example.org/size/10")
    g.signal(signal.SIGTERM)
    g.process.wait(5)
    g.check_end()
