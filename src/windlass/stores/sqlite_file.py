"""The file of an SQLite store: how it is opened, what is in it, what its errors mean. Above: `sqlite_writer.py`.
Below: apsw and `place.py`.

A file that is not ours is refused and left as it is.
"""

import os
import time
from collections.abc import Callable
from typing import Final, TypeAlias, TypeVar, cast

import apsw

from windlass.core.error import Conflict, StoreError

from .place import check_place, make_file
from .sqlite_connection import Connection

T = TypeVar("T")
Job: TypeAlias = Callable[[Connection], T]
"""Something to do with a connection while nobody else uses it."""

BUSY_SECONDS: Final = 30
"""How long a write waits for other processes."""
FORMAT: Final = 1
"""Of the tables below; a file of a newer one is refused."""
APPLICATION_ID: Final = 0x574E444C
"""Marks the file as ours, for us and for `file(1)`: the letters WNDL."""

_SMALLEST: Final = 512  # bytes of a page, and so of a database

# Rows are large, so the tables keep their rowid. `tenant` stands before every id, and is empty in a file of one's own.
# In meta, `fence` is the highest fence of any deleted session: one that is made anew under an old id goes on from
# there, so that no forgotten lease ever fits it. `repeated` counts appends that were already there.
_SCHEMA: Final = f"""
CREATE TABLE meta(name TEXT PRIMARY KEY, value INTEGER NOT NULL) STRICT, WITHOUT ROWID;
INSERT INTO meta VALUES('fence', 0), ('repeated', 0);
CREATE TABLE session(
    key INTEGER PRIMARY KEY,
    tenant TEXT NOT NULL DEFAULT '',
    owner TEXT NOT NULL DEFAULT '',
    id TEXT NOT NULL,
    head INTEGER NOT NULL DEFAULT 0,
    fence INTEGER NOT NULL,
    holder TEXT,
    created_at REAL NOT NULL,
    updated_at REAL NOT NULL,
    title TEXT NOT NULL DEFAULT '',
    UNIQUE(tenant, id)
) STRICT;
CREATE TABLE entry(
    session INTEGER NOT NULL REFERENCES session(key) ON DELETE CASCADE,
    seq INTEGER NOT NULL,
    id TEXT,
    kind TEXT NOT NULL,
    critical INTEGER NOT NULL,
    version INTEGER NOT NULL,
    at REAL NOT NULL,
    body BLOB NOT NULL,
    PRIMARY KEY(session, seq)
) STRICT;
CREATE UNIQUE INDEX entry_id ON entry(session, id);
PRAGMA application_id = {APPLICATION_ID};
PRAGMA user_version = {FORMAT};
"""

# One statement, so that a file which another process is making is seen either empty or made.
_STAMP: Final = """
SELECT application_id, user_version, (SELECT count(*) FROM sqlite_schema)
FROM pragma_application_id, pragma_user_version"""

# fullfsync is for macOS, where a sync without it ends at the drive's own memory.
_PRAGMAS: Final = """
PRAGMA synchronous = NORMAL;
PRAGMA fullfsync = ON;
PRAGMA checkpoint_fullfsync = ON;
PRAGMA foreign_keys = ON;
PRAGMA trusted_schema = OFF;
PRAGMA cell_size_check = ON;
PRAGMA secure_delete = ON;
PRAGMA journal_size_limit = 67108864;
"""

_ADVICE: Final[dict[type[apsw.Error], str]] = {
    apsw.BusyError: f"another process kept it locked for {BUSY_SECONDS} s: end that process, or try again",
    apsw.FullError: "the disk is full, and nothing of this was stored: make room, then go on",
    apsw.IOError: "the disk reported an error: check the disk and its free space, then open the store again",
    apsw.ReadOnlyError: "it cannot be written: check the permissions of the file and its folder, and the disk",
    apsw.CantOpenError: "it cannot be opened: check the permissions of the file and its folder, and the disk",
    apsw.PermissionsError: "it cannot be opened: check the permissions of the file and its folder, and the disk",
    apsw.CorruptError: "it is damaged: keep a copy, then restore a backup or try `sqlite3 FILE .recover`",
    apsw.NotADBError: "it is no SQLite database, and has been left as it is: choose another path",
    apsw.TooBigError: "an entry is larger than SQLite can hold (1 GB): keep such data in a file of its own",
}


