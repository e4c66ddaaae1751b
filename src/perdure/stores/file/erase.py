"""Takes files away so that none of their bytes stays on the disk. Above: the file store. Below: `access.py`.

They are overwritten before they lose their last name. Whoever is killed in between leaves a file whose name ends in
`DOOMED`; the next one who rewrites or deletes the session, or cleans the store, does the rest. Disks that write to a
new place each time may keep the old one for a while: that is beyond the reach of any program.
"""

# ruff: noqa: PTH104, PTH108, PTH116, PTH120 - paths are strings
import contextlib
import os
import stat
from collections.abc import Collection, Generator
from typing import Final

from .access import close_file, identity, open_file, sync_folder, write_all

TEMPORARY: Final = ".tmp"
"""How a file ends that is to take the place of another one."""
DOOMED: Final = ".erase"
"""How a file ends that is to be overwritten."""
_ZEROS: Final = bytes(1024 * 1024)


def discard(path: str) -> None:
    """Take a file away, if there is one. Raises `OSError`."""
    try:
        is_file = stat.S_ISREG(os.stat(path, follow_symlinks=False).st_mode)
    except FileNotFoundError:
        return
    if not is_file:
        os.unlink(path)
        return
    doomed = new_name(path, DOOMED)
    os.rename(path, doomed)
    sync_folder(os.path.dirname(path))  # else its name could come back, with nothing but zeros
    _erase(doomed)


@contextlib.contextmanager
def erasing(path: str) -> Generator[None, None, None]:
    """The file at a path is erased when the block has put another one in its place. Raises `OSError`."""
    descriptor = open_file(path, os.O_WRONLY)
    doomed = new_name(path, DOOMED)
    try:
        with contextlib.suppress(OSError):  # not every file system knows second names: then a crash may leave bytes
            os.link(path, doomed)
        try:
            yield
        finally:
            if identity(path) != identity(descriptor):
                _overwrite(descriptor)
            with contextlib.suppress(FileNotFoundError):
                os.unlink(doomed)
    finally:
        close_file(descriptor)


def remove_leftovers(path: str) -> None:
    """Take away what was left beside a file by somebody who was killed. Raises `OSError`."""
    folder, name = os.path.split(path)
    with os.scandir(folder) as files:
        there = list(files)
    left = [file for file in there if file.name.startswith(f"{name}.") and is_leftover(file.name)]
    if left:
        in_use = {file.inode() for file in there if not is_leftover(file.name)}
        for file in left:
            remove_leftover(file, in_use)


def is_leftover(name: str) -> bool:
    """Whether a file is only there because somebody was killed, or is at work."""
    return name.endswith((TEMPORARY, DOOMED))


def remove_leftover(file: os.DirEntry[str], in_use: Collection[int]) -> None:
    """Take away one such file. A second name of one that is in use, under whichever name, is only a name."""
    if file.inode() in in_use:
        os.unlink(file.path)
    else:
        _erase(file.path)


def new_name(path: str, ending: str) -> str:
    """A name beside a file that nothing has."""
    return f"{path}.{os.urandom(8).hex()}{ending}"


def _erase(path: str) -> None:
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
