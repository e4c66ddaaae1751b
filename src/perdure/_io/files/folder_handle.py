"""Open, create and list files below an open folder, without following links.

Everything starts from a descriptor of the folder: if the folder itself is moved, or a link takes its place, the files
are still those of the folder that was opened. `openat2` does it in one step where the kernel has it; elsewhere each
name is opened in the one before it, without following links.
"""

import contextlib
import errno
import os
import stat
from collections.abc import Generator, Sequence
from typing import Final

from perdure._core.permission.targets.path import NONBLOCKING_FLAGS, STEP_BY_STEP, open_file_below

from . import linux_calls

NO_LINK_FLAG: Final = getattr(os, "O_NOFOLLOW", 0)
FOLDER_FLAGS: Final = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0)
PATH_FLAG: Final = getattr(os, "O_PATH", 0)
"""Opens a name without its content, to look at its status; 0 where there is no such flag."""
_CLOSE_FLAG: Final = getattr(os, "O_CLOEXEC", 0)


class FolderHandle:
    """An open folder, below which files and folders are opened by their names, never through a link."""

    def __init__(self, path: str) -> None:
        """Open the folder. Raises `OSError` if there is none."""
        self.path = path
        self._descriptor = -1
        self.one_step = STEP_BY_STEP and linux_calls.is_available()
        """True if the kernel resolves a whole path in one step."""
        if STEP_BY_STEP:
            self._descriptor = os.open(path, FOLDER_FLAGS | _CLOSE_FLAG)
        else:
            os.listdir(path)  # noqa: PTH208 - raises what opening it would raise

    def close(self) -> None:
        """Close the descriptor; may be called twice."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    def __del__(self) -> None:
        self.close()

    def open(self, steps: Sequence[str], flags: int, mode: int = 0o666) -> int:
        """Open the file at the end of these names; return its descriptor. Raises `OSError`, also for a link."""
        flags |= NO_LINK_FLAG | _CLOSE_FLAG | (0 if flags & PATH_FLAG else NONBLOCKING_FLAGS)
        if not STEP_BY_STEP:
            return open_file_below(self.path, steps, flags)
        if self._descriptor < 0:
            raise OSError(errno.EBADF, "the folder is closed")
        if self.one_step:
            return linux_calls.open_in_one_step(self._descriptor, "/".join(steps) or os.curdir, flags, mode)
        return self._open_step_by_step(steps, flags, mode)

    @contextlib.contextmanager
    def open_folder(self, steps: Sequence[str], *, create: bool = False) -> Generator[int]:
        """Open the folder at the end of these names, for the duration of a `with` block; `create` makes missing ones.

        Gives the descriptor. Raises `OSError` where the system has no descriptors of folders (Windows).
        """
        if not STEP_BY_STEP:
            raise OSError(errno.ENOTSUP, "this system cannot hold a folder open")
        descriptor = self._create_folders(steps) if create else self.open(steps, FOLDER_FLAGS)
        try:
            yield descriptor
        finally:
            os.close(descriptor)

    def _open_step_by_step(self, steps: Sequence[str], flags: int, mode: int) -> int:
        here = os.dup(self._descriptor)
        try:
            for step in steps[:-1]:
                below = os.open(_check_step(step), FOLDER_FLAGS | NO_LINK_FLAG | NONBLOCKING_FLAGS, dir_fd=here)
                os.close(here)
                here = below
            name = _check_step(steps[-1]) if steps else os.curdir
            return os.open(name, flags, mode, dir_fd=here)
        finally:
            os.close(here)

    def _create_folders(self, steps: Sequence[str]) -> int:
        """Open the folder at the end of these names, and make those that are missing; return its descriptor."""
        here = self.open((), FOLDER_FLAGS)
        for step in steps:
            try:
                with contextlib.suppress(FileExistsError):
                    os.mkdir(_check_step(step), dir_fd=here)
                below = os.open(step, FOLDER_FLAGS | NO_LINK_FLAG | NONBLOCKING_FLAGS, dir_fd=here)
            finally:
                os.close(here)
            here = below
        return here


def let_owner_enter(folder: int, name: str) -> None:
    """Let the owner of a folder in an open one read and change it; does nothing with a link or a file.

    On Linux alone: there, what is opened without its content can be changed by its descriptor.
    """
    with contextlib.suppress(OSError):
        descriptor = os.open(name, PATH_FLAG | NO_LINK_FLAG, dir_fd=folder)
        try:
            if stat.S_ISDIR(os.fstat(descriptor).st_mode):
                os.chmod(f"/proc/self/fd/{descriptor}", stat.S_IRWXU)  # noqa: PTH101 - a descriptor
        finally:
            os.close(descriptor)


def _check_step(step: str) -> str:
    """Return a name of a path. Raises `OSError` for one that would lead elsewhere."""
    if step in {"", os.curdir, os.pardir} or "/" in step or os.sep in step:
        raise OSError(errno.EXDEV, "a name that leads out of its folder", step)
    return step
