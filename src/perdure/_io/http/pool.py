"""Pool of HTTP connections for one event loop, on top of aiohttp, whose exceptions are converted to `NetError`."""

import asyncio
import atexit
import errno
import math
import re
import socket
import urllib.request
from collections.abc import AsyncIterator, Awaitable, Mapping
from contextlib import suppress
from io import BytesIO
from typing import Any
from urllib.parse import urlsplit

import aiohttp
from aiohttp import http_exceptions
from yarl import URL

from perdure._io.egress.policy import EgressPolicy, LookUp
from perdure._io.egress.resolver import CheckedResolver, check_socket_address
from perdure._version import __version__

from .timeouts import FirstByteTimer, SharedTimeoutTimer
from .transport import (
    Deadlines,
    HostUnreachable,
    HttpTimeoutExceeded,
    InvalidResponse,
    NetError,
    ResponseCutOff,
    ResponseTooLarge,
)

AIOHTTP_ERRORS = (aiohttp.ClientError, OSError, ValueError, RuntimeError)
"""Exceptions that aiohttp raises; a `RuntimeError` if a connection was closed while in use."""

_LONGEST_REASON = 200
_DROPPED = (errno.ECONNRESET, errno.EPIPE, errno.ECONNABORTED, errno.ESHUTDOWN)

_REQUEST_ERRORS: tuple[tuple[type[Exception], type[NetError], str], ...] = (
    (
        aiohttp.ConnectionTimeoutError,
        HttpTimeoutExceeded,
        "no connection to {host!r} within {deadlines.connect_seconds:g} s: check the address and the network",
    ),
    (TimeoutError, HttpTimeoutExceeded, "{host!r} did not start to respond within {deadlines.first_byte_seconds:g} s"),
    (
        aiohttp.ClientSSLError,
        InvalidResponse,
        "the connection to {host!r} cannot be trusted ({reason}): name the certificates to trust in SSL_CERT_FILE",
    ),
    (
        aiohttp.ClientProxyConnectionError,
        HostUnreachable,
        "the proxy on the way to {host!r} cannot be reached ({reason}): see HTTPS_PROXY and NO_PROXY",
    ),
    (
        aiohttp.ClientHttpProxyError,
        HostUnreachable,
        "the proxy on the way to {host!r} refuses the request ({reason}): see HTTPS_PROXY and NO_PROXY",
    ),
    (
        aiohttp.ClientConnectorDNSError,
        HostUnreachable,
        "there is no host {host!r} ({reason}): check the address and the network",
    ),
    (
        aiohttp.ClientConnectorError,
        HostUnreachable,
        "cannot connect to {host!r} ({reason}): is it running, and is the port right?",
    ),
    (
        aiohttp.ClientResponseError,
        InvalidResponse,
        "{host!r} sent a response that is not HTTP ({reason}): check the address",
    ),
    (
        aiohttp.InvalidURL,
        NetError,
        "cannot send a request to the host {host!r}: give a complete URL, such as 'https://example.com/v1'",
    ),
    (
        aiohttp.NonHttpUrlClientError,
        NetError,
        "cannot send a request to the host {host!r}: give a URL that begins with 'https://' or 'http://'",
    ),
    (aiohttp.ClientConnectionError, HostUnreachable, "{host!r} closed the connection without an answer ({reason})"),
    (OSError, HostUnreachable, "{host!r} closed the connection without an answer ({reason})"),
    (Exception, NetError, "cannot send a request to {host!r}: {reason}"),
)
"""Exception type, error class and message of failed requests. The first match counts."""


def convert_request_error(error: Exception, host: str, deadlines: Deadlines) -> NetError:
    """Return the `NetError` for an aiohttp exception that was raised before the response started."""
    root = _get_root_cause(error)
    if isinstance(root, http_exceptions.BadHttpMessage) and not isinstance(root, http_exceptions.BadStatusLine):
        return convert_read_error(error, host)
    ours, told = next((ours, told) for theirs, ours, told in _REQUEST_ERRORS if isinstance(error, theirs))
    return ours(told.format(host=host, deadlines=deadlines, reason=_get_short_reason(error)))


