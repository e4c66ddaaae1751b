"""Paths of a session's files in a file store; session ids are encoded as file names, and decoded.

Any text may be an id, and no id leads out of the folder. Capital letters are escaped, because some file systems do not
distinguish them from small ones; so are names that some systems reserve for devices.
"""

import hashlib
import os
import re
import zlib
from typing import Final, NamedTuple

LOG_SUFFIX: Final = ".session"
"""The suffix of the file with a session's entries."""
MAILBOX_SUFFIX: Final = ".posts"
"""The suffix of the file with a session's posts."""
REMNANT_SUFFIX: Final = ".shared"
"""The suffix of a file with entries that a deleted session has left to its forks."""
QUARANTINE_SUFFIX: Final = ".quarantine"
"""The suffix of a file with bytes that were found between good lines."""
LOCK_SUFFIX: Final = ".lock"
"""The suffix of a session's lock file."""
FORK_MARKER_SUFFIX: Final = ".forked"
"""The suffix of the marker file of a session that has been forked: only then its forks are searched for."""

_MAX_NAME_LENGTH: Final = 100
"""The maximum length of a name. Systems allow 255 bytes, some 143, and suffixes are added to the name."""

_UNSAFE: Final = re.compile("[^a-z0-9_-]")
_KEY: Final = re.compile("[0-9a-f]{32}")
_ESCAPED: Final = re.compile(rb"%([0-9a-f]{2})")
_DEVICES: Final = frozenset(
    {"con", "prn", "aux", "nul"} | {f"{kind}{number}" for kind in ("com", "lpt") for number in range(10)}
)


class SessionPaths(NamedTuple):
    """The paths of a session's files: its log, its lock, and its quarantine file, for damaged bytes of the log."""

    session_id: str
    log: str
    """The file with the entries."""
    lock: str
    """The lock file."""
    quarantine: str
    """The file for bytes between the entries that are no entries."""
    seed: int
    """The initial value of this session's checksums, so that a line of another session is not valid in it."""


def get_session_paths(folder: str, session_id: str) -> SessionPaths:
    """Return the paths of a session's files in a folder; the files need not exist."""
    stem = os.path.join(folder, encode_file_name(session_id))  # noqa: PTH118 - pathlib costs every start milliseconds
    seed = zlib.crc32(session_id.encode())
    return SessionPaths(session_id, stem + LOG_SUFFIX, stem + LOCK_SUFFIX, stem + QUARANTINE_SUFFIX, seed)


def get_mailbox_paths(place: SessionPaths) -> SessionPaths:
    """Return the paths of a session's mailbox file, which stores messages to the session and is its own lock file."""
    path = place.log.removesuffix(LOG_SUFFIX) + MAILBOX_SUFFIX
    return SessionPaths(place.session_id, path, path, path + QUARANTINE_SUFFIX, zlib.crc32(b"posts", place.seed))


def get_deleted_parent_paths(folder: str, session_id: str, key: str) -> SessionPaths:
    """Return the paths of the remnant of a deleted session: the file with the entries that its forks still share."""
    name = key if _KEY.fullmatch(key) else hashlib.sha256(key.encode()).hexdigest()[:32]
    path = os.path.join(folder, f"={name}{REMNANT_SUFFIX}")  # noqa: PTH118 - as above
    return SessionPaths(session_id, path, path, path + QUARANTINE_SUFFIX, zlib.crc32(session_id.encode()))


def get_fork_marker_path(place: SessionPaths) -> str:
    """Return the path of the marker file, which exists if a session has been forked."""
    return place.log.removesuffix(LOG_SUFFIX) + FORK_MARKER_SUFFIX


def encode_file_name(session_id: str) -> str:
    """Return the file name for a session id, without a suffix. A long id is cut and gets a hash."""
    spelled = _UNSAFE.sub(_escape_match, session_id)
    if spelled in _DEVICES:
        return f"%{ord(spelled[0]):02x}{spelled[1:]}"
    if len(spelled) > _MAX_NAME_LENGTH:
        return f"{spelled[:32]}={hashlib.sha256(session_id.encode()).hexdigest()}"
    return spelled


def decode_file_name(name: str) -> str | None:
    """Return the session id that a file name encodes; `None` if the id was cut and hashed, or it is no such name."""
    try:
        session_id = _ESCAPED.sub(lambda match: bytes([int(match[1], 16)]), name.encode()).decode()
    except UnicodeError:
        return None
    return session_id if encode_file_name(session_id) == name else None


def _escape_match(match: re.Match[str]) -> str:
    return "".join([f"%{byte:02x}" for byte in match[0].encode()])
