"""Maintain an SQLite store: measure its size, vacuum it, back it up, restore a backup, and verify a file."""

# pathlib would cost every start milliseconds:
# ruff: noqa: PTH116, PTH120
import contextlib
import logging
import os
from collections.abc import Generator
from typing import Final

import apsw

from perdure._core.log.store import StoreSize
from perdure._core.values.error import StoreError
from perdure._stores.files import check_file_path, create_folder, make_path_absolute

from .database import connect, damaged_store_error, open_read_only, to_store_error
from .driver import Connection
from .file_system import rename_when_done
from .format.pages import find_checksum_vfs, has_checksums, write_checksums
from .format.schema import APPLICATION_ID, FORMAT, UNCHECKED_FORMAT
from .log import verify_every_row

_log: Final = logging.getLogger("perdure.stores")

_OWN_BYTES: Final = """
SELECT id, coalesce(sum(length(heads) + length(body) + coalesce(length(holes), 0)), 0)
FROM session LEFT JOIN pack ON pack.session = session.key WHERE tenant = '' AND id IS NOT NULL AND head > 0
GROUP BY session.key ORDER BY id"""


def measure_database(path: str, search_bytes: int, connection: Connection) -> StoreSize:
    """Return how many bytes a store takes, including its write-ahead log and search index."""
    free = int(connection.pragma("freelist_count")) * int(connection.pragma("page_size"))
    total = sum(_file_size(f"{path}{ending}") for ending in ("", "-wal", "-shm"))
    return StoreSize(total + search_bytes, free, search_bytes, dict(connection.execute(_OWN_BYTES).fetchall()))


def vacuum_database(connection: Connection) -> None:
    """Shrink the database file to its minimum size."""
    connection.execute("VACUUM")


def back_up_database(store: str, vfs: str | None, path: str) -> None:
    """Write a copy of a store to a new file, over a separate connection."""
    try:
        create_folder(os.path.dirname(path))
        connection = open_read_only(store, vfs)
        try:
            with rename_when_done(path) as place:
                _copy_with_checksums(connection, place, vfs)
        finally:
            connection.close()
    except apsw.Error as error:
        raise to_store_error(error, store) from error
    except OSError as error:
        raise StoreError(f"the backup {path!r} cannot be written: {error.strerror}; choose another path") from error


def restore(backup: str | os.PathLike[str], path: str | os.PathLike[str]) -> None:
    """Copy a backup of an SQLite store to `path`, where no store may exist yet.

    The backup is verified first; the copy appears complete or not at all.

    A backup is a store like any other: it can also be opened where it is.
    """
    source, target = make_path_absolute(backup), make_path_absolute(path)
    check_file_path(target)
    try:
        create_folder(os.path.dirname(target))
        with _open_verified(source) as connection, rename_when_done(target) as place:
            _copy_with_checksums(connection, place, None)
            verify(place)
    except OSError as error:
        raise StoreError(f"{source!r} cannot be copied to {target!r}: {error.strerror}; choose another path") from error


def verify(path: str | os.PathLike[str]) -> None:
    """Raise `StoreError` unless the file at `path` is an undamaged SQLite store that no process has open.

    Every page is read and its checksum compared. A file without checksums, made where SQLite cannot write them,
    is read and decoded completely; a warning in the log says that a changed byte may still go unnoticed.
    """
    with _open_verified(make_path_absolute(path)):
        pass


def _copy_with_checksums(connection: Connection, place: str, vfs: str | None) -> None:
    """Write a compact copy of a store to an empty file, with a checksum on every page, also if the store has none."""
    connection.execute("VACUUM INTO ?", (place,))
    if find_checksum_vfs(vfs) is None:
        return
    write_checksums(place, vfs)
    if connection.pragma("user_version") == UNCHECKED_FORMAT:
        copy = connect(place, vfs, flags=apsw.SQLITE_OPEN_READWRITE)
        try:
            copy.execute(f"PRAGMA user_version = {FORMAT}")
        finally:
            copy.close()


@contextlib.contextmanager
def _open_verified(path: str) -> Generator[Connection]:
    """Yield a read-only connection to a verified store. (Copying the file by other means would drop the locks of this
    process.)
    """
    if _file_size(f"{path}-wal"):
        raise StoreError(f"{path!r} is in use, or was not closed: make a backup of it with backup()")
    try:
        connection = connect(path, None, flags=apsw.SQLITE_OPEN_READONLY)
        try:
            _check_store(connection, path)
            yield connection
        finally:
            connection.close()
    except apsw.Error as error:
        raise to_store_error(error, path) from error


def _check_store(connection: Connection, path: str) -> None:
    _check_pages(connection, path)
    if connection.pragma("application_id") != APPLICATION_ID:
        raise StoreError(
            f"{path!r} is no store of perdure, or one of a version before the first release: choose another file"
        )
    if (version := connection.pragma("user_version")) > FORMAT:
        raise StoreError(f"{path!r} has format {version}, and this version knows {FORMAT} at most: upgrade perdure")
    if version == FORMAT and not has_checksums(connection):
        raise damaged_store_error(path, "its header says that its pages have no checksums")
    for check in ("integrity_check(1)", "foreign_key_check"):
        found = connection.execute(f"PRAGMA {check}").fetchall()
        if found not in ([], [("ok",)]):
            raise StoreError(f"{path!r} is damaged ({found}): use another backup, or try `sqlite3 FILE .recover`")
    if version == UNCHECKED_FORMAT:
        verify_every_row(connection)
        _log.warning(
            "%r has no checksums, because it was made where SQLite cannot write them: it can be read completely, but "
            "that no byte of it has changed is not verified",
            path,
        )


def _check_pages(connection: Connection, path: str) -> None:
    """Raise `StoreError` if the checksum of any page is wrong, also of one that is not in use."""
    if find_checksum_vfs() is None or not has_checksums(connection):
        return
    size = int(connection.pragma("page_size"))
    file = apsw.VFSFile("", path, [apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_MAIN_DB, 0])
    try:
        for offset in range(0, file.xFileSize(), size):
            if connection.execute("SELECT verify_checksum(?)", (file.xRead(size, offset),)).get != 1:
                raise damaged_store_error(path, f"the checksum of page {offset // size + 1} is wrong")
    finally:
        file.xClose()


def _file_size(path: str) -> int:
    try:
        return os.stat(path).st_size
    except OSError:
        return 0
