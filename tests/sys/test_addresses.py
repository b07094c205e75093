"""What is not public is never dialed: as a literal, as an answer, in every spelling, from the moment it exists."""
import ipaddress
import itertools
import re
import subprocess

import pytest

import places
from guard import OPEN
from lab import eventually
from wire import ask_connect, connect_head, get, open_tunnel, refused, ask, request

serial = itertools.count()


def literal(address):
    return "[%s]" % address if ":" in address else address


def set_name(*addresses):
    """A name nobody asked before that resolves to these."""
    labels = [ipaddress.ip_address(a).packed.hex() for a in addresses]
    return "n%d.%s.set.hostile.example" % (next(serial), ".".join(labels))


@pytest.mark.parametrize("address,code", places.FORBIDDEN)
def test_literal(shared, mark, address, code):
    for port in (80, 443):
        r = ask_connect(shared.port, "%s:%d" % (literal(address), port))
        assert (r.status, r.code) == (403, code)
    r = get(shared.port, "http://%s/" % literal(address))
    assert (r.status, r.code) == (403, code)
    mark.silent()


@pytest.mark.parametrize("address,code", places.FORBIDDEN)
def test_answer(shared, mark, address, code):
    name = set_name(address)
    r = ask_connect(shared.port, name + ":443")
    assert (r.status, r.code) == (403, code)
    name = set_name(address)
    r = get(shared.port, "http://%s/" % name)
    assert (r.status, r.code) == (403, code)
    assert not mark.dialed()


@pytest.mark.parametrize("address,code", places.FORBIDDEN[2:40:4])
@pytest.mark.parametrize("public", [places.WEB4, places.WEB6])
def test_answer_beside_a_public_address(shared, mark, address, code, public):
    """One refused address refuses the whole answer, whatever stands beside it and in whatever order."""
    for addresses in ((public, address), (address, public)):
        r = ask_connect(shared.port, set_name(*addresses) + ":443")
        assert (r.status, r.code) == (403, code)
    assert not mark.dialed()


def test_refusal_names_the_address(shared):
    r = ask_connect(shared.port, "169.254.169.254:80")
    assert re.fullmatch(r"egress refused: 169\.254\.169\.254 is [a-z -]*link-local[a-z ]* \(address_link_local\)", r.reason), r.reason
    assert "destination_ip_prohibited" in r.get("Proxy-Status")
    assert eventually(lambda: shared.log("egress-refused", "169.254.169.254"))
    record = shared.log("egress-refused", "169.254.169.254")[-1]
    assert record["event.reason"] == "address_link_local" and record["destination.ip"] == "169.254.169.254"


@pytest.mark.parametrize("address", [places.OWN4, places.OWN6])
def test_own_public_address(shared, mark, address):
    for target in (literal(address) + ":443", set_name(address) + ":80"):
        r = ask_connect(shared.port, target)
        assert (r.status, r.code) == (403, "address_own")
    assert not mark.dialed()


@pytest.mark.parametrize("address", [places.GUARD4, places.GUARD6])
def test_own_private_address(shared, mark, address):
    r = ask_connect(shared.port, literal(address) + ":443")
    assert r.status == 403 and r.code in ("address_own", "address_private")
    assert not mark.dialed()


@pytest.mark.parametrize("address", ["93.184.216.77", "2606:2800:220:1::77"])
def test_own_address_that_came_later(shared, mark, address):
    """Interface addresses are followed: refused from the moment the interface has it, allowed again afterwards."""
    name = set_name(address)
    size = "/128" if ":" in address else "/32"
    assert ask_connect(shared.port, literal(address) + ":443").code == "connect_refused"
    subprocess.run(["ip", "addr", "add", address + size, "dev", "lo"], check=True)
    try:
        later = shared.lab.mark()
        assert ask_connect(shared.port, literal(address) + ":443").code == "address_own"
        assert ask_connect(shared.port, name + ":443").code == "address_own"
        assert not later.dialed()
    finally:
        subprocess.run(["ip", "addr", "del", address + size, "dev", "lo"], check=True)
    assert ask_connect(shared.port, literal(address) + ":443").code == "connect_refused"


@pytest.mark.parametrize("address", ["172.15.255.255", "172.32.0.1", places.WEB4, places.WEB6, places.LITERAL6])
def test_public_neighbours(shared, mark, address):
    for target in (literal(address), set_name(address)):
        open_tunnel(shared.port, target + ":443").close()
    assert {a for a, _ in mark.dialed()} == {address}


def test_literal_is_not_looked_up(shared, mark):
    open_tunnel(shared.port, places.WEB4 + ":443").close()
    open_tunnel(shared.port, "[%s]:443" % places.WEB6).close()
    assert not mark.queries()
    assert not [q for q in mark.served_queries()]


def test_nat64_is_judged_by_what_it_hides(shared, mark):
    """64:ff9b::/96 around a public address may be dialed (nobody answers there)."""
    r = ask_connect(shared.port, "[64:ff9b::5db8:d822]:443")
    assert r.code == "connect_refused"
    assert {a for a, _ in mark.dialed()} == {"64:ff9b::5db8:d822"}


@pytest.mark.parametrize("port", [0, 1, 22, 25, 53, 79, 81, 442, 444, 3128, 8080, 8443, 65535])
def test_ports(shared, mark, port):
    for host in ("http.example.org", places.WEB4, "x%d.ok.hostile.example" % port):
        raw = ask(shared.port, connect_head("%s:%d" % (host, port)))
        r = refused(raw)
        assert (r.status, r.code) == (403, "port_not_allowed") if port else r.code in ("bad_target", "port_not_allowed")
        if port:
            r = refused(ask(shared.port, request("http://%s:%d/" % (host, port))))
            assert (r.status, r.code) == (403, "port_not_allowed")
    mark.silent()


def test_port_80_and_443_both_ways(shared):
    open_tunnel(shared.port, "http.example.org:80").close()
    open_tunnel(shared.port, "tls.example.org:443").close()
    assert get(shared.port, "http://http.example.org:80/").status == 200


def test_policy_refuses_addresses(guard, mark):
    g = guard(policy=OPEN + """refuse:
  addresses: [93.184.216.35, "2606:2800:220:1::34/128"]
""")
    assert ask_connect(g.port, places.ECHO4 + ":443").code == "address_denied"
    assert ask_connect(g.port, "echo.example.org:443").code == "address_denied"
    assert ask_connect(g.port, "v6.example.org:80").code == "address_denied"
    assert ask_connect(g.port, "both.example.org:80").code == "address_denied"
    assert not mark.dialed()
    open_tunnel(g.port, "http.example.org:80").close()


def test_literals_need_an_address_rule(guard, mark):
    g = guard(policy="""version: 1
roles:
  agent:
    allow: [http.example.org]
    unmatched: allow
""")
    assert ask_connect(g.port, places.WEB4 + ":443").code == "host_not_allowed"
    assert ask_connect(g.port, "[%s]:443" % places.WEB6).code == "host_not_allowed"
    mark.silent()
    open_tunnel(g.port, "http.example.org:443").close()
