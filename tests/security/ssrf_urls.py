"""URLs by which a server was made to connect to its own network, in families: each a way to write an address.

The addresses are those that attackers are after; each way is applied to all of them. Host names that only a hostile DNS
answer makes dangerous are in `NAMES`, with their answers.
"""

from collections.abc import Iterator, Mapping
from ipaddress import IPv4Address
from typing import Final

INNER: Final = ("127.0.0.1", "169.254.169.254", "10.0.0.1", "192.168.1.1", "172.16.0.1", "100.100.100.200", "0.0.0.0")
"""IPv4 addresses that no request may reach: this machine, metadata services, private networks."""

NAMES: Final[Mapping[str, tuple[str, ...]]] = {
    "127.0.0.1.nip.io": ("127.0.0.1",),
    "169.254.169.254.nip.io": ("169.254.169.254",),
    "localtest.me": ("127.0.0.1",),
    "spoofed.burpcollaborator.example": ("127.0.0.1",),
    "six.example.org": ("::1",),
    "mapped.example.org": ("::ffff:10.0.0.1",),
    "nat64.example.org": ("64:ff9b::a9fe:a9fe",),
    "sixtofour.example.org": ("2002:7f00:1::",),
    "teredo.example.org": ("2001:0:a9fe:a9fe::1",),
    "isatap.example.org": ("2001:470::5efe:7f00:1",),
    "compatible.example.org": ("::7f00:1",),
    "unique-local.example.org": ("fd00::1",),
    "metadata.example.org": ("fd00:ec2::254",),
    "zone.example.org": ("fe80::1%eth0",),
    "multicast.example.org": ("224.0.0.1",),
    "broadcast.example.org": ("255.255.255.255",),
    "shared.example.org": ("100.64.0.1",),
    "unspecified.example.org": ("0.0.0.0", "::"),
    "mixed.example.org": ("93.184.216.34", "127.0.0.1"),
    "mixed-six.example.org": ("2606:4700:4700::1111", "::1"),
    "last-of-many.example.org": (*[f"93.184.216.{last}" for last in range(1, 20)], "10.0.0.1"),
    "azure.example.org": ("168.63.129.16",),
}


def _quads(address: str) -> list[int]:
    return [int(each) for each in address.split(".")]


def spell_ipv4(address: str) -> Iterator[str]:
    """Other ways to write an IPv4 address that some parser takes for the same one."""
    number, quads = int(IPv4Address(address)), _quads(address)
    yield str(number)
    yield hex(number)
    yield hex(number).upper().replace("X", "x")
    yield f"0{number:o}"
    yield f"00{number:o}"
    yield f"0x{number:016x}"
    yield ".".join(map(hex, quads))
    yield ".".join(f"0{each:o}" for each in quads)
    yield ".".join(f"0{each:o}" if place % 2 else hex(each) for place, each in enumerate(quads))
    yield f"{quads[0]}.{(quads[1] << 16) + (quads[2] << 8) + quads[3]}"
    yield f"{quads[0]}.{quads[1]}.{(quads[2] << 8) + quads[3]}"
    yield f"{hex(quads[0])}.{(quads[1] << 16) + (quads[2] << 8) + quads[3]}"
    yield ".".join(f"{each:03d}" for each in quads)
    yield f"{address}."
    yield address.replace(".", "\u3002")
    yield address.replace(".", "\uff0e")
    yield address.replace(".", "\uff61")
    yield address.translate({ord(str(digit)): 0xFF10 + digit for digit in range(10)})
    yield address.translate({ord(str(digit)): 0x1D7CE + digit for digit in range(10)})
    yield address.translate({ord(str(digit)): 0x2460 + digit - 1 for digit in range(1, 10)})
    yield address.replace("1", "%31")
    yield address.replace(".", "%2e")
    yield f"{address}%00.example.org"
    yield ".".join(str(each + 256) for each in quads)


