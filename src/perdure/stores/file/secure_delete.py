"""Erase files securely: overwrite their content before they are deleted.

A process that is killed in between leaves a file whose name ends in `DOOMED_SUFFIX`; the next one that rewrites or
deletes the session, or vacuums the store, finishes the work. Disks that write to a new place each time may keep the old
blocks for a while: no program can prevent that.
"""

# ruff: noqa: PTH104, PTH108, PTH116, PTH120 - paths are strings
import contextlib
import os
import stat
from collections.abc import Collection, Generator
from typing import Final

from .file_io import close_file, get_file_identity, open_file, sync_folder, write_all

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
