"""Write a file atomically: it gets its name when it is complete, so that no program sees a part of it.

Where the system can (Linux, on most file systems), the file is opened without a name: a process that is killed while it
writes leaves nothing behind. A free name is taken in one step. To replace a file, the new one needs another name for
the moment before it is renamed; elsewhere it has one from the beginning. Nobody can guess that name, and the file is
locked: what a killed process has left is recognised by `remove_stale_files`.
"""

# ruff: noqa: PTH112 - descriptors and `dir_fd` are the point
import contextlib
import errno
import os
import re
import secrets
import stat
from collections.abc import Generator
from typing import Final

from .written import note_written_file

_DESCRIPTORS: Final = "/proc/self/fd"
_NO_LINK: Final = getattr(os, "O_NOFOLLOW", 0)
_UNNAMED: Final = getattr(os, "O_TMPFILE", 0)
_NAME: Final = re.compile(r"\.perdure-[0-9a-f]{16}\.tmp")
"""The name that a file has for the time being."""


class AtomicFile:
    """A file that is written completely before its name appears in the folder; made by `open_atomic_file`."""

    def __init__(self, folder: int, name: str) -> None:
        """Open a file that is to be called `name`, in an open folder. Raises `OSError`."""
        self._folder = folder
        self._name = name
        self._beside = ""
        """The name that it has for the time being."""
        self.descriptor = self._open_unnamed()
        """The open file, for writing."""
        if self.descriptor < 0:
            self.descriptor = self._open_named()

    def take_name(self) -> None:
        """Give the file its name, which must be free. Raises `FileExistsError` if it is not."""
        if not self._beside:
            self._link(self._name)
        else:
            os.link(self._beside, self._name, src_dir_fd=self._folder, dst_dir_fd=self._folder, follow_symlinks=False)
            self._remove_beside()
        note_written_file(os.fstat(self.descriptor))

    def replace(self) -> None:
        """Give the file its name, instead of the file that has it, in one step."""
        if not self._beside:
            beside = _build_name()
            self._link(beside)
            self._beside = beside
        os.rename(self._beside, self._name, src_dir_fd=self._folder, dst_dir_fd=self._folder)
        self._beside = ""
        note_written_file(os.fstat(self.descriptor))

    def close(self) -> None:
        """Close the file; if it has not got its name, it is gone."""
        if self._beside:
            with contextlib.suppress(OSError):
                self._remove_beside()
        os.close(self.descriptor)

    def _open_unnamed(self) -> int:
        """Open a file without a name, locked; return -1 where that is not possible."""
        if not _UNNAMED or not os.path.isdir(_DESCRIPTORS):
            return -1
        try:
            descriptor = os.open(os.curdir, os.O_WRONLY | _UNNAMED, 0o666, dir_fd=self._folder)
        except OSError as error:
            if error.errno in {errno.EOPNOTSUPP, errno.EISDIR, errno.ENOENT, errno.EINVAL}:
                return -1
            raise
        _try_lock(descriptor)
        return descriptor

    def _open_named(self) -> int:
        while True:
            self._beside = _build_name()
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _NO_LINK
            descriptor = os.open(self._beside, flags, 0o666, dir_fd=self._folder)
            if _try_lock(descriptor) and os.fstat(descriptor).st_nlink:
                return descriptor
            os.close(descriptor)  # another process has removed it as stale, before it was locked

    def _link(self, name: str) -> None:
        os.link(f"{_DESCRIPTORS}/{self.descriptor}", name, dst_dir_fd=self._folder, follow_symlinks=True)

    def _remove_beside(self) -> None:
        beside, self._beside = self._beside, ""
        os.unlink(beside, dir_fd=self._folder)


@contextlib.contextmanager
def open_atomic_file(folder: int, name: str) -> Generator[AtomicFile]:
    """Open a new file for a `with` block; it appears in the folder as `name` only when it is complete."""
    file = AtomicFile(folder, name)
    try:
        yield file
    finally:
        file.close()


def remove_stale_files(folder: int) -> None:
    """Remove unfinished files that killed processes have left in an open folder: those that no process has locked."""
    with os.scandir(folder) as entries:
        names = [each.name for each in entries if _NAME.fullmatch(each.name)]
    for name in names:
        with contextlib.suppress(OSError):
            _remove_if_stale(folder, name)


def put_link(folder: int, name: str, target: bytes) -> None:
    """Make a symbolic link in an open folder, in one step, instead of the file or link that has its name."""
    beside = _build_name()
    os.symlink(target, os.fsencode(beside), dir_fd=folder)
    os.rename(beside, name, src_dir_fd=folder, dst_dir_fd=folder)


def _remove_if_stale(folder: int, name: str) -> None:
    if stat.S_ISLNK(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
        os.unlink(name, dir_fd=folder)  # it has its name for the moment between two system calls
        return
    descriptor = os.open(name, os.O_RDONLY | _NO_LINK | getattr(os, "O_NONBLOCK", 0), dir_fd=folder)
    try:
        if stat.S_ISREG(os.fstat(descriptor).st_mode) and _try_lock(descriptor):
            os.unlink(name, dir_fd=folder)
    finally:
        os.close(descriptor)


def _build_name() -> str:
    return f".perdure-{secrets.token_hex(8)}.tmp"


def _try_lock(descriptor: int) -> bool:
    """Lock an open file until it is closed; return False if another process has locked it."""
    import fcntl  # which Windows does not have

    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
