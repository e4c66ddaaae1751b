"""Find the MCP servers that the command line can use, and add them to or remove them from configuration files.

A user's own servers are in `mcp.json` in `~/.perdure`, those of a project in `.mcp.json` and `perdure.toml`. Servers of
a project are used only after the user trusts the file.
"""

# ruff: noqa: PTH100, PTH103, PTH120 - pathlib would cost every start milliseconds
import os
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, cast

from perdure._cli.run.trusted_config import find_nearest
from perdure._core.values.error import ConfigError
from perdure._io.home.paths import get_home_file_path

from .config import load_trust_record

if TYPE_CHECKING:
    from collections.abc import Sequence

    from perdure._config.load import Config
    from perdure._config.mcp_servers import UnexpandedServers
    from perdure._config.tables import McpServerTable
    from perdure._mcp.login.file import LoginFile
    from perdure._mcp.pins import PinFile
    from perdure._mcp.servers import McpServers
    from perdure._mcp.settings import McpServer

PROJECT_FILE: Final = ".mcp.json"
"""The name of a project's list of servers."""


class KnownServer(NamedTuple):
    """An MCP server in a configuration file, with its state: used, untrusted, disabled, or hidden by a namesake."""

    name: str
    source: Literal["user", "project"]
    path: str
    """The file."""
    state: Literal["used", "untrusted", "disabled", "hidden"]
    """`hidden`: a file before this one has a server of the same name."""
    table: "McpServerTable"
    """Its description, with `${NAME}` as it is in the file."""
    described: "UnexpandedServers"
    """The file as it was read when its trust was checked. It is not read again: it may be another one by then."""

    @property
    def how_reached(self) -> str:
        """The command that is started, or the URL, as the file has it."""
        return self.table.url or " ".join([self.table.command, *self.table.args])


def get_user_servers_path() -> str:
    """Return the path of the user's own list of MCP servers, `mcp.json` in `~/.perdure`."""
    return get_home_file_path("mcp.json")


def open_pin_file() -> "PinFile":
    """Open the file that records which tools of each MCP server the user has approved."""
    from perdure._mcp.pins import PinFile
    from perdure._mcp.servers import get_default_pins_path

    return PinFile(get_default_pins_path())


def open_login_file() -> "LoginFile":
    """Open the file that stores the user's logins to MCP servers."""
    from perdure._mcp.login.file import LoginFile, get_default_logins_path

    return LoginFile(get_default_logins_path())


def list_known_servers(workdir: str = os.curdir, config: "Config | None" = None) -> list[KnownServer]:
    """Return all MCP servers in `perdure.toml`, the user's file and the project's `.mcp.json`. Raises `BadConfig`.

    Of servers with the same name, the first that may be used is.
    """
    own, found = get_user_servers_path(), find_nearest(PROJECT_FILE, workdir, skip_empty_folders=True)
    if not os.path.lexists(own) and found is None and config is None:  # nearly always
        return []
    from perdure._config.mcp_servers import read_unexpanded_servers

    sources: list[tuple[str, Literal["user", "project"], bool, Any]] = []
    for each in () if config is None else config.servers:
        sources.append((each.source.path, "project", config is not None and config.trusted, each))  # noqa: PERF401 - typed
    if os.path.lexists(own):
        sources.append((own, "user", True, read_unexpanded_servers(own)))
    if found is not None and os.path.realpath(found) not in [os.path.realpath(each[0]) for each in sources]:
        servers = read_unexpanded_servers(found)
        sources.append((found, "project", load_trust_record()(servers.source.digest), servers))
    known: list[KnownServer] = []
    taken: set[str] = set()
    for path, source, is_trusted, servers in sources:
        for name, table in servers.tables.items():
            state = "untrusted" if not is_trusted else "disabled" if table.disabled else "used"
            state = "hidden" if state == "used" and name in taken else state
            if state == "used":
                taken.add(name)
            known.append(KnownServer(name, source, path, cast("Any", state), table, servers))
    return known


def load_used_servers(workdir: str = os.curdir, config: "Config | None" = None) -> "list[McpServer]":
    """Return the MCP servers that are trusted and enabled, with environment variables filled in. Raises `BadConfig`.

    The user's own are started in an empty folder, unless they have a `cwd` or the user trusts this one: programs such
    as `python -m`, `npx` and `uvx` run, or are configured by, files of the folder in which they are started.
    """
    used = {each.name: each for each in list_known_servers(workdir, config) if each.state == "used"}
    found: dict[str, McpServer] = {}
    for described in {id(each.described): each.described for each in used.values()}.values():
        for server in described.expand_servers():
            if server.name in used and used[server.name].described is described:
                found[server.name] = server
    own = [found[name] for name, each in used.items() if each.source == "user"]
    found |= {each.name: each for each in place_own_servers(own, workdir)}
    return [found[name] for name in used]


def place_own_servers(servers: "list[McpServer]", workdir: str = os.curdir) -> "list[McpServer]":
    """Return servers of the user's own, to be started in an empty folder unless the user trusts the working folder."""
    if not any(each.command for each in servers) or _is_trusted_by_the_user(workdir):
        return servers
    from msgspec.structs import replace

    folder = get_home_file_path("mcp-folder")
    return [replace(each, start_folder=folder) if each.command else each for each in servers]


