"""Names: looked up only when allowed, once, as they stand; and every answer is judged, however it comes."""
import concurrent.futures
import itertools
import time

import pytest

import places
from guard import OPEN
from lab import eventually
from wire import Client, ask, ask_connect, connect_head, elapsed, get, open_tunnel, refused, request

serial = itertools.count()
PRIVATE = {places.WEB4, places.WEB6, places.ECHO4, places.BULK4, places.REFUSED4}  # what answers may lead to


def fresh(behaviour):
    return "t%d.%s.hostile.example" % (next(serial), behaviour)


def at_once(jobs, workers=50):
    """Runs callables side by side and gives their results."""
    with concurrent.futures.ThreadPoolExecutor(workers) as pool:
        return [f.result() for f in [pool.submit(j) for j in jobs]]


# behaviour of the name server -> "open" or the codes it may be refused with
ANSWERS = [
    ("ok", "open"),
    ("private", "address_private"),
    ("private6", "address_metadata"),
    ("mixed", "address_private"),
    ("mixed6", "address_metadata"),
    ("mapped", "address_private"),
    ("failprivate6", "address_private"),
    ("closedmixed", "address_private"),
    ("slowprivate6-5", "address_metadata"),
    ("cname", "open"),
    ("cnameprivate", "address_private"),
    ("cname20", "open dns_failed"),
    ("cnamedenied", "open"),  # name rules speak of the name that was asked for
    ("cnamelocal", "open"),
    ("loop", "dns_failed dns_not_found"),
    ("ttl0", "open"),
    ("ttlmax", "open"),
    ("ttlneg", "open"),
    ("ttlmixed", "open"),
    ("nxdomain", "dns_not_found"),
    ("nodata", "dns_not_found"),
    ("servfail", "dns_failed"),
    ("refused", "dns_failed"),
    ("notimp", "dns_failed"),
    ("silent", "dns_timeout"),
    ("silent4", "open"),
    ("silent6", "open"),
    ("fail6", "open"),
    ("fail4", "open"),
    ("nx6", "open"),
    ("slow-300", "open"),
    ("slow6", "open"),
    ("garbage", "dns_failed dns_timeout"),
    ("short", "dns_failed dns_timeout"),
    ("empty", "dns_failed dns_timeout"),
    ("headonly", "dns_failed dns_timeout"),
    ("wrongid", "dns_timeout"),
    ("wrongquestion", "dns_timeout dns_failed"),
    ("notours", "open"),
    ("forged", "open"),
    ("othername", "dns_not_found dns_failed"),
    ("tc", "open"),
    ("tcslow", "open"),
    ("tcmixed", "address_private"),
    ("many-40", "dns_failed"),
    ("many-8", "connect_refused"),
    ("pointerself", "dns_failed dns_timeout"),
    ("pointerpast", "dns_failed dns_timeout"),
    ("pointerloop", "dns_failed dns_timeout"),
    ("shortrdata", "dns_failed dns_not_found dns_timeout"),
    ("longrdata", "dns_failed dns_not_found dns_timeout"),
    ("chaos", "dns_failed dns_not_found dns_timeout"),
    ("hostilebytes", "open dns_failed"),
]
# A name server that breaks its TCP connections breaks them for every query on them: apart from the others.
BROKEN_TCP = [
    ("tcreset", "dns_failed dns_timeout"),
    ("tcclose", "dns_failed dns_timeout"),
    ("tchalf", "dns_failed dns_timeout"),
    ("tcfin", "open dns_failed"),
    ("tcsilent", "dns_timeout dns_failed"),
]


@pytest.fixture(scope="module")
def outcomes(shared):
    """All of the table at once: {behaviour: (Response, seconds)}. The slow ones must not hold up the others."""
    def one(behaviour):
        start = time.monotonic()
        r = ask_connect(shared.port, fresh(behaviour) + ":80")
        return behaviour, (r, elapsed(start))
    before = shared.lab.mark()
    results = dict(at_once([lambda b=b: one(b) for b, _ in ANSWERS], len(ANSWERS)))
    results.update(at_once([lambda b=b: one(b) for b, _ in BROKEN_TCP]))
    return results, before.dialed()


