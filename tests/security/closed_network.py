"""A separate network for a test program, in which every address exists: all connections are noted.

`run_in_closed_network` starts a module of the tests in a namespace without any other interface than `lo`. There
`ClosedNetwork` makes all addresses local ones, listens on all of them, and is the DNS server that the C library asks.
So a connection to 10.0.0.1 or 169.254.169.254 is not refused by chance: it succeeds, and is counted.
"""

import asyncio
import contextlib
import fcntl
import json
import os
import socket
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

PUBLIC = "93.184.216.34"
_SIOCSIFADDR = 0x8916
_RTM_NEWROUTE = 24
_ROOT = Path(__file__).resolve().parent.parent.parent


def run_in_closed_network(module: str, *arguments: str, folder: Path, seconds: float = 300) -> Any:
    """Run a module of the tests without a network, and return the JSON that it prints at the end."""
    resolver = folder / "resolv.conf"
    resolver.write_text("nameserver 127.0.0.1\noptions timeout:5 attempts:1\n")
    command = [
        *("bwrap", "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--tmpfs", "/tmp"),
        *("--ro-bind", str(resolver), os.path.realpath("/etc/resolv.conf")),
        *("--unshare-all", "--uid", "0", "--gid", "0", "--die-with-parent"),
        *("--cap-add", "CAP_NET_ADMIN", "--cap-add", "CAP_NET_BIND_SERVICE"),
        *("--ro-bind", sys.base_prefix, sys.base_prefix, "--ro-bind", sys.prefix, sys.prefix),  # which may lie in /tmp
        *("--ro-bind", str(_ROOT), str(_ROOT), "--chdir", str(_ROOT), "--setenv", "TMPDIR", "/tmp"),
        *("--", sys.executable, "-m", module, *arguments),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=seconds, check=False)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return json.loads(done.stdout.splitlines()[-1])


class ClosedNetwork:
    """All addresses of the internet, as far as TCP on some ports, UDP and DNS go."""

    def __init__(
        self,
        respond: Callable[[str], bytes],
        look_up: Callable[[str], tuple[str, ...]],
        *,
        ports: tuple[int, ...] = (80, 443),
        udp_ports: tuple[int, ...] = (443, 3478),
        tls: Any = None,
    ) -> None:
        self._respond = respond
        self._look_up = look_up
        self._ports = ports
        self._udp_ports = udp_ports
        self._tls = tls
        self.connections: dict[str, int] = {}
        """How many connections were made to each address."""
        self.paths: list[str] = []
        """The paths that were requested."""
        self.datagrams: dict[int, int] = {}
        """How many datagrams came to each port that has no DNS."""
        self.names: dict[str, int] = {}
        """How often each name was looked up."""
        self._servers: list[asyncio.Server] = []
        self._udp: list[asyncio.DatagramTransport] = []

    async def __aenter__(self) -> Self:
        make_all_addresses_local()
        loop = asyncio.get_running_loop()
        for port in self._ports:
            tls = self._tls if port == 443 else None
            for host in ("0.0.0.0", "::"):
                with contextlib.suppress(OSError):  # there may be no IPv6
                    self._servers.append(await asyncio.start_server(self._serve, host, port, backlog=1024, ssl=tls))
        for port in self._udp_ports:
            noted = _Datagrams(self.datagrams, port)
            transport, _ = await loop.create_datagram_endpoint(noted.get_self, ("0.0.0.0", port))
            self._udp.append(transport)
        transport, _ = await loop.create_datagram_endpoint(lambda: DnsServer(self.answer), ("127.0.0.1", 53))
        self._udp.append(transport)
        return self

    async def __aexit__(self, *_: object) -> None:
        for server in self._servers:
            server.close()
        for each in self._udp:
            each.close()

    def answer(self, name: str) -> tuple[str, ...]:
        """Answer a DNS query, and note it."""
        self.names[name] = self.names.get(name, 0) + 1
        return self._look_up(name)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        address = writer.get_extra_info("sockname")[0].removeprefix("::ffff:")
        self.connections[address] = self.connections.get(address, 0) + 1
        with contextlib.suppress(OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            head = await reader.readuntil(b"\r\n\r\n")
            path = head.split(b" ")[1].decode("latin-1")
            self.paths.append(path)
            writer.write(self._respond(path))
            await writer.drain()
        writer.close()


class _Datagrams(asyncio.DatagramProtocol):
    """Counts the datagrams that come to a port."""

    def __init__(self, counts: dict[int, int], port: int) -> None:
        self._counts = counts
        self._port = port

    def get_self(self) -> "Self":
        return self

    def datagram_received(self, data: bytes, addr: Any) -> None:
        del data, addr
        self._counts[self._port] = self._counts.get(self._port, 0) + 1


class DnsServer(asyncio.DatagramProtocol):
    """A DNS server over UDP: A and AAAA records, from a function of the name."""

    def __init__(self, look_up: Callable[[str], tuple[str, ...]]) -> None:
        self._look_up = look_up
        self._transport: Any = None
        self._told: dict[str, tuple[str, ...]] = {}

    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def datagram_received(self, data: bytes, addr: Any) -> None:
        labels, place = [], 12
        while data[place]:
            labels.append(data[place + 1 : place + 1 + data[place]].decode("latin-1"))
            place += 1 + data[place]
        name, kind = ".".join(labels).lower(), struct.unpack_from("!H", data, place + 1)[0]
        if kind == 1 or name not in self._told:  # both families of one lookup get the same answer
            self._told[name] = self._look_up(name)
        family = {1: socket.AF_INET, 28: socket.AF_INET6}.get(kind)
        records = [each for each in self._told[name] if (":" in each) == (family == socket.AF_INET6)]
        packed = [socket.inet_pton(family, each.partition("%")[0]) for each in records] if family else []
        body = b"".join(struct.pack("!HHHIH", 0xC00C, kind, 1, 0, len(each)) + each for each in packed)
        header = data[:2] + struct.pack("!HHHHH", 0x8180, 1, len(packed), 0, 0)
        self._transport.sendto(header + data[12 : place + 5] + body, addr)


def make_all_addresses_local() -> None:
    """Make the kernel of this namespace deliver packets for any address to itself."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as plain:
        address = socket.inet_aton(PUBLIC)  # one that is not loopback, else the C library finds no names
        fcntl.ioctl(plain, _SIOCSIFADDR, struct.pack("16sH2s4s8s", b"lo:1", socket.AF_INET, b"", address, b""))
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE) as netlink:
        for family in (socket.AF_INET, socket.AF_INET6):
            route = struct.pack("=BBBBBBBBI", family, 0, 0, 0, 255, 3, 254, 2, 0)
            body = route + struct.pack("=HHI", 8, 4, socket.if_nametoindex("lo"))
            netlink.send(struct.pack("=IHHII", 16 + len(body), _RTM_NEWROUTE, 0x405, 1, 0) + body)
            error = struct.unpack_from("=i", netlink.recv(4096), 16)[0]
            assert error == 0 or family == socket.AF_INET6, os.strerror(-error)
