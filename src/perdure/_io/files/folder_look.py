"""Looks at a working folder: what was in it at one moment, so that two looks tell what a command has changed.

A look has the digest of every file, link and folder. The contents are stored as snapshots, many in a pack: to make a
file for each would cost most of the time. A file whose inode, size and times are as at the look before is not read
again. What a look leaves out (`LEFT_OUT`) it names, so that its loss can be told. Nothing outside of the folder is
opened: each folder is opened in the one above it, and links are not followed.
"""

import contextlib
import os
import stat
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import lru_cache
from typing import Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from perdure._core.permission.targets.path import NONBLOCKING_FLAGS
from perdure._core.values.error import ConfigError
from perdure._io.home.runtime_files import RuntimeFilesBelow, is_beside

from .folder_handle import FOLDER_FLAGS, NO_LINK_FLAG
from .head import read_descriptor
from .ignore_rules import FILE_NAME, MOST_BYTES, IgnoreRules, is_ignored, parse_rules
from .jail import compute_digest
from .protected import KEPT_FROM_COMMANDS, PROTECTED_NAMES
from .sensitive import SENSITIVE_NAMES, BlockedNames
from .snapshots import NOTHING, FileKind, FileState
from .tree_walk import find_rules_above

LEFT_OUT: Final[Mapping[str, str]] = {
    "ignored": "git ignores it",
    "made": "programs make such folders anew",
    "secret": "its name often means secrets",
    "own": "it belongs to the version control or to the runtime",
    "large": "it is too large",
    "special": "it is no regular file",
    "unreadable": "it cannot be read",
    "deep": "it is too deep in the folder",
    "unnamed": "its name is no valid text",
}
"""Reasons for which something in a folder is not recorded."""
_LEFT_OUT_BY_NAME: Final = frozenset({"ignored", "made", "secret", "own"})
_MADE_FOLDERS: Final = frozenset({
    "node_modules", ".venv", "__pycache__", ".tox", ".nox", ".mypy_cache", ".pytest_cache", ".ruff_cache",
})  # fmt: skip
"""Names of folders whose content programs make anew: left out also where no `.gitignore` names them."""
_MOST_DEPTH: Final = 100
_RACY_NS: Final = 100_000_000
"""A file that changed this shortly before it was read may have changed once more with the same times."""
_PACK_BYTES: Final = 4 * 1024 * 1024
"""Size from which on a pack of contents is stored, and another one begun."""
_FEW: Final = 4
"""A look is stored as its differences from another if they are at most one part in so many."""
_SECRET: Final = BlockedNames(SENSITIVE_NAMES)
_OWN: Final = BlockedNames(PROTECTED_NAMES)
_VERSION_CONTROL: Final = ".git"


class LookLimits(Struct, frozen=True, kw_only=True):
    """The most that a look records of a working folder."""

    entries: int = 20_000
    """Files, links and folders. In a folder with more, nothing is recorded."""
    file_bytes: int = 8 * 1024**2
    """Size of a file. One that is larger is left out."""
    total_bytes: int = 256 * 1024**2
    """Size of all files that are not larger. In a folder with more, nothing is recorded."""
    seconds: float = 10.0
    """Time that one look may take. After it, nothing is recorded."""


class SeenEntry(Struct, frozen=True, array_like=True, gc=False):
    """An entry that a look has seen: its kind or the reason why it is left out, and by what it is known again."""

    kind: str
    digest: str
    mode: int
    size: int
    inode: int
    mtime_ns: int
    ctime_ns: int
    pack: str = ""
    """Digest of the pack that has its content."""
    offset: int = 0
    """Where its content begins in the pack."""
    is_racy: bool = False
    """True if it changed so shortly before the look that its times do not tell whether it has changed since."""

    @property
    def is_recorded(self) -> bool:
        """True if its content is stored."""
        return self.kind not in LEFT_OUT

    @property
    def state(self) -> FileState:
        """Its state, if it is recorded."""
        kind: FileKind = "link" if self.kind == "link" else "folder" if self.kind == "folder" else "file"
        return FileState(kind, self.digest, None if kind == "link" else self.mode)


class FolderLook(Struct, frozen=True):
    """The content of a working folder at one moment, by path relative to the folder."""

    entries: dict[str, SeenEntry]
    problem: str = ""
    """Why nothing is recorded; empty if it is."""

    @property
    def packs(self) -> set[str]:
        """The digests of the packs with its contents."""
        return {each.pack for each in self.entries.values() if each.pack}


class StoredLook(Struct, frozen=True):
    """A look as it is stored: in full, or as its differences from another one."""

    entries: dict[str, SeenEntry]
    removed: tuple[str, ...] = ()
    base: str = ""
    """Digest of the stored look that this one differs from; empty for one in full."""


