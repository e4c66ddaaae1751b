"""Take over into a repository what a command has done to a private copy of it: objects, branches, index.

The command may have written anything there. So names are taken from an allow list, contents are checked, no link is
followed, and nothing that exists is replaced but the value that was copied. Git is run in its sandbox alone, to read a
pack. What another program has changed meanwhile is a conflict: then nothing is taken over.
"""

# ruff: noqa: PTH118, PTH208 - descriptors are the point here, and a Path has none
import contextlib
import errno
import hashlib
import os
import re
import stat
import zlib
from collections.abc import Generator, Iterator, Mapping
from typing import Final

from perdure._core.values.error import ToolError
from perdure._io.files.atomic import open_atomic_file
from perdure._io.files.folder_handle import FolderHandle

from .configuration import NEW_REPOSITORY, build_plain_configuration, parse_configuration
from .pack_index import make_pack_index
from .private_copy import ALTERNATES, PrivateGitCopy
from .repository import (
    SETTINGS,
    UNFINISHED,
    WORK_TREE_FILES,
    GitRepository,
    build_honest_index,
    find_misleading_path,
    is_of_work_tree,
    list_index_entries,
    list_submodules,
    open_folders,
    read_file,
    read_state,
)

_MOST_OBJECT_BYTES: Final = 2 * 1024**3
"""Bytes of new objects that are taken over from one command."""
_MOST_CONTENT_BYTES: Final = 8 * 1024**3
"""Bytes of the contents of all new loose objects."""
_MOST_OBJECTS: Final = 200_000
_CHUNK_BYTES: Final = 1024 * 1024
_DIGEST: Final = re.compile(rb"[0-9a-f]{40}(?:[0-9a-f]{24})?")
_BRANCH: Final = re.compile(rb"ref: (refs/\S+)")
_REF_NAME: Final = re.compile(r"refs(?:/(?![.])[^\x00-\x20\x7f~^:?*\[\\/]+(?<![.])(?<!\.lock))+")
_UNSAFE_NAME: Final = re.compile(r"[$`|;&<>\"]|/-")
"""What a new name must not have: a shell may evaluate it, or a program take it for an option."""
_REPLACING: Final = "refs/replace/"
_LOOSE: Final = re.compile(r"[0-9a-f]{2}")
_LOOSE_REST: Final = re.compile(r"[0-9a-f]{38}(?:[0-9a-f]{24})?")
_PACK: Final = re.compile(r"pack-[0-9a-f]{40}(?:[0-9a-f]{24})?\.pack")
_SHARED_INDEX: Final = re.compile(r"sharedindex\.[0-9a-f]{40}(?:[0-9a-f]{24})?")
_STASH_LOG: Final = "logs/refs/stash"
"""The list of stashes, from which commands remove what they have used up."""
_PACKED: Final = re.compile(rb"([0-9a-f]{40}(?:[0-9a-f]{24})?) (\S+)")
_MOST_NAME: Final = 1000
_MOST_REDIRECTIONS: Final = 5
_CONFLICT: Final = "another program has changed the repository meanwhile ({}): nothing of it was taken over; try again"


def take_over(repository: GitRepository, copy: PrivateGitCopy) -> str:
    """Take over the changes in a private copy; return what was deleted, or empty text.

    Raises `ToolError` if the copy is no repository any more, or the repository was changed by others meanwhile.
    """
    with _explain_errors(), copy.open_folder() as made:
        after = _read_result(made, copy.state)
        if read_file(made, ALTERNATES) is None:  # all of its branches and commits would be gone
            raise ToolError(
                "the command has removed the repository and made a new one: nothing of it was taken over, and the "
                "repository is as before"
            )
        if after == copy.state and not _has_objects(made):
            return ""
        with open_folders(repository) as (own, common):
            _copy_objects(made, common)
            return _Takeover(own, common, copy.state, after).apply()


@contextlib.contextmanager
def _explain_errors() -> Generator[None]:
    try:
        yield
    except OSError as error:
        raise ToolError(f"what the command did to the repository could not be taken over: {error}") from error


