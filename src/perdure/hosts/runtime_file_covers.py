"""Hide the files that the runtime trusts from a sandboxed command: stores, grants, trust, memories, PERDURE_HOME.

What lies there counts as the word of the user, and is private: it is hidden, and not only read-only. A name that does
not exist yet is created, empty and for its owner alone, so that there is something to mount over: SQLite and the
runtime take an empty file for one that is not there. The folders above are mounts of their own: none can be exchanged.
"""

# ruff: noqa: PTH103, PTH112, PTH120 - before every command, where pathlib would cost time
import os
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from perdure.core.error import ConfigError
from perdure.files.runtime_files import (
    iterate_folders_above,
    list_files_beside,
    list_runtime_files,
    resolve_links,
)

from .secret_covers import choose_covers
from .shown_folders import is_below

if TYPE_CHECKING:
    from .bubblewrap import CoverMountSources

_CLOSED_DEVICE: Final = "/dev/null"
"""Mounted over a file. In the sandbox it cannot be opened, and git takes no notice of a device."""
_FOLDERS: Final = ("folder", "settings")
_KEPT_ENDINGS: Final = ("", "-wal", "-shm")
"""Files of a database that are created if they are missing, and stay: SQLite may use them from then on."""
_PASSING_ENDINGS: Final = ("-journal", "-search", "-search-wal", "-search-shm", "-search-journal")
"""Files of a database that are created while a command runs, and removed afterwards if they are empty."""


class RuntimeFileCovers(Struct, frozen=True):
    """The files of the runtime that one command could see, and that are to be hidden from it."""

    files: Sequence[str] = ()
    folders: Sequence[str] = ()
    pinned: Sequence[str] = ()
    """Folders that the command must not rename; they are shown again before anything in them is hidden."""
    around: Sequence[str] = ()
    """Folders that the working folder is in: nothing else of them is shown."""
    created: Sequence[str] = ()
    """Files that were created to mount over, to be removed afterwards if they are empty."""

    def list_options(self, root: str, covers: "CoverMountSources", git: Sequence[str]) -> Iterator[str]:
        """Yield the options of bubblewrap that hide them; they come last.

        What lies in a copy of git data that is mounted there is not on the disk, and is left out.
        """
        replaced = [to for _, source, to in _split_mounts(git) if source != to]
        for each in self.files:
            if not any(is_below(each, other) for other in replaced):
                yield from ("--ro-bind", _CLOSED_DEVICE, each)
        below = [each for each in self.folders if is_below(each, root)]
        tracked = {path for path, options in choose_covers(root, below, covers) if "--perms" in options}
        for each in self.folders:
            if not any(is_below(each, other) for other in replaced):
                yield from ("--perms", "0000" if each in tracked else "0555", "--tmpfs", each)


def cover_runtime_files(
    writable: Sequence[str], *, hidden: Sequence[str] = (), shown: Sequence[str] = (), read_only: bool = False
) -> RuntimeFileCovers:
    """Choose how the files of the runtime are hidden from a command, and create those that are missing.

    `writable` has the folders that it can write to, the working folder first; of the `hidden` folders it sees nothing
    but what is `shown`. Raises `ConfigError` for what cannot be protected, with what to do.
    """
    places = _find_places(writable, hidden, shown, read_only=read_only)
    around = [path for path in places if path != "/" and any(is_below(root, path) for root in writable)]
    folders = [path for path, kind in places.items() if kind in _FOLDERS and path not in around]
    files = {path: kind for path, kind in places.items() if kind not in _FOLDERS}
    created: list[str] = []
    covered: list[str] = []
    for path, kind in files.items():
        if any(is_below(path, each) for each in folders):
            continue
        if not read_only and _is_in(path, writable):
            created += _create_missing(path, with_logs=kind == "database")
        beside = list_files_beside(path)
        if not read_only and _is_in(path, writable):
            _check_names(beside)
        covered += beside
    outer = [each for each in folders if not any(is_below(each, other) for other in folders)]
    for each in outer:
        if not read_only and _is_in(each, writable):
            _make_folder(each)
    above = {up for path in (*files, *outer) for root in writable for up in iterate_folders_above(path, root)}
    pinned = [each for each in sorted(above) if not any(each == other or is_below(each, other) for other in outer)]
    return RuntimeFileCovers(
        list(dict.fromkeys(covered)),
        [each for each in outer if os.path.isdir(each)],
        () if read_only else pinned,
        around,
        created,
    )


