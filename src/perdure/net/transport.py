"""HTTP transports: the protocols for posting a request and for streaming the response, and their timeouts.

`HttpTransport` is the default.
"""

from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from msgspec import Struct


class Response(Protocol):
    """Protocol for an HTTP response. Its body can be read once, with `chunks` or with `read`."""

    @property
    def status(self) -> int: ...

    @property
    def headers(self) -> Mapping[str, str]:
        """Headers of the response by lower-case name."""
        ...

    def chunks(self) -> AsyncIterator[bytes]:
        """Return an iterator over the decompressed body, in pieces as they arrive. Raise a `NetError` if it fails.

        No piece is empty.
        """
        ...

    async def read(self, most_bytes: int) -> bytes:
        """Read the body, up to this many bytes. Raise a `NetError` if it fails."""
        ...


class Transport(Protocol):
    """Protocol for a client that sends HTTP POST requests.

    Leaving the context of `post` frees the connection, for reuse if the body was read.
    """

    def post(self, url: str, headers: Mapping[str, str], body: bytes) -> AbstractAsyncContextManager[Response]:
        """Send a POST request and wait until the response starts, with any status. Raise a `NetError` if none does."""
        ...


class Deadlines(Struct, frozen=True, kw_only=True):
    """Timeouts of an HTTP request: to connect, until the response starts, and between two pieces of the response.

    They are meant for dead connections: a model may think for minutes without sending anything.
    """

    connect_seconds: float = 10.0
    """Maximum time to connect."""
    first_byte_seconds: float = 300.0
    """Maximum time until the response starts."""
    idle_seconds: float = 300.0
    """Maximum time between two pieces of the response."""
