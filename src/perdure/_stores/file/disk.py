"""File system calls of the file store, safe against links and forks: open, write, read, sync, erase securely."""

# ruff: noqa: PTH104, PTH108, PTH116, PTH120 - paths are strings

import contextlib
import errno
import os
import stat
from collections.abc import Collection, Generator
from typing import Final

from perdure._core.values.error import StoreError
from perdure._stores.files import sync_data as sync_data  # noqa: PLC0414 - re-exported

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
        status = os.stat(file, follow_symlinks=False) if isinstance(file, str) else os.fstat(file)
    except OSError:
        return (0, 0)
    return status.st_dev, status.st_ino


TEMPORARY_SUFFIX: Final = ".tmp"
"""The suffix of a new file that is to replace another one."""
DOOMED_SUFFIX: Final = ".erase"
"""The suffix of a file that is to be overwritten."""
_ZEROS: Final = bytes(1024 * 1024)


def erase_file(path: str) -> None:
    """Overwrite the content of a file and delete it, if it exists. Raises `OSError`."""
    try:
        is_file = stat.S_ISREG(os.stat(path, follow_symlinks=False).st_mode)
    except FileNotFoundError:
        return
    if not is_file:
        os.unlink(path)
        return
    doomed = make_unused_path(path, DOOMED_SUFFIX)
    os.rename(path, doomed)
    sync_folder(os.path.dirname(path))  # else its name could reappear after a power failure, with zeros
    _overwrite_and_unlink(doomed)


@contextlib.contextmanager
def erase_replaced_file(path: str) -> Generator[None, None, None]:
    """Context manager: overwrite the old content on disk once the block has replaced the file at `path`.

    Raises `OSError`.
    """
    descriptor = open_file(path, os.O_WRONLY)
    doomed = make_unused_path(path, DOOMED_SUFFIX)
    try:
        with contextlib.suppress(OSError):  # not every file system knows second names: then a crash may leave bytes
            os.link(path, doomed)
        try:
            yield
        finally:
            if get_file_identity(path) != get_file_identity(descriptor):
                _overwrite(descriptor)
            with contextlib.suppress(FileNotFoundError):
                os.unlink(doomed)
    finally:
        close_file(descriptor)


def erase_stale_temporary_files(path: str) -> None:
    """Erase the temporary files that killed processes have left beside `path`. Raises `OSError`."""
    folder, name = os.path.split(path)
    with os.scandir(folder) as files:
        there = list(files)
    left = [file for file in there if file.name.startswith(f"{name}.") and is_temporary_file_name(file.name)]
    if left:
        in_use = {file.inode() for file in there if not is_temporary_file_name(file.name)}
        for file in left:
            with contextlib.suppress(FileNotFoundError):  # whoever replaced the file last was still about to erase it
                erase_stale_temporary_file(file, in_use)


def is_temporary_file_name(name: str) -> bool:
    """Return True if a file name is that of a temporary file, which may be in use or left by a killed process."""
    return name.endswith((TEMPORARY_SUFFIX, DOOMED_SUFFIX))


def erase_stale_temporary_file(file: os.DirEntry[str], in_use: Collection[int]) -> None:
    """Erase one temporary file; if its inode is in use under another name, delete only this name."""
    if file.inode() in in_use:
        os.unlink(file.path)
    else:
        _overwrite_and_unlink(file.path)


def make_unused_path(path: str, ending: str) -> str:
    """Return a path for a new file beside `path`: a random name with this suffix."""
    return f"{path}.{os.urandom(8).hex()}{ending}"


def _overwrite_and_unlink(path: str) -> None:
    descriptor = open_file(path, os.O_WRONLY)
    try:
        _overwrite(descriptor)
    finally:
        close_file(descriptor)
    os.unlink(path)


def _overwrite(descriptor: int) -> None:
    left = os.fstat(descriptor).st_size
    os.lseek(descriptor, 0, os.SEEK_SET)
    while left > 0:
        chunk = _ZEROS[:left]
        write_all(descriptor, chunk)
        left -= len(chunk)
    os.fsync(descriptor)
