"""Find the repository of a folder, and read its data and index: by descriptors, through no link, within limits."""

# ruff: noqa: PTH112, PTH113, PTH114, PTH118, PTH120, PTH208 - descriptors are the point here, and a Path has none

import contextlib
import errno
import hashlib
import os
import re
import stat
from collections.abc import Generator, Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from msgspec import Struct

from perdure._core.permission.targets.path import STEP_BY_STEP, list_names_below
from perdure._core.values.error import ToolError
from perdure._io.files.folder_handle import FolderHandle
from perdure._io.files.head import UnreadableFile, read_descriptor, read_file_head
from perdure._io.files.sensitive import normalize_name

SUBMODULE_MODE: Final = 0o160000
_SUBMODULE_BYTES: Final = SUBMODULE_MODE.to_bytes(4, "big")
_HEADER_BYTES: Final = 12
_EXTENDED: Final = 0x4000
_NAME_MASK: Final = 0x0FFF
_STAGE_MASK: Final = 0x3000
_UNCHANGED: Final = 0x8000 << 16
"""The mark of a file that is taken for unchanged."""
_LEFT_OUT: Final = 0x4000
"""The mark of one that is not checked out."""
_SPLIT: Final = b"link"
_SHORT_DIGEST: Final = 20
_MODE_AT: Final = 24
_DIGEST_AT: Final = 40
_MOST_PATH: Final = 4096
_MOST_PATH_BYTES: Final = 512 * 1024 * 1024
"""Bytes of all paths together: in version 4, a small index can stand for paths that fill the memory."""
_AWAY: Final = frozenset({"", ".", ".."})
_SHORT_NAME: Final = re.compile(r"git~\d+")
"""What Windows calls `.git` in its short form."""


class IndexEntry(NamedTuple):
    """An entry of an index, without what only tells whether the file has changed since."""

    path: bytes
    mode: int
    digest: bytes
    flags: int
    """The stage of a conflict and other marks."""


class _PlacedEntry(NamedTuple):
    entry: IndexEntry
    start: int
    flags_at: int


def list_index_entries(data: bytes) -> list[IndexEntry]:
    """Return the entries of an index of version 2, 3 or 4. Raises `ToolError` if it is damaged."""
    try:
        return [each.entry for each in _locate_entries(data, _find_digest_bytes(data))[0]]
    except (IndexError, ValueError) as error:
        raise ToolError("the index of the repository is damaged") from error


def list_submodules(data: bytes) -> list[str]:
    """Return the paths of the submodules in an index; quickly where there is none."""
    if _SUBMODULE_BYTES not in data:
        return []
    found = [each.path for each in list_index_entries(data) if each.mode == SUBMODULE_MODE]
    return list(dict.fromkeys([each.decode("utf-8", "surrogateescape") for each in found]))


def find_misleading_path(entries: Iterable[IndexEntry]) -> str:
    """Return a path that leads out of the work tree, or into `.git`; empty if there is none.

    Git makes no such entry, but it writes where one leads: `git restore .` would make a hook of one.
    """
    for each in entries:
        path = each.path.decode("utf-8", "surrogateescape")
        leads_away = not _AWAY.isdisjoint(path.split("/")) and bool(path)  # in a split index, some have no path
        if leads_away or any(map(_is_git_name, re.split(r"[/\\]", path))):
            return path
    return ""


def build_honest_index(before: bytes, after: bytes) -> bytes:
    """Return the index that a command has left, without what would hide changes of files from git.

    Git believes an index: it does not read a file that has the time and size in its entry, nor one that is marked, and
    commits what the list of folders says. So an entry has the times and marks that it had before, or none, and of the
    lists behind the entries those are left out that only save time. Raises `ToolError` for an index that is damaged, or
    that the command has split.
    """
    try:
        size = _find_digest_bytes(after)
        entries, end = _locate_entries(after, size)
        lists = list(_iterate_lists(after[end:-size]))
        known, was_split = _locate_known(before)
    except (IndexError, ValueError) as error:
        raise ToolError("the index of the repository is damaged") from error
    if any(name == _SPLIT for name, _ in lists):
        if not was_split:
            raise ToolError("the command has split the index: nothing was taken over; run git without core.splitIndex")
        return after  # as the user wants it: its entries are in two files
    if [each.entry for each in entries] == [each.entry for each in known.values()]:
        return before
    is_sparse = any(each.entry.flags & _LEFT_OUT for each in known.values())
    made = bytearray(after[:end])
    for each in entries:
        _restore_entry(made, each, known.get(_find_key(each.entry)), before, is_sparse=is_sparse)
    made += b"".join([data for name, data in lists if not name.isupper()])
    make = hashlib.sha1 if size == _SHORT_DIGEST else hashlib.sha256
    return bytes(made) + make(made, usedforsecurity=False).digest()


