"""The SQLite file of long-term memories: its tables, its connection, and the thread that uses it.

It has the habits of the SQLite store: a write-ahead log that is synced at every commit, checks of a file that another
program wrote, and deleted rows that are overwritten. A file that this process cannot write is read. Each scope has its
own full-text index, so that no query can reach the text of another.
"""

import asyncio
import os
from collections.abc import Callable
from typing import Any, Final, TypeVar, cast

import apsw
import msgspec

from perdure._core.log.store import wait_despite_cancel
from perdure._core.values.error import StoreError
from perdure._io.home.paths import get_home_file_path
from perdure._io.home.runtime_files import trust_runtime_file
from perdure._stores.files import check_file_path, create_file, make_path_absolute
from perdure._stores.sqlite.database import (
    BUSY_SECONDS,
    close_and_checkpoint,
    damaged_store_error,
    disable_schema_programs,
    retry_while_busy,
    run_in_transaction,
    sync_wal,
    to_store_error,
    transaction,
)
from perdure._stores.sqlite.driver import Connection
from perdure._stores.sqlite.file_system import (
    build_immutable_uri,
    build_read_only_error,
    get_file_version,
    get_read_only_flags,
    is_read_only,
)
from perdure._stores.sqlite.format.pages import clear_gaps, is_wal_empty
from perdure._stores.threads import StoreThreads, follow_thread

from .record import MemoryScope

T = TypeVar("T")

APPLICATION_ID: Final = 0x50644D65
"""Number in the header of the file: `PdMe`."""
FORMAT: Final = 1
MIN_FILE_BYTES: Final = 512
"""Bytes of a page, and so of a database."""

_PRAGMAS: Final = """
PRAGMA journal_mode = WAL;
PRAGMA synchronous = FULL;
PRAGMA fullfsync = ON;
PRAGMA checkpoint_fullfsync = ON;
PRAGMA foreign_keys = ON;
PRAGMA trusted_schema = OFF;
PRAGMA cell_size_check = ON;
PRAGMA secure_delete = ON;
PRAGMA cache_size = -32768;
PRAGMA journal_size_limit = 67108864;
"""
_PRAGMAS_TO_READ: Final = """
PRAGMA trusted_schema = OFF;
PRAGMA cell_size_check = ON;
PRAGMA cache_size = -32768;
"""
_STAMP: Final = """
SELECT application_id, user_version, (SELECT count(*) FROM sqlite_schema)
FROM pragma_application_id, pragma_user_version"""
_TABLES: Final = f"""
PRAGMA application_id = {APPLICATION_ID};
PRAGMA user_version = {FORMAT};
CREATE TABLE scope(
    id INTEGER PRIMARY KEY, user TEXT NOT NULL, project TEXT NOT NULL,
    changes INTEGER NOT NULL DEFAULT 0, UNIQUE(user, project)
) STRICT;
CREATE TABLE memory(
    id INTEGER PRIMARY KEY AUTOINCREMENT, scope INTEGER NOT NULL REFERENCES scope, name TEXT NOT NULL UNIQUE,
    kind TEXT NOT NULL, at REAL NOT NULL, pinned INTEGER NOT NULL, entity TEXT, record BLOB NOT NULL
) STRICT;
CREATE INDEX memory_by_time ON memory(scope, at);
CREATE INDEX memory_pinned ON memory(scope, id) WHERE pinned;
CREATE UNIQUE INDEX memory_entity ON memory(scope, entity) WHERE entity IS NOT NULL;
CREATE TABLE tag(
    tag TEXT NOT NULL, memory INTEGER NOT NULL REFERENCES memory ON DELETE CASCADE, PRIMARY KEY(tag, memory)
) STRICT, WITHOUT ROWID;
CREATE INDEX tag_by_memory ON tag(memory);
CREATE TABLE used_key(
    scope INTEGER NOT NULL REFERENCES scope, key TEXT NOT NULL, name TEXT NOT NULL, PRIMARY KEY(scope, key)
) STRICT, WITHOUT ROWID;
CREATE TABLE vector(
    memory INTEGER PRIMARY KEY REFERENCES memory ON DELETE CASCADE, scope INTEGER NOT NULL, embedder TEXT NOT NULL,
    bits BLOB, vector BLOB NOT NULL
) STRICT;
CREATE INDEX vector_by_scope ON vector(scope, embedder, memory, bits);
CREATE TABLE centre(
    scope INTEGER NOT NULL REFERENCES scope, embedder TEXT NOT NULL, vector BLOB NOT NULL,
    PRIMARY KEY(scope, embedder)
) STRICT, WITHOUT ROWID;
"""


