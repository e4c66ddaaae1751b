"""`FileRestorer`: gives paths of a folder an earlier state: a file, a link or a folder, or nothing.

A path is replaced only if it is as the caller expects. Files are written as a whole. No link is followed, on the way to
a path or at its end.
"""

import contextlib
import errno
import os
import stat
from typing import Final

from msgspec.structs import replace

from .atomic_file import open_atomic_file, put_link, remove_stale_files
from .confined_folder import FileRefused, Steps
from .file_head import read_descriptor
from .file_state import NOTHING, FileState, has_changed_mode
from .folder_handle import NO_LINK_FLAG, FolderHandle
from .jail import MOST_READ_BYTES, FileChanged, Jail, compute_digest, describe_os_error

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
