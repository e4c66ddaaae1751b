"""`Jail`: the folder in which tools read, list and write files; no path, link or race condition can lead out of it.

A path is resolved once, links included, into a `PathTarget`: that object is shown, checked and then used. What is
opened is exactly that path, below a descriptor of the folder, where no name may be a link any more. Only regular files
are read or replaced. A file is replaced as a whole: a new one is written without a name, synced, and takes its name.
"""

# ruff: noqa: PTH118, PTH206 - descriptors and `dir_fd` are the point, and a Path has neither
import contextlib
import errno
import hashlib
import os
import stat
from collections.abc import Generator, Sequence
from typing import Final

from msgspec import Struct

from perdure._core.permission.targets.path import PathTarget
from perdure._core.values.error import ConfigError
from perdure._io.home.runtime_files import WHY_REFUSED, RuntimeFilesBelow

from .atomic import open_atomic_file, remove_stale_files
from .confined_folder import FileRefused, Steps
from .folder_handle import PATH_FLAG, FolderHandle
from .head import FileHead, read_descriptor
from .protected import PROTECTED_NAMES
from .sensitive import SENSITIVE_NAMES, BlockedNames, find_blocking_pattern, is_link_to_secret

MOST_READ_BYTES: Final = 20 * 1024 * 1024
"""The largest file that is read."""
MOST_WRITTEN_BYTES: Final = 1024 * 1024 * 4
"""The largest file that is written."""
MOST_ENTRIES: Final = 1_000_000
"""The most entries of one folder that are looked at."""


class FileChanged(FileRefused):
    """Raised when a file is not what the writer expects: another process has changed, created or deleted it."""


class FolderEntry(Struct, frozen=True):
    """A file, folder or link in a folder listing: its name, kind and size."""

    name: str
    kind: str
    """`file`, `folder`, `link` or `other`."""
    size: int = 0
    """Size in bytes, of a file."""


class FileContent(Struct, frozen=True):
    """The content of a file at one moment: its bytes, their digest, and the permission bits of the file."""

    data: bytes
    digest: str
    """The SHA-256 of the bytes, in hex."""
    mode: int = 0o644


def compute_digest(data: bytes) -> str:
    """Return the SHA-256 digest of these bytes, in hex."""
    return hashlib.sha256(data).hexdigest()


