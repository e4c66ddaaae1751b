"""How a file store opens, writes and syncs its files. Above: the other modules of the file store. Below: the system.

Only regular files, for their owner alone, and never through a symbolic link. A forked child closes them at once:
otherwise the kernel's locks would outlive the process that took them.
"""

import errno
import os
import stat
import sys
from typing import Final

from perdure.core.error import StoreError

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


def store_error(error: OSError, path: str) -> StoreError:
    """What an error of the system means to whoever uses the store."""
    disk = "the disk reported an error: check the disk and its free space, then open the session again"
    advice = _ADVICE.get(error.errno or 0, disk)
    return StoreError(f"the file {path!r} failed: {advice} ({error.strerror or error})")


def open_file(path: str, flags: int) -> int:
    """A descriptor of a regular file. Raises `OSError`."""
    descriptor = os.open(path, flags | _FLAGS, 0o600)
    _open.add(descriptor)
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return descriptor
    close_file(descriptor)
    raise OSError(errno.ENXIO, "not a regular file", path)


def open_folder(path: str) -> int:
    """A descriptor of a folder. Raises `OSError`."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    _open.add(descriptor)
    return descriptor


def close_file(descriptor: int) -> None:
    """Let go of a file, and with it of the kernel's lock on it."""
    _open.discard(descriptor)
    os.close(descriptor)


def _close_inherited() -> None:
    while _open:
        os.close(_open.pop())


os.register_at_fork(after_in_child=_close_inherited)


def write_all(descriptor: int, data: bytes) -> None:
    """Write to the end. A disk that is almost full takes a part, and says nothing."""
    written = os.write(descriptor, data)
    while written < len(data):
        count = os.write(descriptor, memoryview(data)[written:])
        if not count:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        written += count


def read_at(descriptor: int, offset: int, count: int) -> bytes:
    """The bytes at a place; fewer where the file ends."""
    data = os.pread(descriptor, count, offset)
    while 0 < len(data) < count and (more := os.pread(descriptor, count - len(data), offset + len(data))):
        data += more
    return data


def sync_data(descriptor: int) -> None:
    """Wait until what was written would survive the loss of power."""
    if sys.platform == "darwin":  # where a sync ends at the drive's own memory
        import fcntl

        fcntl.fcntl(descriptor, fcntl.F_FULLFSYNC)
    else:
        os.fdatasync(descriptor)


def sync_folder(folder: str) -> None:
    """Make the names in a folder last."""
    descriptor = open_folder(folder)
    try:
        os.fsync(descriptor)
    finally:
        close_file(descriptor)


def identity(file: int | str) -> tuple[int, int]:
    """What tells a file from any other that takes its name; zeros when there is none."""
    try:
        status = os.stat(file, follow_symlinks=False) if isinstance(file, str) else os.fstat(file)  # noqa: PTH116
    except OSError:
        return (0, 0)
    return status.st_dev, status.st_ino
