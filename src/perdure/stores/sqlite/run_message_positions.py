"""Outlines of ended runs in a row of the table `pack`: positions of their messages in the row, and a few totals.

The outlines are at the end of the row's heads. With them the messages of hundreds of runs are cut out of the body and
decoded in one call, and nothing else of these runs is decoded (see `perdure.core.ended_run_outlines`).

Outlines are written with the body that they are about, in one row, and have its checksum. They are ignored if this
does not match, or if another version wrote them: then the events of the row are decoded. A version that knows nothing
of outlines skips them, and drops them when it writes the row anew.
"""

import zlib
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache, partial
from itertools import accumulate
from typing import Any, Final

import msgspec

from perdure.core.ended_run_outlines import (
    OUTLINE_VERSION,
    EndedRuns,
    EndedRunsOutline,
    EndedRunsSummary,
    outline_ended_runs,
)
from perdure.core.event import Event, MessageAdded, RunEnded, RunStarted
from perdure.core.log_codec import decode_events_if_all_known
from perdure.core.message import Message

_JSON_START: Final = b"["


class _StoredOutline(msgspec.Struct, array_like=True, frozen=True):
    """Consecutive ended runs. Places are numbers of bytes in the body."""

    event_counts: tuple[int, int, int]
    """Number of events before the runs and after the outline before it; in the runs; in the last of them."""
    places: tuple[int, int, int, int]
    """Beginning of the first event, its end, beginning of the last run, and its end."""
    cuts: list[int]
    """Beginning and end of each message or result, each as the distance from the number before it."""
    results: list[int]
    """For each message that is made of results: the number of cuts since the last one, and the number of its own."""
    ends: list[int]
    """Beginning and end of the last events of the runs in `summary.inputs`."""
    summary: EndedRunsSummary


class _SignedOutlines(msgspec.Struct, array_like=True, frozen=True):
    version: int
    checksum: int
    """Of the encoded outlines, followed by the body."""
    outlines: msgspec.Raw


class _MessageInEvent(msgspec.Struct):
    message: msgspec.Raw


class _ResultInEvent(msgspec.Struct):
    result: msgspec.Raw


_pack = msgspec.msgpack.Encoder().encode
_decode_signed = msgspec.msgpack.Decoder(_SignedOutlines).decode
_decode_outlines = msgspec.msgpack.Decoder(list[_StoredOutline]).decode
_split_events = msgspec.msgpack.Decoder(list[msgspec.Raw]).decode
_decode_messages = msgspec.msgpack.Decoder(list[Message]).decode
_decode_started = msgspec.msgpack.Decoder(RunStarted).decode
_decode_ended = msgspec.msgpack.Decoder(list[RunEnded]).decode
_find_message = msgspec.msgpack.Decoder(_MessageInEvent).decode
_find_result = msgspec.msgpack.Decoder(_ResultInEvent).decode


# -- writing -----------------------------------------------------------------------------------------------------------


def encode_ended_run_outlines(events: Sequence[Event], body: bytes) -> bytes:
    """Encode outlines of the ended runs among `events`, whose encoding is `body`; empty if no run has ended."""
    found = [] if body[:1] == _JSON_START else outline_ended_runs(events)
    if not found:
        return b""
    raw = [bytes(each) for each in _split_events(body)]
    starts = list(accumulate([len(each) for each in raw], initial=len(body) - sum(map(len, raw))))
    stored: list[_StoredOutline] = []
    before = 0
    for outline in found:
        stored.append(_locate_outline(outline, events, raw, starts, before))
        before = outline.end
    try:
        encoded = _pack(stored)
    except OverflowError:
        return b""  # a sum of token counts is larger than any number of MessagePack
    return _pack(_SignedOutlines(OUTLINE_VERSION, _compute_checksum(encoded, body), msgspec.Raw(encoded)))


