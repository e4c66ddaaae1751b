"""The file of a session in the hands of its driver. Above: `store.py`. Below: the file, its lock and its repair.

One thread at a time has the turn. What need not wait is written where it is asked for (`append_now`).
"""

import contextlib
import os
import threading
from collections.abc import Generator, Sequence
from typing import NamedTuple

import msgspec

from perdure.core import faults
from perdure.core.error import Conflict, Fenced, StoreError
from perdure.core.event import Entry
from perdure.core.store import Lease

from .access import close_file, identity, open_file, store_error, sync_data, sync_folder, write_all
from .erase import erasing, remove_leftovers
from .lineage import key_for, shared_by
from .lock import SessionLock
from .name import Place
from .record import body_of, lines_of
from .repair import prepare, put_in_place, repair
from .survey import FORMAT, Header, Kept, Survey, header_line, survey


class Verified(NamedTuple):
    """A file as this process left it: when it is still that one, it need not be looked through again."""

    fence: int
    """Of the lease that it was left by: nobody else may have had the session since, and failed to sync it."""
    stamp: tuple[int, int, int, int]
    head: int
    header: Header


class _Label(msgspec.Struct, frozen=True):
    """Of an entry's JSON, its time and name."""

    at: float
    id: str = ""


_labels = msgspec.json.Decoder(_Label)


