"""Judge what a command leaves also by the folder as it was before commands that ran beside it.

Of two commands that run at once, one may hide what the other has made until that one has ended, and was looked at. To
the one that stays it was there from the start. So a command takes over from each one that ends beside it what was in
the folder before that one, if it began earlier.
"""

# ruff: noqa: PTH115, PTH118, PTH119, PTH120 - before every command, where pathlib would cost time

import contextlib
import os
import stat
import threading
from collections.abc import Collection, Iterator, Sequence
from typing import Final, NamedTuple
from weakref import WeakSet

from msgspec import Struct

from perdure._core.values.clock import new_id
from perdure._io.files.folder_handle import FolderHandle, let_owner_enter
from perdure._io.files.protected import KEPT_FROM_COMMANDS, MADE_FOLDERS, RANKED_NAMES, list_preferred
from perdure._io.files.written import is_as_tools_wrote_it, note_written_file

from .bubblewrap import CONFIG_NAMES

_MOST_DEPTH: Final = 6
_MOST_ENTRIES: Final = 10_000
"""Entries below the working folder that are looked at before a command."""
_MOST_MOUNTS: Final = 32
"""Each makes the start of a command a fifth of a millisecond longer."""
_MOST_NAMED: Final = 8
"""Names of files that are told to the model."""
_MOST_NAME_BYTES: Final = 200
_SECOND_NS: Final = 1_000_000_000
_OWNER: Final = stat.S_IRWXU


class TrustedFile(Struct, frozen=True):
    """A file, folder or link with a trusted name, as it was before a command."""

    inode: int
    ctime_ns: int
    folder_inode: int
    """That of the folder it is in."""
    is_mounted: bool = False
    """True if the command finds it read-only."""
    link: str = ""
    """Where it leads, if it is a link."""


class TrustedFiles:
    """The files below some folders that other programs trust, as they were before a command."""

    def __init__(self, folders: Sequence[str], *, may_change: bool = False) -> None:
        """Look for them; `may_change` is for a command that a person lets write them."""
        self._root = folders[0] if folders else ""
        self.may_change = may_change
        """True if the command may make and change them."""
        self._found: dict[str, TrustedFile] = {}
        self._folders: dict[str, int] = {}
        """The folders that were looked at, with their inodes."""
        self.names: dict[str, Collection[str]] = {}
        """By folder: the names in it of which a program takes the first."""
        self.options: list[str] = []
        """Options of bubblewrap that make them read-only."""
        mounted: list[str] = []
        for folder in folders:
            for path, folder_inode, can_mount in _find_trusted(folder, self._folders, self.names):
                real = os.path.realpath(path)
                is_inside = real.startswith(f"{folder}/") and os.path.lexists(real)  # a link may lead to nothing
                is_mounted = can_mount and not may_change and is_inside and len(mounted) < _MOST_MOUNTS
                if is_mounted and real not in mounted:
                    mounted.append(real)
                with contextlib.suppress(OSError):
                    self._found[path] = _describe(path, folder_inode, is_mounted=is_mounted and real == path)
        for path in [path for path, each in self._found.items() if not each.is_mounted and _is_real_folder(path)]:
            self._add_content(path)
        for path in mounted:
            self.options += ["--ro-bind", path, path]
        self._states = {(each.inode, each.ctime_ns) for each in self._found.values()}
        self.mounted_inodes = {each.inode for each in self._found.values() if each.is_mounted}

    def _add_content(self, folder: str) -> None:
        """Add what is in a folder that is not mounted."""
        waiting, left = [folder], _MOST_ENTRIES
        while waiting and left > 0:
            here = waiting.pop()
            with contextlib.suppress(OSError), os.scandir(here) as entries:
                inode = os.lstat(here).st_ino
                for each in entries:
                    left -= 1
                    self._found[each.path] = _describe(each.path, inode, is_mounted=False)
                    waiting += [each.path] if each.is_dir(follow_symlinks=False) else []

    def is_covered(self, path: str) -> bool:
        """Return True for the configuration at the top of the working folder, which no command can write or make."""
        return os.path.dirname(path) == self._root and os.path.basename(path) in CONFIG_NAMES

    def was_there(self, status: os.stat_result) -> bool:
        """Return True if one of them is in this state: it may have come here with the folder above it."""
        return (status.st_ino, status.st_ctime_ns) in self._states

    def find_known(self, path: str) -> TrustedFile | None:
        """Return what was at a path before the command, if a program trusts its name."""
        return self._found.get(path)

    def was_folder(self, path: str, inode: int) -> bool:
        """Return True if this folder was at a path before the command."""
        return self._folders.get(path) == inode


