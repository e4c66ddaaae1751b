"""Parse a session's file: header, entries and damage; also without a lock while other processes append to it."""

import json
import os
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Final, Literal, NamedTuple

import msgspec

from perdure._core.values.error import StoreError

from .disk import close_file, get_file_identity, open_file, read_at
from .layout import DamagedRange, Line, SessionPaths, encode_line, read_first_line, scan_lines
from .lock import is_session_locked

FORMAT: Final = 1
"""The version of the file layout, not of the entries in it. It grows when an old reader would misread the file."""

_HEADER_BEGINS: Final = b'{"perdure":"session-file","format":'
_ENTRY_BEGINS: Final = b'{"seq":'
_MOST_RANGES: Final = 5


class Header(msgspec.Struct, frozen=True, omit_defaults=True):
    """The first line of a session's file: format version, session id, creation time and, for a fork, the parent."""

    perdure: Literal["session-file"]
    format: int
    id: str
    tenant: str
    owner: str
    created_at: float
    """When the session was created, in seconds since 1970."""
    key: str = ""
    """The identity by which its forks refer to it: another session with the same id has another key."""
    parent: str = ""
    """The session it was forked from; empty if it was not."""
    parent_key: str = ""
    at: int = 0
    """The number of entries it shares with its parent. Its own are numbered from there."""


class _Version(msgspec.Struct, frozen=True):
    """The format version, which every header has, whatever its version."""

    format: int


# Made here, and not when they are first used: that may be on two threads at once, which msgspec does not support.
_headers = msgspec.json.Decoder(Header)
_versions = msgspec.json.Decoder(_Version)


class EncodedEntry(NamedTuple):
    """An undamaged log entry of a session's file, as JSON that is not decoded yet."""

    seq: int
    has_more: bool
    """True if the next entry belongs to the same append."""
    body: bytes


class FileProblems(NamedTuple):
    """The damage found in a session's file: bad byte ranges, missing entries, lines out of order."""

    bad: tuple[DamagedRange, ...] = ()
    is_untidy: bool = False
    missing: tuple[tuple[int, int], ...] = ()


NO_PROBLEMS: Final = FileProblems()


