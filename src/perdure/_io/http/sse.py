"""Parse server-sent events from bytes in pieces of any size. No I/O."""

from .transport import ResponseTooLarge

MAX_EVENT_BYTES = 16 * 1024 * 1024
"""Maximum size of one event."""

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class SseParser:
    """Incremental parser of server-sent events; returns each event as name and data once it is complete."""

    __slots__ = ("_after_return", "_most", "_pieces", "_size")

    def __init__(self, max_bytes: int = MAX_EVENT_BYTES) -> None:
        self._pieces: list[bytes] = []
        """Pieces of the incomplete event. They are joined when it is complete: joining at each piece would copy a large
        event over and over.
        """
        self._size = 0
        self._after_return = False
        """True if the last byte was a carriage return: a following line feed belongs to it."""
        self._most = max_bytes

    def feed(self, data: bytes) -> list[tuple[str, bytes]]:
        """Add bytes and return the events that they complete."""
        if self._after_return or data.find(b"\r") >= 0:  # `in` would be slower: it first tries the bytes as a number
            data = self._normalize_line_ends(data)
        if not self._has_event_end(data):
            self._buffer_bytes(data)
            return []
        if self._pieces:
            self._pieces.append(data)
            data = b"".join(self._pieces)
            self._pieces, self._size = [], 0
        *blocks, begun = data.split(b"\n\n")
        self._buffer_bytes(begun)
        events: list[tuple[str, bytes]] = []
        for block in blocks:
            if block.startswith(b"data: ") and block.find(b"\n") < 0:  # nearly always
                events.append(("", block[6:]))
            elif (event := _parse_event(block)) is not None:
                events.append(event)
        return events

    def flush(self) -> list[tuple[str, bytes]]:
        """Return the remaining bytes at the end: an event without its terminator, or one that was cut off."""
        if not self._pieces:
            return []
        left = b"".join(self._pieces)
        self._pieces, self._size = [], 0
        event = _parse_event(left)
        return [] if event is None else [event]

    def _has_event_end(self, data: bytes) -> bool:
        """Return True if these bytes contain an empty line, or complete one that earlier bytes began."""
        if data.find(b"\n\n") >= 0:
            return True
        return data.startswith(b"\n") and bool(self._pieces) and self._pieces[-1].endswith(b"\n")

    def _buffer_bytes(self, data: bytes) -> None:
        if data:
            self._size += len(data)
            if self._size > self._most:
                raise ResponseTooLarge(f"one event of a stream is larger than {self._most} bytes")
            self._pieces.append(data)

    def _normalize_line_ends(self, data: bytes) -> bytes:
        """Convert all line ends to line feeds."""
        if self._after_return and data.startswith(b"\n"):
            data = data[1:]
            self._after_return = False
        if data:
            self._after_return = data.endswith(b"\r")
        return data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")


def _parse_event(block: bytes) -> tuple[str, bytes] | None:
    if block.startswith(b"event: "):
        name, _, data = block[7:].partition(b"\ndata: ")
        if data and data.find(b"\n") < 0 and name.find(b"\n") < 0:  # nearly always, where events are named
            return name.decode("utf-8", "replace"), data
    return _parse_unusual_event(block.removeprefix(_BYTE_ORDER_MARK))


def _parse_unusual_event(block: bytes) -> tuple[str, bytes] | None:
    """Parse an event with several data lines, with comments, with fields in another order, or without data."""
    name, data = "", list[bytes]()
    for line in block.split(b"\n"):
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if field == b"data":
            data.append(value)
        elif field == b"event":
            name = value.decode("utf-8", "replace")
    return (name, b"\n".join(data)) if data else None