class MovedFolders:
    """Tells which folders below a folder a command may have moved to where they are now.

    What is in a folder keeps its times when the folder is moved: it may be from an earlier command, which has made it
    where nobody looks for it.
    """

    def __init__(self, top: FolderHandle, before: TrustedFiles, since_ns: int) -> None:
        self._top = top
        self._before = before
        self._since_ns = since_ns
        self._moved: dict[tuple[str, ...], bool] = {}

    def has_moved(self, steps: tuple[str, ...]) -> bool:
        """Return True if the command may have moved a folder, or one that it is in."""
        known = next((count for count in range(len(steps), 0, -1) if steps[:count] in self._moved), 0)
        is_moved = bool(known) and self._moved[steps[:known]]
        for count in range(known + 1, len(steps) + 1):
            is_moved = self._moved[steps[:count]] = is_moved or self._may_be_moved(steps[:count])
        return is_moved

    def _may_be_moved(self, steps: tuple[str, ...]) -> bool:
        """Return True if both a folder and the one around it have changed, and it was not there before."""
        with contextlib.suppress(OSError):
            now = _stat(self._top, steps)
            if now.st_ctime_ns < self._since_ns or not stat.S_ISDIR(now.st_mode):
                return False
            if self._before.was_folder(os.path.join(self._top.path, *steps), now.st_ino):
                return False
            with self._top.open_folder(steps[:-1]) as above:
                return os.fstat(above).st_ctime_ns >= self._since_ns
        return False


