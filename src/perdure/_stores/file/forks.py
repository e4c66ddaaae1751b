"""Forks in a file store: a fork's file names its parent session, and the entries they share stay in the parent's file.

A parent is identified by its key. While it exists, its log contains the shared entries. When it is deleted, its file is
renamed to a name made from the key and cut down to what its forks need, and is deleted with the last of them. Forks are
made and parents deleted under the folder's lock; reading needs no lock.
"""

# ruff: noqa: PTH104, PTH120 - paths are strings
import logging
import os
from typing import Final, NamedTuple

import msgspec

from perdure._core.values.error import StoreError

from .disk import erase_file, sync_folder
from .layout import (
    LOG_SUFFIX,
    REMNANT_SUFFIX,
    SessionPaths,
    get_deleted_parent_paths,
    get_fork_marker_path,
    get_session_paths,
)
from .repair import rewrite_file_securely
from .scan import EncodedEntry, Header, SessionFileScan, read_header, scan_unlocked

_log: Final = logging.getLogger("perdure")


class SharedEntries(NamedTuple):
    """The log entries that a fork shares with the sessions it was forked from, read from their files."""

    entries: list[EncodedEntry]
    surveys: list[SessionFileScan]
    """Of the files that contain them."""


class ForkHeaders(NamedTuple):
    """The file headers of all forks in a folder, which name their parents."""

    headers: list[Header]
    is_complete: bool
    """True if every file's header could be read; if not, nothing may be deleted."""


def generate_session_key() -> str:
    """Return a random key that identifies a new session to its forks."""
    return os.urandom(16).hex()


def recover_or_create_key(place: SessionPaths) -> str:
    """Return a session key for a log file without a header: the key that its forks refer to, or a new one."""
    if os.path.lexists(get_fork_marker_path(place)):
        folder = os.path.dirname(place.log)
        for fork in read_fork_headers(folder).headers:
            is_lost = not os.path.lexists(get_deleted_parent_paths(folder, fork.parent, fork.parent_key).log)
            if fork.parent == place.session_id and is_lost:
                return fork.parent_key
    return generate_session_key()


def read_shared_entries(folder: str, header: Header, after: int) -> SharedEntries:
    """Read the entries after number `after` that a fork shares with its ancestors. Raises `OSError`, `StoreError`."""
    parts: list[list[EncodedEntry]] = []
    surveys: list[SessionFileScan] = []
    most, seen = header.at, {header.key}
    while after < most and header.parent_key not in seen:
        seen.add(header.parent_key)
        found = scan_unlocked(find_file_of_shared_entries(folder, header), synced=most)
        surveys.append(found)
        parts.append([kept for kept in found.entries if after < kept.seq <= most])
        if found.header is None or not found.header.parent_key:
            break
        header, most = found.header, min(most, found.header.at)
    return SharedEntries([kept for part in reversed(parts) for kept in part], surveys)


def find_file_of_shared_entries(folder: str, header: Header) -> SessionPaths:
    """Return the paths of the file with a fork's shared entries: its parent's log, or the remnant of a deleted parent.

    The remnant is the part of a deleted parent's log that its forks share.
    """
    place = get_session_paths(folder, header.parent)
    is_there = is_parent_alive(folder, header)
    return place if is_there else get_deleted_parent_paths(folder, header.parent, header.parent_key)


def is_parent_alive(folder: str, header: Header) -> bool:
    """Return True if the parent of this fork has not been deleted."""
    if not header.parent_key:
        return False
    parent = read_header(get_session_paths(folder, header.parent).log)
    if parent is not None:
        return parent.key == header.parent_key
    # A file without a header is that parent, unless what the parent has left lies elsewhere.
    is_file = os.path.lexists(get_session_paths(folder, header.parent).log)
    return is_file and not os.path.lexists(get_deleted_parent_paths(folder, header.parent, header.parent_key).log)


def read_fork_headers(folder: str) -> ForkHeaders:
    """Read the file headers of all forks in a folder. Raises `OSError`."""
    with os.scandir(folder) as files:
        regular = [file for file in files if file.is_file(follow_symlinks=False)]
    paths = [file.path for file in regular if file.name.endswith((LOG_SUFFIX, REMNANT_SUFFIX))]
    headers: list[Header] = []
    are_all = True
    for path in paths:
        try:
            header = read_header(path)
        except StoreError:  # a newer version has made it
            are_all = False
            continue
        if header is None:
            are_all &= not os.path.lexists(path) or not os.path.getsize(path)  # noqa: PTH202
        elif header.parent_key:
            headers.append(header)
    return ForkHeaders(headers, are_all)


def delete_log_keeping_shared(folder: str, place: SessionPaths) -> None:
    """Delete the log of a session, but keep the entries that its forks share.

    The caller has locked the folder. Raises `OSError`.
    """
    header = read_header(place.log)
    if os.path.lexists(get_fork_marker_path(place)):
        key = header.key if header is not None else recover_or_create_key(place)
        trunk = get_deleted_parent_paths(folder, place.session_id, key)
        if os.path.lexists(place.log):
            os.rename(place.log, trunk.log)
            sync_folder(folder)
        for left in find_deleted_parents(folder):  # also one left by a process that was killed while deleting
            if left.session_id == place.session_id:
                erase_unshared_entries(folder, left)
    else:
        erase_file(place.log)
    if header is not None and header.parent_key:
        erase_unshared_entries(folder, get_deleted_parent_paths(folder, header.parent, header.parent_key))


def find_deleted_parents(folder: str) -> list[SessionPaths]:
    """Return the paths of all remnants: files of deleted sessions with entries that forks still share."""
    with os.scandir(folder) as files:
        paths = [file.path for file in files if file.name.endswith(REMNANT_SUFFIX) and file.name.startswith("=")]
    headers = [read_header(path) for path in paths]
    return [get_deleted_parent_paths(folder, header.id, header.key) for header in headers if header is not None]


def erase_unshared_entries(folder: str, remnant: SessionPaths) -> None:
    """Erase the entries that no fork shares any more from the files of a deleted session and its deleted ancestors."""
    while os.path.lexists(remnant.log):
        header = read_header(remnant.log)
        forks = read_fork_headers(folder)
        if header is None or not forks.is_complete:
            _log.warning(
                "%r is kept as it is, because not every file in its folder says what it shares: repair or delete "
                "damaged sessions, then vacuum the store",
                remnant.log,
            )
            return
        needed = max((fork.at for fork in forks.headers if fork.parent_key == header.key), default=0)
        if needed:
            _truncate_remnant(remnant, header, needed)
        else:
            erase_file(remnant.log)
            erase_file(remnant.quarantine)
        remnant = get_deleted_parent_paths(folder, header.parent, header.parent_key)


def _truncate_remnant(remnant: SessionPaths, header: Header, needed: int) -> None:
    """Rewrite the file of a deleted session with only its first `needed` entries. A damaged file is kept as it is, for
    repair by hand.
    """
    found = scan_unlocked(remnant)
    if found.is_sound and found.head > needed:
        header = msgspec.structs.replace(header, at=min(header.at, needed))
        kept = [entry for entry in found.entries if entry.seq <= needed]
        if kept:
            kept[-1] = kept[-1]._replace(has_more=False)
        rewrite_file_securely(remnant, header, kept)
