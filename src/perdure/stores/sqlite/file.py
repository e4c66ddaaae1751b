"""The file of an SQLite store: how it is opened, what is in it, what its errors mean. Above: `writer.py`.
Below: apsw and `place.py`.

A file that is not ours is refused and left as it is.
"""

# pathlib would cost every start milliseconds:
# ruff: noqa: PTH116
import contextlib
import os
import time
from collections.abc import Generator
from typing import Any, Final, TypeVar, cast

import apsw

from perdure.core.error import Conflict, StoreError
from perdure.stores.place import check_place, make_file

from .batch import Job as Job  # noqa: PLC0414 - for whoever looks for it here
from .connection import Connection
from .copy import copy_to
from .schema import APPLICATION_ID, FORMAT, TABLES, migrate

T = TypeVar("T")

BUSY_SECONDS: Final = 30
"""How long a write waits for other processes."""
_SMALLEST: Final = 512  # bytes of a page, and so of a database

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

# A session is read as a whole, and by default SQLite keeps less than a long one takes. It fills only as far as needed.
_PRAGMAS_TO_READ: Final = """
PRAGMA trusted_schema = OFF;
PRAGMA cell_size_check = ON;
PRAGMA cache_size = -32768;
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


def connect(path: str, vfs: str | None = None) -> Connection:
    """Open the file, which is made if it is new. Raises `ConfigError` or `StoreError`."""
    check_place(path)
    try:
        make_file(path)
        _check_size(path)
        return _opened(path, vfs)
    except apsw.Error as error:
        raise store_error(error, path) from error
    except OSError as error:
        raise StoreError(f"the store {path!r} cannot be made: {error.strerror}; choose another path") from error


def _check_size(path: str) -> None:
    """SQLite takes a file of one byte for an empty one, and would overwrite it."""
    if 0 < os.stat(path).st_size < _SMALLEST:
        raise apsw.NotADBError("it is too small to be one")


def _opened(path: str, vfs: str | None) -> Connection:
    connection = cast("Connection", apsw.Connection(path, flags=apsw.SQLITE_OPEN_READWRITE, vfs=vfs))
    try:
        connection.set_busy_timeout(BUSY_SECONDS * 1000)
        version = _format_of(connection, path)
        _check_writable(connection)
        connection.config(apsw.SQLITE_DBCONFIG_DEFENSIVE, 1)
        # Only `close` below puts the log away. The copy of this connection in a forked child ends with that child,
        # and would otherwise delete the log under whoever uses it.
        connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
        _use_wal(connection, path)
        connection.execute(_PRAGMAS).fetchall()  # some give a row, at which it would stop
        if version == 0:
            _make_tables(connection, path)
        elif version < FORMAT:
            _bring_up(connection, path, version)
    except BaseException:
        connection.close()
        raise
    return connection


def connect_to_read(path: str, vfs: str | None = None) -> Connection:
    """Another connection to a file that is open, for reading alone."""
    try:
        connection = cast("Connection", apsw.Connection(path, flags=apsw.SQLITE_OPEN_READONLY, vfs=vfs))
        connection.set_busy_timeout(BUSY_SECONDS * 1000)
        connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
        connection.execute(_PRAGMAS_TO_READ).fetchall()
    except apsw.Error as error:
        raise store_error(error, path) from error
    return connection


@contextlib.contextmanager
def log_file(path: str, vfs: str | None) -> Generator[Any]:
    """SQLite's log, which bears none of its locks: opening and closing it disturbs nobody."""
    flags = [apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_WAL, 0]
    log = apsw.VFSFile(vfs or "", f"{path}-wal", flags)
    try:
        yield log
    finally:
        log.xClose()


def sync_log(path: str, vfs: str | None) -> None:
    """SQLite does not sync the end of its log when it cuts it: after a loss of power it might be as long as before."""
    with log_file(path, vfs) as log:
        log.xSync(apsw.SQLITE_SYNC_FULL)


def identity(path: str) -> tuple[int, int]:
    """Which file lies at a path; nothing that any file has when there is none."""
    try:
        status = os.stat(path)
    except OSError:
        return (0, 0)
    return status.st_dev, status.st_ino


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


def _format_of(connection: Connection, path: str) -> int:
    """Which of our formats the file has; 0 when it is empty. Anything else is refused."""
    application, version, parts = connection.execute(_STAMP).get
    if (application, version, parts) == (0, 0, 0):
        return 0
    if application != APPLICATION_ID:
        raise StoreError(f"{path!r} belongs to another program, and has been left as it is: choose another path")
    if version > FORMAT:
        raise StoreError(f"{path!r} has format {version}, and this version knows {FORMAT} at most: upgrade perdure")
    return int(version)


def _check_writable(connection: Connection) -> None:
    """SQLite opens what it may not write for reading, and would fail at the first write."""
    if connection.readonly("main"):
        raise apsw.ReadOnlyError("it can only be read")


def _make_tables(connection: Connection, path: str) -> None:
    def make(connection: Connection) -> None:
        if _format_of(connection, path) == 0:  # another process may have been quicker
            connection.execute(TABLES)

    transact(connection, make)


def _bring_up(connection: Connection, path: str, version: int) -> None:
    """From an older format to this one, in one transaction. What there was is kept beside it."""
    copy_to(connection, f"{path}.format-{version}", replace=True)

    def bring_up(connection: Connection) -> None:
        if _format_of(connection, path) < FORMAT:  # another process may have been quicker
            migrate(connection)

    connection.execute("PRAGMA synchronous = FULL")
    transact(connection, bring_up)
    connection.execute("PRAGMA synchronous = NORMAL")


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