def convert_read_error(error: Exception, host: str) -> NetError:
    """Return the `NetError` for an aiohttp exception that was raised while the response was read."""
    if isinstance(_get_root_cause(error), http_exceptions.ContentEncodingError):
        return InvalidResponse(
            f"the answer of {host!r} is not compressed as its header says ({_get_short_reason(error)})"
        )
    return ResponseCutOff(f"the answer of {host!r} broke off ({_get_short_reason(error)})")


def is_connection_dropped(error: aiohttp.ServerDisconnectedError | aiohttp.ClientOSError) -> bool:
    """Return True if an aiohttp exception means that the server closed the connection."""
    return isinstance(error, aiohttp.ServerDisconnectedError) or error.errno in _DROPPED


def _get_root_cause(error: BaseException) -> BaseException:
    """Return the original cause of an exception."""
    while error.__cause__ is not None:
        error = error.__cause__
    return error


def _get_short_reason(error: BaseException) -> str:
    """Return the message of a foreign exception as one short line, never in full: it may contain the whole URL."""
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        error = error.certificate_error
    elif isinstance(error, aiohttp.ClientConnectorError):
        error = error.os_error
    said = getattr(error, "strerror", None) or getattr(error, "message", None) or str(error) or type(error).__name__
    return " ".join(str(said).split())[:_LONGEST_REASON]


_KEEP_ALIVE_SECONDS = 60.0
_LARGE_BYTES = 1024 * 1024
_CLOSING_SECONDS = 1.0
_MOST_ADDRESSES = 256
_HEADER_BYTES = 65536
"""Maximum length of the status line and of each header: providers and gateways send long ones."""


