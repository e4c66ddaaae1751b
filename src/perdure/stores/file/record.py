r"""The lines of a file store: how an entry becomes one, and how good lines are found among bad bytes. Above: the store.

A line is `LENGTH CRC {json}\n`: the number of bytes of the JSON, the CRC-32 of the blank and the JSON in eight
hexadecimal digits, and the JSON itself, in ASCII. Instead of the blank, `+` says that the next line belongs to the same
append, which counts as a whole or not at all.

So no line holds a line end, and no content can look like the beginning of a line: outside of its strings JSON without
blanks has none, and inside of them each quotation mark is escaped.
"""

import json
import re
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple
from zlib import crc32

from perdure.core.codec import encode_entry
from perdure.core.error import StoreError
from perdure.core.event import Entry

from .access import read_at

LIMIT: Final = 64 * 1024 * 1024
"""The most bytes of JSON in a line."""

_HEAD: Final = re.compile(rb"[1-9][0-9]{0,7} [0-9a-f]{8}[ +]\{")
_HEAD_MOST: Final = 19  # bytes, with the brace behind it
_LENGTH_MOST: Final = 8
_MORE: Final = ord("+")
_CHUNK: Final = 1024 * 1024
_SMALL_CHUNK: Final = 4 * 1024
_PATIENCE: Final = 16 * LIMIT
_BEYOND_ASCII: Final = re.compile(r"[^\x00-\x7f]+")


class Line(NamedTuple):
    """A line that is as it was written."""

    start: int
    end: int
    """Behind its line end, if it still has one."""
    is_ended: bool
    has_more: bool
    """Whether the next line belongs to the same append."""
    body: bytes
    """The JSON."""


class Damage(NamedTuple):
    """Bytes that are no line."""

    start: int
    end: int


def line_of(body: bytes, seed: int, *, has_more: bool = False) -> bytes:
    """The line of some JSON."""
    mark = b"+" if has_more else b" "
    return b"%d %08x%b%b\n" % (len(body), crc32(body, crc32(mark, seed)), mark, body)


def lines_of(entries: Sequence[Entry], seed: int) -> bytes:
    """The lines of one append."""
    if len(entries) == 1:
        return line_of(body_of(entries[0]), seed)
    last = len(entries) - 1
    return b"".join([line_of(body_of(entry), seed, has_more=place < last) for place, entry in enumerate(entries)])


def body_of(entry: Entry) -> bytes:
    """The JSON of an entry, as it stands in its line."""
    return fit_for_a_line(encode_entry(entry), f"entry {entry.seq}")


def fit_for_a_line(body: bytes, what: str) -> bytes:
    """The same JSON in ASCII. Raises `StoreError` when it is too long."""
    if not body.isascii():
        body = _BEYOND_ASCII.sub(lambda match: json.dumps(match[0])[1:-1], body.decode()).encode("ascii")
    if len(body) > LIMIT:
        raise StoreError(
            f"{what} has {len(body)} bytes, and a file store keeps {LIMIT} at most: keep such data in a file of its own"
        )
    return body


def first_line(descriptor: int, size: int, seed: int) -> Line | None:
    """The line at the beginning of a file, if there is one."""
    return _Scanner(descriptor, size, seed, 0, _SMALL_CHUNK).line_at(0)


def scan(descriptor: int, size: int, seed: int, start: int = 0, chunk: int = _CHUNK) -> Iterator[Line | Damage]:
    """What a file holds, piece by piece, from `start` up to `size`, read in chunks. Raises `OSError`."""
    return _Scanner(descriptor, size, seed, start, chunk).pieces(start)


class _Scanner:
    """Goes through a file, of which it has a part in memory: never more than the longest line and a chunk."""

    def __init__(self, descriptor: int, size: int, seed: int, start: int, chunk: int) -> None:
        self._descriptor = descriptor
        self._size = size
        self._chunk = chunk
        self._seeds = {mark: crc32(mark, seed) for mark in (b" ", b"+")}
        self._data = b""
        self._offset = start
        """Where in the file the data begins."""
        self._loaded = start
        """And where it ends."""
        self._patience = _PATIENCE

    def pieces(self, at: int) -> Iterator[Line | Damage]:
        bad = at
        while at < self._size:
            line = self.line_at(at)
            if line is None:
                at = self._next_candidate(at + 1)
                continue
            if bad < at:
                yield Damage(bad, at)
            yield line
            at = bad = line.end
        if bad < self._size:
            yield Damage(bad, self._size)

    def line_at(self, at: int) -> Line | None:
        """The line that begins here, if one does."""
        if at + _HEAD_MOST > self._loaded:
            self._load(at, _HEAD_MOST)
        data, start = self._data, at - self._offset
        blank = data.find(b" ", start, start + _LENGTH_MOST + 1)
        length, seed = data[start:blank], self._seeds.get(data[blank + 9 : blank + 10])
        if blank < 0 or seed is None or not length.isdigit():
            return None
        count, head = int(length), blank + 10 - start
        if count > LIMIT or at + head + count > self._size:
            return None
        if at + head + count >= self._loaded:
            self._load(at, head + count + 1)
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
        """Where the next line may begin; where the file ends if none does."""
        if self._patience < 0:  # somebody fills lines with false beginnings: from now on, only behind a line end
            return self._behind_line_end(at - 1)
        while at < self._size:
            self._load(at, self._chunk)
            # Large blocks of zeros are left behind at the speed of memory, where a pattern would take minutes.
            if b"{" in self._data and (match := _HEAD.search(self._data, at - self._offset)):
                return self._offset + match.start()
            if self._loaded >= self._size:
                break
            at = self._loaded - _HEAD_MOST
        return self._size

    def _behind_line_end(self, at: int) -> int:
        while at < self._size:
            self._load(at, self._chunk)
            if (place := self._data.find(b"\n", at - self._offset)) >= 0:
                return self._offset + place + 1
            at = self._loaded
        return self._size

    def _load(self, at: int, count: int) -> None:
        """Have that many bytes from there on in memory, as far as the file goes."""
        have = self._loaded
        if at + count <= have or have >= self._size:
            return
        kept = self._data[at - self._offset :]
        missing = min(max(at + count - have, self._chunk), self._size - have)
        more = read_at(self._descriptor, have, missing)
        self._data, self._offset, self._loaded = kept + more, at, have + len(more)
        if len(more) < missing:  # it has become shorter meanwhile
            self._size = self._loaded