def store_error(error: apsw.Error, path: str) -> StoreError:
    """What an error of SQLite means to whoever uses the store."""
    if isinstance(error, apsw.ConstraintError):
        return Conflict(f"the store {path!r} already holds one of these entries, elsewhere in the log: read it again")
    advice = next((advice for kind, advice in _ADVICE.items() if isinstance(error, kind)), "nobody foresaw this")
    return StoreError(f"the store {path!r} failed: {advice} ({type(error).__name__}: {error})")


def connect(path: str) -> Connection:
    """Open the file, which is made if it is new. Raises `ConfigError` or `StoreError`."""
    check_place(path)
    try:
        make_file(path)
        _check_size(path)
        return _opened(path)
    except apsw.Error as error:
        raise store_error(error, path) from error
    except OSError as error:
        raise StoreError(f"the store {path!r} cannot be made: {error.strerror}; choose another path") from error


def _check_size(path: str) -> None:
    """SQLite takes a file of one byte for an empty one, and would overwrite it."""
    if 0 < os.stat(path).st_size < _SMALLEST:  # noqa: PTH116 - pathlib costs every start milliseconds
        raise apsw.NotADBError("it is too small to be one")


def _opened(path: str) -> Connection:
    connection = cast("Connection", apsw.Connection(path, flags=apsw.SQLITE_OPEN_READWRITE))
    try:
        connection.set_busy_timeout(BUSY_SECONDS * 1000)
        is_ours = _check_format(connection, path)
        _check_writable(connection)
        connection.config(apsw.SQLITE_DBCONFIG_DEFENSIVE, 1)
        # Only `close` below puts the log away. The copy of this connection in a forked child ends with that child,
        # and would otherwise delete the log under whoever uses it.
        connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
        _use_wal(connection, path)
        connection.execute(_PRAGMAS)
        if not is_ours:
            _make_tables(connection, path)
    except BaseException:
        connection.close()
        raise
    return connection


def transact(connection: Connection, job: Job[T]) -> T:
    """Do a job that is committed as a whole, or not at all."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        result = job(connection)
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
    return result


def close(connection: Connection) -> None:
    """Let go of the file; the last process to do so leaves it in one piece, without a log beside it."""
    connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 0)
    connection.close()


def _check_format(connection: Connection, path: str) -> bool:
    """Whether the file holds our tables; `False` when it is empty. Anything else is refused."""
    application, version, parts = connection.execute(_STAMP).get
    if (application, version, parts) == (0, 0, 0):
        return False
    if application != APPLICATION_ID:
        raise StoreError(f"{path!r} belongs to another program, and has been left as it is: choose another path")
    if version > FORMAT:
        raise StoreError(f"{path!r} has format {version}, and this version knows {FORMAT} at most: upgrade windlass")
    return True


def _check_writable(connection: Connection) -> None:
    """SQLite opens what it may not write for reading, and would fail at the first write."""
    if connection.readonly("main"):
        raise apsw.ReadOnlyError("it can only be read")


def _make_tables(connection: Connection, path: str) -> None:
    def make(connection: Connection) -> None:
        if not _check_format(connection, path):  # another process may have been quicker
            connection.execute(_SCHEMA)

    transact(connection, make)


def _use_wal(connection: Connection, path: str) -> None:
    """The change to a write-ahead log. SQLite does not wait for its lock here, and several may open a new file."""
    pause = 0.005
    for _ in range(round(BUSY_SECONDS / pause)):
        try:
            mode = connection.pragma("journal_mode", "wal")
        except apsw.BusyError:
            time.sleep(pause)
            continue
        if mode != "wal":
            raise StoreError(f"{path!r} lies where SQLite can keep no log (mode {mode!r}): choose another path")
        return
    raise apsw.BusyError("it stayed locked while it was being made")
