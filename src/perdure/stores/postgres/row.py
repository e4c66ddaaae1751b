"""Entries as rows of a PostgreSQL table, and back. Above: `store.py`. Below: `core/codec.py`."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from perdure.core.codec import decode_event, encode_event
from perdure.core.error import StoreError
from perdure.core.event import Entry, Event, Unknown
from perdure.stores.listing import check_session_id, renamed_to, title_of
from perdure.stores.spoken import spoken

from .words import words_only


class Row(NamedTuple):
    """An entry as it lies in its table, without the key of its session and the version of its body, which is ours."""

    seq: int
    id: str | None
    kind: str
    critical: bool
    at: float
    title: str | None
    """What its session would be called after it."""
    role: str | None
    """Who says something in it."""
    words: str | None
    """What can be found of that."""
    body: bytes


class _Outline(msgspec.Struct):
    """A row with the place of its body instead of it."""

    seq: int
    id: str | None
    kind: str
    critical: bool
    at: float
    title: str | None
    role: str | None
    words: str | None
    start: int
    length: int


_outlines = msgspec.json.Encoder()


def row_of(entry: Entry) -> Row:
    """The row of an entry. The body is bytes, so that nothing in it can be refused."""
    event, entry_id = entry.event, entry.id
    kind = _cleaned(event.name) if type(event) is Unknown else str(type(event).__struct_config__.tag)
    if not entry_id.isascii() or "\0" in entry_id:
        check_session_id(entry_id, what="the id of an entry")
    title = title_of((entry,)) or renamed_to((entry,))
    role, words = said_in(event)
    return Row(
        entry.seq, entry_id or None, kind, type(event).critical, entry.at, title, role, words, encode_event(event)
    )


def said_in(event: Event) -> tuple[str, str] | tuple[None, None]:
    """Who says something in an event, and the words that can be found."""
    found = spoken(event)
    return (found[0], words_only(found[1])) if found else (None, None)


def packed(rows: Sequence[Row]) -> tuple[str, bytes]:
    """Many rows as two values, which cost the driver less than arrays: what is in JSON, and the bodies end to end."""
    outlines: list[_Outline] = []
    start = 1  # as SQL counts
    for row in rows:
        length = len(row.body)
        outlines.append(_Outline(*row[:-1], start, length))
        start += length
    return _outlines.encode(outlines).decode(), b"".join([row.body for row in rows])


def entry_of(session_id: str, row: tuple[Any, ...]) -> Entry:
    """The entry of a row that was read."""
    seq, at, entry_id, critical, version, body = row
    return Entry(seq, at, event_of(session_id, seq, critical, version, body), entry_id)


def event_of(session_id: str, seq: int, critical: bool, version: int, body: bytes) -> Event:  # noqa: FBT001 - a column
    """The event of the columns that it was made into."""
    try:
        return decode_event(body, critical=critical, version=version)
    except msgspec.DecodeError as error:
        raise StoreError(
            f"entry {seq} of session {session_id!r} is damaged ({error}): restore a backup, or delete the session"
        ) from error


def follow_one_another(rows: Sequence[Row]) -> bool:
    """Whether they are numbered one by one."""
    first = rows[0].seq
    return all(row.seq == seq for seq, row in enumerate(rows, first))


def _cleaned(kind: str) -> str:
    """What a text column can hold of a name that another version, or a person, made up; the body has it whole."""
    return kind.encode("utf-8", "replace").decode().replace("\0", "�")