class SessionFileScan:
    """The entries and the damage found in a session's file. `scan_file` returns one."""

    def __init__(self, place: SessionPaths, size: int, synced: int | None = None) -> None:
        self.place = place
        self.size = size
        self.header: Header | None = None
        self.base = 0
        """The number of entries that are in an ancestor's file."""
        self.entries: list[EncodedEntry] = []
        """The good entries, in the order of their numbers."""
        self.damaged: list[DamagedRange] = []
        """Byte ranges that are no entries, or repeat an entry number."""
        self.is_disordered = False
        """True if entries are out of order, a line lacks its end, an append its last line, or the file its header."""
        self.has_lost_tail = False
        """True if good lines are among the bad bytes, because they follow a hole that no sync covers."""
        self._synced = synced
        self._seen: set[int] = set()

    @property
    def head(self) -> int:
        """The number of the last good entry."""
        return self.entries[-1].seq if self.entries else self.base

    @property
    def is_sound(self) -> bool:
        """True if the file is undamaged and can be appended to."""
        return not self.damaged and not self.is_disordered and self.header is not None

    @property
    def truncate_at(self) -> int | None:
        """The offset at which to truncate the file, if that repairs it completely; else `None`."""
        is_all = self.header is not None and not self.is_disordered and len(self.damaged) == 1
        return self.damaged[0].start if is_all and self.damaged[0].end == self.size else None

    @property
    def problems(self) -> FileProblems:
        """The damage that was found, for messages."""
        missing = self.gaps
        if self.head < (synced := self._synced or 0):
            missing.append((self.head + 1, synced))
        return FileProblems(tuple(self.damaged), self.is_disordered, tuple(missing))

    @property
    def gaps(self) -> list[tuple[int, int]]:
        """The ranges of missing entry numbers, each as its first and last number."""
        if self.base + len(self.entries) == self.head:
            return []
        numbers = [self.base, *[entry.seq for entry in self.entries]]
        return [(before + 1, seq - 1) for before, seq in pairwise(numbers) if seq > before + 1]

    def ignore_tail(self) -> None:
        """Ignore bad bytes at the end of the file: while a process runs the session, they are an append in progress."""
        if self.damaged and self.damaged[-1].end == self.size and not self.has_lost_tail:
            self.size = self.damaged.pop().start

    def run(self, descriptor: int) -> None:
        """Scan the whole file and fill in the results."""
        start = self._read_header(descriptor)
        pending: list[Line] = []
        """The lines of an append whose last line has not come yet."""
        is_broken = False
        for piece in scan_lines(descriptor, self.size, self.place.seed, start):
            if isinstance(piece, DamagedRange):
                self.damaged.append(piece)
                is_broken = True
                continue
            if is_broken and self._is_cut_off(piece, pending):
                self.damaged.append(DamagedRange(piece.start, piece.end))
                self.has_lost_tail = True
                continue
            if is_broken:  # the rest of that append is damaged, but more was stored after it
                self._keep_lines(pending, self._synced)
                is_broken = False
            if piece.has_more:
                pending.append(piece)
                continue
            for line in pending:
                self._keep_line(line, has_more=True)
            pending.clear()
            self._keep_line(piece, has_more=False)
        self._keep_lines(pending, self._synced or 0)
        self.damaged = _merge_ranges(self.damaged)
        self.entries.sort()

    def _read_header(self, descriptor: int) -> int:
        """Read the header and return the offset behind it; 0 if there is none."""
        line = read_first_line(descriptor, self.size, 0)
        header = decode_header(line, self.place.log)
        if line is None or header is None:
            self.is_disordered = self.size > 0
            return 0
        if header.id != self.place.session_id:
            raise StoreError(
                f"{self.place.log!r} should hold session {self.place.session_id!r} and holds {header.id!r}: give the "
                "file its own name back"
            )
        self.header, self.base = header, header.at
        self.is_disordered |= not line.is_ended
        return line.end

    def _is_cut_off(self, line: Line, before: Sequence[Line]) -> bool:
        """Return True if a line after bad bytes was never synced, nor what may have been in their place.

        A disk that loses power may have written the one and not the other. Damage to synced data is different: it does
        not concern what was stored later.
        """
        synced, seq = self._synced, decode_seq(line.body)
        if synced is None or seq <= synced:
            return False
        if before or self.entries or self.header is not None:
            reached = decode_seq(before[-1].body) if before else self.head
        else:
            reached = -1  # the header itself is damaged, and nothing else need be missing
        return reached >= synced or seq > synced + 1

    def _keep_lines(self, lines: list[Line], most: int | None = None) -> None:
        """Add the lines of one append to the result; with `most`, only entries up to that number."""
        kept = [line for line in lines if most is None or decode_seq(line.body) <= most]
        for place, line in enumerate(kept, 1):
            self._keep_line(line, has_more=place < len(kept))
        self.damaged += [DamagedRange(line.start, line.end) for line in lines if line not in kept]
        lines.clear()

    def _keep_line(self, line: Line, *, has_more: bool) -> None:
        seq, entries = decode_seq(line.body), self.entries
        if seq <= self.base or seq in self._seen:
            self.damaged.append(DamagedRange(line.start, line.end))
            return
        if not line.is_ended or has_more != line.has_more or (entries and seq < entries[-1].seq):
            self.is_disordered = True
        self._seen.add(seq)
        entries.append(EncodedEntry(seq, has_more, line.body))


def scan_file(descriptor: int, size: int, place: SessionPaths, synced: int | None = None) -> SessionFileScan:
    """Find the entries and the damage in the first `size` bytes of a session's file.

    Entries up to `synced` are known to have been on the disk. Those above it count as far as there is no hole: the log
    ends there. If `synced` is `None`, a hole is like any other damage, and lines after it count.
    """
    found = SessionFileScan(place, size, synced)
    found.run(descriptor)
    is_empty = found.header is None and not found.entries and not synced
    if size and is_empty and not _may_be_session_file(read_at(descriptor, 0, 64)):
        raise StoreError(f"{place.log!r} is no file of a session, and has been left as it is: choose another folder")
    return found


def encode_header(header: Header) -> bytes:
    """Encode the header of a session's file as the first line of the file."""
    return encode_line(json.dumps(msgspec.to_builtins(header), separators=(",", ":")).encode("ascii"), 0)


def decode_header(line: Line | None, path: str) -> Header | None:
    """Decode the header in the first line of a session file; `None` if it has none.

    Raises `StoreError` if the header is whole and not one that this version writes.
    """
    if line is None or line.body.startswith(_ENTRY_BEGINS):
        return None
    if not line.body.startswith(_HEADER_BEGINS):
        raise StoreError(
            f"{path!r} is no file of a session, or one of a version of perdure before the first release, and has been "
            "left as it is: choose another folder"
        )
    version = _versions.decode(line.body).format
    if version > FORMAT:
        raise StoreError(f"{path!r} has format {version}, and this version knows {FORMAT} at most: upgrade perdure")
    return _headers.decode(line.body)


def decode_seq(body: bytes) -> int:
    """Return the entry number in the JSON of an entry; 0 if the JSON is not an entry."""
    if not body.startswith(_ENTRY_BEGINS):
        return 0
    number = body[len(_ENTRY_BEGINS) : body.find(b",")]
    return int(number) if number.isdigit() else 0