def merge_pinned(pinned: Sequence[str], git: Sequence[str]) -> list[str]:
    """Return the options that keep folders where they are, those that git needs among them, the outermost first."""
    words = list(_split_mounts(git))
    kept = [each for each in words if each[0] != "--bind"]
    found = {each[1] for each in words if each[0] == "--bind"}
    found |= {each for each in pinned if not any(each == other[2] or is_below(each, other[2]) for other in kept)}
    return [word for each in sorted(found) for word in ("--bind", each, each)] + [
        word for each in kept for word in each
    ]


def _split_mounts(words: Sequence[str]) -> list[Sequence[str]]:
    """Return mounts with their two paths each, as the modules for git make them."""
    return [words[at : at + 3] for at in range(0, len(words), 3)]


def _find_places(
    writable: Sequence[str], hidden: Sequence[str], shown: Sequence[str], *, read_only: bool
) -> dict[str, str]:
    """Return the real paths of the files and folders of the runtime that a command could see, with their kinds."""
    found: dict[str, str] = {}
    for each in list_runtime_files():
        resolved = resolve_links(each.path)
        real, links = resolved.path, resolved.links
        is_in = _is_in(real, writable)
        if real in writable and each.kind == "settings":
            continue
        if real in writable:
            raise ConfigError(
                f"{real} is a folder of the runtime (a store, or PERDURE_HOME), and cannot be the working folder of "
                "commands: use another folder for one of them"
            )
        link = next((link for link in links if _is_in(link, writable)), None)
        if link is not None and not read_only:
            raise ConfigError(
                f"{each.path} is reached by the link {link}, which a command could exchange: give the path {real}"
            )
        is_shown = is_in or _is_in(real, shown) or not any(real == other or is_below(real, other) for other in hidden)
        is_around = any(is_below(root, real) for root in writable)
        if each.kind == "folder" if is_around else is_shown:
            found[real] = each.kind
    return found


def _is_in(path: str, folders: Iterable[str]) -> bool:
    return any(path == each or is_below(path, each) for each in folders)


def _create_missing(path: str, *, with_logs: bool) -> list[str]:
    """Create what is missing of a file and of those beside it; return what is to be removed if it is empty."""
    _make_folder(os.path.dirname(path))
    if not with_logs:
        return [path] if _create(path) else []
    for ending in _KEPT_ENDINGS:
        _create(path + ending)
    return [path + ending for ending in _PASSING_ENDINGS if _create(path + ending)]


def _check_names(paths: Iterable[str]) -> None:
    """Raise `ConfigError` for a file with a second name, by which a command could write to it."""
    for path in paths:
        if _count_names(path) > 1:
            raise ConfigError(
                f"{path} has another name (a hard link), by which a command could change it: remove the other name, or "
                "replace the file by a copy"
            )


def _count_names(path: str) -> int:
    try:
        return os.lstat(path).st_nlink
    except OSError:  # SQLite has removed it meanwhile
        return 0


def _create(path: str) -> bool:
    """Create an empty file for its owner alone; return False if there is one. What exists is not opened."""
    try:
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600))
    except FileExistsError:
        return False
    except OSError as error:
        raise _build_error(path, error) from error
    return True


def _make_folder(path: str) -> None:
    try:
        os.makedirs(path, mode=0o700, exist_ok=True)
    except OSError as error:
        raise _build_error(path, error) from error


def _build_error(path: str, error: OSError) -> ConfigError:
    return ConfigError(
        f"{path} is trusted by the runtime, and cannot be protected from commands ({error.strerror}): correct its "
        "path, or the permissions of the folder"
    )
