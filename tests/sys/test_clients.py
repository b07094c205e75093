"""Programs as people use them: each fetches through the guard, and each shows the reason when it is refused.

They get the proxy from http_proxy and https_proxy, in lower case, the only spelling that all of them read. What a
program can show of a refusal differs: all of a plain answer or only its reason phrase, and of a CONNECT the phrase, or
no more than the number. The phrase that must be shown is the one on the wire, which the test asks the guard for itself.

Every run has a folder of its own as home, and nothing of the host's configuration. tests/packages lists the programs:
one that is missing is a failure.
"""
import itertools
import os
import shutil
import subprocess
import sys

import pytest

import places
from guard import Guard
from wire import Client, connect_head, refused, request as request_head

CLIENTS = os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "lab", "clients")
sys.path.insert(0, CLIENTS)
import content  # noqa: E402

PYTHON = "/usr/bin/python3"
SCHEMES = {"http": 80, "https": 443}
SECONDS = 30
POLICY = """version: 1
roles:
  agent:
    allow:
      - %s
      - git.example.org
      - "*.wild.example.org"
      - "*.hostile.example"
    unmatched: refuse
""" % content.SITE
serial = itertools.count()


class Run:
    """One use of a program: the site it is sent to, its folder, and what came of it."""
    def __init__(self, guard, lab, folder, scheme, host):
        self.guard, self.lab, self.folder, self.scheme, self.host = guard, lab, str(folder), scheme, host
        self.url = "%s://%s" % (scheme, host)
        self.output, self.status = "", None
        proxy = "http://127.0.0.1:%d" % guard.port
        self.env = {
            "PATH": os.environ["PATH"], "HOME": self.folder, "TMPDIR": self.folder, "LANG": "C.UTF-8",
            "http_proxy": proxy, "https_proxy": proxy, "CURL_CA_BUNDLE": lab.ca, "GIT_SSL_CAINFO": lab.ca,
            "SSL_CERT_FILE": lab.ca, "REQUESTS_CA_BUNDLE": lab.ca, "NODE_EXTRA_CA_CERTS": lab.ca,
        }

    def path(self, *names):
        return os.path.join(self.folder, *names)

    def read(self, *names):
        with open(self.path(*names), "rb") as f:
            return f.read()

    def write(self, name, text):
        os.makedirs(os.path.dirname(self.path(name)), exist_ok=True)
        with open(self.path(name), "w") as f:
            f.write(text)
        return self.path(name)

    def run(self, *words, given="", **env):
        if not shutil.which(words[0]):
            pytest.fail("%s is not installed; tests/deps installs what tests/packages lists" % words[0])
        done = subprocess.run(words, cwd=self.folder, env=dict(self.env, **env), input=given, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, errors="replace", timeout=SECONDS)
        self.output += done.stdout
        self.status = done.returncode
        return done.returncode == 0


# --- the programs: each runs, and gives what it fetched ---

def curl(r):
    r.run("curl", "-q", "-sS", "-w", "\n<%{http_connect} %{http_code}>\n", r.url + "/secret")
    return r.output


def wget(r):
    if r.run("wget", "--ca-certificate", r.lab.ca, "-O", "got", r.url + "/secret"):
        return r.read("got").decode()


def git_env(r):
    r.env.update(GIT_CONFIG_NOSYSTEM="1", GIT_TERMINAL_PROMPT="0", GIT_AUTHOR_NAME="Lab", GIT_COMMITTER_NAME="Lab",
                 GIT_AUTHOR_EMAIL="lab@example.org", GIT_COMMITTER_EMAIL="lab@example.org")


def git(r):
    git_env(r)
    if r.run("git", "clone", "%s/%s" % (r.url, content.REPOSITORY), "clone"):
        assert r.read("clone", "blob") == content.BLOB
        return r.read("clone", "secret").decode()


