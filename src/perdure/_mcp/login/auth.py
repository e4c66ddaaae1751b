"""Authenticate HTTP requests to an MCP server with its stored login: add the access token, and refresh it."""

import asyncio
from collections.abc import AsyncGenerator, Callable

import httpx2

from perdure._core.values.clock import SYSTEM_CLOCK, Clock
from perdure._io.egress.policy import EgressPolicy
from perdure._mcp.settings import McpServer

from .file import LoginFile, StoredLogin
from .flow import is_expired, refresh_login
from .oauth import OAuthHttp, build_login_policy

_UNAUTHORIZED = 401


class StoredLoginAuth(httpx2.Auth):
    """`httpx2.Auth` that adds the access token of a stored login to requests to its MCP server, and to no others."""

    def __init__(
        self, server: McpServer, logins: LoginFile, *, policy: EgressPolicy | None = None, clock: Clock = SYSTEM_CLOCK
    ) -> None:
        self._server = server
        self._logins = logins
        self._policy = policy or build_login_policy(server)
        self._clock = clock

    async def async_auth_flow(self, request: httpx2.Request) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        """Send a request with the token; if it is refused, once more with a new one."""
        login = await self._find_login(request)
        if login is None:
            yield request
            return
        if is_expired(login, self._clock):
            login = await self._refresh(login) or login
        request.headers["Authorization"] = f"Bearer {login.access_token}"
        response = yield request
        if response.status_code != _UNAUTHORIZED:
            return
        fresh = await self._refresh(login)
        if fresh is not None:
            request.headers["Authorization"] = f"Bearer {fresh.access_token}"
            yield request

    async def _find_login(self, request: httpx2.Request) -> StoredLogin | None:
        """Return the login, if it is for the URL of this server as it is now, and the request goes there."""
        login = await asyncio.to_thread(self._logins.get, self._server.name)
        if login is None or login.url != self._server.url:
            return None
        return login if _origin(str(request.url)) == _origin(login.url) else None

    async def _refresh(self, used: StoredLogin) -> StoredLogin | None:
        """Return a login with another access token; one that was refreshed meanwhile, or is refreshed now."""
        async with self._logins.lock_refresh():
            stored = await asyncio.to_thread(self._logins.get, self._server.name)
            if stored is None or stored.url != used.url:  # a person has logged in to another URL under this name
                return None
            if stored.access_token != used.access_token:
                return stored
            http = OAuthHttp(self._policy)
            try:
                return await refresh_login(self._server.name, stored, self._logins, http, self._clock)
            finally:
                await http.aclose()


def _origin(url: str) -> tuple[str, str, int | None]:
    parsed = httpx2.URL(url)
    return parsed.scheme, parsed.host, parsed.port


def build_login_resolver(
    logins: LoginFile, *, policy: EgressPolicy | None = None
) -> Callable[[McpServer], httpx2.Auth | None]:
    """Return a function for `McpServers(login=…)`: it authenticates HTTP requests to a server by its stored login."""

    def find(server: McpServer) -> httpx2.Auth | None:
        return None if server.transport == "stdio" else StoredLoginAuth(server, logins, policy=policy)

    return find
