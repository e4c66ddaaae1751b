"""The seam to the network: something that posts a body and gives the answer as it comes. Above: whoever speaks to the
network. Below: nothing. `http.py` is the real one; a test may give its own.
"""

from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from msgspec import Struct


class Answer(Protocol):
    """What came back. It can be read once, by `chunks` or by `read`."""

    @property
    def status(self) -> int: ...

    @property
    def headers(self) -> Mapping[str, str]:
        """By their names in lower case."""
        ...

    def chunks(self) -> AsyncIterator[bytes]:
        """The body, decompressed, in pieces as they come; none of them is empty. Raises a `NetError`."""
        ...

    async def read(self, most_bytes: int) -> bytes:
        """The body, or as much of its beginning. Raises a `NetError`."""
        ...


class Transport(Protocol):
    """Posts. Leaving the block lets the connection go: back to the others when all was read, closed when not."""

    def post(self, url: str, headers: Mapping[str, str], body: bytes) -> AbstractAsyncContextManager[Answer]:
        """Send this, and wait for the beginning of the answer, whatever its status. Raises a `NetError`."""
        ...


class Deadlines(Struct, frozen=True, kw_only=True):
    """How long to wait. Some models think for minutes without a word: these are for the dead, not for the slow."""

    connect_seconds: float = 10.0
    """Until there is a connection."""
    first_byte_seconds: float = 300.0
    """Until the answer begins."""
    idle_seconds: float = 300.0
    """From one piece of the answer to the next."""