def create_branch(repository: GitRepository, name: str, value: str) -> None:
    """Create a branch at a commit. Raises `ToolError` if it exists, or its name is none."""
    if not _is_ref_name(name):
        raise ToolError(f"{name!r} is no name of a branch")
    with _explain_errors(), open_folders(repository) as (own, common):
        state = read_state(own, common)
        if name in _list_refs(state):
            raise ToolError(f"there is a branch {name!r} already")
        _Takeover(own, common, state, {**state, name: value.encode()}).apply()


def find_commit(state: Mapping[str, bytes], name: str) -> str | None:
    """Return the digest of the commit that HEAD or a branch is at; `None` if there is none."""
    refs = {**_list_refs(state), "HEAD": state.get("HEAD", b"").strip()}
    for _ in range(_MOST_REDIRECTIONS):
        value = refs.get(name, b"")
        if _DIGEST.fullmatch(value):
            return value.decode()
        if not (match := _BRANCH.fullmatch(value)):
            return None
        name = os.fsdecode(match[1])
    return None


def create_repository(work_tree: str, copy: PrivateGitCopy) -> bool:
    """Make a repository of what a command has created in an empty copy; return False if that is no repository.

    Its configuration has what is plain of the command's, and it has no hooks.
    """
    with _explain_errors(), copy.open_folder() as made:
        if read_file(made, "HEAD") is None:
            return False
        after = _read_result(made, {})
        settings = parse_configuration(read_file(made, "config", _CHUNK_BYTES) or b"")
        top = FolderHandle(work_tree)
        try:
            for name in ("refs/heads", "refs/tags", "objects/info", "objects/pack", "info"):
                with top.open_folder([".git", *name.split("/")], create=True):
                    pass
            place = FolderHandle(os.path.join(work_tree, ".git"))
            try:
                if read_file(place, "HEAD") is not None:
                    raise ToolError(_CONFLICT.format(".git"))
                _copy_objects(made, place)
                excluded = read_file(made, SETTINGS[0], _CHUNK_BYTES) or b""
                plain = {
                    "config": build_plain_configuration(settings, start=NEW_REPOSITORY).encode(),
                    SETTINGS[0]: excluded,
                }
                _Takeover(place, place, {}, {**after, **plain}).apply()
            finally:
                place.close()
        finally:
            top.close()
    return True


def _read_result(made: FolderHandle, before: Mapping[str, bytes]) -> dict[str, bytes]:
    """Return the state of a copy after the command. Raises `ToolError` if it is not valid."""
    after = read_state(made, made)
    head = after.get("HEAD", b"").strip()
    branch = _BRANCH.fullmatch(head)
    is_valid = _DIGEST.fullmatch(head) or (branch and _is_ref_name(os.fsdecode(branch[1])))
    if branch and head != before.get("HEAD", b"").strip() and _UNSAFE_NAME.search(os.fsdecode(branch[1])):
        is_valid = None
    for name in ("refs", "objects"):
        with contextlib.suppress(OSError), made.open_folder([name]):
            continue
        is_valid = None
    if not is_valid:
        raise ToolError("the command has left no valid repository in .git: nothing of it was taken over")
    for name in UNFINISHED:
        if _below(before, name) != _below(after, name):
            raise ToolError(
                f"the command has left something unfinished ({name}): nothing of it was taken over; "
                "let one command line begin and end it"
            )
    for name in ["index", *filter(_SHARED_INDEX.fullmatch, after)]:
        _check_index(before.get(name, b""), after.get(name, b""))
    if (given := after.get("index", b"")) not in {before.get("index", b""), b""}:
        after["index"] = build_honest_index(before.get("index", b""), given)
    return after


def _below(state: Mapping[str, bytes], name: str) -> dict[str, bytes]:
    return {each: data for each, data in state.items() if each == name or each.startswith(f"{name}/")}


def _check_index(before: bytes, after: bytes) -> None:
    """Raise `ToolError` for an index that is damaged, leads elsewhere, or makes another repository a submodule.

    Git runs in a submodule with the submodule's own configuration, also for `git status` in the repository above it.
    """
    if after in {before, b""}:
        return
    if misleading := find_misleading_path(list_index_entries(after)):
        raise ToolError(f"the index names {misleading!r}, which is no file of the work tree: nothing was taken over")
    if added := {*list_submodules(after)} - {*list_submodules(before)}:
        raise ToolError(
            f"the folder {min(added)!r} is a repository of its own, and is not added to this one: remove its .git"
        )


