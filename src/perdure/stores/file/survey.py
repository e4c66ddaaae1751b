"""What the file of a session holds: its header, its entries, and what is wrong with it. Above: the file store.

A survey only looks. `repair.py` puts in order what it found.
"""

import hashlib
import json
import os
from collections.abc import Sequence
from itertools import pairwise
from typing import Final, Literal, NamedTuple

import msgspec

from perdure.core.error import StoreError

from .access import read_at
from .name import Place
from .record import Damage, Line, first_line, line_of, scan

FORMAT: Final = 1
"""The version of the file's layout, not of the entries in it. It grows when an old reader would misunderstand it."""
FORK_FORMAT: Final = 2
"""That of a fork: whoever knows only the first one would miss the entries that lie elsewhere."""

_HEADER_BEGINS: Final = b'{"windlass":"session","format":'
_ENTRY_BEGINS: Final = b'{"seq":'
_MOST_RANGES: Final = 5


class Header(msgspec.Struct, frozen=True, omit_defaults=True):
    """The first line of a session's file."""

    windlass: Literal["session"]
    format: int
    id: str
    tenant: str
    owner: str
    created_at: float
    """When the session was made, in seconds since 1970."""
    key: str = ""
    """What its forks know it by: another session of the same id has another one."""
    parent: str = ""
    """The session it was forked from; empty when it was not."""
    parent_key: str = ""
    at: int = 0
    """How many entries it shares with that one. Its own begin behind them."""

    @property
    def own_key(self) -> str:
        """`key`, also for a file that was made when there was none."""
        return self.key or hashlib.sha256(f"{self.id}\0{self.created_at!r}".encode()).hexdigest()[:32]


class _Version(msgspec.Struct, frozen=True):
    """Of a header, what every version of it has."""

    format: int


# Made here, and not when they are first used: that may be on two threads at once, which msgspec does not stand.
_headers = msgspec.json.Decoder(Header)
_versions = msgspec.json.Decoder(_Version)


class Kept(NamedTuple):
    """An entry that is as it was written."""

    seq: int
    has_more: bool
    """Whether the next one belongs to the same append."""
    body: bytes


class Problems(NamedTuple):
    """What is wrong with a file."""

    bad: tuple[Damage, ...] = ()
    is_untidy: bool = False
    missing: tuple[tuple[int, int], ...] = ()


NO_PROBLEMS: Final = Problems()


class Survey:
    """What was found, while it is being found: `survey` gives a finished one."""

    def __init__(self, place: Place, size: int, synced: int | None = None) -> None:
        self.place = place
        self.size = size
        self.header: Header | None = None
        self.base = 0
        """How many entries lie elsewhere, because they are shared."""
        self.entries: list[Kept] = []
        """Good ones, in the order of their numbers."""
        self.bad: list[Damage] = []
        """Bytes that are no entries, or say the same number a second time."""
        self.is_untidy = False
        """Whether entries are out of order, a line lacks its end, an append its last line, or the file its header."""
        self.has_lost_tail = False
        """Whether good lines are among the bad bytes, because they lie behind a hole that no sync covers."""
        self._synced = synced
        self._seen: set[int] = set()

    @property
    def head(self) -> int:
        """The number of the last entry."""
        return self.entries[-1].seq if self.entries else self.base

    @property
    def is_sound(self) -> bool:
        """Whether the file can be written on as it is."""
        return not self.bad and not self.is_untidy and self.header is not None

    @property
    def torn_at(self) -> int | None:
        """Where to cut the file off, if that is all there is to repair."""
        is_all = self.header is not None and not self.is_untidy and len(self.bad) == 1
        return self.bad[0].start if is_all and self.bad[0].end == self.size else None

    @property
    def problems(self) -> Problems:
        """What is wrong."""
        missing = self.gaps
        if self.head < (synced := self._synced or 0):
            missing.append((self.head + 1, synced))
        return Problems(tuple(self.bad), self.is_untidy, tuple(missing))

    @property
    def gaps(self) -> list[tuple[int, int]]:
        """The first and last number of each gap before an entry."""
        if self.base + len(self.entries) == self.head:
            return []
        numbers = [self.base, *[entry.seq for entry in self.entries]]
        return [(before + 1, seq - 1) for before, seq in pairwise(numbers) if seq > before + 1]

    def ignore_tail(self) -> None:
        """Take the bad bytes at the end for what they are while somebody writes: the beginning of an append."""
        if self.bad and self.bad[-1].end == self.size and not self.has_lost_tail:
            self.size = self.bad.pop().start

    def fill(self, descriptor: int) -> None:
        """Look at the whole file."""
        start = self._take_header(descriptor)
        pending: list[Line] = []
        """The lines of an append whose last line has not come yet."""
        is_broken = False
        for piece in scan(descriptor, self.size, self.place.seed, start):
            if isinstance(piece, Damage):
                self.bad.append(piece)
                is_broken = True
                continue
            if is_broken and self._is_cut_off(piece, pending):
                self.bad.append(Damage(piece.start, piece.end))
                self.has_lost_tail = True
                continue
            if is_broken:  # the rest of that append is damaged, but more was stored after it
                self._keep_all(pending, self._synced)
                is_broken = False
            if piece.has_more:
                pending.append(piece)
                continue
            for line in pending:
                self._keep(line, has_more=True)
            pending.clear()
            self._keep(piece, has_more=False)
        self._keep_all(pending, self._synced or 0)
        self.bad = _merged(self.bad)
        self.entries.sort()

    def _take_header(self, descriptor: int) -> int:
        """Where the header ends; 0 when there is none."""
        line = first_line(descriptor, self.size, 0)
        header = header_in(line, self.place.log)
        if line is None or header is None:
            self.is_untidy = self.size > 0
            return 0
        if header.id != self.place.session_id:
            raise StoreError(
                f"{self.place.log!r} should hold session {self.place.session_id!r} and holds {header.id!r}: give the "
                "file its own name back"
            )
        self.header, self.base = header, header.at
        self.is_untidy |= not line.is_ended
        return line.end

    def _is_cut_off(self, line: Line, before: Sequence[Line]) -> bool:
        """Whether a line behind bad bytes was never synced, and neither was what may have stood in their place.

        A disk that loses power may have written the one and not the other. Damage to what was synced is another thing:
        it says nothing about what was stored later.
        """
        synced, seq = self._synced, seq_of(line.body)
        if synced is None or seq <= synced:
            return False
        if before or self.entries or self.header is not None:
            reached = seq_of(before[-1].body) if before else self.head
        else:
            reached = -1  # the header itself is damaged, and nothing else need be missing
        return reached >= synced or seq > synced + 1

    def _keep_all(self, lines: list[Line], most: int | None = None) -> None:
        """Keep what is left of an append; with `most`, only entries that were stored for certain."""
        kept = [line for line in lines if most is None or seq_of(line.body) <= most]
        for place, line in enumerate(kept, 1):
            self._keep(line, has_more=place < len(kept))
        self.bad += [Damage(line.start, line.end) for line in lines if line not in kept]
        lines.clear()

    def _keep(self, line: Line, *, has_more: bool) -> None:
        seq, entries = seq_of(line.body), self.entries
        if seq <= self.base or seq in self._seen:
            self.bad.append(Damage(line.start, line.end))
            return
        if not line.is_ended or has_more != line.has_more or (entries and seq < entries[-1].seq):
            self.is_untidy = True
        self._seen.add(seq)
        entries.append(Kept(seq, has_more, line.body))


