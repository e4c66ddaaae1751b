"""Encode several log entries as one row of the SQLite table `pack`, and decode them.

A row contains consecutive entries of one log: `heads` has their times and ids, `body` the events. Very long texts are
cut out of the body, compressed and stored by their hash in another table, so that the same text is stored once; `holes`
has their positions.
"""

import re
import zlib
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, TypeAlias

import msgspec

from perdure._core.log.codec import (
    VERSION,
    decode_events,
    decode_events_if_all_known,
    encode_events,
    encode_events_as_msgpack,
)
from perdure._core.values.error import StoreError
from perdure._core.values.event import Entry
from perdure._core.values.event_class import Event

LONG_TEXT_BYTES: Final = 16 * 1024
"""Texts of at least this many bytes are stored separately."""

_TEXT: Final = re.compile(rb'"([^"\\]*+(?:\\.[^"\\]*+)*+)"', re.DOTALL)


class PackedRowMetadata(msgspec.Struct):
    """Ids and times of the entries that one database row holds, and the kinds of events that every reader must know."""

    ats: list[float]
    ids: list[str]
    critical: list[str]
    """The kinds among the events that a reader must understand, and must not skip."""


class _StoredHeads(msgspec.Struct, array_like=True):
    ats: list[float]
    stem: str
    """The common prefix of all ids."""
    ids: list[str]
    """The rest of each id."""
    critical: list[str]


class LongTextReference(msgspec.Struct, array_like=True, frozen=True):
    """The position in a row's encoded events where a long text was cut out, and the digest by which it is stored."""

    place: int
    """In the body as it is stored, without the texts."""
    digest: bytes


class PackRow(NamedTuple):
    """A row of the SQLite table `pack`, with several encoded log entries of one session.

    The columns are in the order of the table, without the session's key.
    """

    first: int
    last: int
    version: int
    heads: bytes
    body: bytes
    holes: bytes | None


ReadText: TypeAlias = Callable[[bytes], bytes]
"""Function that returns the compressed long text with a digest; raises `ValueError` if there is none."""

_pack = msgspec.msgpack.Encoder().encode
_stored_heads = msgspec.msgpack.Decoder(_StoredHeads).decode
_holes = msgspec.msgpack.Decoder(list[LongTextReference]).decode
_bodies_in_json = msgspec.json.Decoder(list[msgspec.Raw]).decode
_bodies_packed = msgspec.msgpack.Decoder(list[msgspec.Raw]).decode


def decode_entry_metadata(row: PackRow) -> PackedRowMetadata:
    """Decode the times and ids of the entries in a row, without their events."""
    stored = _stored_heads(row.heads)
    return PackedRowMetadata(stored.ats, list(map(stored.stem.__add__, stored.ids)), stored.critical)


def _encode_heads(ats: list[float], ids: list[str], critical: list[str]) -> bytes:
    stem = ids[0] if len(ids) == 1 else _common_beginning(min(ids), max(ids))
    length = len(stem)
    return _pack((ats, stem, [each[length:] for each in ids], critical))  # as `_StoredHeads`, which is decoded


def decode_long_text_references(row: PackRow) -> list[LongTextReference]:
    """Decode the positions at which long texts were cut out of a row."""
    return _holes(row.holes) if row.holes else []


def _common_beginning(one: str, other: str) -> str:
    """Return the common prefix of two texts, and so of all texts that sort between them."""
    beginning = one
    while not other.startswith(beginning):  # consecutive ids differ in their last digits: this is short
        beginning = beginning[:-1]
    return beginning


def encode_row(entries: Sequence[Entry], ids: list[str]) -> tuple[PackRow, dict[bytes, bytes]]:
    """Encode entries, with these ids, as a row; return it with the long texts cut out of it, compressed, by digest."""
    events = [entry.event for entry in entries]
    body = encode_events(events)
    ats = [entry.at for entry in entries]
    critical: list[str] = []
    for event in events:
        tag = _critical_tags.get(type(event))
        if tag is None:
            tag = _find_critical_tag(type(event))
        if tag and tag not in critical:
            critical.append(tag)
    first = entries[0].seq
    if len(body) >= LONG_TEXT_BYTES:
        return build_row_without_long_texts(first, VERSION, PackedRowMetadata(ats, ids, critical), body)
    return PackRow(first, first + len(events) - 1, VERSION, _encode_heads(ats, ids, critical), body, None), {}


_critical_tags: Final[dict[type[Event], str]] = {}
"""The kind of a critical event, by its type; empty for others. To look a kind up takes a microsecond each time."""


def _find_critical_tag(kind: type[Event]) -> str:
    tag = _critical_tags[kind] = str(kind.__struct_config__.tag) if kind.critical else ""
    return tag