@pytest.mark.parametrize("behaviour,expected", ANSWERS + BROKEN_TCP)
def test_answer(outcomes, behaviour, expected):
    r, seconds = outcomes[0][behaviour]
    got = "open" if r.status == 200 else r.code
    assert got in expected.split(), r
    assert r.status == {"open": 200, "dns_not_found": 502, "dns_failed": 502, "dns_timeout": 504}.get(got, r.status)
    assert seconds < 3.5


def test_answers_led_to_public_addresses_only(outcomes):
    allowed = PRIVATE | {"93.184.217.%d" % i for i in range(1, 9)}
    assert {a for a, _ in outcomes[1]} <= allowed


def test_hostile_bytes_stay_in_the_log(outcomes, shared):
    """Whatever was in those answers, the log is one JSON object a line (the reader fails on anything else)."""
    assert shared.lines()


def test_rebinding(shared, mark):
    name = fresh("rebind")
    assert ask_connect(shared.port, name + ":80").status == 200
    second = ask_connect(shared.port, name + ":80")
    assert second.status == 200 or second.code == "address_private"
    time.sleep(1.3)  # a TTL of 0 is kept for a second
    assert ask_connect(shared.port, name + ":80").code == "address_private"
    assert {a for a, _ in mark.dialed()} == {places.WEB4}


def test_rebinding_on_a_kept_connection(shared, mark):
    name = fresh("rebind")
    with Client(shared.port) as c:
        c.send(request("http://%s/size/1" % name))
        assert c.response().status == 200
        time.sleep(1.3)
        c.send(request("http://%s/size/2" % name))  # the kept origin connection was judged: it may serve
        r = c.response()
        assert r.status == 200 or r.code == "address_private"
    assert get(shared.port, "http://%s/" % name).code == "address_private"
    assert {a for a, _ in mark.dialed()} == {places.WEB4}


def test_alternating_answers(guard, mark):
    """A zone that says public and loopback in turn; nothing reaches loopback, whoever asks when."""
    g = guard()
    names = [fresh("alternate") for _ in range(10)]
    for _ in range(3):
        results = at_once([lambda n=n: ask_connect(g.port, n + ":80") for n in names * 6])
        assert {r.status for r in results} <= {200, 403}
        assert {r.code for r in results if r.status == 403} <= {"address_loopback"}
        time.sleep(1.05)
    assert {a for a, _ in mark.dialed()} == {places.WEB4}


def test_public_names_that_embed_an_address(shared, mark):
    assert ask_connect(shared.port, "127.0.0.1.nip.example.org:443").code == "address_loopback"
    assert ask_connect(shared.port, "169-254-169-254.sslip.example.org:80").code == "address_link_local"
    assert not mark.dialed()


@pytest.mark.parametrize("name", [
    "localhost", "LOCALHOST", "localhost.", "foo.localhost", "foo.bar.LocalHost", "printer.local", "local", "svc.internal",
    "metadata.google.internal", "METADATA.google.internal.", "x.onion", "router.home.arpa", "foo", "foo.", "metadata",
    "instance-data", "kubernetes", "kubernetes.default.svc",
])
def test_special_names(shared, mark, name):
    for port in (80, 443):
        r = ask_connect(shared.port, "%s:%d" % (name, port))
        assert (r.status, r.code) == (403, "name_special")
    r = get(shared.port, "http://%s/" % name)
    assert (r.status, r.code) == (403, "name_special")
    mark.silent()


L63 = "a" * 63
GOOD_NAMES = [L63 + ".wild.example.org", "_dmarc.wild.example.org", "1a.wild.example.org", "xn--bcher-kva.wild.example.org",
              ".".join([L63, L63, L63, "a" * (253 - 3 * 64 - len(".wild.example.org")), "wild.example.org"]),
              "UPPER.wild.Example.ORG", "dot.wild.example.org."]
BAD_NAMES = ["a" * 64 + ".wild.example.org", "x..wild.example.org", ".example.org", ".", "..", "-", "a b.example.org",
             "example.org@x.example.org", "fe80::1%lo", "[127.0.0.1]", "a\\.b.example.org", "a\\046b.example.org", "*.example.org",
             ".".join([L63, L63, L63, "a" * (254 - 3 * 64 - len(".wild.example.org")), "wild.example.org"]),
             ".".join(["a"] * 200), "example.org..", "b\u00fccher.example.org", "a" * 5000 + ".example.org", "ex'ample.org", "<b>.example.org",
             "1.2.3", "1.2.3.4.", "0x7f.1", "127.1", "1.2.3.04", "a.b.0x10", "example.123"]


