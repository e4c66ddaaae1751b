"""The connections of one event loop, by aiohttp: this and `foreign.py` are all that knows of it. Above: `http.py`, at
the first request. Below: aiohttp.

Whatever aiohttp raises becomes a `NetError` here, once. Its own errors are not chained to ours, because they carry the
request, and with it the key.
"""

import asyncio
import atexit
import math
import re
import socket
import urllib.request
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from io import BytesIO
from typing import Any
from urllib.parse import urlsplit

import aiohttp
from yarl import URL

from perdure._version import __version__

from .error import BrokenOff, TooLarge, TooSlow
from .foreign import FOREIGN, broken_off, unanswered, was_dropped
from .transport import Deadlines

LOOK_SECONDS = 1.0
"""How often an answer that does not go on is looked at."""

_KEEP_ALIVE_SECONDS = 60.0
_LARGE_BYTES = 1024 * 1024
_CLOSING_SECONDS = 1.0
_MOST_ADDRESSES = 256
_HEADER_BYTES = 65536
"""How long the status line and each header may be: providers and their gateways are fond of long ones."""


class Pool:
    """The connections of one event loop."""

    def __init__(self, deadlines: Deadlines, most_bytes: int) -> None:
        self._deadlines = deadlines
        self._most_bytes = most_bytes
        self.loop = asyncio.get_running_loop()
        self._dialled = 0
        """How many connections were begun: a request during which none was, went out on an old one."""
        self._proxies: dict[str, str | None] = {}
        self._addresses: dict[str, URL] = {}
        connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=_KEEP_ALIVE_SECONDS, socket_factory=self._dial)
        self._session = aiohttp.ClientSession(
            connector=connector,
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=aiohttp.ClientTimeout(total=None, connect=deadlines.connect_seconds),
            # Compression would only hold small events back; an answer that is compressed anyway is understood.
            headers={"user-agent": f"perdure/{__version__}", "accept-encoding": "identity"},
            max_line_size=_HEADER_BYTES,
            max_field_size=_HEADER_BYTES,
        )
        _abandon_dead()
        _live.add(self)

    @property
    def closed(self) -> bool:
        """Whether it can be used no more."""
        return self._session.closed

    async def post(self, url: str, headers: Mapping[str, str], body: bytes | None) -> "Received":
        """Send, and wait for the beginning of the answer; without a body, get what is there. Raises a `NetError`."""
        try:
            async with asyncio.timeout(self._deadlines.first_byte_seconds):
                response = await self._sent(url, headers, body)
            return Received(response, self.loop, self._deadlines.idle_seconds, self._most_bytes)
        except FOREIGN as error:
            failure = unanswered(error, _host(url), self._deadlines)
        raise failure

    async def _sent(self, url: str, headers: Mapping[str, str], body: bytes | None) -> aiohttp.ClientResponse:
        dialled = self._dialled
        try:
            return await self._send(url, headers, body)
        except (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError) as error:
            if self._dialled != dialled or not was_dropped(error):
                raise
        # An old connection that its other end had given up meanwhile: nothing is wrong, so ask on a new one.
        return await self._send(url, headers, body)

    async def _send(self, url: str, headers: Mapping[str, str], body: bytes | None) -> aiohttp.ClientResponse:
        return await self._session.request(
            "GET" if body is None else "POST",
            self._address(url),
            # A large body goes in pieces, so that others are not held up while it is written.
            data=body if body is None or len(body) < _LARGE_BYTES else BytesIO(body),
            headers=headers,
            allow_redirects=False,  # a key is for the one that it was given to
            proxy=self._proxy(url),
        )

    def _address(self, url: str) -> URL:
        """Taken apart once. Sent as it was written, because some providers have it signed."""
        known = self._addresses.get(url)
        if known is None:
            if len(self._addresses) >= _MOST_ADDRESSES:
                self._addresses.clear()
            known = self._addresses[url] = URL(url, encoded=url.isascii())
        return known

    def _dial(self, address: Any) -> socket.socket:
        self._dialled += 1
        made = socket.socket(address[0], address[1], address[2])
        made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)  # a long silence is no reason for a router to forget
        return made

    def _proxy(self, url: str) -> str | None:
        """The proxy that the environment names for this address. (aiohttp itself would ask at every request.)"""
        parts = url.split("/", 3)
        origin = "/".join(parts[:3])
        if origin not in self._proxies:
            self._proxies[origin] = proxy_of(origin)
        return self._proxies[origin]

    async def aclose(self) -> None:
        """Close all connections, also those in use."""
        _live.discard(self)
        await self._session.close()

    def close_soon(self) -> None:
        """Close all connections, from outside of the loop."""
        if not self.loop.is_running():
            self.abandon()
            return
        closing = asyncio.run_coroutine_threadsafe(self.aclose(), self.loop)
        with suppress(Exception):  # at the end of a process there is nobody left to tell
            closing.result(_CLOSING_SECONDS)

    def abandon(self) -> None:
        """Forget connections whose loop is closed: there is nothing left that could close them."""
        _live.discard(self)
        closing = self._session.close().__await__()
        try:
            next(closing)
        except (StopIteration, RuntimeError):
            pass
        finally:
            closing.close()


