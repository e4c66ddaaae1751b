"""Scan a session's file without a lock, while other processes may append to it, replace it or erase it.

Nothing is waited for and nothing is changed: what looks damaged is scanned again, and repaired only by a driver.
"""

import os
from collections.abc import Callable
from typing import Final

from .file_io import close_file, get_file_identity, open_file
from .line_format import read_first_line
from .session_file_scan import Header, SessionFileScan, decode_header, scan_file
from .session_lock import is_session_locked
from .session_paths import SessionPaths

OpenLog = Callable[[], tuple[int, int]]
"""Function that opens a file and returns its descriptor, and how many of its bytes to read."""

_TRIES: Final = 20


def scan_unlocked(place: SessionPaths, synced: int | None = None, open_log: OpenLog | None = None) -> SessionFileScan:
    """Scan the file of a session without locking it, and scan it anew if another process has replaced it meanwhile.

    `open_log` opens the file of a session that this process itself runs. Raises `OSError`.

    Entries up to `synced` are known to have been on the disk; all of them, if it is `None`.
    """
    found = SessionFileScan(place, 0, synced)
    for _ in range(_TRIES):
        try:
            descriptor, size = open_log() if open_log is not None else _open_log(place)
        except FileNotFoundError:
            return SessionFileScan(place, 0, synced)
        try:
            found = scan_file(descriptor, size, place, synced)
            if found.damaged and open_log is None:
                found = _rescan(descriptor, place, synced)
            elif not found.damaged:
                return found
            if get_file_identity(place.log) == get_file_identity(descriptor):
                return found  # otherwise it has been replaced meanwhile, and its bytes were erased
        finally:
            close_file(descriptor)
    return found


def read_header(path: str) -> Header | None:
    """Read the header of a session's file; `None` if the file or its header is missing. Raises `OSError`."""
    return read_header_and_size(path)[0]


def read_header_and_size(path: str) -> tuple[Header | None, int]:
    """Read the header of a session's file, and the number of bytes it takes; `None` and 0 if it is missing."""
    for _ in range(_TRIES):
        try:
            descriptor = open_file(path, os.O_RDONLY)
        except FileNotFoundError:
            return None, 0
        try:
            line = read_first_line(descriptor, os.fstat(descriptor).st_size, 0)
            header = decode_header(line, path)
            if line is not None and header is not None:
                return header, line.end
            if get_file_identity(path) == get_file_identity(descriptor):
                return None, 0  # otherwise it has been replaced meanwhile, and its bytes were erased
        finally:
            close_file(descriptor)
    return None, 0


def _open_log(place: SessionPaths) -> tuple[int, int]:
    descriptor = open_file(place.log, os.O_RDONLY)
    return descriptor, os.fstat(descriptor).st_size


def _rescan(descriptor: int, place: SessionPaths, synced: int | None) -> SessionFileScan:
    """Scan a file again. While a process runs the session, bad bytes at the end are an append in progress."""
    is_growing = is_session_locked(place)
    found = scan_file(descriptor, os.fstat(descriptor).st_size, place, synced)
    if is_growing:
        found.ignore_tail()
    return found
