"""names.py SOCKET - the scripted name server: zones that behave as a hostile or broken one would.

Names under hostile.example carry their behaviour in the label before it: ANYTHING.BEHAVIOUR[-ARGUMENT].hostile.example,
so that each test asks for names nobody asked before. State (how often a name was asked) is kept by the whole name.
All other names are passed to dnsmasq unchanged. The table BEHAVIOURS below is the list.

Control: {"cmd": "mark"} -> {"mark"}; {"cmd": "since", "mark": N} -> {"mark", "queries": [{proto, name, type}...]}.
"""
import asyncio
import os
import random
import socket
import struct
import sys

sys.path.insert(0, os.path.dirname(os.path.realpath(__file__)))
import control  # noqa: E402
import places  # noqa: E402
from dnslib import A, AAAA, CNAME, DNSRecord, QTYPE, RR  # noqa: E402

PUBLIC, PUBLIC6 = places.WEB4, places.WEB6
PRIVATE, PRIVATE6 = "10.0.0.5", "fd00:ec2::254"
ZONE = "hostile.example"
NOERROR, SERVFAIL, NXDOMAIN, NOTIMP, REFUSED = 0, 2, 3, 4, 5

queries = []
asked = {}  # (name, type) -> how often


class Query:
    def __init__(self, packet, proto):
        self.packet, self.proto = packet, proto
        self.record = DNSRecord.parse(packet)
        self.name = str(self.record.q.qname).rstrip(".").lower()
        self.type = QTYPE.get(self.record.q.qtype)
        labels = self.name.split(".")
        at = len(labels) - 3
        self.behaviour, _, self.argument = labels[at].partition("-") if at >= 0 else ("", "", "")
        self.labels = labels[:at]
        self.turn = 0  # how often this name and type were asked before

    def reply(self, addresses=(), rcode=NOERROR, ttl=60, owner=None, chain=()):
        """A reply with the addresses of the asked family; `chain` is a list of CNAME targets before them."""
        r = self.record.reply()
        r.header.rcode = rcode
        owner = owner or self.name
        for target in chain:
            r.add_answer(RR(owner, QTYPE.CNAME, rdata=CNAME(target), ttl=ttl))
            owner = target
        for a in addresses:
            if (":" in a) == (self.type == "AAAA") and self.type in ("A", "AAAA"):
                six = ":" in a  # as bytes: dnslib does not read ::ffff:1.2.3.4
                rdata, kind = (AAAA(tuple(socket.inet_pton(socket.AF_INET6, a))), QTYPE.AAAA) if six else (A(a), QTYPE.A)
                r.add_answer(RR(owner, kind, rdata=rdata, ttl=ttl))
        return r

    def truncated(self):
        r = self.record.reply()
        r.header.tc = 1
        return r


class Reply(Exception):
    pass


def fixed(*addresses, **more):
    return lambda q: q.reply(addresses, **more)


def by_turn(first, then):
    return lambda q: q.reply(first if q.turn == 0 else then, ttl=0)


def alternating(q):
    return q.reply([PUBLIC] if q.turn % 2 == 0 else ["127.0.0.1"], ttl=0)


def listed(q):
    """ANY.HEX.HEX.set.hostile.example: 8 hex digits an IPv4 address, 32 an IPv6 one."""
    found = []
    for label in q.labels:
        if len(label) == 8 and label.isalnum() and all(c in "0123456789abcdef" for c in label):
            found.append(socket.inet_ntop(socket.AF_INET, bytes.fromhex(label)))
        elif len(label) == 32:
            found.append(socket.inet_ntop(socket.AF_INET6, bytes.fromhex(label)))
    return q.reply(found)


def split(a, aaaa):
    """Different behaviours for the two families."""
    return lambda q: aaaa(q) if q.type == "AAAA" else a(q)


def silent(q):
    return None


def later(ms_argument, then):
    async def run(q):
        await asyncio.sleep(int(q.argument or ms_argument) / 1000)
        return then(q)
    return run


def chain(n, *addresses, ttl=60):
    return lambda q: q.reply(addresses, chain=["c%d.%s" % (i, q.name) for i in range(int(q.argument or n))], ttl=ttl)


