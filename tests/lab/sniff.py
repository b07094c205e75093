"""sniff.py SOCKET - the watcher: records every connection attempt and every name query that leaves the guard's host.

It listens below the protocol stack on all interfaces of the guard namespace, loopback too, and keeps what goes out.
The kernel puts a packet into this socket before it goes on the wire, so an attempt made before a request is answered
is in the record when the answer is seen. Requests: {"cmd": "since", "mark": N} -> {"mark", "syns", "udp", "drops"}.
"""
import ctypes
import select
import socket
import struct
import sys

sys.path.insert(0, __file__.rsplit("/", 1)[0])
import control  # noqa: E402

PACKET_OUTGOING = 4
SOL_PACKET, PACKET_STATISTICS = 263, 6
SO_ATTACH_FILTER, SO_RCVBUFFORCE = 26, 33


def bpf():
    """First TCP segments and all UDP, of IPv4 and IPv6, over Ethernet."""
    ldh, ldb, ldbx, ldxb, jeq, ja, and_, ret = 0x28, 0x30, 0x50, 0xB1, 0x15, 0x05, 0x54, 0x06
    program = [
        (ldh, 0, 0, 12),        # 0
        (jeq, 0, 6, 0x0800),    # 1: no -> 8
        (ldb, 0, 0, 23),        # 2
        (jeq, 11, 0, 17),       # 3: UDP -> 15 accept
        (jeq, 0, 11, 6),        # 4: not TCP -> 16 drop
        (ldxb, 0, 0, 14),       # 5
        (ldbx, 0, 0, 27),       # 6
        (ja, 0, 0, 5),          # 7: -> 13
        (jeq, 0, 7, 0x86DD),    # 8: no -> 16 drop
        (ldb, 0, 0, 20),        # 9
        (jeq, 4, 0, 17),        # 10: UDP -> 15
        (jeq, 0, 4, 6),         # 11: not TCP -> 16
        (ldb, 0, 0, 67),        # 12
        (and_, 0, 0, 0x12),     # 13: SYN and ACK
        (jeq, 0, 1, 0x02),      # 14: only SYN
        (ret, 0, 0, 0x40000),   # 15
        (ret, 0, 0, 0),         # 16
    ]
    return b"".join(struct.pack("HBBI", *i) for i in program), len(program)


def qname(payload):
    """The question of a DNS message, or what could be read of it."""
    labels, at = [], 12
    try:
        while payload[at]:
            n = payload[at]
            labels.append(payload[at + 1:at + 1 + n].decode("latin-1"))
            at += n + 1
        kind = struct.unpack_from("!H", payload, at + 1)[0]
    except (IndexError, struct.error):
        return ".".join(labels), 0
    return ".".join(labels), kind


class Watcher:
    def __init__(self):
        self.socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
        code, n = bpf()
        buffer = ctypes.create_string_buffer(code)
        address = ctypes.addressof(buffer)
        self.socket.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, struct.pack("HL", n, address))
        for option in (SO_RCVBUFFORCE, socket.SO_RCVBUF):
            try:
                self.socket.setsockopt(socket.SOL_SOCKET, option, 64 << 20)
                break
            except OSError:
                continue
        self.socket.setblocking(False)
        self.records = []
        self.drops = 0

    def drain(self):
        while True:
            try:
                packet, address = self.socket.recvfrom(2048)
            except BlockingIOError:
                break
            if address[2] == PACKET_OUTGOING:
                self.take(packet, address[0])

    def take(self, packet, interface):
        if packet[12:14] == b"\x08\x00":
            start, protocol = 14 + (packet[14] & 15) * 4, packet[23]
            source, target = (socket.inet_ntoa(packet[i:i + 4]) for i in (26, 30))
        else:
            start, protocol = 54, packet[20]
            source, target = (socket.inet_ntop(socket.AF_INET6, packet[i:i + 16]) for i in (22, 38))
        sport, dport = struct.unpack_from("!HH", packet, start)
        record = {"kind": "syn" if protocol == 6 else "udp", "source": source, "sport": sport, "target": target,
                  "port": dport, "interface": interface}
        if protocol == 17 and dport == 53:
            record["name"], record["type"] = qname(packet[start + 8:])
        self.records.append(record)

    def handle(self, cmd, mark=0):
        self.drain()
        statistics = self.socket.getsockopt(SOL_PACKET, PACKET_STATISTICS, 8)
        self.drops += struct.unpack("II", statistics)[1]
        if cmd == "mark":
            return {"mark": len(self.records), "drops": self.drops}
        return {"mark": len(self.records), "drops": self.drops, "records": self.records[mark:]}


def main():
    watcher = Watcher()
    listener = control.listen(sys.argv[1])
    while True:
        ready, _, _ = select.select([watcher.socket, listener], [], [])
        if listener in ready:
            connection, _ = listener.accept()
            control.answer(connection, watcher.handle)
        else:
            watcher.drain()


main()
