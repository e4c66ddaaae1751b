"""ASGI app that serves an MCP server over HTTP; `HttpGuard` checks each request first."""

import asyncio
from collections.abc import AsyncGenerator, Collection
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, Final

from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken
from mcp.server.lowlevel.server import Server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

from perdure.core.error import UsageError

from .client_limits import ClientLimits
from .client_tokens import ClientTokens
from .http_guard import HttpGuard, Message, Receive, Scope, Send
from .served_tools import ServedTools

_STOP_SECONDS: Final = 15.0
"""Time for the sessions of a client to end; longer than a cancelled call gets to store how it ended."""


class _ClientSessions:
    """The SDK's sessions of one client, in a task of their own: a client fills only its own, and they end together."""

    def __init__(self, server: Server[Any], limits: ClientLimits) -> None:
        self._manager = StreamableHTTPSessionManager(
            server, max_request_body_size=limits.max_body_bytes, max_sessions=limits.sessions_at_once
        )
        self._loop = asyncio.get_running_loop()
        self._has_started = asyncio.Event()
        self._is_over = asyncio.Event()
        self._task = asyncio.create_task(self._run())

    async def _run(self) -> None:
        try:
            async with self._manager.run():
                self._has_started.set()
                await self._is_over.wait()
        finally:
            self._has_started.set()

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request of the client."""
        await self._has_started.wait()
        await self._manager.handle_request(scope, receive, send)

    def end(self) -> None:
        """End all sessions, and the calls in them; from any thread."""
        self._loop.call_soon_threadsafe(self._is_over.set)

    async def wait(self) -> None:
        """Wait until they have ended."""
        await asyncio.wait({self._task}, timeout=_STOP_SECONDS)
        if self._task.done():
            self._task.result()


class McpApp:
    """ASGI app that serves MCP over streamable HTTP, for any ASGI server.

    The server has to send it the lifespan events. Where it is mounted in another app, which does not, use
    `async with app.lifespan():` in the lifespan of that one.
    """

    def __init__(
        self,
        server: Server[Any],
        tools: ServedTools,
        *,
        tokens: ClientTokens,
        hosts: Collection[str],
        origins: Collection[str],
        path: str,
        limits: ClientLimits,
    ) -> None:
        self._server = server
        self._tools = tools
        self._limits = limits
        self._sessions: dict[str, _ClientSessions] | None = None
        """The sessions of each client; `None` while the app is not served."""
        self.tokens = tokens
        """The tokens of clients, to add and revoke some."""
        self._guard = HttpGuard(
            self._handle,
            tokens=tokens,
            hosts=hosts,
            origins=origins,
            path=path,
            limits=limits,
            mark_client=_mark_client,
        )
        tokens.on_revoked(self._end_sessions)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request, or the lifespan of the server."""
        if scope["type"] == "lifespan":
            await self._follow_lifespan(receive, send)
        else:
            await self._guard(scope, receive, send)

    @asynccontextmanager
    async def lifespan(self) -> AsyncGenerator[None]:
        """Serve during this block; at its end, all calls in progress are cancelled. It can be entered again."""
        sessions: dict[str, _ClientSessions] = {}
        async with self._tools.open():
            self._sessions = sessions
            try:
                yield
            finally:
                self._sessions = None
                for each in sessions.values():
                    each.end()
                for each in sessions.values():
                    await each.wait()

    def close(self) -> None:
        """Refuse all requests from now on, and end those in progress: before the server stops."""
        self._guard.close()

    async def _handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._sessions is None:
            raise UsageError("the MCP app was not started: run its lifespan, as in `async with app.lifespan():`")
        client = scope["user"].access_token.client_id
        sessions = self._sessions.get(client)
        if sessions is None:
            sessions = self._sessions[client] = _ClientSessions(self._server, self._limits)
        await sessions.handle(scope, receive, send)

    def _end_sessions(self, client: str) -> None:
        """End the sessions of a client whose token is revoked: a call may go on there after its request has ended."""
        sessions = None if self._sessions is None else self._sessions.pop(client, None)
        if sessions is not None:
            sessions.end()

    async def _follow_lifespan(self, receive: Receive, send: Send) -> None:
        """Start and stop with the server, as the ASGI specification says."""
        async with AsyncExitStack() as stack:
            message: Message = await receive()
            while message["type"] != "lifespan.startup":
                message = await receive()
            try:
                await stack.enter_async_context(self.lifespan())
            except Exception as error:  # the server prints it
                await send({"type": "lifespan.startup.failed", "message": str(error)})
                raise
            await send({"type": "lifespan.startup.complete"})
            while message["type"] != "lifespan.shutdown":
                message = await receive()
        await send({"type": "lifespan.shutdown.complete"})


def _mark_client(scope: Scope, client: str) -> None:
    """Note the client of a request where the SDK looks for it: its sessions belong to the client that began them."""
    scope["user"] = AuthenticatedUser(AccessToken(token="", client_id=client, scopes=[]))
