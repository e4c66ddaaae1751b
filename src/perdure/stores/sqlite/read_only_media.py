"""Open SQLite files that lie on read-only media, or in read-only folders.

SQLite needs to write beside a file in WAL mode even to read it. Where that is impossible, a file without a write-ahead
log is opened as one that does not change; before each use the store looks whether it has changed all the same.
"""

# pathlib would cost every start milliseconds:
# ruff: noqa: PTH116, PTH120
import os
from urllib.parse import quote

import apsw

from perdure.core.error import StoreError


class ReadOnlyStoreError(StoreError):
    """Raised when a store cannot be written because its file, folder or medium is read-only."""


def is_read_only(path: str) -> bool:
    """Return True if a file exists, and this process cannot write to the file or to its folder."""
    return os.path.exists(path) and not (  # noqa: PTH110 - as above
        os.access(path, os.W_OK) and os.access(os.path.dirname(path) or ".", os.W_OK)
    )


def build_read_only_error(path: str) -> ReadOnlyStoreError:
    """Build the error for an attempt to write to a read-only store."""
    return ReadOnlyStoreError(
        f"the store {path!r} can only be read here: to write to it, check the permissions of the file and its folder, "
        "and the disk, or copy it to where it can be written"
    )


def build_immutable_uri(path: str) -> str:
    """Build the SQLite URI that opens a file as immutable. Raises `StoreError` if it has a write-ahead log.

    Without the write-ahead log, what was stored last would be missing.
    """
    if _size(f"{path}-wal"):
        raise StoreError(
            f"the store {path!r} can only be read here, and was not closed in good order or is in use: copy it to "
            "where it can be written, together with the file of the same name and the ending '-wal'"
        )
    return f"file:{quote(path)}?immutable=1"


def get_read_only_flags() -> int:
    """Return the SQLite flags for opening a file by the URI of `build_immutable_uri`."""
    return int(apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI)


def get_file_version(path: str) -> tuple[int, int, int, int, int]:
    """Return values that change when a file or its write-ahead log is written or replaced, such as size and time."""
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
