"""Open the file of an SQLite store: connections, check of the format, and error messages.

A file that is not a store of this project is refused and left as it is.
"""

# pathlib would cost every start milliseconds:
# ruff: noqa: PTH116
import contextlib
import os
import time
from collections.abc import Callable, Generator
from typing import Any, Final, TypeVar, cast

import apsw

from perdure._core.values.error import Conflict, StoreError
from perdure._io.home.runtime_files import is_hidden_from_command
from perdure._stores.files import check_file_path, create_file

from .driver import Connection
from .file_system import (
    build_immutable_uri,
    build_read_only_error,
    describe_lock_holder,
    get_read_only_flags,
    is_read_only,
)
from .format.pages import (
    find_checksum_vfs,
    has_checksums,
    is_checksum_error,
    reserve_checksum_space,
)
from .format.schema import APPLICATION_ID, FORMAT, TABLES
from .write.jobs import Job as Job  # noqa: PLC0414 - re-exported
from .write.single_append import APPEND_TRIGGER

T = TypeVar("T")

BUSY_SECONDS: Final = 30
"""The time that a write waits for other processes."""
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
    apsw.FullError: "the disk is full, and nothing of this was stored: make room, then go on",
    apsw.IOError: "the disk reported an error: check the disk and its free space, then open the store again",
    apsw.ReadOnlyError: "it cannot be written: check the permissions of the file and its folder, and the disk",
    apsw.CantOpenError: "it cannot be opened: check the permissions of the file and its folder, and the disk",
    apsw.PermissionsError: "it cannot be opened: check the permissions of the file and its folder, and the disk",
    apsw.CorruptError: "it is damaged: keep a copy, then restore a backup or try `sqlite3 FILE .recover`",
    apsw.NotADBError: "it is no SQLite database, and has been left as it is: choose another path",
    apsw.TooBigError: "an entry is larger than SQLite can hold (1 GB): keep such data in a file of its own",
}


def to_store_error(error: apsw.Error, path: str) -> StoreError:
    """Build a `StoreError` with advice from an SQLite error."""
    if isinstance(error, apsw.ConstraintError):
        return Conflict(f"the store {path!r} already holds one of these entries, elsewhere in the log: read it again")
    if is_checksum_error(error):
        return damaged_store_error(path, "the checksum of a page is wrong")
    if isinstance(error, apsw.BusyError):
        return StoreError(
            f"the store {path!r} failed: {describe_lock_holder(path)} kept it locked for {BUSY_SECONDS} s: continue "
            f"that process if it is stopped, or end it, then try again ({type(error).__name__}: {error})"
        )
    advice = next(
        (advice for kind, advice in _ADVICE.items() if isinstance(error, kind)), "unexpected error; please report it"
    )
    return StoreError(f"the store {path!r} failed: {advice} ({type(error).__name__}: {error})")


def damaged_store_error(path: str, found: str) -> StoreError:
    """Build the `StoreError` for a file whose bytes were changed by something other than a store."""
    return StoreError(
        f"the store {path!r} is damaged ({found}), and what it says cannot be trusted: keep a copy, then restore a "
        "backup or try `sqlite3 FILE .recover`"
    )


def open_to_write(path: str, vfs: str | None = None) -> Connection:
    """Open a connection for writing to an SQLite store; create the file if needed.

    Raises `ConfigError` or `StoreError`.
    """
    check_file_path(path)
    if is_read_only(path):
        raise build_read_only_error(path)
    try:
        create_file(path)
        _check_size(path)
        return _open_connection(path, vfs)
    except apsw.Error as error:
        raise to_store_error(error, path) from error
    except OSError as error:
        raise StoreError(f"the store {path!r} cannot be made: {error.strerror}; choose another path") from error


def _check_size(path: str) -> None:
    """Raise an error for a file too small to be a database: SQLite takes one byte for an empty file, and would
    overwrite it.
    """
    if 0 < os.stat(path).st_size < _SMALLEST:
        raise apsw.NotADBError("it is too small to be one")


