"""The list of the sessions in a folder. Above: `folder.py`. Below: `summary.py`.

A file is looked at again only when it has changed. The line of a fork is made from its own file and those it is read
through, each time: so it is right also when one of those was changed or deleted.
"""

import logging
import os
from typing import Final

import msgspec

from perdure.core.error import StoreError
from perdure.core.store import SessionInfo

from .lineage import is_alive, source_of
from .name import LOG, id_of, place_of
from .summary import Summary, summary_of

_log: Final = logging.getLogger("perdure")
_Stamp = tuple[int, int, int]


class Catalogue:
    """What is known of the files in a folder."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._known: dict[tuple[str, int | None], tuple[_Stamp, Summary | None]] = {}
        self._told: set[str] = set()
        """The files that could not be read when they were last listed, of which a warning has told."""

    def info(self, session_id: str) -> SessionInfo | None:
        """The line of one session; `None` when there is none, or it holds nothing. Raises `OSError`."""
        return self._line(place_of(self._folder, session_id).log)

    def _line(self, path: str) -> SessionInfo | None:
        own = self._summary(path)
        if own is None:
            return None
        header = own.header
        entries, updated_at, name, beginning = own.entries, own.updated_at, own.name, own.beginning
        parent, at = "", 0
        if header is not None and header.parent_key:
            if is_alive(self._folder, header):
                parent, at = header.parent, header.at
            for part in self._shared(own):
                if not entries and part.entries:
                    entries, updated_at = header.at, part.updated_at
                name = name or part.name
                beginning = part.beginning or beginning
        if not entries:
            return None
        return SessionInfo(own.session_id, entries, own.created_at, updated_at, name or beginning, parent, at)

    def _line_if_readable(self, path: str) -> SessionInfo | None:
        """For a list, which has other lines to show: a file that cannot be read is left out, and a warning says so."""
        try:
            info = self._line(path)
        except (OSError, StoreError) as error:
            if path not in self._told:
                _log.warning("the file %r is not listed: %s", path, error)
            self._told.add(path)
            return None
        self._told.discard(path)
        return info

    def _shared(self, own: Summary) -> list[Summary]:
        """What the files say that a fork is read through, as far as it shares them; the nearest first."""
        parts: list[Summary] = []
        header = own.header
        most = header.at if header is not None else 0
        seen = set[str]()
        while header is not None and header.parent_key and header.parent_key not in seen:
            seen.add(header.parent_key)
            part = self._summary(source_of(self._folder, header).log, most)
            if part is None:
                break
            parts.append(part)
            header = part.header
            most = min(most, header.at) if header is not None else 0
        return parts

    def _summary(self, path: str, upto: int | None = None) -> Summary | None:
        """What a file says, from memory if it has not changed. Raises `OSError`, and remembers nothing then."""
        try:
            stamp = _stamp(path)
            known = self._known.get((path, upto))
            if known is not None and known[0] == stamp:
                return known[1]
            summary, error = _read(path, upto)
            while (now := _stamp(path))[0] != stamp[0]:  # it was replaced meanwhile, and its bytes were erased
                stamp = now
                summary, error = _read(path, upto)
        except FileNotFoundError:
            return None
        if error is not None:
            _log.warning("the file %r is not listed: %s", path, error)
        self._known[path, upto] = stamp, summary
        return summary

    def list(self, prefix: str) -> list[SessionInfo]:
        """All sessions whose id begins with `prefix` and that hold something, the most recently used first."""
        try:
            with os.scandir(self._folder) as files:
                there = {file.path: file for file in files}
        except FileNotFoundError:
            return []
        for key in [key for key in self._known if key[0] not in there]:
            self._known.pop(key, None)
        found: list[SessionInfo] = []
        for path, file in there.items():
            if file.name.endswith(LOG) and file.is_file(follow_symlinks=False):
                session_id = id_of(file.name.removesuffix(LOG))
                if session_id is None or session_id.startswith(prefix):
                    info = self._line_if_readable(path)
                    if info is not None and info.session_id.startswith(prefix):
                        found.append(info)
        found.sort(key=lambda info: (info.updated_at, info.created_at, info.session_id), reverse=True)
        return found


def _stamp(path: str) -> _Stamp:
    """What differs when a file has been replaced or written to. Raises `FileNotFoundError`."""
    status = os.stat(path, follow_symlinks=False)  # noqa: PTH116 - a string
    return status.st_ino, status.st_size, status.st_mtime_ns


def _read(path: str, upto: int | None) -> tuple[Summary | None, Exception | None]:
    """What a file says, or why it cannot be understood. Raises `OSError`."""
    try:
        return summary_of(path, upto), None
    except (msgspec.DecodeError, StoreError) as error:
        return None, error
