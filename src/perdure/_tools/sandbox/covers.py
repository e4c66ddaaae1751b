"""Hide files from a sandboxed command: files that suggest secrets, that the runtime trusts, or of the kernel."""

# ruff: noqa: PTH103, PTH112, PTH114, PTH118, PTH120, PTH208 - before every command, where pathlib would cost milliseconds

import contextlib
import hashlib
import os
import stat
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from perdure._core.values.error import ConfigError
from perdure._io.files.head import UnreadableFile, read_file_head
from perdure._io.files.ignore_rules import FILE_NAME, MOST_BYTES, IgnoreRules, is_ignored, parse_rules
from perdure._io.home.runtime_files import (
    iterate_folders_above,
    list_files_beside,
    list_runtime_files,
    resolve_links,
)

from .shown_folders import is_below

if TYPE_CHECKING:
    from .bubblewrap import CoverMountSources


_PROC_FILES: Final = ("keys", "key-users")
_PROC_FILES_OF_ROOT: Final = (
    "sysrq-trigger", "kcore", "kmsg", "timer_list", "timer_stats", "sched_debug", "latency_stats", "kpagecount",
    "kpageflags", "kpagecgroup", "vmallocinfo", "slabinfo", "pagetypeinfo", "mtrr",
)  # fmt: skip
_PROC_FOLDERS: Final = ("acpi", "asound", "bus", "driver", "dynamic_debug", "fs", "irq", "scsi", "tty")
_SYS_FOLDERS: Final = ("devices/system", "fs/cgroup")
"""What programs ask there: processors, memory, and the limits of the container."""
_FIRST_PROCESS: Final = "/proc/1"
"""That of bubblewrap, which keeps files of the host open: by their names here they could be opened for writing."""
_SEARCHED: Final = (("/etc", 3), ("/var", 3), ("/", 1), ("/srv", 1), ("/opt", 1), ("/usr", 1))
"""Folders where programs keep what only root may read, and how many levels of them are looked at."""
_READ, _ENTER = stat.S_IROTH, stat.S_IROTH | stat.S_IXOTH


def bound_kernel_files(empty_file: str, *, is_root: bool) -> Iterator[str]:
    """Yield bubblewrap options that make `/proc/sys` read-only, and hide bubblewrap and what is not about processes.

    To root's user number the files there belong, so that it needs no capability to read or write some of them.
    """
    yield from ("--ro-bind", "/proc/sys", "/proc/sys", "--perms", "0555", "--tmpfs", _FIRST_PROCESS)
    for path in _list_existing("/proc", _PROC_FILES + (_PROC_FILES_OF_ROOT if is_root else ())):
        yield from ("--ro-bind", empty_file, path)
    for path in _list_existing("/proc", _PROC_FOLDERS):
        yield from ("--perms", "0555", "--tmpfs", path)
    if os.path.isdir("/sys"):
        yield from ("--perms", "0555", "--tmpfs", "/sys")
        for path in _list_existing("/sys", _SYS_FOLDERS):
            yield from ("--ro-bind", path, path)


def hide_files_of_root(closed_file: str, kept: Sequence[str], hidden: Sequence[str]) -> Iterator[str]:
    """Yield bubblewrap options that hide what only root can read, as `/etc/shadow`, if it is not hidden already.

    A command of root has another user number in its sandbox; but for the kernel, what it opens is opened by root.
    Folders with something in them that is kept are not hidden.
    """
    for path, is_folder in list_files_of_root():
        is_hidden = any(path == each or is_below(path, each) for each in hidden)
        if not is_hidden and not any(path == each or is_below(each, path) for each in kept):
            yield from ("--tmpfs", path) if is_folder else ("--ro-bind", closed_file, path)


@cache
def list_files_of_root() -> tuple[tuple[str, bool], ...]:
    """Return the files and folders of the system that only root, or a group, can read; with True for folders."""
    return tuple([found for folder, depth in _SEARCHED for found in _find_closed(folder, depth)])


