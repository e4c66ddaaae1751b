"""Servers of the Model Context Protocol, out of `.mcp.json` and out of `perdure.toml`. Above: `config.py`.

The form of `.mcp.json` belongs to nobody, and programs add keys of their own to it: what we do not know is passed over.
Below: `source.py`, `mcp/server.py`. The servers are data: reading them starts nothing and connects to nobody.
"""

import os
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, cast

import msgspec
from msgspec import Struct

from perdure.core.error import ConfigError
from perdure.core.plain import excerpt
from perdure.core.problem import from_msgspec_error
from perdure.mcp.server import McpServer, McpTransport

from .expansion import Expansion
from .fault import BadConfig, Fault
from .lines import Path
from .source import Source, read_json
from .tables import ServerTable
from .validation import unusable_values

MOST_SERVERS: Final = 100
"""Of one file."""

_TRANSPORTS: Final[Mapping[str, McpTransport]] = {
    "streamable-http": "http",
    "http": "http",
    "sse": "sse",
    "stdio": "stdio",
}


class ServerSource(Struct, frozen=True, eq=False):
    """Servers as a file describes them: variables are not expanded yet, so there is no secret in it."""

    source: Source
    """The file."""
    above: Path
    """Where in the file they stand."""
    tables: Mapping[str, ServerTable]
    """Each by its name."""

    def servers(self, environment: Mapping[str, str] | None = None) -> list[McpServer]:
        """Those that are not disabled, with their variables expanded. Raises `BadConfig`, which names the line."""
        expand = Expansion(os.environ if environment is None else environment)
        found: list[McpServer] = []
        faults: list[Fault] = []
        for name, table in self.tables.items():
            if table.disabled:
                continue
            try:
                found.append(_server(name, table, expand))
            except ConfigError as error:
                inner = error.path if isinstance(error, _Misplaced) else ()
                message = f"server {excerpt(name, 80)}: {error}"
                faults.append(self.source.fault((*self.above, name, *inner), message))
        if faults:
            raise BadConfig(self.source.path, faults)
        return found


def load_mcp_servers(
    path: str | os.PathLike[str],
    *,
    environment: Mapping[str, str] | None = None,
    trusted: Callable[[str], bool] | bool = True,
) -> list[McpServer]:
    """The servers in a file of the form of `.mcp.json`, those that are disabled left out.

    Args:
        path: The file.
        environment: The variables that `${NAME}` may name; by default those of this process.
        trusted: Whether its content is trusted, or a function that says so of its SHA-256. A file that is not trusted
            is refused, as its servers would be started sooner or later.

    Raises `BadConfig`, which names the line.
    """
    return read_servers(path, trusted=trusted).servers(environment)


def read_servers(path: str | os.PathLike[str], *, trusted: Callable[[str], bool] | bool = True) -> ServerSource:
    """The servers in a file of the form of `.mcp.json`, as it describes them. Raises `BadConfig`."""
    source = read_json(path)
    if not (trusted(source.digest) if callable(trusted) else trusted):
        source.refuse(("mcpServers",), f"these servers are not trusted yet: {how_to_trust(source.path)}")
    faults = [source.fault(place, message) for place, message in unusable_values(source.values, ())]
    if faults:
        raise BadConfig(source.path, faults)
    return server_source(source, ("mcpServers",), _tables(source))


def server_source(source: Source, above: Path, tables: Mapping[str, ServerTable]) -> ServerSource:
    """The same of tables that were read already."""
    if len(tables) > MOST_SERVERS:
        source.refuse(above, f"there are {len(tables)} servers, and {MOST_SERVERS} are the most: leave some out")
    return ServerSource(source, above, tables)


def how_to_trust(path: str) -> str:
    """What to do about a file that nobody has agreed to."""
    import shlex

    return f"read the file, then trust it with `perdure config trust {shlex.quote(path)}`"


class _Misplaced(ConfigError):
    """What is wrong with one value of a server."""

    def __init__(self, path: Path, message: str) -> None:
        super().__init__(message)
        self.path = path


def _tables(source: Source) -> dict[str, ServerTable]:
    servers: Any = source.values.get("mcpServers")
    if not isinstance(servers, dict):
        here: Path = ("mcpServers",) if "mcpServers" in source.values else ()
        source.refuse(here, 'there is no object of servers by name: write { "mcpServers": { "name": { … } } }')
    found: dict[str, ServerTable] = {}
    faults: list[Fault] = []
    for name, values in cast("dict[str, Any]", servers).items():
        path: Path = ("mcpServers", name)
        try:
            known = {key: value for key, value in values.items() if key in ServerTable.__struct_fields__}
            found[name] = msgspec.convert(known, ServerTable)
        except AttributeError:
            faults.append(source.fault(path, f"server {excerpt(name, 80)} is no object: write {{ … }}"))
        except msgspec.ValidationError as error:
            problem = from_msgspec_error(error)
            where = (*path, problem.path.partition(".")[0].partition("[")[0])
            faults.append(source.fault(where, f"server {excerpt(name, 80)}: {problem}"))
    if faults:
        raise BadConfig(source.path, faults)
    return found


def _server(name: str, table: ServerTable, expand: Expansion) -> McpServer:
    if table.command and table.url:
        raise ConfigError("it has both a 'command' and a 'url': keep one of the two")
    if not table.command and not table.url:
        raise ConfigError("it has neither a 'command' nor a 'url': add one")
    fields = {key: _expanded(value, (key,), expand) for key, value in _given(table)}
    transport = _TRANSPORTS.get(table.type, "stdio" if table.command else "http")
    return McpServer(name=name, transport=transport, **fields)


def _given(table: ServerTable) -> Iterator[tuple[str, Any]]:
    for key in ("command", "args", "env", "cwd", "url", "headers"):
        yield key, getattr(table, key)


def _expanded(value: Any, path: Path, expand: Expansion) -> Any:
    """A value with the variables in its texts in their places."""
    if isinstance(value, Mapping):
        pairs = cast("Mapping[str, str]", value)
        return {key: _expanded(each, (*path, key), expand) for key, each in pairs.items()}
    if isinstance(value, tuple):
        each_of = enumerate(cast("tuple[str, ...]", value))
        return tuple(_expanded(each, (*path, place), expand) for place, each in each_of)
    try:
        return expand(value)
    except ConfigError as error:
        raise _Misplaced(path, str(error)) from error
