"""Read, list and create files below a folder, without following a path or link that leads out of it.

A path is resolved once, with its links; what that gives is checked, and exactly that is opened by
`perdure.permissions`. So neither `..`, nor a link, nor a process that replaces a
folder by a link meanwhile leads outside. Files are opened without blocking, so that a pipe cannot stall the caller, and
only regular ones are read.
"""

# ruff: noqa: PTH118, PTH206 - descriptors and `dir_fd` are the point here, and a Path has neither
import errno
import os
import stat
from collections.abc import Callable, Sequence
from typing import TypeAlias

from perdure._core.permission.targets.path import list_names_below, open_file_below
from perdure._core.values.error import ConfigError
from perdure._io.home.runtime_files import WHY_REFUSED, RuntimeFilesBelow

from .head import FileHead, read_descriptor
from .sensitive import SENSITIVE_NAMES, find_blocking_pattern, is_link_to_secret
from .written import note_written_file

Steps: TypeAlias = tuple[str, ...]
"""The names on the way from a folder to a file below it."""


class FileRefused(ConfigError):
    """Raised when a file below a folder may not be read or written; the message is a reason, such as "it is a link"."""


class ConfinedFolder:
    """A folder below which files are read, listed and created; no path or link can lead out of it."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        blocked: Sequence[str] = (),
        follow_links: bool = True,
        below: Steps = (),
        on_read: Callable[[str, FileHead], None] | None = None,
    ) -> None:
        """Resolve the folder; nothing is opened yet.

        Args:
            path: The folder.
            blocked: Patterns of names that are refused (see `find_blocking_pattern`). What a link leads to is refused
                by `SENSITIVE_NAMES` in any case: whoever names a link hides the name of the file.
            follow_links: False to refuse links, wherever they lead.
            below: Names of the folders from `path` to this one, none of which may be a link when it is opened.
            on_read: Function that gets the path and the content of each file that is read.
        """
        self._anchor = os.path.realpath(path)
        self._below = below
        self._blocked = tuple(blocked)
        self._follow_links = follow_links
        self._on_read = on_read
        self.root = os.path.join(self._anchor, *below)
        """Absolute path of the folder, with links resolved."""
        self._runtime_files = RuntimeFilesBelow(self.root)

    def enter(self, path: str, *, blocked: Sequence[str] = ()) -> "ConfinedFolder":
        """Return a folder below this one, which its own files cannot leave either. Raises `FileRefused`."""
        steps = self.resolve(path, is_folder=True)
        below = (*self._below, *steps)
        return ConfinedFolder(
            self._anchor, blocked=blocked, follow_links=self._follow_links, below=below, on_read=self._on_read
        )

    def resolve(self, path: str, *, is_folder: bool = False) -> Steps:
        """Return the names on the path to a file below the folder, with links resolved; none for the folder itself.

        Raises `FileRefused` for a path that leads outside, or to a name that is blocked. It need not exist.
        """
        lexical, whole = self._split(path), os.path.join(self.root, path)
        try:
            real = os.path.realpath(whole) if self._follow_links else os.path.normpath(whole)
            steps = _split_below(real, self.root)
        except (OSError, ValueError) as error:  # a ValueError for another drive
            raise FileRefused("it is not a valid path") from error
        if steps is None:
            by_link = "it is a link that leads out of the folder, or behind one"
            raise FileRefused("it is outside the folder" if lexical is None else by_link)
        if self._runtime_files.has(steps):
            raise FileRefused(WHY_REFUSED)
        patterns = self._blocked if steps == lexical else (*self._blocked, *SENSITIVE_NAMES)
        if pattern := find_blocking_pattern((*steps, "file") if is_folder else steps, patterns):
            raise FileRefused(f"files like {pattern!r} may contain secrets, and are never read")
        return steps

    def read_head(self, path: str, max_bytes: int) -> FileHead:
        """Read at most `max_bytes` from the start of a regular file. Raises `FileRefused`."""
        return self.read_resolved(self.resolve(path), max_bytes)

    def read_whole(self, path: str, max_bytes: int) -> bytes:
        """Read a regular file of at most `max_bytes`. Raises `FileRefused`, also if it is larger."""
        found = self.read_head(path, max_bytes)
        if found.is_truncated:
            raise FileRefused(f"it has {found.size:,} bytes, and the limit is {max_bytes:,}: make it shorter")
        return found.data

    def read_resolved(self, steps: Steps, max_bytes: int) -> FileHead:
        """Read the regular file at a path that `resolve` returned; a step that has become a link is refused."""
        if not steps:
            raise FileRefused("it is a directory")
        try:
            descriptor = self._open(steps, os.O_RDONLY)
        except OSError as error:
            raise FileRefused(_describe_os_error(error)) from error
        try:
            _check_regular(descriptor)
            _check_secret_link(descriptor)
            found = read_descriptor(descriptor, max_bytes)
        except OSError as error:
            raise FileRefused(_describe_os_error(error)) from error
        finally:
            os.close(descriptor)
        if self._on_read is not None:
            self._on_read(os.path.join(self.root, *steps), found)
        return found

    def create_resolved(self, steps: Steps, data: bytes) -> None:
        """Write a new file at a path that `resolve` returned. Raises `FileExistsError`, or `OSError`."""
        with os.fdopen(self._open(steps, os.O_WRONLY | os.O_CREAT | os.O_EXCL), "wb") as file:
            file.write(data)
            file.flush()
            note_written_file(os.fstat(file.fileno()))

    def list_names(self) -> list[str]:
        """Return the names in the folder, in no order. Raises `OSError`, and `FileRefused` if it is no folder."""
        return list_names_below(self._anchor, self._below)

    # -- opening -------------------------------------------------------------------------------------------------------

    def _split(self, path: str) -> Steps | None:
        """Split a path into names, without resolving it; `None` if it leads out of the folder."""
        try:
            os.fsencode(path)
            steps = _split_below(os.path.normpath(os.path.join(self.root, path)), self.root)
        except (ValueError, UnicodeError) as error:
            raise FileRefused("it is not a valid path") from error
        if "\0" in path or (os.name == "nt" and ":" in "".join(steps or ())):
            raise FileRefused("it is not a valid path")
        return steps

    def _open(self, steps: Steps, flags: int) -> int:
        """Open the file at a path given as names, none of which may be a link."""
        return open_file_below(self._anchor, (*self._below, *steps), flags)


def _split_below(path: str, root: str) -> Steps | None:
    """Split the path from a folder to a file below it into names; `None` if it is not below."""
    steps = os.path.relpath(path, root).split(os.sep)
    if steps[0] == os.pardir:
        return None
    return () if steps == [os.curdir] else tuple(steps)


def _check_secret_link(descriptor: int) -> None:
    if is_link_to_secret(os.fstat(descriptor)):
        raise FileRefused("it is another name of a file in your home that may contain secrets, and is never read")


def _check_regular(descriptor: int) -> None:
    mode = os.fstat(descriptor).st_mode
    if not stat.S_ISREG(mode):
        raise FileRefused("it is a directory" if stat.S_ISDIR(mode) else "it is no regular file")


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