def get_default_memory_path() -> str:
    """Return the path of the SQLite file of memories in `~/.perdure`, or in the folder that PERDURE_HOME names."""
    return get_home_file_path("memory.db")


class _OpenFile:
    """A connection, opened at its first use, and the thread that uses it."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.thread = StoreThreads("perdure-memory")
        self._connection: Connection | None = None
        self._read_only_version: tuple[int, ...] | None = None  # None if the connection can write

    def connect(self, *, writes: bool) -> Connection:
        """Return the connection; called on the thread. Raises `StoreError` if the file can only be read, to write."""
        if self._read_only_version is not None and self._look_at_file() != self._read_only_version:
            self.close()  # it has changed, or can be written now
        if self._connection is None:
            version = self._look_at_file()
            self._connection = open_memory_file(self.path) if version is None else open_memory_to_read(self.path)
            self._read_only_version = version
        if writes and self._read_only_version is not None:
            raise build_read_only_error(self.path)
        return self._connection

    def _look_at_file(self) -> tuple[int, ...] | None:
        """Return values that change when a read-only file is changed; None for a file that can be written."""
        return get_file_version(self.path) if is_read_only(self.path) else None

    def close(self) -> None:
        """Close the connection; called on the thread."""
        connection, self._connection = self._connection, None
        if connection is not None:
            close_and_checkpoint(connection)


class MemoryDatabase:
    """The SQLite file of long-term memories, opened at first use and used on one thread."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = make_path_absolute(path)
        trust_runtime_file(self, self.path, "database")
        self._file: _OpenFile | None = None

    async def run(self, job: Callable[[Connection], T]) -> T:
        """Run a job on the thread of the file. Raises `StoreError` if SQLite fails."""
        return await self._submit(job, writes=False)

    async def write(self, job: Callable[[Connection], T]) -> T:
        """Run a job in a transaction, which is on the disk when this returns. A cancel waits until it is."""
        return await self._submit(lambda connection: run_in_transaction(connection, job))

    async def erase(self, job: Callable[[Connection], T]) -> T:
        """Run a job that deletes memories, in a transaction, and remove their bytes from the write-ahead log, and the
        copies that SQLite has left in the pages, too.
        """

        def work(connection: Connection) -> T:
            result = run_in_transaction(connection, job)
            try:
                retry_while_busy(lambda: _clear_remains(connection, self.path))
            except apsw.BusyError as error:
                raise StoreError(
                    f"it is deleted, but its bytes are still in '{self.path}-wal', because another process kept the "
                    f"file open for reading for {BUSY_SECONDS} s: end that process, then forget it again"
                ) from error
            sync_wal(self.path, None)
            return result

        return await self._submit(work)

    async def aclose(self) -> None:
        """Close the file; the next use opens it again."""
        file, self._file = self._file, None
        if file is not None:
            closing = follow_thread(file.thread.submit(file.close))
            cancelled = await wait_despite_cancel([closing])
            file.thread.end()
            closing.result()
            if cancelled:
                raise asyncio.CancelledError

    async def _submit(self, job: Callable[[Connection], T], *, writes: bool = True) -> T:
        file = self._file = self._file or _OpenFile(self.path)
        future = follow_thread(file.thread.submit(lambda: job(file.connect(writes=writes))))
        cancelled = await wait_despite_cancel([future])
        try:
            result = future.result()
        except apsw.Error as error:
            raise to_store_error(error, self.path) from error
        except msgspec.DecodeError as error:
            raise damaged_store_error(self.path, f"a memory cannot be read: {error}") from error
        if cancelled:
            raise asyncio.CancelledError
        return result


