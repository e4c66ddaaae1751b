"""The files that the runtime trusts, wherever they lie: stores, grants, trust, memories, and the folder PERDURE_HOME.

Whatever opens such a file says so here. Commands in the sandbox, and tools for files, neither see nor change them: what
lies there counts as the word of the user, and is private. A file is remembered for as long as the object that has it.
"""

# ruff: noqa: PTH100, PTH114, PTH115, PTH117, PTH118, PTH120, PTH206, PTH208 - before every command, where pathlib would cost time
import contextlib
import os
import re
import threading
import weakref
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final, Literal, TypeAlias

from msgspec import Struct

from perdure._core.values.error import ConfigError

from .paths import get_perdure_home

RuntimeFileKind: TypeAlias = Literal["database", "file", "folder", "settings"]
"""A file of SQLite with those that belong to it, a file that is replaced as a whole, a folder, or the folder with the
user's own settings, which may be a working folder."""

WHY_REFUSED: Final = "it belongs to the runtime (a store of sessions, grants, trust or memories); do not try again"
"""Why a tool does not read or write such a file; a clause of a message to the model."""
_BESIDE: Final = re.compile(
    r"(-search)?(-wal|-shm|-journal|-process-[0-9A-Za-z]+)?(\.[0-9A-Za-z_-]{16,}(\.unfinished|\.new)?)?"
)
"""What the names of the files beside one have after its own name: logs, locks, copies, and new versions of it."""
_MOST_LINKS: Final = 40


class RuntimeFile(Struct, frozen=True):
    """A file or folder that the runtime trusts, by its absolute path, in which links are not resolved."""

    path: str
    kind: RuntimeFileKind


class ResolvedPath(Struct, frozen=True):
    """A path with its links followed, and the links on its way, by the real paths of the folders that they are in."""

    path: str
    links: Sequence[str]


_changing = threading.Lock()
_known: dict[int, tuple["weakref.ref[Any]", RuntimeFile]] = {}
"""The files by the ids of their owners: not every owner has a hash."""
_hidden: dict[str, int] = {}
"""The number of running commands from which a file is hidden."""
_version = 0


def trust_runtime_file(owner: Any, path: str | os.PathLike[str], kind: RuntimeFileKind) -> None:
    """Remember that the runtime trusts a file or folder, for as long as `owner` exists: the object that reads it."""
    global _version  # noqa: PLW0603 - what was looked up before is out of date
    found = RuntimeFile(os.path.abspath(os.path.expanduser(os.fspath(path))), kind)  # noqa: PTH111
    key = id(owner)

    def forget(gone: "weakref.ref[Any]") -> None:
        known = _known.get(key)
        if known is not None and known[0] is gone:
            del _known[key]

    with _changing:
        _known[key] = weakref.ref(owner, forget), found
        _version += 1


def count_hidden_files(paths: Iterable[str], count: int) -> None:
    """Note that one command more, or less, has these files hidden: one that is removed would not be hidden any more."""
    with _changing:
        for each in paths:
            _hidden[each] = _hidden.get(each, 0) + count
            if not _hidden[each]:
                del _hidden[each]


def is_hidden_from_command(path: str) -> bool:
    """Return True if a command of this process runs from which this file is hidden."""
    return bool(_hidden) and os.path.realpath(path) in _hidden


def list_runtime_files() -> list[RuntimeFile]:
    """Return the files and folders that the runtime trusts now, with PERDURE_HOME and the user's settings."""
    found = dict.fromkeys([each for _, each in [*_known.values()]])
    with contextlib.suppress(ConfigError):  # there is none, and so nothing in it
        found[RuntimeFile(get_perdure_home(), "folder")] = None
    given = os.environ.get("XDG_CONFIG_HOME", "")
    settings = given if os.path.isabs(given) else os.path.expanduser("~/.config")  # noqa: PTH111
    if os.path.isabs(settings):
        found[RuntimeFile(os.path.join(settings, "perdure"), "settings")] = None
    return list(found)