def build_damage_warning(found: SessionFileScan, *, is_repaired: bool) -> str:
    """Build the warning that is logged about a damaged session file, and about its repair."""
    bad, is_untidy, missing = found.problems
    told: list[str] = []
    if bad:
        count = sum(damage.end - damage.start for damage in bad)
        name = os.path.basename(found.place.quarantine)  # noqa: PTH119 - the name alone
        fate = f"were set aside in {name!r}" if is_repaired else "stay there until the session is driven again"
        places = "one place" if len(bad) == 1 else f"{len(bad)} places"
        kind = "are no entries, or follow what never reached the disk," if found.has_lost_tail else "are no entries,"
        told.append(f"{count} bytes in {places} {kind} and {fate}")
    elif is_untidy:
        told.append("its lines were in disorder")
    if missing:
        numbers = [f"{first}" if first == last else f"{first} to {last}" for first, last in missing[:_MOST_RANGES]]
        more = f" and in {len(missing) - _MOST_RANGES} more places" if len(missing) > _MOST_RANGES else ""
        told.append(f"entries are missing: {', '.join(numbers)}{more}")
    return f"the file {found.place.log!r} was damaged: {'; '.join(told)}; {len(found.entries)} entries are good"


def _merge_ranges(bad: Sequence[DamagedRange]) -> list[DamagedRange]:
    """Return these byte ranges in order, with adjacent ones joined."""
    merged: list[DamagedRange] = []
    for damage in sorted(bad):
        start = merged.pop().start if merged and merged[-1].end == damage.start else damage.start
        merged.append(DamagedRange(start, damage.end))
    return merged


def _may_be_session_file(beginning: bytes) -> bool:
    """Return True if a file without a valid line may be a session file that was being created: zeros, or part of a
    header.
    """
    beginning = beginning.rstrip(b"\0")
    length, _, rest = beginning.partition(b" ")
    checksum, _, body = rest.partition(b" ")
    looks_right = (not length or length.isdigit()) and len(checksum) <= 8  # noqa: PLR2004 - digits of a CRC-32
    return looks_right and (body.startswith(_HEADER_BEGINS) or _HEADER_BEGINS.startswith(body))


OpenLog = Callable[[], tuple[int, int]]
"""Function that opens a file and returns its descriptor, and how many of its bytes to read."""

_TRIES: Final = 20


def scan_unlocked(place: SessionPaths, synced: int | None = None, open_log: OpenLog | None = None) -> SessionFileScan:
    """Scan the file of a session without locking it, and scan it anew if another process has replaced it meanwhile.

    `open_log` opens the file of a session that this process itself runs. Raises `OSError`.

    Entries up to `synced` are known to have been on the disk; all of them, if it is `None`.
    """
    found = SessionFileScan(place, 0, synced)
    for _ in range(_TRIES):
        try:
            descriptor, size = open_log() if open_log is not None else _open_log(place)
        except FileNotFoundError:
            return SessionFileScan(place, 0, synced)
        try:
            found = scan_file(descriptor, size, place, synced)
            if found.damaged and open_log is None:
                found = _rescan(descriptor, place, synced)
            elif not found.damaged:
                return found
            if get_file_identity(place.log) == get_file_identity(descriptor):
                return found  # otherwise it has been replaced meanwhile, and its bytes were erased
        finally:
            close_file(descriptor)
    return found


def read_header(path: str) -> Header | None:
    """Read the header of a session's file; `None` if the file or its header is missing. Raises `OSError`."""
    return read_header_and_size(path)[0]


def read_header_and_size(path: str) -> tuple[Header | None, int]:
    """Read the header of a session's file, and the number of bytes it takes; `None` and 0 if it is missing."""
    for _ in range(_TRIES):
        try:
            descriptor = open_file(path, os.O_RDONLY)
        except FileNotFoundError:
            return None, 0
        try:
            line = read_first_line(descriptor, os.fstat(descriptor).st_size, 0)
            header = decode_header(line, path)
            if line is not None and header is not None:
                return header, line.end
            if get_file_identity(path) == get_file_identity(descriptor):
                return None, 0  # otherwise it has been replaced meanwhile, and its bytes were erased
        finally:
            close_file(descriptor)
    return None, 0


def _open_log(place: SessionPaths) -> tuple[int, int]:
    descriptor = open_file(place.log, os.O_RDONLY)
    return descriptor, os.fstat(descriptor).st_size


def _rescan(descriptor: int, place: SessionPaths, synced: int | None) -> SessionFileScan:
    """Scan a file again. While a process runs the session, bad bytes at the end are an append in progress."""
    is_growing = is_session_locked(place)
    found = scan_file(descriptor, os.fstat(descriptor).st_size, place, synced)
    if is_growing:
        found.ignore_tail()
    return found