def _open_connection(path: str, vfs: str | None) -> Connection:
    connection, version = _open_file(path, vfs)
    if version == 0:
        # What was opened while it was empty is not known to have checksums, also if another process has created it.
        close_and_checkpoint(connection)
        connection, version = _open_file(path, vfs)
    connection.execute(APPEND_TRIGGER).fetchall()
    return connection


def _open_file(path: str, vfs: str | None) -> tuple[Connection, int]:
    """Open a file, with tables created; return the connection, and the format that was found."""
    name = find_checksum_vfs(vfs)
    connection = connect(path, vfs, flags=apsw.SQLITE_OPEN_READWRITE)
    try:
        connection.set_busy_timeout(BUSY_SECONDS * 1000)
        version = _read_format(connection, path, vfs)
        _check_writable(connection)
        connection.config(apsw.SQLITE_DBCONFIG_DEFENSIVE, 1)
        # Only `close_and_checkpoint` below puts the log away. The copy of this connection in a forked child ends with
        # that child,
        # and would otherwise delete the log while others use it.
        connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
        if version == 0 and name is not None:
            reserve_checksum_space(connection)
        _enable_wal(connection, path)
        connection.execute(_PRAGMAS).fetchall()  # some give a row, at which it would stop
        if version == 0:
            _create_tables(connection, path, vfs)
    except BaseException:
        connection.close()
        raise
    return connection, version


def connect(path: str, vfs: str | None, *, flags: int) -> Connection:
    """Open a connection to a store's file that verifies the checksums of its pages. Raises `apsw.Error`."""
    name = find_checksum_vfs(vfs)
    connection = cast("Connection", apsw.Connection(path, flags=flags, vfs=vfs if name is None else name))
    disable_schema_programs(connection)
    return connection


def disable_schema_programs(connection: Connection) -> None:
    """Let no trigger and no view of a file run: it has none of ours, and whoever made the file may have planted some.

    Those of a connection itself, in its temporary schema, still run.
    """
    connection.config(apsw.SQLITE_DBCONFIG_ENABLE_TRIGGER, 0)
    connection.config(apsw.SQLITE_DBCONFIG_ENABLE_VIEW, 0)


def open_read_only(path: str, vfs: str | None = None) -> Connection:
    """Open a read-only connection to a store that this process has open for writing, or cannot write to."""
    try:
        if is_read_only(path):
            connection = connect(build_immutable_uri(path), vfs, flags=get_read_only_flags())
            _check_readable(connection, path, vfs)
        else:
            connection = connect(path, vfs, flags=apsw.SQLITE_OPEN_READONLY)
        connection.set_busy_timeout(BUSY_SECONDS * 1000)
        connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
        connection.execute(_PRAGMAS_TO_READ).fetchall()
    except apsw.Error as error:
        raise to_store_error(error, path) from error
    return connection


@contextlib.contextmanager
def open_wal_file(path: str, vfs: str | None) -> Generator[Any]:
    """Open the file of SQLite's write-ahead log, as a context manager.

    SQLite has no locks on it, so opening and closing it is harmless.
    """
    flags = [apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_WAL, 0]
    log = apsw.VFSFile(vfs or "", f"{path}-wal", flags)
    try:
        yield log
    finally:
        log.xClose()


def sync_wal(path: str, vfs: str | None) -> None:
    """Sync SQLite's write-ahead log to the disk after it was truncated, which SQLite itself does not do.

    Otherwise a power failure might undo the truncation.
    """
    with open_wal_file(path, vfs) as log:
        log.xSync(apsw.SQLITE_SYNC_FULL)


def file_identity(path: str) -> tuple[int, int]:
    """Return device and inode of the file at a path, to detect its replacement; zeros if there is no file."""
    try:
        status = os.stat(path)
    except OSError:
        return (0, 0)
    return status.st_dev, status.st_ino


def run_in_transaction(connection: Connection, job: Job[T]) -> T:
    """Run a job in a transaction, which is rolled back if anything raises, also an interrupt before its first step.

    Call it on a thread that no signal handler interrupts, where that is possible: all but the main thread.
    """
    with transaction(connection):
        return job(connection)


