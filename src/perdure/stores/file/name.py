"""Where a session lies in the folder of a file store: a name for each session id, and back. Above: the file store.

Any text may be an id, and no id leads out of the folder. Capital letters are spelled out, because some file systems do
not tell them from small ones; so are names that some systems keep for devices.
"""

import hashlib
import os
import re
import zlib
from typing import Final, NamedTuple

LOG: Final = ".session"
"""How the file of a session's entries ends."""
MAILBOX: Final = ".posts"
"""How the file of a session's posts ends."""
TRUNK: Final = ".shared"
"""How a file ends that holds what a deleted session has left to its forks."""
QUARANTINE: Final = ".quarantine"
"""How a file ends that holds what was found between good lines."""
LOCK: Final = ".lock"
"""How the file ends that says who drives a session."""
FORKED: Final = ".forked"
"""How the mark ends that a session has been forked, so that only then its forks are looked for."""

_LONGEST: Final = 100
"""Systems allow 255 bytes, some 143, and there is more to come behind the name."""

_ODD: Final = re.compile("[^a-z0-9_-]")
_KEY: Final = re.compile("[0-9a-f]{32}")
_SPELLED: Final = re.compile(rb"%([0-9a-f]{2})")
_DEVICES: Final = frozenset(
    {"con", "prn", "aux", "nul"} | {f"{kind}{number}" for kind in ("com", "lpt") for number in range(10)}
)


class Place(NamedTuple):
    """The paths of one session."""

    session_id: str
    log: str
    """The entries."""
    lock: str
    """Who drives the session."""
    quarantine: str
    """What was found between the entries, and is none."""
    seed: int
    """Where the checksums of this session begin, so that a line of another one is no line of it."""


def place_of(folder: str, session_id: str) -> Place:
    """Where a session lies, or would lie."""
    stem = os.path.join(folder, name_of(session_id))  # noqa: PTH118 - pathlib costs every start milliseconds
    seed = zlib.crc32(session_id.encode())
    return Place(session_id, stem + LOG, stem + LOCK, stem + QUARANTINE, seed)


def mailbox_of(place: Place) -> Place:
    """Where the posts for a session lie. The file is its own lock, and its lines are none of the log's."""
    path = place.log.removesuffix(LOG) + MAILBOX
    return Place(place.session_id, path, path, path + QUARANTINE, zlib.crc32(b"posts", place.seed))


def trunk_of(folder: str, session_id: str, key: str) -> Place:
    """Where the entries lie that a session left to its forks when it was deleted. No session's file has such a name."""
    name = key if _KEY.fullmatch(key) else hashlib.sha256(key.encode()).hexdigest()[:32]
    path = os.path.join(folder, f"={name}{TRUNK}")  # noqa: PTH118 - as above
    return Place(session_id, path, path, path + QUARANTINE, zlib.crc32(session_id.encode()))


def mark_of(place: Place) -> str:
    """The path of the mark that a session has been forked."""
    return place.log.removesuffix(LOG) + FORKED


def name_of(session_id: str) -> str:
    """The name of a session's files, without their ending. What is too long is cut off and told apart by a hash."""
    spelled = _ODD.sub(_spelled, session_id)
    if spelled in _DEVICES:
        return f"%{ord(spelled[0]):02x}{spelled[1:]}"
    if len(spelled) > _LONGEST:
        return f"{spelled[:32]}={hashlib.sha256(session_id.encode()).hexdigest()}"
    return spelled


def id_of(name: str) -> str | None:
    """The session id that a name spells; `None` when it has a hash instead, or is no name of ours."""
    try:
        session_id = _SPELLED.sub(lambda match: bytes([int(match[1], 16)]), name.encode()).decode()
    except UnicodeError:
        return None
    return session_id if name_of(session_id) == name else None


def _spelled(match: re.Match[str]) -> str:
    return "".join([f"%{byte:02x}" for byte in match[0].encode()])
