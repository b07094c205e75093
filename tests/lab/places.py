"""Every address and name of the lab, in one table: the world is built from it and the tests speak of it.

The world answers for every address there is ("any-IP" routes): an address that is not named here exists and refuses
connections. So whatever the guard dials, the world sees.
"""

GUARD4, WORLD4 = "100.64.0.2", "100.64.0.1"
GUARD6, WORLD6 = "fd00:64::2", "fd00:64::1"
GUARD_MAC, WORLD_MAC = "02:00:00:00:00:02", "02:00:00:00:00:01"

# Public-looking addresses that the guard's own host has: refused as its own.
OWN4, OWN6 = "93.184.216.9", "2606:2800:220:1::9"

NET6 = "2606:2800:220:1::"

WEB4, WEB6 = "93.184.216.34", NET6 + "34"          # HTTP on 80, HTTPS on 443 (web.py)
ECHO4, ECHO6 = "93.184.216.35", NET6 + "35"        # raw echo on 80 and 443 (origin.c)
BULK4, BULK6 = "93.184.216.36", NET6 + "36"        # does what its first line says (origin_bulk.c)
BANNER4 = "93.184.216.37"                          # speaks first, then echoes
HOLD4 = "93.184.216.38"                            # accepts and never reads or writes
RESET4 = "93.184.216.39"                           # accepts and resets at once
CLOSE4 = "93.184.216.40"                           # accepts and closes at once
DRAIN4 = "93.184.216.41"                           # waits for the end of input, then answers with its count
LITERAL6 = "2606:4700:4700::1111"                  # web, dialed as a literal
DNS4, DNS6 = "93.184.216.53", NET6 + "53"          # scripted name server; asks PLAIN_DNS4 for what is not hostile
PLAIN_DNS4 = "93.184.216.54"                       # dnsmasq
UDP_DNS4 = "93.184.216.55"                         # the scripted server with its TCP port closed
SPOOF_DNS4 = "93.184.216.56"                       # where forged answers come from
DEAD_DNS4 = "93.184.216.57"                        # a black hole
UNREACHABLE4 = "93.184.216.58"                     # ICMP host unreachable
REFUSED4, REFUSED6 = "93.184.216.59", NET6 + "59"  # no listener
BLACKHOLE4, BLACKHOLE6 = "93.184.216.60", NET6 + "60"  # packets vanish

# origin.c: (address, behaviour); each on ports 80 and 443.
ORIGINS = [
    (ECHO4, "echo"), (ECHO6, "echo"), (BULK4, "bulk"), (BULK6, "bulk"), (BANNER4, "banner"), (HOLD4, "hold"),
    (RESET4, "reset"), (CLOSE4, "close"), (DRAIN4, "drain"),
]

# The ordinary zone, served by dnsmasq.
NAMES = {
    "example.org": [WEB4],
    "http.example.org": [WEB4],
    "tls.example.org": [WEB4],
    "files.example.org": [WEB4],
    "git.example.org": [WEB4],
    "www.example.org": [WEB4],
    "example.com": [WEB4],
    "allowed.example": [WEB4],
    "denied.example": [WEB4],
    "echo.example.org": [ECHO4],
    "bulk.example.org": [BULK4],
    "count.example.org": [BULK4],
    "banner.example.org": [BANNER4],
    "hold.example.org": [HOLD4],
    "reset.example.org": [RESET4],
    "close.example.org": [CLOSE4],
    "drain.example.org": [DRAIN4],
    "unreachable.example.org": [UNREACHABLE4],
    "refused.example.org": [REFUSED4],
    "blackhole.example.org": [BLACKHOLE4],
    "v6.example.org": [WEB6],
    "v6bulk.example.org": [BULK6],
    "both.example.org": [WEB4, WEB6],
    "bothbulk.example.org": [BULK4, BULK6],
    "deadv6.example.org": [WEB4, BLACKHOLE6],
    "refusedv6.example.org": [WEB4, REFUSED6],
    "many.example.org": [ECHO4, REFUSED4, WEB4, BLACKHOLE4],
    "own.example.org": [OWN4],
    "127.0.0.1.nip.example.org": ["127.0.0.1"],
    "169-254-169-254.sslip.example.org": ["169.254.169.254"],
}
# Wildcards (dnsmasq address=/NAME/): any name below.
WILD = {"wild.example.org": WEB4, "wildbulk.example.org": BULK4}