class FileLog:
    """Appends to a file, until it is closed. Owns the lock."""

    def __init__(
        self, place: Place, lock: SessionLock, descriptor: int, head: int, header: Header, *, is_sound: bool = True
    ) -> None:
        self.lease = Lease(place.session_id, lock.claim.fence)
        self.head = head
        """The number of the last entry."""
        self.header = header
        self.place = place
        self.size = os.fstat(descriptor).st_size
        """How many bytes are acknowledged."""
        self.fresh: list[Kept] | None = None
        """Its own entries that were found when it was opened, until somebody has read them or added more."""
        self.taken: set[str] = set()
        """The ids of posts that are known to have become entries."""
        self._place = place
        self._lock = lock
        self._turn = threading.Lock()
        self._swap = threading.Lock()
        """Held while another file takes the place of this one, so that nobody reads one with the size of the other."""
        self._descriptor = descriptor
        self._identity = identity(descriptor)
        self._is_sound = is_sound
        """Whether what was written can be made to last by a sync; otherwise only by writing it once more."""
        self._is_closed = False

    def append_now(self, entries: Sequence[Entry]) -> bool:
        """Add entries at once; or `False`, and nothing was done."""
        if not self._turn.acquire(blocking=False):
            return False
        try:
            if self._is_closed or not self._is_sound or not self._follow(entries):
                return False
            self._add(entries, sync=False)
        finally:
            self._turn.release()
        return True

    def append(self, entries: Sequence[Entry], *, sync: bool) -> None:
        """Add entries, numbered from the log's end, all or none."""
        with self._turn:
            if self._is_closed:
                raise Fenced(fenced(self.lease))
            if not self._is_sound:
                self._renew()
            if sync:
                self._check_in_place()
            if self._follow(entries):
                self._add(entries, sync=sync)
            else:
                self._check_repeated(entries, sync=sync)
            if sync:
                self._say_synced()

    def redact(self, entry: Entry) -> None:
        """Put an entry in the place of one that is its own, and erase that."""
        body = body_of(entry)
        with self._turn:
            if self._is_closed:
                raise Fenced(fenced(self.lease))
            if not self._is_sound:
                self._renew()
            self._check_in_place()
            self._check_end()
            with self._naming_errors():
                found = survey(self._descriptor, self.size, self._place, self.head)
                entries = replaced(found.entries, entry.seq, body)
                if entries is None:
                    raise Conflict(not_there(self.lease.session_id, entry.seq, self.head))
                remove_leftovers(self._place.log)
                with erasing(self._place.log):
                    self._put(entries)

    def sync(self) -> bool:
        """Make all that is acknowledged last; `False` when it is closed. Raises `OSError` and `StoreError`."""
        with self._turn:
            if self._is_closed:
                return False
            if not self._is_sound:
                self._renew()
            else:
                self._sync()
                self._say_synced()
            return True

    def opened(self) -> tuple[int, int]:
        """A descriptor of its own to read the file by, and how many bytes of it are acknowledged. Raises `OSError`."""
        with self._swap:
            return open_file(self._place.log, os.O_RDONLY), self.size

    def close(self) -> Verified | None:
        """Let go of the file, and of the lock."""
        with self._turn:
            if self._is_closed:
                return None
            self._is_closed = True
            stamp = stamp_of(self._descriptor)
            left = Verified(self.lease.fence, stamp, self.head, self.header) if self._is_sound else None
            close_file(self._descriptor)
            self._lock.close()
            return left

    def _follow(self, entries: Sequence[Entry]) -> bool:
        """Whether these are the next numbers."""
        head = self.head
        for entry in entries:
            head += 1
            if entry.seq != head:
                return False
        return True

    def _add(self, entries: Sequence[Entry], *, sync: bool) -> None:
        data = lines_of(entries, self._place.seed)
        self._check_end()
        faults.point("store.append.before_commit")
        self.fresh = None
        try:
            write_all(self._descriptor, data)
            if sync:
                self._sync()
            self.size, self.head = self.size + len(data), entries[-1].seq
        except BaseException as error:
            self._roll_back()
            if isinstance(error, OSError):
                raise store_error(error, self._place.log) from error
            raise

    def _check_end(self) -> None:
        """Refuse to write behind what somebody else has written, or cut off."""
        if os.lseek(self._descriptor, 0, os.SEEK_END) != self.size:
            raise Fenced(
                f"the file {self._place.log!r} was changed by somebody else while this driver had it: stop, and open "
                f"session {self._place.session_id!r} again"
            )

    def _roll_back(self) -> None:
        """Cut off what is not acknowledged."""
        try:
            os.ftruncate(self._descriptor, self.size)
        except OSError:
            self._is_sound = False

    def _sync(self) -> None:
        """Make the file last. A sync that failed may succeed the next time without having written anything."""
        try:
            sync_data(self._descriptor)
        except OSError:
            self._is_sound = False
            raise

    def _say_synced(self) -> None:
        with contextlib.suppress(OSError):  # it only helps to notice a loss
            self._lock.write(msgspec.structs.replace(self._lock.claim, synced=self.head))

    def _renew(self) -> None:
        """Write a new file, because nobody knows what the disk holds of the old one, and go on with that."""
        path = self._place.log
        self._check_in_place()
        with self._naming_errors():
            source = open_file(path, os.O_RDONLY)
            try:
                found = survey(source, self.size, self._place, self.head)
            finally:
                close_file(source)
            if found.header != self.header or found.head != self.head or not found.is_sound:
                raise StoreError(f"the file {path!r} was damaged by an error of the disk: open the session again")
            remove_leftovers(path)
            self._put(found.entries)

    def _put(self, entries: Sequence[Kept]) -> None:
        """Put a new file with these entries in the place of this one, and go on with that."""
        new, temporary = prepare(self._place, self.header, entries)
        with self._swap:
            put_in_place(new, temporary, self._place)
            close_file(self._descriptor)
            self._descriptor, self._identity, self.size = new, identity(new), os.fstat(new).st_size
            self.fresh = None
        self._is_sound = False  # until its name lasts
        sync_folder(os.path.dirname(self._place.log))  # noqa: PTH120 - a string
        self._is_sound = True
        self._say_synced()

    @contextlib.contextmanager
    def _naming_errors(self) -> Generator[None, None, None]:
        try:
            yield
        except OSError as error:
            raise store_error(error, self._place.log) from error

    def _check_in_place(self) -> None:
        """Refuse to write on into a file that nobody will find again, or after somebody has removed the lock."""
        if identity(self._place.log) != self._identity:
            raise StoreError(
                f"the file {self._place.log!r} was deleted or replaced while it was open, and what it held may be "
                "gone with it: put it back, or open the session again to begin anew"
            )
        if not self._lock.is_in_place:
            raise Fenced(f"the lock {self._place.lock!r} was deleted: {fenced(self.lease)}")

    def _check_repeated(self, entries: Sequence[Entry], *, sync: bool) -> None:
        """Nothing to add when the log holds these very entries at these numbers; else they do not fit."""
        first, last = entries[0].seq, entries[-1].seq
        with self._naming_errors():
            held = survey(self._descriptor, self.size, self._place, self.head).entries
            if 0 < first <= self.header.at:
                folder = os.path.dirname(self._place.log)  # noqa: PTH120 - a string
                held = [*shared_by(folder, self.header, first - 1).entries, *held]
            if sync:  # they may have been written without
                self._sync()
        there = [(kept.seq, id_in(kept)) for kept in held if first <= kept.seq <= last]
        if there != [(entry.seq, entry.id) for entry in entries] or not all(entry.id for entry in entries):
            raise Conflict(
                f"session {self._place.session_id!r} ends at entry {self.head}, and entries from {first} on were to "
                "be added: read it again, and go on from its end"
            )


