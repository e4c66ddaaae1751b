"""Where one chunk of an answer ends and the next begins. Above: `decode.py`. Below: `net/sse.py`.

There are three forms: events, when they were asked for (`alt=sse`); an array of the same chunks, when they were not;
and one object for an answer that is not streamed. They are told apart by their first byte, and not by what the answer
says it is, for there are gateways that say something else.
"""

import codecs
import json

from perdure.net.sse import SseReader

_SPACE = b" \t\r\n\xef\xbb\xbf"
_LARGE = 64 * 1024

_scan = json.JSONDecoder(strict=False).raw_decode


class Frames:
    """Takes bytes as they come, and gives the chunks that are whole."""

    __slots__ = ("_beginning", "_reader")

    def __init__(self) -> None:
        self._beginning = b""
        self._reader: SseReader | _ArrayReader | None = None

    def feed(self, data: bytes) -> list[bytes]:
        """The chunks that these bytes complete."""
        reader = self._reader
        if reader is None:
            data = (self._beginning + data).lstrip(_SPACE)
            if not data:
                return []
            reader = self._reader = _ArrayReader() if data[:1] in {b"[", b"{"} else SseReader()
        if type(reader) is SseReader:
            return [event for _, event in reader.feed(data)]
        return reader.feed(data)  # type: ignore[return-value] # mypy does not narrow by type(…) is not

    def rest(self) -> list[bytes]:
        """What is left when the bytes are over: perhaps a chunk that nothing has closed, perhaps a torn one."""
        if isinstance(self._reader, SseReader):
            return [event for _, event in self._reader.rest()]
        return [] if self._reader is None else self._reader.rest()

    @property
    def is_whole(self) -> bool:
        """Whether the answer is one object, which ends where it ends."""
        return isinstance(self._reader, _ArrayReader) and not self._reader.is_array


class _ArrayReader:
    """Takes an array apart while it is still coming. A single object is given when the bytes are over."""

    __slots__ = ("_decoder", "_text", "_try_from", "is_array")

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._text = ""
        self._try_from = 0
        """How long the text has to be before it is worth another look: a large element is not read at every byte."""
        self.is_array: bool | None = None

    def feed(self, data: bytes) -> list[bytes]:
        """The elements that these bytes complete."""
        self._text += self._decoder.decode(data)
        if self.is_array is None and self._text:
            self.is_array = self._text[0] == "["
        if not self.is_array or b"}" not in data or len(self._text) < self._try_from:
            return []
        return self._elements()

    def rest(self) -> list[bytes]:
        """A single object, or what a torn array had left."""
        text = self._text.strip(" \t\r\n,[]") if self.is_array else self._text
        self._text = ""
        return [text.encode()] if text else []

    def _elements(self) -> list[bytes]:
        found: list[bytes] = []
        text = self._text.lstrip(" \t\r\n,[")
        while text[:1] == "{":
            try:
                _, end = _scan(text)
            except (ValueError, RecursionError):
                break
            found.append(text[:end].encode())
            text = text[end:].lstrip(" \t\r\n,")
        self._text = text
        self._try_from = len(text) + len(text) // 4 if len(text) > _LARGE else 0
        return found
