"""The files of a directory that nobody has vouched for. Above: `loading.py`. Below: `text_file.py`.

A link may lead anywhere, and there may be more files than anybody would wait for: only what lies inside the directory
is read, after all links are followed, and the counting stops at a limit.
"""

# ruff: noqa: PTH115, PTH118 - pathlib would cost every start milliseconds
import os
import stat
from collections.abc import Iterator
from typing import Final

from perdure.context.text_file import lies_below, read_beginning
from perdure.core.error import ConfigError

MAX_FILE: Final = 1024 * 1024
"""Bytes of one file that is shown to a model."""
MAX_FILES: Final = 1000
"""Files and folders of one skill."""
MAX_TOTAL: Final = 32 * 1024 * 1024
"""Bytes of all files of a skill that is to be trusted."""
MAX_DEPTH: Final = 8
"""How deep the folders of a skill may be nested."""


def is_inside(directory: str, path: str) -> bool:
    """Whether a path lies in the directory, or is it, when all links are followed."""
    return lies_below(os.path.realpath(path), os.path.realpath(directory))


def read_inside(directory: str, name: str, limit: int = MAX_FILE) -> bytes:
    """A regular file of the directory. Anything else, and what is larger, is refused."""
    path = os.path.join(directory, name)
    if not is_inside(directory, path):
        raise ConfigError(f"{name!r} lies outside of {directory!r}: put the file itself there, not a link")
    found = read_beginning(os.path.realpath(path), limit)
    if found.cut:
        raise ConfigError(f"{name!r} has {found.size:,} bytes, and {limit:,} are the most: make it shorter")
    return found.data


def files_below(directory: str) -> Iterator[str]:
    """The names of all files of a directory, folders and all, relative to it and with `/`, in a fixed order.

    Links are files here, and not followed. Raises when there are too many, or when they are nested too deep.
    """
    left = MAX_FILES
    waiting = [("", 1)]
    while waiting:
        folder, depth = waiting.pop()
        below: list[tuple[str, int]] = []
        for name, is_folder in _entries(os.path.join(directory, folder)):
            left -= 1
            if left < 0 or depth > MAX_DEPTH:
                raise ConfigError(f"there are more than {MAX_FILES} files, or more than {MAX_DEPTH} folders in another")
            if is_folder:
                below.append((f"{folder}{name}/", depth + 1))
            else:
                yield f"{folder}{name}"
        waiting += reversed(below)


def _entries(folder: str) -> list[tuple[str, bool]]:
    found: list[tuple[str, bool]] = []
    with os.scandir(folder) as entries:
        for entry in entries:
            found.append((entry.name, entry.is_dir(follow_symlinks=False)))
            if len(found) > MAX_FILES:
                break  # whoever asked stops there too
    return sorted(found)


def digests_of(directory: str) -> dict[str, str]:
    """The SHA-256 of each file by name; of a link, where it leads; of anything else, that it is no file."""
    left = MAX_TOTAL
    found: dict[str, str] = {}
    for name in files_below(directory):
        path = os.path.join(directory, name)
        mode = os.lstat(path).st_mode
        if stat.S_ISREG(mode):
            data = read_inside(directory, name, left)
            left -= len(data)
            found[name] = digest_of(data)
        else:
            found[name] = f"leads to {os.fsencode(os.readlink(path)).hex()}" if stat.S_ISLNK(mode) else "is no file"
    return found


def digest_of(data: bytes) -> str:
    """The SHA-256 of some bytes."""
    import hashlib

    return hashlib.sha256(data).hexdigest()


def hash_of(digests: dict[str, str]) -> str:
    """One hash for all files of a directory, whatever the order in which they were found."""
    lines = [os.fsencode(name) + b"\0" + digest.encode() + b"\0" for name, digest in sorted(digests.items())]
    return digest_of(b"".join(lines))
