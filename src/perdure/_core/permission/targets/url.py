"""URLs as targets of permission rules: scheme, host, port and path in one normal form.

An address is normalised as browsers do: the host in lower case and ASCII, numbers of IPv4 in any notation, the default
port filled in, `.` and `..` removed from the path, also when they are encoded. What different programs would read in
different ways (a user name, a backslash, a space, a control character) is refused, and a person is asked.
"""

from collections.abc import Sequence

from msgspec import Struct

from perdure._core.values.error import ConfigError

from .path import match_steps
from .text import TargetFromArgument, has_wildcard, matches_text

_DEFAULT_PORTS = {"http": 80, "https": 443, "ws": 80, "wss": 443, "ftp": 21}
_UNRESERVED = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._~")
_HEX = frozenset("0123456789abcdefABCDEF")
_AMBIGUOUS = frozenset("\u00df\u03c2\u200c\u200d")  # read in different ways by the two versions of IDNA
_MAX_PORT = 65535
_ANY_DEPTH = "**"


class UrlTarget(Struct, frozen=True, tag_field="kind", tag="url"):
    """A URL that a tool call fetches or posts to, in normal form."""

    scheme: str
    host: str
    """In lower case and ASCII; an IP address in its usual notation, that of version 6 without brackets."""
    port: int
    """The port; the default of the scheme if the address has none, and 0 if there is no default."""
    path: str
    """The path in normal form; it begins with a slash."""
    query: str = ""

    @classmethod
    def of(cls, url: str) -> "UrlTarget":
        """Parse a URL. Raises `ValueError` if it is not absolute, or ambiguous."""
        if not isinstance(url, str) or not url.isprintable() or any(each.isspace() or each == "\\" for each in url):
            raise ValueError(f"{url!r} has characters that an address cannot have")
        scheme, colon, rest = url.partition(":")
        if not colon or not rest.startswith("//") or not scheme.isascii() or not scheme.isalpha():
            raise ValueError(f"{url!r} is not an absolute address such as 'https://example.org/page'")
        scheme = scheme.lower()
        before_fragment = rest[2:].partition("#")[0]
        authority, slash_path, query = _split_authority(before_fragment)
        if "@" in authority:
            raise ValueError(f"{url!r} has a user name or password in front of the host")
        host, port = _split_port(authority, scheme)
        return cls(scheme, normalize_host(host), port, normalize_path(slash_path), query)

    @classmethod
    def of_argument(cls, name: str) -> "TargetFromArgument[UrlTarget]":
        """Return a function for `@tool(target=…)` that makes the target from the tool's argument of this name."""
        return TargetFromArgument(name, cls.of)

    @property
    def origin(self) -> str:
        """The scheme, host and port, without the default port."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        port = "" if self.port in {0, _DEFAULT_PORTS.get(self.scheme)} else f":{self.port}"
        return f"{self.scheme}://{host}{port}"

    @property
    def url(self) -> str:
        """The URL in normal form; the tool should fetch this one."""
        return f"{self.origin}{self.path}{f'?{self.query}' if self.query else ''}"

    def __str__(self) -> str:
        return self.url


class UrlPattern(Struct, frozen=True, tag_field="kind", tag="url"):
    """A pattern for URLs: scheme, host and port, and a path in which `**` matches any number of parts.

    Without a path it is about the whole origin. `*.example.org` is about the hosts below `example.org`. Without a
    scheme it allows `https` alone, and denies all schemes and ports.
    """

    pattern: str

    def __post_init__(self) -> None:
        try:
            self.parts()
        except ValueError as error:
            message = f"url({self.pattern!r}): {error}; give an address such as 'https://docs.python.org/3/**'"
            raise ConfigError(message) from None

    def __str__(self) -> str:
        return f"url({self.pattern!r})"

    @property
    def text(self) -> str:
        """The pattern as text."""
        return self.pattern

    def parts(self) -> "UrlPatternParts":
        """Return the parts of the pattern."""
        text = self.pattern.strip()
        if not text.isprintable() or "\\" in text:
            raise ValueError("it has characters that an address cannot have")
        scheme, found, rest = text.partition("://")
        if not found:
            scheme, rest = "", text
        authority, path, query = _split_authority(rest)
        if query or not authority or "@" in authority:
            raise ValueError("it has no host, a user name, or a query")
        scheme = scheme.lower()
        host, port = _split_port(authority, scheme, explicit=True)
        below = "*." if host.startswith("*.") else ""
        host = host if host == "*" else f"{below}{normalize_host(host.removeprefix(below))}"
        steps = [_ANY_DEPTH] if not path else split_url_path(normalize_path(path, wildcards=True))
        return UrlPatternParts(scheme, host, port, tuple(steps))

    def allows(self, target: UrlTarget) -> bool:
        """Return True if an allowing rule matches: origin and path match exactly."""
        parts = self.parts()
        scheme = parts.scheme or "https"
        port = parts.port or _DEFAULT_PORTS.get(scheme, 0)
        return (
            target.scheme == scheme
            and matches_text(target.host, parts.host)
            and target.port == port
            and match_steps(split_url_path(target.path), _below(parts.steps))
        )

    def may_match(self, target: UrlTarget) -> bool:
        """Return True if a denying rule matches: also subdomains, other cases, and paths below."""
        parts = self.parts()
        if parts.scheme not in {"", "*", target.scheme} or parts.port not in {0, target.port}:
            return False
        if not (matches_text(target.host, parts.host) or matches_text(target.host, f"*.{parts.host}")):
            return False
        pattern = casefold_url_steps(parts.steps)
        readings = [casefold_url_steps(split_url_path(each)) for each in (target.path, _decode(target.path))]
        return any(match_steps(steps[:length], pattern) for steps in readings for length in range(len(steps) + 1))

    def may_match_text(self, text: str) -> bool:
        """Return True if a denying rule matches a text that is a URL."""
        try:
            return self.may_match(UrlTarget.of(text.strip()))
        except ValueError:
            return False

    def is_within(self, other: "UrlPattern") -> bool:
        """Return True if it is certain that every URL which matches this pattern matches the other."""
        narrow, wide = self.parts(), other.parts()
        is_origin_within = (
            wide.scheme in {"", "*", narrow.scheme}
            and wide.port in {0, narrow.port}
            and (narrow.host == wide.host or (not has_wildcard(narrow.host) and matches_text(narrow.host, wide.host)))
        )
        if not is_origin_within:
            return False
        if wide.steps in {narrow.steps, (_ANY_DEPTH,)}:
            return True
        if not any(map(has_wildcard, narrow.steps)):
            return match_steps(narrow.steps, wide.steps)
        folder = wide.steps[:-1]
        is_folder = wide.steps[-1] == _ANY_DEPTH and not any(map(has_wildcard, folder))
        return is_folder and narrow.steps[: len(folder)] == folder


class UrlPatternParts(Struct, frozen=True):
    """The parts of a URL pattern: scheme, host, port and path."""

    scheme: str
    """In lower case; empty if the pattern has none."""
    host: str
    port: int
    """The port; 0 if the pattern has none."""
    steps: tuple[str, ...]


def build_host_pattern(target: UrlTarget) -> UrlPattern:
    """Return the pattern for every page of the host of a URL."""
    return UrlPattern(f"{target.origin}/{_ANY_DEPTH}")


def _split_authority(rest: str) -> tuple[str, str, str]:
    """Split the part of a URL after `//` into host and port, path, and query."""
    before_query, _, query = rest.partition("?")
    authority, slash, path = before_query.partition("/")
    return authority, f"{slash}{path}", query


def _split_port(authority: str, scheme: str, *, explicit: bool = False) -> tuple[str, int]:
    """Split a host from its port; without `explicit`, the default port of the scheme is filled in."""
    host, colon, digits = authority.rpartition(":")
    if not colon or authority.endswith("]"):
        host, digits = authority, ""
    if digits and not (digits.isascii() and digits.isdigit() and 0 < int(digits) <= _MAX_PORT):
        raise ValueError(f"{digits!r} is not a port")
    default = 0 if explicit else _DEFAULT_PORTS.get(scheme, 0)
    return host, int(digits) if digits else default


def normalize_host(host: str) -> str:
    """Return a host name or IP address in its normal form, lower-case ASCII. Raises `ValueError` if it is not valid."""
    if host.startswith("[") and host.endswith("]"):
        return _normalize_ipv6(host[1:-1])
    if not host or "%" in host or _AMBIGUOUS & {*host}:
        raise ValueError(f"{host!r} is not a host")
    try:
        ascii_host = host.encode("idna").decode().lower() if not host.isascii() else host.lower()
    except UnicodeError:
        raise ValueError(f"{host!r} is not a host") from None
    ascii_host = ascii_host.removesuffix(".")
    labels = ascii_host.split(".")
    if not all(label and not label.strip("abcdefghijklmnopqrstuvwxyz0123456789-_") for label in labels):
        raise ValueError(f"{host!r} is not a host")
    if _is_number(labels[-1]):
        return _normalize_ipv4(labels)
    return ascii_host


def _is_number(label: str) -> bool:
    return label.isdigit() or (label.startswith("0x") and all(each in _HEX for each in label[2:]))


def _normalize_ipv4(labels: Sequence[str]) -> str:
    """Normalize an IPv4 address in decimal, octal or hexadecimal notation, with one to four parts."""
    most_parts = 4
    if len(labels) > most_parts or not all(map(_is_number, labels)):
        raise ValueError(f"{'.'.join(labels)!r} is not a host")
    try:
        numbers = [_parse_number(each) for each in labels]
    except ValueError:
        raise ValueError(f"{'.'.join(labels)!r} is not a host") from None
    last_bits = 8 * (most_parts + 1 - len(numbers))
    if any(each > 255 for each in numbers[:-1]) or numbers[-1] >= 2**last_bits:  # noqa: PLR2004 - a byte
        raise ValueError(f"{'.'.join(labels)!r} is not a host")
    value = sum(each << 8 * (most_parts - 1 - place) for place, each in enumerate(numbers[:-1])) + numbers[-1]
    return ".".join([str(value >> shift & 255) for shift in (24, 16, 8, 0)])


def _parse_number(digits: str) -> int:
    if digits.startswith("0x"):
        return int(digits[2:] or "0", 16)
    return int(digits, 8 if digits.startswith("0") and len(digits) > 1 else 10)


def _normalize_ipv6(address: str) -> str:
    import ipaddress

    if "%" in address:
        raise ValueError(f"{address!r} names an interface")
    parsed = ipaddress.IPv6Address(address)
    return str(parsed.ipv4_mapped or parsed)


def normalize_path(path: str, *, wildcards: bool = False) -> str:
    """Normalize the path of a URL: decode needless escapes, resolve `.` and `..`; with `wildcards`, reject `..`."""
    text = _normalize_escapes(path)
    steps: list[str] = []
    parts = text.split("/")[1:]
    for place, part in enumerate(parts):
        is_last = place == len(parts) - 1
        if part in {".", ".."}:
            if part == ".." and steps:
                steps.pop()
            if is_last:
                steps.append("")
        else:
            steps.append(part)
    if wildcards and ".." in parts:
        raise ValueError("it has '..' in its path")
    return "/" + "/".join(steps)


def _normalize_escapes(path: str) -> str:
    """Decode what needs no encoding, encode what does, and write the remaining escapes in upper case."""
    found: list[str] = []
    place = 0
    while place < len(path):
        character = path[place]
        pair = path[place + 1 : place + 3]
        if character == "%":
            if len(pair) < 2 or not {*pair} <= _HEX:  # noqa: PLR2004 - two digits
                raise ValueError(f"{path!r} has an incomplete escape")
            decoded = chr(int(pair, 16))
            found.append(decoded if decoded in _UNRESERVED else f"%{pair.upper()}")
            place += 3
            continue
        found.append(character if character.isascii() else "".join([f"%{byte:02X}" for byte in character.encode()]))
        place += 1
    return "".join(found)


def _decode(path: str) -> str:
    """Decode every escape in a path, twice, as some servers do."""
    from urllib.parse import unquote

    decoded = unquote(unquote(path)).replace("\\", "/")
    return normalize_path(decoded.replace("%", "%25"))


def split_url_path(path: str) -> list[str]:
    """Split the path of a URL at its slashes."""
    return path.split("/")[1:]


def _below(steps: tuple[str, ...]) -> tuple[str, ...]:
    """Return a path pattern whose last `**` matches what is below a path, but not the path itself."""
    return (*steps[:-1], "*", _ANY_DEPTH) if steps[-1] == _ANY_DEPTH else steps


def casefold_url_steps(steps: Sequence[str]) -> list[str]:
    """Return the parts of a URL path in lower case, without empty ones."""
    return [each.casefold() for each in steps if each]
