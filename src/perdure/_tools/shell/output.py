"""Capture the output of a command: its beginning and end in memory, the whole in a spool file up to a limit."""

import os
from typing import Final

from .backend import CapturedStream

READ_BYTES: Final = 65_536


class OutputCapture:
    """The output of a command on one stream: beginning and end in memory, and all of it in a file once it is long."""

    def __init__(self, keep_bytes: int, spool_file: str, spool_bytes: int) -> None:
        """Keep half of `keep_bytes` from each end; write at most `spool_bytes` to the file."""
        self._half = keep_bytes // 2
        self._spool_file = spool_file
        self._spool_bytes = spool_bytes
        self._head = bytearray()
        self._tail = bytearray()
        self._spool: int | None = None
        self._taken = 0
        self.total_bytes = 0
        """Bytes that the command has written to the stream."""
        self._total_lines = 0

    @property
    def is_full(self) -> bool:
        """True if the spool file has reached its limit."""
        return self.total_bytes > self._spool_bytes

    def add(self, data: bytes) -> None:
        """Add output of the command."""
        self.total_bytes += len(data)
        self._total_lines += data.count(b"\n")
        if self._spool is None and self.total_bytes > 2 * self._half:
            self._open_spool()
        if self._spool is not None and not self.is_full:
            os.write(self._spool, data)
        room = self._half - len(self._head)
        if room > 0:
            self._head += data[:room]
            data = data[room:]
        self._tail += data
        if len(self._tail) > 2 * self._half:  # cut now and then, not for each piece
            del self._tail[: -self._half]

    def _open_spool(self) -> None:
        # A name that nobody could know before, in a folder of our own: no link can be waiting there.
        self._spool = os.open(self._spool_file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        os.write(self._spool, bytes(self._head + self._tail))

    def close(self) -> None:
        """Close the spool file."""
        if self._spool is not None:
            os.close(self._spool)
            self._spool = None

    def build_output(self) -> CapturedStream:
        """Return the output so far: the whole, or its beginning and its end."""
        omitted = self.total_bytes - len(self._head) - min(len(self._tail), self._half)
        if omitted <= 0 or self.total_bytes <= 2 * self._half:
            return CapturedStream(_decode(bytes(self._head + self._tail)))
        tail = bytes(self._tail[-self._half :])
        shown_lines = self._head.count(b"\n") + tail.count(b"\n")
        return CapturedStream(
            _decode(bytes(self._head)), _decode(tail), omitted, self._total_lines - shown_lines, self._spool_file
        )

    def take_new(self) -> str:
        """Return the output since the last call of this method; of a long one the beginning and the end."""
        start, self._taken = self._taken, self.total_bytes
        if self.total_bytes == start:
            return ""
        if start == 0:
            return str(self.build_output())
        if start < len(self._head) and self.total_bytes <= 2 * self._half:
            return _decode(bytes(self._head + self._tail)[start:])
        new = self.total_bytes - start
        if new <= len(self._tail):
            return _decode(bytes(self._tail[-new:]))
        return str(CapturedStream("", _decode(bytes(self._tail[-self._half :])), new - self._half, 0, self._spool_file))


def _decode(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def trim_folder(folder: str, most_bytes: int) -> None:
    """Remove the oldest files of a folder until the rest takes at most `most_bytes` bytes."""
    with os.scandir(folder) as entries:
        found = sorted(
            [(entry.stat().st_mtime_ns, entry.stat().st_size, entry.path) for entry in entries], reverse=True
        )
    total = 0
    for _, size, path in found:
        total += size
        if total > most_bytes:
            os.unlink(path)  # noqa: PTH108 - a spool file that is still written loses its name alone
