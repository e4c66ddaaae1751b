"""Check if an IP address is public or a cloud metadata address, also for IPv4 addresses inside IPv6 addresses.

A public address belongs to the internet. All others (private, loopback, link-local, shared, reserved, multicast, for
documentation) lead to this machine, to the network that it is in, or nowhere. The tables are those of IANA, written out
here: what `ipaddress.is_global` answers depends on the version of Python.
"""

from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from typing import Final, TypeAlias

IpAddress: TypeAlias = IPv4Address | IPv6Address
"""An IP address of either version."""

_NOT_PUBLIC_V4: Final = tuple(
    map(
        IPv4Network,
        (
            "0.0.0.0/8",
            "10.0.0.0/8",
            "100.64.0.0/10",
            "127.0.0.0/8",
            "169.254.0.0/16",
            "172.16.0.0/12",
            "192.0.0.0/24",
            "192.0.2.0/24",
            "192.88.99.0/24",
            "192.168.0.0/16",
            "198.18.0.0/15",
            "198.51.100.0/24",
            "203.0.113.0/24",
            "224.0.0.0/4",
            "240.0.0.0/4",
        ),
    )
)
_GLOBAL_V6: Final = IPv6Network("2000::/3")
"""All public IPv6 addresses are in here; so loopback, link-local, unique local and multicast addresses are not."""
_NOT_PUBLIC_V6: Final = tuple(
    map(
        IPv6Network,
        (
            "2001::/23",  # Teredo, benchmarks, ORCHID
            "2001:db8::/32",
            "2002::/16",  # 6to4
            "3fff::/20",
        ),
    )
)
_MAPPED: Final = IPv6Network("::ffff:0:0/96")
_NAT64: Final = IPv6Network("64:ff9b::/96")
_LOCAL_NAT64: Final = IPv6Network("64:ff9b:1::/48")
_COMPATIBLE: Final = IPv6Network("::/96")
_TRANSLATED: Final = IPv6Network("::ffff:0:0:0/96")
_SIX_TO_FOUR: Final = IPv6Network("2002::/16")
_TEREDO: Final = IPv6Network("2001::/32")
_ISATAP: Final = frozenset({0x0000_5EFE, 0x0200_5EFE})

_LINK_LOCAL_V4: Final = IPv4Network("169.254.0.0/16")
_LINK_LOCAL_V6: Final = IPv6Network("fe80::/10")
_METADATA: Final = frozenset(
    map(
        ip_address,
        (
            "100.100.100.200",
            "168.63.129.16",  # of Azure, in a public range
            "192.0.0.192",
            "fd00:ec2::23",
            "fd00:ec2::254",
            "fd20:ce::254",
        ),
    )
)
"""Addresses of cloud metadata services, besides the link-local ones."""


def unmap_address(address: IpAddress) -> IpAddress:
    """Return the IPv4 address of an IPv4-mapped IPv6 address, which the kernel treats as equal; others unchanged."""
    return address if isinstance(address, IPv4Address) else address.ipv4_mapped or address


def is_public_address(address: IpAddress) -> bool:
    """Return True if an IP address belongs to the public internet, not to a private, local or reserved network.

    An address of NAT64 is judged by the IPv4 address in it, since networks without IPv4 use it for ordinary hosts.
    Tunnels (6to4, Teredo, ISATAP) are never public.
    """
    address = unmap_address(address)
    if is_metadata_address(address):
        return False
    if isinstance(address, IPv4Address):
        return not any(address in network for network in _NOT_PUBLIC_V4)
    if address in _NAT64:
        return is_public_address(_get_last_ipv4(address))
    return (
        address in _GLOBAL_V6
        and not any(address in network for network in _NOT_PUBLIC_V6)
        and _get_interface_prefix(address) not in _ISATAP
    )


def is_metadata_address(address: IpAddress) -> bool:
    """Return True if an IP address, however it is written, is link-local or that of a cloud metadata service."""
    for each in (address, *list_embedded_ipv4(address)):
        if each in _METADATA or each in (_LINK_LOCAL_V4 if isinstance(each, IPv4Address) else _LINK_LOCAL_V6):
            return True
    return False


def list_embedded_ipv4(address: IpAddress) -> list[IPv4Address]:
    """Return the IPv4 addresses that an IPv6 address contains: mapped, compatible, NAT64, 6to4, Teredo, ISATAP."""
    if isinstance(address, IPv4Address):
        return []
    value = int(address)
    if any(address in network for network in (_MAPPED, _NAT64, _COMPATIBLE, _TRANSLATED)):
        return [_get_last_ipv4(address)]
    if address in _LOCAL_NAT64:  # after 48 bits, around the eight that are zero
        return [_get_last_ipv4(address), IPv4Address((value >> 64 & 0xFFFF) << 16 | value >> 40 & 0xFFFF)]
    if address in _SIX_TO_FOUR:
        return [IPv4Address(value >> 80 & 0xFFFF_FFFF)]
    if address in _TEREDO:
        return [IPv4Address(value >> 64 & 0xFFFF_FFFF), IPv4Address(~value & 0xFFFF_FFFF)]
    return [_get_last_ipv4(address)] if _get_interface_prefix(address) in _ISATAP else []


def _get_last_ipv4(address: IPv6Address) -> IPv4Address:
    return IPv4Address(int(address) & 0xFFFF_FFFF)


def _get_interface_prefix(address: IPv6Address) -> int:
    """Return the first half of the interface identifier, by which ISATAP addresses are recognised."""
    return int(address) >> 32 & 0xFFFF_FFFF