_LOOK_DECODER: Final = msgspec.msgpack.Decoder(StoredLook)


class SeenChange(Struct, frozen=True, array_like=True):
    """A difference between two looks: a path, and its states in both."""

    path: str
    before: FileState
    after: FileState


class _TooMuch(Exception):
    """Raised when a folder exceeds a limit; the message says which."""


def build_stored_look(look: FolderLook, base: FolderLook | None = None, base_digest: str = "") -> StoredLook:
    """Return a look as it is stored: as its differences from `base`, if they are few, else in full."""
    if base is not None:
        known = base.entries
        new = {path: each for path, each in look.entries.items() if known.get(path) is not each}
        removed = tuple([path for path in known if path not in look.entries])
        if len(new) + len(removed) <= len(look.entries) // _FEW:
            return StoredLook(new, removed, base_digest)
    return StoredLook(look.entries)


def decode_look(data: bytes) -> StoredLook:
    """Return a stored look from its bytes. Raises `ConfigError` for bytes that are none."""
    try:
        return _LOOK_DECODER.decode(data)
    except msgspec.MsgspecError as error:
        raise ConfigError(f"what was stored about the folder is damaged: {error}") from error


def complete_look(stored: StoredLook, base: FolderLook | None) -> FolderLook:
    """Return a stored look in full, given the one that it differs from."""
    entries = {} if base is None else {**base.entries}
    for path in stored.removed:
        entries.pop(path, None)
    return FolderLook({**entries, **stored.entries})


def look_at_folder(
    root: str,
    before: FolderLook | None = None,
    *,
    save: Callable[[bytes], str] | None = None,
    limits: LookLimits | None = None,
    own: Collection[str] = (),
) -> FolderLook:
    """Look at a folder; of files that are as in the look `before`, only the times are read.

    Args:
        root: The folder.
        before: An earlier look at it.
        save: Function that stores a pack of contents, and returns its digest.
        limits: The most that is recorded. Beyond it the look is empty, and names its `problem`.
        own: Absolute paths of files and folders that the runtime writes itself, such as the store of the session. They
            are left out, and so are the files that belong to them, such as logs and locks.
    """
    looking = _Looking(
        before.entries if before is not None else {}, save, limits or LookLimits(), _list_below(root, own), root
    )
    try:
        descriptor = os.open(root, FOLDER_FLAGS)
    except OSError as error:
        return FolderLook({}, f"the folder cannot be read: {error.strerror}")
    try:
        looking.look_below(descriptor, (), find_rules_above(root))
        looking.save_rest()
    except _TooMuch as error:
        return FolderLook({}, str(error))
    except OSError as error:
        return FolderLook({}, f"the folder cannot be read: {error.strerror}")
    except ConfigError as error:  # there is no room for the contents
        return FolderLook({}, str(error))
    finally:
        os.close(descriptor)
    return FolderLook(looking.entries)


def take_content(pack: bytes, entry: SeenEntry) -> bytes:
    """Return the content of a file, or the target of a link, from its pack. Raises `ConfigError` if it is not there."""
    data = pack[entry.offset : entry.offset + entry.size]
    if compute_digest(data) != entry.digest:
        raise ConfigError("what was stored about the folder is damaged")
    return data


def list_changes(before: FolderLook, after: FolderLook) -> Iterator[SeenChange]:
    """Yield the differences between two looks that can be undone."""
    for path in sorted(before.entries.keys() | after.entries.keys()):
        old, new = before.entries.get(path), after.entries.get(path)
        if old is new or not all(each is None or each.is_recorded for each in (old, new)):
            continue
        change = SeenChange(path, NOTHING if old is None else old.state, NOTHING if new is None else new.state)
        if not change.before.is_same(change.after, with_mode=True):
            yield change


def is_trusted_by_programs(path: str) -> bool:
    """Return True for a path under a name that other programs trust, and that no command leaves in the sandbox."""
    return bool(KEPT_FROM_COMMANDS.find(path.split("/"))[1])


def list_unrecorded(before: FolderLook, after: FolderLook) -> list[str]:
    """Return what has changed between two looks and cannot be undone, each as a path with the reason.

    What is left out for its name is named when it is gone; that programs write to it is not worth telling.
    """
    found: list[str] = []
    for path in sorted(before.entries.keys() | after.entries.keys()):
        old, new = before.entries.get(path), after.entries.get(path)
        left = next((each for each in (old, new) if each is not None and not each.is_recorded), None)
        if left is None or (old is not None and new is not None and _looks_alike(old, new)):
            continue
        if new is not None and (
            left.kind in {"ignored", "made", "secret", "own"} and (old is None or old.kind == new.kind)
        ):
            continue
        found.append(f"{path} ({LEFT_OUT[left.kind]})")
    return found


