"""The connections of a process to an SQLite file: one that writes and recovers from disk errors, one that reads."""

import contextlib
import logging
import os
import sys
import threading
from collections.abc import Callable, Collection, Generator
from concurrent.futures import Future
from functools import partial
from typing import Final, TypeVar

import apsw

from perdure._core.values.error import StoreError
from perdure._stores.threads import StoreThreads

from .database import (
    BUSY_SECONDS,
    close_and_checkpoint,
    file_identity,
    open_read_only,
    open_to_write,
    open_wal_file,
    retry_while_busy,
    roll_back_leftover,
    run_in_transaction,
    sync_wal,
    to_store_error,
    transaction,
)
from .driver import Connection
from .file_system import get_file_version, is_read_only
from .format.pages import contains_texts, read_gaps
from .write.jobs import CAN_SYNC_WAL, Job, WalSync

T = TypeVar("T")


class ReadThread:
    """A thread with a read-only connection that runs one read job at a time."""

    def __init__(self, path: str, vfs: str | None, make_sure: Callable[[], None]) -> None:
        self._path = path
        self._vfs = vfs
        self._ensure_file = make_sure
        """Called before the file is opened: creates it if necessary, and checks its format."""
        self._connection: Connection | None = None
        self._file: tuple[int, ...] = (0, 0)
        self._is_read_only = False
        self._starting = threading.Lock()
        self._thread: StoreThreads | None = None

    def submit(self, job: Job[T]) -> "Future[T]":
        """Queue a job that only reads; it runs in a read transaction. Return its future."""
        with self._starting:
            if self._thread is None:
                self._thread = StoreThreads("perdure-sqlite-read")
            return self._thread.submit(partial(self._run_job, job))

    def close(self) -> None:
        """Finish the submitted jobs, then close the connection and end the thread."""
        with self._starting:
            thread, self._thread = self._thread, None
            closing = thread.submit(self._drop_connection) if thread is not None else None
        if thread is not None and closing is not None:
            thread.end()
            closing.result()

    def _run_job(self, job: Job[T]) -> T:
        connection = self._get_or_open()
        try:
            with transaction(connection, "BEGIN"):
                return job(connection)
        except apsw.Error as error:
            self._drop_connection()
            raise to_store_error(error, self._path) from error

    def _get_or_open(self) -> Connection:
        connection = self._connection
        if connection is not None and self._look_at_file() == self._file:
            return connection
        self._drop_connection()
        self._ensure_file()
        connection = self._connection = open_read_only(self._path, self._vfs)
        self._is_read_only = is_read_only(self._path)
        self._file = self._look_at_file()
        return connection

    def _look_at_file(self) -> tuple[int, ...]:
        """Return values that change when the file is replaced and the connection cannot be used any more."""
        return get_file_version(self._path) if self._is_read_only else file_identity(self._path)

    def _drop_connection(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            # Refused while another thread frees a cursor of it: then it is closed when it is freed itself.
            with contextlib.suppress(apsw.ThreadingViolationError):
                connection.close()


SWITCH_SECONDS: Final = 0.0005
"""The switch interval while a store is open. The benchmarks measure both its cost and its gain."""

_lock = threading.Lock()
_open: set[object] = set()
_before: list[float] = []


def shorten_switch_interval(store: object) -> None:
    """Shorten the thread switch interval while `store` is open, unless it is already shorter."""
    with _lock:
        if not _open and sys.getswitchinterval() > SWITCH_SECONDS:
            _before.append(sys.getswitchinterval())
            sys.setswitchinterval(SWITCH_SECONDS)
        _open.add(store)


def restore_switch_interval(store: object) -> None:
    """Restore the thread switch interval after the last store was closed, unless other code changed it."""
    with _lock:
        _open.discard(store)
        if not _open and _before:
            before = _before.pop()
            if abs(sys.getswitchinterval() - SWITCH_SECONDS) < SWITCH_SECONDS / 100:
                sys.setswitchinterval(before)


CHECKPOINT_PAGES: Final = 1000
"""SQLite's write-ahead log is checkpointed each time it has grown by this many pages."""
MAX_WAL_BYTES: Final = 64 * 1024 * 1024
"""Above this size in bytes, because there were readers all the time, a checkpoint waits for readers."""

_CHUNK: Final = 64 * 1024  # SQLite's files take 128 KiB at once at most

_log = logging.getLogger("perdure.stores")


class WriteConnection:
    """Connection over which a process writes to an SQLite file; it is opened when needed.

    Use all but `is_open` only under the writer's lock.
    """

    def __init__(self, path: str, vfs: str | None, ask_for_checkpoint: Callable[[], object]) -> None:
        self.path = path
        self.vfs = vfs
        self._ask_for_checkpoint = ask_for_checkpoint
        self._connection: Connection | None = None
        self._wal: WalSync | None = None
        self._file = (0, 0)
        self._is_full = False
        self._is_doubtful = False
        self._has_failed = False
        self._log_growth = 0

    @property
    def is_open(self) -> bool:
        """True if the connection is open, and its file was not replaced. Usable from any thread."""
        return self._connection is not None and file_identity(self.path) == self._file

    @property
    def connection(self) -> Connection | None:
        """The open connection; `None` if it is not open."""
        return self._connection

    def get_if_idle(self) -> Connection | None:
        """Return the connection if it can be used without waiting; else `None`."""
        connection = self._connection
        if connection is None or self._is_doubtful:
            return None
        roll_back_leftover(connection)
        if self._is_full:
            self.set_sync(connection, every_commit=False)
        return connection

    @contextlib.contextmanager
    def use_with_timeout(self) -> Generator[Connection]:
        """Context manager: yield the connection, opened if necessary; it waits a while for other processes."""
        try:
            connection = self.get_or_open()
            connection.set_busy_timeout(BUSY_SECONDS * 1000)
            try:
                roll_back_leftover(connection)
                if self._is_doubtful:
                    self._recover_wal(connection)
                yield connection
            finally:
                connection.set_busy_timeout(0)  # who cannot wait finds it so
        except apsw.Error as error:
            raise self.to_store_error(error) from error

    def get_or_open(self) -> Connection:
        """Return the connection, opened if necessary. Raises `StoreError` if the file was deleted or replaced."""
        connection = self._connection
        if connection is None:
            return self._open()
        if file_identity(self.path) == self._file:
            return connection
        self._drop_connection()
        raise StoreError(
            f"the store {self.path!r} was deleted or replaced while it was open, and what it held may be gone with "
            "it: put it back, or open the session again to begin anew"
        )

    def set_sync(self, connection: Connection, *, every_commit: bool) -> None:
        """Choose if each commit waits until it is on the disk."""
        if every_commit != self._is_full:
            connection.execute(f"PRAGMA synchronous = {'FULL' if every_commit else 'NORMAL'}")
            self._is_full = every_commit

    @property
    def wal(self) -> WalSync | None:
        """The write-ahead log, if it is open for `sync_wal`."""
        return self._wal

    def open_wal(self) -> None:
        """Prepare for `sync_wal`, after SQLite itself has synced a commit, and so the name of its write-ahead log."""
        if CAN_SYNC_WAL and self._wal is None and self._connection is not None:
            with contextlib.suppress(OSError, apsw.Error):  # then SQLite syncs
                self._wal = WalSync(self.path, self.vfs)

    def sync_wal(self, wal: WalSync) -> None:
        """Wait until all commits in the open write-ahead log are on the disk. Raises `StoreError`."""
        try:
            if wal is not self._wal:
                raise apsw.IOError("the log was closed after an error")
            wal.sync()
        except apsw.Error as error:
            raise self.to_store_error(error) from error

    def to_store_error(self, error: apsw.Error) -> StoreError:
        """Build a `StoreError` from an SQLite error. After a disk error, also close the connection."""
        if isinstance(error, apsw.IOError):
            self._has_failed = True
            self._drop_connection()
        return to_store_error(error, self.path)

    def checkpoint(self) -> None:
        """Move SQLite's write-ahead log into the database file, as far as readers allow."""
        connection = self._connection
        if connection is None:
            return
        is_long = _wal_size(self.path) > MAX_WAL_BYTES
        try:
            connection.set_busy_timeout(1000 if is_long else 0)
            connection.wal_checkpoint(
                mode=apsw.SQLITE_CHECKPOINT_TRUNCATE if is_long else apsw.SQLITE_CHECKPOINT_PASSIVE
            )
        except apsw.Error as error:
            self.to_store_error(error)
            _log.warning("the log of %r could not be moved into the database yet: %s", self.path, error)
        if self._connection is connection:  # it is closed after a disk error
            connection.set_busy_timeout(0)

    def erase_remains(self, texts: Collection[str], connection: Connection) -> None:
        """Empty SQLite's write-ahead log into the database file, and rewrite that if it contains copies of deleted
        `texts` between its rows.

        A page with a checksum cannot be changed in part, so all of the file is rewritten; that is seldom needed.
        """
        self._truncate_wal(connection)
        if texts and contains_texts(read_gaps(self.path, self.vfs), texts):
            connection.execute("VACUUM")
            self._truncate_wal(connection)
        sync_wal(self.path, self.vfs)

    def _truncate_wal(self, connection: Connection) -> None:
        """Empty SQLite's write-ahead log. It waits for readers, but not for another process that does the same."""
        try:
            retry_while_busy(lambda: connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE))
        except apsw.BusyError as error:
            raise StoreError(
                f"what was taken out of the store {self.path!r} is still on the disk, though nobody finds it there, "
                "because another process kept reading: call vacuum() when that has ended"
            ) from error

    def close(self) -> None:
        """Close the connection."""
        connection, self._connection = self._connection, None
        self._close_wal()
        restore_switch_interval(self)
        if connection is not None:
            try:
                close_and_checkpoint(connection)
            except apsw.Error as error:
                _log.warning("the store %r could not be closed in good order: %s", self.path, error)

    def _open(self) -> Connection:
        # What a process left behind may be what it could not sync.
        self._is_doubtful = _wal_size(self.path) > 0
        connection = open_to_write(self.path, self.vfs)
        connection.set_busy_timeout(0)  # a reader may have opened it: whoever writes next may be an event loop
        connection.set_wal_hook(self._on_commit)
        self._file = file_identity(self.path)
        self._is_full = False
        self._log_growth = 0
        self._connection = connection
        shorten_switch_interval(self)
        return connection

    def _close_wal(self) -> None:
        wal, self._wal = self._wal, None
        if wal is not None:
            wal.close()

    def _drop_connection(self) -> None:
        connection, self._connection = self._connection, None
        self._close_wal()
        if connection is not None:
            with contextlib.suppress(apsw.Error):
                connection.close()

    def _recover_wal(self, connection: Connection) -> None:
        run_in_transaction(connection, self._write_wal_again)
        if self._has_failed:
            found = connection.execute("PRAGMA quick_check(1)").get
            if found != "ok":
                raise StoreError(
                    f"the store {self.path!r} is damaged since the disk failed ({found}): keep a copy, then restore a "
                    "backup or try `sqlite3 FILE .recover`"
                )
        self._is_doubtful = self._has_failed = False

    def _write_wal_again(self, _connection: Connection) -> None:
        """Write all of the write-ahead log again, and sync it. SQLite's lock, taken by the transaction, keeps other
        writers out.
        """
        with open_wal_file(self.path, self.vfs) as log:
            size = log.xFileSize()
            for offset in range(0, size, _CHUNK):
                log.xWrite(log.xRead(min(_CHUNK, size - offset), offset), offset)
            log.xSync(apsw.SQLITE_SYNC_FULL)

    def _on_commit(self, _connection: Connection, _name: str, pages: int) -> int:
        """Request a checkpoint if the write-ahead log has grown enough. SQLite calls this after each commit; it must
        not fail.
        """
        growth = pages // CHECKPOINT_PAGES
        if growth > self._log_growth:
            with contextlib.suppress(RuntimeError):  # the interpreter is ending: the next process will do it
                self._ask_for_checkpoint()
        self._log_growth = growth
        return apsw.SQLITE_OK


def _wal_size(path: str) -> int:
    try:
        return os.stat(f"{path}-wal").st_size  # noqa: PTH116 - pathlib costs every start milliseconds
    except OSError:
        return 0
