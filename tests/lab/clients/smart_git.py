"""Smart HTTP for git: hands one request of web.py to `git http-backend` (a CGI program, RFC 3875) and its answer back.

Answers go out in chunks as they come, as the length of a pack is not known before.
"""
import os
import subprocess
import threading


def environment(r, root):
    path, _, query = r.path.partition("?")
    env = {"PATH": os.environ["PATH"], "GIT_PROJECT_ROOT": root, "GIT_HTTP_EXPORT_ALL": "1", "GIT_CONFIG_NOSYSTEM": "1",
           "GIT_CONFIG_GLOBAL": "/dev/null", "HOME": root, "REQUEST_METHOD": r.method, "PATH_INFO": path,
           "QUERY_STRING": query, "CONTENT_TYPE": r.get("content-type"),
           "HTTP_CONTENT_ENCODING": r.get("content-encoding"), "HTTP_GIT_PROTOCOL": r.get("git-protocol"),
           "REMOTE_ADDR": "192.0.2.1", "SERVER_PROTOCOL": r.version}
    if r.method == "POST":
        env["CONTENT_LENGTH"] = str(len(r.read_body()))
    return {name: value for name, value in env.items() if value}


def feed(process, body):
    try:
        process.stdin.write(body)
        process.stdin.close()
    except BrokenPipeError:
        pass  # it answered without reading all: its answer tells why


def serve(r, root):
    body = r.read_body()
    process = subprocess.Popen(["git", "http-backend"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                               env=environment(r, root))
    threading.Thread(target=feed, args=(process, body), daemon=True).start()
    status, fields = "200 OK", []
    for line in iter(process.stdout.readline, b"\r\n"):
        if not line:
            process.wait()
            return r.reply(500, b"no answer of git http-backend\n", reason="No Answer")
        name, _, value = line.decode("latin-1").rstrip("\r\n").partition(": ")
        if name.lower() == "status":
            status = value
        else:
            fields.append("%s: %s" % (name, value))
    r.conn.send("\r\n".join(["HTTP/1.1 " + status, *fields, "Transfer-Encoding: chunked", "", ""]).encode("latin-1"))
    while data := process.stdout.read1(1 << 16):
        r.conn.send(b"%x\r\n%s\r\n" % (len(data), data))
    process.wait()
    if process.returncode:
        raise OSError("git http-backend ended with %d" % process.returncode)  # no last chunk: the client sees it broken
    r.conn.send(b"0\r\n\r\n")