def loop(q):
    r = q.record.reply()
    other = "loop2." + q.name
    r.add_answer(RR(q.name, QTYPE.CNAME, rdata=CNAME(other), ttl=60))
    r.add_answer(RR(other, QTYPE.CNAME, rdata=CNAME(q.name), ttl=60))
    return r


def mixed_ttl(q):
    r = q.reply([PUBLIC, places.ECHO4], ttl=60)
    for rr, ttl in zip(r.rr, (0, 2 ** 31 - 1)):
        rr.ttl = ttl
    return r


def wrong_id(q):
    r = q.reply([PUBLIC])
    r.header.id ^= 0x5555
    return r


def wrong_question(q):
    r = DNSRecord.question("other.hostile.example", q.type).reply()
    r.header.id = q.record.header.id
    r.add_answer(RR("other.hostile.example", QTYPE.A, rdata=A(PUBLIC), ttl=60))
    return r


def over_tcp(udp, tcp):
    return lambda q: (udp if q.proto == "udp" else tcp)(q)


def head(q, answers, flags=0x8180):
    """The start of a hand-made reply: header and question as asked."""
    question = q.packet[12:]
    end = question.index(b"\0") + 5
    return struct.pack("!HHHHHH", q.record.header.id, flags, 1, answers, 0, 0) + question[:end]


def address_record(rdata=b"\x5d\xb8\xd8\x22", kind=1, klass=1, owner=b"\xc0\x0c"):
    return owner + struct.pack("!HHIH", kind, klass, 60, len(rdata)) + rdata


def pointer(kind):
    """An answer whose owner name is a chain of compression pointers."""
    def make(q):
        start = head(q, 1)
        at = len(start)
        if kind == "self":
            owner = struct.pack("!H", 0xC000 | at)
        elif kind == "past":
            owner = struct.pack("!H", 0xFFFF)
        else:  # a long chain, each pointing to the next, the last to the first
            n = 200
            owner = b"".join(struct.pack("!H", 0xC000 | at + 2 * ((i + 1) % n)) for i in range(n))
        return start + address_record(owner=owner)
    return make


def hostile_bytes(q):
    """CNAME to a name with CR LF, NUL, a quote, ESC and markup, which has a public address."""
    label = b"a\r\nX: y\0\"\x1b[31m<script>"
    target = bytes([len(label)]) + label + b"\x07hostile\x07example\0"
    start = head(q, 2)
    cname = b"\xc0\x0c" + struct.pack("!HHIH", 5, 1, 60, len(target)) + target
    where = struct.pack("!H", 0xC000 | len(start) + 12)
    rdata = socket.inet_aton(PUBLIC) if q.type == "A" else socket.inet_pton(socket.AF_INET6, PUBLIC6)
    return start + cname + address_record(rdata, 1 if q.type == "A" else 28, owner=where)


def only_a(make):
    return lambda q: make(q) if q.type == "A" else q.reply()


def many(q):
    n = int(q.argument or 40)
    return q.reply(["93.184.217.%d" % (1 + i) for i in range(n)])


def forged(q):
    """A forged answer from another server's address, then the true one."""
    return ["spoof", q.reply([PRIVATE]), 0.15, q.reply([PUBLIC])]


def not_ours(q):
    """First an answer with another id, then one to another question, then the true one."""
    return [wrong_id(q), 0.05, wrong_question(q), 0.05, q.reply([PUBLIC])]


class Hang:
    """TCP: what to do with the connection instead of an answer."""
    def __init__(self, how):
        self.how = how

    def __call__(self, q):
        return self


