"""The real guard, started for a test: its files, its log, its metrics, its end."""
import json
import os
import re
import resource
import signal
import socket
import subprocess
import time
import urllib.request

from lab import eventually

TOP = os.path.realpath(os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", ".."))
BINARY = os.environ.get("GUARD_BIN", os.path.join(TOP, ".build", "plain", "egress-guard"))
SANITIZER = re.compile(r"(AddressSanitizer|LeakSanitizer|ThreadSanitizer|MemorySanitizer|runtime error:|SUMMARY: )")


def is_sanitized():
    try:
        with open(BINARY, "rb") as f:
            return re.search(rb"__(asan|tsan|ubsan)_", f.read()) is not None
    except OSError:
        return False


SANITIZED = is_sanitized()
# What a sanitizer keeps back beside the guard's own memory, in bytes, for tests that bound it.
SLACK = 64 << 20 if SANITIZED else 0

# Whatever is public may be reached; two names may not.
OPEN = """version: 1
roles:
  agent:
    allow:
      - address: 0.0.0.0/1
      - address: 128.0.0.0/1
      - address: "::/1"
      - address: "8000::/1"
    deny:
      - denied.example
      - "*.denied.example"
    unmatched: allow
"""

DEFAULTS = {
    "workers": 2,
    "timeouts": {"head": "5s", "connect": "2s", "idle": "60s", "half_open": "30s", "drain": "2s"},
    "resolver": {"timeout": "400ms", "tries": 2, "cache": 10000},
    "log": {"level": "info"},
}


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def scalar(value):
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    return '"%s"' % str(value).replace("\\", "\\\\").replace('"', '\\"')


def yaml(value, indent=0):
    """Block-style YAML of maps, lists of maps or scalars, and scalars."""
    pad, lines = "  " * indent, []
    for key, v in value.items():
        if isinstance(v, dict):
            lines += ["%s%s:" % (pad, key), yaml(v, indent + 1)]
        elif isinstance(v, list) and v and isinstance(v[0], dict):
            lines.append("%s%s:" % (pad, key))
            for item in v:
                inner = yaml(item, indent + 2).split("\n")
                lines += ["%s  - %s" % (pad, inner[0].strip())] + inner[1:]
        elif isinstance(v, list):
            lines.append("%s%s: [%s]" % (pad, key, ", ".join(scalar(i) for i in v)))
        else:
            lines.append("%s%s: %s" % (pad, key, scalar(v)))
    return "\n".join(lines)


def merged(base, more):
    out = dict(base)
    for key, value in more.items():
        out[key] = merged(out[key], value) if isinstance(value, dict) and isinstance(out.get(key), dict) else value
    return {k: v for k, v in out.items() if v is not None}


def field(record, path):
    for name in path.split("."):
        if not isinstance(record, dict) or name not in record:
            return None
        record = record[name]
    return record


class Record(dict):
    """A line of the access log; ["event.action"] looks through the nesting."""
    def __getitem__(self, path):
        return field(dict(self), path)


class Guard:
    """`config` is merged into DEFAULTS (None removes a key); text is taken as it is."""
    def __init__(self, lab, folder, policy=OPEN, config=None, env=None, files=None, wait=True, verb=("serve",)):
        self.lab, self.folder = lab, str(folder)
        os.makedirs(self.folder, exist_ok=True)
        self.port, self.metrics_port = free_port(), free_port()
        lab.own_ports |= {self.port, self.metrics_port}
        self.policy_file = self.folder + "/policy.yaml"
        self.config_file = self.folder + "/egress-guard.yaml"
        self.log_file = self.folder + "/access.log"
        self.stderr_file = self.folder + "/stderr"
        self.write_policy(policy)
        if isinstance(config, str):
            text = config
        else:
            own = {"listen": [{"address": "127.0.0.1:%d" % self.port, "role": "agent"}], "policy": "policy.yaml",
                   "metrics": "127.0.0.1:%d" % self.metrics_port, "log": {"access": self.log_file}}
            text = yaml(merged(merged(DEFAULTS, own), config or {})) + "\n"
        with open(self.config_file, "w") as f:
            f.write(text)
        self.checked = False
        self.start(env, files, verb)
        if wait:
            self.wait_ready()

    def start(self, env, files, verb):
        def limit():
            if files:
                resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))
        env = dict({"ASAN_OPTIONS": "quarantine_size_mb=8"} if SANITIZED else {}, **(env or {}))
        env = dict(env, ASAN_OPTIONS=os.environ["ASAN_OPTIONS"]) if "ASAN_OPTIONS" in os.environ else env
        with open(self.stderr_file, "w") as err:
            self.process = subprocess.Popen([BINARY, *verb, "--config", self.config_file], stdin=subprocess.DEVNULL,
                                            stdout=err, stderr=err, preexec_fn=limit, env=dict(os.environ, **env))

    def wait_ready(self):
        until = time.monotonic() + (30 if SANITIZED else 10)
        while time.monotonic() < until:
            if self.process.poll() is not None:
                raise AssertionError("the guard ended with %d: %s" % (self.process.returncode, self.stderr()))
            try:
                for port in (self.port, self.metrics_port):
                    socket.create_connection(("127.0.0.1", port), 1).close()
                break
            except OSError:
                time.sleep(0.02)
        else:
            raise AssertionError("the guard does not listen: " + self.stderr())
        eventually(lambda: self.metric("egress_guard_connections") == 0, 2)

    def write_policy(self, text):
        """The way an administrator's editor does it: a new file takes the old one's name."""
        with open(self.policy_file + ".new", "w") as f:
            f.write(text)
        os.rename(self.policy_file + ".new", self.policy_file)

    # --- what it tells ---

    def stderr(self):
        with open(self.stderr_file, errors="replace") as f:
            return f.read()

    def lines(self):
        """Every line of its log file, parsed; a line that is no JSON fails."""
        if not os.path.exists(self.log_file):
            return []
        with open(self.log_file, encoding="utf-8") as f:
            text = f.read()
        whole = text.rsplit("\n", 1)[0] if "\n" in text else ""
        return [Record(json.loads(line)) for line in whole.split("\n") if line]

    def log(self, action=None, domain=None):
        """Access lines, by their action ("egress-allowed", "egress-refused", "egress-ended") and asked host."""
        return [r for r in self.lines() if r["event.dataset"] == "egress_guard.access"
                and (action is None or r["event.action"] == action)
                and (domain is None or r["destination.address"] == domain)]

    def records_of(self, client, n=1, action="egress-ended", timeout=5):
        """The n records of one client connection (a wire.Client), waited for. Ports come again: its time counts too."""
        found = eventually(lambda: (lambda r: r if len(r) >= n else None)(
            [r for r in self.log(action) if r["source.port"] == client.port and r["@timestamp"] >= client.since]), timeout)
        assert found and len(found) == n, "%d records %s wanted: %s" % (n, action, found)
        return found

    def ended(self, client, timeout=5):
        return self.records_of(client, timeout=timeout)[0]

    def events(self, action=None):
        return [r for r in self.lines() if r["event.dataset"] != "egress_guard.access"
                and (action is None or r["event.action"] == action)]

    def wait_log(self, n, action, domain=None, timeout=5):
        found = eventually(lambda: (lambda r: r if len(r) >= n else None)(self.log(action, domain)), timeout)
        assert found and len(found) == n, "%d lines of %s %s wanted, these came: %s" % (
            n, action, domain or "", self.log(action, domain)[-3:])
        return found

    def scrape(self):
        with urllib.request.urlopen("http://127.0.0.1:%d/metrics" % self.metrics_port, timeout=5) as r:
            return r.read().decode()

    def metrics(self):
        """{'name{labels}': value} of /metrics."""
        out = {}
        for line in self.scrape().splitlines():
            if line and not line.startswith("#"):
                name, value = line.rsplit(" ", 1)
                out[name] = float(value)
        return out

    def metric(self, name):
        return self.metrics().get(name, 0)

    def decided(self, code):
        """How many requests were decided with a code."""
        return sum(v for k, v in self.metrics().items() if "decisions_total" in k or "requests_total" in k
                   if 'reason="%s"' % code in k or 'code="%s"' % code in k)

    def quiet(self, timeout=10):
        """Waits until no client connection is open."""
        assert eventually(lambda: self.metric("egress_guard_connections") == 0, timeout), \
            "connections left: %s" % self.metric("egress_guard_connections")

    # --- what the kernel tells of it ---

    def status(self, key):
        with open("/proc/%d/status" % self.process.pid) as f:
            return int(re.search(r"^%s:\s+(\d+)" % key, f.read(), re.M).group(1))

    def rss(self):
        """Resident memory in bytes."""
        return self.status("VmRSS") * 1024

    def fds(self):
        return len(os.listdir("/proc/%d/fd" % self.process.pid))

    def cpu(self):
        with open("/proc/%d/stat" % self.process.pid) as f:
            words = f.read().rsplit(") ", 1)[1].split()
        return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")

    def sockets(self, state="CLOSE-WAIT"):
        out = subprocess.run(["ss", "-tanHp", "state", state.lower()], capture_output=True, text=True).stdout
        return [line for line in out.splitlines() if "pid=%d," % self.process.pid in line]

    # --- its life ---

    def signal(self, number):
        self.process.send_signal(number)

    def reload(self, policy=None, ok=True):
        """SIGHUP, and the word of the guard about it."""
        if policy is not None:
            self.write_policy(policy)
        name = 'egress_guard_policy_reloads_total{outcome="%s"}' % ("success" if ok else "failure")
        before = self.metric(name)
        self.signal(signal.SIGHUP)
        assert eventually(lambda: self.metric(name) == before + 1, 10), "no reload (%s): %s" % (name, self.scrape())

    def alive(self):
        return self.process.poll() is None

    def stop(self, timeout=15):
        """SIGTERM; it must end with 0, and no sanitizer may have spoken."""
        if self.alive():
            self.signal(signal.SIGTERM)
        try:
            self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            self.signal(signal.SIGABRT)
            self.process.wait(5)
            raise AssertionError("did not end within %d s of SIGTERM: %s" % (timeout, self.stderr()[-3000:]))
        self.check_end()

    def check_end(self):
        if self.checked:
            return
        self.checked = True
        text = self.stderr()
        assert not SANITIZER.search(text), text[-8000:]
        assert self.process.returncode == 0, "ended with %s: %s" % (self.process.returncode, text[-3000:])

    def kill(self):
        if self.alive():
            self.process.kill()
            self.process.wait()
