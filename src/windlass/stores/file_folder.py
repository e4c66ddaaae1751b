"""What a file store does in its folder, step by step, waiting for the disk. Above: `file.py`. Below: files and locks.

Everything here raises `OSError` as it comes; `file.py` says what it means.
"""

import contextlib
import logging
import os
import stat
import threading
from typing import Final

import msgspec

from windlass.core.clock import Clock
from windlass.core.codec import decode_entry
from windlass.core.error import StoreError
from windlass.core.event import Entry
from windlass.core.store import SessionInfo

from .file_access import close_file, open_file, sync_folder
from .file_lock import Claim, claim_of, is_driven, take_lock
from .file_log import FileLog, Verified, open_log
from .file_name import LOG, Place, id_of, place_of
from .file_repair import remove_temporary_files
from .file_summary import summary_of
from .file_survey import NO_PROBLEMS, Kept, Problems, Survey, report, survey
from .holder import this_process
from .place import check_folder, make_folder

_log: Final = logging.getLogger("windlass")


class Folder:
    """A folder of sessions. May be used from several threads."""

    def __init__(self, path: str, clock: Clock) -> None:
        self._path = path
        self._clock = clock
        self._lock = threading.Lock()
        self._is_checked = False
        self._fence = 0
        """The highest that was given: a session that is made anew goes on from there, so that no old lease fits it."""
        self._verified: dict[str, Verified] = {}
        self._summaries: dict[str, tuple[tuple[int, int, int], SessionInfo | None]] = {}
        self._told: dict[str, Problems] = {}
        """What was last found wrong with a file, so that it is said once."""

    def acquire(self, session_id: str) -> FileLog:
        """Take a session, repair its file if it is damaged, and say so."""
        self._check()
        make_folder(self._path)
        place = place_of(self._path, session_id)
        lock = take_lock(place)
        try:
            now = self._clock.now()
            lock.write(Claim(self._next_fence(lock.claim.fence), lock.claim.synced, this_process(now)))
            log, found = open_log(place, lock, now, self._verified.pop(session_id, None))
        except BaseException:
            lock.close()
            raise
        if found is not None:
            self._tell(found, is_repaired=True)
        return log

    def release(self, log: FileLog) -> None:
        """Let go of a session."""
        if (verified := log.close()) is not None:
            self._verified[log.lease.session_id] = verified

    def read(self, session_id: str, after: int, driven: FileLog | None) -> list[Entry]:
        """The entries above `after`. Of a log that we drive ourselves, those that are acknowledged."""
        self._check()
        if driven is not None and (fresh := driven.fresh) and fresh[-1].seq == driven.head:
            driven.fresh = None
            return [_entry(session_id, kept) for kept in fresh if kept.seq > after]
        place = place_of(self._path, session_id)
        synced = claim_of(place).synced  # before the file, which a driver may extend meanwhile
        try:
            descriptor = open_file(place.log, os.O_RDONLY)
        except FileNotFoundError:
            self._tell(Survey(place, 0, synced), is_repaired=False)
            return []
        try:
            found = _look(descriptor, place, synced, driven)
        finally:
            close_file(descriptor)
        self._tell(found, is_repaired=False)
        return [_entry(session_id, kept) for kept in found.entries if kept.seq > after]

    def list(self, prefix: str) -> list[SessionInfo]:
        """All sessions whose id begins with `prefix` and that hold something, the most recently used first."""
        self._check()
        found: list[SessionInfo] = []
        try:
            with os.scandir(self._path) as files:
                sessions = [file for file in files if file.name.endswith(LOG) and file.is_file(follow_symlinks=False)]
        except FileNotFoundError:
            return []
        for name in self._summaries.keys() - {file.name for file in sessions}:
            self._summaries.pop(name, None)
        for file in sessions:
            session_id = id_of(file.name.removesuffix(LOG))
            if session_id is None or session_id.startswith(prefix):
                info = self._summary(file)
                if info is not None and info.session_id.startswith(prefix):
                    found.append(info)
        found.sort(key=lambda info: (info.updated_at, info.created_at, info.session_id), reverse=True)
        return found

    def delete(self, session_id: str) -> None:
        """Remove all files of a session."""
        self._check()
        place = place_of(self._path, session_id)
        paths = (place.log, place.quarantine, place.lock)  # the lock last: whoever gets it finds nothing more
        if not any(os.path.lexists(path) for path in paths):
            return
        lock = take_lock(place)
        try:
            lock.write(Claim(lock.claim.fence))  # what is half deleted when power fails is no loss
            remove_temporary_files(place)
            for path in paths:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(path)  # noqa: PTH108 - a string
            sync_folder(self._path)
        finally:
            lock.close()
        self._next_fence(lock.claim.fence)
        self._told.pop(session_id, None)
        self._verified.pop(session_id, None)

    def _check(self) -> None:
        if self._is_checked:
            return
        check_folder(self._path)
        with contextlib.suppress(FileNotFoundError):
            mode = os.stat(self._path).st_mode  # noqa: PTH116 - a string
            if mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
                _log.warning("everybody on this machine can replace the sessions in %r: chmod o-w it", self._path)
        self._is_checked = True

    def _next_fence(self, last: int) -> int:
        with self._lock:
            self._fence = max(self._fence, last) + 1
            return self._fence

    def _summary(self, file: os.DirEntry[str]) -> SessionInfo | None:
        """What a list says about a file, which is looked at again only when it has changed."""
        try:
            status = file.stat(follow_symlinks=False)
        except FileNotFoundError:  # it has been deleted meanwhile
            return None
        stamp = status.st_ino, status.st_size, status.st_mtime_ns
        known = self._summaries.get(file.name)
        if known is not None and known[0] == stamp:
            return known[1]
        try:
            info = summary_of(file.path, file.name.removesuffix(LOG))
        except FileNotFoundError:
            return None
        except (OSError, msgspec.DecodeError, StoreError) as error:
            _log.warning("the file %r is not listed: %s", file.path, error)
            info = None
        self._summaries[file.name] = stamp, info
        return info

    def _tell(self, found: Survey, *, is_repaired: bool) -> None:
        """Say what is wrong with a file, once; and once more when it is repaired."""
        session_id, problems = found.place.session_id, found.problems
        is_news = problems != self._told.get(session_id) or (is_repaired and not found.is_sound)
        if problems != NO_PROBLEMS and is_news:
            _log.warning("%s", report(found, is_repaired=is_repaired))
        self._told[session_id] = Problems((), missing=tuple(found.gaps)) if is_repaired else problems


def _look(descriptor: int, place: Place, synced: int, driven: FileLog | None) -> Survey:
    """Survey a file that somebody may be writing to."""
    size = driven.size if driven is not None else os.fstat(descriptor).st_size
    found = survey(descriptor, size, place, synced)
    if driven is not None or not found.bad:
        return found
    is_growing = is_driven(place)
    found = survey(descriptor, os.fstat(descriptor).st_size, place, synced)
    if is_growing:
        found.ignore_tail()
    return found


def _entry(session_id: str, kept: Kept) -> Entry:
    try:
        return decode_entry(kept.body)
    except msgspec.DecodeError as error:
        raise StoreError(
            f"entry {kept.seq} of session {session_id!r} cannot be understood ({error}): it was stored like this, by "
            "another program or version; restore a backup, or delete the session"
        ) from error
