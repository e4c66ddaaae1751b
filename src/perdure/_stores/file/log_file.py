"""The open log file of a session that this process runs: append, redact, sync and close.

One thread at a time uses it. Writes that need not wait are done on the caller's thread (`append_now`).
"""

import contextlib
import os
import threading
from collections.abc import Generator, Sequence
from typing import NamedTuple

import msgspec

from perdure._core.log.store import Lease
from perdure._core.values import faults
from perdure._core.values.error import Conflict, Fenced, StoreError
from perdure._core.values.event import Entry
from perdure._stores.files import sync_data
from perdure._stores.threads import DirectWriteLock

from .disk import (
    close_file,
    erase_replaced_file,
    erase_stale_temporary_files,
    get_file_identity,
    open_file,
    sync_folder,
    to_store_error,
    write_all,
)
from .forks import read_shared_entries, recover_or_create_key
from .layout import SessionPaths, encode_append_lines, encode_body
from .lock import SessionLock
from .repair import rename_into_place, repair_file, write_temporary
from .scan import (
    FORMAT,
    EncodedEntry,
    Header,
    SessionFileScan,
    encode_header,
    scan_file,
)


class LastFileState(NamedTuple):
    """The state in which this process last left a session's file; if it is unchanged, the file is not scanned again."""

    fence: int
    """Of the lease under which it was left: no other driver may have had the session since, and failed to sync it."""
    stamp: tuple[int, int, int, int]
    head: int
    header: Header


class _EntryIdAndTime(msgspec.Struct, frozen=True):
    """Time and id of an entry, decoded from its JSON without the rest."""

    at: float
    id: str = ""


_labels = msgspec.json.Decoder(_EntryIdAndTime)