NODATA = fixed()
BEHAVIOURS = {
    "ok": fixed(PUBLIC, PUBLIC6),
    "set": listed,
    "count": fixed(PUBLIC, ttl=1),
    "rebind": by_turn([PUBLIC], [PRIVATE]),
    "rebindloop": by_turn([PUBLIC], ["127.0.0.1"]),
    "alternate": alternating,
    "private": fixed(PRIVATE),
    "private6": fixed(PRIVATE6),
    "mixed": fixed(PUBLIC, PRIVATE),
    "mixed6": fixed(PUBLIC, PRIVATE6),
    "mapped": fixed("::ffff:10.0.0.9"),
    "failprivate6": split(fixed(rcode=SERVFAIL), fixed("fd00::9")),
    "closedmixed": fixed(places.REFUSED4, PRIVATE),
    "cname": chain(1, PUBLIC),
    "cname20": chain(20, PUBLIC),
    "cnameprivate": chain(1, PRIVATE),
    "cnamedenied": lambda q: q.reply([PUBLIC], chain=["denied.example"]),
    "cnamelocal": lambda q: q.reply([PUBLIC], chain=["metadata.google.internal"]),
    "loop": loop,
    "ttl0": fixed(PUBLIC, ttl=0),
    "ttlmax": fixed(PUBLIC, ttl=2 ** 31 - 1),
    "ttlneg": fixed(PUBLIC, ttl=2 ** 32 - 1),
    "ttlmixed": mixed_ttl,
    "nxdomain": fixed(rcode=NXDOMAIN),
    "nodata": NODATA,
    "servfail": fixed(rcode=SERVFAIL),
    "refused": fixed(rcode=REFUSED),
    "notimp": fixed(rcode=NOTIMP),
    "silent": silent,
    "silent4": split(silent, fixed(PUBLIC6)),
    "silent6": split(fixed(PUBLIC), silent),
    "fail6": split(fixed(PUBLIC), fixed(rcode=SERVFAIL)),
    "fail4": split(fixed(rcode=SERVFAIL), fixed(PUBLIC6)),
    "nx6": split(fixed(PUBLIC), fixed(rcode=NXDOMAIN)),
    "slow": later(300, fixed(PUBLIC)),
    "slow6": split(fixed(PUBLIC), later(400, fixed(PUBLIC6))),
    "slowprivate6": split(fixed(PUBLIC), later(20, fixed(PRIVATE6))),
    "garbage": lambda q: bytes(random.Random(7).randrange(256) for _ in range(300)),
    "short": lambda q: q.packet[:5],
    "empty": lambda q: b"",
    "headonly": lambda q: struct.pack("!HHHHHH", q.record.header.id, 0x8180, 1, 1, 0, 0),
    "wrongid": wrong_id,
    "wrongquestion": wrong_question,
    "notours": not_ours,
    "forged": forged,
    "othername": lambda q: q.reply([PUBLIC], owner="victim.example.org"),
    "tc": over_tcp(Query.truncated, fixed(PUBLIC)),
    "tcslow": over_tcp(Query.truncated, later(150, fixed(PUBLIC))),
    "tcmixed": over_tcp(lambda q: partial(q, [places.ECHO4, places.BULK4, PUBLIC]),
                        fixed(places.ECHO4, places.BULK4, PUBLIC, PRIVATE)),
    "tcreset": over_tcp(Query.truncated, Hang("reset")),
    "tcclose": over_tcp(Query.truncated, Hang("close")),
    "tcfin": over_tcp(Query.truncated, Hang("answer and close")),
    "tchalf": over_tcp(Query.truncated, Hang("half and reset")),
    "tcsilent": over_tcp(Query.truncated, silent),
    "many": over_tcp(Query.truncated, many),
    "pointerself": pointer("self"),
    "pointerpast": pointer("past"),
    "pointerloop": pointer("loop"),
    "shortrdata": only_a(lambda q: head(q, 1) + address_record(b"\x5d\xb8\xd8")),
    "longrdata": only_a(lambda q: head(q, 1) + address_record(b"\x5d\xb8\xd8\x22\x0a")),
    "chaos": only_a(lambda q: head(q, 1) + address_record(klass=3)),
    "hostilebytes": hostile_bytes,
}


def partial(q, addresses):
    r = q.reply(addresses)
    r.header.tc = 1
    return r


# --- moving packets ---

def wire(r):
    return r if isinstance(r, bytes) else r.pack()


def note(q):
    queries.append({"proto": q.proto, "name": q.name, "type": q.type})
    q.turn = asked.get((q.name, q.type), 0)
    asked[(q.name, q.type)] = q.turn + 1


