"""Reading and writing of text files below one folder.

A path is followed folder by folder, and none of them may be a link at that moment: so neither `..`, nor a link, nor a
process that swaps a folder for a link meanwhile leads outside. Links that stay inside are resolved first. Hidden files,
which often contain secrets, are refused.
"""

# ruff: noqa: PTH118, PTH123, PTH206 - descriptors and `dir_fd` are the point here, and a Path has neither
import os
import stat
from typing import Final

from perdure.core.error import ToolError

MOST_BYTES: Final = 100_000
"""The most bytes of a file that are read or written."""

_NO_LINK: Final = getattr(os, "O_NOFOLLOW", 0)
_SAFE_FLAGS: Final = getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOCTTY", 0) | getattr(os, "O_BINARY", 0)
_HAS_DIR_FD: Final = os.open in os.supports_dir_fd


class TextFolder:
    """A folder in which tools may read and create text files, and outside of which they may not."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._root = os.path.realpath(path)

    def full_path(self, path: str) -> str:
        """Return the full path, as permission rules and people see it; it need not exist."""
        return os.path.normpath(os.path.join(self._root, path))

    def read_text(self, path: str) -> str:
        """Return the text of a file; for a large file only the beginning, with a note."""
        try:
            data, size = self._read(path)
        except OSError as error:
            raise ToolError(f"{path!r} cannot be read: {error.strerror}") from error
        if b"\0" in data:
            raise ToolError(f"{path!r} is not a text file")
        text = data.decode("utf-8", "replace")
        return text if size <= len(data) else f"{text}\n[cut off: the first {len(data):,} of {size:,} bytes]"

    def write_text(self, path: str, text: str) -> str:
        """Create a new file, and return a message with its size."""
        data = text.encode("utf-8", "replace")
        if len(data) > MOST_BYTES:
            raise ToolError(f"the text has {len(data):,} bytes, and {MOST_BYTES:,} are the most: write several files")
        try:
            descriptor = self._open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
            with open(descriptor, "wb") as file:
                file.write(data)
        except FileExistsError as error:
            raise ToolError(f"{path!r} exists, and is not replaced: choose another name") from error
        except OSError as error:
            raise ToolError(f"{path!r} cannot be written: {error.strerror}") from error
        return f"wrote {len(data):,} bytes to {path!r}"

    def _read(self, path: str) -> tuple[bytes, int]:
        """Return the beginning of a file, and the size of the whole file."""
        descriptor = self._open(path, os.O_RDONLY)
        try:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                raise ToolError(f"{path!r} is not a regular file")
            return os.read(descriptor, MOST_BYTES), status.st_size
        finally:
            os.close(descriptor)

    def _open(self, path: str, flags: int) -> int:
        steps = self._resolve_steps(path)
        if not _HAS_DIR_FD:
            return os.open(os.path.join(self._root, *steps), flags | _SAFE_FLAGS, 0o666)
        here = os.open(self._root, os.O_RDONLY | os.O_DIRECTORY)
        try:
            for step in steps[:-1]:
                below = os.open(step, os.O_RDONLY | os.O_DIRECTORY | _NO_LINK, dir_fd=here)
                os.close(here)
                here = below
            return os.open(steps[-1], flags | _NO_LINK | _SAFE_FLAGS, 0o666, dir_fd=here)
        finally:
            os.close(here)

    def _resolve_steps(self, path: str) -> list[str]:
        """Return the names of the folders on the way to a file, with symbolic links resolved."""
        if not path.strip() or "\0" in path or not _is_encodable(path):
            raise ToolError(f"{path!r} is no path of a file")
        real = os.path.realpath(os.path.join(self._root, path))
        if not _is_below(real, self._root):
            raise ToolError(f"{path!r} lies outside the working folder: use a path below it")
        steps = os.path.relpath(real, self._root).split(os.sep)
        if any(step.startswith(".") for step in steps):
            raise ToolError(f"{path!r} is hidden, or no file at all: use one whose name has no dot in front")
        return steps


def _is_encodable(path: str) -> bool:
    """Return True if the path can be encoded for the file system."""
    try:
        os.fsencode(path)
    except UnicodeEncodeError:
        return False
    return True


def _is_below(path: str, root: str) -> bool:
    try:
        return os.path.commonpath([path, root]) == root
    except ValueError:  # on another drive
        return False
