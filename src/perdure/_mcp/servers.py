"""Add the tools of MCP servers to an agent (`McpServers(…).extension`); one client for each server and identity."""

import asyncio
import logging
import os
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from inspect import isawaitable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self, TypeAlias

from perdure._core.run.calling_run import get_run_of_call
from perdure._core.run.run import Run
from perdure._core.tools.context import ToolContext
from perdure._core.tools.tool import Tool
from perdure._core.values import checks
from perdure._core.values.clock import SYSTEM_CLOCK
from perdure._core.values.error import ConfigError, ToolError
from perdure._io.home.paths import get_home_file_path
from perdure._runtime.agent.extension import Extension

from .client.client import McpClient, StartAndLoginCallbacks, require_sdk
from .client.listing import MAX_MESSAGE_BYTES, ListedTool
from .client.tools import build_resource_tools, build_tool, is_offered
from .pins import PinFile, ToolChange
from .settings import McpServer

if TYPE_CHECKING:
    import httpx2

    from perdure._io.processes.stdio_server import StdioServerProcess


MOST_CLIENTS = 256
"""Clients that are kept; those without a connection make room."""

_Identity = tuple[str, tuple[tuple[str, str], ...]]


class McpClientPool:
    """Pool of connected MCP clients, one for each server and identity: different headers never share a connection."""

    def __init__(self, servers: Iterable[McpServer], links: StartAndLoginCallbacks) -> None:
        self._links = links
        self._clients: dict[_Identity, McpClient] = {}
        self.servers: dict[str, McpServer] = {}
        """The servers by name."""
        for each in servers:
            self.add_server(each)

    def add_server(self, server: McpServer) -> None:
        """Add a server. Raises `ConfigError` if another has its name."""
        if not isinstance(server, McpServer):
            raise ConfigError(
                f"{server!r} is no McpServer: give McpServer(name=…, command=…) or "
                "McpServer(name=…, transport='http', url=…)"
            )
        if server.name in self.servers:
            raise ConfigError(f"two MCP servers are called {server.name!r}: give one of them another name")
        self.servers[server.name] = server

    async def remove_server(self, name: str) -> None:
        """Remove a server, and close its connections."""
        self.servers.pop(name, None)
        left = [key for key in self._clients if key[0] == name]
        await asyncio.gather(*[self._clients.pop(key).close() for key in left])

    def get_client(self, name: str, headers: Mapping[str, str] | None = None) -> McpClient:
        """Return the client of a server for the identity that these headers make. Raises `ConfigError`."""
        server = self.servers.get(name)
        if server is None:
            raise ConfigError(
                f"there is no MCP server {name!r}: there is {', '.join(map(repr, self.servers)) or 'none'}"
            )
        more = {} if server.transport == "stdio" else dict(headers or {})
        key = (name, tuple(sorted((each.lower(), value) for each, value in more.items())))
        if key not in self._clients:
            self._drop_unused()
            self._clients[key] = McpClient(server, self._links, headers=more)
        return self._clients[key]

    def _drop_unused(self) -> None:
        if len(self._clients) >= MOST_CLIENTS:
            self._clients = {key: each for key, each in self._clients.items() if each.is_in_use}

    async def close(self) -> None:
        """Close all connections, and wait until everything is gone."""
        clients, self._clients = self._clients, {}
        await asyncio.gather(*[each.close() for each in clients.values()])


HeaderResolver: TypeAlias = Callable[[McpServer, Run], "Mapping[str, str] | Awaitable[Mapping[str, str]]"]
"""Returns the headers of a run for a server, besides those of its settings; plain or async."""

_INHERITED_VARIABLES: Final = ("HOME", "LANG", "LC_ALL", "LOGNAME", "PATH", "SHELL", "TERM", "TMPDIR", "TZ", "USER")

RETRY_SECONDS = 20.0
"""Seconds after which a server that could not be reached is tried again."""

logger = logging.getLogger("perdure")


