"""The leases of this process on the sessions of an SQLite file, and the lock by which others see that it lives."""

# ruff: noqa: PTH116, PTH120

import contextlib
import os
import stat
import threading
import time
from collections.abc import Iterator
from importlib import import_module
from typing import Any, Final

import msgspec

from perdure._core.log.store import Lease
from perdure._core.values.clock import new_id
from perdure._core.values.error import StoreError
from perdure._stores.lease_holder import LeaseHolderProcess, describe_this_process

# os.path costs nothing to import, pathlib costs every start milliseconds:


def _import_if_there(name: str) -> Any:
    """Return a module of the standard library; `None` on a system that has none of this name."""
    try:
        return import_module(name)
    except ImportError:
        return None


fcntl = _import_if_there("fcntl")
msvcrt = _import_if_there("msvcrt")

INFIX: Final = "-process-"
"""Stands between the name of the database and that of the lock in the name of a lock file."""

_FLAGS: Final = getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
_TRIES: Final = 5
_PAUSE: Final = 0.01
_open: "set[ProcessLock]" = set()
"""The locks of this process, which its forks have to close."""


class ProcessLock:
    """The lock of this process on one file beside a database. The file is created when its name is first asked for."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._guard = threading.Lock()
        self._name = ""
        self._file = ""
        self._identity = (0, 0)
        self._descriptor = -1

    def get_name(self) -> str:
        """Return the name by which other processes find the lock; create its file unless it is in place.

        Empty where no lock can be had: then the id of the process and its start have to do.
        """
        with self._guard:
            if self._descriptor < 0 or _identify(self._file) != self._identity:
                self._open()
            return self._name if self._descriptor >= 0 else ""

    def owns(self, name: str) -> bool:
        """Return True if this is the name of this lock."""
        return bool(name) and name == self._name

    def close(self) -> None:
        """Release the lock, and remove its file."""
        with self._guard:
            if self._descriptor >= 0:
                self._close()
                with contextlib.suppress(OSError):
                    os.unlink(self._file)  # noqa: PTH108 - as above

    def close_inherited(self) -> None:
        """Close the descriptor in a forked child, for which the lock does not count."""
        self._guard = threading.Lock()  # another thread of the parent may have had it
        if self._descriptor >= 0:
            self._close()
        self._name = ""

    def _open(self) -> None:
        """Create the file under its old name, or else a new one, and lock it; remove those of processes that ended."""
        if self._descriptor >= 0:
            self._close()
        if not self._name:
            _remove_stale_files(self._path)
        for _ in range(_TRIES):
            self._name = self._name or new_id()
            try:
                descriptor = _create_locked(self._path + INFIX + self._name, _get_mode(self._path))
            except FileExistsError:  # an interrupt has come between its creation and here
                descriptor = -1
            except OSError:  # no such locks here, or too many open files
                return
            if descriptor >= 0:
                self._descriptor = descriptor
                self._file = self._path + INFIX + self._name
                self._identity = _identify(descriptor)
                _open.add(self)
                return
            self._name = ""

    def _close(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        _open.discard(self)
        with contextlib.suppress(OSError):
            os.close(descriptor)


def find_lock_state(path: str, name: str) -> bool | None:
    """Return True if a process has the lock of this name, False if it has ended, and `None` if that cannot be seen.

    It cannot be seen if the file was deleted, or must not be opened.
    """
    if not _is_lock_name(name):
        return None
    try:
        descriptor = os.open(path + INFIX + name, os.O_RDONLY | _FLAGS)
    except OSError:
        return None
    try:
        return not _try_lock_shared(descriptor)
    except OSError:
        return None
    finally:
        os.close(descriptor)


def _is_lock_name(name: str) -> bool:
    """Return True if a name in a database can be that of a lock, and so leads to no other file."""
    return name.isascii() and name.isalnum()


def _create_locked(path: str, mode: int) -> int:
    """Create a file and lock it; return its descriptor, or -1 if another process was in the way."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | _FLAGS, mode)
    is_locked = False
    try:
        is_locked = _try_lock(descriptor) and _identify(path) == _identify(descriptor)
    finally:
        if not is_locked:
            os.close(descriptor)
            with contextlib.suppress(OSError):
                os.unlink(path)  # noqa: PTH108 - as above
    return descriptor if is_locked else -1


def _remove_stale_files(path: str) -> None:
    """Remove the lock files of processes that have ended."""
    for name in _list_lock_names(path):
        with contextlib.suppress(OSError):
            _remove_if_stale(path + INFIX + name)


