"""HTTP transport of models, which keeps connections alive and reuses them.

Connections belong to an event loop. Each loop gets its own pool, which is closed together with the loop, so callers do
not have to close it and get no warnings.
"""

import asyncio
import threading
from collections.abc import AsyncGenerator, Mapping
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING

from .transport import Deadlines, Response

if TYPE_CHECKING:
    from perdure._io.egress.policy import EgressPolicy, LookUp

    from .pool import HttpConnectionPool, ReceivedResponse

MAX_RESPONSE_BYTES = 64 * 1024 * 1024
"""Maximum size of a response, decompressed."""


class HttpTransport:
    """Transport that sends HTTP requests and streams the responses, on any number of event loops and threads.

    Proxies are taken from the environment (`HTTPS_PROXY`, `NO_PROXY`, …), and so are certificates (`SSL_CERT_FILE`,
    `SSL_CERT_DIR`). Redirects are returned as responses and not followed. A request whose reused connection turns out
    to be closed is sent again on a new one, so it must be safe to send twice.

    With `egress`, a connection is made only to addresses that the policy allows, and proxies of the environment are not
    used. Then bodies are not decompressed. `EgressClient` is such a transport with checks of URLs and redirects.
    """

    def __init__(
        self,
        *,
        deadlines: Deadlines | None = None,
        max_bytes: int = MAX_RESPONSE_BYTES,
        egress: "EgressPolicy | None" = None,
        look_up: "LookUp | None" = None,
    ) -> None:
        self._deadlines = deadlines or Deadlines()
        self._most_bytes = max_bytes
        self._egress = egress
        self._look_up = look_up
        self._lock = threading.Lock()
        self._pools: dict[asyncio.AbstractEventLoop, tuple[HttpConnectionPool, AsyncGenerator[None, None]]] = {}
        """For each loop its pool, and the generator that closes it."""

    def post(self, url: str, headers: Mapping[str, str], body: bytes) -> AbstractAsyncContextManager[Response]:
        """Send a POST request and wait until the response starts, with any status. Raise a `NetError` if none does."""
        return _HttpRequest(self, url, headers, body)

    def get(self, url: str, headers: Mapping[str, str]) -> AbstractAsyncContextManager[Response]:
        """Send a GET request and wait until the response starts, with any status. Raise a `NetError` if none does."""
        return _HttpRequest(self, url, headers, None)

    def find_pool(self) -> "HttpConnectionPool | None":
        """Return the open connection pool of the running event loop; `None` if there is none."""
        kept = self._pools.get(asyncio.get_running_loop())
        return kept[0] if kept is not None and not kept[0].is_closed else None

    async def open_pool(self) -> "HttpConnectionPool":
        """Create the connection pool of the running event loop."""
        from .pool import HttpConnectionPool

        loop = asyncio.get_running_loop()
        pool = HttpConnectionPool(self._deadlines, self._most_bytes, self._egress, self._look_up)
        lifespan = _close_with_loop(pool)
        await anext(lifespan)
        with self._lock:
            self._forget_closed_loops()
            self._pools[loop] = pool, lifespan
        return pool

    async def aclose(self) -> None:
        """Close all connections of this loop, and those of loops running in other threads. The transport can be used
        again.
        """
        with self._lock:
            self._forget_closed_loops()
            pools, self._pools = self._pools, {}
        here = asyncio.get_running_loop()
        for loop, (pool, lifespan) in pools.items():
            if loop is here:
                await lifespan.aclose()
            elif loop.is_running():
                closing = asyncio.run_coroutine_threadsafe(pool.aclose(), loop)
                await asyncio.wrap_future(closing)

    def _forget_closed_loops(self) -> None:
        for loop in [loop for loop in self._pools if loop.is_closed()]:
            del self._pools[loop]

    def __repr__(self) -> str:
        return f"HttpTransport({self._deadlines!r}, most_bytes={self._most_bytes})"


async def _close_with_loop(pool: "HttpConnectionPool") -> AsyncGenerator[None, None]:
    """Async generator that closes the pool when its event loop shuts down, even if the caller forgets to."""
    try:
        yield
    finally:
        await pool.aclose()


class _HttpRequest(AbstractAsyncContextManager["Response"]):
    """Context manager of one request, which gives its response."""

    __slots__ = ("_body", "_headers", "_http", "_received", "_url")

    def __init__(self, http: HttpTransport, url: str, headers: Mapping[str, str], body: bytes | None) -> None:
        self._http = http
        self._url = url
        self._headers = headers
        self._body = body
        self._received: ReceivedResponse | None = None

    async def __aenter__(self) -> Response:
        pool = self._http.find_pool() or await self._http.open_pool()
        self._received = await pool.send(self._url, self._headers, self._body)
        return self._received

    async def __aexit__(self, *_: object) -> None:
        if self._received is not None:
            self._received.close()


_shared: HttpTransport | None = None


def get_shared_transport() -> HttpTransport:
    """Return the HTTP transport that all models of the process share, unless a model was given another one."""
    global _shared  # noqa: PLW0603 - one per process, created on first use
    if _shared is None:
        _shared = HttpTransport()
    return _shared