def _locate_outline(
    outline: EndedRunsOutline, events: Sequence[Event], raw: Sequence[bytes], starts: Sequence[int], before: int
) -> _StoredOutline:
    first, last_run, end = outline.first, outline.last_run, outline.end
    cuts: list[int] = []
    results: list[int] = []
    unnamed = 0
    for places in outline.messages:
        is_message = type(events[places[0]]) is MessageAdded
        if is_message:
            unnamed += 1
        else:
            results += (unnamed, len(places))
            unnamed = 0
        for place in places:
            part = bytes(_find_message(raw[place]).message if is_message else _find_result(raw[place]).result)
            start = starts[place] + raw[place].index(part)  # the same bytes, wherever they are found
            cuts += (start, start + len(part))
    ends = [each for place in outline.ends for each in (starts[place], starts[place + 1])]
    return _StoredOutline(
        (first - before, end - first, end - last_run),
        (starts[first], starts[first + 1], starts[last_run], starts[end]),
        [after - at for at, after in zip([0, *cuts], cuts, strict=False)],
        results,
        ends,
        outline.summary,
    )


def _compute_checksum(encoded: bytes, body: bytes) -> int:
    return zlib.crc32(body, zlib.crc32(encoded))


# -- reading -----------------------------------------------------------------------------------------------------------


def decode_outlined_events(outlines: bytes, body: bytes, count: int) -> "list[Event | EndedRuns] | None":
    """Decode the `count` events in a row, ended runs as outlines; `None` if an outline does not fit the row."""
    try:
        signed = _decode_signed(outlines)
        encoded = bytes(signed.outlines)
        if signed.version != OUTLINE_VERSION or signed.checksum != _compute_checksum(encoded, body):
            return None
        if count != _count_events(body):
            return None  # the numbers of the row are not those of its body
        return list(_decode_parts(_decode_outlines(encoded), body, count))
    except (msgspec.DecodeError, _UnknownEventError):
        return None


class _UnknownEventError(Exception):
    """Raised for an event that this version does not know."""


def _decode_parts(outlines: Sequence[_StoredOutline], body: bytes, count: int) -> "Iterator[Event | EndedRuns]":
    at = _header_size(body)
    for outline in outlines:
        before, inside, _ = outline.event_counts
        yield from _decode_events(body, before, at, outline.places[0])
        yield _decode_runs(outline, body)
        count -= before + inside
        at = outline.places[3]
    yield from _decode_events(body, count, at, len(body))


def _decode_runs(outline: _StoredOutline, body: bytes) -> EndedRuns:
    _, inside, in_last = outline.event_counts
    start, first_end, last_run, end = outline.places
    cuts = list(accumulate(outline.cuts))
    parts = [body[begin:until] for begin, until in zip(cuts[::2], cuts[1::2], strict=True)]
    result_messages: list[int] = []
    place = merged = 0
    numbers = iter(outline.results)
    for skipped, results in zip(numbers, numbers, strict=True):
        place += skipped
        parts[place] = _begin_tool_message(results) + parts[place]
        result_messages.append(place - merged)
        place += results
        merged += results - 1
    ends = zip(outline.ends[::2], outline.ends[1::2], strict=True)
    return EndedRuns(
        summary=outline.summary,
        first_event=_decode_started(body[start:first_end]),
        messages=_decode_array(_decode_messages, parts, len(parts) - merged),
        result_messages=result_messages,
        ends=_decode_array(_decode_ended, [body[begin:until] for begin, until in ends], len(outline.ends) // 2),
        last_run=_decode_events(body, in_last, last_run, end),
        list_events=partial(_decode_events, body, inside, start, end),
    )


def _decode_events(body: bytes, count: int, start: int, end: int) -> list[Event]:
    events = decode_events_if_all_known(_array_header(count) + body[start:end]) if count else []
    if events is None:
        raise _UnknownEventError
    return events


def _decode_array(decode: Callable[[bytes], list[Any]], parts: Sequence[bytes], count: int) -> list[Any]:
    return decode(b"".join([_array_header(count), *parts])) if parts else []


@lru_cache(64)
def _begin_tool_message(results: int) -> bytes:
    """Return the beginning of an encoded message with so many tool results, up to the first of them."""
    return b"\x82\xa4role\xa4tool\xa5parts" + _array_header(results)


def _array_header(count: int) -> bytes:
    """Return the beginning of an array of MessagePack."""
    return b"\xdd" + count.to_bytes(4)


def _header_size(body: bytes) -> int:
    """Return the number of bytes before the first event of a body."""
    return {0xDC: 3, 0xDD: 5}.get(body[0], 1)


def _count_events(body: bytes) -> int:
    """Return the number of events in a body, as the beginning of its array says."""
    size = _header_size(body)
    return int.from_bytes(body[1:size]) if size > 1 else body[0] & 0x0F
