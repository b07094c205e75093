"""web.py DIR - the lab's HTTP and HTTPS origin: one thread a connection, every byte recorded and counted.

What it does is in the path (paths may be nested deeper; the query is free for tests):
  /size/N          N bytes with Content-Length           /close/N     N bytes, then close, no length
  /chunked/N       N bytes in chunks of 1000, an extension and a trailer
  /echo            the request's body back, same type    /count       JSON: method, bytes of body, SHA-256
  /status/N        status N with no body; 204 and 304 with fields that speak of one
  /cookies         three Set-Cookie                      /hop         a reply full of hop-by-hop fields
  /truncate/N      Content-Length N, half of it, close   /truncatechunked/N  chunked, no last chunk
  /slow/MS         replies after MS                      /drip/N/MS   N bytes, one each MS
  /raw/HEX         exactly those bytes, then close       /rawkeep/HEX exactly those bytes, connection kept
  /final/N         status N before the body is read, then closes
  /upgrade         101, then an echo of bytes            /earlyhints  103, then 200
  /reset/N         Content-Length 2N, N bytes, reset     /hang        never answers
  /closenow        closes without a byte once the head is read
  /once            answers, says keep-alive, and closes
  /headlarge       a response head of 36 KiB
Host files.example.org serves files from DIR/www (GET, HEAD, one byte range, index.html or a listing); host
git.example.org serves the repositories in DIR/git.

Control: {"cmd": "mark"}; {"cmd": "since", "mark": N, "wait": MS} -> {"mark", "connections": [{id, address, port, tls,
received, sent, open, raw (hex, what came after TLS was taken off, up to 1 MiB), requests: [{line, fields, body_bytes}]}]}.
received and sent are bytes on the wire, TLS included.
"""
import hashlib
import html
import json
import os
import socket
import ssl
import struct
import sys
import threading
import time
import urllib.parse

sys.path.insert(0, os.path.dirname(os.path.realpath(__file__)))
import control  # noqa: E402
import places  # noqa: E402
from clients import smart_git  # noqa: E402

DIR = sys.argv[1]
KEPT = 1 << 20
PATTERN = bytes((i * 131 + (i >> 8) * 17 + 7) & 255 for i in range(65521))
connections = []
changed = threading.Condition()
TYPES = {".html": "text/html", ".json": "application/json", ".txt": "text/plain", ".gz": "application/gzip",
         ".js": "text/javascript", ".tgz": "application/octet-stream"}


