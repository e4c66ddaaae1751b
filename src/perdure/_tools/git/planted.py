"""Set aside what names programs in git data that a command has put below its folder, as soon as it has ended.

What has a name that other programs trust is set aside on the same way through the folder: see `trusted_files`.

Nothing can keep a command from making a folder `.git`, or one that git takes for a bare repository, somewhere below.
The user's own git would run what its configuration and its hooks name: in that folder, and also above it, once
`git add` has made a submodule of it. So such data keep their commits and their plain settings, and nothing else.
"""

# ruff: noqa: PTH118, PTH208 - descriptors are the point here, and a Path has none
import contextlib
import errno
import os
import tempfile
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Final, TypeAlias

from perdure._core.values.clock import new_id
from perdure._core.values.error import ToolError
from perdure._io.files.atomic import open_atomic_file
from perdure._io.files.folder_handle import FolderHandle, let_owner_enter
from perdure._tools.sandbox.trusted_files import (
    MovedFolders,
    NewTrustedFiles,
    TrustedFiles,
    describe_set_aside,
    find_clock_slack_ns,
)

from .configuration import MOST_CONFIGURATION_BYTES, build_bare_or_plain_configuration, parse_configuration
from .repository import read_file

_Look: TypeAlias = Callable[[tuple[str, ...], Sequence[str], Collection[str]], None]
"""Looks at the names in a folder, and at which of them are links."""
CLOCK_SLACK_NS: Final = 2_000_000_000
"""How much older than a command the times of what it has changed may be: some file systems count in two seconds."""
_MOST_ENTRIES: Final = 1_000_000
"""Entries of a working folder that are looked at after a command."""
_TOO_MANY: Final = (
    "{} has more than a million entries, or folders too deep, and not all of it was looked at: before you run git or "
    "an editor there, look for hooks, settings and instructions that the command has made"
)
_GIT_NAME: Final = ".git"
_NAMING: Final = ("config", "config.worktree", "hooks")
"""What of git data can name a program."""
_SAMPLE: Final = ".sample"


def read_file_clock_ns() -> int:
    """Return the time that the system gives to a file which is changed now."""
    with tempfile.TemporaryFile() as file:
        return os.fstat(file.fileno()).st_ctime_ns


def set_planted_programs_aside(
    folders: Iterable[str],
    since_ns: int,
    known: Collection[str] = (),
    before: TrustedFiles | None = None,
    *,
    may_change: bool = False,
) -> str:
    """Set aside what programs would obey below some folders that has changed since a time; return what it was.

    That is what names programs in git data, and what has a name that other programs trust, unless the command
    `may_change` these. What is below a path in `known` was read-only for the command.
    """
    found: list[str] = []
    renamed: list[str] = []
    unseen: list[str] = []
    for folder in folders:
        with contextlib.suppress(OSError):
            top = FolderHandle(folder)
            try:
                since = since_ns + CLOCK_SLACK_NS - find_clock_slack_ns(folder)
                new = NewTrustedFiles(top, before or TrustedFiles(()), since)
                look = new.look_at if before is not None else None
                moved = MovedFolders(top, before or TrustedFiles(()), since_ns)
                changed, is_complete = _list_changed_data(top, since_ns, known, moved, look)
                unseen += [] if is_complete else [folder]
                for steps in changed:
                    found += [os.path.join(*steps, name) for name in _clean(top, steps)]
                if may_change:
                    new.accept()
                else:
                    renamed += new.set_aside()
            finally:
                top.close()
    notes = [f"git runs no programs that a command has named: set aside {', '.join(found)}"] if found else []
    notes += [_TOO_MANY.format(each) for each in unseen]
    return "; ".join([*notes, *([describe_set_aside(renamed)] if renamed else [])])


def _list_changed_data(
    top: FolderHandle, since_ns: int, known: Collection[str], moved: MovedFolders, look: "_Look | None" = None
) -> tuple[list[tuple[str, ...]], bool]:
    """Return the folders with git data below a folder, by what is in them, that a command may have changed.

    Also returns False if there are too many entries to look at all of them.
    """
    found: list[tuple[str, ...]] = []
    waiting: list[tuple[str, ...]] = [()]
    left, is_complete = _MOST_ENTRIES, True
    while waiting and left > 0:
        steps = waiting.pop()
        entries = _list_folder(top, steps)
        if entries is None:
            is_complete = False
            continue
        left -= len(entries)
        names = {name for name, _, _ in entries}
        if look is not None:
            look(steps, [name for name, _, _ in entries], [name for name, _, is_link in entries if is_link])
        is_data = _is_git_data(steps, names)
        if is_data and (_find_newest(top, steps) >= since_ns or moved.has_moved(steps)):
            found.append(steps)
        for name, is_folder, _ in entries:
            path = os.path.join(top.path, *steps, name)
            if is_folder and path not in known:
                waiting.append((*steps, name))
    return found, is_complete and not waiting