@pytest.mark.parametrize("name", GOOD_NAMES, ids=lambda n: n[:40])
def test_good_names(shared, mark, name):
    open_tunnel(shared.port, name + ":80").close()
    asked = {q.rstrip(".") for q in mark.queries()}
    assert asked <= {name.rstrip(".").lower()}, asked


@pytest.mark.parametrize("name", BAD_NAMES, ids=lambda n: n[:40])
def test_bad_names(shared, mark, name):
    r = refused(ask(shared.port, connect_head(name.encode() + b":443")))
    assert r.status == 400 and r.code in ("bad_target", "bad_request"), r
    mark.silent()


def test_denied_names_are_not_looked_up(shared, mark):
    for name in ("denied.example", "DENIED.example.", "a.denied.example", "a.b.c.denied.example"):
        r = ask_connect(shared.port, name + ":443")
        assert (r.status, r.code) == (403, "host_denied")
        assert get(shared.port, "http://%s/" % name).code == "host_denied"
    mark.silent()


def test_unlisted_names_are_not_looked_up(guard, mark):
    g = guard(policy="""version: 1
roles:
  agent:
    allow: [http.example.org, "*.wild.example.org"]
""")
    for name in ("echo.example.org", "example.org", "xhttp.example.org", "http.example.org.evil.example", "wild.example.org"):
        r = ask_connect(g.port, name + ":80")
        assert (r.status, r.code) == (403, "host_not_allowed"), name
    mark.silent()
    for name in ("http.example.org", "HTTP.Example.Org.", "a.wild.example.org", "a.b.wild.example.org"):
        open_tunnel(g.port, name + ":80").close()


def test_environment_and_search_list_change_nothing(guard, mark, tmp_path):
    (tmp_path / "aliases").write_text("aliased http.example.org\nx.nxdomain http.example.org\n")
    g = guard(env={"HOSTALIASES": str(tmp_path / "aliases"), "LOCALDOMAIN": "example.org corp.example",
                   "RES_OPTIONS": "ndots:5 attempts:9", "CARES_HOSTS": str(tmp_path / "aliases")})
    assert ask_connect(g.port, "aliased:80").code == "name_special"
    name = fresh("nxdomain")
    assert ask_connect(g.port, name + ":80").code == "dns_not_found"
    assert ask_connect(g.port, "http.nothere.example:80").code == "dns_not_found"
    assert set(mark.queries()) == {name, "http.nothere.example"}


def test_hosts_file_is_not_read(guard, mark, lab):
    """/etc/hosts of the lab names localhost only; a name in it would be asked from DNS all the same."""
    with open("/etc/hosts", "a") as f:
        f.write("%s in-hosts.nxdomain.hostile.example\n" % places.WEB4)
    g = guard()
    assert ask_connect(g.port, "in-hosts.nxdomain.hostile.example:80").code == "dns_not_found"
    assert not mark.dialed()


def test_one_query_however_many_wait(guard, mark):
    g = guard(config={"workers": 1})
    name = fresh("slow-150")
    results = at_once([lambda: ask_connect(g.port, name + ":80") for _ in range(50)])
    assert {r.status for r in results} == {200}
    served = [(q["name"], q["type"]) for q in mark.served_queries()]
    assert sorted(served) == [(name, "A"), (name, "AAAA")]


def test_answers_are_cached(guard, mark):
    g = guard(config={"workers": 1})
    good, bad = fresh("ok"), fresh("nxdomain")
    for _ in range(5):
        assert ask_connect(g.port, good + ":80").status == 200
        assert ask_connect(g.port, bad + ":80").code == "dns_not_found"
    counts = [q["name"] for q in mark.served_queries()]
    assert counts.count(good) == 2 and counts.count(bad) == 2  # A and AAAA


def test_cached_answers_are_judged_again(guard, mark):
    """Verdicts are never cached: a reload that refuses the address refuses the cached answer."""
    g = guard()
    name = fresh("ok")
    assert ask_connect(g.port, name + ":80").status == 200
    g.reload(OPEN + "refuse:\n  addresses: [%s]\n" % places.WEB4)
    assert ask_connect(g.port, name + ":80").code == "address_denied"