def _is_ref_name(name: str) -> bool:
    return bool(_REF_NAME.fullmatch(name)) and ".." not in name and "@{" not in name and len(name) < _MOST_NAME


def _list_refs(state: Mapping[str, bytes]) -> dict[str, bytes]:
    """Return all refs of a state with their values, whether they are packed or not."""
    found: dict[str, bytes] = {}
    for line in state.get("packed-refs", b"").splitlines():
        if match := _PACKED.fullmatch(line):
            found[os.fsdecode(match[2])] = match[1]
    for name, data in state.items():
        if name.startswith("refs/"):
            found[name] = data.strip()
    return found


class _Takeover:
    """Applies the difference of two states to a repository, under the locks that git uses."""

    def __init__(
        self, own: FolderHandle, common: FolderHandle, before: Mapping[str, bytes], after: Mapping[str, bytes]
    ) -> None:
        self._own, self._common = own, common
        self._before, self._after = before, after
        self._locks: list[tuple[FolderHandle, str]] = []

    def apply(self) -> str:
        """Apply it; return which refs were deleted."""
        refs = self._find_changed_refs()
        files = self._find_changed_files()
        packed = _list_refs({"packed-refs": self._before.get("packed-refs", b"")})
        deleted = [name for name, value in refs.items() if value is None]
        try:
            for name in (*refs, *[each for each in files if each in {"HEAD", "index"}]):
                self._lock(name)
            if any(name in packed for name in deleted):
                self._lock("packed-refs")
            self._check_unchanged(refs, files)
            self._write(refs, files, packed)
        finally:
            self._unlock()
        old = _list_refs(self._before)
        return ", ".join([f"{name} (was {os.fsdecode(old[name][:12])})" for name in deleted])

    def _find_changed_refs(self) -> dict[str, bytes | None]:
        """Return the refs that have another value now; `None` for those that were deleted."""
        before, after = _list_refs(self._before), _list_refs(self._after)
        changed: dict[str, bytes | None] = {name: value for name, value in after.items() if before.get(name) != value}
        for name, value in changed.items():
            is_link = value is not None and (match := _BRANCH.fullmatch(value)) and _is_ref_name(os.fsdecode(match[1]))
            if name.startswith(_REPLACING):
                raise ToolError(
                    f"the command has replaced an object ({name}), so that known commits would have other content: "
                    "nothing was taken over"
                )
            is_safe = _is_ref_name(name) and (name in before or not _UNSAFE_NAME.search(name))
            if not is_safe or value is None or not (_DIGEST.fullmatch(value) or is_link):
                raise ToolError(f"the command has left a branch {name!r} that is not valid: nothing was taken over")
        return {**{name: None for name in before if name not in after}, **changed}

    def _find_changed_files(self) -> dict[str, bytes | None]:
        names = [each for each in {**self._before, **self._after} if self._is_taken(each)]
        return {
            name: self._after.get(name) for name in sorted(names) if self._before.get(name) != self._after.get(name)
        }

    def _is_taken(self, name: str) -> bool:
        is_new_share = _SHARED_INDEX.fullmatch(name) and name not in self._before
        is_created = name in {"config", *SETTINGS} and not self._before
        return name in WORK_TREE_FILES or bool(is_new_share) or is_created

    def _check_unchanged(self, refs: Mapping[str, bytes | None], files: Mapping[str, bytes | None]) -> None:
        """Raise `ToolError` if the repository has not the values any more that were copied."""
        now = read_state(self._own, self._common)
        before, present = _list_refs(self._before), _list_refs(now)
        for name in refs:
            if present.get(name) != before.get(name):
                raise ToolError(_CONFLICT.format(name))
        if "HEAD" in files and now.get("HEAD") != self._before.get("HEAD"):
            raise ToolError(_CONFLICT.format("HEAD"))
        if "index" in files and not _is_same_index(now.get("index", b""), self._before.get("index", b"")):
            raise ToolError(_CONFLICT.format("index"))

    def _write(
        self, refs: Mapping[str, bytes | None], files: Mapping[str, bytes | None], packed: Mapping[str, bytes]
    ) -> None:
        for name in [each for each, value in refs.items() if value is None]:
            if name in packed:
                self._drop_packed(name)
            self._remove(name)
            self._remove(f"logs/{name}")
        self._append_logs()
        for name, value in refs.items():
            if value is not None:
                self._replace(name, value + b"\n")
        last = ("HEAD", "index")
        for name in sorted(files, key=lambda each: (each in last, each == "index")):
            data = files[name]
            self._remove(name) if data is None else self._replace(name, data)

    def _append_logs(self) -> None:
        for name, data in self._after.items():
            before = self._before.get(name, b"")
            log_of = name.removeprefix("logs/")
            is_log = name == "logs/HEAD" or (name.startswith("logs/") and _is_ref_name(log_of))
            if is_log and data != before and data.startswith(before):
                with self._open_parent(name, create=True) as (folder, last):
                    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK
                    descriptor = os.open(last, flags, 0o666, dir_fd=folder)
                    try:
                        _write_all(descriptor, data[len(before) :])
                    finally:
                        os.close(descriptor)
        stashes = self._after.get(_STASH_LOG)
        if stashes is not None and not stashes.startswith(self._before.get(_STASH_LOG, b"")):
            self._replace(_STASH_LOG, stashes)

    def _drop_packed(self, name: str) -> None:
        """Remove a ref from the packed ones; the line behind it says what a tag leads to."""
        kept: list[bytes] = []
        is_dropped = False
        for line in (read_file(self._common, "packed-refs") or b"").splitlines(keepends=True):
            match = _PACKED.fullmatch(line.rstrip(b"\n"))
            is_dropped = os.fsdecode(match[2]) == name if match else is_dropped and line.startswith(b"^")
            kept += [] if is_dropped else [line]
        self._replace("packed-refs", b"".join(kept))

    def _replace(self, name: str, data: bytes) -> None:
        with self._open_parent(name, create=True) as (folder, last), open_atomic_file(folder, last) as file:
            _write_all(file.descriptor, data)
            file.replace()

    def _remove(self, name: str) -> None:
        with contextlib.suppress(FileNotFoundError), self._open_parent(name) as (folder, last):
            os.unlink(last, dir_fd=folder)

    def _lock(self, name: str) -> None:
        """Make the lock file that git makes. Raises `ToolError` if another program has it."""
        folder = self._choose_folder(name)
        try:
            with self._open_parent(name, create=True) as (descriptor, last):
                flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
                os.close(os.open(f"{last}.lock", flags, 0o666, dir_fd=descriptor))
        except OSError as error:
            if error.errno in {errno.EEXIST, errno.ENOTDIR, errno.EISDIR}:
                raise ToolError(_CONFLICT.format(f"{name} is locked")) from error
            raise ToolError(f".git/{name} cannot be changed: {error.strerror}") from error
        self._locks.append((folder, name))

    def _unlock(self) -> None:
        for _, name in reversed(self._locks):
            with contextlib.suppress(OSError), self._open_parent(name) as (descriptor, last):
                os.unlink(f"{last}.lock", dir_fd=descriptor)

    def _choose_folder(self, name: str) -> FolderHandle:
        return self._own if is_of_work_tree(name) else self._common

    @contextlib.contextmanager
    def _open_parent(self, name: str, *, create: bool = False) -> Generator[tuple[int, str]]:
        *above, last = name.split("/")
        with self._choose_folder(name).open_folder(above, create=create) as folder:
            yield folder, last


