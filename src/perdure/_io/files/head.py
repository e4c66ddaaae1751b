"""Read the first bytes of a regular file, at most a given number.

A path may be anything: a pipe without a writer, a device, a terabyte. So only regular files are opened, without
blocking, and no more is read than is needed. These functions go wherever a path leads: they are for files that the user
named, or trusts. `ConfinedFolder` is for all others.
"""

# ruff: noqa: PTH116 - a Path would cost every start milliseconds, and adds nothing here
import os
import stat
from typing import NamedTuple

from perdure._core.permission.targets.path import NONBLOCKING_FLAGS
from perdure._core.values.error import ConfigError


class UnreadableFile(ConfigError):
    """Raised when a file cannot be read; the message has its path and the reason."""


class FileHead(NamedTuple):
    """The first bytes of a file, and the size of the whole file."""

    data: bytes
    size: int
    """Size of the whole file, in bytes."""

    @property
    def is_truncated(self) -> bool:
        """True if the file has more bytes."""
        return self.size > len(self.data)


def read_file_head(path: str, max_bytes: int) -> FileHead:
    """Read at most `max_bytes` from the start of a regular file; links are followed.

    Raises `UnreadableFile` if it is missing or not regular.
    """
    try:
        _check_regular_file(path, os.stat(path))  # opening a device may do something already
        descriptor = os.open(path, os.O_RDONLY | NONBLOCKING_FLAGS)
        try:
            _check_regular_file(path, os.fstat(descriptor))
            return read_descriptor(descriptor, max_bytes)
        finally:
            os.close(descriptor)
    except (OSError, ValueError) as error:  # a ValueError for a path that no file system takes
        if isinstance(error, UnreadableFile):
            raise
        reason = getattr(error, "strerror", None) or str(error)
        raise UnreadableFile(f"{path!r} cannot be read: {reason}") from error


def read_descriptor(descriptor: int, max_bytes: int) -> FileHead:
    """Read at most `max_bytes` from an open file; return them with the size of the file.

    If the file grows meanwhile, the size is at least the number of bytes read.
    """
    size, data = os.fstat(descriptor).st_size, _read_bytes(descriptor, max_bytes)
    return FileHead(data, max(size, len(data)))


def is_path_below(path: str, folder: str) -> bool:
    """Return True if a path is inside a folder, both with links resolved."""
    try:
        return os.path.commonpath([path, folder]) == folder
    except ValueError:  # on different drives
        return False


def _check_regular_file(path: str, status: os.stat_result) -> None:
    if not stat.S_ISREG(status.st_mode):
        kind = "a folder" if stat.S_ISDIR(status.st_mode) else "no regular file"
        raise UnreadableFile(f"{path!r} is {kind}: name a file of text")


def _read_bytes(descriptor: int, most_bytes: int) -> bytes:
    """Read up to this many bytes; a single `os.read` may return fewer."""
    parts: list[bytes] = []
    while most_bytes > 0 and (part := os.read(descriptor, min(most_bytes, 1 << 20))):
        parts.append(part)
        most_bytes -= len(part)
    return b"".join(parts)