def resolve_links(path: str) -> ResolvedPath:
    """Return where an absolute path leads, and each link on its way. Raises `OSError` for links without an end."""
    place, links = "/", list[str]()
    pending = path.split("/")[::-1]
    while pending:
        step = pending.pop()
        if step in {"", "."}:
            continue
        if step == "..":
            place = os.path.dirname(place)
            continue
        beside = os.path.join(place, step)
        if not os.path.islink(beside):
            place = beside
            continue
        links.append(beside)
        if len(links) > _MOST_LINKS:
            raise OSError(f"{path!r} leads over too many links")
        target = os.readlink(beside)
        place = "/" if target.startswith("/") else place
        pending += target.split("/")[::-1]
    return ResolvedPath(place, links)


def is_beside(name: str, other: str) -> bool:
    """Return True if a name is that of a file, or of one that belongs to it: its log, a lock, a copy, a new version."""
    return name.startswith(other) and _BESIDE.fullmatch(name, len(other)) is not None


def list_files_beside(path: str) -> list[str]:
    """Return the existing files that belong to a file, and the file itself."""
    folder, name = os.path.split(path)
    try:
        return [os.path.join(folder, each) for each in sorted(os.listdir(folder)) if is_beside(each, name)]
    except OSError:
        return []


class RuntimeFilesBelow:
    """The files of the runtime below one folder, to be asked about many paths."""

    def __init__(self, root: str) -> None:
        """Look up what lies below a folder, given by its real path. A folder of the runtime around it is not meant."""
        self._root = root
        self._key: tuple[int, str | None, str | None] = (-1, None, None)
        self._files: Mapping[tuple[str, ...], Collection[str]] = {}
        self._folders: Collection[tuple[str, ...]] = ()
        self._paths: Sequence[str] = ()

    def has(self, steps: Sequence[str]) -> bool:
        """Return True if the names lead from the folder to a file of the runtime, in any spelling."""
        self._look_up()
        if not self._paths:
            return False
        names = tuple([_normalize(each) for each in steps])
        if any(names[:count] in self._folders for count in range(len(names) + 1)):
            return True
        return bool(names) and any(is_beside(names[-1], each) for each in self._files.get(names[:-1], ()))

    def is_same_file(self, status: os.stat_result) -> bool:
        """Return True if an open file with several names is one of the files of the runtime, by another name."""
        self._look_up()
        if status.st_nlink < 2 or not self._paths:  # noqa: PLR2004 - the one name that has been checked
            return False
        files = [each for path in self._paths for each in list_files_beside(path)]
        return any(_is_file(each, status) for each in files)

    def list_existing(self) -> list[str]:
        """Return the paths of the existing files and folders of the runtime, relative to the folder."""
        self._look_up()
        found = [each for path in self._paths for each in (list_files_beside(path) or [path])]
        return ["/".join(steps) for each in found if (steps := _split_below(each, self._root))]

    def _look_up(self) -> None:
        key = (_version, os.environ.get("PERDURE_HOME"), os.environ.get("XDG_CONFIG_HOME"))
        if key == self._key:
            return
        files: dict[tuple[str, ...], set[str]] = {}
        folders: set[tuple[str, ...]] = set()
        paths: list[str] = []
        for each in list_runtime_files():
            real = os.path.realpath(each.path)
            steps = _split_below(real, self._root)
            if steps is None or (not steps and each.kind == "settings"):
                continue
            paths.append(real)
            names = tuple([_normalize(step) for step in steps])
            if each.kind in {"folder", "settings"}:
                folders.add(names)
            elif names:
                files.setdefault(names[:-1], set()).add(names[-1])
        self._files, self._folders, self._paths, self._key = files, folders, paths, key


def _split_below(path: str, root: str) -> tuple[str, ...] | None:
    """Return the names from a folder to a path; `None` if it is not the folder, or below it."""
    if path == root:
        return ()
    prefix = root if root.endswith(os.sep) else root + os.sep
    return tuple(path[len(prefix) :].split(os.sep)) if path.startswith(prefix) else None


def _is_file(path: str, status: os.stat_result) -> bool:
    try:
        found = os.lstat(path)
    except OSError:
        return False
    return (found.st_dev, found.st_ino) == (status.st_dev, status.st_ino)


@lru_cache(maxsize=4096)
def _normalize(name: str) -> str:
    from perdure._io.files.sensitive import normalize_name  # at first use: stores are opened before any tool for files

    return normalize_name(name)


def iterate_folders_above(path: str, root: str) -> Iterator[str]:
    """Yield the folders between a folder and a path below it, the outermost first."""
    steps = _split_below(path, root) or ()
    for count in range(1, len(steps)):
        yield os.path.join(root, *steps[:count])
