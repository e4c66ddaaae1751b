"""Lock of a sandbox's working folder; the last process that releases it removes the sandbox's placeholder files."""

# ruff: noqa: PTH112, PTH118 - descriptors are the point here, and a Path has none

import contextlib
import fcntl
import hashlib
import os
import stat
import threading
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from perdure._core.values.clock import SYSTEM_CLOCK
from perdure._io.files.folder_handle import FolderHandle
from perdure._io.files.linux_calls import read_birth_time_ns
from perdure._io.home.runtime_files import count_hidden_files
from perdure._tools.git.mounts import list_git_placeholder_paths
from perdure._tools.sandbox.bubblewrap import list_placeholder_paths, make_user_temp_folder, remove_placeholders
from perdure._tools.sandbox.mount_check import is_in, list_planned_mounts
from perdure._tools.sandbox.trusted_files import find_clock_slack_ns

_MOST_ENTRIES: Final = 1_000_000
_TICK_NS: Final = 10_000_000
"""How much the times of files may be behind the clock."""
_SECOND_NS: Final = 1_000_000_000


class FailedStart(Struct, frozen=True):
    """The start of a sandbox that was given up: where it could create something, and when."""

    folders: Sequence[str]
    places: Sequence[str]
    """Where something was to be mounted."""
    kept: Collection[int]
    """The inodes of those of them that were there before."""
    since: float
    until: float = 0.0

    def end(self, now: float) -> "FailedStart":
        """Return it with the time at which it was given up."""
        return replace(self, until=now)


def remove_stray_placeholders(starts: Iterable[FailedStart]) -> None:
    """Remove empty folders and files that have a name of what was to be mounted, and were made meanwhile."""
    for start in starts:
        for folder in start.folders:
            with contextlib.suppress(OSError):
                top = FolderHandle(folder)
                try:
                    found = list(_find_strays(top, start))
                    for steps in sorted(found, key=len, reverse=True):  # what is below first
                        _remove_empty(top, steps)
                finally:
                    top.close()


def _find_strays(top: FolderHandle, start: FailedStart) -> Iterator[tuple[str, ...]]:
    since = int(start.since * _SECOND_NS) - _TICK_NS - find_clock_slack_ns(top.path)
    until = int(start.until * _SECOND_NS)
    names = {name for each in start.places for name in each.split("/")}
    waiting: list[tuple[str, ...]] = [()]
    left = _MOST_ENTRIES
    while waiting and left > 0:
        steps = waiting.pop()
        with contextlib.suppress(OSError), top.open_folder(steps) as folder, os.scandir(folder) as entries:
            for each in entries:
                left -= 1
                if each.is_dir(follow_symlinks=False):
                    waiting.append((*steps, each.name))
                is_new = each.name in names and each.inode() not in start.kept
                path = os.path.join(top.path, *steps, each.name)
                if is_new and since <= _find_birth_ns(path, each) <= until:
                    yield (*steps, each.name)


def _find_birth_ns(path: str, entry: "os.DirEntry[str]") -> int:
    """Return when a file or folder was made; where the system does not tell, when it was changed; 0 for a link."""
    found = entry.stat(follow_symlinks=False)
    if stat.S_ISLNK(found.st_mode):
        return 0
    return read_birth_time_ns(path) or found.st_ctime_ns


def _remove_empty(top: FolderHandle, steps: tuple[str, ...]) -> None:
    with contextlib.suppress(OSError), top.open_folder(steps[:-1]) as folder:
        found = os.stat(steps[-1], dir_fd=folder, follow_symlinks=False)
        if stat.S_ISDIR(found.st_mode):
            os.rmdir(steps[-1], dir_fd=folder)  # fails unless it is empty
        elif stat.S_ISREG(found.st_mode) and not found.st_size:
            os.unlink(steps[-1], dir_fd=folder)


_lock = threading.Lock()
_users: dict[str, int] = {}
_placeholders: dict[str, dict[str, bool]] = {}
"""By folder: what the sandbox creates to mount over; True for folders."""
_failed: dict[str, list[FailedStart]] = {}
_files: dict[str, int] = {}


