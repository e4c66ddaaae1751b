"""The egress policy: the URLs and IP addresses that may be requested on behalf of a model, a web page or a server."""

from collections.abc import Awaitable, Callable, Collection, Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Final, TypeAlias, cast

from msgspec import Struct
from msgspec.structs import force_setattr

from perdure._core.permission.targets.url import UrlTarget, normalize_host
from perdure._core.values import checks
from perdure._core.values.checks import StrictOptionsMeta
from perdure._core.values.error import ConfigError
from perdure._io.http.transport import EgressDenied

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


LookUp: TypeAlias = Callable[[str, int], Awaitable[Sequence[str]]]
"""Look up the IP addresses of a host name, given a port too. Raises `OSError` if there are none."""

WEB_PORTS: Final = (80, 443)
"""The ports of http and https."""
_SCHEMES: Final = ("http", "https")
_LOCAL_NAMES: Final = ("localhost", "local", "localdomain", "internal", "home.arpa")
"""Names, and what is below them, that mean this machine or its network wherever they are looked up."""
_MOST_URL_CHARACTERS: Final = 8_192
_BELOW: Final = "*."


class EgressPolicy(Struct, frozen=True, kw_only=True, metaclass=StrictOptionsMeta):
    """Rules for the HTTP requests of tools: allowed hosts, ports, private networks and redirects.

    By default a request can go to any public host, over http or https, on ports 80 and 443. Link-local addresses and
    those of cloud metadata services are denied whatever else is allowed.
    """

    allow_hosts: Sequence[str] = ()
    """The only hosts that are allowed, such as `docs.python.org` or `*.python.org`; empty for all public hosts."""
    deny_hosts: Sequence[str] = ()
    """Hosts that are denied, each with all names below it; outweighs `allow_hosts`."""
    ports: Collection[int] | None = WEB_PORTS
    """The ports that are allowed; `None` for all."""
    private_networks: Sequence[str] = ()
    """Networks that are allowed although they are not public, such as `10.1.0.0/16` or `127.0.0.1`."""
    max_redirects: int = 5
    """The most redirects that are followed. Each is checked like the first URL."""
    allow_downgrade: bool = False
    """Follow a redirect from https to http. A browser follows it anyway: a rule can hide where it leads."""
    proxy: str | None = None
    """The URL of an HTTP proxy; those of the environment are not used.

    A proxy looks up host names itself, so it has to refuse private addresses: here only the URL is checked.
    """

    def __post_init__(self) -> None:
        for name in ("allow_hosts", "deny_hosts"):
            force_setattr(self, name, tuple([_parse_host_pattern(name, each) for each in _check_list(self, name)]))
        for each in _check_list(self, "private_networks"):
            _check_network(each)
        force_setattr(self, "private_networks", tuple(self.private_networks))
        if self.ports is not None:
            for port in _check_list(self, "ports"):
                checks.require_int("EgressPolicy", "ports", port, 1)
            force_setattr(self, "ports", tuple(self.ports))
        checks.require_int("EgressPolicy", "max_redirects", self.max_redirects)
        checks.require_bool("EgressPolicy", "allow_downgrade", self.allow_downgrade)
        if self.proxy is not None:
            _check_proxy(self.proxy)

    def check_url(self, url: str | UrlTarget) -> UrlTarget:
        """Parse a URL, and raise `EgressDenied` unless a request may be sent to it. Looks nothing up.

        Send the request to the `url` of the result: another program might read the original in another way.
        """
        target = url if isinstance(url, UrlTarget) else _parse_url(url)
        if target.scheme not in _SCHEMES:
            raise EgressDenied(f"{target.scheme!r} addresses are not fetched: use https or http")
        if len(target.url) > _MOST_URL_CHARACTERS:
            raise EgressDenied(f"the address has {len(target.url):,} characters, more than {_MOST_URL_CHARACTERS:,}")
        if self.ports is not None and target.port not in self.ports:
            allowed = ", ".join(map(str, self.ports)) or "none"
            raise EgressDenied(f"port {target.port} of {target.host!r} is not allowed; allowed: {allowed}")
        self._check_host(target.host)
        return target

    def _check_host(self, host: str) -> None:
        """Raise `EgressDenied` if a host is denied by a list, is an address that is denied, or a local name."""
        if any(_is_denied_host(host, each) for each in self.deny_hosts):
            raise EgressDenied(f"the host {host!r} is denied")
        if self.allow_hosts and not any(_is_allowed_host(host, each) for each in self.allow_hosts):
            raise EgressDenied(f"the host {host!r} is not in the list of allowed hosts")
        address = _parse_address(host)
        if address is not None:
            self.check_address(address, host)
        elif not self.private_networks and _is_local_name(host):
            raise EgressDenied(f"the host {host!r} is in a private network")

    def check_address(self, address: str | IpAddress, host: str) -> None:
        """Raise `EgressDenied` unless a connection may be made to an IP address, the one of this host.

        Public addresses are allowed, and those in `private_networks`.
        """
        parsed = _parse_address(address) if isinstance(address, str) else address
        if parsed is None:
            raise EgressDenied(f"the host {host!r} has no valid address")
        if is_metadata_address(parsed):
            raise EgressDenied(f"the host {host!r} has a link-local or metadata address, which is never allowed")
        if is_public_address(parsed):
            return
        plain = unmap_address(parsed)
        if not any(plain in ip_network(each) for each in self.private_networks):
            raise EgressDenied(f"the host {host!r} has an address that is not public")

    def check_redirect(self, source: UrlTarget, location: str) -> UrlTarget:
        """Return where a redirect leads, or raise `EgressDenied` if it may not be followed."""
        from urllib.parse import urljoin

        try:
            joined = urljoin(source.url, location.strip().replace(" ", "%20"))
        except ValueError:
            raise EgressDenied(f"{source.url} redirects to {location[:200]!r}, which is not an address") from None
        try:
            target = self.check_url(joined)
        except EgressDenied as error:
            raise EgressDenied(f"{source.url} redirects to {location[:200]!r}: {error}") from None
        if source.scheme == "https" and target.scheme == "http" and not self.allow_downgrade:
            raise EgressDenied(f"{source.url} redirects from https to http, to {target.url}")
        return target