class FileLog:
    """The log file of a session, open for appending. It owns the lock of the session."""

    def __init__(
        self,
        place: SessionPaths,
        lock: SessionLock,
        descriptor: int,
        head: int,
        header: Header,
        *,
        is_sound: bool = True,
    ) -> None:
        self.lease = Lease(place.session_id, lock.record.fence)
        self.head = head
        """The number of the last entry."""
        self.lost_up_to = lock.record.synced
        """The entry up to which the end of the log may have been lost, before this process opened it."""
        self.header: Header = header
        self.place = place
        self.size = os.fstat(descriptor).st_size
        """The number of acknowledged bytes."""
        self.unread_entries: list[EncodedEntry] | None = None
        """The file's entries as found when it was opened, until they are first read or more are appended."""
        self.taken_post_ids: set[str] = set()
        """The ids of posts that are known to be entries."""
        self._place = place
        self._lock = lock
        self._turn = DirectWriteLock()
        self._swap = threading.Lock()
        """Locked while another file replaces this one, so that no reader combines one file with the size of the
        other.
        """
        self._descriptor = descriptor
        self._identity = get_file_identity(descriptor)
        self._is_sound = is_sound
        """True if a sync makes written data durable; otherwise the data has to be written again."""
        self._is_closed = False

    @property
    def has_lock(self) -> bool:
        """True if the log is open, and the lock file is still there, so that no other process can lock the session."""
        return not self._is_closed and self._lock.is_in_place

    def append_now(self, entries: Sequence[Entry]) -> bool:
        """Append entries without waiting. If that is not possible, write nothing and return False."""
        if not self._turn.is_free:
            return False
        with self._turn.moment:
            if not self._turn.is_free_for_this_write:
                return False
            if self._is_closed or not self._is_sound or not self._has_next_numbers(entries):
                return False
            self._write_entries(entries, sync=False)
        return True

    def append(self, entries: Sequence[Entry], *, sync: bool) -> None:
        """Append entries to the log, all or none; their numbers must follow its last entry."""
        with self._turn.hold():
            if self._is_closed:
                raise Fenced(build_fenced_message(self.lease))
            if not self._is_sound:
                self._rewrite_file()
            if sync:
                self._check_in_place()
            if self._has_next_numbers(entries):
                self._write_entries(entries, sync=sync)
            else:
                self._check_repeated(entries, sync=sync)
            if sync:
                self._record_synced()

    def redact(self, entry: Entry) -> None:
        """Replace the entry with the same number in this file, and overwrite the old file on the disk."""
        body = encode_body(entry)
        with self._turn.hold():
            if self._is_closed:
                raise Fenced(build_fenced_message(self.lease))
            if not self._is_sound:
                self._rewrite_file()
            self._check_in_place()
            self._check_end()
            with self._translate_errors():
                found = scan_file(self._descriptor, self.size, self._place, self.head)
                entries = replace_body(found.entries, entry.seq, body)
                if entries is None:
                    raise Conflict(build_cannot_redact_message(self.lease.session_id, entry.seq, self.head))
                erase_stale_temporary_files(self._place.log)
                with erase_replaced_file(self._place.log):
                    self._replace_file(entries)

    def sync(self) -> bool:
        """Wait until all appended entries are on the disk; return False if the log is closed. Raises `OSError` and
        `StoreError`.
        """
        with self._turn.hold():
            if self._is_closed:
                return False
            if not self._is_sound:
                self._rewrite_file()
            else:
                self._sync()
                self._record_synced()
            return True

    def open_for_reading(self) -> tuple[int, int]:
        """Open the file for reading; return its descriptor, and how many bytes belong to completed appends. Raises
        `OSError`.
        """
        with self._swap:
            return open_file(self._place.log, os.O_RDONLY), self.size

    def close(self) -> LastFileState | None:
        """Close the file and release the lock; return the state of the file if it is undamaged, else `None`."""
        with self._turn.hold():
            if self._is_closed:
                return None
            self._is_closed = True
            stamp = get_file_stamp(self._descriptor)
            left = LastFileState(self.lease.fence, stamp, self.head, self.header) if self._is_sound else None
            close_file(self._descriptor)
            self._lock.close()
            return left

    def _has_next_numbers(self, entries: Sequence[Entry]) -> bool:
        """Return True if these entries are numbered to follow the last entry of the log."""
        head = self.head
        for entry in entries:
            head += 1
            if entry.seq != head:
                return False
        return True

    def _write_entries(self, entries: Sequence[Entry], *, sync: bool) -> None:
        data = encode_append_lines(entries, self._place.seed)
        self._check_end()
        faults.fault_point("store.append.before_commit")
        self.unread_entries = None
        try:
            write_all(self._descriptor, data)
            if sync:
                self._sync()
            self.size, self.head = self.size + len(data), entries[-1].seq
        except BaseException as error:
            self._roll_back()
            if isinstance(error, OSError):
                raise to_store_error(error, self._place.log) from error
            raise

    def _check_end(self) -> None:
        """Raise `Fenced` if another process has appended to the file or truncated it."""
        if os.lseek(self._descriptor, 0, os.SEEK_END) != self.size:
            raise Fenced(
                f"the file {self._place.log!r} was changed by another process while this driver had it: stop, and open "
                f"session {self._place.session_id!r} again"
            )

    def _roll_back(self) -> None:
        """Truncate the file to the end of the last completed append."""
        try:
            os.ftruncate(self._descriptor, self.size)
        except OSError:
            self._is_sound = False

    def _sync(self) -> None:
        """Sync the file. After a failed sync, a later one may succeed without having written anything, so the file
        counts as unsound.
        """
        try:
            sync_data(self._descriptor)
        except OSError:
            self._is_sound = False
            raise

    def _record_synced(self) -> None:
        with contextlib.suppress(OSError):  # it only helps to notice a loss
            self._lock.write_record(msgspec.structs.replace(self._lock.record, synced=self.head))

    def _rewrite_file(self) -> None:
        """Replace the file with a new copy, because the disk may not have all of the old one."""
        path = self._place.log
        self._check_in_place()
        with self._translate_errors():
            source = open_file(path, os.O_RDONLY)
            try:
                found = scan_file(source, self.size, self._place, self.head)
            finally:
                close_file(source)
            if found.header != self.header or max(found.head, self.lost_up_to) != self.head or not found.is_sound:
                raise StoreError(f"the file {path!r} was damaged by an error of the disk: open the session again")
            erase_stale_temporary_files(path)
            self._replace_file(found.entries)

    def _replace_file(self, entries: Sequence[EncodedEntry]) -> None:
        """Replace the log file with a new one that has these entries, and append to that one from now on."""
        new, temporary = write_temporary(self._place, self.header, entries)
        with self._swap:
            rename_into_place(new, temporary, self._place)
            close_file(self._descriptor)
            self._descriptor, self._identity, self.size = new, get_file_identity(new), os.fstat(new).st_size
            self.unread_entries = None
        self._is_sound = False  # until its name lasts
        sync_folder(os.path.dirname(self._place.log))  # noqa: PTH120 - a string
        self._is_sound = True
        self._record_synced()

    @contextlib.contextmanager
    def _translate_errors(self) -> Generator[None, None, None]:
        try:
            yield
        except OSError as error:
            raise to_store_error(error, self._place.log) from error

    def _check_in_place(self) -> None:
        """Raise an error if the file was deleted or replaced, or the lock file was deleted."""
        if get_file_identity(self._place.log) != self._identity:
            raise StoreError(
                f"the file {self._place.log!r} was deleted or replaced while it was open, and what it held may be "
                "gone with it: put it back, or open the session again to begin anew"
            )
        if not self._lock.is_in_place:
            raise Fenced(f"the lock {self._place.lock!r} was deleted: {build_fenced_message(self.lease)}")

    def _check_repeated(self, entries: Sequence[Entry], *, sync: bool) -> None:
        """Accept entries that the log already has, with the same numbers and ids; raise `Conflict` otherwise."""
        first, last = entries[0].seq, entries[-1].seq
        with self._translate_errors():
            held = scan_file(self._descriptor, self.size, self._place, self.head).entries
            if 0 < first <= self.header.at:
                folder = os.path.dirname(self._place.log)  # noqa: PTH120 - a string
                held = [*read_shared_entries(folder, self.header, first - 1).entries, *held]
            if sync:  # they may have been written without
                self._sync()
        there = [(kept.seq, decode_entry_id(kept)) for kept in held if first <= kept.seq <= last]
        if there != [(entry.seq, entry.id) for entry in entries] or not all(entry.id for entry in entries):
            raise Conflict(
                f"session {self._place.session_id!r} ends at entry {self.head}, and entries from {first} on were to "
                "be added: read it again, and go on from its end"
            )