class HttpConnectionPool:
    """Pool of HTTP connections for one event loop; an egress policy, if given, restricts their addresses."""

    def __init__(
        self,
        deadlines: Deadlines,
        max_bytes: int,
        egress: EgressPolicy | None = None,
        look_up: LookUp | None = None,
    ) -> None:
        self._deadlines = deadlines
        self._most_bytes = max_bytes
        self._egress = egress
        is_checked = egress is not None and egress.proxy is None  # a proxy makes the connections itself
        self._checked_by = egress if is_checked else None
        self.loop = asyncio.get_running_loop()
        self._watch = SharedTimeoutTimer(self.loop, min(deadlines.first_byte_seconds, deadlines.idle_seconds))
        self._dialled = 0
        """Number of connections opened so far: if it does not change during a request, the request used an old
        connection.
        """
        self._proxies: dict[str, str | None] = {}
        self._addresses: dict[str, URL] = {}
        connector = aiohttp.TCPConnector(
            limit=0,
            keepalive_timeout=_KEEP_ALIVE_SECONDS,
            socket_factory=self._open_socket,
            resolver=None if self._checked_by is None else CheckedResolver(self._checked_by, look_up),
            use_dns_cache=egress is None,
        )
        self._session = aiohttp.ClientSession(
            connector=connector,
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=aiohttp.ClientTimeout(total=None, connect=deadlines.connect_seconds),
            # Compression would only delay small events; a response that is compressed anyway is decompressed.
            headers={"user-agent": f"perdure/{__version__}", "accept-encoding": "identity"},
            max_line_size=_HEADER_BYTES,
            max_field_size=_HEADER_BYTES,
            auto_decompress=egress is None,  # the client of an egress policy does it itself, and stops at its limit
        )
        _abandon_closed_loops()
        _open_pools.add(self)

    @property
    def is_closed(self) -> bool:
        """True if the pool is closed."""
        return self._session.closed

    async def send(self, url: str, headers: Mapping[str, str], body: bytes | None) -> "ReceivedResponse":
        """Send a POST request (GET without a body) and wait until the response starts. Raise a `NetError` if none
        does.
        """
        try:
            with FirstByteTimer(self._watch, self._deadlines.first_byte_seconds):
                response = await self._send_with_reconnect(url, headers, body)
            return ReceivedResponse(response, self._watch, self._deadlines.idle_seconds, self._most_bytes)
        except AIOHTTP_ERRORS as error:
            failure = convert_request_error(error, _get_host(url), self._deadlines)
        raise failure

    async def _send_with_reconnect(
        self, url: str, headers: Mapping[str, str], body: bytes | None
    ) -> aiohttp.ClientResponse:
        dialled = self._dialled
        try:
            return await self._send(url, headers, body)
        except (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError) as error:
            if self._dialled != dialled or not is_connection_dropped(error):
                raise
        # The server had closed the old connection in the meantime: nothing is wrong, so use a new one.
        return await self._send(url, headers, body)

    def _send(self, url: str, headers: Mapping[str, str], body: bytes | None) -> Awaitable[aiohttp.ClientResponse]:
        return self._session.request(
            "GET" if body is None else "POST",
            self._parse_url(url),
            # A large body is sent in pieces, so that other requests are not delayed while it is written.
            data=body if body is None or len(body) < _LARGE_BYTES else BytesIO(body),
            headers=headers,
            allow_redirects=False,  # a key must not be sent to another host
            proxy=self._get_proxy(url),
        )

    def _parse_url(self, url: str) -> URL:
        """Parse a URL once and cache it. It is sent exactly as written, because some providers sign it."""
        known = self._addresses.get(url)
        if known is None:
            if len(self._addresses) >= _MOST_ADDRESSES:
                self._addresses.clear()
            known = self._addresses[url] = URL(url, encoded=url.isascii())
        return known

    def _open_socket(self, address: Any) -> socket.socket:
        if self._checked_by is not None:
            check_socket_address(self._checked_by, address)
        self._dialled += 1
        made = socket.socket(address[0], address[1], address[2])
        made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)  # so that routers keep it in a long silence
        return made

    def _get_proxy(self, url: str) -> str | None:
        """Return the proxy of the egress policy, or else the one that the environment sets for this URL, cached per
        origin. (aiohttp would look it up at every request.)
        """
        if self._egress is not None:
            return self._egress.proxy
        parts = url.split("/", 3)
        origin = "/".join(parts[:3])
        if origin not in self._proxies:
            self._proxies[origin] = find_proxy(origin)
        return self._proxies[origin]

    async def aclose(self) -> None:
        """Close all connections, including those in use."""
        _open_pools.discard(self)
        try:
            await self._session.close()
        finally:
            self._watch.close()

    def close_threadsafe(self) -> None:
        """Close all connections; may be called from outside the event loop."""
        if not self.loop.is_running():
            self.abandon()
            return
        closing = asyncio.run_coroutine_threadsafe(self.aclose(), self.loop)
        with suppress(Exception):  # at exit nothing could handle the error
            closing.result(_CLOSING_SECONDS)

    def abandon(self) -> None:
        """Discard connections whose loop is closed and can no longer close them."""
        _open_pools.discard(self)
        closing = self._session.close().__await__()
        try:
            next(closing)
        except (StopIteration, RuntimeError):
            pass
        finally:
            closing.close()


_open_pools: set[HttpConnectionPool] = set()
"""Open pools. Keeps them from being garbage-collected before they are closed."""


def _abandon_closed_loops() -> None:
    """Discard the pools of event loops that were closed without closing their pool."""
    for pool in list(_open_pools):
        if pool.loop.is_closed():
            pool.abandon()


@atexit.register
def _close_all_pools() -> None:
    """Close all open pools at exit. The loop of `run_sync` runs in a thread and does not end before."""
    for pool in list(_open_pools):
        pool.close_threadsafe()


