"""A line in the list of sessions, from the beginning and the end of a session's file. Above: `file.py`."""

import os
from typing import Final
from zlib import crc32

import msgspec

from windlass.core.codec import decode_entry
from windlass.core.error import StoreError
from windlass.core.store import SessionInfo

from .file_access import close_file, open_file
from .file_name import id_of, name_of
from .file_record import Line, first_line, scan
from .file_survey import header_in, seq_of
from .listing import title_of

_CHUNK: Final = 16 * 1024
"""How much of a file is looked at first, from either end."""
_BEGINNING: Final = 256 * 1024
"""Only messages that begin up to here give a title."""


class _Label(msgspec.Struct, frozen=True):
    """Of an entry's JSON, its number and time."""

    seq: int
    at: float


_labels = msgspec.json.Decoder(_Label)


def summary_of(path: str, name: str) -> SessionInfo | None:
    """What a list says about the session of a file; `None` when it holds nothing.

    Raises `OSError`, `StoreError` when the file does not say of which session it is, or has a newer format, and
    `msgspec.DecodeError` for what no version has written.
    """
    descriptor = open_file(path, os.O_RDONLY)
    try:
        size = os.fstat(descriptor).st_size
        if not size:
            return None
        header = header_in(first_line(descriptor, size, 0), path)
        session_id = id_of(name) or (header.id if header is not None and name_of(header.id) == name else None)
        if session_id is None:
            raise StoreError(
                "it does not say of which session it is: read that session by its id, or move the file away"
            )
        seed = crc32(session_id.encode())
        first_at, title = _beginning(descriptor, size, seed)
        last = _last(descriptor, size, seed)
    finally:
        close_file(descriptor)
    if last is None:
        return None
    created_at = header.created_at if header is not None else first_at
    return SessionInfo(session_id, last.seq, created_at, last.at, title)


def _beginning(descriptor: int, size: int, seed: int) -> tuple[float, str]:
    """The time of the first entry, and the title that a message near the beginning gives."""
    at: float | None = None
    title = ""
    for piece in scan(descriptor, size, seed, chunk=_CHUNK):
        if title or piece.start > _BEGINNING:
            break
        if isinstance(piece, Line) and seq_of(piece.body):
            at = _labels.decode(piece.body).at if at is None else at
            if b'"message_added"' in piece.body:
                title = title_of([decode_entry(piece.body)])
    return at or 0.0, title


def _last(descriptor: int, size: int, seed: int) -> _Label | None:
    """The last entry of the last append that is complete; `None` when there is none."""
    count = _CHUNK
    while True:
        start = max(size - count, 0)
        pieces = scan(descriptor, size, seed, start, _CHUNK)
        found = [piece.body for piece in pieces if isinstance(piece, Line) and not piece.has_more]
        if found:
            return _labels.decode(max(found, key=seq_of))
        if not start:
            return None
        count *= 8
