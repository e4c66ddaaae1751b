"""HTTP taps: observers that are shown the raw HTTP traffic of a transport, for tracing and debugging.

    transport = tapped(HttpTransport(), tap)

    with tap_models(tap):
        await agent.run("…")

Keys are masked before a tap sees them. A transport without taps has no overhead.
"""

import itertools
import re
from collections.abc import AsyncIterator, Generator, Mapping
from contextlib import AbstractAsyncContextManager, contextmanager
from contextvars import ContextVar
from inspect import isawaitable
from typing import Protocol

from msgspec import Struct

from .sse import MAX_EVENT_BYTES
from .transport import Response, Transport

MASK = "***"
"""Text shown instead of a secret."""

_is_secret_name = re.compile(
    r"auth|api-?key|secret|cookie|password|credential|(?:^|[-_])(?:key|token|sig|signature)$", re.IGNORECASE
)
"""Match names of headers and query parameters whose values are masked."""
_PARAMETER = re.compile(r"(?<=[?&])([^=&#]+)=([^&#]*)")
_SHORTEST_SECRET = 8
"""Minimum length of a secret: a shorter value is a placeholder for a key that is not needed."""
_LOGIN = re.compile(r"(?<=://)[^/@?#]*@")


class TappedRequest(Struct, frozen=True):
    """HTTP request as it is shown to a `Tap` (an observer of traffic), with secrets masked."""

    number: int
    """Number of the request in this process: several may run at once."""
    method: str
    url: str
    headers: Mapping[str, str]
    body: bytes


class Tap(Protocol):
    """Protocol of a tap: an observer of raw HTTP traffic, with plain or async methods.

    It must be quick. An exception that it raises ends the response.
    """

    def on_request(self, exchange: TappedRequest) -> object:
        """Handle a request that is about to be sent."""

    def on_answer(self, exchange: TappedRequest, status: int, headers: Mapping[str, str]) -> object:
        """Handle the start of a response."""

    def on_line(self, exchange: TappedRequest, line: bytes) -> object:
        """Handle a line of the response, with its line end; a body without line ends is passed in a few pieces."""


def tapped(transport: Transport, *taps: Tap) -> Transport:
    """Wrap an HTTP transport so that its requests and responses are shown to these observers (taps)."""
    return _TappedTransport(transport, taps)


_current_taps: ContextVar[tuple[Tap, ...]] = ContextVar("perdure_taps", default=())


@contextmanager
def tap_models(*taps: Tap) -> Generator[None]:
    """Context manager: show the HTTP traffic of all models to these observers (taps) while the block runs.

    It applies to models that are asked in this task, and in tasks that it starts. Logins are not shown.
    """
    token = _current_taps.set((*_current_taps.get(), *taps))
    try:
        yield
    finally:
        _current_taps.reset(token)


def apply_current_taps(transport: Transport) -> Transport:
    """Wrap an HTTP transport with the taps of the current `tap_models` blocks, if there are any."""
    taps = _current_taps.get()
    return tapped(transport, *taps) if taps else transport


def mask_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """Return HTTP headers with the values of secret ones, such as keys and cookies, masked."""
    return {name: MASK if _is_secret_name.search(name) else text for name, text in headers.items()}


def mask_sent_secrets(text: str, headers: Mapping[str, str]) -> str:
    """Mask the secret values of these request headers in a text: some providers repeat the key in an error message."""
    for name, value in headers.items():
        if _is_secret_name.search(name):
            for secret in (value, value.rpartition(" ")[2]):  # `Bearer …`
                if len(secret) >= _SHORTEST_SECRET:
                    text = text.replace(secret, MASK)
    return text


def mask_url(url: str) -> str:
    """Return a URL with its login and its secret query parameters masked; some providers expect the key there."""
    return _PARAMETER.sub(_mask_parameter, _LOGIN.sub(f"{MASK}@", url))


def _mask_parameter(match: re.Match[str]) -> str:
    return f"{match[1]}={MASK}" if _is_secret_name.search(match[1]) else match[0]


_numbers = itertools.count(1)


async def _await_if_async(answer: object) -> None:
    if isawaitable(answer):
        await answer


class _TappedTransport:
    def __init__(self, transport: Transport, taps: tuple[Tap, ...]) -> None:
        self._transport = transport
        self._taps = taps

    def post(self, url: str, headers: Mapping[str, str], body: bytes) -> AbstractAsyncContextManager[Response]:
        exchange = TappedRequest(next(_numbers), "POST", mask_url(url), mask_headers(headers), body)
        return _TappedPost(self._transport.post(url, headers, body), exchange, self._taps)


class _TappedPost(AbstractAsyncContextManager["Response"]):
    def __init__(
        self, post: AbstractAsyncContextManager[Response], exchange: TappedRequest, taps: tuple[Tap, ...]
    ) -> None:
        self._post = post
        self._exchange = exchange
        self._taps = taps

    async def __aenter__(self) -> Response:
        for tap in self._taps:
            await _await_if_async(tap.on_request(self._exchange))
        answer = await self._post.__aenter__()
        try:
            for tap in self._taps:
                await _await_if_async(tap.on_answer(self._exchange, answer.status, mask_headers(answer.headers)))
        except BaseException as error:
            await self._post.__aexit__(type(error), error, error.__traceback__)
            raise
        return _TappedResponse(answer, self._exchange, self._taps)

    async def __aexit__(self, *details: object) -> bool | None:
        return await self._post.__aexit__(*details)  # type: ignore[arg-type]  # passed on unchanged


class _TappedResponse:
    """HTTP response that is shown to taps while it is read; also the iterator over its body."""

    def __init__(self, answer: Response, exchange: TappedRequest, taps: tuple[Tap, ...]) -> None:
        self.status = answer.status
        self.headers = answer.headers
        self._answer = answer
        self._exchange = exchange
        self._taps = taps
        self._pieces: AsyncIterator[bytes] | None = None
        self._line = b""
        """Start of a line that is not complete yet."""

    def chunks(self) -> AsyncIterator[bytes]:
        self._pieces = self._answer.chunks()
        return self

    def __aiter__(self) -> "_TappedResponse":
        return self

    async def __anext__(self) -> bytes:
        if self._pieces is None:
            raise StopAsyncIteration
        try:
            data = await anext(self._pieces)
        except BaseException:  # at the end too: the rest is a line without its end
            await self._show_lines([self._line])
            self._line = b""
            raise
        await self._collect_lines(data)
        return data

    async def read(self, most_bytes: int) -> bytes:
        body = await self._answer.read(most_bytes)
        await self._show_lines(body.splitlines(keepends=True))
        return body

    async def _collect_lines(self, data: bytes) -> None:
        *lines, self._line = (self._line + data).split(b"\n")
        await self._show_lines([line + b"\n" for line in lines])
        if len(self._line) > MAX_EVENT_BYTES:
            await self._show_lines([self._line])
            self._line = b""

    async def _show_lines(self, lines: list[bytes]) -> None:
        for line in lines:
            if line:
                for tap in self._taps:
                    await _await_if_async(tap.on_line(self._exchange, line))