def _remove_if_stale(path: str) -> None:
    """Remove a lock file unless a process has locked it. Raises `OSError`."""
    descriptor = os.open(path, os.O_RDONLY | _FLAGS)
    try:
        is_stale = _try_lock_shared(descriptor)
        if is_stale and fcntl:  # while it is locked: a process that has just created it notices, and creates another
            os.unlink(path)  # noqa: PTH108 - as above
    finally:
        os.close(descriptor)
    if is_stale and not fcntl:  # where an open file cannot be removed, and so none that has been locked meanwhile
        os.unlink(path)  # noqa: PTH108 - as above


def _list_lock_names(path: str) -> Iterator[str]:
    prefix = os.path.basename(path) + INFIX  # noqa: PTH119 - as above
    try:
        names = os.listdir(os.path.dirname(path))  # noqa: PTH208 - as above
    except OSError:
        return
    yield from (each.removeprefix(prefix) for each in names if each.startswith(prefix))


def _get_mode(path: str) -> int:
    """Return the permissions for a lock file: those of its database, so that all who can open that can look at it."""
    return stat.S_IMODE(os.stat(path).st_mode) & 0o666


def _identify(file: str | int) -> tuple[int, int]:
    """Return device and inode of a file, by its path or descriptor; zeros if there is none."""
    try:
        status = os.stat(file)
    except OSError:
        return (0, 0)
    return status.st_dev, status.st_ino


def _try_lock(descriptor: int) -> bool:
    """Lock a file for this process alone; return False if another process has locked it. Raises `OSError`."""
    return _try_flock(descriptor, is_shared=False) if fcntl else _try_msvcrt_lock(descriptor)


def _try_lock_shared(descriptor: int) -> bool:
    """Lock a file as several processes can at once, until it is closed; return False if one has it for itself."""
    if fcntl:
        return _try_flock(descriptor, is_shared=True)
    for _ in range(_TRIES):  # another process may be looking at the same moment, and here no two can
        if _try_msvcrt_lock(descriptor):
            return True
        time.sleep(_PAUSE)
    return False


def _try_flock(descriptor: int, *, is_shared: bool) -> bool:
    try:
        fcntl.flock(descriptor, (fcntl.LOCK_SH if is_shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _try_msvcrt_lock(descriptor: int) -> bool:
    if msvcrt is None:
        raise OSError("this system has no locks on files")
    try:
        msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
    except PermissionError:
        return False
    return True


def _close_inherited() -> None:
    for lock in [*_open]:
        lock.close_inherited()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_close_inherited)


class LockingLeaseHolder(LeaseHolderProcess, frozen=True):
    """The process that has the lease of a session in an SQLite file, with the name of its lock."""

    lock: str = ""


# Made here, and not when it is first used: that may be on two threads at once, which msgspec does not support.
_holders = msgspec.json.Decoder(LockingLeaseHolder)


def parse_locking_holder(text: str | None) -> LockingLeaseHolder | None:
    """Parse the lease holder recorded in a file; `None` if none is recorded or it cannot be parsed."""
    if not text:
        return None
    try:
        return _holders.decode(text)
    except msgspec.DecodeError:
        return None


class ProcessLeases(set[Lease]):
    """The leases of this process on the sessions of one file, and the lock by which others see that it is alive."""

    def __init__(self, path: str) -> None:
        super().__init__()
        self._path = path
        self.lock = ProcessLock(path)

    def build_holder_json(self, now: float) -> str:
        """Return this process as the holder of a lease that it acquires now. Raises `StoreError`."""
        me, lock = describe_this_process(now), self.lock.get_name()
        if not (lock or me.started):
            raise StoreError(
                f"no lock could be had beside the store {self._path!r}, by which other processes see that this one is "
                "alive: check the permissions of its folder, the disk, and the number of open files"
            )
        holder = LockingLeaseHolder(me.pid, me.host, me.machine, me.started, me.since, lock)
        return msgspec.json.encode(holder).decode()

    def is_driven(self, lease: Lease, holder: LockingLeaseHolder) -> bool:
        """Return True if this process has the lease, or its holder is another process that is alive."""
        return lease in self or self.is_alive(holder)

    def is_alive(self, holder: LockingLeaseHolder) -> bool:
        """Return True if the holder of a lease is another process, and alive."""
        if holder.lock:
            if self.lock.owns(holder.lock):
                return False
            state = find_lock_state(self._path, holder.lock)
            if state is not None:
                return state
        return not holder.is_this_process and holder.is_alive
