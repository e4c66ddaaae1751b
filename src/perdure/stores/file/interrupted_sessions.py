"""Find the sessions in a folder whose last run can continue, from the ends of their files.

Nothing is recorded for this: the last event that begins or ends a run is near the end of a file. A file is read again
only when it has changed.
"""

import os
from typing import Final

import msgspec

from perdure.core.error import StoreError
from perdure.core.last_run_progress import GIVEN_BY_SETTING, NO_RUN, LastRunProgress, find_last_run_progress
from perdure.core.log_codec import decode_entry

from .file_io import close_file, open_file
from .line_format import Line, read_first_line, scan_lines
from .session_file_scan import decode_header, decode_seq
from .session_paths import LOG_SUFFIX, MAILBOX_SUFFIX, SessionPaths, decode_file_name, get_session_paths

_CHUNK: Final = 16 * 1024
"""The number of bytes that are read first from the end of a file."""
_GROWTH: Final = 8
"""By how much more is read each time that was too little."""
_MARKS: Final = (b'"kind":"run_', f'"{GIVEN_BY_SETTING}"'.encode())
"""What the JSON of every event contains that begins, suspends or ends a run, or gives a task."""


class FileRunProgress(msgspec.Struct, frozen=True):
    """The progress of a session's last run, as read from the session's file."""

    session_id: str
    run: LastRunProgress
    entries: int
    """The number of the last entry in the file; 0 when there is none."""
    updated_at: float
    """Its time."""


class _SeqAndTime(msgspec.Struct, frozen=True):
    """Number and time of an entry, decoded from its JSON without the rest."""

    seq: int
    at: float


_labels = msgspec.json.Decoder(_SeqAndTime)
_Stamp = tuple[int, int, int]


class FileRunCache:
    """Cache of the last run in each session file of a folder; rereads only changed files. For one thread at a time."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._known: dict[str, tuple[_Stamp, FileRunProgress | None]] = {}

    def find_candidates(self, prefix: str, *, include_posts: bool) -> list[tuple[FileRunProgress, bool]]:
        """Return the last runs that are not over; with `include_posts`, also those of sessions with a mailbox file.

        Each comes with True if there is a mailbox file. A file that cannot be read is left out. Raises `OSError`.
        """
        logs, mailboxes = self._list_files()
        for stem in [stem for stem in self._known if stem not in logs]:
            del self._known[stem]
        found: list[tuple[FileRunProgress, bool]] = []
        for stem, stamp in logs.items():
            is_posted = stem in mailboxes
            last = self._read_cached(stem, stamp)
            if last is not None and (last.run is not NO_RUN or (is_posted and include_posts)):
                found.append((last, is_posted))
        if include_posts:  # a session that was posted to need not exist yet
            found += [(each, True) for stem in mailboxes if stem not in logs and (each := self._read_posted(stem))]
        return [each for each in found if each[0].session_id.startswith(prefix)]

    def _list_files(self) -> tuple[dict[str, _Stamp], set[str]]:
        """Return the logs with inode, size and time of change, and the mailboxes, all by file name without suffix."""
        logs: dict[str, _Stamp] = {}
        mailboxes: set[str] = set()
        try:
            with os.scandir(self._folder) as files:
                for file in files:
                    stem, suffix = os.path.splitext(file.name)  # noqa: PTH122 - a string
                    if suffix == LOG_SUFFIX and file.is_file(follow_symlinks=False):
                        status = file.stat(follow_symlinks=False)
                        logs[stem] = status.st_ino, status.st_size, status.st_mtime_ns
                    elif suffix == MAILBOX_SUFFIX:
                        mailboxes.add(stem)
        except FileNotFoundError:
            pass
        return logs, mailboxes

    def _read_cached(self, stem: str, stamp: _Stamp) -> FileRunProgress | None:
        known = self._known.get(stem)
        if known is not None and known[0] == stamp:
            return known[1]
        try:
            last = _read_last_run(os.path.join(self._folder, stem + LOG_SUFFIX))  # noqa: PTH118 - a string
        except FileNotFoundError:
            return None
        except (msgspec.DecodeError, StoreError):  # the catalogue of sessions warns of it
            last = None
        self._known[stem] = stamp, last
        return last

    def _read_posted(self, stem: str) -> FileRunProgress | None:
        """Return a session that has a mailbox file but no log; `None` if the file does not name the session."""
        session_id = decode_file_name(stem)
        if session_id is None:
            try:
                header = _read_header(os.path.join(self._folder, stem + MAILBOX_SUFFIX))  # noqa: PTH118 - a string
            except (FileNotFoundError, msgspec.DecodeError, StoreError):
                return None
            session_id = header
        return FileRunProgress(session_id, NO_RUN, 0, 0.0) if session_id else None


def _read_header(path: str) -> str:
    """Return the session id in the header of a file; empty if there is none."""
    descriptor = open_file(path, os.O_RDONLY)
    try:
        header = decode_header(read_first_line(descriptor, os.fstat(descriptor).st_size, 0), path)
    finally:
        close_file(descriptor)
    return "" if header is None else header.id


def _read_last_run(path: str) -> FileRunProgress | None:
    """Read the progress of the last run from the end of a session's file; `None` if the file names no session.

    Only the file's own entries count: what a fork shares belongs to another session. Raises `OSError`, and `StoreError`
    or `msgspec.DecodeError` for a file that cannot be read.
    """
    descriptor = open_file(path, os.O_RDONLY)
    try:
        size = os.fstat(descriptor).st_size
        header = decode_header(read_first_line(descriptor, size, 0), path) if size else None
        stem = os.path.basename(path).removesuffix(LOG_SUFFIX)  # noqa: PTH119 - a string
        session_id = decode_file_name(stem) or ("" if header is None else header.id)
        if not session_id:
            return None
        place = get_session_paths(os.path.dirname(path), session_id)  # noqa: PTH120 - a string
        return _find_in_file(descriptor, size, place) or FileRunProgress(session_id, NO_RUN, 0, 0.0)
    finally:
        close_file(descriptor)


def _find_in_file(descriptor: int, size: int, place: SessionPaths) -> FileRunProgress | None:
    """Find the last run in an open file, reading backwards in growing pieces; `None` if it has no entries."""
    count, last = _CHUNK, None
    while True:
        start = max(size - count, 0)
        lines = [each for each in scan_lines(descriptor, size, place.seed, start, count) if isinstance(each, Line)]
        while lines and lines[-1].has_more:  # an append that was cut off counts as a whole or not at all
            lines.pop()
        lines = [each for each in lines if decode_seq(each.body)]
        if lines and last is None:
            last = _labels.decode(lines[-1].body)
        for line in reversed(lines):
            if (
                any(mark in line.body for mark in _MARKS)
                and (run := find_last_run_progress([decode_entry(line.body)])) is not None
                and last is not None
            ):
                return FileRunProgress(place.session_id, run, last.seq, last.at)
        if not start:
            return None if last is None else FileRunProgress(place.session_id, NO_RUN, last.seq, last.at)
        count *= _GROWTH