def apt(r):
    """Lists, cache, state and configuration of the run's own: the host's are not read and not written."""
    for name in ("state/lists/partial", "cache/archives/partial", "log", "etc/apt.conf.d", "etc/preferences.d",
                 "etc/trusted.gpg.d"):
        os.makedirs(r.path(name))
    r.write("state/status", "")
    r.write("etc/sources.list", "deb [trusted=yes] %s/apt ./\n" % r.url)
    settings = {"Dir::Etc": r.path("etc/"), "Dir::State": r.path("state"), "Dir::State::status": r.path("state/status"),
                "Dir::Cache": r.path("cache"), "Dir::Log": r.path("log"), "APT::Sandbox::User": "root",
                "Acquire::https::CaInfo": r.lab.ca, "Acquire::Languages": "none", "Acquire::Retries": "0",
                "APT::Update::Error-Mode": "any"}
    r.env["APT_CONFIG"] = r.write("apt.conf", "".join('%s "%s";\n' % s for s in settings.items()))
    deb = "%s_%s_all.deb" % (content.NAME, content.VERSION)
    if r.run("apt-get", "update") and r.run("apt-get", "download", content.NAME):
        assert r.run("dpkg-deb", "-x", deb, "deb"), r.output
        return r.read("deb/usr/share", content.NAME, "secret").decode()


def pip(r):
    """Of a refusal over http it speaks only when told to say all (-vv), of one over https when it tries again."""
    more = ["-vv", "--trusted-host", r.host.split(":")[0]] if r.scheme == "http" else ["--cert", r.lab.ca]
    if r.run(PYTHON, "-m", "pip", "--isolated", "--no-cache-dir", "--disable-pip-version-check", "install",
             "--retries", "1", "--no-deps", "--target", "site", "--index-url", r.url + "/simple", *more, content.NAME):
        return r.read("site", content.MODULE + ".py").decode()


def npm(r):
    r.write("package.json", "{}")
    if r.run("npm", "install", "--registry", "%s/npm/%s/" % (r.url, r.scheme), "--cafile", r.lab.ca,
             "--cache", r.path("cache"), "--globalconfig", r.path("none"), "--no-audit", "--no-fund",
             "--no-update-notifier", content.NAME):
        return r.read("node_modules", content.NAME, "index.js").decode()


def node_fetch(r):
    r.run("node", CLIENTS + "/fetch.js", r.url + "/secret", NODE_PATH="/usr/share/nodejs", NODE_USE_ENV_PROXY="1")
    return r.output


def node_tunnel(r):
    r.run("node", CLIENTS + "/tunnel.js", r.url + "/secret")
    return r.output


def urllib(r):
    r.run(PYTHON, CLIENTS + "/get_urllib.py", r.url + "/secret")
    return r.output


def requests(r):
    r.run(PYTHON, CLIENTS + "/get_requests.py", r.url + "/secret")
    return r.output


def openssl(r):
    host, _, port = r.host.partition(":")
    r.run("openssl", "s_client", "-proxy", "127.0.0.1:%d" % r.guard.port, "-connect", "%s:%s" % (host, port or 443),
          "-servername", host, "-quiet", "-CAfile", r.lab.ca, "-verify_return_error",
          given="GET /secret HTTP/1.0\r\nHost: %s\r\n\r\n" % content.SITE)
    return r.output


class Shows:
    """What one program does when refused: exit status, what it prints ({phrase}, {code}, {url}), the method and the
    version of its request, and how often it asks (None: as often as it likes)."""
    def __init__(self, status, *texts, method="CONNECT", version="1.1", asks=1):
        self.status, self.texts, self.method, self.version, self.asks = status, texts, method, version, asks


