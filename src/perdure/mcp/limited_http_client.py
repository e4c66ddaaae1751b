"""HTTP client of MCP connections: limits bodies, uses no proxy or redirect, records if a request was carried out.

The SDK passes each message on in the context of the task that sent it. That context has a `RequestDelivery`, in which the
transport notes the fate of the request: without it, an HTTP error would look like the server's own answer.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from contextvars import ContextVar
from typing import Any, Final

import httpx2
import msgspec
from mcp.client.sse import sse_client
from mcp.client.streamable_http import streamable_http_client
from mcp_types import JSONRPCError, jsonrpc_message_adapter

from .request_delivery import RequestDelivery
from .server_output_limits import MAX_MESSAGE_BYTES, FloodMeter

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