async def decide(q):
    """The reply of a hostile name: bytes, a record, a list of replies and pauses, Hang, or None for silence."""
    behaviour = BEHAVIOURS.get(q.behaviour)
    if not behaviour:
        return q.reply(rcode=NXDOMAIN)
    result = behaviour(q)
    return await result if asyncio.iscoroutine(result) else result


def is_hostile(q):
    return q.name.endswith("." + ZONE)


class Relay(asyncio.DatagramProtocol):
    """Ordinary names: passed to dnsmasq under an id of our own, and back unchanged."""
    def __init__(self):
        self.waiting, self.next_id = {}, 0

    def connection_made(self, transport):
        self.transport = transport

    def ask(self, packet, back):
        self.next_id = (self.next_id + 1) & 0xFFFF
        self.waiting[self.next_id] = (packet[:2], back)
        self.transport.sendto(struct.pack("!H", self.next_id) + packet[2:])

    def datagram_received(self, data, address):
        entry = self.waiting.pop(struct.unpack("!H", data[:2])[0], None)
        if entry:
            entry[1](entry[0] + data[2:])

    def error_received(self, error):
        pass


class Udp(asyncio.DatagramProtocol):
    def __init__(self, world):
        self.world = world

    def connection_made(self, transport):
        self.transport = transport

    def datagram_received(self, data, address):
        try:
            q = Query(data, "udp")
        except Exception:
            return
        note(q)
        if not is_hostile(q):
            self.world.relay.ask(data, lambda reply: self.transport.sendto(reply, address))
            return
        asyncio.get_running_loop().create_task(self.hostile(q, address))

    async def hostile(self, q, address):
        reply = await decide(q)
        steps = reply if isinstance(reply, list) else [reply]
        sender = self.transport
        for step in steps:
            if step == "spoof":
                sender = self.world.spoof
            elif isinstance(step, float):
                await asyncio.sleep(step)
            elif step is not None and not isinstance(step, Hang):
                sender.sendto(wire(step), address)
                sender = self.transport


async def tcp_answer(q, writer, world):
    """One query of a connection; others of the same connection are not held up by it (RFC 7766 6.2.1.1)."""
    if is_hostile(q):
        reply = await decide(q)
    else:
        future = asyncio.get_running_loop().create_future()
        world.relay.ask(q.packet, lambda packet: future.done() or future.set_result(packet))
        reply = await future
    if reply is None:
        return
    if isinstance(reply, Hang):
        data = wire(q.reply([PUBLIC]))
        data = struct.pack("!H", len(data)) + data
        if reply.how == "answer and close":
            writer.write(data)
        elif reply.how == "half and reset":
            writer.write(data[:len(data) // 2])
        if "reset" in reply.how:
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        writer.close()
        return
    data = wire(reply)
    writer.write(struct.pack("!H", len(data)) + data)


async def tcp_client(reader, writer, world):
    try:
        while True:
            n = struct.unpack("!H", await reader.readexactly(2))[0]
            q = Query(await reader.readexactly(n), "tcp")
            note(q)
            asyncio.get_running_loop().create_task(tcp_answer(q, writer, world))
    except (asyncio.IncompleteReadError, ConnectionError):
        pass
    writer.close()


class World:
    relay = spoof = None


def handle(cmd, mark=0):
    if cmd == "mark":
        return {"mark": len(queries)}
    return {"mark": len(queries), "queries": queries[mark:]}


async def main():
    loop = asyncio.get_running_loop()
    world = World()
    _, world.relay = await loop.create_datagram_endpoint(Relay, remote_addr=(places.PLAIN_DNS4, 53))
    world.spoof, _ = await loop.create_datagram_endpoint(asyncio.DatagramProtocol, local_addr=(places.SPOOF_DNS4, 53))
    for address in (places.DNS4, places.DNS6, places.UDP_DNS4):
        transport, _ = await loop.create_datagram_endpoint(lambda: Udp(world), local_addr=(address, 53))
        transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
    for address in (places.DNS4, places.DNS6):
        await asyncio.start_server(lambda r, w: tcp_client(r, w, world), address, 53, backlog=1024)
    control.serve_in_thread(sys.argv[1], handle)
    await asyncio.Event().wait()


asyncio.run(main())
