r"""The line format of session files, with length and checksum: encode entries, and find good lines in damaged files.

A line is `LENGTH CRC {json}\n`: the number of bytes of the JSON, the CRC-32 of the blank and the JSON in eight
hexadecimal digits, and the JSON itself, in ASCII. Instead of the blank, `+` means that the next line belongs to the
same append, which counts as a whole or not at all.

So no line contains a line end, and no content can look like the beginning of a line: outside of its strings JSON
without blanks has none, and inside of them each quotation mark is escaped.
"""

import json
import re
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple
from zlib import crc32

from perdure.core.error import StoreError
from perdure.core.event import Entry
from perdure.core.log_codec import encode_entry

from .file_io import read_at

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
