"""Open or replace files so that only their owner can read them, also those that others could read before."""

# ruff: noqa: PTH105, PTH108, PTH120, PTH123 - pathlib would cost every start milliseconds
import contextlib
import os
import stat
from collections.abc import Generator
from typing import Final

from perdure.core.clock_and_ids import new_id

_PRIVATE: Final = 0o600
_IS_POSIX: Final = os.name == "posix"
_NEW: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)


def open_private_file(path: str, flags: int) -> int:
    """Open a file so that only its owner can read it; pass it to `open` as the argument `opener`.

    The permissions of a file that is there already are taken from everybody else, before anything is written. Pipes and
    devices, such as `/dev/stdout`, keep theirs.
    """
    descriptor = os.open(path, flags, _PRIVATE)
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISREG(mode) and stat.S_IMODE(mode) & ~_PRIVATE:
        with contextlib.suppress(OSError):  # the file of somebody else, which we may write to
            os.fchmod(descriptor, _PRIVATE)
    return descriptor


def replace_private_file(path: str, content: bytes, mode: int = _PRIVATE) -> None:
    """Replace a file, or a link, in one step, and wait until it is on the disk: readers see the old one or the new one.

    Only its owner can read it, unless `mode` has other permissions.
    """
    beside = f"{path}.{new_id()}"
    descriptor = os.open(beside, _NEW, mode)
    try:
        with open(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(descriptor)
        os.replace(beside, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(beside)
        raise
    _sync_folder(os.path.dirname(path) or os.curdir)


def _sync_folder(folder: str) -> None:
    """Wait until the new name is on the disk. A file system that cannot do that keeps what it has."""
    if not _IS_POSIX:
        return
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


@contextlib.contextmanager
def lock_folder(folder: str) -> Generator[None]:
    """Keep other threads and processes that do the same out of a folder during a block; that needs no lock file.

    Windows has no such locks: there, nobody is kept out.
    """
    if not _IS_POSIX:
        yield
        return
    import fcntl

    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
