"""The egress policy: the URLs and IP addresses that may be requested on behalf of a model, a web page or a server.

A URL is checked before anything is looked up: its scheme, host and port. Each address that the host name resolves to is
checked before a connection is made, and again where its socket is opened. So an attacker who changes the DNS answer in
between, or redirects, gets no further.
"""

from collections.abc import Awaitable, Callable, Collection, Sequence
from ipaddress import ip_address, ip_network
from typing import Final, TypeAlias, cast

from msgspec import Struct
from msgspec.structs import force_setattr

from perdure.core import argument_checks
from perdure.core.error import ConfigError
from perdure.core.misspelt_option_metaclass import StrictOptionsMeta
from perdure.core.url_target import UrlTarget, normalize_host

from .error import EgressDenied
from .public_addresses import IpAddress, is_metadata_address, is_public_address, unmap_address

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
                argument_checks.require_int("EgressPolicy", "ports", port, 1)
            force_setattr(self, "ports", tuple(self.ports))
        argument_checks.require_int("EgressPolicy", "max_redirects", self.max_redirects)
        argument_checks.require_bool("EgressPolicy", "allow_downgrade", self.allow_downgrade)
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
        argument_checks.raise_config_error("EgressPolicy", name, value, "give a list")
    return cast("Collection[object]", value)


def _parse_host_pattern(name: str, pattern: object) -> str:
    """Return a pattern for hosts in normal form. Raises `ConfigError` if it is a URL, or no host."""
    advice = "give host names such as 'docs.python.org' or '*.python.org'"
    if not isinstance(pattern, str):
        argument_checks.raise_config_error("EgressPolicy", name, pattern, advice)
    below = _BELOW if pattern.startswith(_BELOW) else ""
    host = pattern.removeprefix(below)
    try:
        return below + normalize_host(f"[{host}]" if ":" in host and not host.startswith("[") else host)
    except ValueError:
        argument_checks.raise_config_error("EgressPolicy", name, pattern, advice)


def _check_network(network: object) -> None:
    advice = "give networks such as '10.1.0.0/16', '127.0.0.1' or 'fd00:1::/64'"
    if not isinstance(network, str):
        argument_checks.raise_config_error("EgressPolicy", "private_networks", network, advice)
    try:
        ip_network(network)
    except ValueError:
        argument_checks.raise_config_error("EgressPolicy", "private_networks", network, advice)


def _check_proxy(proxy: object) -> None:
    if not isinstance(proxy, str) or not proxy.startswith(("http://", "https://")):
        raise ConfigError(
            "EgressPolicy(proxy=…): give the URL of an HTTP proxy, such as 'http://proxy.example.org:3128'"
        )
