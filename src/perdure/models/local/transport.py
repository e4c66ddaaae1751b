"""Asks an engine in the words of the chat wire, as if it were a server. Above: `model.py`. Below: `engine.py`."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager

import msgspec

from perdure.core.error import ModelError
from perdure.net.transport import Answer

from .engine import Engine, Job, Setup, engine_for

_OK, _BAD_REQUEST, _FAILED = 200, 400, 500
_DONE = b"data: [DONE]\n\n"


class InProcess:
    """A `Transport` that goes nowhere: whatever is posted is answered by the weights in this process."""

    def __init__(self, setup: Setup) -> None:
        self._setup = setup

    def post(self, url: str, headers: Mapping[str, str], body: bytes) -> AbstractAsyncContextManager[Answer]:  # noqa: ARG002
        """Ask. Leaving the block ends the work at it."""
        return _Post(engine_for(self._setup), body)


class _Post(AbstractAsyncContextManager["Answer"]):
    """One exchange."""

    def __init__(self, engine: Engine, body: bytes) -> None:
        self._engine = engine
        self._body = body
        self._job: Job | None = None

    async def __aenter__(self) -> Answer:
        pieces: asyncio.Queue[bytes | Exception | None] = asyncio.Queue()
        self._job = Job(self._body, pieces.put_nowait)
        self._engine.submit(self._job)
        try:
            first = await pieces.get()
        except BaseException:
            self._job.unwanted = True
            raise
        return _begun(first, pieces)

    async def __aexit__(self, *_: object) -> None:
        if self._job is not None:
            self._job.unwanted = True


class _Streamed:
    """An answer that comes piece by piece."""

    status = _OK
    headers: Mapping[str, str] = {"content-type": "text/event-stream"}

    def __init__(self, first: bytes | None, pieces: "asyncio.Queue[bytes | Exception | None]") -> None:
        self._first = first
        self._pieces = pieces

    async def chunks(self) -> AsyncIterator[bytes]:
        """Each piece of JSON as an event of a stream."""
        piece: bytes | Exception | None = self._first
        while piece is not None:
            if isinstance(piece, Exception):
                raise ModelError(f"llama.cpp failed: {piece}") from piece
            yield b"data: %b\n\n" % piece
            piece = await self._pieces.get()
        yield _DONE

    async def read(self, most_bytes: int) -> bytes:
        """All of it."""
        return b"".join([chunk async for chunk in self.chunks()])[:most_bytes]


class _Refused:
    """An answer that is an error."""

    headers: Mapping[str, str] = {"content-type": "application/json"}

    def __init__(self, status: int, body: bytes) -> None:
        self.status = status
        self._body = body

    async def chunks(self) -> AsyncIterator[bytes]:
        """The body, in one piece."""
        yield self._body

    async def read(self, most_bytes: int) -> bytes:
        """The body."""
        return self._body[:most_bytes]


def _begun(first: bytes | Exception | None, pieces: "asyncio.Queue[bytes | Exception | None]") -> Answer:
    """The answer that begins like this. An error is told as a server would tell it, so that it is read as one."""
    if isinstance(first, ModelError):
        raise first
    if isinstance(first, Exception):
        status = _BAD_REQUEST if isinstance(first, ValueError) else _FAILED
        return _Refused(status, msgspec.json.encode({"error": {"message": str(first), "code": status}}))
    if first is not None and first.startswith(b'{"error"'):
        return _Refused(_code_in(first), first)
    return _Streamed(first, pieces)


def _code_in(body: bytes) -> int:
    """The status that an error tells about itself."""
    try:
        code = msgspec.json.decode(body)["error"]["code"]
    except (msgspec.DecodeError, KeyError, TypeError):
        return _FAILED
    return code if isinstance(code, int) else _FAILED
