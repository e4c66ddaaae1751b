"""The one connection of a process to an SQLite file. Above: `sqlite.py`. Below: `sqlite_file.py`.

Whoever holds the lock may use the connection. A write that need not wait is done where it is asked for (`write_now`);
all else (what syncs, what waits for another process, what reads much) is done by one thread, in the order of asking.
"""

import asyncio
import contextlib
import logging
import os
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Final, TypeVar
from weakref import WeakSet

import apsw

from windlass.core.error import StoreError
from windlass.core.store import Lease

from .sqlite_connection import Connection
from .sqlite_file import BUSY_SECONDS, Job, close, connect, store_error, transact

S = TypeVar("S")
T = TypeVar("T")

CHECKPOINT_PAGES: Final = 1000
"""The log is moved into the database each time it has grown by this many pages."""

_log = logging.getLogger("windlass.stores")


class Writer:
    """Shared by all stores of this process that name the same file."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.leases: set[Lease] = set()
        """Those that are out in this process. Only jobs touch it."""
        self._users: WeakSet[object] = WeakSet()
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._connection: Connection | None = None
        self._file = (0, 0)
        self._log_growth = 0
        self._thread_lock = threading.Lock()
        self._thread: ThreadPoolExecutor | None = None

    @property
    def is_inherited(self) -> bool:
        """Whether this process is a fork of the one that opened it: then it must not be touched."""
        return self._pid != os.getpid()

    def check_process(self) -> None:
        """Refuse to go on in a forked child, where the locks on the file are not ours."""
        if self.is_inherited:
            raise StoreError(
                f"the store {self.path!r} was opened by process {self._pid}, of which this one, {os.getpid()}, is a "
                "fork: make a new store object here"
            )

    def join(self, user: object) -> None:
        """Keep the file open for `user`."""
        self._users.add(user)

    async def leave(self, user: object) -> None:
        """`user` needs the file no more; the last one closes it. It is opened again when somebody needs it."""
        self._users.discard(user)
        if not self._users:
            await asyncio.wrap_future(self._submit(self._close))

    def write_now(self, job: Job[object]) -> bool:
        """Do the job in a transaction of its own, at once; or `False`, and nothing was done: it would have to wait."""
        if not self._lock.acquire(blocking=False):
            return False
        try:
            if self._connection is None:  # opening it would have to wait
                return False
            transact(self._connection, job)
        except apsw.BusyError:
            return False
        except apsw.Error as error:
            raise store_error(error, self.path) from error
        finally:
            self._lock.release()
        return True

    def write(self, job: Job[T], *, sync: bool = False) -> "asyncio.Future[T]":
        """Do the job in a transaction. With `sync` it survives the loss of power, and with it all before it.

        No task, but a future: when an event loop is closed all its tasks are cancelled, and this goes on.
        """
        return asyncio.wrap_future(self._submit(lambda: self._perform(_synced(job) if sync else _written(job))))

    async def read(self, job: Job[S], finish: Callable[[S], T]) -> T:
        """Do a job that changes nothing; what it found is finished after others may write again."""
        return await asyncio.wrap_future(self._submit(lambda: finish(self._perform(job))))

    def _submit(self, work: Callable[[], T]) -> "Future[T]":
        with self._thread_lock:
            if self._thread is None:
                self._thread = ThreadPoolExecutor(1, "windlass-sqlite")
            return self._thread.submit(work)

    def _perform(self, job: Job[T]) -> T:
        with self._lock:
            connection = self._open() if self._connection is None else self._checked(self._connection)
            try:
                connection.set_busy_timeout(BUSY_SECONDS * 1000)
                return job(connection)
            except apsw.Error as error:
                raise store_error(error, self.path) from error
            finally:
                connection.set_busy_timeout(0)  # `write_now` does not wait

    def _open(self) -> Connection:
        connection = connect(self.path)
        connection.set_wal_hook(self._grown)
        self._file = _identity(self.path)
        self._log_growth = 0
        self._connection = connection
        return connection

    def _checked(self, connection: Connection) -> Connection:
        """Refuse to write on into a file that nobody will find again."""
        if _identity(self.path) == self._file:
            return connection
        self._connection = None
        connection.close()
        raise StoreError(
            f"the store {self.path!r} was deleted or replaced while it was open, and what it held may be gone with "
            "it: put it back, or open the session again to begin anew"
        )

    def _grown(self, _connection: Connection, _name: str, pages: int) -> int:
        """Called by SQLite after each commit, which must not fail any more."""
        growth = pages // CHECKPOINT_PAGES
        if growth > self._log_growth:
            with contextlib.suppress(RuntimeError):  # the interpreter is ending: the next process will do it
                self._submit(self._checkpoint)
        self._log_growth = growth
        return apsw.SQLITE_OK

    def _checkpoint(self) -> None:
        with self._lock:
            try:
                if self._connection is not None:
                    self._connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
            except apsw.Error as error:
                _log.warning("the log of %r could not be moved into the database yet: %s", self.path, error)

    def _close(self) -> None:
        with self._thread_lock:
            if self._users or self._thread is None:
                return
            thread, self._thread = self._thread, None
        thread.shutdown(wait=False)  # ends after this, its last job
        with self._lock:
            connection, self._connection = self._connection, None
            if connection is not None:
                close(connection)


_WRITERS: dict[tuple[int, str], Writer] = {}


def writer_of(path: str) -> Writer:
    """The writer of this process for a file. A forked child has its own."""
    key = (os.getpid(), os.path.realpath(path))
    return _WRITERS.get(key) or _WRITERS.setdefault(key, Writer(key[1]))


def _written(job: Job[T]) -> Job[T]:
    return lambda connection: transact(connection, job)


def _synced(job: Job[T]) -> Job[T]:
    def perform(connection: Connection) -> T:
        connection.execute("PRAGMA synchronous = FULL")
        try:
            return transact(connection, job)
        finally:
            connection.execute("PRAGMA synchronous = NORMAL")

    return perform


def _identity(path: str) -> tuple[int, int]:
    try:
        status = os.stat(path)  # noqa: PTH116 - at every barrier, and a Path would cost as much again
    except OSError:
        return (0, 0)
    return status.st_dev, status.st_ino
