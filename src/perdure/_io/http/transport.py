"""HTTP transports: the protocols of posting a request and streaming the response, their timeouts and errors."""

from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from msgspec import Struct

from perdure._core.values.error import PerdureError


class NetError(PerdureError):
    """Base class of the exceptions for failed HTTP requests."""

    exit_code = 69


class HostUnreachable(NetError):
    """Raised when an HTTP request got no response: the host could not be reached, or closed the connection."""

    retryable = True


class ResponseCutOff(NetError):
    """Raised when an HTTP response ended before it was complete."""

    retryable = True


class HttpTimeoutExceeded(NetError):
    """Raised when an HTTP request exceeds a timeout: no connection, no response, or no content for too long."""

    retryable = True


class ResponseTooLarge(NetError):
    """Raised when an HTTP response, or one event of a streamed response, exceeds the size limit."""


class InvalidResponse(NetError):
    """Raised when an HTTP response is malformed, or the TLS certificate of its server is not trusted."""


class EgressDenied(NetError):
    """Raised when an egress policy does not allow a request: its URL, an address of its host, or a redirect.

    The message is part of a sentence, and does not contain the address that a host name resolves to: whoever steers the
    request could map the private network with it.
    """


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