def _find_closed(folder: str, depth: int) -> Iterator[tuple[str, bool]]:
    try:
        with os.scandir(folder) as listed:
            entries = sorted(listed, key=lambda each: each.name)
    except OSError:
        return
    for entry in entries:
        try:
            found = entry.stat(follow_symlinks=False)
        except OSError:
            continue
        mode = found.st_mode
        if stat.S_ISDIR(mode) and mode & _ENTER != _ENTER:
            yield entry.path, True
        elif stat.S_ISDIR(mode) and depth > 1:
            yield from _find_closed(entry.path, depth - 1)
        elif stat.S_ISREG(mode) and found.st_size and not mode & _READ:
            yield entry.path, False


@cache
def _list_existing(folder: str, names: tuple[str, ...]) -> tuple[str, ...]:
    return tuple([path for name in names if os.path.lexists(path := os.path.join(folder, name))])


_MOST_ENTRIES: Final = 1_000_000
_MOST_REMEMBERED: Final = 500
_lock: Final = threading.Lock()
_known: Final[dict[str, dict[int, str]]] = {}
"""By folder: the inodes of what is hidden, and the paths."""


def add_remembered_secrets(root: str, found: Sequence[str]) -> list[str]:
    """Return what was found in a folder, with what was found before the commands that have run there since."""
    with _lock:
        known = _known.setdefault(root, {})
        before = [*known.items()]
        moved = {inode: path.rpartition("/")[2] for inode, path in before if _read_inode(path) != inode}
        here = dict(_find_inodes(root, moved)) if moved else {}
        known.clear()
        kept = [here.get(inode, path) for inode, path in before] + [path for _, path in before]
        paths = [path for path in dict.fromkeys([*found, *kept]) if _read_inode(path)]
        for path in paths[:_MOST_REMEMBERED]:
            known[_read_inode(path)] = path
        return paths


def _read_inode(path: str) -> int:
    """Return the inode of a file or folder; 0 if there is none, or a link."""
    with contextlib.suppress(OSError):
        found = os.lstat(path)
        return 0 if stat.S_ISLNK(found.st_mode) else found.st_ino
    return 0


def _find_inodes(root: str, wanted: Mapping[int, str]) -> Iterator[tuple[int, str]]:
    """Yield where some files and folders are now, below a folder; they have their names still, as mounts have."""
    waiting, left = [root], _MOST_ENTRIES
    while waiting and left > 0:
        with contextlib.suppress(OSError), os.scandir(waiting.pop()) as entries:
            for each in entries:
                left -= 1
                if wanted.get(each.inode()) == each.name and not each.is_symlink():
                    yield each.inode(), each.path
                elif each.is_dir(follow_symlinks=False):
                    waiting.append(each.path)


_MOST_INDEX_BYTES: Final = 64 * 1024 * 1024
_MOST_CONTENT_BYTES: Final = 1024 * 1024
_MOST_LINE_BYTES: Final = 4096
_HEADER_BYTES: Final = 12
_ENTRY_BYTES: Final = 62
"""Bytes of an entry of the index in front of its path."""
_DIGEST_AT: Final = 40
_FLAGS_AT: Final = 60
_READABLE_VERSIONS: Final = (2, 3)
"""Versions of the index in which each path is stored as a whole."""


class GitIndex:
    """Reader of a git index file: which paths the repository tracks, and the digests of their contents."""

    def __init__(self, data: bytes) -> None:
        """Look at the bytes of an index; no bytes for one that cannot be read."""
        self._data = data
        self._is_known = data[:4] == b"DIRC" and int.from_bytes(data[4:8], "big") in _READABLE_VERSIONS

    def may_have(self, path: bytes) -> bool:
        """Return True if the index has a path, or files below it; also if that cannot be ruled out."""
        return not self._is_known or path + b"\0" in self._data or path + b"/" in self._data

    def has_content(self, path: bytes, content: bytes) -> bool:
        """Return True if the index has a regular file of this path with exactly this content."""
        start = self._find_entry(path) if self._is_known else 0
        if not start or not stat.S_ISREG(int.from_bytes(self._data[start + 24 : start + 28], "big")):
            return False
        digest = hashlib.sha1(b"blob %d\0%b" % (len(content), content), usedforsecurity=False).digest()
        return digest == self._data[start + _DIGEST_AT : start + _FLAGS_AT]

    def _find_entry(self, path: bytes) -> int:
        """Return where the entry of a path begins; 0 if there is none without a conflict or another mark."""
        at = self._data.find(path + b"\0")
        while at > 0:
            start = at - _ENTRY_BYTES  # else it is the end of a longer path
            flags = int.from_bytes(self._data[at - 2 : at], "big")
            if start >= _HEADER_BYTES and (start - _HEADER_BYTES) % 8 == 0 and flags == len(path):
                return start
            at = self._data.find(path + b"\0", at + 1)
        return 0


