"""An SQLite file as the system sees it: read-only media, atomic copies, and which process has it locked."""

# ruff: noqa: PTH104, PTH108, PTH116, PTH120, PTH123

import contextlib
import os
from collections.abc import Generator
from typing import Final
from urllib.parse import quote

import apsw

from perdure._core.values.error import ConfigError, StoreError

# pathlib would cost every start milliseconds:


@contextlib.contextmanager
def rename_when_done(path: str) -> Generator[str]:
    """Context manager: yield a temporary path to write to; it is renamed to `path` if the block succeeds."""
    if os.path.lexists(path):
        raise ConfigError(f"{path!r} exists already, and has been left as it is: choose another path")
    place = f"{path}.{os.urandom(8).hex()}.unfinished"  # a name that no other process can have taken
    os.close(os.open(place, os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0) | os.O_RDWR, 0o600))
    try:
        yield place
        _publish(place, path)
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(place)


def _publish(place: str, path: str) -> None:
    with open(place, "rb+") as file:
        os.fsync(file.fileno())
    try:
        os.link(place, path)  # which, unlike a rename, replaces nothing
    except FileExistsError:
        raise ConfigError(f"{path!r} has come into being, and has been left as it is: choose another path") from None
    except OSError:
        os.rename(place, path)  # where a file can have but one name
    if hasattr(os, "O_DIRECTORY"):  # a name lasts only if its folder does
        descriptor = os.open(os.path.dirname(path) or ".", os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


# pathlib would cost every start milliseconds:

_WRITE_LOCK: Final = "120"
"""The byte of SQLite's shared memory that whoever writes has locked."""


def describe_lock_holder(path: str) -> str:
    """Return a phrase that names the process which has the store at `path` locked for writing."""
    try:
        inode = str(os.stat(f"{path}-shm").st_ino)
        with open("/proc/locks", encoding="ascii") as file:
            locks = [line.split() for line in file if " WRITE " in line]
        pid = next(int(fields[4]) for fields in locks if _is_write_lock(fields, inode))
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            state = file.read().rpartition(")")[2].split()[0]
    except (OSError, StopIteration, ValueError, IndexError):
        return "another process"
    return f"process {pid}, which is stopped," if state in "tT" else f"process {pid}"


def _is_write_lock(fields: list[str], inode: str) -> bool:
    """Return True for a line like `1: POSIX ADVISORY WRITE 4711 08:01:1234 120 120` of this file."""
    return len(fields) == 8 and fields[5].rpartition(":")[2] == inode and fields[6] == _WRITE_LOCK  # noqa: PLR2004


# pathlib would cost every start milliseconds:


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
