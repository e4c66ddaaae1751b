"""Opening of files and folders inside a folder without following symbolic links, so that none leads out of it.

From a descriptor of the folder each name is opened in the one before it, without following links: a process that
replaces a folder by a link meanwhile leads nowhere. On systems without `dir_fd`, the path must be free of links before
and after it is opened.
"""

# ruff: noqa: PTH118, PTH120 - descriptors and `dir_fd` are the point here, and a Path has neither
import errno
import os
from collections.abc import Sequence
from typing import Final

NONBLOCKING_FLAGS: Final = getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOCTTY", 0) | getattr(os, "O_BINARY", 0)
"""Flags with which a pipe or a terminal cannot stall whoever opens it."""
_NO_LINK_FLAG: Final = getattr(os, "O_NOFOLLOW", 0)
_DIRECTORY_FLAGS: Final = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0)
STEP_BY_STEP: Final = os.open in os.supports_dir_fd and bool(_NO_LINK_FLAG)
"""True if this system can open a name in a folder that is open."""


def open_file_below(folder: str, steps: Sequence[str], flags: int) -> int:
    """Open a file inside a folder, by the names in its path (`steps`). Raises `OSError` if one of them is a link."""
    flags |= _NO_LINK_FLAG | NONBLOCKING_FLAGS
    if not STEP_BY_STEP:
        return _open_with_checks(os.path.join(folder, *steps), flags)
    here = open_folder_below(folder, steps[:-1])
    try:
        return os.open(steps[-1] if steps else os.curdir, flags, 0o666, dir_fd=here)
    finally:
        os.close(here)


def open_folder_below(folder: str, steps: Sequence[str]) -> int:
    """Open a folder inside a folder, by the names in its path (`steps`). Raises `OSError` if one of them is a link."""
    here = os.open(folder, _DIRECTORY_FLAGS)
    for step in steps:
        try:
            below = os.open(step, _DIRECTORY_FLAGS | _NO_LINK_FLAG | NONBLOCKING_FLAGS, dir_fd=here)
        finally:
            os.close(here)
        here = below
    return here


def list_names_below(folder: str, steps: Sequence[str]) -> list[str]:
    """List the names in a folder inside a folder, by its path (`steps`). Raises `OSError` if a step is a link."""
    if not STEP_BY_STEP:
        path = os.path.join(folder, *steps)
        _check_free_of_links(path)
        return os.listdir(path)  # noqa: PTH208
    here = open_folder_below(folder, steps)
    try:
        return os.listdir(here)  # noqa: PTH208
    finally:
        os.close(here)


def _open_with_checks(path: str, flags: int) -> int:
    _check_free_of_links(os.path.dirname(path) if flags & os.O_CREAT else path)
    descriptor = os.open(path, flags, 0o666)
    try:
        _check_free_of_links(path)
        _check_same_file(descriptor, path)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def _check_free_of_links(path: str) -> None:
    if os.path.normcase(os.path.realpath(path)) != os.path.normcase(path):
        raise OSError(errno.ELOOP, "a link")


def _check_same_file(descriptor: int, path: str) -> None:
    if not os.path.samestat(os.fstat(descriptor), os.lstat(path)):
        raise OSError(errno.ELOOP, "exchanged meanwhile")
