"""One regular file below a folder, read without leaving it. Above: `attachment.py`. Below: `os`.

The way is gone step by step, from a descriptor of the folder on, and no step may be a link at that moment: whoever
swaps a folder for a link meanwhile leads nobody out. What is opened is looked at again before it is read, and opened
without waiting, so that a pipe keeps nobody. Where a system cannot go step by step, the path must be free of links
before and after it is opened.
"""

# ruff: noqa: PTH118, PTH206 - descriptors and `dir_fd` are the point here, and a Path has neither
import errno
import os
import stat
from collections.abc import Sequence
from typing import Final

_NO_LINK: Final = getattr(os, "O_NOFOLLOW", 0)
_QUIETLY: Final = getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOCTTY", 0) | getattr(os, "O_BINARY", 0)
_STEP_BY_STEP: Final = os.open in os.supports_dir_fd and bool(_NO_LINK)


class NotRead(Exception):
    """Why a file was not read, in words."""


def steps_to(path: str, root: str) -> tuple[str, ...]:
    """The names on the way from a folder to a file below it. Raises `NotRead` for what cannot lie there."""
    try:
        os.fsencode(path)
        whole = os.path.normpath(os.path.join(root, path))
        steps = os.path.relpath(whole, root).split(os.sep)
    except (ValueError, UnicodeError) as error:  # a ValueError for another drive
        raise NotRead("it is no path of a file here") from error
    if "\0" in path or (os.name == "nt" and ":" in "".join(steps)):
        raise NotRead("it is no path of a file here")
    if steps[0] == os.pardir:
        raise NotRead("it lies outside the working directory")
    if steps == [os.curdir]:
        raise NotRead("it is a directory")
    return tuple(steps)


def read_inside(root: str, steps: Sequence[str], most_bytes: int) -> bytes:
    """All of a regular file. Raises `NotRead` when it is larger or something else, and for a link on the way."""
    try:
        descriptor = _opened(root, steps)
    except OSError as error:
        raise NotRead(_reason(error)) from error
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise NotRead("it is a directory" if stat.S_ISDIR(status.st_mode) else "it is no regular file")
        if status.st_size > most_bytes:
            raise NotRead(f"it has {status.st_size:,} bytes, and no more than {most_bytes:,} can be attached")
        data = _read(descriptor, most_bytes + 1)
    except OSError as error:
        raise NotRead(_reason(error)) from error
    finally:
        os.close(descriptor)
    if len(data) > most_bytes:  # it has grown since
        raise NotRead(f"it has more than {most_bytes:,} bytes, and no more can be attached")
    return data


def _opened(root: str, steps: Sequence[str]) -> int:
    if not _STEP_BY_STEP:
        return _opened_whole(root, steps)
    here = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
    try:
        for step in steps[:-1]:
            below = os.open(step, os.O_RDONLY | os.O_DIRECTORY | _NO_LINK | _QUIETLY, dir_fd=here)
            os.close(here)
            here = below
        return os.open(steps[-1], os.O_RDONLY | _NO_LINK | _QUIETLY, dir_fd=here)
    finally:
        os.close(here)


def _opened_whole(root: str, steps: Sequence[str]) -> int:
    path = os.path.join(root, *steps)
    _check_free_of_links(path)
    descriptor = os.open(path, os.O_RDONLY | _NO_LINK | _QUIETLY)
    try:
        _check_free_of_links(path)
        _check_same(descriptor, path)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def _check_free_of_links(path: str) -> None:
    if os.path.normcase(os.path.realpath(path)) != os.path.normcase(path):
        raise OSError(errno.ELOOP, "a link")


def _check_same(descriptor: int, path: str) -> None:
    if not os.path.samestat(os.fstat(descriptor), os.lstat(path)):
        raise OSError(errno.ELOOP, "exchanged meanwhile")


def _read(descriptor: int, most_bytes: int) -> bytes:
    """A single read may stop short of what is there."""
    parts: list[bytes] = []
    while most_bytes > 0 and (part := os.read(descriptor, min(most_bytes, 1 << 20))):
        parts.append(part)
        most_bytes -= len(part)
    return b"".join(parts)


def _reason(error: OSError) -> str:
    match error.errno:
        case errno.ENOENT:
            return "there is no such file"
        case errno.ELOOP | errno.EMLINK:
            return "it is a link, or lies behind one"
        case errno.ENOTDIR:
            return "there is no such file, or it lies behind a link"
        case errno.ENXIO:
            return "it is no regular file"
        case _:
            return f"it cannot be read ({error.strerror or error})"
