"""Read the entries of a git index: which files a repository tracks, and which of them are submodules."""

import hashlib
import re
from collections.abc import Iterable
from typing import Final, NamedTuple

from perdure.core.error import ToolError
from perdure.files.sensitive_names import normalize_name

SUBMODULE_MODE: Final = 0o160000
_SUBMODULE_BYTES: Final = SUBMODULE_MODE.to_bytes(4, "big")
_HEADER_BYTES: Final = 12
_EXTENDED: Final = 0x4000
_NAME_MASK: Final = 0x0FFF
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


def list_index_entries(data: bytes) -> list[IndexEntry]:
    """Return the entries of an index of version 2, 3 or 4. Raises `ToolError` if it is damaged."""
    try:
        return _parse_entries(data, _find_digest_bytes(data))
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


def _parse_entries(data: bytes, digest_bytes: int) -> list[IndexEntry]:
    version, count = int.from_bytes(data[4:8], "big"), int.from_bytes(data[8:12], "big")
    if data[:4] != b"DIRC" or version not in {2, 3, 4}:
        raise ValueError("an unknown form")
    found: list[IndexEntry] = []
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
        found.append(IndexEntry(path, mode, data[start + _DIGEST_AT : flags_at], marks << 16 | extended))
    if at > len(data):
        raise ValueError("it is too short")
    return found


def _read_number(data: bytes, at: int) -> tuple[int, int]:
    value = data[at] & 0x7F
    while data[at] & 0x80:
        at += 1
        value = ((value + 1) << 7) | (data[at] & 0x7F)
    return value, at + 1
