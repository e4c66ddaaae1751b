"""Transports of MCP connections, with limits: HTTP, which records if a request was carried out, and pipes."""

import json
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from contextvars import ContextVar
from types import TracebackType
from typing import Any, Final, Protocol, Self

import anyio
import httpx2
import msgspec
from mcp.client.sse import sse_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCError, jsonrpc_message_adapter

from .delivery import RequestDelivery
from .listing import MAX_GARBAGE_LINES, MAX_MESSAGE_BYTES, FloodMeter

_CONNECT_SECONDS: Final = 10.0
_MAX_ERROR_BYTES: Final = 1024 * 1024
_HTTP_ERROR: Final = 400
_NOT_SENT_ERRORS: Final = (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout, httpx2.UnsupportedProtocol)

current_record: ContextVar[RequestDelivery | None] = ContextVar("perdure_mcp_request", default=None)
"""The record of the request that is being made."""


class _MessageHead(msgspec.Struct):
    """The fields of a message by which a request is recognized."""

    method: str | None = None
    id: int | str | None = None


_read_message = msgspec.json.Decoder(_MessageHead).decode


class TruncatingResponseStream(httpx2.AsyncByteStream):
    """Response body that ends, without an exception, at a size limit or a lost connection; the SDK reports the gap."""

    def __init__(self, inner: httpx2.AsyncByteStream, most_bytes: int | None, flood: FloodMeter) -> None:
        self._inner = inner
        self._left = most_bytes
        self._flood = flood

    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            async for chunk in self._inner:
                if self._left is not None:
                    self._left -= len(chunk)
                    if self._left < 0:
                        return
                else:
                    self._flood.count_messages(chunk.count(b"data:"))
                yield chunk
        except httpx2.TransportError:
            return

    async def aclose(self) -> None:
        """Close the body."""
        await self._inner.aclose()