def _is_trusted_by_the_user(workdir: str) -> bool:
    """Return True if the user has said to trust a folder. One in which there seems to be nothing to trust is not."""
    from perdure._cli.run.folder_trust import load_folder_trust

    try:
        return load_folder_trust().check(workdir) == "trusted"
    except ConfigError:  # it is reported where the agent is made
        return False


def find_server(name: str, workdir: str = os.curdir, config: "Config | None" = None) -> "McpServer":
    """Return the MCP server with this name. Raises `ConfigError` if it is unknown, untrusted or disabled."""
    for server in load_used_servers(workdir, config):
        if server.name == name:
            return server
    known = list_known_servers(workdir, config)
    for each in known:
        if each.name == name and each.state == "untrusted":
            raise ConfigError(f"server {name!r} of {each.path!r} is not trusted yet: perdure trust {each.path}")
        if each.name == name and each.state == "disabled":
            raise ConfigError(f"server {name!r} is disabled in {each.path!r}")
    names = ", ".join(dict.fromkeys([each.name for each in known])) or "none; add one with perdure mcp add"
    raise ConfigError(f"there is no MCP server {name!r}; there is {names}")


def build_mcp_servers(*servers: "McpServer") -> "McpServers":
    """Build an `McpServers` object for these servers, with the user's approvals and logins; connect to none of them."""
    from perdure._mcp.client.client import require_sdk

    require_sdk()
    from perdure._mcp.login.auth import build_login_resolver
    from perdure._mcp.servers import McpServers

    return McpServers(*servers, pins=open_pin_file(), login=build_login_resolver(open_login_file()))


async def find_server_problems(servers: "Sequence[McpServer]") -> dict[str, str]:
    """Connect to servers at the same time; return what keeps each from being used, by its name, or an empty text."""
    import asyncio

    from perdure._core.values.error import ToolError

    async def find_problem(server: "McpServer") -> str:
        try:
            made = build_mcp_servers(server)
        except ConfigError as error:  # the package is missing
            return str(error)
        try:
            await made.load_tools(server.name)
        except (ToolError, ConfigError) as error:
            return str(error).removeprefix(f"MCP server {server.name!r}: ")
        finally:
            await made.pool.close()
        return ""

    found = await asyncio.gather(*[find_problem(each) for each in servers])
    return {server.name: problem for server, problem in zip(servers, found, strict=True)}


def find_missing_program(table: "McpServerTable") -> str:
    """Return why the program of a server cannot be started, as far as that is known without starting it."""
    import shutil

    if not table.command or "${" in table.command:
        return ""
    if os.path.isabs(table.command):  # noqa: PTH117 - as above
        is_there = shutil.which(table.command) is not None
        return "" if is_there else f"{table.command!r} is not there, or is no program"
    if os.sep in table.command:  # it depends on the folder in which it is started
        return ""
    path = table.env.get("PATH") if "${" not in table.env.get("PATH", "") else ""
    if path == "" or shutil.which(table.command, path=path) is not None:
        return ""
    return f"there is no program {table.command!r} on PATH"


# -- changes -----------------------------------------------------------------------------------------------------------


def add_server_to_file(path: str, name: str, table: dict[str, Any]) -> None:
    """Add an MCP server to a configuration file, created if needed. Raises `ConfigError` if the name is taken."""
    values = _read_file(path)
    servers = values.setdefault("mcpServers", {})
    if not isinstance(servers, dict):
        raise ConfigError(f"{path!r} has no object of servers by name: repair it first")
    if name in servers:
        raise ConfigError(f"there is a server {name!r} in {path!r} already: perdure mcp remove {name}")
    servers[name] = table
    _write_file(path, values)


def remove_server_from_file(path: str, name: str) -> bool:
    """Remove an MCP server from a configuration file; return False if the file has none of that name."""
    values = _read_file(path)
    servers = values.get("mcpServers")
    if not isinstance(servers, dict) or cast("dict[str, Any]", servers).pop(name, None) is None:
        return False
    _write_file(path, values)
    return True


def _read_file(path: str) -> dict[str, Any]:
    """Return the values of a file; empty if there is none. Raises `BadConfig` for one that cannot be parsed."""
    if not os.path.lexists(path):
        return {}
    from copy import deepcopy

    from perdure._config.file import read_json

    return dict(deepcopy(read_json(path).values))


def _write_file(path: str, values: dict[str, Any]) -> None:
    """Replace a file as a whole. One of the user's own is for the user alone: headers may have secrets in them."""
    import msgspec

    from perdure._io.home.paths import replace_private_file

    os.makedirs(os.path.dirname(os.path.abspath(path)), mode=0o700, exist_ok=True)
    data = msgspec.json.format(msgspec.json.encode(values), indent=2) + b"\n"
    replace_private_file(path, data, 0o600 if path == get_user_servers_path() else 0o644)  # a link too is replaced