class NewTrustedFiles:
    """Collects what a command has put below a folder under names that other programs trust, and sets it aside."""

    def __init__(self, top: FolderHandle, before: TrustedFiles, since_ns: int) -> None:
        self._top = top
        self._before = before
        self._since_ns = since_ns
        self._folders = MovedFolders(top, before, since_ns)
        self._found: dict[tuple[str, ...], int] = {}
        """The names on the way to each, and how many of them lead to what a program trusts."""

    def look_at(self, steps: tuple[str, ...], names: Sequence[str], links: Collection[str] = ()) -> None:
        """Look at the names in a folder, of which some are links.

        Of two folders, one in the other, the outer one is looked at first.
        """
        if any(each in MADE_FOLDERS for each in steps):
            return
        _, inside = KEPT_FROM_COMMANDS.find(steps)
        is_kept = bool(inside) and self._is_untouched(steps[:inside])
        for name in names:
            may_be = inside or KEPT_FROM_COMMANDS.list_candidates(name)
            count = inside or (KEPT_FROM_COMMANDS.find((*steps, name))[1] if may_be else 0)
            if not count and name in links and KEPT_FROM_COMMANDS.list_rests((*steps, name)):
                count = len(steps) + 1
            if count and self._is_new((*steps, name), is_kept=is_kept):
                self._found[*steps, name] = count
        had = frozenset(self._before.names.get(os.path.join(self._top.path, *steps), ()))
        for name, others in list_preferred(names):
            if name not in had and not had.isdisjoint(others) and self._is_new((*steps, name), is_kept=False):
                self._found[*steps, name] = len(steps) + 1

    def set_aside(self) -> list[str]:
        """Give all that was found names that no program knows; return the names that they had."""
        moved: dict[tuple[str, ...], None] = {}
        for steps, count in self._found.items():
            if any(steps[:length] in moved for length in range(count, len(steps))):
                continue  # it has gone with the folder it is in
            with contextlib.suppress(OSError):
                _move_aside(self._top, steps, count)
                moved[steps] = None
                self._restore_link(steps)
        return ["/".join(steps) for steps in moved]

    def accept(self) -> None:
        """Note all that was found as what a person has agreed to: no other command that ends later sets it aside."""
        for steps in self._found:
            with contextlib.suppress(OSError):
                note_written_file(_stat(self._top, steps))

    def _is_untouched(self, steps: tuple[str, ...]) -> bool:
        """Return True for a file or folder that was read-only all the time, at this place."""
        with contextlib.suppress(OSError):
            if _stat(self._top, steps).st_ino in self._before.mounted_inodes:
                return True  # wherever the folder above it has been moved to
        known = self._find_known(steps)
        if known is None or not known.is_mounted:
            return False
        with contextlib.suppress(OSError), self._top.open_folder(steps[:-1]) as above:
            # Whoever has moved the folder above it away, and put another in its place, has made another folder.
            return os.fstat(above).st_ino == known.folder_inode
        return False

    def _is_new(self, steps: tuple[str, ...], *, is_kept: bool) -> bool:
        """Return True for what a command has made or changed; `is_kept` is for what lies in a read-only folder."""
        try:
            now = _stat(self._top, steps)
        except OSError:
            return False
        has_other_name = stat.S_ISREG(now.st_mode) and now.st_nlink > 1  # by which it may have been written to
        if is_kept and not has_other_name:
            return False
        known = self._find_known(steps)
        if self._before.is_covered(os.path.join(self._top.path, *steps)):
            return False
        is_known = known is not None and known.inode == now.st_ino
        if is_known and stat.S_ISDIR(now.st_mode):
            return False  # of a folder that was there, only what is new in it matters
        if self._before.was_there(now) or is_as_tools_wrote_it(now):
            return False
        has_come = not (is_known or is_kept) and self._folders.has_moved(steps[:-1])
        # A folder of another machine may have a clock that is behind: whatever was not there is new, too.
        was_seen = known is not None or self._is_in_known_folder(steps)
        is_changed = now.st_ctime_ns >= self._since_ns or has_come or was_seen
        return is_changed and (has_other_name or not (is_kept or self._is_untouched(steps)))

    def _is_in_known_folder(self, steps: tuple[str, ...]) -> bool:
        """Return True if the folder that something is in was looked at before the command."""
        with contextlib.suppress(OSError), self._top.open_folder(steps[:-1]) as above:
            return self._before.was_folder(os.path.join(self._top.path, *steps[:-1]), os.fstat(above).st_ino)
        return False

    def _restore_link(self, steps: tuple[str, ...]) -> None:
        """Make a link again that the command has replaced."""
        known = self._find_known(steps)
        if known is not None and known.link:
            with self._top.open_folder(steps[:-1]) as folder:
                os.symlink(known.link, steps[-1], dir_fd=folder)

    def _find_known(self, steps: tuple[str, ...]) -> TrustedFile | None:
        return self._before.find_known(os.path.join(self._top.path, *steps))


def find_clock_slack_ns(folder: str) -> int:
    """Return how much older than a command the times of its changes may be: some file systems count in two seconds."""
    return 0 if os.lstat(folder).st_ctime_ns % _SECOND_NS else 2 * _SECOND_NS


def describe_set_aside(names: Sequence[str]) -> str:
    """Return what the model should know of names that were set aside."""
    listed = ", ".join(names[:_MOST_NAMED])
    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    return (
        f"other programs trust files with such names, so they were renamed to ….unused-…: {listed}{more}; to make one, "
        "use `write`, or run the command with configure=true: the user is asked"
    )