def _locate_known(before: bytes) -> tuple[dict[tuple[bytes, int], _PlacedEntry], bool]:
    """Return the entries of the index before a command, and whether it was split."""
    if not before:
        return {}, False
    size = _find_digest_bytes(before)
    entries, end = _locate_entries(before, size)
    is_split = any(name == _SPLIT for name, _ in _iterate_lists(before[end:-size]))
    return {_find_key(each.entry): each for each in entries}, is_split


def _find_key(entry: IndexEntry) -> tuple[bytes, int]:
    """Return the path of an entry, and its stage in a conflict."""
    return entry.path, entry.flags >> 16 & _STAGE_MASK


def _restore_entry(
    made: bytearray, each: _PlacedEntry, old: _PlacedEntry | None, before: bytes, *, is_sparse: bool
) -> None:
    """Give an entry the times and marks that it had before; none if it is new, or of other content."""
    marks = old.entry.flags if old is not None else _LEFT_OUT if is_sparse else 0
    if old is not None and (old.entry.mode, old.entry.digest) == (each.entry.mode, each.entry.digest):
        times = before[old.start : old.start + _DIGEST_AT]
    else:
        times = bytes(_DIGEST_AT)
    mode = made[each.start + _MODE_AT : each.start + _MODE_AT + 4]
    made[each.start : each.start + _DIGEST_AT] = times
    made[each.start + _MODE_AT : each.start + _MODE_AT + 4] = mode
    kept = each.entry.flags & ~(_UNCHANGED | _LEFT_OUT) | each.entry.flags & marks & (_UNCHANGED | _LEFT_OUT)
    flags = int.from_bytes(made[each.flags_at : each.flags_at + 2], "big") & _NAME_MASK | kept >> 16
    made[each.flags_at : each.flags_at + 2] = flags.to_bytes(2, "big")
    if flags & _EXTENDED:
        made[each.flags_at + 2 : each.flags_at + 4] = (kept & 0xFFFF).to_bytes(2, "big")