# Addresses that must never be dialed, with the code of their refusal. Where the world can listen on them it does, and
# records whoever comes.
FORBIDDEN = [
    ("0.0.0.0", "address_loopback"),
    ("0.1.2.3", "address_reserved"),
    ("10.0.0.5", "address_private"),
    ("10.255.255.255", "address_private"),
    ("100.64.0.1", "address_private"),
    ("100.127.255.254", "address_private"),
    ("100.100.100.200", "address_metadata"),
    ("127.0.0.1", "address_loopback"),
    ("127.8.8.8", "address_loopback"),
    ("127.255.255.254", "address_loopback"),
    ("169.254.169.254", "address_link_local"),
    ("169.254.170.2", "address_link_local"),
    ("169.254.0.1", "address_link_local"),
    ("172.16.0.1", "address_private"),
    ("172.31.255.255", "address_private"),
    ("192.0.0.1", "address_reserved"),
    ("192.0.0.9", "address_reserved"),
    ("192.0.0.170", "address_reserved"),
    ("192.0.2.1", "address_reserved"),
    ("192.31.196.1", "address_reserved"),
    ("192.52.193.1", "address_reserved"),
    ("192.88.99.1", "address_reserved"),
    ("192.168.1.1", "address_private"),
    ("192.175.48.1", "address_reserved"),
    ("198.18.0.1", "address_reserved"),
    ("198.19.255.255", "address_reserved"),
    ("198.51.100.7", "address_reserved"),
    ("203.0.113.9", "address_reserved"),
    ("224.0.0.1", "address_multicast"),
    ("239.255.255.250", "address_multicast"),
    ("240.0.0.1", "address_reserved"),
    ("255.255.255.255", "address_reserved"),
    ("168.63.129.16", "address_metadata"),
    ("::", "address_loopback"),
    ("::1", "address_loopback"),
    ("::127.0.0.1", "address_reserved"),
    ("::a9fe:a9fe", "address_reserved"),
    ("::ffff:10.0.0.5", "address_private"),
    ("::ffff:127.0.0.1", "address_loopback"),
    ("::ffff:169.254.169.254", "address_link_local"),
    ("::ffff:0:127.0.0.1", "address_reserved"),
    ("64:ff9b::a9fe:a9fe", "address_link_local"),
    ("64:ff9b::7f00:1", "address_loopback"),
    ("64:ff9b::a00:1", "address_private"),
    ("64:ff9b:1::1", "address_reserved"),
    ("64:ff9b:0:1::1", "address_reserved"),
    ("64:ff9c::1", "address_reserved"),
    ("100::1", "address_reserved"),
    ("100:0:0:1::1", "address_reserved"),
    ("2001::1", "address_reserved"),
    ("2001:0:4136:e378:8000:63bf:80ff:fffe", "address_reserved"),
    ("2001:2::1", "address_reserved"),
    ("2001:10::1", "address_reserved"),
    ("2001:20::1", "address_reserved"),
    ("2001:db8::1", "address_reserved"),
    ("2002:808:808::1", "address_reserved"),
    ("2620:4f:8000::1", "address_reserved"),
    ("2a00:1450:4001:800:0:5efe:a00:1", "address_private"),
    ("2a00:1450:4001:800:200:5efe:7f00:1", "address_loopback"),
    ("3fff::1", "address_reserved"),
    ("5f00::1", "address_reserved"),
    ("fc00::1", "address_private"),
    ("fd00:ec2::254", "address_metadata"),
    ("fd12:3456::1", "address_private"),
    ("fe80::1", "address_link_local"),
    ("fe80::a9fe:a9fe", "address_link_local"),
    ("febf::1", "address_link_local"),
    ("fec0::1", "address_reserved"),
    ("feff::1", "address_reserved"),
    ("ff02::1", "address_multicast"),
    ("ff0e::1", "address_multicast"),
]

WATCHED_PORTS = (22, 80, 443)