def survey(descriptor: int, size: int, place: Place, synced: int | None = None) -> Survey:
    """Look at the first `size` bytes of a session's file.

    Entries up to `synced` are known to have been on the disk. Those above it count as far as there is no hole: there
    the log ends. When it is not said, a hole is a damage like any other, and what lies behind it counts.
    """
    found = Survey(place, size, synced)
    found.fill(descriptor)
    is_empty = found.header is None and not found.entries and not synced
    if size and is_empty and not _is_ours(read_at(descriptor, 0, 64)):
        raise StoreError(f"{place.log!r} is no file of a session, and has been left as it is: choose another folder")
    return found


def header_line(header: Header) -> bytes:
    """The first line of a file."""
    return line_of(json.dumps(msgspec.to_builtins(header), separators=(",", ":")).encode("ascii"), 0)


def header_in(line: Line | None, path: str) -> Header | None:
    """What the first line of a file says; `None` when it is no header. Raises `StoreError` for one of the future."""
    if line is None or not line.body.startswith(_HEADER_BEGINS):
        return None
    version = _versions.decode(line.body).format
    if version > FORK_FORMAT:
        known = f"this version knows {FORK_FORMAT} at most"
        raise StoreError(f"{path!r} has format {version}, and {known}: upgrade perdure")
    return _headers.decode(line.body)


def seq_of(body: bytes) -> int:
    """The number of an entry; 0 for what is none."""
    if not body.startswith(_ENTRY_BEGINS):
        return 0
    number = body[len(_ENTRY_BEGINS) : body.find(b",")]
    return int(number) if number.isdigit() else 0


def report(found: Survey, *, is_repaired: bool) -> str:
    """What a person should know about a damaged file."""
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


def _merged(bad: Sequence[Damage]) -> list[Damage]:
    """The same bytes, in order, with neighbours as one."""
    merged: list[Damage] = []
    for damage in sorted(bad):
        start = merged.pop().start if merged and merged[-1].end == damage.start else damage.start
        merged.append(Damage(start, damage.end))
    return merged


def _is_ours(beginning: bytes) -> bool:
    """Whether a file without a single good line may be one that was being made: zeros, or the beginning of a header."""
    beginning = beginning.rstrip(b"\0")
    length, _, rest = beginning.partition(b" ")
    checksum, _, body = rest.partition(b" ")
    looks_right = (not length or length.isdigit()) and len(checksum) <= 8  # noqa: PLR2004 - digits of a CRC-32
    return looks_right and (body.startswith(_HEADER_BEGINS) or _HEADER_BEGINS.startswith(body))