CURL_TUNNEL = "CONNECT tunnel failed, response 403"
PYTHON_TUNNEL = "Tunnel connection failed: 403 {phrase}"
PROGRAMS = {
    curl: {
        "http": Shows(0, "{phrase}\nretry: no", "<000 403>", method="GET"),
        "https": Shows(56, "curl: (56) " + CURL_TUNNEL, "<403 000>"),
    },
    wget: {
        "http": Shows(8, "ERROR 403: {phrase}.", method="GET"),
        "https": Shows(4, "Proxy tunneling failed: {phrase}"),
    },
    git: {
        "http": Shows(128, "remote: {phrase}\n", "The requested URL returned error: 403", method="GET"),
        "https": Shows(128, "fatal: unable to access '{url}/%s/': %s" % (content.REPOSITORY, CURL_TUNNEL)),
    },
    apt: {
        "http": Shows(100, "  403  {phrase} [IP: 127.0.0.1", method="GET", asks=None),
        "https": Shows(100, "Invalid response from proxy: HTTP/1.1 403 {phrase}", "X-Egress-Reason: {code}"),
    },
    pip: {
        "http": Shows(1, "403 Client Error: {phrase} for url: {url}/", "No matching distribution", method="GET"),
        "https": Shows(1, "OSError('%s')" % PYTHON_TUNNEL, "No matching distribution", version="1.0", asks=2),
    },
    npm: {
        "http": Shows(1, "code E403", " 403 {phrase} - GET {url}/", method="GET"),
        "https": Shows(1, "code E403", " 403 {phrase} - GET {url}/"),
    },
    # It asks for a tunnel to port 80 too, and shows neither number nor phrase; from Node 20 on, at least that the proxy
    # did not answer 200.
    node_fetch: {
        "http": Shows(4, "TypeError: fetch failed", "Request was cancelled."),
        "https": Shows(4, "TypeError: fetch failed", "Request was cancelled."),
    },
    node_tunnel: {
        "http": Shows(3, "403 {phrase} [{code}]"),
        "https": Shows(3, "403 {phrase} [{code}]"),
    },
    urllib: {
        "http": Shows(1, "HTTP Error 403: {phrase}\n", "{phrase}\nretry: no", method="GET"),
        "https": Shows(1, "<urlopen error %s>" % PYTHON_TUNNEL, version="1.0"),
    },
    requests: {
        "http": Shows(1, "403 Client Error: {phrase} for url: {url}/secret", "{phrase}\nretry: no", method="GET"),
        "https": Shows(1, "OSError('%s')" % PYTHON_TUNNEL, version="1.0"),
    },
    openssl: {
        "https": Shows(1, " 403 {phrase}", version="1.0"),
    },
}
USES = [(program, scheme) for program, schemes in PROGRAMS.items() for scheme in schemes]
NAMED = ["%s-%s" % (program.__name__, scheme) for program, scheme in USES]


@pytest.fixture(scope="module")
def site(lab, tmp_path_factory, request):
    """The guard, with all that is fetched in its place."""
    content.make(lab.files, lab.dir + "/git", str(tmp_path_factory.mktemp("content")))
    g = Guard(lab, tmp_path_factory.mktemp("clients"), policy=POLICY)
    request.module.shared_guards = [g]
    yield g
    try:
        g.stop()
    finally:
        g.kill()


def refusal(guard, scheme, host):
    """The guard's refusal of such a request as it is on the wire, and its record in the log. The log has one order:
    when this record is there, so is that of every request answered before."""
    name, _, port = host.partition(":")
    target = "%s:%s" % (name, port or SCHEMES[scheme])
    with Client(guard.port) as c:
        c.send(connect_head(target) if scheme == "https" else request_head("http://%s/" % target))
        return refused(c.rest()), guard.records_of(c, action="egress-refused")[0]


def settled(guard):
    """All that was logged so far."""
    refusal(guard, "https", "settled.denied.example")
    return guard.log()


# --- allowed ---

@pytest.mark.parametrize("program,scheme", USES, ids=NAMED)
def test_fetches(site, lab, tmp_path, mark, program, scheme):
    seen = len(settled(site))
    host = "git.example.org" if program is git else content.SITE
    r = Run(site, lab, tmp_path, scheme, host)
    got = program(r)
    assert r.status == 0, r.output
    assert content.SECRET in got, (got, r.output)
    allowed = [a for a in settled(site)[seen:] if a["event.action"] == "egress-allowed"]
    assert {(a["destination.address"], a["destination.port"]) for a in allowed} == {(host, SCHEMES[scheme])}
    shows = PROGRAMS[program][scheme]
    assert {(a["http.request.method"] == "CONNECT", a["http.version"]) for a in allowed} == {
        (shows.method == "CONNECT", shows.version)}
    dialed = mark.dialed()  # and the program went nowhere by itself
    assert set(dialed) == {(places.WEB4, SCHEMES[scheme])} and len(dialed) <= len(allowed), (dialed, allowed)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_git_push(site, lab, tmp_path, mark, scheme):
    """More than fits into one buffer of git goes out in chunks, of a length unknown before."""
    size = 3 << 20
    r = Run(site, lab, tmp_path, scheme, "git.example.org")
    git(r)
    with open(r.path("clone", "pushed"), "wb") as f:
        f.write(os.urandom(size))
    branch = "refs/heads/push-" + scheme
    for words in (["add", "pushed"], ["commit", "-q", "-m", "more"], ["push", "origin", "HEAD:" + branch]):
        assert r.run("git", "-C", "clone", *words), r.output
    bare = "--git-dir=%s/git/%s" % (lab.dir, content.REPOSITORY)
    r.output = ""
    assert r.run("git", "-C", "clone", "rev-parse", "HEAD") and r.run("git", bare, "rev-parse", branch), r.output
    ours, theirs = r.output.split()
    assert ours == theirs
    assert r.run("git", bare, "fsck", "--strict", theirs), r.output
    packs = [q for q in mark.requests() if q["line"].startswith("POST /%s/git-receive-pack" % content.REPOSITORY)]
    largest = max(packs, key=lambda q: q["body_bytes"])
    assert largest["body_bytes"] > size
    assert dict((n.lower(), v) for n, v in largest["fields"])["transfer-encoding"] == "chunked"