def _is_same_index(now: bytes, before: bytes) -> bool:
    """Return True if two indexes have the same entries: git status rewrites what it knows of the files."""
    return now == before or (bool(now and before) and list_index_entries(now) == list_index_entries(before))


# -- objects -----------------------------------------------------------------------------------------------------------


def _has_objects(made: FolderHandle) -> bool:
    return any(True for _ in _list_objects(made))


def _list_objects(made: FolderHandle) -> Iterator[tuple[str, ...]]:
    """Yield the names of all objects and packs in a copy; the index of a pack is made anew."""
    for folder in sorted(_list_folder(made, ("objects",))):
        if _LOOSE.fullmatch(folder):
            for name in sorted(_list_folder(made, ("objects", folder))):
                if _LOOSE_REST.fullmatch(name):
                    yield "objects", folder, name
    for name in sorted(_list_folder(made, ("objects", "pack"))):
        if _PACK.fullmatch(name):
            yield "objects", "pack", name


def _list_folder(made: FolderHandle, steps: tuple[str, ...]) -> list[str]:
    try:
        with made.open_folder(steps) as descriptor:
            return os.listdir(descriptor)
    except OSError:
        return []


def _copy_objects(made: FolderHandle, common: FolderHandle) -> None:
    left, count = _MOST_OBJECT_BYTES, 0
    budget = _InflateBudget()
    for steps in _list_objects(made):
        descriptor = made.open(steps, os.O_RDONLY)
        try:
            found = os.fstat(descriptor)
            left, count = left - found.st_size, count + 1
            if not stat.S_ISREG(found.st_mode) or left < 0 or count > _MOST_OBJECTS:
                raise ToolError("the command has made too many objects, or none that are files: nothing was taken over")
            if steps[1] == "pack":
                _copy_pack(descriptor, steps[2], common)
            else:
                _copy_object(descriptor, steps, common, _ObjectCheck(steps[1] + steps[2], budget))
        finally:
            os.close(descriptor)


