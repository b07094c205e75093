"""Origins written inside a test: they listen on the world's side of the lab and run as threads of the test itself."""
import ctypes
import fcntl
import os
import socket
import struct
import termios
import threading
import time

ADDRESS = "93.184.216.200"  # like every address it exists; nothing else listens there
TARGET = ADDRESS + ":80"
URL = "http://" + ADDRESS
CLONE_NEWNET = 0x40000000


def world_pid():
    for pid in os.listdir("/proc"):
        try:
            with open("/proc/%s/cmdline" % pid, "rb") as f:
                words = f.read().split(b"\0")
        except OSError:
            continue
        if any(os.path.basename(w) == b"world.py" for w in words[1:3]):
            return pid
    raise AssertionError("no world: the lab is broken")


def listen_in_world(address, port):
    """A socket belongs to the namespace of the thread that makes it: one thread goes there, and ends."""
    made, errors = [], []

    def go():
        try:
            with open("/proc/%s/ns/net" % world_pid()) as ns:
                if ctypes.CDLL(None, use_errno=True).setns(ns.fileno(), CLONE_NEWNET):
                    raise OSError(ctypes.get_errno(), "setns")
            made.append(socket.create_server((address, port), backlog=128))
        except Exception as e:  # told to the test
            errors.append(e)
    thread = threading.Thread(target=go)
    thread.start()
    thread.join()
    if errors:
        raise errors[0]
    return made[0]


class Origin:
    """Runs serve(socket) for each connection, in a thread of its own; what it returns is kept in `said`."""
    def __init__(self, serve, port=80):
        self.serve, self.said, self.open = serve, [], []
        self.listener = listen_in_world(ADDRESS, port)
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                s, _ = self.listener.accept()
            except OSError:
                return
            self.open.append(s)
            threading.Thread(target=self.run, args=(s,), daemon=True).start()

    def run(self, s):
        try:
            self.said.append(self.serve(s))
        except OSError as e:
            self.said.append(e)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.listener.shutdown(socket.SHUT_RDWR)  # a mere close() would not wake the thread
        self.listener.close()
        for s in self.open:
            s.close()


def head_of(s):
    """Reads one request head, and gives it with whatever came behind it."""
    data = b""
    while b"\r\n\r\n" not in data:
        part = s.recv(65536)
        if not part:
            break
        data += part
    return data


def reset(s):
    s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    s.close()


def unacknowledged(s):
    """Bytes that were sent and not acknowledged by the peer's kernel yet (tcp(7), SIOCOUTQ)."""
    return struct.unpack("i", fcntl.ioctl(s.fileno(), termios.TIOCOUTQ, b"\0" * 4))[0]


def fill(s, byte=b"y", still=0.4):
    """Sends until nothing moves any more; gives how much the peer's kernel has acknowledged."""
    s.setblocking(False)
    sent, seen, since = 0, -1, time.monotonic()
    while time.monotonic() - since < still:
        try:
            sent += s.send(byte * 65536)
        except BlockingIOError:
            time.sleep(0.01)
        if sent - unacknowledged(s) != seen:
            seen, since = sent - unacknowledged(s), time.monotonic()
    return seen