def _parse_url(url: str) -> UrlTarget:
    try:
        return UrlTarget.of(url)
    except ValueError as error:
        raise EgressDenied(str(error)) from None


def _parse_address(text: str) -> IpAddress | None:
    try:
        return ip_address(text)
    except ValueError:
        return None


def _is_local_name(host: str) -> bool:
    """Return True for names without a dot, and for those that are reserved for local networks."""
    return "." not in host or any(_is_below(host, each) for each in _LOCAL_NAMES)


def _is_allowed_host(host: str, pattern: str) -> bool:
    return _is_below(host, pattern.removeprefix(_BELOW)) if pattern.startswith(_BELOW) else host == pattern


def _is_denied_host(host: str, pattern: str) -> bool:
    return _is_allowed_host(host, pattern) or _is_below(host, pattern)


def _is_below(host: str, name: str) -> bool:
    return host.endswith(f".{name}")


# -- the options -------------------------------------------------------------------------------------------------------


def _check_list(policy: EgressPolicy, name: str) -> Collection[object]:
    value: object = getattr(policy, name)
    if isinstance(value, str) or not isinstance(value, Collection):
        checks.raise_config_error("EgressPolicy", name, value, "give a list")
    return cast("Collection[object]", value)


def _parse_host_pattern(name: str, pattern: object) -> str:
    """Return a pattern for hosts in normal form. Raises `ConfigError` if it is a URL, or no host."""
    advice = "give host names such as 'docs.python.org' or '*.python.org'"
    if not isinstance(pattern, str):
        checks.raise_config_error("EgressPolicy", name, pattern, advice)
    below = _BELOW if pattern.startswith(_BELOW) else ""
    host = pattern.removeprefix(below)
    try:
        return below + normalize_host(f"[{host}]" if ":" in host and not host.startswith("[") else host)
    except ValueError:
        checks.raise_config_error("EgressPolicy", name, pattern, advice)


def _check_network(network: object) -> None:
    advice = "give networks such as '10.1.0.0/16', '127.0.0.1' or 'fd00:1::/64'"
    if not isinstance(network, str):
        checks.raise_config_error("EgressPolicy", "private_networks", network, advice)
    try:
        ip_network(network)
    except ValueError:
        checks.raise_config_error("EgressPolicy", "private_networks", network, advice)


def _check_proxy(proxy: object) -> None:
    if not isinstance(proxy, str) or not proxy.startswith(("http://", "https://")):
        raise ConfigError(
            "EgressPolicy(proxy=…): give the URL of an HTTP proxy, such as 'http://proxy.example.org:3128'"
        )
