"""List the sessions in a folder: title, times, entry count, and those whose last run can continue."""

import logging
import os
from collections.abc import Sequence
from typing import Final
from zlib import crc32

import msgspec

from perdure._core.log.codec import decode_entry
from perdure._core.log.status import GIVEN_BY_SETTING, NO_RUN, LastRunProgress, find_last_run_progress
from perdure._core.log.store import SessionInfo
from perdure._core.values.error import StoreError
from perdure._stores.texts import find_given_title, find_message_title

from .disk import close_file, open_file, read_at
from .forks import find_file_of_shared_entries, is_parent_alive
from .layout import (
    LOG_SUFFIX,
    MAILBOX_SUFFIX,
    DamagedRange,
    Line,
    SessionPaths,
    decode_file_name,
    encode_file_name,
    get_session_paths,
    read_first_line,
    scan_lines,
)
from .lock import read_lock_record
from .scan import EncodedEntry, Header, decode_header, decode_seq, scan_file

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


"""The number of bytes that are read first, from either end of a file."""
_BEGINNING: Final = 256 * 1024
"""Only messages that begin before this offset give a title."""
_LARGE_CHUNK: Final = 1024 * 1024
_MESSAGE: Final = b'"message_added"'
_RENAMED: Final = b'"session_configured"'


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


_log: Final = logging.getLogger("perdure")


class SessionCatalogue:
    """Cached title, times and entry count of each session in a folder; only changed files are read again."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._known: dict[tuple[str, int | None], tuple[_Stamp, FileSummary | None]] = {}
        self._warned: set[str] = set()
        """Files that could not be read when they were last listed, and for which a warning was logged."""

    def info(self, session_id: str) -> SessionInfo | None:
        """Return title, times and entry count of a session; `None` if it does not exist or has no entries. Raises
        `OSError`.
        """
        return self._build_info(get_session_paths(self._folder, session_id).log)

    def _build_info(self, path: str) -> SessionInfo | None:
        own = self._cached_summary(path)
        if own is None:
            return None
        header = own.header
        entries, updated_at, name, beginning = own.entries, own.updated_at, own.given_title, own.message_title
        parent, at = "", 0
        if header is not None and header.parent_key:
            if is_parent_alive(self._folder, header):
                parent, at = header.parent, header.at
            for part in self._ancestor_summaries(own):
                if not entries and part.entries:
                    entries, updated_at = header.at, part.updated_at
                name = name or part.given_title
                beginning = part.message_title or beginning
        if not entries:
            return None
        return SessionInfo(own.session_id, entries, own.created_at, updated_at, name or beginning, parent, at)

    def _build_info_or_warn(self, path: str) -> SessionInfo | None:
        """Return the info of a file; if it cannot be read, log a warning and return `None`, so that the other sessions
        are listed.
        """
        try:
            info = self._build_info(path)
        except (OSError, StoreError) as error:
            if path not in self._warned:
                _log.warning("the file %r is not listed: %s", path, error)
            self._warned.add(path)
            return None
        self._warned.discard(path)
        return info

    def _ancestor_summaries(self, own: FileSummary) -> list[FileSummary]:
        """Return the summaries of a fork's ancestors, limited to the entries it shares; the nearest first."""
        parts: list[FileSummary] = []
        header = own.header
        most = header.at if header is not None else 0
        seen = set[str]()
        while header is not None and header.parent_key and header.parent_key not in seen:
            seen.add(header.parent_key)
            part = self._cached_summary(find_file_of_shared_entries(self._folder, header).log, most)
            if part is None:
                break
            parts.append(part)
            header = part.header
            most = min(most, header.at) if header is not None else 0
        return parts

    def _cached_summary(self, path: str, upto: int | None = None) -> FileSummary | None:
        """Return the summary of a file, from the cache if the file is unchanged. Raises `OSError`, and caches nothing
        then.
        """
        try:
            stamp = _file_stamp(path)
            known = self._known.get((path, upto))
            if known is not None and known[0] == stamp:
                return known[1]
            summary, error = _try_summarize(path, upto)
            while (now := _file_stamp(path))[0] != stamp[0]:  # it was replaced meanwhile, and its bytes were erased
                stamp = now
                summary, error = _try_summarize(path, upto)
        except FileNotFoundError:
            return None
        if error is not None:
            _log.warning("the file %r is not listed: %s", path, error)
        self._known[path, upto] = stamp, summary
        return summary

    def list(self, prefix: str) -> list[SessionInfo]:
        """Return all non-empty sessions whose id begins with `prefix`, the most recently used first."""
        try:
            with os.scandir(self._folder) as files:
                there = {file.path: file for file in files}
        except FileNotFoundError:
            return []
        for key in [key for key in self._known if key[0] not in there]:
            self._known.pop(key, None)
        found: list[SessionInfo] = []
        for path, file in there.items():
            if file.name.endswith(LOG_SUFFIX) and file.is_file(follow_symlinks=False):
                session_id = decode_file_name(file.name.removesuffix(LOG_SUFFIX))
                if session_id is None or session_id.startswith(prefix):
                    info = self._build_info_or_warn(path)
                    if info is not None and info.session_id.startswith(prefix):
                        found.append(info)
        found.sort(key=lambda info: (info.updated_at, info.created_at, info.session_id), reverse=True)
        return found


def _file_stamp(path: str) -> _Stamp:
    """Return inode, size and mtime of a file, by which a change is noticed. Raises `FileNotFoundError`."""
    status = os.stat(path, follow_symlinks=False)  # noqa: PTH116 - a string
    return status.st_ino, status.st_size, status.st_mtime_ns


def _try_summarize(path: str, upto: int | None) -> tuple[FileSummary | None, Exception | None]:
    """Return the summary of a file, or the error that prevented parsing it. Raises `OSError`."""
    try:
        return summarize_file(path, upto), None
    except (msgspec.DecodeError, StoreError) as error:
        return None, error