def _is_git_data(steps: Sequence[str], names: Collection[str]) -> bool:
    """Return True for a folder that git may take for a repository, or for a part of one, on any file system."""
    if steps and steps[-1].lower() == _GIT_NAME:
        return True
    folded = {each.lower() for each in names}
    return {"objects", "refs"} <= folded or {"head", "commondir"} <= folded


def _list_folder(top: FolderHandle, steps: tuple[str, ...]) -> list[tuple[str, bool, bool]] | None:
    """Return the names in a folder, with whether each is a folder, or a link; `None` if the folder is too deep.

    One that its owner cannot enter is opened first.
    """
    for is_second in (False, True):
        try:
            with top.open_folder(steps) as descriptor, os.scandir(descriptor) as entries:
                return [(each.name, each.is_dir(follow_symlinks=False), each.is_symlink()) for each in entries]
        except OSError as error:
            if error.errno == errno.ENAMETOOLONG:
                return None
            if is_second or error.errno not in {errno.EACCES, errno.EPERM} or not steps:
                break
            with contextlib.suppress(OSError), top.open_folder(steps[:-1]) as above:
                let_owner_enter(above, steps[-1])
    return []


def _find_newest(top: FolderHandle, steps: Sequence[str]) -> int:
    """Return the newest time at which what can name a program was changed: a program cannot set it."""
    times: list[int] = []
    with contextlib.suppress(OSError), top.open_folder(steps) as folder:
        times.append(os.fstat(folder).st_ctime_ns)
        for name in _NAMING:
            with contextlib.suppress(OSError):
                times.append(os.stat(name, dir_fd=folder, follow_symlinks=False).st_ctime_ns)
    with contextlib.suppress(OSError), top.open_folder([*steps, "hooks"]) as hooks:
        times += [os.stat(each, dir_fd=hooks, follow_symlinks=False).st_ctime_ns for each in os.listdir(hooks)]
    return max(times, default=0)


def _clean(top: FolderHandle, steps: Sequence[str]) -> list[str]:
    """Set aside what names a program in a folder of git data; return the names."""
    found: list[str] = []
    with contextlib.suppress(OSError), top.open_folder(steps) as folder:
        if _has_hooks(top, steps):
            found.append(_set_aside(folder, "hooks"))
        if "config.worktree" in os.listdir(folder):
            found.append(_set_aside(folder, "config.worktree"))
        data = _read_configuration(top, steps)
        text, has_dropped = build_bare_or_plain_configuration(parse_configuration(data or b""))
        if data is None or has_dropped:
            found.append(_set_aside(folder, "config"))
        if data != text.encode() and (data is not None or found):
            with open_atomic_file(folder, "config") as file:
                os.write(file.descriptor, text.encode())
                file.replace()
    return [each for each in found if each]


def _has_hooks(top: FolderHandle, steps: Sequence[str]) -> bool:
    try:
        with top.open_folder([*steps, "hooks"]) as hooks:
            return not all(each.endswith(_SAMPLE) for each in os.listdir(hooks))
    except FileNotFoundError:
        return False
    except OSError:
        return True


def _read_configuration(top: FolderHandle, steps: Sequence[str]) -> bytes | None:
    """Return the content of a configuration; `None` if it is no file of a usual size, or a link."""
    try:
        return read_file(top, "/".join([*steps, "config"]), MOST_CONFIGURATION_BYTES) or b""
    except ToolError:
        return None


def _set_aside(folder: int, name: str) -> str:
    """Give a file or folder a name that git does not know; return its name, or nothing if it is gone."""
    try:
        os.rename(name, f"{name}.unused-{new_id()[-8:]}", src_dir_fd=folder, dst_dir_fd=folder)
    except FileNotFoundError:
        return ""
    return name
