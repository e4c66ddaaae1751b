"""Read the entries of a git index: which files a repository tracks, and which of them are submodules."""

import hashlib
import re
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from perdure.core.error import ToolError
from perdure.files.sensitive_names import normalize_name

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
