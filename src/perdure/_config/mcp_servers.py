"""Read the MCP servers that `.mcp.json` and `perdure.toml` describe, without starting them.

Programs add their own keys to `.mcp.json`: unknown keys are ignored. Servers are data: reading them starts nothing and
connects to nothing.
"""

import os
from collections.abc import Callable, Mapping
from typing import Any, Final, cast

import msgspec
from msgspec import Struct

from perdure._core.schema.problems import problem_from_msgspec_error
from perdure._core.values.error import ConfigError
from perdure._core.values.jsonable import convert, short_repr
from perdure._mcp.settings import McpServer, McpServerOptions, McpTransport

from .error import BadConfig, ConfigFault
from .file import ParsedConfigFile, read_json
from .lines import ValuePath
from .tables import McpServerTable
from .trusted import is_digest_trusted
from .validation import find_unusable_values
from .variables import VariableExpander

MAX_SERVERS: Final = 100
"""Limit on the number of MCP servers in one file."""

_TRANSPORTS: Final[Mapping[str, McpTransport]] = {
    "streamable-http": "http",
    "http": "http",
    "sse": "sse",
    "stdio": "stdio",
}
_EXPANDED_FIELDS: Final = ("command", "args", "env", "cwd", "url", "headers")
"""Settings in which `${NAME}` is replaced."""


class UnexpandedServers(Struct, frozen=True, eq=False):
    """MCP servers as a configuration file describes them, before `${NAME}` is replaced by environment variables.

    So they contain no secrets from the environment.
    """

    source: ParsedConfigFile
    """The file that describes the servers."""
    path: ValuePath
    """Path of the servers within the file, such as `("mcpServers",)`."""
    tables: Mapping[str, McpServerTable]
    """Description of each server, by the server's name."""

    def expand_servers(self, environment: Mapping[str, str] | None = None) -> list[McpServer]:
        """Return the enabled servers with `${NAME}` replaced from `environment`. Raises `BadConfig` with the line."""
        expand = VariableExpander(os.environ if environment is None else environment)
        found: list[McpServer] = []
        faults: list[ConfigFault] = []
        for name, table in self.tables.items():
            if table.disabled:
                continue
            try:
                found.append(_build_server(name, table, expand))
            except ConfigError as error:
                inner = error.path if isinstance(error, _ServerValueError) else ()
                message = f"server {short_repr(name, 80)}: {error}"
                faults.append(self.source.build_fault((*self.path, name, *inner), message))
        if faults:
            raise BadConfig(self.source.path, faults)
        return found


def load_mcp_servers(
    path: str | os.PathLike[str],
    *,
    environment: Mapping[str, str] | None = None,
    trusted: Callable[[str], bool] | bool = True,
) -> list[McpServer]:
    """Read a file like `.mcp.json` and return its enabled MCP servers, with environment variables filled in.

    Args:
        path: The file.
        environment: The variables for `${NAME}`; by default those of this process.
        trusted: True if its content is trusted, or a function that decides by its SHA-256. An untrusted file is
            refused, as its servers would be started sooner or later.

    Raises `BadConfig` with the line.
    """
    return read_unexpanded_servers(path, trusted=trusted).expand_servers(environment)


def read_unexpanded_servers(
    path: str | os.PathLike[str], *, trusted: Callable[[str], bool] | bool = True
) -> UnexpandedServers:
    """Read the MCP servers of a file like `.mcp.json`, and leave `${NAME}` as it is. Raises `BadConfig`."""
    source = read_json(path)
    if not (is_digest_trusted(trusted, source.digest) if callable(trusted) else trusted is True):
        source.fail(("mcpServers",), f"these servers are not trusted yet: {format_trust_advice(source.path)}")
    faults = [source.build_fault(place, message) for place, message in find_unusable_values(source.values, ())]
    if faults:
        raise BadConfig(source.path, faults)
    return build_unexpanded_servers(source, ("mcpServers",), _read_tables(source))


def build_unexpanded_servers(
    source: ParsedConfigFile, above: ValuePath, tables: Mapping[str, McpServerTable]
) -> UnexpandedServers:
    """Build `UnexpandedServers` from the server tables of a parsed file. Raises `BadConfig` if there are too many."""
    if len(tables) > MAX_SERVERS:
        source.fail(above, f"there are {len(tables)} servers, and {MAX_SERVERS} are the most: leave some out")
    return UnexpandedServers(source, above, tables)


def format_trust_advice(path: str) -> str:
    """Return a sentence for the user: how to trust the configuration file `path`, so that its MCP servers may start."""
    import shlex

    return f"read the file, then trust it with `perdure trust {shlex.quote(path)}`"


class _ServerValueError(ConfigError):
    """A setting of an MCP server is invalid after `${NAME}` was replaced; it has the path of the setting."""

    def __init__(self, path: ValuePath, message: str) -> None:
        super().__init__(message)
        self.path = path


def _read_tables(source: ParsedConfigFile) -> dict[str, McpServerTable]:
    servers: Any = source.values.get("mcpServers")
    if not isinstance(servers, dict):
        here: ValuePath = ("mcpServers",) if "mcpServers" in source.values else ()
        source.fail(here, 'there is no object of servers by name: write { "mcpServers": { "name": { … } } }')
    found: dict[str, McpServerTable] = {}
    faults: list[ConfigFault] = []
    for name, values in cast("dict[str, Any]", servers).items():
        path: ValuePath = ("mcpServers", name)
        try:
            known = {key: value for key, value in values.items() if key in McpServerTable.__struct_fields__}
            found[name] = convert(known, McpServerTable)
        except AttributeError:
            faults.append(source.build_fault(path, f"server {short_repr(name, 80)} is no object: write {{ … }}"))
        except msgspec.ValidationError as error:
            problem = problem_from_msgspec_error(error)
            where = (*path, problem.path.partition(".")[0].partition("[")[0])
            faults.append(source.build_fault(where, f"server {short_repr(name, 80)}: {problem}"))
    if faults:
        raise BadConfig(source.path, faults)
    return found


def _build_server(name: str, table: McpServerTable, expand: VariableExpander) -> McpServer:
    if table.command and table.url:
        raise ConfigError("it has both a 'command' and a 'url': keep one of the two")
    if not table.command and not table.url:
        raise ConfigError("it has neither a 'command' nor a 'url': add one")
    fields = {key: getattr(table, key) for key in McpServerOptions.__struct_fields__}
    fields |= {key: _expand_value(fields[key], (key,), expand) for key in _EXPANDED_FIELDS}
    transport = _TRANSPORTS.get(table.type, "stdio" if table.command else "http")
    return McpServer(name=name, transport=transport, **fields)


def _expand_value(value: Any, path: ValuePath, expand: VariableExpander) -> Any:
    """Replace `${NAME}` in all texts of a value, also in lists and objects."""
    if isinstance(value, Mapping):
        pairs = cast("Mapping[str, str]", value)
        return {key: _expand_value(each, (*path, key), expand) for key, each in pairs.items()}
    if isinstance(value, tuple):
        each_of = enumerate(cast("tuple[str, ...]", value))
        return tuple(_expand_value(each, (*path, place), expand) for place, each in each_of)
    try:
        return expand(value)
    except ConfigError as error:
        raise _ServerValueError(path, str(error)) from error