def embed_ipv4(address: str) -> Iterator[str]:
    """IPv6 addresses that contain an IPv4 address."""
    number = int(IPv4Address(address))
    high, low = f"{number >> 16:x}", f"{number & 0xFFFF:x}"
    yield f"[::ffff:{address}]"
    yield f"[::ffff:{high}:{low}]"
    yield f"[0:0:0:0:0:ffff:{high}:{low}]"
    yield f"[::FFFF:{address}]"
    yield f"[::{address}]"
    yield f"[::ffff:0:{address}]"
    yield f"[64:ff9b::{address}]"
    yield f"[64:ff9b::{high}:{low}]"
    yield f"[64:ff9b:1::{address}]"
    yield f"[2002:{high}:{low}::]"
    yield f"[2002:{high}:{low}::1]"
    yield f"[2001:0:{high}:{low}::1]"
    yield (
        f"[2001::{number ^ 0xFFFFFFFF:x}]"
        if number ^ 0xFFFFFFFF <= 0xFFFF
        else f"[2001:0:1::{~number >> 16 & 0xFFFF:x}:{~number & 0xFFFF:x}]"
    )
    yield f"[2001:470::5efe:{address}]"
    yield f"[2001:470::200:5efe:{address}]"
    yield f"[fe80::5efe:{address}]"


def dress_ipv4(address: str) -> Iterator[str]:
    """URLs that hide an address behind the other parts of a URL."""
    yield f"http://example.org@{address}/"
    yield f"http://example.org:80@{address}/"
    yield f"http://{address}@example.org/"
    yield f"http://{address}#@example.org/"
    yield f"http://{address}?@example.org/"
    yield f"http://{address}\\@example.org/"
    yield f"http://example.org\\@{address}/"
    yield f"http://{address}/\t"
    yield f"http://{address}\r\nHost: example.org/"
    yield f"http:\\\\{address}\\"
    yield f"http:///{address}/"
    yield f"http:{address}/"
    yield f"///{address}/"
    yield f" http://{address}/"
    yield f"http://{address} .example.org/"
    yield f"http://{address}:80:80/"
    yield f"http://[{address}]/"
    yield f"http://\u200b{address}/"
    yield f"HTTP://{address}/"
    yield f"https://{address}:443/"


OTHER_SCHEMES: Final = tuple(
    f"{scheme}://{rest}"
    for scheme in ("file", "gopher", "dict", "ftp", "ldap", "tftp", "jar:http", "ws", "unix", "netdoc", "sftp", "data")
    for rest in ("127.0.0.1:6379/_INFO", "/etc/passwd", "localhost/")
)
LOCAL_NAMES: Final = tuple(
    f"http://{host}/"
    for host in (
        *("localhost", "LOCALHOST", "localhost.", "localhost..", "a.localhost", "localhost.localdomain", "loopback"),
        *("\u24db\u24de\u24d2\u24d0\u24db\u24d7\u24de\u24e2\u24e3", "metadata.google.internal", "metadata", "router"),
        *(
            "instance-data",
            "host.docker.internal",
            "kubernetes.default.svc.cluster.local",
            "printer.local",
            "ip6-localhost",
        ),
        *("broadcasthost", "wpad", "gateway.home.arpa"),
    )
)
IPV6: Final = tuple(
    f"http://{host}/"
    for host in (
        *("[::1]", "[0:0:0:0:0:0:0:1]", "[::]", "[0000::1]", "[::1%25lo]", "[::1%lo]", "[fe80::1]", "[fe80::1%25eth0]"),
        *("[fc00::1]", "[fd00::1]", "[fd00:ec2::254]", "[fd00:ec2:0:0:0:0:0:254]", "[FD00:EC2::254]", "[ff02::1]"),
        *("[fd20:ce::254]", "[2001:db8::1]", "[3fff::1]", "[100::1]", "[fec0::1]", "[2001:20::1]", "[5f00::1]", "::1"),
        *("[::1].example.org", "[::1", "::1]", "[[::1]]", "[v1.::1]", "[4000::1]"),
    )
)
PORTS: Final = tuple(
    f"http://example.org:{port}/" for port in (0, 22, 25, 6379, 11211, 65536, "0x50", "+80", "80a", "\uff18\uff10")
)


def build_families() -> dict[str, list[str]]:
    """All URLs by family, without repetitions."""
    spelled = [f"http://{each}/latest/meta-data/" for address in INNER for each in spell_ipv4(address)]
    embedded = [f"http://{each}/" for address in INNER for each in embed_ipv4(address)]
    dressed = [each for address in INNER[:4] for each in dress_ipv4(address)]
    families = {
        "plain": [f"{scheme}://{each}/" for each in INNER for scheme in ("http", "https")],
        "spelled": spelled,
        "embedded": embedded,
        "dressed": dressed,
        "schemes": list(OTHER_SCHEMES),
        "local names": list(LOCAL_NAMES),
        "ipv6": list(IPV6),
        "ports": list(PORTS),
        "dns": [f"{scheme}://{name}/" for name in NAMES for scheme in ("http", "https")],
    }
    return {name: list(dict.fromkeys(urls)) for name, urls in families.items()}