class Jail:
    """A folder in which tools read, list and write files; no path, link or race condition can lead out of it.

    It is opened once; files are opened below its descriptor.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        blocked: Sequence[str] = (),
        protected: Sequence[str] = (),
    ) -> None:
        """Open the folder. Raises `ConfigError` if there is none.

        Args:
            path: The folder; links in its own path are resolved here, once.
            blocked: Patterns of names that are neither read nor written, besides `SENSITIVE_NAMES`.
            protected: Patterns of names that are never written, besides `PROTECTED_NAMES`.
        """
        for name, patterns in (("blocked", blocked), ("protected", protected)):
            if isinstance(patterns, str) or not all(isinstance(each, str) and each.strip("/ ") for each in patterns):
                raise ConfigError(f"{name}={patterns!r}: give a list of patterns, such as ['*.key', 'private/']")
        self.root = os.path.realpath(path)
        """The folder, with links resolved."""
        self._blocked = BlockedNames((*SENSITIVE_NAMES, *blocked))
        self._protected = (*PROTECTED_NAMES, *protected)
        self._runtime_files = RuntimeFilesBelow(self.root)
        self._cleaned: set[Steps] = set()
        """Folders from which it has removed what killed processes had left."""
        try:
            self._folder = FolderHandle(self.root)
        except (OSError, ValueError) as error:
            raise ConfigError(f"{os.fspath(path)!r} cannot be the folder of the tools: {error}") from error

    def close(self) -> None:
        """Close the folder; may be called twice."""
        self._folder.close()

    # -- names ---------------------------------------------------------------------------------------------------------

    def resolve(self, path: str) -> PathTarget:
        """Return the real path that a path leads to, with links followed, as it is now; it may lie outside.

        Raises `FileRefused` for what is no path at all.
        """
        try:
            os.fsencode(path)
            path.encode()
            if not path.strip() or "\0" in path:
                raise FileRefused("it is not a valid path")
            real = os.path.realpath(os.path.join(self.root, path))
        except (OSError, ValueError) as error:
            raise error if isinstance(error, FileRefused) else FileRefused("it is not a valid path") from error
        return PathTarget(real, self.root)

    def build_target(self, steps: Sequence[str]) -> PathTarget:
        """Return the target at the end of names that a walk has found; nothing is resolved."""
        return PathTarget(os.path.join(self.root, *steps), self.root)

    def check(self, target: PathTarget, *, write: bool = False, is_folder: bool = False) -> Steps:
        """Return the names on the way to a target. Raises `FileRefused` if it is outside, secret, or protected."""
        steps = self._steps_to(target)
        if self._runtime_files.has(steps):
            raise FileRefused(WHY_REFUSED)
        if pattern := find_blocking_pattern(steps, self._protected if write else ()):
            raise FileRefused(f"files like {pattern!r} are never written by tools; do not try again")
        if pattern := self.find_blocked(steps, is_folder=is_folder):
            raise FileRefused(f"files like {pattern!r} may contain secrets; do not try again")
        return steps

    def find_blocked(self, steps: Sequence[str], *, is_folder: bool = False) -> str:
        """Return the pattern, or the reason, for which a file or folder is hidden; empty if it is not."""
        if self._runtime_files.has(steps):
            return WHY_REFUSED
        return self._blocked.find(steps, is_folder=is_folder)

    def _steps_to(self, target: PathTarget) -> Steps:
        prefix = self.root if self.root.endswith(os.sep) else self.root + os.sep
        if target.path == self.root:
            return ()
        if not target.path.startswith(prefix):
            raise FileRefused(f"it is outside the working folder {self.root!r}")
        return tuple(target.path[len(prefix) :].split(os.sep))

    def show(self, target: PathTarget) -> str:
        """Return the path of a target relative to the folder, as tools show it; `.` for the folder itself."""
        try:
            return "/".join(self._steps_to(target)) or os.curdir
        except FileRefused:
            return target.path

    # -- reading -------------------------------------------------------------------------------------------------------

    def read(self, target: PathTarget, max_bytes: int = MOST_READ_BYTES) -> FileContent:
        """Read a regular file of at most `max_bytes`. Raises `FileRefused`."""
        with self.open_regular(target) as descriptor:
            found, status = read_descriptor(descriptor, max_bytes + 1), os.fstat(descriptor)
        _check_size(found, max_bytes)
        return FileContent(found.data, compute_digest(found.data), stat.S_IMODE(status.st_mode))

    @contextlib.contextmanager
    def open_regular(self, target: PathTarget) -> Generator[int]:
        """Open a regular file for reading, for the duration of a `with` block. Raises `FileRefused`."""
        steps = self.check(target)
        if not steps:
            raise FileRefused("it is a folder")
        try:
            descriptor = self._folder.open(steps, os.O_RDONLY)
        except OSError as error:
            raise FileRefused(describe_os_error(error)) from error
        try:
            status = os.fstat(descriptor)
            check_regular_file(status)
            if self._runtime_files.is_same_file(status):
                raise FileRefused(WHY_REFUSED)
            check_secret_link(status)
            yield descriptor
        except OSError as error:
            raise FileRefused(describe_os_error(error)) from error
        finally:
            os.close(descriptor)

    def list_folder(self, target: PathTarget) -> list[FolderEntry]:
        """Return the entries of a folder, sorted by name, without those that are hidden. Raises `FileRefused`."""
        steps = self.check(target, is_folder=True)
        try:
            entries = self.scan(steps)
        except OSError as error:
            raise FileRefused(describe_os_error(error, kind="folder")) from error
        return sorted(
            [each for each in entries if not self.find_blocked((*steps, each.name), is_folder=each.kind == "folder")],
            key=lambda each: each.name,
        )

    def is_regular(self, steps: Sequence[str]) -> bool:
        """Return True if there is a regular file at the end of these names, none of which is a link, or hidden."""
        if not steps or self.find_blocked(steps):
            return False
        try:
            descriptor = self._folder.open(steps, PATH_FLAG or os.O_RDONLY)
        except OSError:
            return False
        try:
            status = os.fstat(descriptor)
            return stat.S_ISREG(status.st_mode) and not is_link_to_secret(status)
        finally:
            os.close(descriptor)

    def scan(self, steps: Sequence[str]) -> list[FolderEntry]:
        """Return all entries of the folder at the end of these names, in no order. Raises `OSError`."""
        with self._folder.open_folder(steps) as descriptor, os.scandir(descriptor) as found:
            return [_describe_entry(each) for each, _ in zip(found, range(MOST_ENTRIES), strict=False)]

    @contextlib.contextmanager
    def open_folder(self, target: PathTarget) -> Generator[int]:
        """Open a folder, for the duration of a `with` block. Raises `FileRefused`."""
        try:
            with self._folder.open_folder(self.check(target, is_folder=True)) as descriptor:
                yield descriptor
        except OSError as error:
            raise FileRefused(describe_os_error(error, kind="folder")) from error

    # -- writing -------------------------------------------------------------------------------------------------------

    def write(
        self, target: PathTarget, data: bytes, *, expected: str | None = None, mode: int | None = None
    ) -> FileContent:
        """Replace a file, or create it with the folders above it, in one step. Raises `FileRefused`.

        Args:
            target: The file.
            data: Its new content.
            expected: The digest of the content that it must have now, else `FileChanged` is raised; empty if there must
                be no such file; `None` for anything.
            mode: Its permission bits; by default those of the file that is replaced.
        """
        steps = self.check(target, write=True)
        if not steps:
            raise FileRefused("it is a folder")
        if len(data) > MOST_WRITTEN_BYTES:
            raise FileRefused(f"it would have {len(data):,} bytes, and the limit is {MOST_WRITTEN_BYTES:,}")
        try:
            with self._folder.open_folder(steps[:-1], create=True) as folder:
                if steps[:-1] not in self._cleaned:  # once, for it reads the whole folder
                    remove_stale_files(folder)
                    self._cleaned.add(steps[:-1])
                return _replace(folder, steps[-1], data, expected, mode)
        except OSError as error:
            raise FileRefused(describe_os_error(error, verb="written")) from error

    def delete(self, target: PathTarget, *, expected: str) -> None:
        """Delete a regular file that has this digest. Raises `FileRefused`, or `FileChanged` if it has another."""
        steps = self.check(target, write=True)
        if not steps:
            raise FileRefused("it is a folder")
        try:
            with self._folder.open_folder(steps[:-1]) as folder:
                _check_expected(_read_in(folder, steps[-1]), expected)
                os.unlink(steps[-1], dir_fd=folder)
        except OSError as error:
            raise FileRefused(describe_os_error(error, verb="deleted")) from error


def _replace(folder: int, name: str, data: bytes, expected: str | None, mode: int | None) -> FileContent:
    """Give a new file the name of an old one in an open folder, once it is complete and synced."""
    before = _read_in(folder, name)
    _check_expected(before, expected)
    mode = mode if mode is not None or before is None else before.mode
    with open_atomic_file(folder, name) as new:
        _write_whole(new.descriptor, data)
        if mode is not None:
            os.fchmod(new.descriptor, mode)
        os.fsync(new.descriptor)
        mode = stat.S_IMODE(os.fstat(new.descriptor).st_mode)
        if before is None:
            try:
                new.take_name()
            except FileExistsError as error:
                raise FileChanged("another process has created it meanwhile") from error
        else:
            _check_expected(_read_in(folder, name), before.digest)
            new.replace()
    # The name is not synced: after a loss of power the file is either whole and old, or whole and new, and its digest
    # tells which.
    return FileContent(data, compute_digest(data), mode)


def _read_in(folder: int, name: str) -> FileContent | None:
    """Read the regular file of a name in an open folder; `None` if there is none. Raises `FileRefused` for others."""
    flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
    try:
        descriptor = os.open(name, flags, dir_fd=folder)
    except FileNotFoundError:
        return None
    try:
        status = os.fstat(descriptor)
        check_regular_file(status)
        found = read_descriptor(descriptor, MOST_READ_BYTES + 1)
        _check_size(found, MOST_READ_BYTES)
        return FileContent(found.data, compute_digest(found.data), stat.S_IMODE(status.st_mode))
    finally:
        os.close(descriptor)


def _check_expected(found: FileContent | None, expected: str | None) -> None:
    if expected is None or expected == ("" if found is None else found.digest):
        return
    if found is None:
        raise FileChanged("it has been deleted meanwhile")
    raise FileChanged("it exists already" if not expected else "its content has changed meanwhile")


def _write_whole(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def _check_size(found: FileHead, max_bytes: int) -> None:
    if found.is_truncated or len(found.data) > max_bytes:
        raise FileRefused(f"it has {max(found.size, len(found.data)):,} bytes, and the limit is {max_bytes:,}")


def check_secret_link(status: os.stat_result) -> None:
    """Raise `FileRefused` for a file that is a hard link to a secret in the user's home."""
    if is_link_to_secret(status):
        raise FileRefused("it is another name of a file in your home that may contain secrets; do not try again")


