"""Remove what bubblewrap has created to mount over, in other places than planned, when a start was given up.

Another command can exchange folders for links while a sandbox is set up. The mounts are then found to be misplaced, and
the command is not started; but bubblewrap has created an empty folder or file where such a link led. Nobody knows the
places: a sandbox that was never complete is gone with its mounts. So they are searched for by their names and times.
"""

# ruff: noqa: PTH118 - descriptors are the point here, and a Path has none
import contextlib
import os
import stat
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from perdure.files.birth_time import read_birth_time_ns
from perdure.files.folder_handle import FolderHandle

from .trusted_files import find_clock_slack_ns

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
