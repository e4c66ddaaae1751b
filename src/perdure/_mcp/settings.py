"""The settings of an MCP (Model Context Protocol) server: the command that starts it, or its URL.

Values may contain secrets, which is why neither its `repr` nor an error shows its environment and headers.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final, Literal, TypeAlias, cast, get_args

from msgspec import Struct

from perdure._core.tools.tool import Effect
from perdure._core.values import checks

McpTransport: TypeAlias = Literal["stdio", "http", "sse"]
"""The transport: the pipes of a process, streamable HTTP, or the older HTTP transport with server-sent events."""

_TRANSPORTS: Final = get_args(McpTransport)
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
_HEADER: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_VARIABLE: Final = re.compile(r"[^=\0\s]+")
_URL: Final = re.compile(r"https?://(?P<host>[^/?#\s\\]+)[^\s\\]*", re.IGNORECASE)
_MIN_SECRET_LENGTH: Final = 8
"""Characters from which a value of the environment or a header is taken for a secret in error messages."""


class McpServerOptions(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The settings of an MCP server that are the same in a program and in a configuration file."""

    command: str = ""
    """The program that is started, without a shell; only for `stdio` servers, as are `args`, `env` and `cwd`."""
    args: tuple[str, ...] = ()
    """The arguments of the program."""
    env: Mapping[str, str] = {}
    """Variables that are added to its environment."""
    cwd: str = ""
    """The folder in which it is started; empty for the working folder of the agent."""
    url: str = ""
    """Its URL; only for `http` and `sse` servers, as are the headers."""
    headers: Mapping[str, str] = {}
    """Headers that are sent with each request."""
    permission: bool = True
    """True if its tools ask for permission, unless they are known to read only; False if its owner allows them all."""
    trust_hints: bool = False
    """True if it is believed which of its tools only read, can be repeated, or send nothing out."""
    effects: Mapping[str, Effect] = {}
    """The effects of its tools, by their own names, as the owner knows them. A hint of the server can only make one
    stricter.
    """
    include: tuple[str, ...] = ()
    """Patterns of the tools that are offered, by their own names, such as `get_*`; empty for all."""
    exclude: tuple[str, ...] = ()
    """Patterns of tools that are not offered."""
    resources: bool = False
    """True if the model gets tools to list and read its resources."""
    start_timeout_seconds: float = 15.0
    """The longest time until it answers."""
    call_timeout_seconds: float = 120.0
    """The longest time until a call ends or reports progress."""
    idle_seconds: float = 600.0
    """The time without a call after which the connection is closed; the next call opens it again."""


class McpServer(McpServerOptions, frozen=True, kw_only=True, repr_omit_defaults=True):
    """Settings of an MCP server: the command that starts it, or its URL, with environment or headers.

    The server is not started here.
    """

    name: str
    """Its name, in front of the names of its tools."""
    transport: McpTransport = "stdio"
    """The transport over which it is reached."""
    start_folder: str = ""
    """The folder in which it is started if it has no `cwd`, made if it is not there; no part of what is approved."""

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not _NAME.fullmatch(self.name):
            checks.raise_config_error("McpServer", "name", self.name, "use 1 to 64 letters, digits, '.', '_' and '-'")
        checks.require_one_of("McpServer", "transport", self.transport, _TRANSPORTS)
        for name in ("command", "cwd", "start_folder", "url"):
            _check_text(name, getattr(self, name))
        if not isinstance(self.args, tuple | list) or not all(isinstance(each, str) for each in self.args):
            checks.raise_config_error("McpServer", "args", "…", "give a list of texts")
        for place, each in enumerate(self.args):
            _check_text(f"args[{place}]", each)
        _check_texts_by_name("env", self.env, _VARIABLE)
        _check_texts_by_name("headers", self.headers, _HEADER)
        self._check_transport()
        self._check_limits()

    def _check_limits(self) -> None:
        for name in ("permission", "trust_hints", "resources"):
            checks.require_bool("McpServer", name, getattr(self, name))
        for name in ("include", "exclude"):
            patterns: Any = getattr(self, name)
            if not isinstance(patterns, tuple | list) or not all(
                isinstance(each, str) for each in cast("list[object]", patterns)
            ):
                checks.raise_config_error("McpServer", name, "…", "give a list of patterns")
        for name in ("start_timeout_seconds", "call_timeout_seconds", "idle_seconds"):
            checks.require_number("McpServer", name, getattr(self, name))
        if not isinstance(self.effects, Mapping):
            checks.raise_config_error("McpServer", "effects", self.effects, "give effects by the names of tools")
        for tool, effect in self.effects.items():
            checks.require_one_of("McpServer", f"effects[{tool!r}]", effect, get_args(Effect))

    def _check_transport(self) -> None:
        if self.transport == "stdio":
            checks.require_text("McpServer", "command", self.command, non_empty=True)
            unused: tuple[str, ...] = ("url", "headers")
        else:
            match = _URL.fullmatch(self.url)
            if match is None:
                checks.raise_config_error(
                    "McpServer", "url", "…", "give an address that begins with https:// or http://"
                )
            if "@" in match["host"]:
                checks.raise_config_error(
                    "McpServer", "url", "https://…@…", "put a password into a header, not into the address"
                )
            unused = ("command", "args", "env", "cwd", "start_folder")
        for name in unused:
            if getattr(self, name):
                checks.raise_config_error(
                    "McpServer", name, "…", f"a server with transport {self.transport!r} has none: leave it out"
                )

    def __repr__(self) -> str:
        how = self.command if self.transport == "stdio" else self.url.partition("?")[0]
        return f"McpServer({self.name!r}, {self.transport} {how!r})"


def _check_text(name: str, value: object) -> None:
    checks.require_text("McpServer", name, value)
    if "\0" in cast("str", value):
        checks.raise_config_error("McpServer", name, "…", "a NUL character cannot be part of it")


def _check_texts_by_name(name: str, pairs: Any, names: re.Pattern[str]) -> None:
    """Raise `ConfigError` unless the value maps names to texts. The texts are never shown, as they may be secrets."""
    if not callable(getattr(pairs, "items", None)):
        checks.raise_config_error("McpServer", name, "…", "give texts by their names")
    for key, value in pairs.items():
        if not isinstance(key, str) or not names.fullmatch(key):
            checks.raise_config_error("McpServer", f"{name}.{key!r}", "…", "this name cannot be used")
        if not isinstance(value, str) or "\0" in value or (name == "headers" and re.search(r"[\r\n]", value)):
            checks.raise_config_error("McpServer", f"{name}.{key}", "…", "give text on one line, without NUL")


def hide_secrets(text: str, values: Iterable[str]) -> str:
    """Mask these environment or header values in a text; of `Bearer abc`, a bare `abc` is masked too."""
    for value in sorted(values, key=len, reverse=True):
        for secret in (value, value.rpartition(" ")[2]):
            if len(secret) >= _MIN_SECRET_LENGTH:
                text = text.replace(secret, "[hidden]")
    return text
