"""Server-sent events, from bytes in pieces of any size. Pure. Above: the decoders of streams. Below: `error.py`."""

from .error import TooLarge

MOST_EVENT_BYTES = 16 * 1024 * 1024
"""How large one event may be."""

_NOTHING: list[tuple[str, bytes]] = []


class SseReader:
    """Takes bytes as they come, and gives each event, as its name and its data, once it is whole."""

    __slots__ = ("_buffer", "_most", "_searched")

    def __init__(self, most_bytes: int = MOST_EVENT_BYTES) -> None:
        self._buffer = b""
        self._searched = 0
        """How much of the buffer is known to hold no end of an event."""
        self._most = most_bytes

    def feed(self, data: bytes) -> list[tuple[str, bytes]]:
        """The events that these bytes complete."""
        buffer = self._buffer + data if self._buffer else data
        if b"\r" in buffer:
            buffer = _with_plain_ends(buffer)
        end = buffer.find(b"\n\n", self._searched)
        if end < 0:
            if len(buffer) > self._most:
                raise TooLarge(f"one event of a stream is larger than {self._most} bytes")
            self._buffer = buffer
            self._searched = max(0, len(buffer) - 2)
            return _NOTHING
        *blocks, self._buffer = buffer.split(b"\n\n")
        self._searched = max(0, len(self._buffer) - 2)
        return [event for block in blocks if (event := _event(block)) is not None]

    def rest(self) -> list[tuple[str, bytes]]:
        """What is left when the bytes are over: perhaps an event that nothing has closed, perhaps a torn one."""
        left, self._buffer = self._buffer, b""
        event = _event(left.replace(b"\r", b"\n"))
        return _NOTHING if event is None else [event]


def _with_plain_ends(buffer: bytes) -> bytes:
    """All line ends as one character; a carriage return at the very end may be half of one."""
    held = buffer.endswith(b"\r")
    plain = buffer[: len(buffer) - held].replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    return plain + b"\r" if held else plain


def _event(block: bytes) -> tuple[str, bytes] | None:
    if block.startswith(b"data: ") and b"\n" not in block:  # nearly always
        return "", block[6:]
    name, data = "", []
    for line in block.split(b"\n"):
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if field == b"data":
            data.append(value)
        elif field == b"event":
            name = value.decode("utf-8", "replace")
    return (name, b"\n".join(data)) if data else None