def check_regular_file(status: os.stat_result) -> None:
    """Raise `FileRefused` unless an open file, by its `status`, is a regular one: no folder, pipe, socket or device."""
    if not stat.S_ISREG(status.st_mode):
        raise FileRefused("it is a folder" if stat.S_ISDIR(status.st_mode) else "it is no regular file")


def _describe_entry(entry: os.DirEntry[str]) -> FolderEntry:
    if entry.is_symlink():
        return FolderEntry(entry.name, "link")
    if entry.is_dir(follow_symlinks=False):
        return FolderEntry(entry.name, "folder")
    if not entry.is_file(follow_symlinks=False):
        return FolderEntry(entry.name, "other")
    try:
        return FolderEntry(entry.name, "file", entry.stat(follow_symlinks=False).st_size)
    except OSError:  # it is gone meanwhile
        return FolderEntry(entry.name, "file")


def describe_os_error(error: OSError, *, verb: str = "read", kind: str = "file") -> str:
    """Return why a file cannot be opened, from its `OSError`, as a clause of a message to the model."""
    match error.errno:
        case errno.ENOENT:
            return f"there is no such {kind}"
        case errno.ELOOP | errno.EMLINK | errno.EXDEV:
            return "a name on its way has become a link since it was checked"
        case errno.ENOTDIR:
            return f"there is no such {kind}: a name on its way is no folder"
        case errno.EISDIR:
            return "it is a folder"
        case errno.ENXIO:
            return "it is no regular file"
        case _:
            return f"it cannot be {verb} ({error.strerror or error})"