def open_log(place: Place, lock: SessionLock, now: float, verified: Verified | None) -> tuple[FileLog, Survey | None]:
    """The log of a session, which is made if it is new and repaired if it is damaged, and what was found then.

    The survey is left out if the file is as it was `verified`. Raises `OSError` and `StoreError`.
    """
    descriptor = _open_or_make(place, now)
    try:
        if verified is not None and verified.stamp == stamp_of(descriptor) and verified.head >= lock.claim.synced:
            return FileLog(place, lock, descriptor, verified.head, verified.header), None
        found = survey(descriptor, os.fstat(descriptor).st_size, place, lock.claim.synced)
        header = found.header or _header(place, found, now)
        if not found.is_sound:
            descriptor = repair(descriptor, found, header)
        if found.head < lock.claim.synced:
            lock.write(msgspec.structs.replace(lock.claim, synced=found.head))
        is_certain = (
            found.head <= lock.claim.synced
        )  # otherwise a sync may have failed, of which nothing is left to see
        log = FileLog(place, lock, descriptor, found.head, header, is_sound=is_certain)
        log.fresh = found.entries
        return log, found
    except BaseException:
        close_file(descriptor)
        raise


def stamp_of(descriptor: int) -> tuple[int, int, int, int]:
    """What differs when a file has been replaced or written to."""
    status = os.fstat(descriptor)
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


def id_in(kept: Kept) -> str:
    """The id of an entry."""
    return _labels.decode(kept.body).id


def replaced(entries: Sequence[Kept], seq: int, body: bytes) -> list[Kept] | None:
    """These entries with another one in the place of number `seq`; `None` when there is no such number."""
    changed = [kept._replace(body=body) if kept.seq == seq else kept for kept in entries]
    return changed if any(kept.seq == seq for kept in entries) else None


def not_there(session_id: str, seq: int, head: int) -> str:
    """Why an entry cannot be redacted."""
    return f"session {session_id!r} has {head} entries and none numbered {seq!r}: read it again, and redact one it has"


def fenced(lease: Lease) -> str:
    """Why a lease is worth nothing any more."""
    return f"session {lease.session_id!r} has changed hands since this driver got it: stop, and open it again"


def _header(place: Place, found: Survey | None, now: float) -> Header:
    """A header for a session that has none: it is new, or its header is damaged."""
    created_at = _labels.decode(found.entries[0].body).at if found and found.entries else now
    return Header("session", FORMAT, place.session_id, "", "", created_at, key_for(place))


def _open_or_make(place: Place, now: float) -> int:
    """An open file that has a header, if only a damaged one."""
    flags = os.O_RDWR | os.O_APPEND
    try:
        descriptor = open_file(place.log, flags)
    except FileNotFoundError:
        descriptor = open_file(place.log, flags | os.O_CREAT | os.O_EXCL)
    try:
        if os.fstat(descriptor).st_size == 0:
            sync_folder(os.path.dirname(place.log))  # noqa: PTH120 - first: a file with a header has a name that lasts
            write_all(descriptor, header_line(_header(place, None, now)))
    except BaseException:
        close_file(descriptor)
        raise
    return descriptor
