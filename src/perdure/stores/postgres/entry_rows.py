"""Encode log entries as rows of a PostgreSQL table, and decode them."""

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from perdure.core.error import StoreError
from perdure.core.event import Entry, Event, Unknown
from perdure.core.last_run_progress import RunProgress, find_last_run_progress
from perdure.core.log_codec import decode_event, encode_event
from perdure.stores.argument_checks import check_session_id
from perdure.stores.title_and_search_text import extract_searchable_text, find_given_title, find_message_title

from .search_terms import build_index_text

PROGRESS_NUMBERS: Final[Mapping[RunProgress, int]] = {"over": 0, "cut_off": 1, "waiting": 2}
"""The progress of a session's last run, as its column has it."""


class EntryRow(NamedTuple):
    """A log entry as a row of its table; session key and version are not included."""

    seq: int
    id: str | None
    kind: str
    critical: bool
    at: float
    title: str | None
    """The title that this entry gives its session."""
    role: str | None
    """The role of its searchable text."""
    words: str | None
    """The searchable text."""
    progress: int | None
    """The progress of the session's last run after this entry; `None` if the entry does not change it."""
    due_at: float | None
    body: bytes


class _Outline(msgspec.Struct):
    """A database row with the position of its body in the joined bodies, instead of the body."""

    seq: int
    id: str | None
    kind: str
    critical: bool
    at: float
    title: str | None
    role: str | None
    words: str | None
    progress: int | None
    due_at: float | None
    start: int
    length: int


_outlines = msgspec.json.Encoder()


def encode_row(entry: Entry) -> EntryRow:
    """Encode a log entry as a row. The body is binary, so that the database cannot refuse any content."""
    event, entry_id = entry.event, entry.id
    kind = _clean_kind(event.name) if type(event) is Unknown else str(type(event).__struct_config__.tag)
    if not entry_id.isascii() or "\0" in entry_id:
        check_session_id(entry_id, what="the id of an entry")
    title = find_message_title((entry,)) or find_given_title((entry,))
    role, words = _get_indexed_text(event)
    run = find_last_run_progress((entry,))
    progress, due_at = (None, None) if run is None else (PROGRESS_NUMBERS[run.progress], run.due_at)
    labels = (entry.seq, entry_id or None, kind, type(event).critical, entry.at, title, role, words)
    return EntryRow(*labels, progress, due_at, encode_event(event))


def _get_indexed_text(event: Event) -> tuple[str, str] | tuple[None, None]:
    """Return the role and the search terms of an event's text; a pair of `None` if it has no text."""
    found = extract_searchable_text(event)
    return (found[0], build_index_text(found[1])) if found else (None, None)


def encode_rows(rows: Sequence[EntryRow]) -> tuple[str, bytes]:
    """Encode many rows as two parameters, JSON and the joined bodies, which are cheaper to send than SQL arrays."""
    outlines: list[_Outline] = []
    start = 1  # as SQL counts
    for row in rows:
        length = len(row.body)
        outlines.append(_Outline(*row[:-1], start, length))
        start += length
    return _outlines.encode(outlines).decode(), b"".join([row.body for row in rows])


def decode_row(session_id: str, row: tuple[Any, ...]) -> Entry:
    """Decode a log entry from a row of the database. The session id is only for error messages."""
    seq, at, entry_id, critical, version, body = row
    return Entry(seq, at, decode_row_event(session_id, seq, critical, version, body), entry_id)


def decode_row_event(session_id: str, seq: int, critical: bool, version: int, body: bytes) -> Event:  # noqa: FBT001 - a column
    """Decode an event from the columns of its row. Session id and entry number are only for error messages."""
    try:
        return decode_event(body, critical=critical, version=version)
    except msgspec.DecodeError as error:
        raise StoreError(
            f"entry {seq} of session {session_id!r} is damaged ({error}): restore a backup, or delete the session"
        ) from error


def has_consecutive_numbers(rows: Sequence[EntryRow]) -> bool:
    """Return True if these rows are numbered consecutively."""
    first = rows[0].seq
    return all(row.seq == seq for seq, row in enumerate(rows, first))


def _clean_kind(kind: str) -> str:
    """Return an event kind without characters that a text column cannot store."""
    return kind.encode("utf-8", "replace").decode().replace("\0", "�")