def _iterate_lists(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield what follows the entries of an index, each with its name; in capitals if git can do without."""
    at = 0
    while at < len(data):
        end = at + 8 + int.from_bytes(data[at + 4 : at + 8], "big")
        yield data[at : at + 4], data[at:end]
        at = end


def _is_git_name(name: str) -> bool:
    """Return True for `.git` in any spelling that a file system takes for it."""
    if name.isascii() and "git" not in name.lower():
        return False
    plain = normalize_name(name.partition(":")[0])
    return plain == ".git" or bool(_SHORT_NAME.fullmatch(plain))


def _find_digest_bytes(data: bytes) -> int:
    """Return the size of the digests in an index, by which of them its end is the digest of the rest."""
    for size, make in ((20, hashlib.sha1), (32, hashlib.sha256)):
        if len(data) >= _HEADER_BYTES + size and make(data[:-size], usedforsecurity=False).digest() == data[-size:]:
            return size
        if len(data) >= _HEADER_BYTES + size and not any(data[-size:]):  # index.skipHash
            return size
    raise ValueError("no digest at its end")


def _locate_entries(data: bytes, digest_bytes: int) -> tuple[list[_PlacedEntry], int]:
    """Return the entries of an index with their places, and where they end."""
    version, count = int.from_bytes(data[4:8], "big"), int.from_bytes(data[8:12], "big")
    if data[:4] != b"DIRC" or version not in {2, 3, 4}:
        raise ValueError("an unknown form")
    found: list[_PlacedEntry] = []
    at, path, left = _HEADER_BYTES, b"", _MOST_PATH_BYTES
    for _ in range(count):
        start = at
        flags_at = at + _DIGEST_AT + digest_bytes
        flags = int.from_bytes(data[flags_at : flags_at + 2], "big")
        at = flags_at + (4 if flags & _EXTENDED else 2)
        if version == 4:  # noqa: PLR2004 - in which a path is what differs from the one before
            dropped, at = _read_number(data, at)
            end = data.index(b"\0", at)
            path = path[: max(0, len(path) - dropped)] + data[at:end]
            at = end + 1
        else:
            end = data.index(b"\0", at)
            path = data[at:end]
            at = start + (end - start + 8) // 8 * 8
        left -= len(path)
        if len(path) > _MOST_PATH or left < 0:
            raise ValueError("its paths are too long")
        mode = int.from_bytes(data[start + _MODE_AT : start + _MODE_AT + 4], "big")
        marks = int.from_bytes(data[flags_at : flags_at + 2], "big") & ~_NAME_MASK
        extended = int.from_bytes(data[flags_at + 2 : flags_at + 4], "big") if flags & _EXTENDED else 0
        entry = IndexEntry(path, mode, data[start + _DIGEST_AT : flags_at], marks << 16 | extended)
        found.append(_PlacedEntry(entry, start, flags_at))
    if at > len(data):
        raise ValueError("it is too short")
    return found, at


def _read_number(data: bytes, at: int) -> tuple[int, int]:
    value = data[at] & 0x7F
    while data[at] & 0x80:
        at += 1
        value = ((value + 1) << 7) | (data[at] & 0x7F)
    return value, at + 1


WORK_TREE_FILES: Final = (
    *("HEAD", "index", "ORIG_HEAD", "MERGE_HEAD", "MERGE_MSG", "MERGE_MODE", "AUTO_MERGE", "CHERRY_PICK_HEAD"),
    *("REVERT_HEAD", "SQUASH_MSG", "COMMIT_EDITMSG", "FETCH_HEAD"),
)
"""Files of a work tree that commands change, and in which nothing is run."""
UNFINISHED: Final = ("rebase-merge", "rebase-apply", "sequencer", "BISECT_LOG", "BISECT_START", "BISECT_NAMES")
"""What is there while something is unfinished; lists of commands are among it."""
COMMON_FILES: Final = ("packed-refs", "shallow")
SETTINGS: Final = ("info/exclude", "info/sparse-checkout")
"""Files that are read, and never taken over from a command."""
_WORK_TREE_REFS: Final = ("refs/bisect/", "refs/worktree/", "refs/rewritten/")
_MOST_FILES: Final = 20_000
_MOST_BYTES: Final = 256 * 1024 * 1024
_MOST_DEPTH: Final = 16
_POINTER_BYTES: Final = 4096


_LEADS_ELSEWHERE: Final = "the file .git leads to another repository, and is not used"


class GitRepository(Struct, frozen=True):
    """The repository of a folder: its work tree, and the folders with its data."""

    work_tree: str
    git_folder: str
    """The data of the work tree: its index, and what is checked out."""
    common_folder: str
    """The data of the repository: objects, branches, configuration. The same, except for a linked work tree."""

    @property
    def objects(self) -> str:
        """The folder of its objects."""
        return os.path.join(self.common_folder, "objects")

    @property
    def pointer(self) -> str:
        """The folder or file `.git` of the work tree."""
        return os.path.join(self.work_tree, ".git")

    @property
    def is_submodule(self) -> bool:
        """True if its data lie below those of another repository, and are used by one work tree alone."""
        return self.git_folder == self.common_folder != self.pointer


def find_repository(folder: str) -> GitRepository:
    """Return the repository of a folder, or of one above it.

    Raises `ToolError` if there is none, or it leads elsewhere.
    """
    here = folder
    while True:
        place = os.path.join(here, ".git")
        if os.path.lexists(place) and not is_empty_folder(place):  # an empty one is nothing to git either
            return open_repository(here)
        above = os.path.dirname(here)
        if above == here:
            raise ToolError("the working folder is in no git repository")
        here = above


def is_empty_folder(path: str) -> bool:
    """Return True if a path is a folder, and not a link to one, without any content."""
    try:
        return stat.S_ISDIR(os.lstat(path).st_mode) and not os.listdir(path)
    except OSError:
        return False


def open_repository(work_tree: str) -> GitRepository:
    """Return the repository whose work tree this folder is. Raises `ToolError` if its data lie elsewhere."""
    place = os.path.join(work_tree, ".git")
    if os.path.islink(place):
        raise ToolError("the folder .git is a link, and is not used")
    if os.path.isdir(place):
        return _check_data(GitRepository(work_tree, place, place))
    found = _follow_pointer(work_tree, place)
    return _open_as_submodule(work_tree) if found is None else _check_data(found)


def _open_as_submodule(work_tree: str) -> GitRepository:
    """Return the repository of a submodule that is opened by itself: its data are below those of a repository above."""
    try:
        above = find_repository(os.path.dirname(work_tree))
    except ToolError as error:
        raise ToolError(_LEADS_ELSEWHERE) from error
    return open_submodule(work_tree, above)


def _check_data(found: GitRepository) -> GitRepository:
    """Return a repository whose data are all its own. Raises `ToolError` if they are not."""
    is_shared = os.path.lexists(os.path.join(found.git_folder, "commondir"))
    if is_shared and found.git_folder == found.common_folder:
        raise ToolError("the folder .git shares the data of another repository, and is not used")
    if os.path.islink(found.objects):
        raise ToolError("the folder .git/objects is a link, and is not used")
    for name in ("alternates", "http-alternates"):
        if os.path.lexists(os.path.join(found.objects, "info", name)):
            raise ToolError(
                f"the repository uses the objects of another one, and is not used: "
                f"run 'git repack -a -d', then remove .git/objects/info/{name}"
            )
    if os.path.lexists(os.path.join(found.common_folder, "reftable")):
        raise ToolError("the repository has its branches in a reftable: run 'git refs migrate --ref-format=files'")
    return found


def open_submodule(work_tree: str, above: GitRepository) -> GitRepository:
    """Return the repository of a submodule. Raises `ToolError` if its data are not its own, or below those above."""
    place = os.path.join(work_tree, ".git")
    if not os.path.isfile(place) or os.path.islink(place):
        return open_repository(work_tree)
    problem = f"the submodule {work_tree!r} leads to another repository, and is not used"
    try:
        line = read_file_head(place, _POINTER_BYTES).data.decode().strip()
    except (UnreadableFile, UnicodeDecodeError) as error:
        raise ToolError(problem) from error
    folder = os.path.realpath(os.path.join(work_tree, line.removeprefix("gitdir:").strip()))
    if not folder.startswith(os.path.join(os.path.realpath(above.common_folder), "modules") + os.sep):
        raise ToolError(problem)
    return _check_data(GitRepository(work_tree, folder, folder))


def _follow_pointer(work_tree: str, place: str) -> GitRepository | None:
    """Return the repository that a file `.git` leads to, if that has this work tree in its list of work trees.

    `None` if what it leads to has no such list: it may be a submodule.
    """
    problem = _LEADS_ELSEWHERE
    try:
        line = read_file_head(place, _POINTER_BYTES).data.decode().strip()
        folder = os.path.join(work_tree, line.removeprefix("gitdir:").strip())
        if not os.path.lexists(os.path.join(folder, "commondir")):
            return None
        back = read_file_head(os.path.join(folder, "gitdir"), _POINTER_BYTES).data.decode().strip()
        shared = read_file_head(os.path.join(folder, "commondir"), _POINTER_BYTES).data.decode().strip()
    except (UnreadableFile, UnicodeDecodeError) as error:
        raise ToolError(problem) from error
    folder = os.path.realpath(folder)
    common = os.path.realpath(os.path.join(folder, shared))
    is_listed = os.path.dirname(folder) == os.path.join(common, "worktrees")
    if not is_listed or os.path.realpath(os.path.join(folder, back)) != os.path.realpath(place):
        raise ToolError(problem)
    return GitRepository(work_tree, folder, common)


def is_of_work_tree(name: str) -> bool:
    """Return True if a file of a repository belongs to a work tree, and not to all of them."""
    return (not name.startswith(("refs/", "logs/refs/")) and name not in COMMON_FILES) or _is_own_ref(name)


def _is_own_ref(name: str) -> bool:
    return name.removeprefix("logs/").startswith(_WORK_TREE_REFS)


@contextlib.contextmanager
def open_folders(repository: GitRepository) -> Generator[tuple[FolderHandle, FolderHandle]]:
    """Hold the folders with the data of a repository open: that of the work tree, and the common one."""
    try:
        own = FolderHandle(repository.git_folder)
        common = own if repository.common_folder == repository.git_folder else FolderHandle(repository.common_folder)
    except OSError as error:
        raise ToolError(f"the repository cannot be opened: {error.strerror}") from error
    try:
        yield own, common
    finally:
        own.close()
        common.close()


class _Allowance:
    """The number of files and bytes of a repository that may still be read."""

    def __init__(self) -> None:
        self.files = _MOST_FILES
        self.bytes = _MOST_BYTES

    def take(self, size: int) -> None:
        self.files -= 1
        self.bytes -= size
        if self.files < 0 or self.bytes < 0:
            raise ToolError("the repository has too many branches or too large an index: run 'git pack-refs --all'")


def read_state(own: FolderHandle, common: FolderHandle) -> dict[str, bytes]:
    """Return the state of a repository: what is checked out, its index, branches and their logs, by their names.

    Raises `ToolError` for a link, and if there is too much.
    """
    found: dict[str, bytes] = {}
    left = _Allowance()
    shared = [name for name in _list_names(own, ()) if name.startswith("sharedindex.")]
    for name in (*WORK_TREE_FILES, "logs/HEAD", *shared):
        _read_into(found, own, name, left)
    for name in UNFINISHED:
        _read_tree(found, own, name, left)
    for name in COMMON_FILES:
        _read_into(found, common, name, left)
    for name in ("refs", "logs/refs"):
        _read_tree(found, common, name, left)
    if own is not common:
        for name in _WORK_TREE_REFS:
            _read_tree(found, own, name.rstrip("/"), left)
    return found


def read_settings(own: FolderHandle, common: FolderHandle) -> dict[str, bytes]:
    """Return what else git reads: the patterns of files that it ignores, and of those that are checked out."""
    found: dict[str, bytes] = {}
    left = _Allowance()
    for name in SETTINGS:
        _read_into(found, common, name, left)
        if own is not common:
            _read_into(found, own, name, left)
    return found


def read_file(folder: FolderHandle, name: str, most_bytes: int = _MOST_BYTES) -> bytes | None:
    """Return the content of a file of a repository; `None` if there is none.

    Raises `ToolError` for a link, a pipe and a file that is too large.
    """
    try:
        descriptor = folder.open(name.split("/"), os.O_RDONLY)
    except OSError as error:
        if error.errno in {errno.ENOENT, errno.ENOTDIR}:
            return None
        raise ToolError(f".git/{name} cannot be read: {_explain(error)}") from error
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise ToolError(f".git/{name} is no file, and is not used")
        head = read_descriptor(descriptor, most_bytes)
    finally:
        os.close(descriptor)
    if head.is_truncated:
        raise ToolError(f".git/{name} is too large: {head.size:,} bytes")
    return head.data


def _explain(error: OSError) -> str:
    return "it is a link" if error.errno == errno.ELOOP else str(error.strerror)


def _read_into(found: dict[str, bytes], folder: FolderHandle, name: str, left: _Allowance) -> None:
    data = read_file(folder, name)
    if data is not None:
        left.take(len(data))
        found[name] = data


def _read_tree(found: dict[str, bytes], folder: FolderHandle, name: str, left: _Allowance) -> None:
    """Read a file, or all files below a folder."""
    steps = name.split("/")
    if len(steps) > _MOST_DEPTH:
        raise ToolError(f".git/{steps[0]} has too many levels of folders")
    try:
        descriptor = folder.open(steps, os.O_RDONLY)
    except OSError as error:
        if error.errno in {errno.ENOENT, errno.ENOTDIR}:
            return
        raise ToolError(f".git/{name} cannot be read: {_explain(error)}") from error
    try:
        is_folder = stat.S_ISDIR(os.fstat(descriptor).st_mode)
    finally:
        os.close(descriptor)
    if not is_folder:
        _read_into(found, folder, name, left)
        return
    for each in sorted(_list_names(folder, steps)):
        left.take(0)
        if not each.endswith(".lock"):
            _read_tree(found, folder, f"{name}/{each}", left)


def _list_names(folder: FolderHandle, steps: Sequence[str]) -> list[str]:
    try:
        if not STEP_BY_STEP:
            return list_names_below(folder.path, steps)
        with folder.open_folder(steps) as descriptor:
            return os.listdir(descriptor)
    except OSError:
        return []
