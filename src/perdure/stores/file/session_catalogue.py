"""List the sessions in a folder with title, times and entry count, cached for each file.

A file is read again only when it has changed. The info of a fork is computed from its own file and its ancestors' each
time, so it is right also after one of those was changed or deleted.
"""

import logging
import os
from typing import Final

import msgspec

from perdure.core.error import StoreError
from perdure.core.store import SessionInfo

from .forks import find_file_of_shared_entries, is_parent_alive
from .session_info import FileSummary, summarize_file
from .session_paths import LOG_SUFFIX, decode_file_name, get_session_paths

_log: Final = logging.getLogger("perdure")
_Stamp = tuple[int, int, int]


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
