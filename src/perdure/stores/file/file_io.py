"""File system calls of the file store: open, write, read, sync and close, safe against links and forked processes.

Only regular files are opened, readable by their owner alone, and never through a symbolic link. A forked child closes
them at once: otherwise the kernel's locks would outlive the process that took them.
"""

import errno
import os
import stat
from typing import Final

from perdure.core.error import StoreError
from perdure.stores.disk_sync import sync_data as sync_data  # noqa: PLC0414 - re-exported

_FLAGS: Final = os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK  # to open a pipe would otherwise wait for its other end

_FULL: Final = "the disk is full, and nothing of this was stored: make room, then go on"
_FORBIDDEN: Final = "it cannot be opened or written: check the permissions of the file and its folder, and the disk"
_NO_FILE: Final = "there is something in its place that is no regular file: move that away"
_GONE: Final = "its folder is not there, or is none: choose another path, or put it back"
_ADVICE: Final = {
    **dict.fromkeys((errno.ENOSPC, errno.EDQUOT, errno.EFBIG), _FULL),
    **dict.fromkeys((errno.EACCES, errno.EPERM, errno.EROFS), _FORBIDDEN),
    **dict.fromkeys((errno.ELOOP, errno.EISDIR, errno.ENXIO), _NO_FILE),
    **dict.fromkeys((errno.ENOENT, errno.ENOTDIR), _GONE),
}

_open: set[int] = set()


def to_store_error(error: OSError, path: str) -> StoreError:
    """Build a `StoreError` with advice from an `OSError`."""
    disk = "the disk reported an error: check the disk and its free space, then open the session again"
    advice = _ADVICE.get(error.errno or 0, disk)
    return StoreError(f"the file {path!r} failed: {advice} ({error.strerror or error})")


def open_file(path: str, flags: int) -> int:
    """Open a regular file, never through a symbolic link, and return its descriptor. Raises `OSError`."""
    descriptor = os.open(path, flags | _FLAGS, 0o600)
    _open.add(descriptor)
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return descriptor
    close_file(descriptor)
    raise OSError(errno.ENXIO, "not a regular file", path)


def open_folder(path: str) -> int:
    """Open a folder and return its descriptor. Raises `OSError`."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    _open.add(descriptor)
    return descriptor


def close_file(descriptor: int) -> None:
    """Close a file descriptor, which also releases the kernel's lock on its file."""
    _open.discard(descriptor)
    os.close(descriptor)


def _close_inherited() -> None:
    while _open:
        os.close(_open.pop())


os.register_at_fork(after_in_child=_close_inherited)


def write_all(descriptor: int, data: bytes) -> None:
    """Write all of `data` to a file, in several calls if the system writes only a part, as on an almost full disk."""
    written = os.write(descriptor, data)
    while written < len(data):
        count = os.write(descriptor, memoryview(data)[written:])
        if not count:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        written += count


def read_at(descriptor: int, offset: int, count: int) -> bytes:
    """Read `count` bytes of a file from `offset` on; fewer at the end of the file."""
    data = os.pread(descriptor, count, offset)
    while 0 < len(data) < count and (more := os.pread(descriptor, count - len(data), offset + len(data))):
        data += more
    return data


def sync_folder(folder: str) -> None:
    """Sync a folder to the disk, so that the names of files created in it survive a power failure."""
    descriptor = open_folder(folder)
    try:
        os.fsync(descriptor)
    finally:
        close_file(descriptor)


def get_file_identity(file: int | str) -> tuple[int, int]:
    """Return device and inode of a file, which differ once it is replaced; zeros if it does not exist."""
    try:
        status = os.stat(file, follow_symlinks=False) if isinstance(file, str) else os.fstat(file)  # noqa: PTH116
    except OSError:
        return (0, 0)
    return status.st_dev, status.st_ino
