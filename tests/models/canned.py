"""A transport that answers with given bytes and keeps what was posted, to run an agent against recorded answers."""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import msgspec


class CannedResponse:
    """An answer of given bytes."""

    def __init__(self, data: bytes, media_type: str = "text/event-stream", status: int = 200) -> None:
        self.status, self.headers = status, {"content-type": media_type}
        self._data = data

    async def chunks(self) -> AsyncIterator[bytes]:
        yield self._data

    async def read(self, most_bytes: int) -> bytes:
        return self._data[:most_bytes]


class CannedTransport:
    """Answers each request with the next of the given answers."""

    def __init__(self, *answers: bytes | CannedResponse) -> None:
        self._answers = [each if isinstance(each, CannedResponse) else CannedResponse(each) for each in answers]
        self.posted: list[tuple[str, Mapping[str, str], bytes]] = []

    @property
    def bodies(self) -> Sequence[Any]:
        return [msgspec.json.decode(body) for _, _, body in self.posted]

    @asynccontextmanager
    async def post(self, url: str, headers: Mapping[str, str], body: bytes) -> AsyncIterator[CannedResponse]:
        self.posted.append((url, headers, body))
        yield self._answers[len(self.posted) - 1]