def _find_trusted(
    root: str, folders: dict[str, int], names: dict[str, Collection[str]]
) -> Iterator[tuple[str, int, bool]]:
    """Yield the paths below a folder that other programs trust, with the inode of the folder each is in.

    Also yields False for a link on the way to one: what else it leads to is not read-only for that. Adds the folders
    that are looked at to `folders`, with their inodes, and to `names` those in them of which a program takes the first.
    """
    level: list[tuple[str, ...]] = [()]
    seen = 0
    for _ in range(_MOST_DEPTH):
        below: list[tuple[str, ...]] = []
        for steps in level:
            folder = os.path.join(root, *steps)
            try:
                inode = os.lstat(folder).st_ino
                with os.scandir(folder) as entries:
                    listed = list(entries)
            except OSError:
                continue
            seen += len(listed)
            if seen > _MOST_ENTRIES:
                return
            folders[folder] = inode
            if present := RANKED_NAMES & {each.name for each in listed}:
                names[folder] = present
            for each in listed:
                if KEPT_FROM_COMMANDS.list_candidates(each.name) and KEPT_FROM_COMMANDS.find((*steps, each.name))[1]:
                    yield each.path, inode, True
                elif each.is_symlink() and (rests := KEPT_FROM_COMMANDS.list_rests((*steps, each.name))):
                    yield each.path, inode, False
                    named = [os.path.join(each.path, rest) for rest in rests]
                    yield from [(path, inode, True) for path in named if os.path.lexists(path)]
                elif each.name not in MADE_FOLDERS and each.is_dir(follow_symlinks=False):
                    below.append((*steps, each.name))
        level = below


def _describe(path: str, folder_inode: int, *, is_mounted: bool) -> TrustedFile:
    found = os.lstat(path)
    link = os.readlink(path) if stat.S_ISLNK(found.st_mode) else ""
    return TrustedFile(found.st_ino, found.st_ctime_ns, folder_inode, is_mounted=is_mounted, link=link)


def _stat(top: FolderHandle, steps: tuple[str, ...]) -> os.stat_result:
    with top.open_folder(steps[:-1]) as folder:
        return os.stat(steps[-1], dir_fd=folder, follow_symlinks=False)


def _move_aside(top: FolderHandle, steps: tuple[str, ...], count: int) -> None:
    """Rename what is at the end of these names, of which the first `count` lead to what a program trusts.

    What lies in a folder that a program trusts leaves it: some programs read all files of such a folder.
    """
    trusted = os.fsdecode(os.fsencode(steps[count - 1])[:_MOST_NAME_BYTES])
    new_name = f"{trusted}.unused-{new_id()[-8:]}"
    with top.open_folder(steps[:-1]) as source, top.open_folder(steps[: count - 1]) as target:
        try:
            os.rename(steps[-1], new_name, src_dir_fd=source, dst_dir_fd=target)
        except PermissionError:  # the command has closed the folders for their owner
            for folder in (source, target):
                os.fchmod(folder, stat.S_IMODE(os.fstat(folder).st_mode) | _OWNER)
            let_owner_enter(source, steps[-1])  # a folder that is moved elsewhere is written to as well
            os.rename(steps[-1], new_name, src_dir_fd=source, dst_dir_fd=target)


def _is_real_folder(path: str) -> bool:
    with contextlib.suppress(OSError):
        return stat.S_ISDIR(os.lstat(path).st_mode)
    return False


class FolderBefore(NamedTuple):
    """A moment before a command, and the files that other programs trusted then."""

    since_ns: int
    files: TrustedFiles


class CommandSpan:
    """The time of a running command, and what was in its folders before it."""

    def __init__(self, folders: Sequence[str], before: FolderBefore) -> None:
        """Begin with what was there before the command itself."""
        self.folders = tuple(folders)
        self.before = before
        self.earliest = before
        """What was there before the first of the commands that have ended beside it, or before itself."""
        with _lock:
            _running.add(self)

    def end(self) -> list[FolderBefore]:
        """End the command; return by what its folders are to be judged now.

        To be called before anybody looks at them: what another command hides during that look is then for that one.
        """
        with _lock:
            _running.discard(self)
            for each in _running:
                if each.folders == self.folders and self.earliest.since_ns < each.earliest.since_ns:
                    each.earliest = self.earliest
        return [self.before] if self.earliest is self.before else [self.before, self.earliest]


_lock: Final = threading.Lock()
_running: Final = WeakSet[CommandSpan]()
