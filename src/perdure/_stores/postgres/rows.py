"""Encode log entries as rows of a PostgreSQL table, with their search terms, and decode them."""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from perdure._core.log.codec import decode_event, encode_event
from perdure._core.log.status import RunProgress, find_last_run_progress
from perdure._core.values.error import StoreError
from perdure._core.values.event import Entry, Unknown
from perdure._core.values.event_class import Event
from perdure._stores.checks import check_session_id
from perdure._stores.texts import extract_searchable_text, find_given_title, find_message_title

_WORD: Final = re.compile(r"[^\W_]+")
_BETWEEN: Final = re.compile(r"[\W_]+")
_LONGEST: Final = 2046  # bytes of a word; the server would leave out longer ones, after it has gone through them
MAX_INDEXED_CHARACTERS: Final = 500_000
"""The most characters of a text that are indexed with the places of their terms, by which phrases are found."""
MAX_FURTHER_CHARACTERS: Final = 300_000
"""The most characters of the terms behind those, each of which is indexed once."""
MAX_READ_CHARACTERS: Final = 16_000_000
"""The most characters of a text that are looked through for terms."""
_TOO_LONG: Final = re.compile(rf"[^ ]{{{_LONGEST + 1},}}")


class ParsedQuery(NamedTuple):
    """A search query in the form that PostgreSQL is sent, with the terms to mark in the hits."""

    text: str
    """The query for the server; empty if it has no search term."""
    words: frozenset[str]
    """The terms to mark in snippets."""


def build_index_text(text: str) -> str:
    """Return the search terms of a text, separated by spaces, in the form that PostgreSQL indexes.

    The server cannot index more than a megabyte of terms, and takes long to find that out. So of a very long text only
    the beginning is indexed as it is, then each further term once, and nothing beyond `MAX_READ_CHARACTERS`.
    """
    words = _BETWEEN.sub(" ", text[:MAX_INDEXED_CHARACTERS].lower()).strip()
    if len(text) > MAX_INDEXED_CHARACTERS:
        words += _list_further_terms(text, set(words.split(" ")))
    return words if len(words) <= _LONGEST else _TOO_LONG.sub("", words)


def _list_further_terms(text: str, known: set[str]) -> str:
    """Return the terms of the rest of a long text that are not known yet, each with a space in front."""
    found: list[str] = []
    room = MAX_FURTHER_CHARACTERS
    for match in _WORD.finditer(text[MAX_INDEXED_CHARACTERS:MAX_READ_CHARACTERS].lower()):
        if (word := match[0]) in known:
            continue
        known.add(word)
        room -= len(word) + 1
        if room < 0:
            break
        found.append(f" {word}")
    return "".join(found)


def tokenize(data: bytes) -> list[tuple[int, int, str]]:
    """Return the search terms of a UTF-8 text, each with its start and end offset in bytes."""
    text = data.decode()
    if len(text) == len(data):
        return [(match.start(), match.end(), match[0].lower()) for match in _WORD.finditer(text)]
    found: list[tuple[int, int, str]] = []
    at = end = 0
    for match in _WORD.finditer(text):
        at += len(text[end : match.start()].encode())
        size = len(match[0].encode())
        found.append((at, at + size, match[0].lower()))
        at, end = at + size, match.end()
    return found


def build_plain_query(query: str) -> ParsedQuery:
    """Build a query (for `plainto_tsquery`) that matches texts with all of these terms."""
    words = dict.fromkeys(_WORD.findall(query.lower()))
    if any(len(word.encode()) > _LONGEST for word in words):
        return ParsedQuery("", frozenset())
    return ParsedQuery(" ".join(words), frozenset(words))


def build_websearch_query(query: str) -> ParsedQuery:
    """Build a query (for `websearch_to_tsquery`) from search engine syntax: `"exact phrase"`, `or`, `-without`."""
    parts: list[str] = []
    shown: set[str] = set()
    denied = False  # a minus before a quote

    def add(words: list[str], *, quoted: bool, minus: str) -> None:
        if words:
            parts.append(f'{minus}"{" ".join(words)}"' if quoted else minus + words[0])
            shown.update(words if not minus else ())

    for place, piece in enumerate(query.lower().split('"')):
        if place % 2:
            add(_WORD.findall(piece), quoted=True, minus="-" if denied else "")
            denied = False
            continue
        for term in piece.split():
            words = _WORD.findall(term)
            add(words, quoted=len(words) > 1, minus="-" if term.startswith("-") else "")
            denied = term == "-"
    return ParsedQuery(" ".join(parts), frozenset(shown - {"or"}))


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