class DeliveryRecordingTransport(httpx2.AsyncBaseTransport):
    """HTTP transport that limits response bodies, and records in `RequestDelivery` whether a request was carried out.

    A request that cannot be made is answered with status 502, so that it fails alone: an exception would end the
    connection with all other requests.
    """

    def __init__(self, flood: FloodMeter, on_failed_post: Callable[[str], None] | None = None) -> None:
        self._inner = httpx2.AsyncHTTPTransport(retries=0)
        self._flood = flood
        self._on_failed_post = on_failed_post

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Make a request."""
        record = current_record.get() if request.method == "POST" and _is_rpc_request(request) else None
        try:
            response = await self._inner.handle_async_request(request)
        except httpx2.TransportError as error:
            if record is not None and isinstance(error, _NOT_SENT_ERRORS):
                record.note_unsent(f"the server cannot be reached: {error}")
            elif record is not None:
                record.note_lost(f"the connection was lost: {type(error).__name__}")
            if request.method != "POST":
                raise
            return self._report(httpx2.Response(502, request=request), record)
        if response.headers.get("content-encoding", "identity").strip().lower() not in {"", "identity"}:
            await response.aclose()
            if record is not None:
                record.note_answer(response.status_code, "")
                record.note_lost("the server compressed its answer, which was not asked for")
            return self._report(httpx2.Response(502, request=request), record)
        return self._report(await self._limit_response(request, response, record), record)

    def _report(self, response: httpx2.Response, record: RequestDelivery | None) -> httpx2.Response:
        """Report a failed request, where all answers arrive on another stream."""
        if self._on_failed_post is not None and record is not None and response.status_code >= _HTTP_ERROR:
            self._on_failed_post(record.describe())
        return response

    async def _limit_response(
        self, request: httpx2.Request, response: httpx2.Response, record: RequestDelivery | None
    ) -> httpx2.Response:
        kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
        if record is not None and (self._on_failed_post is None or response.status_code >= _HTTP_ERROR):
            record.note_answer(response.status_code, kind)
        stream = response.stream
        if not isinstance(stream, httpx2.AsyncByteStream):  # pragma: no cover - it always is
            return response
        most = None if kind == "text/event-stream" else MAX_MESSAGE_BYTES
        limited = TruncatingResponseStream(stream, most, self._flood)
        if record is None or response.status_code < _HTTP_ERROR:
            return httpx2.Response(
                response.status_code,
                headers=response.headers,
                stream=limited,
                request=request,
                extensions=response.extensions,
            )
        body = await _read_head(TruncatingResponseStream(stream, _MAX_ERROR_BYTES, self._flood))
        record.has_rpc_error = _is_rpc_error(body)
        headers = {name: value for name, value in response.headers.items() if name not in _FRAMING_HEADERS}
        return httpx2.Response(response.status_code, headers=headers, content=body, request=request)

    async def aclose(self) -> None:
        """Close the connections."""
        await self._inner.aclose()


_FRAMING_HEADERS: Final = frozenset({"content-length", "transfer-encoding"})


async def _read_head(stream: TruncatingResponseStream) -> bytes:
    try:
        return b"".join([chunk async for chunk in stream])
    finally:
        await stream.aclose()


def _is_rpc_request(request: httpx2.Request) -> bool:
    """Return True for a message that needs an answer: not for a notification, or our own answer to a question."""
    try:
        message = _read_message(request.content)
    except (httpx2.RequestNotRead, msgspec.MsgspecError):
        return False
    return message.method is not None and message.id is not None


def _is_rpc_error(body: bytes) -> bool:
    try:
        return isinstance(jsonrpc_message_adapter.validate_json(body, by_name=False), JSONRPCError)
    except (ValueError, RecursionError):
        return False


@asynccontextmanager
async def open_http_streams(
    url: str,
    headers: Mapping[str, str],
    flood: FloodMeter,
    on_end: Callable[[str], None],
    *,
    login: httpx2.Auth | None,
    is_sse: bool,
) -> AsyncGenerator[Any]:
    """Connect to an MCP server by its URL, and yield the streams through which the MCP SDK exchanges messages.

    A login is not used where a header says who asks: `headers` win.
    """
    has_authorization = any(name.lower() == "authorization" for name in headers)
    auth = None if has_authorization else login

    def make_client(
        headers: Mapping[str, Any] | None = None,
        timeout: httpx2.Timeout | None = None,
        auth: httpx2.Auth | None = None,
    ) -> httpx2.AsyncClient:
        del timeout
        return httpx2.AsyncClient(
            headers={"accept-encoding": "identity", **(headers or {})},
            timeout=httpx2.Timeout(_CONNECT_SECONDS, read=None, pool=None),
            auth=auth,
            transport=DeliveryRecordingTransport(flood, on_end if is_sse else None),
            trust_env=False,
            follow_redirects=False,
        )

    if is_sse:
        opened = sse_client(url, headers=dict(headers), auth=auth, httpx_client_factory=make_client)
        async with opened as streams:
            yield streams
        return
    async with (
        make_client(headers, auth=auth) as client,
        streamable_http_client(url, http_client=client, max_sse_event_size=MAX_MESSAGE_BYTES) as streams,
    ):
        yield streams


logger = logging.getLogger("perdure")


class LineProcess(Protocol):
    """Protocol for the running program of an MCP server, which reads and writes lines."""

    @property
    def error_text(self) -> str:
        """The end of what the program has written to its standard error."""
        ...

    async def read_line(self) -> bytes:
        """Return the next line, empty at the end. Raises `ValueError` for one that is too long."""
        ...

    async def write(self, data: bytes) -> None:
        """Write data. Raises `ConnectionError` if the program has ended."""
        ...

    async def close(self) -> None:
        """End the program and all that it started."""
        ...


class LineReadStream:
    """Stream from which the MCP SDK receives the messages of a server process, each a line of JSON on its stdout."""

    def __init__(self, process: LineProcess, flood: FloodMeter, on_end: Callable[[str], None], name: str) -> None:
        self._process = process
        self._name = name
        self._flood = flood
        self._on_end = on_end
        self._garbage = 0
        self._is_closed = False

    async def receive(self) -> SessionMessage:
        """Return the next message. Raises `EndOfStream` if the program has ended, or a message is too long."""
        while not self._is_closed:
            try:
                line = await self._process.read_line()
            except ValueError:
                self._end("it sent a message that is too long")
                break
            if not line:
                self._end("its process has ended")
                break
            self._flood.count_messages()
            if line.isspace():
                continue
            try:
                return _parse_line(line)
            except (ValueError, RecursionError):
                self._garbage += 1
                if self._garbage == 1:
                    logger.warning("MCP server %r wrote to its standard output a line that is no message", self._name)
                if self._garbage > MAX_GARBAGE_LINES:
                    self._end("it writes to its standard output what is no message")
        raise anyio.EndOfStream

    def _end(self, reason: str) -> None:
        self._is_closed = True
        self._on_end(reason)

    async def aclose(self) -> None:
        """Close the stream: no further message is read."""
        self._is_closed = True

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SessionMessage:
        try:
            return await self.receive()
        except anyio.EndOfStream:
            raise StopAsyncIteration from None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()


def _parse_line(line: bytes) -> SessionMessage:
    """Return the message of a line; half characters, which programs in JavaScript write, are replaced."""
    try:
        return SessionMessage(jsonrpc_message_adapter.validate_json(line, by_name=False))
    except ValueError:
        if b"\\ud" not in line and b"\\uD" not in line:
            raise
    whole = json.dumps(json.loads(line), ensure_ascii=False).encode("utf-8", "replace")
    return SessionMessage(jsonrpc_message_adapter.validate_json(whole, by_name=False))


class LineWriteStream:
    """Stream through which the MCP SDK sends messages to a server process, each as a line of JSON on its stdin."""

    def __init__(self, process: LineProcess) -> None:
        self._process = process
        self._is_closed = False

    async def send(self, item: SessionMessage, /) -> None:
        """Write a message. Raises `BrokenResourceError` if the program has ended."""
        if self._is_closed:
            raise anyio.ClosedResourceError
        data = item.message.model_dump_json(by_alias=True, exclude_unset=True).encode("utf-8", "replace")
        try:
            await self._process.write(data + b"\n")
        except ConnectionError:
            raise anyio.BrokenResourceError from None

    async def aclose(self) -> None:
        """Close the stream: no further message is written."""
        self._is_closed = True

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()


@asynccontextmanager
async def open_stdio_streams(
    start: Callable[[], Awaitable[LineProcess]], on_end: Callable[[str], None], flood: FloodMeter, name: str
) -> AsyncGenerator[tuple[LineReadStream, LineWriteStream]]:
    """Start the program of the MCP server `name`, and yield the SDK's streams to it; it is ended with the block."""
    process = await start()
    try:
        yield LineReadStream(process, flood, on_end, name), LineWriteStream(process)
    finally:
        await process.close()
