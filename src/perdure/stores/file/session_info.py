"""Read title, times and entry count of a session from the beginning and the end of its file."""

import os
from collections.abc import Sequence
from typing import Final
from zlib import crc32

import msgspec

from perdure.core.error import StoreError
from perdure.core.log_codec import decode_entry
from perdure.stores.title_and_search_text import find_given_title, find_message_title

from .file_io import close_file, open_file, read_at
from .line_format import DamagedRange, Line, read_first_line, scan_lines
from .session_file_scan import EncodedEntry, Header, decode_header, decode_seq, scan_file
from .session_lock import read_lock_record
from .session_paths import LOG_SUFFIX, SessionPaths, decode_file_name, encode_file_name, get_session_paths

_CHUNK: Final = 16 * 1024
"""The number of bytes that are read first, from either end of a file."""
_BEGINNING: Final = 256 * 1024
"""Only messages that begin before this offset give a title."""
_LARGE_CHUNK: Final = 1024 * 1024
_MESSAGE: Final = b'"message_added"'
_RENAMED: Final = b'"session_configured"'


class _SeqAndTime(msgspec.Struct, frozen=True):
    """Number and time of an entry, decoded from its JSON without the rest."""

    seq: int
    at: float


_labels = msgspec.json.Decoder(_SeqAndTime)


class FileSummary(msgspec.Struct, frozen=True):
    """Title, times and entry count of a session, from its own file; what a fork shares with its parent is not
    included.
    """

    session_id: str
    header: Header | None
    created_at: float
    entries: int = 0
    """The number of the last entry; 0 when there is none."""
    updated_at: float = 0.0
    message_title: str = ""
    """The title made from the first message."""
    given_title: str = ""
    """The title that the session was given explicitly."""


def summarize_file(path: str, upto: int | None = None) -> FileSummary | None:
    """Read title, times and entry count from a session's file, or from its first `upto` entries; `None` if it is empty.

    Raises `OSError`, `StoreError` if the file does not name its session or has a newer format, and
    `msgspec.DecodeError` for content that no version has written.
    """
    descriptor = open_file(path, os.O_RDONLY)
    try:
        size = os.fstat(descriptor).st_size
        if not size:
            return None
        header = decode_header(read_first_line(descriptor, size, 0), path)
        session_id = _session_id_of(path, header)
        if path.endswith(LOG_SUFFIX):
            place = get_session_paths(os.path.dirname(path), session_id)  # noqa: PTH120 - a string
        else:
            place = SessionPaths(session_id, path, path, path, crc32(session_id.encode()))
        if upto is not None:
            return _summarize_upto(descriptor, size, place, header, upto)
        return _summarize_whole(descriptor, size, place, header)
    finally:
        close_file(descriptor)


def _session_id_of(path: str, header: Header | None) -> str:
    name, ending = os.path.splitext(os.path.basename(path))  # noqa: PTH119, PTH122 - a string
    spelled = decode_file_name(name) if ending == LOG_SUFFIX else None
    if spelled is not None:
        return spelled
    if header is not None and (ending != LOG_SUFFIX or encode_file_name(header.id) == name):
        return header.id
    raise StoreError("it does not say of which session it is: read that session by its id, or move the file away")


def _summarize_whole(descriptor: int, size: int, place: SessionPaths, header: Header | None) -> FileSummary:
    first_at, beginning = _read_beginning(descriptor, size, place.seed)
    created_at = header.created_at if header is not None else first_at
    last = _read_last_seq_and_time(descriptor, size, place)
    if last is None:
        return FileSummary(place.session_id, header, created_at)
    name = ""
    if _contains_bytes(descriptor, size, _RENAMED):
        name = _given_title_in(scan_file(descriptor, size, place).entries)
    return FileSummary(place.session_id, header, created_at, last.seq, last.at, beginning, name)


def _summarize_upto(descriptor: int, size: int, place: SessionPaths, header: Header | None, upto: int) -> FileSummary:
    entries = [kept for kept in scan_file(descriptor, size, place).entries if kept.seq <= upto]
    created_at = header.created_at if header is not None else 0.0
    if not entries:
        return FileSummary(place.session_id, header, created_at)
    beginning = ""
    for kept in entries:
        if _MESSAGE in kept.body and (beginning := find_message_title([decode_entry(kept.body)])):
            break
    last = _labels.decode(entries[-1].body)
    return FileSummary(place.session_id, header, created_at, last.seq, last.at, beginning, _given_title_in(entries))


def _given_title_in(entries: list[EncodedEntry]) -> str:
    return find_given_title([decode_entry(kept.body) for kept in entries if _RENAMED in kept.body]) or ""


def _contains_bytes(descriptor: int, size: int, words: bytes) -> bool:
    """Return True if these bytes occur in a file, as a quick test before the file is parsed."""
    at = 0
    while at < size:
        if words in read_at(descriptor, at, _LARGE_CHUNK + len(words)):
            return True
        at += _LARGE_CHUNK
    return False


def _read_beginning(descriptor: int, size: int, seed: int) -> tuple[float, str]:
    """Return the time of the first entry, and the title from a message near the beginning."""
    at: float | None = None
    title = ""
    for piece in scan_lines(descriptor, size, seed, chunk=_CHUNK):
        if title or piece.start > _BEGINNING:
            break
        if isinstance(piece, Line) and decode_seq(piece.body):
            at = _labels.decode(piece.body).at if at is None else at
            if _MESSAGE in piece.body:
                title = find_message_title([decode_entry(piece.body)])
    return at or 0.0, title


def _read_last_seq_and_time(descriptor: int, size: int, place: SessionPaths) -> _SeqAndTime | None:
    """Return number and time of the last entry of the last complete append; `None` if there is none."""
    count = _CHUNK
    while True:
        start = max(size - count, 0)
        pieces = list(scan_lines(descriptor, size, place.seed, start, _CHUNK))
        if _has_hole(pieces, start):
            entries = scan_file(descriptor, size, place, read_lock_record(place).synced).entries
            return _labels.decode(entries[-1].body) if entries else None
        found = [
            piece.body for piece in pieces if isinstance(piece, Line) and not piece.has_more and decode_seq(piece.body)
        ]
        if found:
            return _labels.decode(max(found, key=decode_seq))
        if not start:
            return None
        count *= 8


def _has_hole(pieces: Sequence[Line | DamagedRange], start: int) -> bool:
    """Return True if there are damaged bytes between two lines, not only at the start."""
    return any(isinstance(piece, DamagedRange) and piece.start > start for piece in pieces[:-1])
