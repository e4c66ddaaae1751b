"""Raw traffic, shown to whoever wants to see it. Above: tracing, debugging. Below: `transport.py`.

    transport = tapped(Http(), tap)

Keys are masked before a tap sees them. A transport that is not tapped pays nothing.
"""

import itertools
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from msgspec import Struct

from .sse import MOST_EVENT_BYTES
from .transport import Answer, Transport

MASK = "***"
"""What is shown instead of a secret."""

_SECRET = re.compile(
    r"auth|api-?key|secret|cookie|password|credential|(?:^|[-_])(?:key|token|sig|signature)$", re.IGNORECASE
)
"""Names of headers and query parameters whose values nobody gets to see."""
_PARAMETER = re.compile(r"(?<=[?&])([^=&#]+)=([^&#]*)")
_SHORTEST_SECRET = 8
"""What is shorter is a word that stands for a key where none is needed."""
_LOGIN = re.compile(r"(?<=://)[^/@?#]*@")


class Exchange(Struct, frozen=True):
    """A request, as a tap gets to see it."""

    number: int
    """Tells the exchanges of a process apart: several may go on at once."""
    method: str
    url: str
    headers: Mapping[str, str]
    body: bytes


class Tap(Protocol):
    """Sees the raw traffic. It is called where the traffic is, so it must be quick; an error of it ends the answer."""

    def on_request(self, exchange: Exchange) -> None:
        """A request is about to be sent."""

    def on_answer(self, exchange: Exchange, status: int, headers: Mapping[str, str]) -> None:
        """Its answer begins."""

    def on_line(self, exchange: Exchange, line: bytes) -> None:
        """A line of the answer with its end, as it came; a body without line ends comes in one or a few pieces."""


def tapped(transport: Transport, *taps: Tap) -> Transport:
    """The same transport, all of whose traffic is shown to the taps."""
    return _Tapped(transport, taps)


def masked(headers: Mapping[str, str]) -> dict[str, str]:
    """Headers as they may be shown."""
    return {name: MASK if _SECRET.search(name) else text for name, text in headers.items()}


def without_secrets(text: str, headers: Mapping[str, str]) -> str:
    """Words that came back, without the secrets that were sent in these headers: some repeat the key in an error."""
    for name, value in headers.items():
        if _SECRET.search(name):
            for secret in (value, value.rpartition(" ")[2]):  # `Bearer …`
                if len(secret) >= _SHORTEST_SECRET:
                    text = text.replace(secret, MASK)
    return text


def masked_url(url: str) -> str:
    """An address as it may be shown: some providers take their key in it."""
    return _PARAMETER.sub(_masked_parameter, _LOGIN.sub(f"{MASK}@", url))


def _masked_parameter(match: re.Match[str]) -> str:
    return f"{match[1]}={MASK}" if _SECRET.search(match[1]) else match[0]


_numbers = itertools.count(1)


class _Tapped:
    def __init__(self, transport: Transport, taps: tuple[Tap, ...]) -> None:
        self._transport = transport
        self._taps = taps

    def post(self, url: str, headers: Mapping[str, str], body: bytes) -> AbstractAsyncContextManager[Answer]:
        exchange = Exchange(next(_numbers), "POST", masked_url(url), masked(headers), body)
        return _TappedPost(self._transport.post(url, headers, body), exchange, self._taps)


class _TappedPost(AbstractAsyncContextManager["Answer"]):
    def __init__(self, post: AbstractAsyncContextManager[Answer], exchange: Exchange, taps: tuple[Tap, ...]) -> None:
        self._post = post
        self._exchange = exchange
        self._taps = taps

    async def __aenter__(self) -> Answer:
        for tap in self._taps:
            tap.on_request(self._exchange)
        answer = await self._post.__aenter__()
        try:
            for tap in self._taps:
                tap.on_answer(self._exchange, answer.status, masked(answer.headers))
        except BaseException as error:
            await self._post.__aexit__(type(error), error, error.__traceback__)
            raise
        return _TappedAnswer(answer, self._exchange, self._taps)

    async def __aexit__(self, *details: object) -> bool | None:
        return await self._post.__aexit__(*details)  # type: ignore[arg-type]  # passed on as they came


class _TappedAnswer:
    """An answer that is looked at while it is read. It is its own iterator, so that nothing has to be closed."""

    def __init__(self, answer: Answer, exchange: Exchange, taps: tuple[Tap, ...]) -> None:
        self.status = answer.status
        self.headers = answer.headers
        self._answer = answer
        self._exchange = exchange
        self._taps = taps
        self._pieces: AsyncIterator[bytes] | None = None
        self._line = b""
        """The beginning of a line that has not ended yet."""

    def chunks(self) -> AsyncIterator[bytes]:
        self._pieces = self._answer.chunks()
        return self

    def __aiter__(self) -> "_TappedAnswer":
        return self

    async def __anext__(self) -> bytes:
        if self._pieces is None:
            raise StopAsyncIteration
        try:
            data = await anext(self._pieces)
        except BaseException:  # also the end: what is left is a line that nothing has ended
            self._show([self._line])
            self._line = b""
            raise
        self._look_at(data)
        return data

    async def read(self, most_bytes: int) -> bytes:
        body = await self._answer.read(most_bytes)
        self._show(body.splitlines(keepends=True))
        return body

    def _look_at(self, data: bytes) -> None:
        *lines, self._line = (self._line + data).split(b"\n")
        self._show([line + b"\n" for line in lines])
        if len(self._line) > MOST_EVENT_BYTES:
            self._show([self._line])
            self._line = b""

    def _show(self, lines: list[bytes]) -> None:
        for line in lines:
            if line:
                for tap in self._taps:
                    tap.on_line(self._exchange, line)
