"""Check, before a command begins, that in its sandbox everything is mounted as it was planned.

Bubblewrap finds what it mounts by paths. Another command that runs in the working folder can put a link in the place of
a folder there, between the look that chose a mount and the mount itself: then the home of the user would be mounted
for writing, or what was to be hidden would not be. Links are followed when something is mounted, and not later. So what
the kernel tells afterwards is compared with the plan, while the command waits for its start.
"""

# ruff: noqa: PTH118, PTH123 - before every command, where pathlib would cost time
import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from perdure._core.permission.targets.path import open_folder_below
from perdure._io.processes.tree import list_descendants

from .shown_folders import is_below

_BINDS: Final = ("--bind", "--ro-bind")
_TMPFS: Final = "--tmpfs"
_END: Final = "--"
_ESCAPED: Final = re.compile(r"\\([0-7]{3})")


class _Mount(NamedTuple):
    """A mount: a place, and the folder or file of a file system that is there."""

    place: str
    device: str
    inside: str
    """The path in the file system."""


def find_misplaced_mount(words: Sequence[str], folders: Sequence[str], pid: int) -> str:
    """Return a path in some folders that is not mounted as the words of bubblewrap say; empty if there is none.

    `folders` are those that commands can write to, and `pid` is the process of bubblewrap, outside of the sandbox.
    """
    planned = [each for each in list_planned_mounts(words) if any(is_in(path, top) for path in each for top in folders)]
    if not planned:
        return ""
    try:
        actual = [*_read_mounts(_find_process_inside(pid)).values()]
        mounts = _read_mounts(os.getpid())
        tops = {each: _find_origin(each, mounts) for each in folders}
    except OSError:
        return planned[0][1]
    here = [*mounts.values()]
    counts, contents = Counter([each.place for each in actual]), Counter(actual)
    for source, place in planned:
        counts[place] -= 1
        if counts[place] < 0:
            return place
        top = max([each for each in folders if is_in(source, each)], key=len, default="")
        if top:
            is_top = source == place == top
            wanted = tops[top] if is_top else _find_content(source, place, top, actual, here)
            contents[wanted] -= 1
            if contents[wanted] < 0:
                return place
    return ""


def list_planned_mounts(words: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield what the words of bubblewrap mount, and where; of a new file system, there is only the place."""
    options = words[: words.index(_END)]
    for at, word in enumerate(options):
        if word in _BINDS:
            yield options[at + 1], options[at + 2]
        elif word == _TMPFS:
            yield "", options[at + 1]


def _find_content(source: str, place: str, top: str, actual: Sequence[_Mount], here: Sequence[_Mount]) -> _Mount:
    """Return what has to be mounted at a place: what lies at a path below a folder that nobody can exchange."""
    around = [each for each in actual if each.place == top]
    around += [each for each in here if is_below(each.place, top) and is_in(source, each.place)]
    if not around:
        return _Mount(place, "", "")
    found = max(reversed(around), key=lambda each: len(each.place))  # of several at one place, the last is seen
    return _Mount(place, found.device, os.path.normpath(f"{found.inside}/{source[len(found.place) :]}"))


def _find_origin(folder: str, mounts: Mapping[str, _Mount]) -> _Mount:
    """Return what has to be mounted at one of the folders: the command of another shell may exchange it.

    Raises `OSError` if it is a link, or behind one.
    """
    descriptor = open_folder_below("/", folder.split("/")[1:])
    try:
        with open(f"/proc/self/fdinfo/{descriptor}", encoding="ascii") as file:
            found = mounts[dict(line.split(":", 1) for line in file)["mnt_id"].strip()]
    except KeyError as error:
        raise FileNotFoundError(folder) from error
    finally:
        os.close(descriptor)
    inside = os.path.join(found.inside, os.path.relpath(folder, found.place))
    return _Mount(folder, found.device, os.path.normpath(inside))


def is_in(path: str, folder: str) -> bool:
    """Return True if a path is a folder, or lies inside of it."""
    return path == folder or is_below(path, folder)


def _find_process_inside(pid: int) -> int:
    """Return a process in the sandbox. Raises `OSError` if there is none."""
    try:
        with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as file:
            inside = [int(each) for each in file.read().split()]
    except FileNotFoundError:  # some kernels do not have it
        inside = list_descendants(pid)
    if not inside:
        raise ProcessLookupError(pid)
    return inside[-1]


def _read_mounts(pid: int) -> dict[str, _Mount]:
    """Return what a process has mounted, as the kernel tells it, by the numbers of the mounts."""
    with open(f"/proc/{pid}/mountinfo", "rb") as file:  # a text would end lines at a carriage return, as in a name
        fields = [os.fsdecode(line).split(" ") for line in file.read().split(b"\n") if line]
    return {each[0]: _Mount(_decode(each[4]), each[2], _decode(each[3])) for each in fields}


def _decode(path: str) -> str:
    """Return a path in which spaces and the like are written as octal numbers."""
    return _ESCAPED.sub(lambda match: chr(int(match[1], 8)), path)
