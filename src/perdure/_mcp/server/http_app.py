"""ASGI app that serves an MCP server over HTTP; `HttpGuard` checks each request first: host, token, limits and size."""

import asyncio
import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Iterable, MutableMapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, Final, TypeAlias

from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken
from mcp.server.lowlevel.server import Server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

from perdure._core.values.clock import SYSTEM_CLOCK, Clock
from perdure._core.values.error import UsageError

from .clients import ClientLimits, ClientRequestLimiter, ClientTokens, TooManyCalls
from .tools import ServedTools

Scope: TypeAlias = MutableMapping[str, Any]
Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]
AsgiApp: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]

MAX_HEADER_BYTES: Final = 32 * 1024
"""The most bytes of all headers of a request."""
BODY_SECONDS: Final = 30.0
"""The time in which a client has to send the body of its request."""
_BEARER: Final = re.compile(rb"bearer +([!-~]+) *", re.IGNORECASE)
_HOST: Final = re.compile(r"(\[[0-9a-f:.]+\]|[a-z0-9_-]+(?:\.[a-z0-9_-]+)*)(?::([0-9]{1,5}))?")
_SAFE_SITES: Final = frozenset({b"same-origin", b"none"})
"""Values of `Sec-Fetch-Site` that no other web page can cause."""
_FIXED_HEADERS: Final = (
    (b"cache-control", b"no-store"),
    (b"x-content-type-options", b"nosniff"),
    (b"cross-origin-resource-policy", b"same-origin"),
)


class _Refused(Exception):
    """A request that gets this status and text."""

    def __init__(self, status: int, text: str, headers: Iterable[tuple[bytes, bytes]] = ()) -> None:
        super().__init__(text)
        self.status = status
        self.text = text
        self.headers = tuple(headers)


