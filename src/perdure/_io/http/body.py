"""Collect the body of an HTTP response up to a size limit, decompressing it as it arrives.

Compressed data is inflated in steps that stop at the limit, so a small response that would become huge (a decompression
bomb) costs no more than the limit.
"""

import zlib

from .transport import InvalidResponse, ResponseCutOff

_EITHER_HEADER = 32 + zlib.MAX_WBITS
"""A stream with the header of gzip or of zlib."""
_ZLIB_METHOD = 8


class BoundedBody:
    """Accumulator of the body of one HTTP response: decompresses it, and stops at a size limit."""

    def __init__(self, max_bytes: int, content_encoding: str = "") -> None:
        """Prepare for a body with this `Content-Encoding`. Raises `InvalidResponse` unless it is gzip or deflate."""
        encoding = content_encoding.strip().lower()
        if encoding not in {"", "identity", "gzip", "x-gzip", "deflate"}:
            raise InvalidResponse(f"the response is compressed with {encoding[:40]!r}, which was not asked for")
        self._is_compressed = encoding not in {"", "identity"}
        self._is_deflate = encoding == "deflate"
        self._inflater = zlib.decompressobj()
        self._is_begun = False
        self._pieces: list[bytes] = []
        self._left = max_bytes
        self._raw_left = max_bytes
        self.is_full = False
        """True if the limit was reached, and the rest was not taken."""

    def feed(self, data: bytes) -> None:
        """Add bytes as they arrived. Raises `InvalidResponse` if they cannot be decompressed."""
        if self.is_full:
            return
        self._raw_left -= len(data)
        if not self._is_compressed:
            self._take(data)
        else:
            self._inflate(data)
        if self._raw_left < 0:  # also for compressed data that becomes nothing
            self.is_full = True

    def finish(self) -> bytes:
        """Return the collected body. Raises `ResponseCutOff` if compressed data has no end."""
        if self._is_begun and not self._inflater.eof and not self.is_full:
            raise ResponseCutOff("the compressed response broke off")
        return b"".join(self._pieces)

    def _inflate(self, data: bytes) -> None:
        while data and not self.is_full:
            if not self._is_begun or self._inflater.eof:  # gzip may have several members
                self._inflater = zlib.decompressobj(self._choose_window(data))
                self._is_begun = True
            try:
                self._take(self._inflater.decompress(data, self._left + 1))
            except zlib.error:
                raise InvalidResponse("the response is not compressed as its header says") from None
            data = self._inflater.unused_data if self._inflater.eof else self._inflater.unconsumed_tail

    def _choose_window(self, data: bytes) -> int:
        """Return the window bits for these first bytes: some servers send deflate without the header of zlib."""
        is_raw = self._is_deflate and data[0] & 0x0F != _ZLIB_METHOD
        return -zlib.MAX_WBITS if is_raw else _EITHER_HEADER

    def _take(self, data: bytes) -> None:
        self.is_full = len(data) > self._left
        self._pieces.append(data[: self._left])
        self._left -= len(self._pieces[-1])
