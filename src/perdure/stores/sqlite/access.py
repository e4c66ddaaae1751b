"""The connection of a process that writes to an SQLite file: how it is opened, and what becomes of it when the disk
fails. Above: `writer.py`, which sees to it that one thread uses it at a time. Below: `file.py`.

After an error of the disk nothing that was not synced can be taken for granted: the system may have dropped what it
could not write, and report success the next time. So the connection is closed, and whoever opens the next one, or finds
what a dead process left behind, writes all of SQLite's log once more before anything is added to it.
"""

import contextlib
import logging
import os
from collections.abc import Callable, Generator
from typing import Final

import apsw

from perdure.core.error import StoreError

from .connection import Connection
from .file import BUSY_SECONDS, close, connect, identity, log_file, store_error, sync_log, transact
from .turns import hurry, relax

CHECKPOINT_PAGES: Final = 1000
"""SQLite's own log is moved into the database each time it has grown by this many pages."""
LONGEST_LOG: Final = 64 * 1024 * 1024
"""When it is longer than this, because somebody has been reading all the time, those who read are waited for."""

_CHUNK: Final = 64 * 1024  # SQLite's files take 128 KiB at once at most

_log = logging.getLogger("perdure.stores")


class Access:
    """All but `is_open` is for whoever holds the writer's lock."""

    def __init__(self, path: str, vfs: str | None, ask_for_checkpoint: Callable[[], object]) -> None:
        self.path = path
        self.vfs = vfs
        self._ask_for_checkpoint = ask_for_checkpoint
        self._connection: Connection | None = None
        self._file = (0, 0)
        self._is_full = False
        self._is_doubtful = False
        self._has_failed = False
        self._log_growth = 0

    @property
    def is_open(self) -> bool:
        """Whether there is a connection, and its file is where it was. Anybody may ask."""
        return self._connection is not None and identity(self.path) == self._file

    @property
    def connection(self) -> Connection | None:
        """The connection, when there is one."""
        return self._connection

    def idle(self) -> Connection | None:
        """The connection, if it can be used without waiting for anything."""
        connection = self._connection
        if connection is None or self._is_doubtful:
            return None
        if self._is_full:
            self.sync_with(connection, every_commit=False)
        return connection

    @contextlib.contextmanager
    def patient(self) -> Generator[Connection]:
        """The connection, opened if need be, which waits for other processes while it is used here."""
        try:
            connection = self.opened()
            connection.set_busy_timeout(BUSY_SECONDS * 1000)
            try:
                if self._is_doubtful:
                    self._make_certain(connection)
                yield connection
            finally:
                connection.set_busy_timeout(0)  # who cannot wait finds it so
        except apsw.Error as error:
            raise self.explained(error) from error

    def opened(self) -> Connection:
        """The connection. Raises a `StoreError` instead of writing on into a file that nobody will find again."""
        connection = self._connection
        if connection is None:
            return self._open()
        if identity(self.path) == self._file:
            return connection
        self._drop()
        raise StoreError(
            f"the store {self.path!r} was deleted or replaced while it was open, and what it held may be gone with "
            "it: put it back, or open the session again to begin anew"
        )

    def sync_with(self, connection: Connection, *, every_commit: bool) -> None:
        """Whether a commit waits for the disk."""
        if every_commit != self._is_full:
            connection.execute(f"PRAGMA synchronous = {'FULL' if every_commit else 'NORMAL'}")
            self._is_full = every_commit

    def explained(self, error: apsw.Error) -> StoreError:
        """What an error of SQLite means to whoever uses the store. After one of the disk, the file is opened anew."""
        if isinstance(error, apsw.IOError):
            self._has_failed = True
            self._drop()
        return store_error(error, self.path)

    def checkpoint(self) -> None:
        """Move SQLite's log into the database, as far as nobody is reading it."""
        connection = self._connection
        if connection is None:
            return
        is_long = _size_of_log(self.path) > LONGEST_LOG
        try:
            connection.set_busy_timeout(1000 if is_long else 0)
            connection.wal_checkpoint(
                mode=apsw.SQLITE_CHECKPOINT_TRUNCATE if is_long else apsw.SQLITE_CHECKPOINT_PASSIVE
            )
        except apsw.Error as error:
            self.explained(error)
            _log.warning("the log of %r could not be moved into the database yet: %s", self.path, error)
        else:
            connection.set_busy_timeout(0)

    def erase_log(self, connection: Connection) -> None:
        """Move SQLite's log into the database and leave none of it. What was overwritten in there is gone then."""
        try:
            connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
        except apsw.BusyError as error:
            raise StoreError(
                f"what was taken out of the store {self.path!r} is still on the disk, though nobody finds it there, "
                "because another process kept reading: call vacuum() when that has ended"
            ) from error
        sync_log(self.path, self.vfs)

    def close(self) -> None:
        """Let go of the file."""
        connection, self._connection = self._connection, None
        relax(self)
        if connection is not None:
            try:
                close(connection)
            except apsw.Error as error:
                _log.warning("the store %r could not be closed in good order: %s", self.path, error)

    def _open(self) -> Connection:
        # What a process left behind may be what it could not sync.
        self._is_doubtful = _size_of_log(self.path) > 0
        connection = connect(self.path, self.vfs)
        connection.set_wal_hook(self._grown)
        self._file = identity(self.path)
        self._is_full = False
        self._log_growth = 0
        self._connection = connection
        hurry(self)
        return connection

    def _drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(apsw.Error):
                connection.close()

    def _make_certain(self, connection: Connection) -> None:
        transact(connection, self._write_log_again)
        if self._has_failed:
            found = connection.execute("PRAGMA quick_check(1)").get
            if found != "ok":
                raise StoreError(
                    f"the store {self.path!r} is damaged since the disk failed ({found}): keep a copy, then restore a "
                    "backup or try `sqlite3 FILE .recover`"
                )
        self._is_doubtful = self._has_failed = False

    def _write_log_again(self, _connection: Connection) -> None:
        """Give the system all of the log once more, and sync it. Nobody else adds to it: this has SQLite's lock."""
        with log_file(self.path, self.vfs) as log:
            size = log.xFileSize()
            for offset in range(0, size, _CHUNK):
                log.xWrite(log.xRead(min(_CHUNK, size - offset), offset), offset)
            log.xSync(apsw.SQLITE_SYNC_FULL)

    def _grown(self, _connection: Connection, _name: str, pages: int) -> int:
        """Called by SQLite after each commit, which must not fail any more."""
        growth = pages // CHECKPOINT_PAGES
        if growth > self._log_growth:
            with contextlib.suppress(RuntimeError):  # the interpreter is ending: the next process will do it
                self._ask_for_checkpoint()
        self._log_growth = growth
        return apsw.SQLITE_OK


def _size_of_log(path: str) -> int:
    try:
        return os.stat(f"{path}-wal").st_size  # noqa: PTH116 - pathlib costs every start milliseconds
    except OSError:
        return 0