@contextlib.contextmanager
def transaction(connection: Connection, begin: str = "BEGIN IMMEDIATE") -> Generator[None]:
    """Context manager: run the block in a transaction, which is committed at its end, and rolled back if it raises."""
    roll_back_leftover(connection)
    try:
        connection.execute(begin)
        yield
        connection.execute("COMMIT")
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")


def roll_back_leftover(connection: Connection) -> None:
    """Roll back a transaction that was left open: nothing may be acknowledged inside of one that nobody commits."""
    if connection.in_transaction:
        connection.execute("ROLLBACK")


def close_and_checkpoint(connection: Connection) -> None:
    """Close a connection with a checkpoint; SQLite removes the write-ahead log when the last process closes.

    While a command runs from which the file is hidden, the log is emptied and stays: else the command could put another
    one in its place.
    """
    if is_hidden_from_command(connection.filename):
        with contextlib.suppress(apsw.Error):  # another process is using it
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    else:
        connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 0)
    connection.close()


def _read_format(connection: Connection, path: str, vfs: str | None = None) -> int:
    """Return the format of the file; 0 if it is empty. Raises `StoreError` for a file of another program, of a version
    before the first release, or of a newer format.
    """
    application, version, parts = connection.execute(_STAMP).get
    if (application, version, parts) == (0, 0, 0):
        return 0
    if application != APPLICATION_ID:
        raise StoreError(
            f"{path!r} belongs to another program, or to a version of perdure before the first release, and has been "
            "left as it is: choose another path"
        )
    if version > FORMAT:
        raise StoreError(f"{path!r} has format {version}, and this version knows {FORMAT} at most: upgrade perdure")
    if version == FORMAT:
        _check_checksums(connection, path, vfs)
    return int(version)


def _check_checksums(connection: Connection, path: str, vfs: str | None) -> None:
    """Raise `StoreError` unless the checksums of a file that has them are verified over this connection."""
    if find_checksum_vfs(vfs) is None:
        raise StoreError(
            f"the pages of {path!r} have checksums, for which this build of apsw lacks the extension `cksumvfs`: "
            "install apsw from the package index (pip install --force-reinstall apsw)"
        )
    if not has_checksums(connection):
        raise damaged_store_error(path, "its header says that its pages have no checksums")


def _check_readable(connection: Connection, path: str, vfs: str | None) -> None:
    """Raise `StoreError` for a file whose tables would have to be created before it could be read."""
    if _read_format(connection, path, vfs) == 0:
        raise StoreError(f"the store {path!r} is empty, and nothing can be written here: choose another path")


def _check_writable(connection: Connection) -> None:
    """Raise an error for a read-only file: SQLite would open it, and fail at the first write."""
    if connection.readonly("main"):
        raise apsw.ReadOnlyError("it can only be read")


def _create_tables(connection: Connection, path: str, vfs: str | None) -> None:
    def make(connection: Connection) -> None:
        if _read_format(connection, path, vfs) == 0:  # another process may have been quicker
            connection.execute(TABLES)
            if has_checksums(connection):
                connection.execute(f"PRAGMA user_version = {FORMAT}")

    run_in_transaction(connection, make)


def _enable_wal(connection: Connection, path: str) -> None:
    """Switch to write-ahead logging. SQLite does not wait for its lock here, and several processes may open a new
    file.
    """
    mode = retry_while_busy(lambda: connection.pragma("journal_mode", "wal"))
    if mode != "wal":
        raise StoreError(f"{path!r} lies where SQLite can keep no log (mode {mode!r}): choose another path")


def retry_while_busy(work: Callable[[], T]) -> T:
    """Call a function again for up to `BUSY_SECONDS` while another process has the file locked."""
    until = time.monotonic() + BUSY_SECONDS
    while True:
        try:
            return work()
        except apsw.BusyError:
            if time.monotonic() > until:  # an attempt may have waited itself: what counts is the time, not the number
                raise
            time.sleep(0.005)
