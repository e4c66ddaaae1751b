"""A temporary folder that only this user can enter, and that is removed also when its process was killed.

Each process keeps a lock of the kernel on its folders. One that makes another folder removes those that no process has
locked: their process has ended.
"""

# ruff: noqa: PTH110, PTH118, PTH208 - a Path would cost every command milliseconds
import contextlib
import os
import shutil
import tempfile
import weakref
from typing import Final

_TRIES: Final = 5
_UNLOCKED_PREFIX: Final = "perdure-"
"""The beginning of the names of folders that could not be locked: nobody removes them but their process."""


class PrivateFolder:
    """A folder for temporary files of this process, which is removed on demand, or with this object."""

    def __init__(self, prefix: str, parent: str | None = None) -> None:
        """Create a folder whose name begins with `prefix`; remove those of dead processes that have the same prefix.

        Without a `parent` it lies in the folder for temporary files.
        """
        place = tempfile.gettempdir() if parent is None else parent
        remove_stale_folders(prefix, place)
        self.path, descriptor = _create_locked(prefix, place)
        self.remove = weakref.finalize(self, _remove, self.path, descriptor)


def remove_stale_folders(prefix: str, parent: str) -> None:
    """Remove the folders of this user with a prefix whose process has ended."""
    with contextlib.suppress(OSError):
        for name in os.listdir(parent):
            if name.startswith(prefix):
                with contextlib.suppress(OSError):
                    _remove_if_stale(os.path.join(parent, name))


def _remove_if_stale(path: str) -> None:
    """Remove a folder of this user unless a process has locked it. Raises `OSError` if it cannot be opened."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        if os.fstat(descriptor).st_uid == os.geteuid() and _try_lock(descriptor):
            _remove_tree(path)  # while it is locked: who has just made it makes another
    finally:
        os.close(descriptor)


def _create_locked(prefix: str, parent: str) -> tuple[str, int]:
    """Create a folder and lock it; return its path, and the descriptor that has the lock (-1 if none could be had)."""
    for _ in range(_TRIES):
        path = tempfile.mkdtemp(prefix=prefix, dir=parent)
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except FileNotFoundError:  # removed before it was locked
            continue
        except OSError:  # too many open files
            _remove_tree(path)
            break
        if _try_lock(descriptor) and os.path.exists(path):
            return path, descriptor
        os.close(descriptor)
    return tempfile.mkdtemp(prefix=_UNLOCKED_PREFIX, dir=parent), -1


def _try_lock(descriptor: int) -> bool:
    import fcntl  # which Windows does not have

    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _remove_tree(path: str) -> None:
    """Remove a folder with what is in it, as far as that is possible; before 3.13, Python cannot go down very far."""
    with contextlib.suppress(RecursionError):
        shutil.rmtree(path, ignore_errors=True)


def _remove(path: str, descriptor: int) -> None:
    _remove_tree(path)
    if descriptor >= 0:
        os.close(descriptor)