def pattern(n, start=0):
    at = start % len(PATTERN)
    whole = PATTERN[at:] + PATTERN * ((n + at) // len(PATTERN) + 1)
    return whole[:n]


class Over(Exception):
    """The connection is to end now."""


class Conn:
    """A socket, with or without TLS, that counts what is on the wire."""
    def __init__(self, sock, local, context):
        self.sock = sock
        self.entry = {"address": local[0], "port": local[1], "tls": bool(context), "received": 0, "sent": 0, "open": True,
                      "eof": False, "requests": []}
        self.raw = bytearray()
        self.buffer = b""
        with changed:
            self.entry["id"] = len(connections)
            connections.append(self)
        self.tls = None
        if context:
            self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
            self.tls = context.wrap_bio(self.incoming, self.outgoing, server_side=True)

    def wire_recv(self):
        data = self.sock.recv(1 << 18)
        self.entry["received"] += len(data)
        if not data:
            self.entry["eof"] = True
        return data

    def wire_send(self, data):
        view = memoryview(data)
        while view:
            n = self.sock.send(view)
            self.entry["sent"] += n
            view = view[n:]

    def tls_step(self, step, *args):
        while True:
            try:
                return step(*args)
            except ssl.SSLWantReadError:
                self.tls_flush()
                data = self.wire_recv()
                if not data:
                    self.incoming.write_eof()
                    raise Over
                self.incoming.write(data)
            finally:
                self.tls_flush()

    def tls_flush(self):
        data = self.outgoing.read()
        if data:
            self.wire_send(data)

    def recv(self):
        if not self.tls:
            data = self.wire_recv()
        else:
            try:
                data = self.tls_step(self.tls.read, 1 << 18)
            except ssl.SSLZeroReturnError:
                data = b""
        if len(self.raw) < KEPT:
            self.raw += data[:KEPT - len(self.raw)]
        return data

    def send(self, data):
        if self.tls:
            for i in range(0, len(data), 16384):
                self.tls_step(self.tls.write, data[i:i + 16384])
        else:
            self.wire_send(data)

    def need(self):
        data = self.recv()
        if not data:
            raise Over
        self.buffer += data

    def line(self):
        while b"\n" not in self.buffer:
            self.need()
        line, _, self.buffer = self.buffer.partition(b"\n")
        return line.rstrip(b"\r")

    def exactly(self, n):
        parts, left = [], n
        while left:
            if not self.buffer:
                self.need()
            part, self.buffer = self.buffer[:left], self.buffer[left:]
            parts.append(part)
            left -= len(part)
        return b"".join(parts)

    def reset(self):
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        raise Over

    def finish(self):
        try:
            if self.tls:
                try:
                    self.tls.unwrap()
                except ssl.SSLError:
                    pass
                self.tls_flush()
            self.sock.close()
        except OSError:
            pass
        with changed:
            self.entry["open"] = False
            changed.notify_all()

    def told(self):
        return dict(self.entry, raw=self.raw.hex())


class Request:
    def __init__(self, conn):
        self.conn = conn
        line = conn.line()
        while not line:
            line = conn.line()
        self.method, self.path, self.version = (line.decode("latin-1").split(" ") + ["", ""])[:3]
        self.fields = []
        while True:
            field = conn.line()
            if not field:
                break
            name, _, value = field.decode("latin-1").partition(":")
            self.fields.append((name, value.strip()))
        self.entry = {"line": line.decode("latin-1"), "fields": self.fields, "body_bytes": None}
        conn.entry["requests"].append(self.entry)
        self.body_read = False

    def get(self, name, missing=""):
        for n, v in self.fields:
            if n.lower() == name.lower():
                return v
        return missing

    def expects(self):
        return self.get("expect").lower() == "100-continue"

    def read_body(self):
        """Reads the body once; answers an expectation first."""
        if self.body_read:
            return self.body
        self.body_read = True
        chunked = "chunked" in self.get("transfer-encoding").lower()
        length = int(self.get("content-length", "0") or 0)
        if (chunked or length) and self.expects():
            self.conn.send(b"HTTP/1.1 100 Continue\r\n\r\n")
        self.body = self.read_chunks() if chunked else self.conn.exactly(length)
        self.entry["body_bytes"] = len(self.body)
        return self.body

    def read_chunks(self):
        parts = []
        while True:
            size = int(self.conn.line().split(b";")[0], 16)
            if not size:
                while self.conn.line():
                    pass
                return b"".join(parts)
            parts.append(self.conn.exactly(size))
            self.conn.line()

    def reply(self, status, body=b"", fields=(), reason="Fine", length=True):
        lines = ["HTTP/1.1 %d %s" % (status, reason)]
        if length:
            lines.append("Content-Length: %d" % len(body))
        lines += ["%s: %s" % f for f in fields]
        data = ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")
        self.conn.send(data if self.method == "HEAD" else data + body)


# --- what the paths do ---

def do_size(r, n):
    n = int(n)
    if n <= 1 << 20 or r.method == "HEAD":
        return r.reply(200, pattern(n), [("Content-Type", "application/octet-stream")])
    r.conn.send(b"HTTP/1.1 200 Fine\r\nContent-Length: %d\r\n\r\n" % n)
    sent = 0
    while sent < n:
        k = min(1 << 20, n - sent)
        r.conn.send(pattern(k, sent))
        sent += k


def do_close(r, n):
    r.conn.send(b"HTTP/1.1 200 Fine\r\nX-Kind: close\r\n\r\n" + pattern(int(n)))
    raise Over


def chunks(n):
    data, out = pattern(n), []
    for i in range(0, n, 1000):
        part = data[i:i + 1000]
        out.append(b"%x;ext=\"a;b\"\r\n%s\r\n" % (len(part), part))
    return b"".join(out)


def do_chunked(r, n):
    body = b"" if r.method == "HEAD" else chunks(int(n)) + b"0\r\nX-Trailer: t\r\n\r\n"
    r.conn.send(b"HTTP/1.1 200 Fine\r\nTransfer-Encoding: chunked\r\nTrailer: X-Trailer\r\n\r\n" + body)


def do_echo(r):
    r.reply(200, r.read_body(), [("Content-Type", r.get("content-type", "application/octet-stream"))])


def do_count(r):
    body = r.read_body()
    text = json.dumps({"method": r.method, "bytes": len(body), "sha256": hashlib.sha256(body).hexdigest()}).encode()
    r.reply(200, text, [("Content-Type", "application/json")])


def do_status(r, status):
    status = int(status)
    if status in (204, 304):
        return r.conn.send(b"HTTP/1.1 %d None\r\nETag: \"e\"\r\n%s\r\n" % (
            status, b"Content-Length: 10\r\n" if status == 304 else b""))
    r.reply(status, b"", reason="Status")


def do_cookies(r):
    r.reply(200, b"c", [("Set-Cookie", "a=1"), ("X-Between", "y"), ("Set-Cookie", "b=2; Path=/"), ("Set-Cookie", "a=3")])


def do_hop(r):
    r.reply(200, b"hop", [("Connection", "X-Secret, keep-alive"), ("X-Secret", "s"), ("Keep-Alive", "timeout=5"),
                          ("Proxy-Authenticate", "Basic realm=x"), ("X-Kept", "k"), ("Upgrade", "h2c")])


def do_truncate(r, n):
    n = int(n)
    r.conn.send(b"HTTP/1.1 200 Fine\r\nContent-Length: %d\r\n\r\n" % n + pattern(n // 2))
    raise Over


def do_truncatechunked(r, n):
    r.conn.send(b"HTTP/1.1 200 Fine\r\nTransfer-Encoding: chunked\r\n\r\n" + chunks(int(n)))
    raise Over


def do_slow(r, ms):
    time.sleep(int(ms) / 1000)
    r.reply(200, b"slow")


def do_drip(r, n, ms):
    r.conn.send(b"HTTP/1.1 200 Fine\r\nContent-Length: %d\r\n\r\n" % int(n))
    for i in range(int(n)):
        r.conn.send(pattern(1, i))
        time.sleep(int(ms) / 1000)


def do_raw(r, text):
    r.conn.send(bytes.fromhex(text))
    raise Over


def do_rawkeep(r, text):
    r.conn.send(bytes.fromhex(text))


def do_final(r, status):
    r.reply(int(status), b"no", [("Connection", "close")], reason="Final")
    raise Over


def do_upgrade(r):
    r.conn.send(b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: %s\r\n"
                b"Sec-WebSocket-Accept: x\r\n\r\n" % r.get("upgrade", "none").encode())
    r.body_read = True
    while True:
        if r.conn.buffer:
            r.conn.send(r.conn.buffer)
            r.conn.buffer = b""
        r.conn.need()


def do_earlyhints(r):
    r.conn.send(b"HTTP/1.1 103 Early Hints\r\nLink: </x>; rel=preload\r\n\r\n")
    r.reply(200, b"hints")


def do_reset(r, n):
    r.conn.send(b"HTTP/1.1 200 Fine\r\nContent-Length: %d\r\n\r\n" % (2 * int(n)) + pattern(int(n)))
    time.sleep(0.1)
    r.conn.reset()


def do_hang(r):
    while True:
        r.conn.need()


def do_closenow(r):
    raise Over


def do_headlarge(r):
    fields = b"".join(b"X-%d: %s\r\n" % (i, b"x" * 900) for i in range(40))
    r.conn.send(b"HTTP/1.1 200 Fine\r\n" + fields + b"Content-Length: 0\r\n\r\n")


def do_once(r):
    r.reply(200, b"once", [("Connection", "keep-alive")])
    raise Over


def serve_file(r):
    path = urllib.parse.unquote(r.path.split("?")[0])
    real = os.path.realpath(os.path.join(DIR, "www", path.lstrip("/")))
    if not (real + "/").startswith(os.path.realpath(DIR + "/www") + "/"):
        return r.reply(403, reason="Outside")
    if os.path.isdir(real):
        if not path.endswith("/"):
            return r.reply(301, b"", [("Location", path + "/")], reason="Moved")
        if os.path.exists(real + "/index.html"):
            real += "/index.html"
        else:
            names = sorted(n + "/" if os.path.isdir(real + "/" + n) else n for n in os.listdir(real))
            listing = "".join('<a href="%s">%s</a><br>\n' % (urllib.parse.quote(n), html.escape(n)) for n in names)
            return r.reply(200, listing.encode(), [("Content-Type", "text/html")])
    if not os.path.isfile(real):
        return r.reply(404, b"not found\n", reason="Not Found")
    with open(real, "rb") as f:
        data = f.read()
    fields = [("Content-Type", TYPES.get(os.path.splitext(real)[1], "application/octet-stream")), ("Accept-Ranges", "bytes"),
              ("Last-Modified", time.strftime("%a, %d %b %Y %H:%M:%S GMT", time.gmtime(os.path.getmtime(real))))]
    wanted = r.get("range")
    if wanted.startswith("bytes=") and "," not in wanted:
        first, _, last = wanted[6:].partition("-")
        if first.isdigit() and int(first) < len(data):
            start, stop = int(first), min(int(last) + 1 if last else len(data), len(data))
            fields.append(("Content-Range", "bytes %d-%d/%d" % (start, stop - 1, len(data))))
            return r.reply(206, data[start:stop], fields, reason="Partial")
    r.reply(200, data, fields)


def dispatch(r):
    if r.get("host").split(":")[0] == "files.example.org":
        return serve_file(r)
    if r.get("host").split(":")[0] == "git.example.org":
        return smart_git.serve(r, DIR + "/git")
    words = [w for w in r.path.split("?")[0].split("/") if w]
    action = globals().get("do_" + words[0]) if words else None
    if action is None:
        return r.reply(200, b"origin\n", [("Content-Type", "text/plain")])
    action(r, *words[1:action.__code__.co_argcount])


def converse(conn):
    try:
        if conn.tls:
            conn.tls_step(conn.tls.do_handshake)
        while True:
            r = Request(conn)
            dispatch(r)
            if not r.body_read:
                r.read_body()
            if r.get("connection").lower() == "close" or r.version == "HTTP/1.0":
                break
    except (Over, OSError, ssl.SSLError, ValueError, TypeError):
        pass
    finally:
        conn.finish()


def accept(listener, context):
    local = listener.getsockname()
    while True:
        sock, _ = listener.accept()
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        threading.Thread(target=converse, args=(Conn(sock, local, context),), daemon=True).start()


def handle(cmd, mark=0, wait=0):
    if cmd == "mark":
        return {"mark": len(connections)}
    until = time.monotonic() + wait / 1000
    with changed:
        while any(c.entry["open"] for c in connections[mark:]) and time.monotonic() < until:
            changed.wait(until - time.monotonic())
        return {"mark": len(connections), "connections": [c.told() for c in connections[mark:]]}


def main():
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(DIR + "/tls.pem", DIR + "/tls.key")
    context.set_alpn_protocols(["http/1.1"])
    for address in (places.WEB4, places.WEB6, places.LITERAL6, "172.15.255.255", "172.32.0.1"):
        for port, tls in ((80, None), (443, context)):
            family = socket.AF_INET6 if ":" in address else socket.AF_INET
            listener = socket.create_server((address, port), family=family, backlog=1024)
            threading.Thread(target=accept, args=(listener, tls), daemon=True).start()
    control.serve_in_thread(DIR + "/web.sock", handle)
    threading.Event().wait()


main()
