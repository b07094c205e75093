"""One worker, several streams that never pause: whoever else comes still gets a turn, however bodies are framed."""
import socket
import subprocess
import threading
import time

import pytest

import places
from lab import eventually
from script import URL, Origin, head_of
from wire import Client, connect_head, request

STREAMS = 6
CHUNK = b"100000\r\n" + b"z" * 0x100000 + b"\r\n"
FOR = 1.5  # seconds of asking


def answer_times(port):
    """How long CONNECT takes, asked again and again, in seconds."""
    times, until = [], time.monotonic() + FOR
    while time.monotonic() < until or len(times) < 5:
        start = time.monotonic()
        with Client(port, timeout=20) as c:
            c.send(connect_head(places.ECHO4 + ":443"))
            assert c.response("CONNECT").status == 200
        times.append(time.monotonic() - start)
        time.sleep(0.01)
    return times


def nine_tenths(times):
    """The time in which nine of ten were answered."""
    return sorted(times)[len(times) * 9 // 10]


class Streams:
    """STREAMS clients and their origins, as fast as they can; they stop when told."""
    def __init__(self, g, framing, way):
        self.g, self.chunked, self.way = g, framing == "chunked", way
        self.over, self.moved = threading.Event(), [0] * STREAMS
        self.nowhere = bytearray(1 << 20)

    def origin(self, s):
        i = int(head_of(s).split(b" ")[1][1:])
        if self.way == "down":
            s.sendall(b"HTTP/1.1 200 OK\r\n" + (b"Transfer-Encoding: chunked\r\n\r\n" if self.chunked else b"\r\n"))
        n = 1
        while n and not self.over.is_set():
            if self.way == "down":
                s.sendall(CHUNK)
                n = len(CHUNK)
            else:
                n = s.recv_into(self.nowhere, 0, socket.MSG_TRUNC)  # tcp(7): the kernel drops them, at no cost
            self.moved[i] += n

    def download(self, i):
        proxy = "http://127.0.0.1:%d" % self.g.port
        curl = subprocess.Popen(["curl", "-s", "-o", "/dev/null", "-x", proxy, URL + "/%d" % i])
        self.over.wait()
        curl.kill()
        curl.wait()

    def upload(self, i):
        framing = ("Transfer-Encoding", "chunked") if self.chunked else ("Content-Length", str(1 << 40))
        try:
            with Client(self.g.port) as c:
                c.send(request(URL + "/%d" % i, [framing], "POST"))
                while not self.over.is_set():
                    c.send(CHUNK)
        except OSError:
            pass  # the end of the test

    def run(self, measure):
        with Origin(self.origin):
            client = self.download if self.way == "down" else self.upload
            threads = [threading.Thread(target=client, args=(i,)) for i in range(STREAMS)]
            for t in threads:
                t.start()
            try:
                assert eventually(lambda: all(self.moved), 15), "not all streams flow: %s" % self.moved
                before = sum(self.moved)
                measured = measure()
                assert sum(self.moved) - before > 16 << 20, "the streams stood still: nothing was measured"
            finally:
                self.over.set()
        for t in threads:
            t.join(10)
        return measured


@pytest.mark.parametrize("way", ["down", "up"])
def test_chunks_do_not_keep_the_worker(guard, way):
    """Chunked bodies go through the guard's own hands, others do not: both must leave as much room. The measure is the
    same machine in the same state, with bodies that are known to give way."""
    g = guard(config={"workers": 1})
    plain = nine_tenths(Streams(g, "plain", way).run(lambda: answer_times(g.port)))
    g.quiet()
    chunked = nine_tenths(Streams(g, "chunked", way).run(lambda: answer_times(g.port)))
    assert chunked < 4 * plain + 0.1, (chunked, plain)


def test_reload_reaches_a_busy_worker(guard):
    """So does the word of the main thread: a new policy is in force while chunks flow."""
    g = guard(config={"workers": 1})

    def reloads():
        start = time.monotonic()
        for _ in range(8):
            g.reload()
        return time.monotonic() - start
    plain = Streams(g, "plain", "down").run(reloads)
    chunked = Streams(g, "chunked", "down").run(reloads)
    assert chunked < 1.5 * plain + 0.15, (chunked, plain)
