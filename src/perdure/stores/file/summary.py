"""What a list says about a session, from the beginning and the end of its file. Above: `catalogue.py`."""

import os
from collections.abc import Sequence
from typing import Final
from zlib import crc32

import msgspec

from perdure.core.codec import decode_entry
from perdure.core.error import StoreError
from perdure.stores.listing import renamed_to, title_of

from .access import close_file, open_file, read_at
from .lock import claim_of
from .name import LOG, Place, id_of, name_of, place_of
from .record import Damage, Line, first_line, scan
from .survey import Header, Kept, header_in, seq_of, survey

_CHUNK: Final = 16 * 1024
"""How much of a file is looked at first, from either end."""
_BEGINNING: Final = 256 * 1024
"""Only messages that begin up to here give a title."""
_LARGE_CHUNK: Final = 1024 * 1024
_MESSAGE: Final = b'"message_added"'
_RENAMED: Final = b'"session_configured"'


class _Label(msgspec.Struct, frozen=True):
    """Of an entry's JSON, its number and time."""

    seq: int
    at: float


_labels = msgspec.json.Decoder(_Label)


class Summary(msgspec.Struct, frozen=True):
    """What one file says. What a fork shares is in another one."""

    session_id: str
    header: Header | None
    created_at: float
    entries: int = 0
    """The number of the last entry; 0 when there is none."""
    updated_at: float = 0.0
    beginning: str = ""
    """The beginning of the first message."""
    name: str = ""
    """What the session was called."""


def summary_of(path: str, upto: int | None = None) -> Summary | None:
    """What a file says, or what it said when it had `upto` entries; `None` for an empty one.

    Raises `OSError`, `StoreError` when the file does not say of which session it is, or has a newer format, and
    `msgspec.DecodeError` for what no version has written.
    """
    descriptor = open_file(path, os.O_RDONLY)
    try:
        size = os.fstat(descriptor).st_size
        if not size:
            return None
        header = header_in(first_line(descriptor, size, 0), path)
        session_id = _id_of(path, header)
        if path.endswith(LOG):
            place = place_of(os.path.dirname(path), session_id)  # noqa: PTH120 - a string
        else:
            place = Place(session_id, path, path, path, crc32(session_id.encode()))
        if upto is not None:
            return _at(descriptor, size, place, header, upto)
        return _now(descriptor, size, place, header)
    finally:
        close_file(descriptor)


def _id_of(path: str, header: Header | None) -> str:
    name, ending = os.path.splitext(os.path.basename(path))  # noqa: PTH119, PTH122 - a string
    spelled = id_of(name) if ending == LOG else None
    if spelled is not None:
        return spelled
    if header is not None and (ending != LOG or name_of(header.id) == name):
        return header.id
    raise StoreError("it does not say of which session it is: read that session by its id, or move the file away")


def _now(descriptor: int, size: int, place: Place, header: Header | None) -> Summary:
    first_at, beginning = _beginning(descriptor, size, place.seed)
    created_at = header.created_at if header is not None else first_at
    last = _last(descriptor, size, place)
    if last is None:
        return Summary(place.session_id, header, created_at)
    name = ""
    if _mentions(descriptor, size, _RENAMED):
        name = _name_in(survey(descriptor, size, place).entries)
    return Summary(place.session_id, header, created_at, last.seq, last.at, beginning, name)


def _at(descriptor: int, size: int, place: Place, header: Header | None, upto: int) -> Summary:
    entries = [kept for kept in survey(descriptor, size, place).entries if kept.seq <= upto]
    created_at = header.created_at if header is not None else 0.0
    if not entries:
        return Summary(place.session_id, header, created_at)
    beginning = ""
    for kept in entries:
        if _MESSAGE in kept.body and (beginning := title_of([decode_entry(kept.body)])):
            break
    last = _labels.decode(entries[-1].body)
    return Summary(place.session_id, header, created_at, last.seq, last.at, beginning, _name_in(entries))


def _name_in(entries: list[Kept]) -> str:
    return renamed_to([decode_entry(kept.body) for kept in entries if _RENAMED in kept.body]) or ""


def _mentions(descriptor: int, size: int, words: bytes) -> bool:
    """Whether these bytes occur in a file: nobody knows where a session was renamed, and this is quick."""
    at = 0
    while at < size:
        if words in read_at(descriptor, at, _LARGE_CHUNK + len(words)):
            return True
        at += _LARGE_CHUNK
    return False


def _beginning(descriptor: int, size: int, seed: int) -> tuple[float, str]:
    """The time of the first entry, and the title that a message near the beginning gives."""
    at: float | None = None
    title = ""
    for piece in scan(descriptor, size, seed, chunk=_CHUNK):
        if title or piece.start > _BEGINNING:
            break
        if isinstance(piece, Line) and seq_of(piece.body):
            at = _labels.decode(piece.body).at if at is None else at
            if _MESSAGE in piece.body:
                title = title_of([decode_entry(piece.body)])
    return at or 0.0, title


def _last(descriptor: int, size: int, place: Place) -> _Label | None:
    """The last entry of the last append that is complete; `None` when there is none."""
    count = _CHUNK
    while True:
        start = max(size - count, 0)
        pieces = list(scan(descriptor, size, place.seed, start, _CHUNK))
        if _has_hole(pieces, start):
            entries = survey(descriptor, size, place, claim_of(place).synced).entries
            return _labels.decode(entries[-1].body) if entries else None
        found = [
            piece.body for piece in pieces if isinstance(piece, Line) and not piece.has_more and seq_of(piece.body)
        ]
        if found:
            return _labels.decode(max(found, key=seq_of))
        if not start:
            return None
        count *= 8


def _has_hole(pieces: Sequence[Line | Damage], start: int) -> bool:
    """Whether there are bad bytes between lines. The first ones may be the end of a line, or the header."""
    return any(isinstance(piece, Damage) and piece.start > start for piece in pieces[:-1])
