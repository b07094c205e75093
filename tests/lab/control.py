"""Control sockets of the lab's programs: one JSON request a line, one JSON answer a line."""
import json
import os
import socket
import threading


def ask(path, **request):
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as s:
        s.settimeout(20)
        s.connect(path)
        s.sendall(json.dumps(request).encode() + b"\n")
        parts = []
        while True:
            part = s.recv(1 << 20)
            if not part:
                break
            parts.append(part)
    answer = json.loads(b"".join(parts))
    if isinstance(answer, dict) and "error" in answer:
        raise RuntimeError("%s: %s" % (path, answer["error"]))
    return answer


def listen(path):
    """The socket appears under its name only once it accepts: its existence is the sign of readiness."""
    s = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    s.bind(path + ".new")
    s.listen(64)
    os.rename(path + ".new", path)
    return s


def answer(connection, handle):
    try:
        with connection, connection.makefile("rwb") as f:
            line = f.readline()
            try:
                result = handle(**json.loads(line))
            except Exception as e:  # told to whoever asked
                result = {"error": "%s: %s" % (type(e).__name__, e)}
            f.write(json.dumps(result).encode() + b"\n")
    except OSError:
        pass


def serve(listener, handle):
    while True:
        connection, _ = listener.accept()
        answer(connection, handle)


def serve_in_thread(path, handle):
    threading.Thread(target=serve, args=(listen(path), handle), daemon=True).start()