def _looks_alike(one: SeenEntry, other: SeenEntry) -> bool:
    return (one.kind, one.size, one.inode, one.mtime_ns, one.ctime_ns) == (
        other.kind, other.size, other.inode, other.mtime_ns, other.ctime_ns,
    )  # fmt: skip


class _Looking:
    """A look at a folder that is in progress."""

    def __init__(
        self,
        known: Mapping[str, SeenEntry],
        save: Callable[[bytes], str] | None,
        limits: LookLimits,
        own: tuple[str, ...],
        root: str,
    ) -> None:
        self._runtime_files = RuntimeFilesBelow(root)
        self._own = own
        """Paths, relative to the folder, that the runtime writes itself."""
        self.entries: dict[str, SeenEntry] = {}
        self._known = known
        self._save = save
        self._limits = limits
        self._bytes = 0
        self._pack: list[tuple[str, SeenEntry, bytes]] = []
        """What was read and is not stored yet."""
        self._pack_bytes = 0
        self._deadline = time.monotonic() + limits.seconds

    def look_below(self, folder: int, steps: tuple[str, ...], rules: tuple[IgnoreRules, ...]) -> None:
        """Add everything below an open folder."""
        if time.monotonic() > self._deadline:
            raise _TooMuch(f"to look at the folder takes more than {self._limits.seconds:g} seconds")
        listed = _list_folder(folder)
        if _VERSION_CONTROL in listed:
            rules = ()  # a repository of its own, to which no rules from above apply
        if FILE_NAME in listed:
            rules = (*rules, *_read_rules(folder, len(steps)))
        for name, status in listed.items():
            self._look_at(folder, (*steps, name), status, rules)
            if len(self.entries) > self._limits.entries:
                raise _TooMuch(f"the folder has more than {self._limits.entries:,} files")

    def save_rest(self) -> None:
        """Store the contents that are not stored yet, as one pack."""
        if time.monotonic() > self._deadline:
            raise _TooMuch(f"to look at the folder takes more than {self._limits.seconds:g} seconds")
        pack, self._pack, self._pack_bytes = self._pack, [], 0
        if not pack or self._save is None:
            return
        digest, offset = self._save(b"".join([data for _, _, data in pack])), 0
        for path, entry, data in pack:
            self.entries[path] = replace(entry, pack=digest, offset=offset)
            offset += len(data)

    def _look_at(
        self, folder: int, steps: tuple[str, ...], status: os.stat_result, rules: tuple[IgnoreRules, ...]
    ) -> None:
        name, mode = steps[-1], status.st_mode
        path = "/".join(steps)
        is_folder = stat.S_ISDIR(mode)
        is_own = any(is_beside(path, each) for each in self._own) or self._runtime_files.has(steps)
        kind = "own" if is_own else _find_reason(steps, rules, is_folder=is_folder)
        if not kind and is_folder and len(steps) >= _MOST_DEPTH:
            kind = "deep"
        if not kind and not is_folder and not stat.S_ISLNK(mode):
            kind = "" if stat.S_ISREG(mode) else "special"
            kind = "large" if not kind and status.st_size > self._limits.file_bytes else kind
        if kind:
            if kind == "unnamed":
                path = path.encode("utf-8", "backslashreplace").decode()
            self.entries[path] = _describe(kind, "", status)
        elif is_folder:
            self._enter(folder, name, steps, status, rules)
        else:
            self._read(folder, name, path, status)

    def _enter(
        self,
        folder: int,
        name: str,
        steps: tuple[str, ...],
        status: os.stat_result,
        rules: tuple[IgnoreRules, ...],
    ) -> None:
        path = "/".join(steps)
        try:
            below = os.open(name, FOLDER_FLAGS | NO_LINK_FLAG | NONBLOCKING_FLAGS, dir_fd=folder)
        except OSError:
            self.entries[path] = _describe("unreadable", "", status)
            return
        try:
            self.entries[path] = _describe("folder", "", status)
            self.look_below(below, steps, rules)
        finally:
            os.close(below)

    def _read(self, folder: int, name: str, path: str, status: os.stat_result) -> None:
        """Add a file or a link; read it, unless it is known."""
        is_link = stat.S_ISLNK(status.st_mode)
        self._bytes += status.st_size
        if self._bytes > self._limits.total_bytes:
            raise _TooMuch(f"its files have more than {self._limits.total_bytes // 1024**2:,} MB")
        known = self._known.get(path)
        if known is not None and not known.is_racy and _is_known(known, status, is_link=is_link):
            self.entries[path] = known
            return
        try:
            data, status = _read_content(folder, name, self._limits.file_bytes, status, is_link=is_link)
        except FileNotFoundError:
            return
        except OSError:
            self.entries[path] = _describe("unreadable", "", status)
            return
        digest = compute_digest(data)
        entry = replace(_describe("link" if is_link else "file", digest, status), size=len(data))
        if known is not None and known.digest == digest and known.pack:
            self.entries[path] = replace(entry, pack=known.pack, offset=known.offset)
            return
        self.entries[path] = entry
        self._pack.append((path, entry, data))
        self._pack_bytes += len(data)
        if self._pack_bytes > _PACK_BYTES:
            self.save_rest()


