"""The real transport: HTTP, with connections that are kept and used again. Above: whoever speaks to the network.
Below: `pool.py`, which is imported at the first request.

Connections belong to an event loop. Each loop gets a pool of its own, which is closed with the loop: nobody has to
remember it, and nobody is warned of it.
"""

import asyncio
import threading
from collections.abc import AsyncGenerator, Mapping
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING

from .transport import Answer, Deadlines

if TYPE_CHECKING:
    from .pool import Pool, Received

MOST_ANSWER_BYTES = 64 * 1024 * 1024
"""How large one answer may be, decompressed."""


class Http:
    """Posts over HTTP. One object serves any number of event loops and threads.

    Proxies are taken from the environment (`HTTPS_PROXY`, `NO_PROXY`, …), and so are certificates (`SSL_CERT_FILE`,
    `SSL_CERT_DIR`). Redirects are answers, and are not followed. A request that finds its old connection dropped is
    sent once more on a new one, so it must be one that may be sent twice.
    """

    def __init__(self, *, deadlines: Deadlines | None = None, most_bytes: int = MOST_ANSWER_BYTES) -> None:
        self._deadlines = deadlines or Deadlines()
        self._most_bytes = most_bytes
        self._lock = threading.Lock()
        self._pools: dict[asyncio.AbstractEventLoop, tuple[Pool, AsyncGenerator[None, None]]] = {}
        """For each loop its pool, and what closes it."""

    def post(self, url: str, headers: Mapping[str, str], body: bytes) -> AbstractAsyncContextManager[Answer]:
        """Send this, and wait for the beginning of the answer, whatever its status. Raises a `NetError`."""
        return _Post(self, url, headers, body)

    def get(self, url: str, headers: Mapping[str, str]) -> AbstractAsyncContextManager[Answer]:
        """Ask for what is there, and wait for the beginning of the answer, whatever its status. Raises a `NetError`."""
        return _Post(self, url, headers, None)

    async def pool(self) -> "Pool":
        """The pool of the running loop."""
        loop = asyncio.get_running_loop()
        kept = self._pools.get(loop)
        if kept is not None and not kept[0].closed:
            return kept[0]
        from .pool import Pool

        pool = Pool(self._deadlines, self._most_bytes)
        lifespan = _lifespan(pool)
        await anext(lifespan)
        with self._lock:
            self._forget_closed_loops()
            self._pools[loop] = pool, lifespan
        return pool

    async def aclose(self) -> None:
        """Close all connections of this loop, and those of loops that run in other threads. Can be used again."""
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
        return f"Http({self._deadlines!r}, most_bytes={self._most_bytes})"


async def _lifespan(pool: "Pool") -> AsyncGenerator[None, None]:
    """A generator that is never finished: its loop closes it when the loop itself ends (as `asyncio.run` does it), or
    when nobody has it any more. So the pool is closed in time, whoever forgets it.
    """
    try:
        yield
    finally:
        await pool.aclose()


class _Post(AbstractAsyncContextManager["Answer"]):
    """One exchange."""

    __slots__ = ("_body", "_headers", "_http", "_received", "_url")

    def __init__(self, http: Http, url: str, headers: Mapping[str, str], body: bytes | None) -> None:
        self._http = http
        self._url = url
        self._headers = headers
        self._body = body
        self._received: Received | None = None

    async def __aenter__(self) -> Answer:
        pool = await self._http.pool()
        self._received = await pool.post(self._url, self._headers, self._body)
        return self._received

    async def __aexit__(self, *_: object) -> None:
        if self._received is not None:
            self._received.close()


_shared: Http | None = None


def shared() -> Http:
    """The transport of everybody who does not bring one: its connections are shared by all of a process."""
    global _shared  # noqa: PLW0603 - one per process, made when it is first asked for
    if _shared is None:
        _shared = Http()
    return _shared
