"""The ASGI app of an MCP server: the guard, and behind it the SDK's transport for both generations of the protocol."""

from collections.abc import AsyncGenerator, Collection
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken
from mcp.server.lowlevel.server import Server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

from perdure.core.error import UsageError

from .client_limits import ClientLimits
from .client_tokens import ClientTokens
from .http_guard import HttpGuard, Message, Receive, Scope, Send


class McpApp:
    """ASGI app that serves MCP over streamable HTTP, for any ASGI server.

    The server has to send it the lifespan events. Where it is mounted in another app, which does not, use
    `async with app.lifespan():` in the lifespan of that one.
    """

    def __init__(
        self,
        server: Server[Any],
        *,
        tokens: ClientTokens,
        hosts: Collection[str],
        origins: Collection[str],
        path: str,
        limits: ClientLimits,
    ) -> None:
        self._server = server
        self._limits = limits
        self._manager: StreamableHTTPSessionManager | None = None
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

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request, or the lifespan of the server."""
        if scope["type"] == "lifespan":
            await self._follow_lifespan(receive, send)
        else:
            await self._guard(scope, receive, send)

    @asynccontextmanager
    async def lifespan(self) -> AsyncGenerator[None]:
        """Serve during this block; at its end, all calls in progress are cancelled. It can be entered again."""
        manager = StreamableHTTPSessionManager(
            self._server, max_request_body_size=self._limits.max_body_bytes, max_sessions=1_000
        )
        async with manager.run():
            self._manager = manager
            try:
                yield
            finally:
                self._manager = None

    def close(self) -> None:
        """Refuse all requests from now on, and end those in progress: before the server stops."""
        self._guard.close()

    async def _handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._manager is None:
            raise UsageError("the MCP app was not started: run its lifespan, as in `async with app.lifespan():`")
        await self._manager.handle_request(scope, receive, send)

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