def test_slow_name_holds_up_nobody(shared):
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        slow = pool.submit(ask_connect, shared.port, fresh("slow-900") + ":80")
        time.sleep(0.05)
        start = time.monotonic()
        assert ask_connect(shared.port, fresh("ok") + ":80").status == 200
        assert elapsed(start) < 0.5
        slow.result()


def test_clients_that_leave_during_the_lookup(guard):
    g = guard()
    base = g.fds()

    def one(i):
        c = Client(g.port)
        c.send(connect_head(fresh("slow-250" if i % 3 else "tcslow") + ":80"))
        if i % 2:
            c.reset()
        else:
            c.close()
    for _ in range(3):
        at_once([lambda i=i: one(i) for i in range(100)])
    assert ask_connect(g.port, fresh("ok") + ":80").status == 200
    g.quiet()
    assert eventually(lambda: g.fds() <= base + 8), (base, g.fds())


def test_dead_name_server(guard):
    g = guard(config={"resolver": {"servers": [places.DEAD_DNS4], "timeout": "300ms", "tries": 2}})
    base = g.fds()
    start = time.monotonic()
    jobs = [lambda: ask_connect(g.port, fresh("ok") + ":80") for _ in range(150)]
    jobs.append(lambda: timed_tunnel(g))
    results = at_once(jobs, 151)
    assert {r.code for r in results[:-1]} == {"dns_timeout"} and {r.status for r in results[:-1]} == {504}
    assert elapsed(start) < 6
    assert results[-1] < 1
    g.quiet()
    assert eventually(lambda: g.fds() <= base + 4), (base, g.fds())


def timed_tunnel(g):
    """A literal needs no lookup: it must not feel the dead server."""
    start = time.monotonic()
    open_tunnel(g.port, places.WEB4 + ":80").close()
    return elapsed(start)


def test_refusing_name_server(guard):
    g = guard(config={"resolver": {"servers": [places.REFUSED4], "timeout": "300ms", "tries": 2}})
    r = ask_connect(g.port, fresh("ok") + ":80")
    assert r.code in ("dns_failed", "dns_timeout")


def test_second_name_server_serves(guard):
    g = guard(config={"resolver": {"servers": [places.DEAD_DNS4, places.DNS4], "timeout": "200ms", "tries": 2}})
    assert ask_connect(g.port, fresh("ok") + ":80").status == 200


def test_name_server_over_ipv6(guard):
    g = guard(config={"resolver": {"servers": ["[%s]:53" % places.DNS6]}})
    assert ask_connect(g.port, fresh("ok") + ":80").status == 200
    assert ask_connect(g.port, "http.example.org:80").status == 200


def test_tcp_refused_fails_this_name_only(guard):
    g = guard(config={"resolver": {"servers": [places.UDP_DNS4], "timeout": "300ms"}})
    assert ask_connect(g.port, fresh("tc") + ":80").code in ("dns_failed", "dns_timeout")
    assert ask_connect(g.port, fresh("ok") + ":80").status == 200


def test_broken_tcp_leaves_no_trace(shared, outcomes):
    assert ask_connect(shared.port, fresh("tc") + ":80").status == 200


def test_many_lookups_over_tcp(guard):
    g = guard(config={"timeouts": {"connect": "4s"}, "resolver": {"timeout": "2s"}})
    results = at_once([lambda: ask_connect(g.port, fresh("tcslow") + ":80") for _ in range(60)], 60)
    assert {r.status for r in results} == {200}


@pytest.mark.parametrize("name,most", [("deadv6.example.org", 1.5), ("refusedv6.example.org", 0.8), ("v6.example.org", 0.8),
                                       ("both.example.org", 0.8)])
def test_families(shared, mark, name, most):
    """A dead IPv6 address costs a short delay, not the connection."""
    start = time.monotonic()
    open_tunnel(shared.port, name + ":80").close()
    assert elapsed(start) < most


def test_own_name_is_an_own_address(shared, mark):
    assert ask_connect(shared.port, "own.example.org:80").code == "address_own"
    assert not mark.dialed()
