"""Entries as rows of an SQLite store, and back. Above: `log.py`. Below: `core/codec.py`.

A row holds some consecutive entries of one log: `heads` what is around their events, `body` the events. Texts that are
very long are cut out of the body, compressed and kept by their hash in a table of their own, so that the same text is
kept once; `holes` tells where they were.
"""

import re
import zlib
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, TypeAlias

import msgspec

from perdure.core.codec import VERSION, decode_events, decode_known_events, encode_events, pack_events
from perdure.core.error import StoreError
from perdure.core.event import Entry, Event

LONG: Final = 16 * 1024
"""Texts of as many bytes are kept apart."""

_TEXT: Final = re.compile(rb'"([^"\\]*+(?:\\.[^"\\]*+)*+)"', re.DOTALL)


class Heads(msgspec.Struct):
    """What is around the events of a row."""

    ats: list[float]
    ids: list[str]
    critical: list[str]
    """The kinds among them that a driver must understand."""


class _StoredHeads(msgspec.Struct, array_like=True):
    ats: list[float]
    stem: str
    """What all ids begin with."""
    ids: list[str]
    """How they go on."""
    critical: list[str]


class Hole(msgspec.Struct, array_like=True, frozen=True):
    """A place in a body at which a text is missing."""

    place: int
    """In the body as it is stored, without the texts."""
    digest: bytes


class Row(NamedTuple):
    """As in the table, without the key of its session. The columns are in the same order."""

    first: int
    last: int
    version: int
    heads: bytes
    body: bytes
    holes: bytes | None


TextOf: TypeAlias = Callable[[bytes], bytes]
"""Gives the compressed text of a hash; raises a `ValueError` when there is none."""

_pack = msgspec.msgpack.Encoder().encode
_stored_heads = msgspec.msgpack.Decoder(_StoredHeads).decode
_holes = msgspec.msgpack.Decoder(list[Hole]).decode
_bodies_in_json = msgspec.json.Decoder(list[msgspec.Raw]).decode
_bodies_packed = msgspec.msgpack.Decoder(list[msgspec.Raw]).decode


def heads_of(row: Row) -> Heads:
    """What is around the events of a row."""
    stored = _stored_heads(row.heads)
    return Heads(stored.ats, list(map(stored.stem.__add__, stored.ids)), stored.critical)


def _packed(heads: Heads) -> bytes:
    stem = heads.ids[0] if len(heads.ids) == 1 else _common_beginning(min(heads.ids), max(heads.ids))
    return _pack(_StoredHeads(heads.ats, stem, [each[len(stem) :] for each in heads.ids], heads.critical))


def holes_of(row: Row) -> list[Hole]:
    """The places at which texts are missing."""
    return _holes(row.holes) if row.holes else []


def _common_beginning(one: str, other: str) -> str:
    """Of two texts, and so of all that are between them in the order of texts."""
    length = min(len(one), len(other))
    return one[: next((place for place in range(length) if one[place] != other[place]), length)]


def new_row(entries: Sequence[Entry]) -> tuple[Row, dict[bytes, bytes]]:
    """Entries as they are appended, and the long texts in them, compressed, by their hashes."""
    body = encode_events([entry.event for entry in entries])
    return fitted(entries[0].seq, VERSION, _heads_around(entries), body)


def fitted(first: int, version: int, heads: Heads, body: bytes) -> tuple[Row, dict[bytes, bytes]]:
    """A row of these parts, and the long texts in it, compressed, by their hashes."""
    body, holes, texts = _cut(body) if len(body) >= LONG else (body, [], {})
    row = Row(first, first + len(heads.ats) - 1, version, _packed(heads), body, _pack(holes) if holes else None)
    return row, texts


def merged(rows: Sequence[Row]) -> Row:
    """One row for several that follow one another and have no holes."""
    whole = Heads([], [], [])
    events: list[Event] = []
    for row in rows:
        heads = heads_of(row)
        whole.ats += heads.ats
        whole.ids += heads.ids
        whole.critical += [kind for kind in heads.critical if kind not in whole.critical]
        events += decode_events(row.body, critical=heads.critical, version=row.version)
    return Row(rows[0].first, rows[-1].last, VERSION, _packed(whole), pack_events(events), None)