class PlaceholderGuard:
    """Shared lock of a sandboxed command on its folder; the last release removes what the sandbox left."""

    def __init__(self, root: str) -> None:
        self._root: str | None = root
        self._hidden: Sequence[str] = ()
        self._start: FailedStart | None = None
        with _lock:
            if root not in _files:
                _files[root] = _lock_shared(root)
            paths = {**dict.fromkeys(list_placeholder_paths(root), True), **list_git_placeholder_paths(root)}
            _users[root] = _users.get(root, 0) + 1
            _placeholders.setdefault(root, {}).update(paths)
            self.descriptor = _files[root]
            """The locked file, for the sandbox: its command may live for a moment longer than this process."""

    def keep_hidden(self, files: Sequence[str], created: Iterable[str]) -> None:
        """Keep files of the runtime in place while the command runs, so that they stay hidden.

        Those that were created for it are removed when the last command has ended, if they are empty.
        """
        if self._root is not None:
            with _lock:
                _placeholders[self._root].update(dict.fromkeys(created, False))
            self._hidden = files
            count_hidden_files(files, 1)

    def expect_mounts(self, words: Sequence[str], folders: Sequence[str]) -> None:
        """Note what the words of bubblewrap mount in some folders: at what is missing there, it creates a placeholder.

        To be called right before they are run.
        """
        mounts = {
            place: source for source, place in list_planned_mounts(words) if any(is_in(place, top) for top in folders)
        }
        missing = {place: os.path.isdir(source) for place, source in mounts.items() if not os.path.lexists(place)}
        self._start = FailedStart(folders, [*mounts], _list_inodes(mounts.keys() - missing), SYSTEM_CLOCK.now())
        if self._root is not None:
            with _lock:
                _placeholders[self._root].update(missing)

    def note_failed_start(self) -> None:
        """Note that the command never began: what bubblewrap has created may lie where a link has led it."""
        if self._root is not None and self._start is not None:
            with _lock:
                _failed.setdefault(self._root, []).append(self._start.end(SYSTEM_CLOCK.now()))

    def release(self) -> None:
        """Give up the use; the last command of all processes that use the folder removes the empty files."""
        root, self._root = self._root, None
        if root is None:
            return
        count_hidden_files(self._hidden, -1)
        with _lock:
            _users[root] -= 1
            if _users[root]:
                return
            file, paths, failed = _files.pop(root), _placeholders.pop(root), _failed.pop(root, [])
            del _users[root]
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                files = [path for path, is_folder in paths.items() if not is_folder]
                remove_placeholders(paths.keys() - files, files)
                remove_stray_placeholders(failed)
            except OSError:  # another process runs a command there: removing a name would unmount what protects it
                pass
            finally:
                os.close(file)


def guard_placeholders(root: str) -> PlaceholderGuard:
    """Lock a working folder while a sandboxed command runs, so that the placeholders in it are not removed."""
    return PlaceholderGuard(root)


def remove_leftover_placeholders(root: str) -> None:
    """Remove the sandbox placeholders that a killed process left in a folder, unless a sandboxed command runs there."""
    guard_placeholders(root).release()


def _list_inodes(paths: Iterable[str]) -> list[int]:
    found: list[int] = []
    for each in paths:
        with contextlib.suppress(OSError):  # it is gone by now
            found.append(os.lstat(each).st_ino)
    return found


def _lock_shared(root: str) -> int:
    """Open the lock file of a working folder, and lock it; return its descriptor."""
    file = _open_lock(root)
    fcntl.flock(file, fcntl.LOCK_SH)
    return file


def _open_lock(root: str) -> int:
    """Open the lock file of a working folder: in the user's own part of the folder for temporary files."""
    name = hashlib.blake2b(root.encode("utf-8", "surrogateescape"), digest_size=16).hexdigest()
    return os.open(
        os.path.join(make_user_temp_folder(), name), os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600
    )