# --- refused ---

# Each test has a name of its own: its records and its queries are told from all others.

def host_not_on_the_list():
    return "c%d.denied.example" % next(serial), "host_not_allowed"


def name_with_a_private_address():
    return "c%d.private.hostile.example" % next(serial), "address_private"


def other_port():
    return "c%d.wild.example.org:8080" % next(serial), "port_not_allowed"


@pytest.mark.parametrize("case", [host_not_on_the_list, name_with_a_private_address, other_port])
@pytest.mark.parametrize("program,scheme", USES, ids=NAMED)
def test_shows_why_it_was_refused(site, lab, tmp_path, mark, program, scheme, case):
    host, code = case()
    shows = PROGRAMS[program][scheme]
    name, _, port = host.partition(":")
    r = Run(site, lab, tmp_path, scheme, host)
    program(r)
    if code == "address_private":  # looked up, as it must be, and not dialed
        assert mark.dialed() == [] and set(mark.queries()) == {name}
    else:
        mark.silent()
    assert r.status == shows.status, r.output
    wire, own = refusal(site, scheme, host)
    phrase = wire.reason
    assert (wire.status, wire.code) == (403, code) and phrase.startswith("egress refused: " + name)
    for text in shows.texts:
        assert text.format(phrase=phrase, code=code, url=r.url) in r.output, r.output
    asked = [a for a in site.log(domain=name) if a["event.id"] != own["event.id"]]
    assert {(a["event.action"], a["event.reason"], a["destination.port"]) for a in asked} == {
        ("egress-refused", code, int(port or SCHEMES[scheme]))}
    assert {(a["http.request.method"], a["http.version"]) for a in asked} == {(shows.method, shows.version)}
    assert len(asked) == shows.asks or shows.asks is None, "asked %d times" % len(asked)


def test_curl_shows_the_fields_of_a_refused_tunnel(site, lab, tmp_path, mark):
    r = Run(site, lab, tmp_path, "https", "denied.example")
    assert not r.run("curl", "-q", "-sS", "-v", r.url)
    mark.silent()
    wire, _ = refusal(site, "https", r.host)
    assert r.status == 56
    for line in ("HTTP/1.1 403 " + wire.reason, "X-Egress-Reason: host_not_allowed",
                 "Proxy-Status: " + wire.get("Proxy-Status")):
        assert "< " + line in r.output.split("\n"), r.output
    assert "error=http_request_denied" in wire.get("Proxy-Status")


@pytest.mark.parametrize("scheme", SCHEMES)
def test_curl_fails_when_it_is_told_to(site, lab, tmp_path, scheme):
    r = Run(site, lab, tmp_path, scheme, "denied.example")
    r.run("curl", "-q", "-sS", "--fail", r.url)
    assert (r.status, r.output) == (22, "curl: (22) The requested URL returned error: 403\n")


def test_apt_update_with_its_defaults_ends_well_and_shows_it(site, lab, tmp_path):
    """It takes what cannot be fetched for a passing failure: a warning and status 0. So the text must say it all."""
    r = Run(site, lab, tmp_path, "https", "denied.example")
    apt(r)
    r.output = ""
    assert r.run("apt-get", "-o", "APT::Update::Error-Mode=persistent", "update"), r.output
    assert "W: Failed to fetch" in r.output and "(host_not_allowed)" in r.output
