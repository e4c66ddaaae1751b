"""A server of the Model Context Protocol: how it is started or reached. Above: configuration. Below: `core`.

Values may hold secrets, which is why neither its `repr` nor an error shows what is in its environment and headers.
"""

import re
from collections.abc import Mapping
from typing import Any, Final, Literal, TypeAlias, cast, get_args

from msgspec import Struct

from perdure.core import check

McpTransport: TypeAlias = Literal["stdio", "http", "sse"]
"""How one speaks with it: over the pipes of a process, over HTTP, or in the older way over HTTP."""

_TRANSPORTS: Final = get_args(McpTransport)
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
_HEADER: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_VARIABLE: Final = re.compile(r"[^=\0\s]+")
_URL: Final = re.compile(r"https?://(?P<host>[^/?#\s\\]+)[^\s\\]*", re.IGNORECASE)


class McpServer(Struct, frozen=True, kw_only=True, omit_defaults=True, repr_omit_defaults=True):
    """How one server is started, or where it is reached."""

    name: str
    """What it is called, in front of the names of its tools."""
    transport: McpTransport = "stdio"
    """How one speaks with it."""
    command: str = ""
    """The program that is started, without a shell; of `stdio` servers alone, as are the next three."""
    args: tuple[str, ...] = ()
    """What the program is given."""
    env: Mapping[str, str] = {}
    """What is added to its environment."""
    cwd: str = ""
    """The folder in which it is started; empty for the working directory of the agent."""
    url: str = ""
    """Where it is reached; of `http` and `sse` servers, as are the headers."""
    headers: Mapping[str, str] = {}
    """What is sent along with each request."""

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not _NAME.fullmatch(self.name):
            check.refuse("McpServer", "name", self.name, "use 1 to 64 letters, digits, '.', '_' and '-'")
        check.one_of("McpServer", "transport", self.transport, _TRANSPORTS)
        for name in ("command", "cwd", "url"):
            _check_text(name, getattr(self, name))
        if not isinstance(self.args, tuple | list) or not all(isinstance(each, str) for each in self.args):
            check.refuse("McpServer", "args", "…", "give a list of texts")
        for place, each in enumerate(self.args):
            _check_text(f"args[{place}]", each)
        _check_pairs("env", self.env, _VARIABLE)
        _check_pairs("headers", self.headers, _HEADER)
        self._check_transport()

    def _check_transport(self) -> None:
        if self.transport == "stdio":
            check.text("McpServer", "command", self.command, filled=True)
            unused: tuple[str, ...] = ("url", "headers")
        else:
            match = _URL.fullmatch(self.url)
            if match is None:
                check.refuse("McpServer", "url", "…", "give an address that begins with https:// or http://")
            if "@" in match["host"]:
                check.refuse("McpServer", "url", "https://…@…", "put a password into a header, not into the address")
            unused = ("command", "args", "env", "cwd")
        for name in unused:
            if getattr(self, name):
                check.refuse(
                    "McpServer", name, "…", f"a server with transport {self.transport!r} has none: leave it out"
                )

    def __repr__(self) -> str:
        how = self.command if self.transport == "stdio" else self.url.partition("?")[0]
        return f"McpServer({self.name!r}, {self.transport} {how!r})"


def _check_text(name: str, value: object) -> None:
    check.text("McpServer", name, value)
    if "\0" in cast("str", value):
        check.refuse("McpServer", name, "…", "a NUL character cannot be part of it")


def _check_pairs(name: str, pairs: Any, names: re.Pattern[str]) -> None:
    """Texts by name. A value is never shown: it may be a secret."""
    if not callable(getattr(pairs, "items", None)):
        check.refuse("McpServer", name, "…", "give texts by their names")
    for key, value in pairs.items():
        if not isinstance(key, str) or not names.fullmatch(key):
            check.refuse("McpServer", f"{name}.{key!r}", "…", "this name cannot be used")
        if not isinstance(value, str) or "\0" in value or (name == "headers" and re.search(r"[\r\n]", value)):
            check.refuse("McpServer", f"{name}.{key}", "…", "give text on one line, without NUL")
