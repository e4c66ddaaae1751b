"""What an SQLite file takes, and its backups. Above: `store.py`, the command line. Below: `file.py`."""

# pathlib would cost every start milliseconds:
# ruff: noqa: PTH116, PTH120
import contextlib
import os
from collections.abc import Generator
from typing import Final, cast

import apsw

from perdure.core.error import StoreError
from perdure.core.store import StoreSize
from perdure.stores.place import check_place, checked_path, make_folder

from .connection import Connection
from .copy import copy_to, unfinished
from .file import connect_to_read, store_error
from .schema import APPLICATION_ID, FORMAT

_OWN_BYTES: Final = """
SELECT id, coalesce(sum(length(heads) + length(body) + coalesce(length(holes), 0)), 0)
FROM session LEFT JOIN pack ON pack.session = session.key WHERE tenant = '' AND id IS NOT NULL AND head > 0
GROUP BY session.key ORDER BY id"""


def size_of(path: str, search_bytes: int, connection: Connection) -> StoreSize:
    """What a store takes, with its logs."""
    free = int(connection.pragma("freelist_count")) * int(connection.pragma("page_size"))
    total = sum(_bytes_at(f"{path}{ending}") for ending in ("", "-wal", "-shm"))
    return StoreSize(total + search_bytes, free, search_bytes, dict(connection.execute(_OWN_BYTES).fetchall()))


def vacuum(connection: Connection) -> None:
    """Make the file as small as it can be."""
    connection.execute("VACUUM")


def back_up(store: str, vfs: str | None, path: str) -> None:
    """Write all that a store holds to a new file, over a connection of its own."""
    try:
        make_folder(os.path.dirname(path))
        connection = connect_to_read(store, vfs)
        try:
            copy_to(connection, path)
        finally:
            connection.close()
    except apsw.Error as error:
        raise store_error(error, store) from error
    except OSError as error:
        raise StoreError(f"the backup {path!r} cannot be written: {error.strerror}; choose another path") from error


def restore(backup: str | os.PathLike[str], path: str | os.PathLike[str]) -> None:
    """Put a backup in a place where there is no store. It is checked first, and appears there whole or not at all.

    A backup is a store like any other: it can also be opened where it lies.
    """
    source, target = checked_path(backup), checked_path(path)
    check_place(target)
    try:
        make_folder(os.path.dirname(target))
        with _in_good_order(source) as connection, unfinished(target) as place:
            connection.execute("VACUUM INTO ?", (place,))
            verify(place)
    except OSError as error:
        raise StoreError(f"{source!r} cannot be copied to {target!r}: {error.strerror}; choose another path") from error


def verify(path: str | os.PathLike[str]) -> None:
    """Raise a `StoreError` unless the file is a store that nobody has open, whole and in good order."""
    with _in_good_order(checked_path(path)):
        pass


@contextlib.contextmanager
def _in_good_order(path: str) -> Generator[Connection]:
    """A connection for reading alone. (Whoever copied the file by other means would drop the locks of this process.)"""
    if _bytes_at(f"{path}-wal"):
        raise StoreError(f"{path!r} is in use, or was not closed: make a backup of it with backup()")
    try:
        connection = cast("Connection", apsw.Connection(path, flags=apsw.SQLITE_OPEN_READONLY))
        try:
            _check(connection, path)
            yield connection
        finally:
            connection.close()
    except apsw.Error as error:
        raise store_error(error, path) from error


def _check(connection: Connection, path: str) -> None:
    if connection.pragma("application_id") != APPLICATION_ID:
        raise StoreError(f"{path!r} is no store of perdure: choose another file")
    if (version := connection.pragma("user_version")) > FORMAT:
        raise StoreError(f"{path!r} has format {version}, and this version knows {FORMAT} at most: upgrade perdure")
    for check in ("integrity_check(1)", "foreign_key_check"):
        found = connection.execute(f"PRAGMA {check}").fetchall()
        if found not in ([], [("ok",)]):
            raise StoreError(f"{path!r} is damaged ({found}): use another backup, or try `sqlite3 FILE .recover`")


def _bytes_at(path: str) -> int:
    try:
        return os.stat(path).st_size
    except OSError:
        return 0
