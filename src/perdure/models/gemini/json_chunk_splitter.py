"""Split the bytes of a Gemini response into chunks, each a complete JSON object.

There are three formats: server-sent events, if requested (`alt=sse`); otherwise an array of the same chunks; and a
single object for a response that is not streamed. They are detected by the first byte instead of the content type,
which some gateways set wrong.
"""

import codecs
import json

from perdure.net.sse import SseParser

_SPACE = b" \t\r\n\xef\xbb\xbf"
_LARGE = 64 * 1024

_scan_json = json.JSONDecoder(strict=False).raw_decode


class ResponseSplitter:
    """Incremental splitter of a Gemini response into chunks (JSON objects).

    Bytes may be fed in pieces of any size.
    """

    __slots__ = ("_beginning", "_reader")

    def __init__(self) -> None:
        self._beginning = b""
        self._reader: SseParser | _JsonArraySplitter | None = None

    def feed(self, data: bytes) -> list[bytes]:
        """Add bytes and return the chunks that they complete."""
        reader = self._reader
        if reader is None:
            data = (self._beginning + data).lstrip(_SPACE)
            if not data:
                return []
            reader = self._reader = _JsonArraySplitter() if data[:1] in {b"[", b"{"} else SseParser()
        if type(reader) is SseParser:
            return [event for _, event in reader.feed(data)]
        return reader.feed(data)  # type: ignore[return-value] # mypy does not narrow by type(…) is not

    def flush(self) -> list[bytes]:
        """Return the remaining bytes at the end: a chunk without its terminator, or one that was cut off."""
        if isinstance(self._reader, SseParser):
            return [event for _, event in self._reader.flush()]
        return [] if self._reader is None else self._reader.flush()

    @property
    def is_single_object(self) -> bool:
        """True if the response is a single JSON object, not a stream of chunks."""
        return isinstance(self._reader, _JsonArraySplitter) and not self._reader.is_array


class _JsonArraySplitter:
    """Splitter of a JSON array into its elements while it is received. A single object is returned at the end."""

    __slots__ = ("_decoder", "_text", "_try_from", "is_array")

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._text = ""
        self._try_from = 0
        """Minimum length of the text before it is parsed again, so a large element is not parsed at every piece."""
        self.is_array: bool | None = None

    def feed(self, data: bytes) -> list[bytes]:
        """Add bytes and return the elements that they complete."""
        self._text += self._decoder.decode(data)
        if self.is_array is None and self._text:
            self.is_array = self._text[0] == "["
        if not self.is_array or b"}" not in data or len(self._text) < self._try_from:
            return []
        return self._split_elements()

    def flush(self) -> list[bytes]:
        """Return a single object, or the rest of an array that was cut off."""
        text = self._text.strip(" \t\r\n,[]") if self.is_array else self._text
        self._text = ""
        return [text.encode()] if text else []

    def _split_elements(self) -> list[bytes]:
        found: list[bytes] = []
        text = self._text.lstrip(" \t\r\n,[")
        while text[:1] == "{":
            try:
                _, end = _scan_json(text)
            except (ValueError, RecursionError):
                break
            found.append(text[:end].encode())
            text = text[end:].lstrip(" \t\r\n,")
        self._text = text
        self._try_from = len(text) + len(text) // 4 if len(text) > _LARGE else 0
        return found