class McpServers:
    """MCP servers whose tools an agent can call, as `server__tool`. Its `extension` adds them to the agent."""

    def __init__(
        self,
        *servers: McpServer,
        pins: "str | os.PathLike[str] | PinFile | None" = None,
        headers: HeaderResolver | None = None,
        login: "Callable[[McpServer], httpx2.Auth | None] | None" = None,
    ) -> None:
        """Use these servers.

        Args:
            servers: The servers, each with a name of its own.
            pins: The file that remembers what was agreed to of each server: a tool that has changed since is off until
                it is approved. Without it, changes are noticed within this process.
            headers: Returns further headers for a run, such as the token of its user. Each set of headers has its own
                connections. A header `Authorization` replaces a stored login.
            login: Returns the stored login of a server.
        """
        if headers is not None:
            checks.require_callable("McpServers", "headers", headers)
        self.pins = pins if isinstance(pins, PinFile) else PinFile(pins)
        """What was agreed to of each server."""
        self.pool = McpClientPool(servers, StartAndLoginCallbacks(start_process, login))
        """The connections."""
        require_sdk()
        self._resolve_headers = headers
        self._tools: dict[str, list[Tool[..., Any]]] = {}
        self._versions: dict[str, int] = {}
        self._seen: dict[str, Sequence[ListedTool]] = {}
        self._retries: dict[str, asyncio.Task[None]] = {}
        self._tried: dict[str, float] = {}
        self._users = 0
        self.problems: dict[str, str] = {}
        """Why a server, by its name, cannot be used at the moment."""
        self.changes: dict[str, list[ToolChange]] = {}
        """What is switched off until it is approved, by server."""
        self.extension = Extension(
            name="mcp",
            late_tools=self.list_ready_tools,
            between_turns=[self.add_new_tools],
            lifespan=self._open,
        )
        """The extension for `Agent(extensions=[…])`."""

    # -- tools ---------------------------------------------------------------------------------------------------------

    def list_ready_tools(self) -> list[Tool[..., Any]]:
        """Return the tools of all servers that are connected, in the order of the servers."""
        return [tool for name in self.pool.servers for tool in self._tools.get(name, ())]

    async def load_tools(self, name: str, headers: Mapping[str, str] | None = None) -> list[Tool[..., Any]]:
        """Connect to a server if need be, and return its tools that are not switched off. Raises `ToolError`."""
        client = self.pool.get_client(name, headers)
        server, listing = client.server, await client.list_tools()
        offered = [each for each in listing.tools if is_offered(server, each.name)]
        self._seen[name] = listing.tools
        self.changes[name] = changes = await asyncio.to_thread(self.pins.find_changes, server, offered)
        if changes:
            off = ", ".join([repr(each.tool) for each in changes if each.tool]) or "all tools"
            logger.warning("MCP server %r has changed: %s switched off until approved", name, off)
        if any(not each.tool for each in changes):
            return []
        changed = {each.tool for each in changes}
        tools = [build_tool(server, each, self._get_client) for each in offered if each.name not in changed]
        if server.resources:
            known = {each.name for each in tools}
            tools += [each for each in build_resource_tools(server, self._get_client) if each.name not in known]
        return tools

    async def approve(self, name: str, tools: Collection[str] | None = None) -> None:
        """Approve tools of a server by their own names, or all of them, and offer them to the model again.

        What is agreed to is what `changes` shows: tools that have changed again since then stay off.
        """
        await self.pin_seen_tools(name, tools)
        self._versions.pop(name, None)
        await self._refresh(name)

    async def pin_seen_tools(self, name: str, tools: Collection[str] | None = None) -> None:
        """Approve a server's tools as last listed (or list them now), without offering them to the model yet."""
        seen = self._seen.get(name)
        client = self.pool.get_client(name)
        if seen is None:
            seen = (await client.list_tools()).tools
        await asyncio.to_thread(self.pins.approve, client.server, seen, tools)

    async def _refresh(self, name: str) -> None:
        """List the tools of a server, unless they are known; note why it cannot be used."""
        client = self.pool.get_client(name)
        if name in self._tools and self._versions.get(name) == client.list_version:
            return
        try:
            self._tools[name] = await self.load_tools(name)
            self._versions[name] = client.listed_version
            self.problems.pop(name, None)
        except (ToolError, ConfigError) as error:
            if self.problems.get(name) != str(error):
                logger.warning("the tools of an MCP server cannot be used: %s", error)
            self.problems[name] = str(error)
        finally:
            self._tried[name] = SYSTEM_CLOCK.monotonic()

    def _retry_later(self, name: str) -> None:
        """Try to reach a server again that could not be, in a separate task: no turn waits for it."""
        is_due = SYSTEM_CLOCK.monotonic() - self._tried.get(name, 0.0) >= RETRY_SECONDS
        if name in self.problems and is_due and name not in self._retries:
            self._retries[name] = task = asyncio.create_task(self._refresh(name), name="perdure-mcp-retry")
            task.add_done_callback(lambda _: self._retries.pop(name, None))

    async def add_new_tools(self, run: Run) -> None:
        """Offer the run tools that are new since it began: after a change, a reconnect, or for its own headers."""
        if not self._users:  # a replay, which opens nothing
            return
        found: list[Tool[..., Any]] = []
        for name, server in self.pool.servers.items():
            headers = await self._find_headers(server, run)
            if headers:
                found += await self._load_for_run(name, headers, run)
            elif name in self._tools:
                await self._refresh(name)
                found += self._tools[name]
            else:
                self._retry_later(name)
        known = run.toolbox
        fresh = [each for each in found if each.name not in known]
        if fresh:
            run.add_tools(fresh)

    async def _load_for_run(self, name: str, headers: Mapping[str, str], run: Run) -> list[Tool[..., Any]]:
        """Return the tools of a server as this run's identity sees them; listed once, and again after a change."""
        client = self.pool.get_client(name, headers)
        memo: tuple[int, list[Tool[..., Any]]] | None = run.scratch.get(f"mcp:{name}")
        if memo is not None and memo[0] == client.list_version:
            return memo[1]
        try:
            tools = await self.load_tools(name, headers)
        except (ToolError, ConfigError) as error:
            logger.warning("the tools of an MCP server cannot be used: %s", error)
            return []
        run.scratch[f"mcp:{name}"] = (client.listed_version, tools)
        return tools

    async def _find_headers(self, server: McpServer, run: Run) -> Mapping[str, str]:
        if self._resolve_headers is None or server.transport == "stdio":
            return {}
        found = self._resolve_headers(server, run)
        return await found if isawaitable(found) else found

    async def _get_client(self, context: ToolContext[Any], name: str) -> McpClient:
        return self.pool.get_client(name, await self._find_headers(self.pool.servers[name], get_run_of_call(context)))

    # -- lifespan ------------------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def _open(self, _agent: object = None) -> AsyncGenerator["McpServers"]:
        """Connect to all servers during this block, at the same time."""
        self._users += 1
        try:
            names = [name for name in self.pool.servers if self._resolve_headers is None or self._is_local(name)]
            await asyncio.gather(*[self._refresh(name) for name in names])
            yield self
        finally:
            self._users -= 1
            if not self._users:
                self._versions.clear()
                await self._end_retries()
                await self.pool.close()

    async def _end_retries(self) -> None:
        for task in (tasks := [*self._retries.values()]):
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    def _is_local(self, name: str) -> bool:
        return self.pool.servers[name].transport == "stdio"

    async def __aenter__(self) -> Self:
        """Connect to all servers until the block ends, without an agent."""
        self._own_block = self._open()
        await self._own_block.__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._own_block.__aexit__(None, None, None)


def get_default_pins_path() -> str:
    """Return the default path of the pin file (approved tools of MCP servers), in `~/.perdure` or PERDURE_HOME."""
    return get_home_file_path("mcp_pins.json")


async def start_process(server: McpServer) -> "StdioServerProcess":
    """Start the program of an MCP server, with only a few variables of this process and those of its settings."""
    from perdure._io.processes.stdio_server import StdioServerProcess

    env = {name: os.environ[name] for name in _INHERITED_VARIABLES if name in os.environ}
    words = [server.command, *server.args]
    if server.start_folder and not server.cwd:
        await asyncio.to_thread(Path(server.start_folder).mkdir, mode=0o700, parents=True, exist_ok=True)
    return await StdioServerProcess.start(
        words, folder=server.cwd or server.start_folder, env={**env, **server.env}, max_line_bytes=MAX_MESSAGE_BYTES
    )
