"""The layout of a file store: session ids as file names, and entries as lines with length and checksum."""

import hashlib
import json
import os
import re
import zlib
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple
from zlib import crc32

from perdure._core.log.codec import encode_entry
from perdure._core.values.error import StoreError
from perdure._core.values.event import Entry

from .disk import read_at

MAX_BODY_BYTES: Final = 999_999_999
"""The maximum size of a line's JSON in bytes: nine digits, and about what the other stores can hold in one piece."""

_HEAD: Final = re.compile(rb"[1-9][0-9]{0,8} [0-9a-f]{8}[ +]\{")
_HEAD_END: Final = re.compile(rb"\{(?<=[0-9] [0-9a-f]{8}[ +]\{)")
_HEAD_MOST: Final = 20  # bytes, with the brace behind it
_LENGTH_MOST: Final = 9
_MORE: Final = ord("+")
_CHUNK: Final = 1024 * 1024
_SMALL_CHUNK: Final = 4 * 1024
_PATIENCE: Final = 1024**3
_BEYOND_ASCII: Final = re.compile(r"[^\x00-\x7f]+")


class Line(NamedTuple):
    """A line of a session's file whose length and checksum are right."""

    start: int
    end: int
    """The offset behind its line end, if it still has one."""
    is_ended: bool
    has_more: bool
    """True if the next line belongs to the same append."""
    body: bytes
    """The JSON."""


class DamagedRange(NamedTuple):
    """A range of bytes in a session's file that is not a valid line."""

    start: int
    end: int


def encode_line(body: bytes, seed: int, *, has_more: bool = False) -> bytes:
    """Encode JSON as a line of a session's file, with its length and a checksum that starts from `seed`."""
    mark = b"+" if has_more else b" "
    return b"%d %08x%b%b\n" % (len(body), crc32(body, crc32(mark, seed)), mark, body)


def encode_append_lines(entries: Sequence[Entry], seed: int) -> bytes:
    """Encode the entries of one append as lines of a file, marked so that a reader accepts all of them or none."""
    if len(entries) == 1:
        return encode_line(encode_body(entries[0]), seed)
    last = len(entries) - 1
    return b"".join(
        [encode_line(encode_body(entry), seed, has_more=place < last) for place, entry in enumerate(entries)]
    )


def encode_body(entry: Entry) -> bytes:
    """Encode a log entry as JSON, which becomes the body of its line in the file."""
    return to_ascii_json(encode_entry(entry), f"entry {entry.seq}")


def to_ascii_json(body: bytes, what: str) -> bytes:
    """Return this JSON with all non-ASCII characters escaped. Raises `StoreError` if it is too long for one line."""
    if not body.isascii():
        body = _BEYOND_ASCII.sub(lambda match: json.dumps(match[0])[1:-1], body.decode()).encode("ascii")
    if len(body) > MAX_BODY_BYTES:
        raise StoreError(
            f"{what} has {len(body)} bytes, and a file store keeps {MAX_BODY_BYTES} at most: "
            "keep such data in a file of its own"
        )
    return body


def read_first_line(descriptor: int, size: int, seed: int) -> Line | None:
    """Read the first line of a session's file; `None` if it is not valid."""
    return _LineScanner(descriptor, size, seed, 0, _SMALL_CHUNK).line_at(0)


def scan_lines(
    descriptor: int, size: int, seed: int, start: int = 0, chunk: int = _CHUNK
) -> Iterator[Line | DamagedRange]:
    """Yield the lines and damaged ranges of a file from `start` up to `size`, reading in chunks. Raises `OSError`."""
    return _LineScanner(descriptor, size, seed, start, chunk).scan_pieces(start)


class _LineScanner:
    """Finds lines in a file of any size; only a part of the file is in memory at a time."""

    def __init__(self, descriptor: int, size: int, seed: int, start: int, chunk: int) -> None:
        self._descriptor = descriptor
        self._size = size
        self._chunk = chunk
        self._seeds = {mark: crc32(mark, seed) for mark in (b" ", b"+")}
        self._data = b""
        self._offset = start
        """The file offset at which the buffer begins."""
        self._loaded = start
        """The file offset at which it ends."""
        self._patience = _PATIENCE

    def scan_pieces(self, at: int) -> Iterator[Line | DamagedRange]:
        bad = at
        while at < self._size:
            line = self.line_at(at)
            if line is None:
                at = self._next_candidate(at + 1)
                continue
            if bad < at:
                yield DamagedRange(bad, at)
            yield line
            at = bad = line.end
        if bad < self._size:
            yield DamagedRange(bad, self._size)

    def line_at(self, at: int) -> Line | None:
        """Return the line that begins at this offset; `None` if there is no valid one."""
        if at + _HEAD_MOST > self._loaded:
            self._fill_buffer(at, _HEAD_MOST)
        data, start = self._data, at - self._offset
        blank = data.find(b" ", start, start + _LENGTH_MOST + 1)
        length, seed = data[start:blank], self._seeds.get(data[blank + 9 : blank + 10])
        if blank < 0 or seed is None or not length.isdigit():
            return None
        count, head = int(length), blank + 10 - start
        if count > MAX_BODY_BYTES or at + head + count > self._size:
            return None
        if at + head + count >= self._loaded:
            self._fill_buffer(at, head + count + 1)
            data, start = self._data, at - self._offset
        end = start + head + count
        if data.find(b"\n", start, end) >= 0:
            return None
        body = data[start + head : end]
        if not data.startswith(b"%b %08x" % (length, crc32(body, seed)), start):
            self._patience -= count
            return None
        is_ended = data.startswith(b"\n", end)
        return Line(at, at + head + count + is_ended, is_ended, data[start + head - 1] == _MORE, body)

    def _next_candidate(self, at: int) -> int:
        """Return the next offset at which a line may begin; the end of the file if there is none."""
        if self._patience < 0:  # lines are full of false beginnings: from now on, only behind a line end
            return self._behind_line_end(at - 1)
        while at < self._size:
            self._fill_buffer(at, self._chunk)
            if (place := _find_head(self._data, at - self._offset)) >= 0:
                return self._offset + place
            if self._loaded >= self._size:
                break
            at = self._loaded - _HEAD_MOST
        return self._size

    def _behind_line_end(self, at: int) -> int:
        while at < self._size:
            self._fill_buffer(at, self._chunk)
            if (place := self._data.find(b"\n", at - self._offset)) >= 0:
                return self._offset + place + 1
            at = self._loaded
        return self._size

    def _fill_buffer(self, at: int, count: int) -> None:
        """Read `count` bytes from this offset into the buffer, as far as the file goes."""
        have = self._loaded
        if at + count <= have or have >= self._size:
            return
        kept = self._data[at - self._offset :]
        missing = min(max(at + count - have, self._chunk), self._size - have)
        more = read_at(self._descriptor, have, missing)
        self._data, self._offset, self._loaded = kept + more, at, have + len(more)
        if len(more) < missing:  # it has become shorter meanwhile
            self._size = self._loaded


def _find_head(data: bytes, start: int) -> int:
    """Return the first place from `start` on at which a line may begin; -1 if there is none.

    Braces are found at the speed of memory. The whole pattern, tried at every byte, would take minutes for large blocks
    of zeros, and milliseconds for the text of a long message.
    """
    for brace in _HEAD_END.finditer(data, start):
        if match := _HEAD.search(data, max(start, brace.end() - _HEAD_MOST), brace.end()):
            return match.start()
    return -1


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
