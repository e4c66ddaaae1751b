"""HTTP proxy on loopback that applies an egress policy to the connections of another program, such as a browser.

A browser opens connections by itself: for images, scripts, frames, sockets. Started with this proxy as its only way
out, each of them is checked like a request of `EgressClient`: the host and port, then every address of the host, and
the connection goes to an address that was checked. A host whose DNS answer changes gets no further.

Only who knows the password of the proxy can use it.
"""

import asyncio
import contextlib
import hmac
import re
import secrets
from base64 import b64encode
from collections import deque
from collections.abc import Mapping, Sequence
from ipaddress import ip_address
from typing import Final, Self

from msgspec import Struct

from perdure._core.permission.targets.url import UrlTarget
from perdure._core.values import checks
from perdure._core.values.checks import StrictOptionsMeta
from perdure._core.values.error import ConfigError
from perdure._io.http.transport import EgressDenied

from .policy import EgressPolicy, LookUp
from .resolver import CheckedResolver

_HOST: Final = "127.0.0.1"
_MOST_HEAD_BYTES: Final = 64 * 1024
_READ_BYTES: Final = 64 * 1024
_MOST_ADDRESSES: Final = 4
"""The addresses of one host that are tried, one after another."""
_MOST_DENIALS: Final = 200
_HOP_HEADERS: Final = frozenset(
    {
        "connection",
        "host",
        "keep-alive",
        "proxy-authenticate",
        "proxy-authorization",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)
"""Headers between the program and this proxy, which are not passed on."""
_RESPONSE_HOP_HEADERS: Final = frozenset({b"connection", b"keep-alive", b"proxy-connection", b"upgrade"})
_INTERIM_STATUS: Final = re.compile(rb"HTTP/1\.[01] 1\d\d ")


class ProxyLimits(Struct, frozen=True, kw_only=True, metaclass=StrictOptionsMeta):
    """Limits of an `EgressProxy`: time and bytes of each connection, and the number of connections."""

    connect_seconds: float = 15.0
    """The time to read a request, to look up its host and to connect."""
    idle_seconds: float = 60.0
    """A connection on which nothing was sent or received for this long is closed."""
    max_seconds: float = 600.0
    """A connection is closed after this time."""
    max_download_bytes: int = 200 * 1024 * 1024
    """The most that is received on a connection; then it is closed."""
    max_upload_bytes: int = 20 * 1024 * 1024
    """The most that is sent on a connection; then it is closed."""
    max_connections: int = 128
    """The most connections at a time; more are refused."""

    def __post_init__(self) -> None:
        for name in ("connect_seconds", "idle_seconds", "max_seconds"):
            checks.require_number("ProxyLimits", name, getattr(self, name))
        for name in ("max_download_bytes", "max_upload_bytes", "max_connections"):
            checks.require_int("ProxyLimits", name, getattr(self, name), 1)


class EgressDenial(Struct, frozen=True):
    """Record of a connection that an `EgressProxy` refused to make: host, port and reason."""

    host: str
    port: int
    reason: str
    """Part of a sentence, such as "the host 'a.example' has an address that is not public"."""


class _Refusal(Exception):
    """A request that is answered with an error instead of a connection."""

    def __init__(self, status: str, reason: str, headers: str = "") -> None:
        super().__init__(reason)
        self.answer = (
            f"HTTP/1.1 {status}\r\nConnection: close\r\nContent-Type: text/plain; charset=utf-8\r\n"
            f"Content-Length: {len(reason.encode())}\r\n{headers}\r\n{reason}"
        ).encode()


class _ProxyRequest(Struct, frozen=True):
    """The head of a request to the proxy."""

    method: str
    address: str
    """`host:port` of CONNECT, else a whole URL."""
    headers: Sequence[tuple[str, str]]

    def get_header(self, name: str) -> str:
        return next((value for each, value in self.headers if each.lower() == name), "")


class EgressProxy:
    """HTTP proxy on loopback that applies an egress policy to CONNECT and plain requests. Uses one event loop.

    Use it with `async with`, or call `start` and `aclose`. `policy.proxy` is not supported: the proxy connects itself.
    """

    def __init__(
        self, policy: EgressPolicy | None = None, *, look_up: LookUp | None = None, limits: ProxyLimits | None = None
    ) -> None:
        """Prepare a proxy with a new password.

        Args:
            policy: Where connections may go; by default to all public hosts.
            look_up: An async function that resolves host names; by default the operating system does.
            limits: Limits of each connection.
        """
        self.policy = policy or EgressPolicy()
        """Where connections may go."""
        if self.policy.proxy is not None:
            raise ConfigError("EgressProxy(policy): it connects by itself, so give a policy without proxy=")
        self.limits = limits or ProxyLimits()
        """Limits of each connection."""
        self.username = "perdure"
        self.password = secrets.token_urlsafe(24)
        self.denials: deque[EgressDenial] = deque(maxlen=_MOST_DENIALS)
        """The latest connections that were refused, the last one at the end."""
        self.denial_count = 0
        """The number of connections that were refused."""
        self.connection_count = 0
        """The number of connections that were made to hosts."""
        self._authorization = b64encode(f"{self.username}:{self.password}".encode()).decode()
        self._resolver = CheckedResolver(self.policy, look_up)
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def url(self) -> str:
        """The URL of the proxy, without its password. Raises `RuntimeError` before it is started."""
        if self._server is None:
            raise RuntimeError("the proxy is not started")
        return f"http://{_HOST}:{self._server.sockets[0].getsockname()[1]}"

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def start(self) -> None:
        """Listen on a free port of the loopback interface."""
        self._server = await asyncio.start_server(self._accept, _HOST, 0, limit=_MOST_HEAD_BYTES)

    async def aclose(self) -> None:
        """Stop listening, and close all connections. May be called twice."""
        server, self._server = self._server, None
        if server is None:
            return
        server.close()
        tasks = list(self._tasks)
        for each in tasks:
            each.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await server.wait_closed()

    def list_denials(self, since: int = 0) -> list[EgressDenial]:
        """Return the connections that were refused since `denial_count` had a value, the latest one first."""
        return list(reversed(self.denials))[: self.denial_count - since]

    # -- one connection ------------------------------------------------------------------------------------------------

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.ensure_future(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one request, and close the connection after it."""
        try:
            async with asyncio.timeout(self.limits.max_seconds):
                try:
                    await self._answer(reader, writer)
                except _Refusal as refusal:
                    writer.write(refusal.answer)
                    await writer.drain()
        except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass  # it is closed: the program at the other end reports it
        finally:
            await _close_stream(writer)

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async with asyncio.timeout(self.limits.connect_seconds):
            request = _parse_head(await reader.readuntil(b"\r\n\r\n"))
            self._check_caller(request)
            target = self._check_target(request)
            body_bytes = None if request.method == "CONNECT" else _get_body_length(request, self.limits)
            upstream = await self._connect(target)
        transfer = _Transfer(self.limits)
        try:
            if body_bytes is None:
                writer.write(b"HTTP/1.1 200 Connection Established\r\n\r\n")
            else:
                upstream[1].write(_build_head(request, target))
            await transfer.relay((reader, writer), upstream, body_bytes)
        finally:
            await _close_stream(upstream[1])

    def _check_caller(self, request: _ProxyRequest) -> None:
        """Refuse a request without the password, and one beyond the limit of connections."""
        scheme, _, given = request.get_header("proxy-authorization").partition(" ")
        if scheme.lower() != "basic" or not hmac.compare_digest(given.strip().encode(), self._authorization.encode()):
            challenge = 'Proxy-Authenticate: Basic realm="perdure"\r\n'
            raise _Refusal("407 Proxy Authentication Required", "this proxy needs a password", challenge)
        if len(self._tasks) > self.limits.max_connections:
            raise _Refusal("503 Service Unavailable", f"there are {self.limits.max_connections} connections already")

    def _check_target(self, request: _ProxyRequest) -> UrlTarget:
        """Return where a request goes, once the policy allows it. Looks nothing up."""
        url = f"https://{request.address}/" if request.method == "CONNECT" else request.address
        try:
            target = UrlTarget.of(url)
        except ValueError as error:
            raise _Refusal("400 Bad Request", str(error)) from None
        if request.method != "CONNECT" and target.scheme != "http":
            raise _Refusal("400 Bad Request", "a plain request needs an http:// address")
        try:
            return self.policy.check_url(target)
        except EgressDenied as error:
            raise self._deny(target, error) from None

    def _deny(self, target: UrlTarget, error: EgressDenied) -> _Refusal:
        self.denial_count += 1
        self.denials.append(EgressDenial(target.host, target.port, str(error)))
        return _Refusal("403 Forbidden", f"not allowed: {error}")

    async def _connect(self, target: UrlTarget) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Connect to one of the addresses of a host, once all of them are checked."""
        try:
            addresses = await self._resolve(target)
            for each in addresses[:_MOST_ADDRESSES]:
                self.policy.check_address(each, target.host)  # the very address that the kernel gets
                with contextlib.suppress(OSError):
                    connection = await asyncio.open_connection(each, target.port)
                    self.connection_count += 1
                    return connection
        except EgressDenied as error:
            raise self._deny(target, error) from None
        except OSError as error:
            raise _Refusal("502 Bad Gateway", f"the host {target.host!r} is not found") from error
        raise _Refusal("502 Bad Gateway", f"the host {target.host!r} cannot be reached")

    async def _resolve(self, target: UrlTarget) -> list[str]:
        try:
            return [str(ip_address(target.host))]
        except ValueError:
            return [str(each["host"]) for each in await self._resolver.resolve(target.host, target.port)]


class _Transfer:
    """Bytes that go both ways between two connections, within the limits."""

    def __init__(self, limits: ProxyLimits) -> None:
        self._limits = limits
        self._loop = asyncio.get_running_loop()
        self._active = self._loop.time()

    async def relay(
        self,
        program: tuple[asyncio.StreamReader, asyncio.StreamWriter],
        host: tuple[asyncio.StreamReader, asyncio.StreamWriter],
        body_bytes: int | None,
    ) -> None:
        """Copy until the host closes its side, a limit is reached, or nothing happens for too long.

        Of a plain request only the body is sent on, `body_bytes` long: a second request may be for another host, so
        the program gets a response after which it has to connect again.
        """
        if body_bytes is None:
            sending = asyncio.ensure_future(self._send_all(program[0], host[1]))
        else:
            sending = asyncio.ensure_future(self._send_body(program[0], host[1], body_bytes))
        receiving = asyncio.ensure_future(self._receive(host[0], program[1], is_plain=body_bytes is not None))
        watching = asyncio.ensure_future(self._wait_until_idle())
        tasks = {sending, receiving, watching}
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            if done == {sending} and sending.exception() is None and sending.result():
                await asyncio.wait({receiving, watching}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in tasks:
                each.cancel()
            await asyncio.gather(sending, receiving, watching, return_exceptions=True)

    async def _send_all(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Send all that the program writes; return False if that is more than the limit."""
        is_whole = await self._copy(reader, writer, self._limits.max_upload_bytes)
        if is_whole and writer.can_write_eof():
            writer.write_eof()
        return is_whole

    async def _send_body(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, left: int) -> bool:
        """Send the body of a request, then wait until the program closes the connection; return False."""
        while left > 0 and (data := await reader.read(min(_READ_BYTES, left))):
            left -= len(data)
            await self._pass_on(writer, data)
        while await reader.read(_READ_BYTES):
            pass  # a second request, which nobody answers
        return False

    async def _receive(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, is_plain: bool) -> None:
        """Pass on what the host sends; the head of a plain response says that the connection ends with it."""
        left = self._limits.max_download_bytes
        while is_plain:
            head = await reader.readuntil(b"\r\n\r\n")
            is_plain = bool(_INTERIM_STATUS.match(head))
            await self._pass_on(writer, head if is_plain else _mark_last_response(head))
        await self._copy(reader, writer, left)
        if writer.can_write_eof():
            writer.write_eof()

    async def _copy(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, left: int) -> bool:
        """Copy a stream to its end; return False if there is more than the limit allows."""
        while data := await reader.read(_READ_BYTES):
            left -= len(data)
            if left < 0:
                return False
            await self._pass_on(writer, data)
        return True

    async def _pass_on(self, writer: asyncio.StreamWriter, data: bytes) -> None:
        self._active = self._loop.time()
        writer.write(data)
        await writer.drain()

    async def _wait_until_idle(self) -> None:
        while (left := self._active + self._limits.idle_seconds - self._loop.time()) > 0:  # noqa: ASYNC110 - a time
            await asyncio.sleep(left)


def _parse_head(head: bytes) -> _ProxyRequest:
    """Parse the request line and the headers of a request. Raises `_Refusal` if they are malformed."""
    line, *lines = head.decode("latin-1").split("\r\n")[:-2]
    parts = line.split(" ")
    if len(parts) != 3 or not parts[2].startswith("HTTP/1."):  # noqa: PLR2004 - method, address, version
        raise _Refusal("400 Bad Request", "the request is malformed")
    headers = [(name.strip(), value.strip()) for name, _, value in [each.partition(":") for each in lines]]
    return _ProxyRequest(parts[0].upper(), parts[1], headers)


def _get_body_length(request: _ProxyRequest, limits: ProxyLimits) -> int:
    """Return the length of the body of a plain request. Raises `_Refusal` if it is not given, or too large."""
    if request.get_header("transfer-encoding"):
        raise _Refusal("411 Length Required", "the body of a request needs a Content-Length")
    length = request.get_header("content-length") or "0"
    if not (length.isascii() and length.isdigit()):
        raise _Refusal("400 Bad Request", "the Content-Length is malformed")
    body_bytes = int(length.lstrip("0")[:20] or "0")  # Python converts no text of thousands of digits
    if body_bytes > limits.max_upload_bytes:
        raise _Refusal("413 Content Too Large", f"the body has more than {limits.max_upload_bytes:,} bytes")
    return body_bytes


def _build_head(request: _ProxyRequest, target: UrlTarget) -> bytes:
    """Return the head of a plain request as its host gets it; the host closes the connection after the response."""
    path = f"{target.path}{f'?{target.query}' if target.query else ''}"
    sent: Mapping[str, str] = {"Host": target.origin.partition("://")[2], "Connection": "close"}
    named = {each.strip().lower() for each in request.get_header("connection").split(",")}
    kept = [(name, value) for name, value in request.headers if name.lower() not in _HOP_HEADERS | named]
    lines = [f"{request.method} {path} HTTP/1.1", *[f"{name}: {value}" for name, value in [*sent.items(), *kept]]]
    return "\r\n".join([*lines, "", ""]).encode("latin-1")


def _mark_last_response(head: bytes) -> bytes:
    """Return the head of a response with `Connection: close`, whatever the host says about its own connection."""
    line, *lines = head[:-4].split(b"\r\n")
    kept = [each for each in lines if each.partition(b":")[0].strip().lower() not in _RESPONSE_HOP_HEADERS]
    return b"\r\n".join([line, *kept, b"Connection: close", b"", b""])


async def _close_stream(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()
