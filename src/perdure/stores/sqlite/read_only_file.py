"""Open SQLite files that cannot be written: on a medium or in a folder that can only be read.

SQLite needs to write beside a file in WAL mode even to read it. Where that is impossible, a file without a write-ahead
log is opened as one that does not change; before each use the store looks whether it has changed all the same.
"""

# pathlib would cost every start milliseconds:
# ruff: noqa: PTH116, PTH120
import os
from urllib.parse import quote

import apsw

from perdure.core.error import StoreError


class ReadOnlyFile(StoreError):
    """The store lies where it can only be read."""


def is_read_only(path: str) -> bool:
    """Return True if a file exists that this process can only read, because of it, its folder or its medium."""
    return os.path.exists(path) and not (  # noqa: PTH110 - as above
        os.access(path, os.W_OK) and os.access(os.path.dirname(path) or ".", os.W_OK)
    )


def read_only_error(path: str) -> ReadOnlyFile:
    """Build the error for an attempt to write to a store that can only be read."""
    return ReadOnlyFile(
        f"the store {path!r} can only be read here: to write to it, check the permissions of the file and its folder, "
        "and the disk, or copy it to where it can be written"
    )


def unchanging_uri(path: str) -> str:
    """Return the URI that opens a file as one that does not change. Raises `StoreError` if it has a write-ahead log.

    Without the write-ahead log, what was stored last would be missing.
    """
    if _size(f"{path}-wal"):
        raise StoreError(
            f"the store {path!r} can only be read here, and was not closed in good order or is in use: copy it to "
            "where it can be written, together with the file of the same name and the ending '-wal'"
        )
    return f"file:{quote(path)}?immutable=1"


def read_only_flags() -> int:
    """Return the flags with which such a URI is opened."""
    return int(apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI)


def file_version(path: str) -> tuple[int, int, int, int, int]:
    """Return what changes when a file is replaced or written: device, inode, size, time, and size of its log."""
    try:
        status = os.stat(path)
    except OSError:
        return (0, 0, 0, 0, 0)
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, _size(f"{path}-wal")


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size
    except OSError:
        return 0
