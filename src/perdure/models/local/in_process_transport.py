"""Transport that answers chat completions requests with a model loaded into this process, without a network."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager

import msgspec

from perdure.core.error import ModelError
from perdure.net.transport import Response

from .llama_backend import BackendOptions, GenerationJob, LlamaBackend, get_shared_backend

_OK, _BAD_REQUEST, _FAILED = 200, 400, 500
_DONE = b"data: [DONE]\n\n"


class InProcessTransport:
    """`Transport` that answers each request with a local model in this process, instead of a server."""

    def __init__(self, setup: BackendOptions) -> None:
        self._setup = setup

    def post(self, url: str, headers: Mapping[str, str], body: bytes) -> AbstractAsyncContextManager[Response]:  # noqa: ARG002
        """Submit a request to the local model, as an async context manager. Leaving it cancels the request."""
        return _InProcessPost(get_shared_backend(self._setup), body)


class _InProcessPost(AbstractAsyncContextManager["Response"]):
    """Context manager of one request to the backend, which returns its response."""

    def __init__(self, backend: LlamaBackend, body: bytes) -> None:
        self._backend = backend
        self._body = body
        self._job: GenerationJob | None = None

    async def __aenter__(self) -> Response:
        pieces: asyncio.Queue[bytes | Exception | None] = asyncio.Queue()
        self._job = GenerationJob(self._body, pieces.put_nowait)
        self._backend.submit(self._job)
        try:
            first = await pieces.get()
        except BaseException:
            self._job.is_cancelled = True
            raise
        return _build_answer(first, pieces)

    async def __aexit__(self, *_: object) -> None:
        if self._job is not None:
            self._job.is_cancelled = True


class _StreamedAnswer:
    """Successful response, streamed as server-sent events."""

    status = _OK
    headers: Mapping[str, str] = {"content-type": "text/event-stream"}

    def __init__(self, first: bytes | None, pieces: "asyncio.Queue[bytes | Exception | None]") -> None:
        self._first = first
        self._pieces = pieces

    async def chunks(self) -> AsyncIterator[bytes]:
        """Yield each piece of JSON as a server-sent event."""
        piece: bytes | Exception | None = self._first
        while piece is not None:
            if isinstance(piece, Exception):
                raise ModelError(f"llama.cpp failed: {piece}") from piece
            yield b"data: %b\n\n" % piece
            piece = await self._pieces.get()
        yield _DONE

    async def read(self, most_bytes: int) -> bytes:
        """Return the whole body."""
        return b"".join([chunk async for chunk in self.chunks()])[:most_bytes]


class _ErrorAnswer:
    """Response with an error status and a JSON body."""

    headers: Mapping[str, str] = {"content-type": "application/json"}

    def __init__(self, status: int, body: bytes) -> None:
        self.status = status
        self._body = body

    async def chunks(self) -> AsyncIterator[bytes]:
        """Yield the body in one piece."""
        yield self._body

    async def read(self, most_bytes: int) -> bytes:
        """Return the body."""
        return self._body[:most_bytes]


def _build_answer(first: bytes | Exception | None, pieces: "asyncio.Queue[bytes | Exception | None]") -> Response:
    """Build the response from its first piece; an error gets the form of a server's error response."""
    if isinstance(first, ModelError):
        raise first
    if isinstance(first, Exception):
        status = _BAD_REQUEST if isinstance(first, ValueError) else _FAILED
        return _ErrorAnswer(status, msgspec.json.encode({"error": {"message": str(first), "code": status}}))
    if first is not None and first.startswith(b'{"error"'):
        return _ErrorAnswer(_parse_status(first), first)
    return _StreamedAnswer(first, pieces)


def _parse_status(body: bytes) -> int:
    """Return the HTTP status that an error body contains."""
    try:
        code = msgspec.json.decode(body)["error"]["code"]
    except (msgspec.DecodeError, KeyError, TypeError):
        return _FAILED
    return code if isinstance(code, int) else _FAILED