class HttpGuard:
    """ASGI app in front of an MCP server: it passes on requests with a known host and a token, within the limits."""

    def __init__(
        self,
        app: AsgiApp,
        *,
        tokens: ClientTokens,
        hosts: Collection[str],
        origins: Collection[str] = (),
        path: str = "/mcp",
        limits: ClientLimits | None = None,
        mark_client: Callable[[Scope, str], None],
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        """Put the checks in front of an app.

        Args:
            app: The app that gets the requests.
            tokens: The tokens of clients.
            hosts: The values of `Host` that are answered, as `name` for every port or `name:port`.
            origins: The values of `Origin` that are answered, besides none.
            path: The only path that there is.
            limits: The limits of each client.
            mark_client: Called with the scope and the name of the client, to note it for the app.
            clock: The source of time for the limits.
        """
        self._app = app
        self._tokens = tokens
        self._hosts = frozenset([each.lower() for each in hosts])
        self._origins = frozenset([each.lower().encode() for each in origins])
        self._path = path
        self._limits = limits or ClientLimits()
        self._mark_client = mark_client
        self._clock = clock
        self._usage: dict[str, ClientRequestLimiter] = {}
        self._open: dict[str, set[asyncio.Task[None]]] = {}
        """The requests in progress, by client."""
        self._is_closed = False
        tokens.on_revoked(self._end_requests)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or pass it on."""
        if scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
            return
        try:
            client = self._check_request(scope)
            usage = self._usage.get(client)
            if usage is None:
                limits = self._limits
                usage = ClientRequestLimiter(
                    limits.requests_per_minute, limits.requests_at_once, self._clock, "requests"
                )
                self._usage[client] = usage
            with usage.use():
                self._mark_client(scope, client)
                await self._pass_on(client, scope, receive, _add_headers(send))
        except _Refused as refused:
            await _send_refusal(refused, send)
        except TooManyCalls as error:
            await _send_refusal(_Refused(429, str(error), [(b"retry-after", b"1")]), send)

    def _check_request(self, scope: Scope) -> str:
        """Return the name of the client. Raises `_Refused` if the request may not be answered."""
        if self._is_closed:
            raise _Refused(503, "the server is shutting down")
        headers: list[tuple[bytes, bytes]] = [(name.lower(), value) for name, value in scope["headers"]]
        if sum([len(name) + len(value) for name, value in headers]) > MAX_HEADER_BYTES:
            raise _Refused(431, "the headers are too long")
        if not self._is_known_host([value for name, value in headers if name == b"host"]):
            raise _Refused(421, "this server has another name")
        for name, value in headers:
            if name == b"origin" and value.lower() not in self._origins:
                raise _Refused(403, "requests of this web page are not answered")
            if name == b"sec-fetch-site" and value not in _SAFE_SITES and not self._origins:
                raise _Refused(403, "requests of other web pages are not answered")
        client = self._find_client([value for name, value in headers if name == b"authorization"])
        if client is None:
            challenge = (b"www-authenticate", b'Bearer realm="mcp"')
            raise _Refused(401, "a valid token is needed: Authorization: Bearer …", [challenge])
        if scope["path"] != self._path:
            raise _Refused(404, f"there is nothing here: use {self._path}")
        if scope["method"] == "POST" and not _is_json([value for name, value in headers if name == b"content-type"]):
            raise _Refused(415, "the body has to be application/json")
        _check_length([value for name, value in headers if name == b"content-length"], self._limits.max_body_bytes)
        return client

    def _is_known_host(self, values: list[bytes]) -> bool:
        if len(values) != 1:
            return False
        text = values[0].decode("latin-1").lower()
        match = _HOST.fullmatch(text)
        return match is not None and (text in self._hosts or match[1] in self._hosts)

    def _find_client(self, values: list[bytes]) -> str | None:
        match = _BEARER.fullmatch(values[0]) if len(values) == 1 else None
        return None if match is None else self._tokens.find_client(match[1].decode("ascii"))

    async def _pass_on(self, client: str, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, in a task that ends when the token of its client is revoked."""
        body = _TimedBody(receive)

        async def answer() -> None:
            await self._app(scope, body.receive, send)

        task = asyncio.create_task(answer())
        body.on_incomplete = task.cancel
        running = self._open.setdefault(client, set())
        running.add(task)
        try:
            await asyncio.wait({task})
        finally:
            running.discard(task)
            task.cancel()
        if body.is_late:
            raise _Refused(408, "the body did not arrive in time")
        if not task.cancelled():
            task.result()

    def close(self) -> None:
        """Refuse all requests from now on, and end those in progress."""
        self._is_closed = True
        for client in list(self._open):
            self._end_requests(client)

    def _end_requests(self, client: str) -> None:
        for task in list(self._open.get(client, ())):
            task.get_loop().call_soon_threadsafe(task.cancel)


class _TimedBody:
    """`receive` of a request whose whole body has to arrive within `BODY_SECONDS`; a disconnect may be much later.

    A body that does not arrive as a whole is nothing to answer, and nothing to report: the request ends.
    """

    on_incomplete: Callable[[], object]
    """Ends the request."""

    def __init__(self, receive: Receive) -> None:
        self.is_late = False
        """True if the body did not arrive in time."""
        self._receive = receive
        self._deadline = asyncio.get_running_loop().time() + BODY_SECONDS
        self._is_complete = False

    async def receive(self) -> Message:
        if self._is_complete:
            return await self._receive()
        try:
            async with asyncio.timeout_at(self._deadline):
                message = await self._receive()
        except TimeoutError:
            self.is_late = True
            message = {"type": "http.disconnect"}
        if message["type"] == "http.disconnect":
            self.on_incomplete()
            await asyncio.Event().wait()  # until it is cancelled
        self._is_complete = message["type"] != "http.request" or not message.get("more_body", False)
        return message


def _is_json(values: list[bytes]) -> bool:
    return len(values) == 1 and values[0].split(b";")[0].strip().lower() == b"application/json"


def _check_length(values: list[bytes], max_bytes: int) -> None:
    if len(values) > 1 or (values and not values[0].isdigit()):
        raise _Refused(400, "content-length is not a number")
    if values and int(values[0][:20]) > max_bytes:
        raise _Refused(413, f"the body has more than {max_bytes:,} bytes")


def _add_headers(send: Send) -> Send:
    async def send_with_headers(message: Message) -> None:
        if message["type"] == "http.response.start":
            message["headers"] = [*message.get("headers", ()), *_FIXED_HEADERS]
        await send(message)

    return send_with_headers


async def _send_refusal(refused: _Refused, send: Send) -> None:
    body = refused.text.encode()
    headers = [
        (b"content-type", b"text/plain; charset=utf-8"),
        (b"content-length", str(len(body)).encode()),
        (b"connection", b"close"),
        *refused.headers,
        *_FIXED_HEADERS,
    ]
    await send({"type": "http.response.start", "status": refused.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


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
