"""What sessions share: a fork's file names its parent, and is read through it. Above: the file store. Below: files.

A parent is known by its key. While it is there, its log holds what is shared. When it is deleted, its file goes on
under a name made of the key, cut down to what its forks need, and goes with the last of them. Forks are made and
parents deleted while the folder's lock is held; reading needs none.
"""

# ruff: noqa: PTH104, PTH120 - paths are strings
import logging
import os
from typing import Final, NamedTuple

import msgspec

from perdure.core.error import StoreError

from .access import sync_folder
from .erase import discard
from .look import header_at, look
from .name import LOG, TRUNK, Place, mark_of, place_of, trunk_of
from .repair import rewrite_erasing
from .survey import Header, Kept, Survey

_log: Final = logging.getLogger("perdure")


class Shared(NamedTuple):
    """What a fork shares with others."""

    entries: list[Kept]
    surveys: list[Survey]
    """Of the files they were found in."""


class Forks(NamedTuple):
    """The headers of all files in a folder that share something with others."""

    headers: list[Header]
    are_all: bool
    """Whether each file could tell; if not, nothing may be thrown away."""


def new_key() -> str:
    """A key that no session has."""
    return os.urandom(16).hex()


def key_for(place: Place) -> str:
    """A key for a session that has none: it is new, or its header is lost; then its forks still know it."""
    if os.path.lexists(mark_of(place)):
        folder = os.path.dirname(place.log)
        for fork in forks_in(folder).headers:
            is_lost = not os.path.lexists(trunk_of(folder, fork.parent, fork.parent_key).log)
            if fork.parent == place.session_id and is_lost:
                return fork.parent_key
    return new_key()


def shared_by(folder: str, header: Header, after: int) -> Shared:
    """The entries above `after` that a fork shares, from however far up. Raises `OSError` and `StoreError`."""
    parts: list[list[Kept]] = []
    surveys: list[Survey] = []
    most, seen = header.at, {header.own_key}
    while after < most and header.parent_key not in seen:
        seen.add(header.parent_key)
        found = look(source_of(folder, header), synced=most)
        surveys.append(found)
        parts.append([kept for kept in found.entries if after < kept.seq <= most])
        if found.header is None or not found.header.parent_key:
            break
        header, most = found.header, min(most, found.header.at)
    return Shared([kept for part in reversed(parts) for kept in part], surveys)


def source_of(folder: str, header: Header) -> Place:
    """Where the file lies that a fork is read through."""
    place = place_of(folder, header.parent)
    is_there = is_alive(folder, header)
    return place if is_there else trunk_of(folder, header.parent, header.parent_key)


def is_alive(folder: str, header: Header) -> bool:
    """Whether the session that this one was forked from has not been deleted."""
    if not header.parent_key:
        return False
    parent = header_at(place_of(folder, header.parent).log)
    if parent is not None:
        return parent.own_key == header.parent_key
    # A file without a header is that parent, unless what the parent has left lies elsewhere.
    is_file = os.path.lexists(place_of(folder, header.parent).log)
    return is_file and not os.path.lexists(trunk_of(folder, header.parent, header.parent_key).log)


def forks_in(folder: str) -> Forks:
    """Which files share something with others. Raises `OSError`."""
    with os.scandir(folder) as files:
        regular = [file for file in files if file.is_file(follow_symlinks=False)]
    paths = [file.path for file in regular if file.name.endswith((LOG, TRUNK))]
    headers: list[Header] = []
    are_all = True
    for path in paths:
        try:
            header = header_at(path)
        except StoreError:  # a newer version has made it
            are_all = False
            continue
        if header is None:
            are_all &= not os.path.lexists(path) or not os.path.getsize(path)  # noqa: PTH202
        elif header.parent_key:
            headers.append(header)
    return Forks(headers, are_all)


def bury(folder: str, place: Place) -> None:
    """Take the log of a session away, but for what its forks need. The folder's lock is held. Raises `OSError`."""
    header = header_at(place.log)
    if os.path.lexists(mark_of(place)):
        key = header.own_key if header is not None else key_for(place)
        trunk = trunk_of(folder, place.session_id, key)
        if os.path.lexists(place.log):
            os.rename(place.log, trunk.log)
            sync_folder(folder)
        for left in trunks_in(folder):  # also one that was left by somebody who was killed while deleting it
            if left.session_id == place.session_id:
                settle(folder, left)
    else:
        discard(place.log)
    if header is not None and header.parent_key:
        settle(folder, trunk_of(folder, header.parent, header.parent_key))


def trunks_in(folder: str) -> list[Place]:
    """What deleted sessions have left to their forks."""
    with os.scandir(folder) as files:
        paths = [file.path for file in files if file.name.endswith(TRUNK) and file.name.startswith("=")]
    headers = [header_at(path) for path in paths]
    return [trunk_of(folder, header.id, header.own_key) for header in headers if header is not None]


def settle(folder: str, trunk: Place) -> None:
    """Erase what no fork needs any more of a deleted session, and of those it was forked from in turn."""
    while os.path.lexists(trunk.log):
        header = header_at(trunk.log)
        forks = forks_in(folder)
        if header is None or not forks.are_all:
            _log.warning(
                "%r is kept as it is, because not every file in its folder says what it shares: repair or delete "
                "damaged sessions, then vacuum the store",
                trunk.log,
            )
            return
        needed = max((fork.at for fork in forks.headers if fork.parent_key == header.own_key), default=0)
        if needed:
            _cut(trunk, header, needed)
        else:
            discard(trunk.log)
            discard(trunk.quarantine)
        trunk = trunk_of(folder, header.parent, header.parent_key)


def _cut(trunk: Place, header: Header, needed: int) -> None:
    """Leave only the first entries. What is damaged stays: it may be needed, and can be repaired by hand."""
    found = look(trunk)
    if found.is_sound and found.head > needed:
        header = msgspec.structs.replace(header, at=min(header.at, needed))
        kept = [entry for entry in found.entries if entry.seq <= needed]
        if kept:
            kept[-1] = kept[-1]._replace(has_more=False)
        rewrite_erasing(trunk, header, kept)
