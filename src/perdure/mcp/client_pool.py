"""Pool of MCP clients: one client for each server and identity (set of headers)."""

import asyncio
from collections.abc import Iterable, Mapping

from perdure.core.error import ConfigError

from .client import McpClient, StartAndLoginCallbacks
from .server_settings import McpServer

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