def _copy_pack(source: int, name: str, common: FolderHandle) -> None:
    """Copy a pack, unless there is one of this name, with an index of what is really in it."""
    with common.open_folder(["objects", "pack"], create=True) as folder, contextlib.suppress(FileNotFoundError):
        os.stat(name, dir_fd=folder, follow_symlinks=False)
        return
    with make_pack_index(source, name) as checked:
        for each in (name, f"{name.removesuffix('.pack')}.idx"):  # without its index, a pack is not seen
            descriptor = checked.open([each], os.O_RDONLY)
            try:
                _copy_object(descriptor, ("objects", "pack", each), common)
            finally:
                os.close(descriptor)


def _copy_object(
    source: int, steps: tuple[str, ...], common: FolderHandle, check: "_ObjectCheck | None" = None
) -> None:
    """Copy an object under its name, if that is free; what is written is what was checked."""
    *above, name = steps
    with common.open_folder(above, create=True) as folder:
        with contextlib.suppress(FileNotFoundError):
            os.stat(name, dir_fd=folder, follow_symlinks=False)
            return
        with open_atomic_file(folder, name) as file:
            while part := os.read(source, _CHUNK_BYTES):
                if check is not None:
                    check.add(part)
                _write_all(file.descriptor, part)
            if check is not None and not check.is_right():
                raise ToolError(f"the object {above[-1] + name} does not have its content: nothing was taken over")
            os.fchmod(file.descriptor, 0o444)
            with contextlib.suppress(FileExistsError):
                file.take_name()


class _InflateBudget:
    """The most bytes of all objects of one command together: a few bytes on the disk can stand for many."""

    def __init__(self) -> None:
        self.left = _MOST_CONTENT_BYTES


class _ObjectCheck:
    """Compares the content of a loose object with its name, part by part."""

    def __init__(self, name: str, budget: _InflateBudget) -> None:
        self._name = name
        short = len(name) == 40  # noqa: PLR2004 - of SHA-1
        self._digest = hashlib.sha1(usedforsecurity=False) if short else hashlib.sha256(usedforsecurity=False)
        self._inflate = zlib.decompressobj()
        self._budget = budget
        self._is_damaged = False

    def add(self, part: bytes) -> None:
        try:
            while part and self._budget.left > 0:
                data = self._inflate.decompress(part, _CHUNK_BYTES)
                self._digest.update(data)
                self._budget.left -= len(data)
                part = self._inflate.unconsumed_tail
        except zlib.error:
            self._is_damaged = True

    def is_right(self) -> bool:
        """Return True if everything was read, and its digest is the name."""
        if self._budget.left <= 0:
            raise ToolError("the command has made objects with too much content: nothing was taken over")
        return not self._is_damaged and self._inflate.eof and self._digest.hexdigest() == self._name


def _write_all(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]
