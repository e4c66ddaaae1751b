"""Recorded traffic of real providers, for tests marked `wire`: found, read, and cut into pieces.

The recordings lie outside the repository (`PERDURE_WIRE`, or a folder beside the checkout) and are never copied into
it. Each is one JSON file: a scenario of one or more exchanges. Where there is no such folder, `recordings` gives
nothing and tests marked `wire` are skipped.

    @pytest.mark.wire
    @each_recording("openai-chat")
    def test_a_recorded_answer_is_understood(recording: Recording) -> None: ...

    @pytest.mark.wire
    @each_exchange("openai-chat", where=lambda exchange: exchange.ok)
    def test_…(exchange: Exchange) -> None: ...
"""

import base64
import os
import pickle
import random as chance
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import pytest
from msgspec import Struct

from tests.needs import wire_folder

D = TypeVar("D")

LONG = os.environ.get("PERDURE_SEARCH") == "long"
"""Whether the longest form of a search is wanted."""

SHORT_STREAM = 3_000
"""Up to this many bytes a stream is cut after every byte, in the short form as well."""


class Exchange(Struct, frozen=True, kw_only=True):
    """One request and its answer."""

    recording: str
    """The id of the recording."""
    index: int
    """Which exchange of the recording it is, from 0 on."""
    api: str
    provider: str
    features: frozenset[str]
    host: str
    path: str
    """Of the address, without the query."""
    query: Any
    request: Any
    """The body that was sent, parsed; None when only the answer was recorded."""
    request_headers: Mapping[str, str]
    status: int
    headers: Mapping[str, str]
    """Of the answer, their names in lower case."""
    data: bytes
    """The body of the answer as it came. A body that was recorded as parsed JSON is encoded again."""
    chunk_sizes: tuple[int, ...]
    """In which pieces it arrived, if that was recorded."""

    @property
    def ok(self) -> bool:
        """Whether the provider took the request."""
        return 200 <= self.status < 300

    @property
    def media_type(self) -> str:
        """What the answer is, as told or else as it looks, without parameters: `text/event-stream`."""
        told = self.headers.get("content-type", "").partition(";")[0].strip().lower()
        if told:
            return told
        return "application/json" if self.data[:1] in {b"{", b"["} else "text/event-stream"

    @property
    def streamed(self) -> bool:
        """Whether the answer is a stream. (There are errors that come as plain JSON under the name of a stream.)"""
        if self.media_type == "text/event-stream":
            return self.data[:1] not in {b"{", b"["}
        return self.media_type in {"application/x-ndjson", "application/vnd.amazon.eventstream"}

    @property
    def json(self) -> Any:
        """A whole answer, parsed."""
        return msgspec.json.decode(self.data)

    @property
    def label(self) -> str:
        """A short name for the list of tests."""
        return f"{self.provider}/{self.recording}-{self.index}"

    @property
    def chunks(self) -> list[bytes]:
        """The body in the pieces in which it arrived, or in one."""
        return _split(self.data, self.chunk_sizes)


class Recording(Struct, frozen=True, kw_only=True):
    """A scenario: usually one conversation, sometimes independent calls."""

    id: str
    path: Path
    api: str
    provider: str
    model: str
    features: frozenset[str]
    fidelity: str
    """`raw`; `normalised` or `reconstructed` ones prove nothing about bytes."""
    exchanges: tuple[Exchange, ...]

    @property
    def label(self) -> str:
        """A short name for the list of tests."""
        return f"{self.provider}/{self.id}"


def recordings(api: str | None = None, provider: str | None = None) -> list[Recording]:
    """The recordings of an API and a provider, sorted by their names; none when there is no folder."""
    return [each for each in _all() if api in {None, each.api} and provider in {None, each.provider}]


def each_recording(api: str, where: Callable[[Recording], bool] | None = None) -> pytest.MarkDecorator:
    """A test for each recording, given to it as `recording`."""
    found = [pytest.param(each, id=each.label) for each in recordings(api) if where is None or where(each)]
    return pytest.mark.parametrize("recording", found or [pytest.param(None, id="no recordings")])


def each_exchange(api: str, where: Callable[[Exchange], bool] | None = None) -> pytest.MarkDecorator:
    """A test for each exchange, given to it as `exchange`."""
    exchanges = [exchange for recording in recordings(api) for exchange in recording.exchanges]
    found = [pytest.param(each, id=each.label) for each in exchanges if where is None or where(each)]
    return pytest.mark.parametrize("exchange", found or [pytest.param(None, id="no recordings")])


