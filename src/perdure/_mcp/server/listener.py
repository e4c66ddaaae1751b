"""Serve the ASGI app of an MCP server over HTTP: open the listening socket, and run uvicorn."""

import asyncio
import socket as sockets
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Final

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from perdure._core.values.error import ConfigError

from .http_app import McpApp

_MAX_CONNECTIONS: Final = 512
_MAX_HEADER_BYTES: Final = 32 * 1024
_KEEP_ALIVE_SECONDS: Final = 30
_STOP_SECONDS: Final = 15
"""Time for requests in progress to end, once they were cancelled."""
_BACKLOG: Final = 128
HEADER_SECONDS: Final = 10.0
"""The time in which a new connection has to send the headers of a request."""


class _TimedConnection(H11Protocol):
    """Connection that is closed if no request arrives in time: it has shown no token, and must not take up a place."""

    def connection_made(self, transport: Any) -> None:
        """Accept a connection, if there are not too many."""
        super().connection_made(transport)
        if len(self.connections) > _MAX_CONNECTIONS:
            transport.abort()
        else:
            self.loop.call_later(HEADER_SECONDS, self._close_without_request)

    def _close_without_request(self) -> None:
        has_request = getattr(self, "scope", None) is not None  # which uvicorn sets with the first one
        if not has_request and not self.transport.is_closing():
            self.transport.abort()


class _Server(uvicorn.Server):
    """Uvicorn without its signal handlers: signals belong to the program."""

    on_started: Callable[[], None] = staticmethod(lambda: None)

    def capture_signals(self) -> AbstractContextManager[None]:  # type: ignore[override] # pyright: ignore[reportIncompatibleMethodOverride]
        """Return a context that captures none."""
        return nullcontext()

    async def startup(self, sockets: list[sockets.socket] | None = None) -> None:
        """Begin to listen, and report it."""
        await super().startup(sockets)
        self.on_started()


def listen(host: str, port: int) -> sockets.socket:
    """Open a listening socket. Raises `ConfigError` if the address or port cannot be used."""
    try:
        family = sockets.AF_INET6 if ":" in host else sockets.AF_INET
        made = sockets.create_server((host, port), family=family, backlog=_BACKLOG)
    except OSError as error:
        raise ConfigError(
            f"cannot listen on {host} port {port} ({error}): choose another, or 0 for a free port"
        ) from None
    # Connections inherit it. asyncio sets it only for sockets whose protocol number is given, and without it the second
    # piece of an answer waits 40 ms for an acknowledgement of the first.
    made.setsockopt(sockets.IPPROTO_TCP, sockets.TCP_NODELAY, 1)
    return made


async def run_http_server(
    app: McpApp,
    socket: sockets.socket,
    *,
    certificate_file: str = "",
    key_file: str = "",
    on_started: Callable[[], None],
) -> None:
    """Serve the ASGI app of an MCP server until this call is cancelled; then end its requests, and wait for them."""
    config = uvicorn.Config(
        app,
        http=_TimedConnection,
        log_config=None,
        access_log=False,
        server_header=False,
        lifespan="off",
        ws="none",
        proxy_headers=False,
        limit_concurrency=_MAX_CONNECTIONS,
        h11_max_incomplete_event_size=_MAX_HEADER_BYTES,
        timeout_keep_alive=_KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=_STOP_SECONDS,
        ssl_certfile=certificate_file or None,
        ssl_keyfile=key_file or None,
    )
    server = _Server(config)
    server.on_started = on_started
    async with app.lifespan():
        task = asyncio.create_task(server.serve([socket]))
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError:
            app.close()
            server.should_exit = True
            await asyncio.wait({task})  # a second cancel abandons it
            raise
        task.result()
