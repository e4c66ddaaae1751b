"""Hide files whose names suggest secrets from a sandboxed command, by mounting empty or unreadable files over them.

The mounts are chosen so that git commits none of them:

- A file whose exact content is in the index of the repository is shown: every command could read it there.
- One that git does not look at is an empty file: `grep -r` and `cp -r` go on, and `git add -A` does not add it.
- Any other cannot be read: `git add -A` fails and names it. An empty file would be committed.

A folder is empty; if git has files in it, it cannot be read: `git add -A` would else take them for deleted.
"""

# ruff: noqa: PTH112, PTH114, PTH118, PTH120, PTH208 - before every command, where pathlib would cost time
import hashlib
import os
import stat
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from perdure.files.file_head import UnreadableFile, read_file_head
from perdure.files.ignore_rules import FILE_NAME, MOST_BYTES, IgnoreRules, is_ignored, parse_rules

if TYPE_CHECKING:
    from .bubblewrap import CoverMountSources

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