_live: set[Pool] = set()
"""Pools that are open. Their owner may be garbage already, but they are not before they are closed."""


def _abandon_dead() -> None:
    """Let go of what belongs to loops that were closed without a word."""
    for pool in list(_live):
        if pool.loop.is_closed():
            pool.abandon()


@atexit.register
def _close_all() -> None:
    """Close what loops of other threads hold open when the process ends: that of `run_sync` has no end of its own."""
    for pool in list(_live):
        pool.close_soon()


class Received:
    """An answer that is coming in. It is its own iterator, so that nothing has to be closed but itself.

    One timer watches over all of its pieces. It looks now and then, and goes back to sleep when all is well: a piece
    costs no more than a look at the clock.
    """

    __slots__ = ("_idle", "_left", "_loop", "_read", "_response", "_since", "_time", "_timer", "headers", "status")

    def __init__(
        self, response: aiohttp.ClientResponse, loop: asyncio.AbstractEventLoop, idle_seconds: float, most_bytes: int
    ) -> None:
        self.status = response.status
        self.headers: Mapping[str, str] = {name.lower(): text for name, text in response.headers.items()}
        self._response = response
        self._read = response.content.readany
        self._left = most_bytes
        self._loop = loop
        self._time = loop.time
        self._idle = idle_seconds
        self._since = math.inf
        """Since when somebody waits for the next piece."""
        self._timer = loop.call_later(min(idle_seconds, LOOK_SECONDS), self._look)

    def chunks(self) -> AsyncIterator[bytes]:
        """The body, in pieces as they come."""
        return self

    def __aiter__(self) -> "Received":
        return self

    async def __anext__(self) -> bytes:
        self._since = self._time()
        try:
            data = await self._read()
        except FOREIGN as error:
            failure = broken_off(error, str(self._response.url.host))
        else:
            self._since = math.inf
            if not data:
                raise StopAsyncIteration
            self._left -= len(data)
            if self._left >= 0:
                return data
            failure = TooLarge(f"{self._response.url.host!r} answers with more than is taken: stopped reading")
        raise failure

    async def read(self, most_bytes: int) -> bytes:
        """The body, or as much of its beginning."""
        pieces: list[bytes] = []
        left = most_bytes
        async for data in self:
            pieces.append(data[:left])
            left -= len(data)
            if left <= 0:
                break
        return b"".join(pieces)

    def _look(self) -> None:
        """Whether somebody waits in vain; if not, look again later."""
        now = self._time()
        waited = now - self._since
        content, host = self._response.content, self._response.url.host
        if waited >= self._idle:
            told = f"{host!r} has sent nothing for {self._idle:g} s in the middle of its answer"
            content.set_exception(TooSlow(told))
        elif waited > 0 and self._is_deserted():
            content.set_exception(BrokenOff(f"the answer of {host!r} broke off in the middle of its framing"))
        else:
            self._timer = self._loop.call_later(min(self._idle - max(waited, 0.0), LOOK_SECONDS), self._look)

    def _is_deserted(self) -> bool:
        """Whether the connection is gone, and the reader was not told: aiohttp does not do it for a malformed chunk."""
        content, connection = self._response.content, self._response.connection
        if content.is_eof() or content.exception() is not None:
            return False
        return connection is None or connection.transport is None or connection.transport.is_closing()

    def close(self) -> None:
        """Let the connection go. What has not been read to its end cannot be used again."""
        self._timer.cancel()
        if not self._response.closed:
            self._response.close()


# -- the environment ---------------------------------------------------------------------------------------------------


def proxy_of(origin: str) -> str | None:
    """The proxy that the environment names for an address (`HTTPS_PROXY`, `ALL_PROXY`, `NO_PROXY`)."""
    parts = urlsplit(origin)
    if not parts.hostname or urllib.request.proxy_bypass(parts.netloc.rpartition("@")[2]):
        return None
    proxies = urllib.request.getproxies()
    return proxies.get(parts.scheme) or proxies.get("all")


def _host(url: str) -> str:
    """Who was meant, also by what is no address: by `urlsplit` a bracket alone would be an error."""
    return re.split(r"[/?#]", url.partition("://")[2], maxsplit=1)[0].rpartition("@")[2]
