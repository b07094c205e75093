"""The lab itself: its watchers see what they are there to see, so that their silence means something."""
import http.client
import ipaddress
import os
import socket
import ssl
import subprocess
import time

import pytest

import places
from lab import eventually
from wire import Client, elapsed, pattern


def dial(address, port, timeout=0.5):
    try:
        socket.create_connection((address, port), timeout).close()
        return True
    except OSError:
        return False


SENT = [a for a, _ in places.FORBIDDEN if not ipaddress.ip_address(a).is_multicast and a not in
        ("255.255.255.255", "::", "0.0.0.0") and not a.lower().startswith(("fe8", "feb"))]


@pytest.mark.parametrize("address", SENT)
def test_a_forbidden_dial_is_seen(lab, mark, address):
    dial(address, 443)
    mapped = ipaddress.ip_address(address).version == 6 and ipaddress.ip_address(address).ipv4_mapped
    assert (mapped or ipaddress.ip_address(address), 443) in [(ipaddress.ip_address(a), p) for a, p in mark.dialed()]
    with pytest.raises(AssertionError):
        mark.silent()


def test_the_unspecified_address_is_loopback(lab, mark):
    dial("0.0.0.0", 80)
    assert mark.dialed() == [("127.0.0.1", 80)]


@pytest.mark.parametrize("address", ["10.0.0.5", "169.254.169.254", "100.100.100.200", "168.63.129.16", "fd00:ec2::254",
                                     "64:ff9b::a9fe:a9fe"])
def test_a_forbidden_dial_would_succeed(lab, mark, address):
    for port in places.WATCHED_PORTS:
        assert dial(address, port)
    assert [t["behaviour"] for t in mark.tunnels()] == ["watch"] * 3


def test_a_query_is_seen(lab, mark):
    socket.getaddrinfo("seen.ok.hostile.example", 80, proto=socket.IPPROTO_TCP)
    assert set(mark.queries()) == {"seen.ok.hostile.example"}
    assert {q["type"] for q in mark.served_queries()} == {"A", "AAAA"}
    with pytest.raises(AssertionError):
        mark.silent()


def test_a_mark_is_silent_when_nothing_happens(mark):
    mark.silent()


def test_dead_ends(lab):
    start = time.monotonic()
    assert not dial(places.BLACKHOLE4, 443, 0.6) and elapsed(start) > 0.5
    for address in (places.REFUSED4, places.REFUSED6, "93.184.216.123"):
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection((address, 443), 2)
    with pytest.raises(OSError):
        socket.create_connection((places.UNREACHABLE4, 443), 2)


def test_nothing_leads_out(lab):
    """All routes of the guard's namespace go to the world, and the world has no other interface."""
    links = subprocess.run(["ip", "-br", "link"], capture_output=True, text=True).stdout.splitlines()
    assert sorted(line.split()[0].split("@")[0] for line in links) == ["guard0", "lo"]


def test_origin_counts_and_compares(lab, mark):
    with Client(80, host=places.BULK4) as c:
        c.send(b"up=10 down=20 tag=7\n" + pattern(10))
        assert c.rest() == pattern(20)
    with Client(80, host=places.BULK4) as c:
        c.send(b"up=10 down=20 tag=8\n" + b"x" * 10)
        with pytest.raises(ConnectionResetError):
            c.rest()
    good, bad = mark.tunnels()
    assert (good["received"], good["sent"], good["tag"], good["end"]) == (30, 20, 7, "done")
    assert (bad["tag"], bad["end"]) == (8, "mismatch")


@pytest.mark.parametrize("line", [b"down=20x", b"down=", b"down", b"down=-1", b"down=18446744073709551616", b"rate=4294967296",
                                  b"eof=1", b"donw=20", b"down=20\0up=0"])
def test_bulk_obeys_no_line_that_it_does_not_know(lab, mark, line):
    with Client(80, host=places.BULK4) as c:
        c.send(line + b"\n")
        with pytest.raises(ConnectionResetError):
            c.rest()
    assert [(t["sent"], t["end"]) for t in mark.tunnels()] == [(0, "mismatch")]


def test_loader_notices_a_wrong_byte(lab, load):
    done = subprocess.run([lab.bin + "/loader", "--target", places.ECHO4 + ":80", "--up", "5", "--down", "5", "--timeout", "3"],
                          capture_output=True, text=True)
    assert done.returncode == 1 and '"failed":1' in done.stdout


def test_web_counts_what_is_on_the_wire(lab, mark):
    context = ssl.create_default_context(cafile=lab.ca)
    with socket.create_connection((places.WEB4, 443), 5) as raw, \
            context.wrap_socket(raw, server_hostname="tls.example.org") as tls:
        tls.sendall(b"GET /size/1000 HTTP/1.1\r\nHost: tls.example.org\r\nConnection: close\r\n\r\n")
        response = http.client.HTTPResponse(tls)
        response.begin()
        assert response.read() == pattern(1000)
    seen = mark.web_connections(2)
    assert len(seen) == 1 and seen[0]["tls"] and seen[0]["sent"] > 1000 and seen[0]["received"] > 300


def test_files_are_served(lab):
    with open(os.path.join(lab.files, "hello.txt"), "w") as f:
        f.write("hello\n")
    c = http.client.HTTPConnection(places.WEB4, 80, timeout=5)
    c.request("GET", "/hello.txt", headers={"Host": "files.example.org"})
    r = c.getresponse()
    assert (r.status, r.read()) == (200, b"hello\n")


def test_everything_still_runs(lab):
    assert eventually(lambda: os.path.exists(lab.dir + "/world.ready"))
    lab.mark()  # asks each program
