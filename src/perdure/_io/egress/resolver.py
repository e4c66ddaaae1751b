"""Resolve host names for requests under an egress policy, and check each address before a connection is made."""

import asyncio
import socket
from typing import Any

from aiohttp.abc import AbstractResolver, ResolveResult

from .policy import EgressPolicy, LookUp


class CheckedResolver(AbstractResolver):
    """DNS resolver for aiohttp that raises `EgressDenied` unless all addresses of a host are allowed.

    One denied address is enough: a host with both kinds would otherwise be reached by chance.
    """

    def __init__(self, policy: EgressPolicy, look_up: LookUp | None = None) -> None:
        self._policy = policy
        self._look_up = look_up or look_up_host

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        """Return the addresses of a host. Raises `OSError` if it has none, `EgressDenied` if one is not allowed."""
        del family  # the addresses of both families are checked, and used
        addresses = list(dict.fromkeys(await self._look_up(host, port)))
        if not addresses:
            raise OSError(None, "it has no address")
        for each in addresses:
            self._policy.check_address(each, host)
        return [_build_result(host, each, port) for each in addresses]

    async def close(self) -> None:
        """Release nothing: each lookup is complete when it returns."""


def check_socket_address(policy: EgressPolicy, address: Any) -> None:
    """Raise `EgressDenied` unless the policy allows a connection to this address, an entry from `getaddrinfo`.

    This is the last check, on the very address that the kernel gets.
    """
    policy.check_address(address[4][0], address[4][0])


async def look_up_host(host: str, port: int) -> list[str]:
    """Return the IP addresses of a host name, as the operating system resolves it."""
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_ADDRCONFIG)
    return [str(address[0]) for *_, address in found]


def _build_result(host: str, address: str, port: int) -> ResolveResult:
    return ResolveResult(
        hostname=host,
        host=address,
        port=port,
        family=socket.AF_INET6 if ":" in address else socket.AF_INET,
        proto=0,
        flags=socket.AI_NUMERICHOST | socket.AI_NUMERICSERV,
    )