class ReceivedResponse:
    """HTTP response whose status and headers have arrived; iterate over it to receive the body.

    It is checked at intervals whether it takes too long, so a piece costs no more than reading the clock.
    """

    __slots__ = ("_idle", "_left", "_read", "_response", "_since", "_time", "_watch", "headers", "status")

    def __init__(
        self, response: aiohttp.ClientResponse, watch: SharedTimeoutTimer, idle_seconds: float, most_bytes: int
    ) -> None:
        self.status = response.status
        self.headers: Mapping[str, str] = {name.lower(): text for name, text in response.headers.items()}
        self._response = response
        self._read = response.content.readany
        self._left = most_bytes
        self._time = watch.time
        self._idle = idle_seconds
        self._since = math.inf
        """Time since when a reader has been waiting for the next piece; infinity if none is."""
        self._watch = watch
        watch.add(self)

    def chunks(self) -> AsyncIterator[bytes]:
        """Return an iterator over the body, in pieces as they arrive."""
        return self

    def __aiter__(self) -> "ReceivedResponse":
        return self

    async def __anext__(self) -> bytes:
        self._since = self._time()
        try:
            data = await self._read()
        except AIOHTTP_ERRORS as error:
            failure = convert_read_error(error, str(self._response.url.host))
        else:
            self._since = math.inf
            if not data:
                raise StopAsyncIteration
            self._left -= len(data)
            if self._left >= 0:
                return data
            failure = ResponseTooLarge(
                f"the response of {self._response.url.host!r} exceeds the size limit: stopped reading"
            )
        raise failure

    @property
    def is_complete(self) -> bool:
        """True if the body has arrived and was read to its end."""
        return self._response.content.at_eof()

    async def read(self, most_bytes: int) -> bytes:
        """Read the body, up to this many bytes."""
        pieces: list[bytes] = []
        left = most_bytes
        async for data in self:
            pieces.append(data[:left])
            left -= len(data)
            if left <= 0:
                break
        return b"".join(pieces)

    def check_time(self, now: float) -> float:
        """Raise an error in the reader if it has waited too long or the connection is lost; return the seconds within
        which it has to be checked again.
        """
        waited = now - self._since
        content, host = self._response.content, self._response.url.host
        if waited >= self._idle:
            told = f"{host!r} has sent nothing for {self._idle:g} s in the middle of its answer"
            content.set_exception(HttpTimeoutExceeded(told))
            self._watch.remove(self)
            return math.inf
        if waited > 0 and self._is_connection_lost():
            content.set_exception(ResponseCutOff(f"the answer of {host!r} broke off in the middle of its framing"))
            self._watch.remove(self)
        return self._idle - max(waited, 0.0)

    def _is_connection_lost(self) -> bool:
        """Return True if the connection is lost and the reader was not notified: aiohttp does not do it for a malformed
        chunk.
        """
        content, connection = self._response.content, self._response.connection
        if content.is_eof() or content.exception() is not None:
            return False
        return connection is None or connection.transport is None or connection.transport.is_closing()

    def close(self) -> None:
        """Release the connection. One whose body was not read to its end is closed and not reused."""
        self._watch.remove(self)
        if not self._response.closed:
            self._response.close()


# -- the environment ---------------------------------------------------------------------------------------------------


def find_proxy(origin: str) -> str | None:
    """Return the proxy for a URL from the environment (`HTTPS_PROXY`, `ALL_PROXY`, `NO_PROXY`), or None."""
    parts = urlsplit(origin)
    if not parts.hostname or urllib.request.proxy_bypass(parts.netloc.rpartition("@")[2]):
        return None
    proxies = urllib.request.getproxies()
    return proxies.get(parts.scheme) or proxies.get("all")


def _get_host(url: str) -> str:
    """Return the host of a URL, even of an invalid one: `urlsplit` raises for a single bracket."""
    return re.split(r"[/?#]", url.partition("://")[2], maxsplit=1)[0].rpartition("@")[2]
