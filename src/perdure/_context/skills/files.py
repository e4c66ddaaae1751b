"""Read and hash the files in a skill's directory.

The directory is not trusted.

A link may lead anywhere, and there may be very many files: only files inside the directory are read, after all links
are resolved, and counting stops at a limit.
"""

# ruff: noqa: PTH115, PTH118 - pathlib would cost every start milliseconds
import os
import stat
from collections.abc import Iterator
from typing import Final

from perdure._core.values.error import ConfigError
from perdure._io.files.confined_folder import ConfinedFolder, FileRefused
from perdure._io.files.head import is_path_below

MAX_FILE_BYTES: Final = 1024 * 1024
"""Maximum size of a file that is shown to a model, in bytes."""
MAX_FILES: Final = 1000
"""Maximum number of files and folders of a skill."""
MAX_TOTAL_BYTES: Final = 32 * 1024 * 1024
"""Maximum size of all files of a skill that can be trusted, in bytes."""
MAX_DEPTH: Final = 8
"""Maximum nesting of a skill's folders."""


def is_inside_directory(directory: str, path: str) -> bool:
    """Return True if a path is the directory or inside it, with all links resolved."""
    return is_path_below(os.path.realpath(path), os.path.realpath(directory))


def read_file_inside(directory: str, name: str, limit: int = MAX_FILE_BYTES) -> bytes:
    """Read a regular file inside a directory. Raises `ConfigError` if a link leads outside of it.

    It also raises `ConfigError` for other kinds of files, and for one that is too large.
    """
    folder = ConfinedFolder(directory)
    if not is_inside_directory(directory, os.path.join(directory, name)):
        raise ConfigError(f"{name!r} is outside of {directory!r}: put the file itself there, not a link")
    try:
        found = folder.read_head(name, limit)
    except FileRefused as error:
        raise ConfigError(f"{name!r} cannot be read: {error}") from error
    if found.is_truncated:
        raise ConfigError(f"{name!r} has {found.size:,} bytes, and the limit is {limit:,}: make it shorter")
    return found.data


def iterate_files(directory: str) -> Iterator[str]:
    """Yield the relative paths of all files in a directory and below, with `/`, in a fixed order.

    Links count as files and are not followed. Raise `ConfigError` if there are too many, or if they are nested too
    deep.
    """
    left = MAX_FILES
    waiting = [("", 1)]
    while waiting:
        folder, depth = waiting.pop()
        below: list[tuple[str, int]] = []
        for name, is_folder in _list_entries(os.path.join(directory, folder)):
            left -= 1
            if left < 0 or depth > MAX_DEPTH:
                raise ConfigError(f"there are more than {MAX_FILES} files, or folders nested deeper than {MAX_DEPTH}")
            if is_folder:
                below.append((f"{folder}{name}/", depth + 1))
            else:
                yield f"{folder}{name}"
        waiting += reversed(below)


def _list_entries(folder: str) -> list[tuple[str, bool]]:
    found: list[tuple[str, bool]] = []
    with os.scandir(folder) as entries:
        for entry in entries:
            found.append((entry.name, entry.is_dir(follow_symlinks=False)))
            if len(found) > MAX_FILES:
                break  # the caller stops there too
    return sorted(found)


def hash_files(directory: str) -> dict[str, str]:
    """Return the SHA-256 of each file in a directory, by path; links are not followed: their target is recorded."""
    left = MAX_TOTAL_BYTES
    found: dict[str, str] = {}
    for name in iterate_files(directory):
        path = os.path.join(directory, name)
        mode = os.lstat(path).st_mode
        if stat.S_ISREG(mode):
            data = read_file_inside(directory, name, left)
            left -= len(data)
            found[name] = hash_bytes(data)
        else:
            found[name] = f"leads to {os.fsencode(os.readlink(path)).hex()}" if stat.S_ISLNK(mode) else "is no file"
    return found


def hash_bytes(data: bytes) -> str:
    """Return the SHA-256 of some bytes as text."""
    import hashlib

    return hashlib.sha256(data).hexdigest()


def combine_hashes(digests: dict[str, str]) -> str:
    """Combine the hashes of all files of a skill into one hash, independent of their order."""
    lines = [os.fsencode(name) + b"\0" + digest.encode() + b"\0" for name, digest in sorted(digests.items())]
    return hash_bytes(b"".join(lines))
