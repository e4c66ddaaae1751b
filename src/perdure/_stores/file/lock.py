"""The lock of a session: a kernel lock on a small file beside its log.

The kernel releases the lock when its process ends, however it ends, so there is no stale lock, and none is ever taken
from a live process. The file records the process that has the lock, the fence of the lease, and the last entry known to
be on the disk, by which the loss of later entries is noticed.
"""

import contextlib
import fcntl
import os
import time
from collections.abc import Callable, Generator
from typing import Final, TypeVar

import msgspec

from perdure._core.values.error import SessionBusy, StoreError, UnsupportedByStore
from perdure._stores.lease_holder import LeaseHolderProcess, describe_this_process

from .disk import close_file, get_file_identity, open_file, open_folder
from .layout import SessionPaths, encode_line, read_first_line

T = TypeVar("T")

_TRIES: Final = 200
_PAUSE: Final = 0.005
_PATIENCE: Final = 2000
"""The number of attempts to get a lock that others need only for a moment."""
_ROOM: Final = 512
"""The size of the record in bytes: one write, which a disk does as a whole."""


class LockRecord(msgspec.Struct, frozen=True):
    """Content of a session's lock file: the owning process, its fence number, and the last entry known to be synced."""

    fence: int = 0
    synced: int = 0
    """The number of the last entry that is known to be on the disk."""
    holder: LeaseHolderProcess | None = None


_claims = msgspec.json.Decoder(LockRecord)  # made here, since two threads may read their first claim at the same moment


class SessionLock:
    """The kernel lock on a session, owned by this process."""

    def __init__(self, path: str, descriptor: int) -> None:
        self._path = path
        self._descriptor = descriptor
        self._identity = get_file_identity(descriptor)
        self.record = _decode_record(descriptor)

    @property
    def is_in_place(self) -> bool:
        """True if the lock file still exists under its name. If not, the lock keeps no other process out."""
        return get_file_identity(self._path) == self._identity

    def write_record(self, claim: LockRecord) -> None:
        """Write the record of the lock's owner into the lock file. Raises `OSError`."""
        line = encode_line(msgspec.json.encode(claim), 0)
        os.pwrite(self._descriptor, line[:-1].ljust(_ROOM - 1) + b"\n", 0)
        self.record = claim

    def close(self) -> None:
        """Release the lock."""
        close_file(self._descriptor)


def take_lock(place: SessionPaths, *, take_over: bool = False) -> SessionLock:
    """Lock a session for this process, by the kernel's lock on its lock file; return the lock.

    Raises `SessionBusy`, which names the process that has the lock (with `take_over`: `UnsupportedByStore`), and
    `OSError`.
    """
    for _ in range(_TRIES):
        descriptor = open_file(place.lock, os.O_RDWR | os.O_CREAT)
        try:
            lock = _try_lock_session(place, descriptor, take_over=take_over)
        except BaseException:
            close_file(descriptor)
            raise
        if lock is not None:
            return lock
        close_file(descriptor)
        time.sleep(_PAUSE)
    raise _busy_error(place, None, take_over=take_over)


@contextlib.contextmanager
def lock_folder(folder: str) -> Generator[None, None, None]:
    """Context manager: lock the folder of a file store, to create a fork or to remove entries that forks share.

    Raises `OSError` and `StoreError`.
    """
    descriptor = open_folder(folder)
    try:
        wait_for_lock(descriptor, folder)
        yield
    finally:
        close_file(descriptor)


def wait_for_lock(descriptor: int, path: str) -> None:
    """Wait for the lock on a file that other processes lock only for a moment. Raises `OSError` and `StoreError`."""
    for _ in range(_PATIENCE):
        if _try_lock(descriptor, fcntl.LOCK_EX):
            return
        time.sleep(_PAUSE)
    raise StoreError(f"another process has held {path!r} for too long: continue or end it, then try again")


def _try_lock_session(place: SessionPaths, descriptor: int, *, take_over: bool) -> SessionLock | None:
    """Try to lock an open lock file; return `None` if the caller has to try again."""
    if _try_lock(descriptor, fcntl.LOCK_EX):
        was_deleted = get_file_identity(place.lock) != get_file_identity(descriptor)
        return None if was_deleted else SessionLock(place.lock, descriptor)
    if _try_lock(descriptor, fcntl.LOCK_SH):
        return None  # another process was only reading the lock file
    holder = _decode_record(descriptor).holder
    if not _is_current_owner(holder):
        return None  # the new owner has not written its record yet
    raise _busy_error(place, holder, take_over=take_over)


def _is_current_owner(holder: LeaseHolderProcess | None) -> bool:
    """Return True if the recorded process may own the lock now. A dead one does not: the new owner has not written its
    record yet.
    """
    return holder is not None and (holder.machine != describe_this_process(0.0).machine or holder.is_alive)


def read_lock_record(place: SessionPaths) -> LockRecord:
    """Read the record in a session's lock file without locking it. Raises `OSError`."""
    return _inspect_lock_file(place, _decode_record, LockRecord())


def is_session_locked(place: SessionPaths) -> bool:
    """Return True if a process has locked the session, as it does while it runs the session. Raises `OSError`."""
    return _inspect_lock_file(place, lambda descriptor: not _try_lock(descriptor, fcntl.LOCK_SH), default=False)


def _inspect_lock_file(place: SessionPaths, look: Callable[[int], T], default: T) -> T:
    try:
        descriptor = open_file(place.lock, os.O_RDONLY)
    except FileNotFoundError:
        return default
    try:
        return look(descriptor)
    finally:
        close_file(descriptor)


def _try_lock(descriptor: int, kind: int) -> bool:
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _decode_record(descriptor: int) -> LockRecord:
    """Read the record of an open lock file; an empty one if it cannot be parsed."""
    line = read_first_line(descriptor, os.fstat(descriptor).st_size, 0)
    try:
        return _claims.decode(line.body) if line else LockRecord()
    except msgspec.DecodeError:
        return LockRecord()


def _busy_error(
    place: SessionPaths, holder: LeaseHolderProcess | None, *, take_over: bool
) -> SessionBusy | UnsupportedByStore:
    driver = "another process" if holder is None else holder
    driven = f"session {place.session_id!r} is being driven by {driver}"
    if take_over:
        return UnsupportedByStore(
            f"{driven}, and the lock that it has on its file cannot be taken from a process that lives: end that one, "
            "or keep sessions in a store of 'sqlite:' or 'postgresql:', where they can be taken over"
        )
    return SessionBusy(f"{driven}: end that run, or open another session")
