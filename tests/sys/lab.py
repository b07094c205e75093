"""The laboratory as the tests see it: marks in the records of its watchers and origins."""
import ipaddress
import os
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "lab"))
import control  # noqa: E402
import places  # noqa: E402,F401

FULL = 1 << 40


class Lab:
    def __init__(self):
        self.dir = os.environ["LAB_DIR"]
        self.bin = os.environ["LAB_BIN"]
        self.ca = os.environ["LAB_CA"]
        self.files = os.environ["LAB_FILES"]
        self.own_ports = set()  # where guards listen: attempts to reach them are the tests' own

    def ask(self, program, **request):
        return control.ask("%s/%s.sock" % (self.dir, program), **request)

    def mark(self):
        return Mark(self)


class Mark:
    """A moment. Everything it tells is what happened since then."""
    def __init__(self, lab):
        self.lab = lab
        self.sniff = lab.ask("sniff", cmd="mark")["mark"]
        self.names = lab.ask("names", cmd="mark")["mark"]
        self.origin = lab.ask("origin", since=FULL)["mark"]
        self.web = lab.ask("web", cmd="mark")["mark"]

    def packets(self):
        answer = self.lab.ask("sniff", cmd="since", mark=self.sniff)
        assert answer["drops"] == 0, "the watcher lost packets: its word proves nothing"
        return answer["records"]

    def dialed(self):
        """Every (address, port) to which a connection was attempted from the guard's host, name servers and the tests' own
        connections to the guard left out."""
        found = []
        for p in self.packets():
            if p["kind"] != "syn" or p["port"] == 53:
                continue
            if ipaddress.ip_address(p["target"]).is_loopback and p["port"] in self.lab.own_ports:
                continue
            found.append((p["target"], p["port"]))
        return found

    def packets_to(self, address):
        return [p for p in self.packets() if p["target"] == address]

    def queries(self):
        """Names asked for on the wire, over UDP."""
        return [p["name"].lower() for p in self.packets() if p["kind"] == "udp" and p["port"] == 53]

    def served_queries(self):
        """What the scripted name server got: proto, name, type."""
        return self.lab.ask("names", cmd="since", mark=self.names)["queries"]

    def silent(self):
        """Nothing at all left: no connection, no query, no other datagram."""
        dialed, packets = self.dialed(), self.packets()
        assert not dialed, "dialed %s" % dialed
        udp = [p for p in packets if p["kind"] == "udp"]
        assert not udp, "sent %s" % udp

    def tunnels(self, wait=5, open_too=False):
        """What the bulk origin saw; waits until all connections have ended."""
        found = self.lab.ask("origin", since=self.origin, wait=int(wait * 1000))["connections"]
        still = [c for c in found if c["end"] == "open"]
        assert open_too or not still, "still open at the origin: %s" % still[:3]
        return found

    def web_connections(self, wait=0):
        return self.lab.ask("web", cmd="since", mark=self.web, wait=int(wait * 1000))["connections"]

    def requests(self, wait=0):
        return [r for c in self.web_connections(wait) for r in c["requests"]]

    def raw_requests(self, wait=0):
        return [bytes.fromhex(c["raw"]) for c in self.web_connections(wait)]


def eventually(check, timeout=5.0, step=0.02):
    """The first true value of check(), or its last value when the time is over."""
    until = time.monotonic() + timeout
    while True:
        value = check()
        if value or time.monotonic() > until:
            return value
        time.sleep(step)