def _list_below(root: str, own: Collection[str]) -> tuple[str, ...]:
    """Return those of these paths that are in the folder, relative to it; the folder itself is never left out."""
    above = root.rstrip(os.sep) + os.sep
    real = [os.path.realpath(each) for each in own]
    return tuple([each.removeprefix(above) for each in real if each.startswith(above)])


def _list_folder(folder: int) -> dict[str, os.stat_result]:
    """Return the names in an open folder, with what the system says about each."""
    listed: dict[str, os.stat_result] = {}
    with os.scandir(folder) as found:
        for each in found:
            with contextlib.suppress(FileNotFoundError):  # it is gone meanwhile
                listed[each.name] = each.stat(follow_symlinks=False)
    return listed


def _find_reason(steps: tuple[str, ...], rules: tuple[IgnoreRules, ...], *, is_folder: bool) -> str:
    """Return the reason for which a name is left out; empty if it is not."""
    name = steps[-1]
    if not name.isascii() and not _is_text(name):
        return "unnamed"
    if any(map(_may_be_special, steps)):
        if _OWN.find(steps, is_folder=is_folder):
            return "own"
        if _SECRET.find(steps, is_folder=is_folder):
            return "secret"
    if is_folder and name in _MADE_FOLDERS:
        return "made"
    return "ignored" if rules and is_ignored(steps, rules, is_folder=is_folder) else ""


@lru_cache(100_000)
def _may_be_special(name: str) -> bool:
    return _OWN.may_match(name) or _SECRET.may_match(name)


def _is_text(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def _describe(kind: str, digest: str, status: os.stat_result) -> SeenEntry:
    changed = max(status.st_mtime_ns, status.st_ctime_ns)
    return SeenEntry(
        kind, digest, stat.S_IMODE(status.st_mode), status.st_size, status.st_ino, status.st_mtime_ns,
        status.st_ctime_ns, is_racy=changed > time.time_ns() - _RACY_NS,
    )  # fmt: skip


def _is_known(known: SeenEntry, status: os.stat_result, *, is_link: bool) -> bool:
    """Return True if a file is the one that was seen before, unchanged."""
    return (
        known.kind == ("link" if is_link else "file")
        and known.ctime_ns == status.st_ctime_ns
        and known.mtime_ns == status.st_mtime_ns
        and known.size == status.st_size
        and known.inode == status.st_ino
        and known.mode == stat.S_IMODE(status.st_mode)
    )


def _read_content(
    folder: int, name: str, most: int, status: os.stat_result, *, is_link: bool
) -> tuple[bytes, os.stat_result]:
    """Return the content of a file, or the target of a link, and the status that belongs to it. Raises `OSError`."""
    if is_link:
        return os.fsencode(os.readlink(name, dir_fd=folder)), status
    descriptor = os.open(name, os.O_RDONLY | NO_LINK_FLAG | NONBLOCKING_FLAGS, dir_fd=folder)
    try:
        status = os.fstat(descriptor)
        found = read_descriptor(descriptor, most + 1)
    finally:
        os.close(descriptor)
    if not stat.S_ISREG(status.st_mode) or len(found.data) > most:
        raise OSError("it has become something else")
    return found.data, status


def _read_rules(folder: int, depth: int) -> list[IgnoreRules]:
    """Return the ignore rules of the `.gitignore` file in an open folder, if it has one that can be read."""
    try:
        descriptor = os.open(FILE_NAME, os.O_RDONLY | NO_LINK_FLAG | NONBLOCKING_FLAGS, dir_fd=folder)
    except OSError:
        return []
    try:
        text = read_descriptor(descriptor, MOST_BYTES).data.decode("utf-8", "replace")
    except OSError:
        return []
    finally:
        os.close(descriptor)
    return [IgnoreRules(depth, (), parse_rules(text))]