def _clear_remains(connection: Connection, path: str) -> None:
    """Empty the write-ahead log, and the unused space of each page. Raises `apsw.BusyError` to be called again."""
    connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
    with transaction(connection):  # it keeps other processes from writing
        if not is_wal_empty(path):
            raise apsw.BusyError("another process has written")
        clear_gaps(path)


def open_memory_file(path: str) -> Connection:
    """Open the SQLite file of long-term memories, and create it if needed. Raises `ConfigError` or `StoreError`."""
    check_file_path(path)
    try:
        create_file(path)
    except OSError as error:
        raise StoreError(f"the memory {path!r} cannot be made: {error.strerror}; choose another path") from error
    if 0 < os.stat(path).st_size < MIN_FILE_BYTES:  # noqa: PTH116 - as in the stores; SQLite would overwrite it
        raise StoreError(f"{path!r} is no file of memories, and has been left as it is: choose another path")
    connection = cast("Connection", apsw.Connection(path, flags=apsw.SQLITE_OPEN_READWRITE))
    disable_schema_programs(connection)
    try:
        connection.set_busy_timeout(BUSY_SECONDS * 1000)
        _check_format(connection, path)
        connection.config(apsw.SQLITE_DBCONFIG_DEFENSIVE, 1)
        connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)  # a forked child must not delete the log
        retry_while_busy(lambda: connection.execute(_PRAGMAS).fetchall())

        def create_tables(connection: Connection) -> None:
            if not _check_format(connection, path):  # another process may have been quicker
                connection.execute(_TABLES)

        run_in_transaction(connection, create_tables)
    except BaseException:
        connection.close()
        raise
    return connection


def open_memory_to_read(path: str) -> Connection:
    """Open an SQLite file of long-term memories read-only. Raises `ConfigError` or `StoreError`.

    Without a write-ahead log it is opened as one that does not change. With one, SQLite needs the shared memory beside
    it, as while another process uses the file.
    """
    check_file_path(path)
    uri, problem = "", None
    try:
        uri = build_immutable_uri(path)
    except StoreError as error:
        problem = error
    flags = get_read_only_flags() if uri else apsw.SQLITE_OPEN_READONLY
    try:
        connection = cast("Connection", apsw.Connection(uri or path, flags=flags))
        disable_schema_programs(connection)
        try:
            connection.set_busy_timeout(BUSY_SECONDS * 1000)
            has_tables = _check_format(connection, path)
            connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
            connection.execute(_PRAGMAS_TO_READ).fetchall()
        except BaseException:
            connection.close()
            raise
    except (apsw.CantOpenError, apsw.ReadOnlyError) as error:
        raise problem or to_store_error(error, path) from error
    if not has_tables:
        connection.close()
        raise build_read_only_error(path)
    return connection


def _check_format(connection: Connection, path: str) -> bool:
    """Return True if the tables are there. Raises `StoreError` for a file of another program or a newer version."""
    application, version, parts = connection.execute(_STAMP).get
    if (application, version, parts) == (0, 0, 0):
        return False
    if application != APPLICATION_ID:
        raise StoreError(f"{path!r} is no file of memories, and has been left as it is: choose another path")
    if version != FORMAT:
        raise StoreError(f"{path!r} has format {version}, and this version knows {FORMAT}: upgrade perdure")
    return True


def find_scope(connection: Connection, scope: MemoryScope) -> int | None:
    """Return the number of a scope (user, project) in the file of memories; None if nothing was ever stored in it."""
    found: Any = connection.execute("SELECT id FROM scope WHERE (user, project) = (?, ?)", (scope.user, scope.project))
    number: int | None = found.get
    return number


def find_or_add_scope(connection: Connection, scope: MemoryScope) -> int:
    """Return the number of a scope (user, project) in the file of memories; create it and its text index if needed."""
    number = find_scope(connection, scope)
    if number is None:
        added = connection.execute(
            "INSERT INTO scope(user, project) VALUES(?, ?) RETURNING id", (scope.user, scope.project)
        )
        number = int(added.get)
        connection.execute(
            f"CREATE VIRTUAL TABLE search_{number} USING fts5(text, tags, content='', "
            "tokenize='porter unicode61 remove_diacritics 2')"
        )
        connection.execute(f"INSERT INTO search_{number}(search_{number}, rank) VALUES('secure-delete', 1)")
    return number
