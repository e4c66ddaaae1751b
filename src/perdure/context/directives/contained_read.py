"""Read one regular file below a folder without leaving the folder.

The path is opened step by step from a descriptor of the folder, and no step may be a link: replacing a folder by a link
in the meantime does not lead outside. The opened file is checked again before it is read, and opened without blocking,
so that a pipe cannot stall it. On systems without `dir_fd`, the path must be free of links before and after it is
opened.
"""

# ruff: noqa: PTH118, PTH206 - descriptors and `dir_fd` are the point here, and a Path has neither
import errno
import os
import stat
from collections.abc import Sequence
from typing import Final

_NO_LINK_FLAG: Final = getattr(os, "O_NOFOLLOW", 0)
_NONBLOCKING_FLAGS: Final = getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOCTTY", 0) | getattr(os, "O_BINARY", 0)
_STEP_BY_STEP: Final = os.open in os.supports_dir_fd and bool(_NO_LINK_FLAG)


class ReadRefused(Exception):
    """A file was not read; the message is the reason."""


def split_path(path: str, root: str) -> tuple[str, ...]:
    """Split the path from a folder to a file below it into names. Raise `ReadRefused` for a path outside."""
    try:
        os.fsencode(path)
        whole = os.path.normpath(os.path.join(root, path))
        steps = os.path.relpath(whole, root).split(os.sep)
    except (ValueError, UnicodeError) as error:  # a ValueError for another drive
        raise ReadRefused("it is not a valid path") from error
    if "\0" in path or (os.name == "nt" and ":" in "".join(steps)):
        raise ReadRefused("it is not a valid path")
    if steps[0] == os.pardir:
        raise ReadRefused("it is outside the working directory")
    if steps == [os.curdir]:
        raise ReadRefused("it is a directory")
    return tuple(steps)


def read_contained_file(root: str, steps: Sequence[str], max_bytes: int) -> bytes:
    """Read the regular file at the path `steps` below `root`. Raise `ReadRefused` if it is too large, not regular, or
    behind a link.
    """
    try:
        descriptor = _open_stepwise(root, steps)
    except OSError as error:
        raise ReadRefused(_describe_os_error(error)) from error
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise ReadRefused("it is a directory" if stat.S_ISDIR(status.st_mode) else "it is no regular file")
        if status.st_size > max_bytes:
            raise ReadRefused(f"it has {status.st_size:,} bytes, and no more than {max_bytes:,} can be attached")
        data = _read_bytes(descriptor, max_bytes + 1)
    except OSError as error:
        raise ReadRefused(_describe_os_error(error)) from error
    finally:
        os.close(descriptor)
    if len(data) > max_bytes:  # it has grown since
        raise ReadRefused(f"it has more than {max_bytes:,} bytes, and no more can be attached")
    return data


def _open_stepwise(root: str, steps: Sequence[str]) -> int:
    if not _STEP_BY_STEP:
        return _open_with_checks(root, steps)
    here = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
    try:
        for step in steps[:-1]:
            below = os.open(step, os.O_RDONLY | os.O_DIRECTORY | _NO_LINK_FLAG | _NONBLOCKING_FLAGS, dir_fd=here)
            os.close(here)
            here = below
        return os.open(steps[-1], os.O_RDONLY | _NO_LINK_FLAG | _NONBLOCKING_FLAGS, dir_fd=here)
    finally:
        os.close(here)


def _open_with_checks(root: str, steps: Sequence[str]) -> int:
    path = os.path.join(root, *steps)
    _check_free_of_links(path)
    descriptor = os.open(path, os.O_RDONLY | _NO_LINK_FLAG | _NONBLOCKING_FLAGS)
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


def _read_bytes(descriptor: int, most_bytes: int) -> bytes:
    """Read up to this many bytes; a single `os.read` may return fewer."""
    parts: list[bytes] = []
    while most_bytes > 0 and (part := os.read(descriptor, min(most_bytes, 1 << 20))):
        parts.append(part)
        most_bytes -= len(part)
    return b"".join(parts)


def _describe_os_error(error: OSError) -> str:
    match error.errno:
        case errno.ENOENT:
            return "there is no such file"
        case errno.ELOOP | errno.EMLINK:
            return "it is a link, or behind one"
        case errno.ENOTDIR:
            return "there is no such file, or it is behind a link"
        case errno.ENXIO:
            return "it is no regular file"
        case _:
            return f"it cannot be read ({error.strerror or error})"