def cover_secrets(root: str, paths: Sequence[str], covers: "CoverMountSources") -> Iterator[str]:
    """Yield the bubblewrap options that hide these files and folders of a working folder from a command."""
    for _, options in choose_covers(root, paths, covers):
        yield from options


def choose_covers(root: str, paths: Sequence[str], covers: "CoverMountSources") -> Iterator[tuple[str, Sequence[str]]]:
    """Yield each path with the bubblewrap options that hide it; with none if git already tracks its content."""
    if not paths:
        return
    git = os.path.join(root, ".git")
    index = _read_index(git)
    for path in paths:
        steps = path[len(root) + 1 :].split("/")
        name = os.fsencode("/".join(steps))
        is_elsewhere = any(os.path.lexists(os.path.join(root, *steps[:n], ".git")) for n in range(1, len(steps)))
        may_be_added = is_elsewhere or (index is not None and (index.may_have(name) or not _is_ignored(root, steps)))
        if os.path.isdir(path):
            is_tracked = is_elsewhere or (index is not None and index.may_have(name))
            yield path, ("--perms", "0000", "--tmpfs", path) if is_tracked else ("--tmpfs", path)
        elif not may_be_added:
            yield path, ("--ro-bind", covers.file, path)
        elif is_elsewhere or index is None or not os.path.isdir(git) or not _is_committed(index, path, name):
            yield path, ("--ro-bind", covers.closed, path)
        else:
            yield path, ()


def _read_index(git: str) -> GitIndex | None:
    """Return the index of the repository of a working folder; `None` if it has no repository."""
    if not os.path.lexists(git):
        return None
    try:
        if not os.path.isdir(git):  # a work tree, whose repository is elsewhere
            line = read_file_head(git, _MOST_LINE_BYTES).data.decode("utf-8", "surrogateescape")
            git = os.path.join(os.path.dirname(git), line.removeprefix("gitdir:").strip())
        if any(name.startswith("sharedindex.") for name in os.listdir(git)):
            return GitIndex(b"")
        index = os.path.join(git, "index")
        found = read_file_head(index, _MOST_INDEX_BYTES) if os.path.lexists(index) else None
    except (UnreadableFile, OSError):
        return GitIndex(b"")
    if found is None:  # nothing was added yet
        return GitIndex(b"DIRC\0\0\0\2")
    return GitIndex(b"" if found.is_truncated else found.data)


def _is_committed(index: GitIndex, path: str, name: bytes) -> bool:
    try:
        found = read_file_head(path, _MOST_CONTENT_BYTES)
    except UnreadableFile:
        return False
    return not found.is_truncated and index.has_content(name, found.data)


def _is_ignored(root: str, steps: Sequence[str]) -> bool:
    """Return True if git ignores a file, by the rules of the folders above it."""
    rules = [_read_rules(os.path.join(root, ".git", "info", "exclude"), 0)]
    for depth in range(len(steps)):
        rules.append(_read_rules(os.path.join(root, *steps[:depth], FILE_NAME), depth))
        if is_ignored(steps[: depth + 1], rules, is_folder=depth + 1 < len(steps)):
            return True
    return False


def _read_rules(path: str, depth: int) -> IgnoreRules:
    """Read a file of rules; none if it is missing, or a link, which git does not follow."""
    try:
        data = b"" if os.path.islink(path) else read_file_head(path, MOST_BYTES).data
    except UnreadableFile:
        data = b""
    return IgnoreRules(depth, (), parse_rules(data.decode("utf-8", "replace")))


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
