"""world.py DIR BIN - the far side of the lab: addresses, routes and the programs that answer there.

Runs in its own network namespace. Says DIR/world.netns when that exists, waits for the veth pair (DIR/link.ready),
and says DIR/world.ready when every program serves. If one of them ends, so does the world, and the reason is in
DIR/world.log.
"""
import ipaddress
import os
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.realpath(__file__)))
import places  # noqa: E402

HERE = os.path.dirname(os.path.realpath(__file__))
DIR, BIN = sys.argv[1:3]
PYTHON = "/usr/bin/python3"


def sh(*words, must=True):
    done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode and must:
        sys.exit("world: %s: %s" % (" ".join(words), done.stdout.strip()))


def touch(name):
    open(os.path.join(DIR, name), "w").close()


def wait_for(path, process=None):
    for _ in range(400):
        if os.path.exists(path):
            return
        if process and process.poll() is not None:
            break
        time.sleep(0.025)
    sys.exit("world: no " + path)


def sysctl(name, value):
    try:
        with open("/proc/sys/" + name.replace(".", "/"), "w") as f:
            f.write(value)
    except OSError:
        pass


def network():
    sh("ip", "link", "set", "lo", "up")
    for name, value in (("net.ipv4.tcp_congestion_control", "reno"), ("net.core.somaxconn", "8192"),
                        ("net.ipv4.tcp_max_syn_backlog", "8192"), ("net.ipv6.conf.default.accept_dad", "0"),
                        ("net.ipv4.conf.all.rp_filter", "0"), ("net.ipv4.conf.world0.rp_filter", "0"),
                        ("net.ipv4.tcp_tw_reuse", "1"), ("net.ipv4.ip_forward", "1"),
                        ("net.ipv4.ip_nonlocal_bind", "1"), ("net.ipv6.ip_nonlocal_bind", "1"),
                        ("net.ipv6.conf.all.forwarding", "1"), ("net.ipv4.tcp_rmem", "4096 131072 6291456"),
                        ("net.ipv4.tcp_wmem", "4096 16384 4194304"), ("net.ipv4.icmp_ratelimit", "0"),
                        ("net.ipv6.icmp.ratelimit", "0")):
        sysctl(name, value)
    sh("ip", "addr", "add", places.WORLD4 + "/30", "dev", "world0")
    sh("ip", "addr", "add", places.WORLD6 + "/64", "dev", "world0", "nodad")
    sh("ip", "link", "set", "world0", "up")
    for address in (places.GUARD4, places.GUARD6):
        sh("ip", "neigh", "replace", address, "lladdr", places.GUARD_MAC, "dev", "world0", "nud", "permanent")
    # Any-IP: whatever the guard dials is an address of this host. The guard's own subnet is more specific.
    sh("ip", "route", "add", "local", "0.0.0.0/0", "dev", "lo", "table", "main")
    sh("ip", "-6", "route", "add", "local", "::/0", "dev", "lo", "table", "main")
    for address, kind in ((places.BLACKHOLE4, "blackhole"), (places.DEAD_DNS4, "blackhole"),
                          (places.UNREACHABLE4, "unreachable"), (places.BLACKHOLE6, "blackhole")):
        family = ["-6"] if ":" in address else []
        sh("ip", *family, "route", "add", kind, address, "table", "main")
    sh("ip", "addr", "add", places.PLAIN_DNS4 + "/32", "dev", "lo")  # dnsmasq wants to see its address


def certificates():
    """A certificate authority and one certificate for the names of the lab, fresh in each run."""
    key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "30"]
    sh("openssl", "req", "-x509", *key, "-subj", "/CN=Laboratory CA", "-keyout", DIR + "/ca.key", "-out", DIR + "/ca.pem",
       "-addext", "basicConstraints=critical,CA:TRUE", "-addext", "keyUsage=critical,keyCertSign,cRLSign")
    names = ["example.org", "*.example.org", "example.com", "*.example.com", "allowed.example", "*.wild.example.org"]
    alt = ",".join(["DNS:" + n for n in names] + ["IP:" + places.WEB4, "IP:" + places.WEB6, "IP:" + places.LITERAL6])
    with open(DIR + "/tls.ext", "w") as f:
        f.write("subjectAltName=%s\nbasicConstraints=CA:FALSE\nextendedKeyUsage=serverAuth\n" % alt)
    sh("openssl", "req", *key, "-subj", "/CN=example.org", "-keyout", DIR + "/tls.key", "-out", DIR + "/tls.csr")
    sh("openssl", "x509", "-req", "-in", DIR + "/tls.csr", "-CA", DIR + "/ca.pem", "-CAkey", DIR + "/ca.key", "-days", "30",
       "-CAcreateserial", "-extfile", DIR + "/tls.ext", "-out", DIR + "/tls.pem")
    with open(DIR + "/ca-bundle.pem", "w") as f:
        f.write(open(DIR + "/ca.pem").read())


def dnsmasq_config():
    lines = ["no-daemon", "no-resolv", "no-hosts", "no-poll",
             "listen-address=" + places.PLAIN_DNS4, "bind-interfaces", "port=53", "cache-size=0", "local-ttl=60",
             "dns-forward-max=10000", "local=/example.org/", "local=/example.com/", "local=/example/", "local=/#/"]
    for name, addresses in places.NAMES.items():
        lines += ["host-record=%s,%s,60" % (name, a) for a in addresses]
    lines += ["address=/%s/%s" % wild for wild in places.WILD.items()]
    path = DIR + "/dnsmasq.conf"
    with open(path, "w") as f:
        f.write("\n".join(lines) + "\n")
    return path


def watched():
    """Forbidden addresses on which a socket can be bound here."""
    for text, _ in places.FORBIDDEN:
        address = ipaddress.ip_address(text)
        mapped = getattr(address, "ipv4_mapped", None)
        if mapped or address.is_loopback or address.is_multicast or address.is_unspecified or address.is_link_local and \
                address.version == 6:
            continue
        if text in ("255.255.255.255", places.WORLD4):
            continue
        yield text


def main():
    touch("world.netns")
    wait_for(DIR + "/link.ready")
    network()
    certificates()
    origins = []
    for address, behaviour in places.ORIGINS:
        origins += ["%s,%s,%s" % (address, port, behaviour) for port in (80, 443)]
    for address in watched():
        origins += ["%s,%s,watch" % (address, port) for port in places.WATCHED_PORTS]
    with open(DIR + "/origins", "w") as f:
        f.write("\n".join(origins) + "\n")
    programs = {
        "dnsmasq": ["dnsmasq", "-C", dnsmasq_config()],
        "origin": [BIN + "/origin", DIR + "/origin.sock", DIR + "/origins"],
        "web": [PYTHON, HERE + "/web.py", DIR],
        "names": [PYTHON, HERE + "/names.py", DIR + "/names.sock"],
    }
    environment = dict(os.environ, PATH=os.environ.get("PATH", "") + ":/usr/sbin:/sbin")
    running = {name: subprocess.Popen(words, env=environment) for name, words in programs.items()}
    for name in ("origin", "web", "names"):
        wait_for("%s/%s.sock" % (DIR, name), running[name])
    time.sleep(0.1)
    if running["dnsmasq"].poll() is not None:
        sys.exit("world: dnsmasq ended")
    touch("world.ready")
    pid, status = os.wait()
    ended = [name for name, p in running.items() if p.pid == pid]
    sys.exit("world: %s ended with status %d" % (ended, status))


main()
