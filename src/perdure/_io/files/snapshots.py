"""Snapshots of files for an undo: what is at a path, the folder of contents by digest, and giving a state back."""

# ruff: noqa: PTH101, PTH103, PTH105, PTH108, PTH110, PTH118 - a Path would cost every start milliseconds

import contextlib
import errno
import os
import re
import secrets
import stat
from collections.abc import Callable, Collection, Generator
from typing import Final, Literal, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from perdure._core.values.error import ConfigError
from perdure._io.home.paths import expand_user_path, lock_folder
from perdure._io.home.runtime_files import trust_runtime_file

from .atomic import open_atomic_file, put_link, remove_stale_files
from .confined_folder import FileRefused, Steps
from .folder_handle import NO_LINK_FLAG, FolderHandle
from .head import UnreadableFile, read_descriptor, read_file_head
from .jail import MOST_READ_BYTES, FileChanged, Jail, compute_digest, describe_os_error

_DIGEST: Final = re.compile(r"[0-9a-f]{64}")


class RemovedSnapshots(Struct, frozen=True):
    """Number and total size of the file snapshots that were deleted."""

    count: int = 0
    size_bytes: int = 0


class SnapshotFolder:
    """A folder that stores contents of files by digest; a `FileSnapshotBackend` for the file tools."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        """Name the folder; it is made at the first use."""
        self.folder: str = os.path.abspath(expand_user_path(os.fspath(folder)))  # noqa: PTH100
        """Absolute path of the folder."""
        trust_runtime_file(self, self.folder, "folder")

    def save(self, data: bytes) -> str:
        """Store a content, and return its digest. Raises `ConfigError` if it cannot be written."""
        digest = compute_digest(data)
        place = self._place_of(digest)
        beside = f"{place}.{secrets.token_hex(8)}"
        try:
            os.makedirs(os.path.dirname(place), mode=0o700, exist_ok=True)  # noqa: PTH120
            os.chmod(self.folder, 0o700)
            with lock_folder(self.folder):
                if os.path.exists(place):
                    os.utime(place)
                    return digest
                flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
                with os.fdopen(os.open(beside, flags, 0o600), "wb") as file:
                    file.write(data)
                os.replace(beside, place)
        except OSError as error:
            with contextlib.suppress(OSError):
                os.unlink(beside)
            raise ConfigError(f"a snapshot cannot be stored in {self.folder!r}: {error.strerror}") from error
        return digest

    def load(self, digest: str) -> bytes:
        """Return a content. Raises `ConfigError` if it is not there, or is not what was stored."""
        try:
            found = read_file_head(self._place_of(digest), MOST_READ_BYTES)
        except UnreadableFile as error:
            raise ConfigError(_describe_missing(self.folder, digest)) from error
        if compute_digest(found.data) != digest:
            raise ConfigError(f"the snapshot {digest[:12]} in {self.folder!r} is damaged, and is not used")
        return found.data

    def prune(self, older_than_seconds: float, now: float) -> int:
        """Delete contents that were stored before, and return their number: changes that need them cannot be undone."""
        return self._remove(lambda _: True, now - older_than_seconds).count

    def has_stored_before(self, time: float) -> bool:
        """Return True if there is a content that was last stored before a time, in seconds since 1970."""
        return any(found.st_mtime < time for _, _, found in self._list_files())

    def remove_unused(self, digests: Collection[str], *, stored_before: float) -> RemovedSnapshots:
        """Delete the contents with other digests than these that were last stored before a time.

        What another process stores meanwhile is kept. What a process has left that died while it stored is removed.
        """
        return self._remove(lambda digest: digest not in digests, stored_before)

    def _remove(self, is_unused: "Callable[[str], bool]", stored_before: float) -> RemovedSnapshots:
        count = size_bytes = 0
        for digest, place, found in self._list_files():
            if found.st_mtime >= stored_before or not is_unused(digest):
                continue
            with contextlib.suppress(OSError), lock_folder(self.folder):
                found = os.stat(place, follow_symlinks=False)  # noqa: PLW2901, PTH116 - it may have been stored again
                if found.st_mtime < stored_before:
                    os.unlink(place)
                    count, size_bytes = count + 1, size_bytes + found.st_size
        return RemovedSnapshots(count, size_bytes)

    def _list_files(self) -> "Generator[tuple[str, str, os.stat_result]]":
        """Yield the digest, the path and the state of each file; those that are half written have no true digest."""
        for folder, _, names in os.walk(self.folder):
            for name in names:
                place = os.path.join(folder, name)
                with contextlib.suppress(OSError):
                    yield os.path.basename(folder) + name, place, os.stat(place, follow_symlinks=False)  # noqa: PTH116, PTH119

    def _place_of(self, digest: str) -> str:
        if not _DIGEST.fullmatch(digest):
            raise ConfigError(f"{digest!r} is no digest of a snapshot")
        return os.path.join(self.folder, digest[:2], digest[2:])


def _describe_missing(folder: str, digest: str) -> str:
    """Return the message about a content that is not there: it was pruned, or the tools had another folder."""
    return (
        f"the content {digest[:12]} is not in the snapshots of {folder!r}: it was removed, or the tools stored it in "
        f"another folder; name that one: SnapshotFolder(…), or --snapshots on the command line"
    )


FileKind: TypeAlias = Literal["none", "file", "link", "folder"]
"""What is at a path."""


class FileState(Struct, frozen=True, array_like=True, omit_defaults=True):
    """The state of a path: the kind of what is there, the digest of its content, and its permission bits."""

    kind: FileKind = "none"
    digest: str = ""
    """SHA-256 of the content of a file, or of the target of a link; empty for a folder, and for nothing."""
    mode: int | None = None
    """Permission bits; `None` if they are not known, or mean nothing."""

    def is_same(self, other: "FileState", *, with_mode: bool = False) -> bool:
        """Return True if two states are alike; with `with_mode`, in their permission bits too, where both are known."""
        if (self.kind, self.digest) != (other.kind, other.digest):
            return False
        return not with_mode or None in {self.mode, other.mode} or self.mode == other.mode


NOTHING: Final = FileState()
"""The state of a path where there is no file."""


def build_file_state(digest: str, mode: int | None = None) -> FileState:
    """Return the state of a file with this digest; that of no file for the empty digest."""
    return FileState("file", digest, mode) if digest else NOTHING


def has_changed_mode(before: FileState, after: FileState) -> bool:
    """Return True if a change has given a file other permission bits, as far as both are known."""
    return None not in {before.mode, after.mode} and before.mode != after.mode


_NOT_EMPTY: Final = frozenset({errno.ENOTEMPTY, errno.EEXIST})


class FolderNotEmpty(FileRefused):
    """Raised when a folder cannot be removed because others have files in it."""


class FileRestorer:
    """Reads and restores the states of paths below one folder. Close it after use."""

    def __init__(self, root: str) -> None:
        """Open the folder. Raises `ConfigError` if there is none."""
        self._jail = Jail(root)
        self.root = self._jail.root
        """The folder, with links resolved."""
        self._folder = FolderHandle(self.root)
        self._cleaned: set[Steps] = set()
        self._made_folders: dict[Steps, int] = {}

    def close(self) -> None:
        """Close the folder."""
        self._folder.close()
        self._jail.close()

    def read(self, path: str) -> tuple[FileState, bytes]:
        """Return the state of a path, and the content of the file or the target of the link.

        Raises `FileRefused` for what can be neither read nor restored.
        """
        steps = self._check(path)
        try:
            with self._folder.open_folder(steps[:-1]) as folder:
                return _read_state(folder, steps[-1])
        except FileNotFoundError:
            return NOTHING, b""
        except NotADirectoryError:
            return NOTHING, b""  # where a folder was, there is a file now
        except OSError as error:
            raise FileRefused(describe_os_error(error)) from error

    def put(self, path: str, wanted: FileState, data: bytes, *, now: FileState, was: FileState | None = None) -> None:
        """Give a path a state, if it is still as it was read.

        Args:
            path: The path, relative to the folder.
            wanted: The state.
            data: The content of the file, or the target of the link.
            now: The state that it was read with. Raises `FileChanged` if it has another.
            was: The state that the change to be taken back has left; permission bits that the change has not touched
                stay as they are.
        """
        steps = self._check(path)
        mode = wanted.mode
        if was is not None and now.kind == wanted.kind and not has_changed_mode(wanted, was):
            mode = now.mode
        try:
            with self._folder.open_folder(steps[:-1], create=wanted != NOTHING) as folder:
                if steps[:-1] not in self._cleaned:
                    remove_stale_files(folder)
                    self._cleaned.add(steps[:-1])
                _replace(folder, steps[-1], replace(wanted, mode=mode), data, now)
            if wanted.kind == "folder" and now.kind != "folder" and mode is not None:
                self._made_folders[steps] = mode
        except OSError as error:
            if error.errno in _NOT_EMPTY:
                raise FolderNotEmpty("it is a folder, and others have files in it") from error
            raise FileRefused(describe_os_error(error, verb="restored")) from error

    def close_folders(self) -> None:
        """Give folders that were made here, and that nobody may write to, their own permission bits at last."""
        for steps, mode in reversed(self._made_folders.items()):
            with contextlib.suppress(OSError), self._folder.open_folder(steps) as folder:
                os.fchmod(folder, mode)
        self._made_folders.clear()

    def _check(self, path: str) -> Steps:
        steps = tuple(path.split("/"))
        if not path or os.pardir in steps or os.curdir in steps or "" in steps or "\0" in path:
            raise FileRefused("it is not a valid path")
        return self._jail.check(self._jail.build_target(steps), write=True)


def _read_state(folder: int, name: str) -> tuple[FileState, bytes]:
    """Return the state of a name in an open folder, and its content. Raises `OSError`, and `FileRefused`."""
    status = os.stat(name, dir_fd=folder, follow_symlinks=False)
    mode = stat.S_IMODE(status.st_mode)
    if stat.S_ISDIR(status.st_mode):
        return FileState("folder", "", mode), b""
    if stat.S_ISLNK(status.st_mode):
        data = os.fsencode(os.readlink(name, dir_fd=folder))
        return FileState("link", compute_digest(data)), data
    if not stat.S_ISREG(status.st_mode):
        raise FileRefused("it is no regular file")
    descriptor = os.open(name, os.O_RDONLY | NO_LINK_FLAG | getattr(os, "O_NONBLOCK", 0), dir_fd=folder)
    try:
        found = read_descriptor(descriptor, MOST_READ_BYTES + 1)
    finally:
        os.close(descriptor)
    if len(found.data) > MOST_READ_BYTES:
        raise FileRefused(f"it has {found.size:,} bytes, and the limit is {MOST_READ_BYTES:,}")
    return FileState("file", compute_digest(found.data), mode), found.data


def _replace(folder: int, name: str, wanted: FileState, data: bytes, now: FileState) -> None:
    mode = wanted.mode
    _check_now(folder, name, now)
    if wanted.kind == "folder":
        if now.kind != "folder":
            if now != NOTHING:
                os.unlink(name, dir_fd=folder)
            os.mkdir(name, dir_fd=folder)
            if mode is not None:
                _set_mode(folder, name, mode | 0o700)  # `close_folders` takes away what its files need now
        elif mode is not None:
            _set_mode(folder, name, mode)
        return
    if now.kind == "folder":
        os.rmdir(name, dir_fd=folder)
    if wanted.kind == "none":
        if now.kind in {"file", "link"}:
            os.unlink(name, dir_fd=folder)
    elif wanted.kind == "link":
        put_link(folder, name, data)
    elif now.kind == "file" and now.digest == wanted.digest:
        if mode is not None:
            _set_mode(folder, name, mode)
    else:
        _put_file(folder, name, data, mode, now)


def _set_mode(folder: int, name: str, mode: int) -> None:
    descriptor = os.open(name, os.O_RDONLY | NO_LINK_FLAG | getattr(os, "O_NONBLOCK", 0), dir_fd=folder)
    try:
        os.fchmod(descriptor, mode)
    finally:
        os.close(descriptor)


def _put_file(folder: int, name: str, data: bytes, mode: int | None, now: FileState) -> None:
    with open_atomic_file(folder, name) as new:
        view = memoryview(data)
        while view:
            view = view[os.write(new.descriptor, view) :]
        if mode is not None:
            os.fchmod(new.descriptor, mode)
        os.fsync(new.descriptor)
        if now.kind in {"none", "folder"}:
            try:
                new.take_name()
            except FileExistsError as error:
                raise FileChanged("another process has created it meanwhile") from error
        else:
            _check_now(folder, name, now)
            new.replace()


def _check_now(folder: int, name: str, now: FileState) -> None:
    try:
        found = _read_state(folder, name)[0]
    except FileNotFoundError:
        found = NOTHING
    if not found.is_same(now):
        raise FileChanged("it has changed meanwhile")
