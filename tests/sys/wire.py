"""A client that hides nothing: bytes out, bytes in, and a parser for what came."""
import datetime
import socket
import struct
import time


class Response:
    def __init__(self, raw_head):
        self.raw_head = raw_head
        lines = raw_head.decode("latin-1").split("\r\n")
        self.version, _, rest = lines[0].partition(" ")
        status, _, self.reason = rest.partition(" ")
        assert self.version.startswith("HTTP/1.") and status.isdigit(), "not a status line: %r" % lines[0]
        self.status = int(status)
        self.fields = []
        for line in lines[1:]:
            if line:
                name, colon, value = line.partition(":")
                assert colon, "not a field: %r" % line
                self.fields.append((name, value.strip()))
        self.body = b""

    def all(self, name):
        return [v for n, v in self.fields if n.lower() == name.lower()]

    def get(self, name):
        found = self.all(name)
        return found[0] if found else None

    @property
    def code(self):
        return self.get("X-Egress-Reason")

    def __repr__(self):
        return "<%d %s %s>" % (self.status, self.reason, self.body[:200])


class Client:
    """A connection to the guard (or to anything)."""
    def __init__(self, port, host="127.0.0.1", timeout=10):
        self.since = datetime.datetime.utcnow().isoformat(timespec="milliseconds") + "Z"  # as the log writes it
        self.sock = socket.create_connection((host, port), timeout=timeout)
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.buffer = b""
        self.port = self.sock.getsockname()[1]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def send(self, data):
        self.sock.sendall(data)
        return self

    def end_output(self):
        self.sock.shutdown(socket.SHUT_WR)
        return self

    def close(self):
        self.sock.close()

    def reset(self):
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.sock.close()

    def more(self, n=1 << 16):
        data = self.sock.recv(n)
        self.buffer += data
        return bool(data)

    def exactly(self, n):
        if n > len(self.buffer):
            parts, have = [self.buffer], len(self.buffer)
            while have < n:
                part = self.sock.recv(min(1 << 20, n - have))
                if not part:
                    raise EOFError("end after %d of %d bytes" % (have, n))
                parts.append(part)
                have += len(part)
            self.buffer = b"".join(parts)
        data, self.buffer = self.buffer[:n], self.buffer[n:]
        return data

    def until(self, mark):
        while mark not in self.buffer:
            if not self.more():
                raise EOFError("end before %r: %r" % (mark, self.buffer[-300:]))
        data, _, self.buffer = self.buffer.partition(mark)
        return data + mark

    def rest(self):
        parts = [self.buffer]
        self.buffer = b""
        while True:
            part = self.sock.recv(1 << 18)
            if not part:
                return b"".join(parts)
            parts.append(part)

    def at_end(self):
        """Whether the input ends here, in order; a reset raises."""
        return not self.buffer and self.sock.recv(1) == b""

    def head(self):
        return Response(self.until(b"\r\n\r\n"))

    def response(self, method="GET"):
        """One whole final response, 1xx kept in .interim."""
        interim = []
        r = self.head()
        while 100 <= r.status < 200 and r.status != 101:
            interim.append(r)
            r = self.head()
        r.interim = interim
        if method == "HEAD" or r.status in (101, 204, 304) or (method == "CONNECT" and r.status == 200):
            return r
        if (r.get("Transfer-Encoding") or "").lower() == "chunked":
            r.body = self.chunks()
        elif r.get("Content-Length") is not None:
            r.body = self.exactly(int(r.get("Content-Length")))
        else:
            r.body = self.rest()
        return r

    def chunks(self):
        parts = []
        while True:
            line = self.until(b"\r\n")[:-2]
            n = int(line.split(b";")[0], 16)
            if not n:
                while self.until(b"\r\n") != b"\r\n":
                    pass
                return b"".join(parts)
            parts.append(self.exactly(n))
            assert self.exactly(2) == b"\r\n"

    def tunnel(self, target, early=b"", version="1.1"):
        self.send(b"CONNECT %s HTTP/%s\r\nHost: %s\r\n\r\n" % (target.encode(), version.encode(), target.encode()) + early)
        return self.response("CONNECT")


def open_tunnel(port, target, **more):
    c = Client(port, **more)
    r = c.tunnel(target)
    assert r.status == 200, r
    return c


def refused(raw, client_ends=False):
    """Checks that bytes are one complete refusal of the guard and nothing more, and returns it."""
    head, sep, body = raw.partition(b"\r\n\r\n")
    assert sep, "no complete reply: %r" % raw[:300]
    r = Response(head + sep)
    assert r.get("Content-Length") == str(len(body)), "Content-Length %s, %d bytes of body" % (r.get("Content-Length"), len(body))
    assert (r.get("Connection") or "").lower() == "close"
    assert r.code, "no X-Egress-Reason: %r" % raw[:300]
    assert "(%s)" % r.code in r.reason, r.reason
    assert "error=" in r.get("Proxy-Status") and "egress-guard" in r.get("Proxy-Status")
    assert all(32 <= ord(ch) < 127 for ch in r.reason) and len(r.reason) <= 400
    r.body = body
    return r


def ask(port, data, timeout=10):
    """Sends bytes, reads until the end; the end must be in order."""
    with Client(port, timeout=timeout) as c:
        c.send(data)
        return c.rest()


def connect_head(target, version="1.1"):
    t = target.encode() if isinstance(target, str) else target
    return b"CONNECT " + t + b" HTTP/" + version.encode() + b"\r\nHost: " + t + b"\r\n\r\n"


def ask_connect(port, target, timeout=10):
    """The guard's refusal of a CONNECT, or the Response of its acceptance (closed at once)."""
    with Client(port, timeout=timeout) as c:
        c.send(connect_head(target))
        head = c.until(b"\r\n\r\n")
        r = Response(head)
        if r.status == 200:
            return r
        return refused(head + c.rest())


def get(port, url, fields=(), method="GET", body=b"", timeout=10):
    """One absolute-form request on a connection of its own."""
    with Client(port, timeout=timeout) as c:
        c.send(request(url, fields, method, body))
        return c.response(method)


def request(url, fields=(), method="GET", body=b"", version="1.1"):
    host = url.split("/")[2]
    lines = ["%s %s HTTP/%s" % (method, url, version), "Host: " + host] + ["%s: %s" % f for f in fields]
    if body:
        lines.append("Content-Length: %d" % len(body))
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1") + body


_PATTERN = bytes((i * 131 + (i >> 8) * 17 + 7) & 255 for i in range(65521))


def pattern(n, start=0):
    """The byte sequence that the origins send and expect."""
    at = start % len(_PATTERN)
    return (_PATTERN[at:] + _PATTERN * ((n + at) // len(_PATTERN) + 1))[:n]


def elapsed(since):
    return time.monotonic() - since