def build_row_without_long_texts(
    first: int, version: int, heads: PackedRowMetadata, body: bytes
) -> tuple[PackRow, dict[bytes, bytes]]:
    """Build a row from entry metadata and encoded events; cut out long texts, and return them too.

    The long texts are compressed, by digest.
    """
    body, holes, texts = _cut_long_texts(body) if len(body) >= LONG_TEXT_BYTES else (body, [], {})
    encoded = _encode_heads(heads.ats, heads.ids, heads.critical)
    row = PackRow(first, first + len(heads.ats) - 1, version, encoded, body, _pack(holes) if holes else None)
    return row, texts


def merge_rows(rows: Sequence[PackRow]) -> PackRow:
    """Merge consecutive rows of a log, each with some entries, into one row with all of them."""
    whole = PackedRowMetadata([], [], [])
    events: list[Event] = []
    for row in rows:
        heads = decode_entry_metadata(row)
        whole.ats += heads.ats
        whole.ids += heads.ids
        whole.critical += [kind for kind in heads.critical if kind not in whole.critical]
        events += decode_events(row.body, critical=heads.critical, version=row.version)
    body = encode_events_as_msgpack(events)
    encoded = _encode_heads(whole.ats, whole.ids, whole.critical)
    return PackRow(rows[0].first, rows[-1].last, VERSION, encoded, body, None)


def slice_row(row: PackRow, first: int, last: int, text_of: ReadText) -> tuple[PackRow, dict[bytes, bytes]]:
    """Return entries `first` to `last` of a row as a new row, without decoding their events, and its long texts.

    The events may be of a newer version.
    """
    heads, start, stop = decode_entry_metadata(row), first - row.first, last + 1 - row.first
    body = _slice_body(_insert_long_texts(row, text_of), start, stop)
    return build_row_without_long_texts(
        first, row.version, PackedRowMetadata(heads.ats[start:stop], heads.ids[start:stop], heads.critical), body
    )


def decode_row_entries(row: PackRow, first: int, last: int, text_of: ReadText, session_id: str) -> list[Entry]:
    """Decode the entries of a row from number `first` to `last`. The session id is for error messages."""
    first, last = max(first, row.first), min(last, row.last)
    try:
        body = _insert_long_texts(row, text_of)
        heads = decode_entry_metadata(row)
        ats, ids = heads.ats, heads.ids
        if (first, last) != (row.first, row.last):
            start, stop = first - row.first, last + 1 - row.first
            body, ats, ids = _slice_body(body, start, stop), ats[start:stop], ids[start:stop]
        events = decode_events(body, critical=heads.critical, version=row.version)
        if not len(events) == len(ats) == len(ids) == last + 1 - first:
            raise ValueError("something is missing")  # noqa: TRY301 - reported below
        return list(map(Entry, range(first, last + 1), ats, events, ids))
    except (msgspec.DecodeError, zlib.error, ValueError) as error:
        which = f"entry {row.first}" if row.first == row.last else f"one of the entries {row.first} to {row.last}"
        raise StoreError(
            f"{which} of session {session_id!r} is damaged ({error}): restore a backup, or delete the session"
        ) from error


def decode_row_events(row: PackRow, first: int, last: int, text_of: ReadText, session_id: str) -> list[Event]:
    """Decode only the events of a row from entry `first` to `last`, without the entries' ids and times."""
    if first <= row.first and row.last <= last and not row.holes:
        try:
            events = decode_events_if_all_known(row.body, version=row.version)
        except msgspec.DecodeError:
            events = None  # reported below
        if events is not None and len(events) == row.last + 1 - row.first:
            return events
    return [entry.event for entry in decode_row_entries(row, first, last, text_of, session_id)]


def _cut_long_texts(body: bytes) -> tuple[bytes, list[LongTextReference], dict[bytes, bytes]]:
    """Cut the long texts out of a body; return the body, their positions and the compressed texts."""
    from hashlib import sha256  # only here, since it costs every start milliseconds

    kept: list[bytes] = []
    holes: list[LongTextReference] = []
    texts: dict[bytes, bytes] = {}
    after = place = 0
    for found in _TEXT.finditer(body):
        start, end = found.span(1)
        if end - start < LONG_TEXT_BYTES:
            continue
        text = body[start:end]
        digest = sha256(text).digest()
        kept.append(body[after:start])
        place += start - after
        after = end
        holes.append(LongTextReference(place, digest))
        if digest not in texts:
            texts[digest] = zlib.compress(text, 6)
    return b"".join([*kept, body[after:]]), holes, texts


def _insert_long_texts(row: PackRow, text_of: ReadText) -> bytes:
    """Return the body of a row with its long texts inserted again."""
    if not row.holes:
        return row.body
    pieces: list[bytes] = []
    after = 0
    for hole in _holes(row.holes):
        pieces += (row.body[after : hole.place], zlib.decompress(text_of(hole.digest)))
        after = hole.place
    return b"".join([*pieces, row.body[after:]])


def _slice_body(body: bytes, start: int, stop: int) -> bytes:
    """Return some of the events of an encoded body, still encoded."""
    if body[:1] == b"[":
        return b"[%b]" % b",".join([bytes(event) for event in _bodies_in_json(body)[start:stop]])
    return _pack(_bodies_packed(body)[start:stop])