def part_of(row: Row, first: int, last: int, text_of: TextOf) -> tuple[Row, dict[bytes, bytes]]:
    """Some of the entries of a row, as a row of their own. Nobody looks into them: they may be of a newer version."""
    heads, start, stop = heads_of(row), first - row.first, last + 1 - row.first
    body = _slice(_filled(row, text_of), start, stop)
    return fitted(first, row.version, Heads(heads.ats[start:stop], heads.ids[start:stop], heads.critical), body)


def entries_in_row(row: Row, first: int, last: int, text_of: TextOf, session_id: str) -> list[Entry]:
    """The entries of a row from number `first` to `last`. The id of the session is for when one of them is damaged."""
    first, last = max(first, row.first), min(last, row.last)
    try:
        body = _filled(row, text_of)
        heads = heads_of(row)
        ats, ids = heads.ats, heads.ids
        if (first, last) != (row.first, row.last):
            start, stop = first - row.first, last + 1 - row.first
            body, ats, ids = _slice(body, start, stop), ats[start:stop], ids[start:stop]
        events = decode_events(body, critical=heads.critical, version=row.version)
        if not len(events) == len(ats) == len(ids) == last + 1 - first:
            raise ValueError("something is missing")  # noqa: TRY301 - told below
        return list(map(Entry, range(first, last + 1), ats, events, ids))
    except (msgspec.DecodeError, zlib.error, ValueError) as error:
        which = f"entry {row.first}" if row.first == row.last else f"one of the entries {row.first} to {row.last}"
        raise StoreError(
            f"{which} of session {session_id!r} is damaged ({error}): restore a backup, or delete the session"
        ) from error


def events_in_row(row: Row, first: int, last: int, text_of: TextOf, session_id: str) -> list[Event]:
    """As `entries_in_row`, without their ids and times, which mostly need not be looked at then."""
    if first <= row.first and row.last <= last and not row.holes:
        try:
            events = decode_known_events(row.body, version=row.version)
        except msgspec.DecodeError:
            events = None  # told below
        if events is not None and len(events) == row.last + 1 - row.first:
            return events
    return [entry.event for entry in entries_in_row(row, first, last, text_of, session_id)]


def _heads_around(entries: Sequence[Entry]) -> Heads:
    critical = {type(entry.event).__struct_config__.tag: None for entry in entries if type(entry.event).critical}
    return Heads([entry.at for entry in entries], [entry.id for entry in entries], [str(kind) for kind in critical])


def _cut(body: bytes) -> tuple[bytes, list[Hole], dict[bytes, bytes]]:
    """A body without its long texts, where they were, and what they are."""
    from hashlib import sha256  # only here, since it costs every start milliseconds

    kept: list[bytes] = []
    holes: list[Hole] = []
    texts: dict[bytes, bytes] = {}
    after = place = 0
    for found in _TEXT.finditer(body):
        start, end = found.span(1)
        if end - start < LONG:
            continue
        text = body[start:end]
        digest = sha256(text).digest()
        kept.append(body[after:start])
        place += start - after
        after = end
        holes.append(Hole(place, digest))
        if digest not in texts:
            texts[digest] = zlib.compress(text, 6)
    return b"".join([*kept, body[after:]]), holes, texts


def _filled(row: Row, text_of: TextOf) -> bytes:
    """The body of a row with its long texts."""
    if not row.holes:
        return row.body
    pieces: list[bytes] = []
    after = 0
    for hole in _holes(row.holes):
        pieces += (row.body[after : hole.place], zlib.decompress(text_of(hole.digest)))
        after = hole.place
    return b"".join([*pieces, row.body[after:]])


def _slice(body: bytes, start: int, stop: int) -> bytes:
    """Some of the events of a body, in the form that they are in."""
    if body[:1] == b"[":
        return b"[%b]" % b",".join([bytes(event) for event in _bodies_in_json(body)[start:stop]])
    return _pack(_bodies_packed(body)[start:stop])