def open_log(
    place: SessionPaths, lock: SessionLock, now: float, verified: LastFileState | None
) -> tuple[FileLog, SessionFileScan | None]:
    """Open the log of a session; create it if it is new, repair it if damaged. Return it with the result of the scan.

    The scan is skipped, and its result `None`, if the file is as it was `verified`. Raises `OSError` and `StoreError`.
    """
    descriptor = _open_or_create(place, now)
    try:
        if (
            verified is not None
            and verified.stamp == get_file_stamp(descriptor)
            and verified.head >= lock.record.synced
        ):
            return FileLog(place, lock, descriptor, verified.head, verified.header), None
        found = scan_file(descriptor, os.fstat(descriptor).st_size, place, lock.record.synced)
        header = found.header or _build_header(place, found, now)
        if not found.is_sound:
            descriptor = repair_file(descriptor, found, header)
        # Above the last synced entry a sync may have failed, of which nothing is left to see.
        is_certain = found.head <= lock.record.synced
        # The numbers of lost entries are not used again, so that the loss can be seen in the log for ever.
        head = max(found.head, lock.record.synced)
        log = FileLog(place, lock, descriptor, head, header, is_sound=is_certain)
        log.unread_entries = found.entries
        return log, found
    except BaseException:
        close_file(descriptor)
        raise


def get_file_stamp(descriptor: int) -> tuple[int, int, int, int]:
    """Return device, inode, size and mtime of an open file, by which a change or replacement is noticed."""
    status = os.fstat(descriptor)
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


def decode_entry_id(kept: EncodedEntry) -> str:
    """Return the id of a log entry from its JSON, without decoding the rest."""
    return _labels.decode(kept.body).id


def replace_body(entries: Sequence[EncodedEntry], seq: int, body: bytes) -> list[EncodedEntry] | None:
    """Return the entries with the JSON of entry number `seq` replaced; `None` if there is no such entry."""
    changed = [kept._replace(body=body) if kept.seq == seq else kept for kept in entries]
    return changed if any(kept.seq == seq for kept in entries) else None


def build_cannot_redact_message(session_id: str, seq: int, head: int) -> str:
    """Build the error message for an attempt to redact an entry number that the log does not have."""
    return f"session {session_id!r} has {head} entries and none numbered {seq!r}: read it again, and redact one it has"


def build_fenced_message(lease: Lease) -> str:
    """Build the error message for the use of a lease that is no longer valid."""
    return f"session {lease.session_id!r} has changed hands since this driver got it: stop, and open it again"


def _build_header(place: SessionPaths, found: SessionFileScan | None, now: float) -> Header:
    """Build a header for a new session, or for one whose header is damaged."""
    created_at = _labels.decode(found.entries[0].body).at if found and found.entries else now
    return Header("session-file", FORMAT, place.session_id, "", "", created_at, recover_or_create_key(place))


def _open_or_create(place: SessionPaths, now: float) -> int:
    """Open a session's file, created with a header if it is new or empty."""
    flags = os.O_RDWR | os.O_APPEND
    try:
        descriptor = open_file(place.log, flags)
    except FileNotFoundError:
        descriptor = open_file(place.log, flags | os.O_CREAT | os.O_EXCL)
    try:
        if os.fstat(descriptor).st_size == 0:
            sync_folder(os.path.dirname(place.log))  # noqa: PTH120 - first: a file with a header has a name that lasts
            write_all(descriptor, encode_header(_build_header(place, None, now)))
    except BaseException:
        close_file(descriptor)
        raise
    return descriptor
