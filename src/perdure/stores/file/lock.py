"""Who drives a session: the kernel's lock on a small file beside the log. Above: the file store. Below: the kernel.

The kernel frees the lock when its process ends, however it ends, so there is no stale one, and none is ever taken from
a process that lives. The file itself says who holds the lock, the fence of the lease, and up to which entry the log is
known to be on the disk: an end that is lost later is noticed by that.
"""

import contextlib
import fcntl
import os
import time
from collections.abc import Callable, Generator
from typing import Final, TypeVar

import msgspec

from perdure.core.error import SessionBusy, StoreError, Unsupported
from perdure.stores.holder import Holder, this_process

from .access import close_file, identity, open_file, open_folder
from .name import Place
from .record import first_line, line_of

T = TypeVar("T")

_TRIES: Final = 200
_PAUSE: Final = 0.005
_PATIENCE: Final = 2000
"""How often a lock is tried that others hold only for a moment."""
_ROOM: Final = 512
"""Bytes of one write, which a disk does as a whole."""


class Claim(msgspec.Struct, frozen=True):
    """What is written in the file."""

    fence: int = 0
    synced: int = 0
    """The number of the last entry that is known to be on the disk."""
    holder: Holder | None = None


_claims = msgspec.json.Decoder(Claim)  # made here, since two threads may read their first claim at the same moment


class SessionLock:
    """A lock that this process holds."""

    def __init__(self, path: str, descriptor: int) -> None:
        self._path = path
        self._descriptor = descriptor
        self._identity = identity(descriptor)
        self.claim = _claim_in(descriptor)

    @property
    def is_in_place(self) -> bool:
        """Whether the file still has its name: without it, it keeps nobody away."""
        return identity(self._path) == self._identity

    def write(self, claim: Claim) -> None:
        """Say who holds it. Raises `OSError`."""
        line = line_of(msgspec.json.encode(claim), 0)
        os.pwrite(self._descriptor, line[:-1].ljust(_ROOM - 1) + b"\n", 0)
        self.claim = claim

    def close(self) -> None:
        """Free it."""
        close_file(self._descriptor)


def take_lock(place: Place, *, take_over: bool = False) -> SessionLock:
    """The lock of a session. Raises `SessionBusy` naming who holds it, or with `take_over` `Unsupported`; `OSError`."""
    for _ in range(_TRIES):
        descriptor = open_file(place.lock, os.O_RDWR | os.O_CREAT)
        try:
            lock = _locked(place, descriptor, take_over=take_over)
        except BaseException:
            close_file(descriptor)
            raise
        if lock is not None:
            return lock
        close_file(descriptor)
        time.sleep(_PAUSE)
    raise _refusal(place, None, take_over=take_over)


@contextlib.contextmanager
def folder_lock(folder: str) -> Generator[None, None, None]:
    """Held while forks are made or what they need is taken away. Raises `OSError` and `StoreError`."""
    descriptor = open_folder(folder)
    try:
        wait_for_lock(descriptor, folder)
        yield
    finally:
        close_file(descriptor)


def wait_for_lock(descriptor: int, path: str) -> None:
    """The lock on a file that others hold only for a moment. Raises `OSError` and `StoreError`."""
    for _ in range(_PATIENCE):
        if _try_lock(descriptor, fcntl.LOCK_EX):
            return
        time.sleep(_PAUSE)
    raise StoreError(f"another process has held {path!r} for too long: continue or end it, then try again")


def _locked(place: Place, descriptor: int, *, take_over: bool) -> SessionLock | None:
    """The lock on a file; `None` when that has to be tried again."""
    if _try_lock(descriptor, fcntl.LOCK_EX):
        was_deleted = identity(place.lock) != identity(descriptor)
        return None if was_deleted else SessionLock(place.lock, descriptor)
    if _try_lock(descriptor, fcntl.LOCK_SH):
        return None  # somebody was only looking, as we are now
    holder = _claim_in(descriptor).holder
    if not _is_told(holder):
        return None  # whoever has just got it is about to write who it is
    raise _refusal(place, holder, take_over=take_over)


def _is_told(holder: Holder | None) -> bool:
    """Whether this is who holds the lock. One that has died is not: another has the lock, and has not told yet."""
    return holder is not None and (holder.machine != this_process(0.0).machine or holder.is_alive)


def claim_of(place: Place) -> Claim:
    """What the file says, whoever holds it. Raises `OSError`."""
    return _looking(place, _claim_in, Claim())


def is_driven(place: Place) -> bool:
    """Whether somebody holds the lock. Raises `OSError`."""
    return _looking(place, lambda descriptor: not _try_lock(descriptor, fcntl.LOCK_SH), default=False)


def _looking(place: Place, look: Callable[[int], T], default: T) -> T:
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


def _claim_in(descriptor: int) -> Claim:
    """What a file says; nothing when that cannot be understood."""
    line = first_line(descriptor, os.fstat(descriptor).st_size, 0)
    try:
        return _claims.decode(line.body) if line else Claim()
    except msgspec.DecodeError:
        return Claim()


def _refusal(place: Place, holder: Holder | None, *, take_over: bool) -> SessionBusy | Unsupported:
    driver = "another process" if holder is None else holder
    driven = f"session {place.session_id!r} is being driven by {driver}"
    if take_over:
        return Unsupported(
            f"{driven}, and the lock that it has on its file cannot be taken from a process that lives: end that one, "
            "or keep sessions in a store of 'sqlite:' or 'postgresql:', where they can be taken over"
        )
    return SessionBusy(f"{driven}: end that run, or open another session")
