"""Find the repository of a folder, and read its own data: by descriptors, through no link, and within limits.

The data of a repository may have been written by anybody, so a `.git` that leads to the data of another repository is
refused: a link, a shared folder (`commondir`), objects of others (`alternates`), and a file `.git`, unless the
repository that it leads to knows this work tree as its own, or has it as a submodule.
"""

# ruff: noqa: PTH112, PTH113, PTH114, PTH118, PTH120, PTH208 - descriptors are the point here, and a Path has none
import contextlib
import errno
import os
import stat
from collections.abc import Generator, Sequence
from typing import Final

from msgspec import Struct

from perdure.core.error import ToolError
from perdure.core.open_without_links import STEP_BY_STEP, list_names_below
from perdure.files.file_head import UnreadableFile, read_descriptor, read_file_head
from perdure.files.folder_handle import FolderHandle

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