class Skipped:
    """What a suite leaves out of the recordings, and why, so that nothing is left out silently."""

    def __init__(self, reasons: Mapping[str, str]) -> None:
        """Reasons by the last characters of a recording's id, such as `fd05cd`; `fd05cd-1` is one exchange of it."""
        self._reasons = reasons

    def check(self, subject: Recording | Exchange) -> None:
        """Skip the test that asks, saying why, when the recording or the exchange is in the table."""
        reason = self.reason(subject)
        if reason is not None:
            pytest.skip(f"{subject.label}: {reason}")

    def reason(self, subject: Recording | Exchange) -> str | None:
        """Why it is left out; None when it is not."""
        name = subject.id if isinstance(subject, Recording) else subject.recording
        names = [name] if isinstance(subject, Recording) else [name, f"{name}-{subject.index}"]
        for ending, reason in self._reasons.items():
            if any(each.endswith(ending) for each in names):
                return reason
        return None

    def unused(self, api: str) -> list[str]:
        """Entries of the table that match no recording, so that the table does not outlive its reasons."""
        names = {f"{each.recording}-{each.index}" for one in recordings(api) for each in one.exchanges}
        names |= {one.id for one in recordings(api)}
        return [ending for ending in self._reasons if not any(name.endswith(ending) for name in names)]


def chunked(data: bytes, random: chance.Random, mean: int = 60) -> list[bytes]:
    """The bytes in pieces of random sizes, many of them tiny, as a network might deliver them."""
    pieces: list[bytes] = []
    place = 0
    while place < len(data):
        size = random.choice((1, random.randint(1, 4), random.randint(1, 2 * mean)))
        pieces.append(data[place : place + size])
        place += size
    return pieces


def cuts(data: bytes, *, most: int = SHORT_STREAM) -> Sequence[int]:
    """Where to cut a stream: after every byte of a short one.

    Of a longer one, unless the longest form is wanted: around the ends of its lines, after every byte of its last
    quarter of `most`, and after every byte of its first.
    """
    if LONG or len(data) <= most:
        return range(len(data))
    ends = {place for place, byte in enumerate(data) if byte == 0x0A}
    around = {place + shift for place in ends for shift in (-1, 0, 1, 2)}
    around |= set(range(most // 4)) | set(range(len(data) - most // 4, len(data)))
    return sorted(place for place in around if 0 <= place < len(data))


def copied(decoder: D) -> D:
    """A decoder in the same state. (`copy.deepcopy` would take ten times as long, and this is done at every byte.)"""
    twin: D = pickle.loads(pickle.dumps(decoder, pickle.HIGHEST_PROTOCOL))
    return twin


def _split(data: bytes, sizes: Sequence[int]) -> list[bytes]:
    pieces: list[bytes] = []
    place = 0
    for size in sizes:
        pieces.append(data[place : place + size])
        place += size
    if place < len(data):
        pieces.append(data[place:])
    return pieces


@cache
def _all() -> tuple[Recording, ...]:
    folder = wire_folder()
    return tuple([_read(path) for path in sorted(folder.glob("*/*.json"))]) if folder.is_dir() else ()


def _read(path: Path) -> Recording:
    raw: dict[str, Any] = msgspec.json.decode(path.read_bytes())
    exchanges = [_exchange(raw, index, each) for index, each in enumerate(raw["exchanges"])]
    return Recording(
        id=raw["id"],
        path=path,
        api=raw["api"],
        provider=raw["provider"],
        model=raw.get("model") or "",
        features=frozenset(raw["features"]),
        fidelity=raw["source"].get("fidelity", ""),
        exchanges=tuple(exchanges),
    )


def _exchange(raw: Mapping[str, Any], index: int, exchange: Mapping[str, Any]) -> Exchange:
    request, response = exchange["request"], exchange["response"]
    return Exchange(
        recording=raw["id"],
        index=index,
        api=raw["api"],
        provider=raw["provider"],
        features=frozenset(raw["features"]),
        host=request["host"],
        path=request["path"],
        query=request.get("query"),
        request=request["body"],
        request_headers=request["headers"],
        status=response["status"],
        headers={name.lower(): value for name, value in response["headers"].items()},
        data=_data(response),
        chunk_sizes=tuple(response.get("chunk_sizes", ())),
    )


def _data(response: Mapping[str, Any]) -> bytes:
    if "body_text" in response:
        return str(response["body_text"]).encode()
    if "body_base64" in response:
        return base64.b64decode(response["body_base64"])
    return msgspec.json.encode(response["body"])
