"""Server-sent events, from bytes in pieces of any size. Pure. Above: the decoders of streams. Below: `error.py`."""

from .error import TooLarge

MOST_EVENT_BYTES = 16 * 1024 * 1024
"""How large one event may be."""

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class SseReader:
    """Takes bytes as they come, and gives each event, as its name and its data, once it is whole."""

    __slots__ = ("_after_return", "_most", "_pieces", "_size")

    def __init__(self, most_bytes: int = MOST_EVENT_BYTES) -> None:
        self._pieces: list[bytes] = []
        """The event that is not whole yet. They are joined when it is: joined at each piece, a large one would be
        copied over and over.
        """
        self._size = 0
        self._after_return = False
        """Whether the last byte was a carriage return: a line feed that follows it belongs to it."""
        self._most = most_bytes

    def feed(self, data: bytes) -> list[tuple[str, bytes]]:
        """The events that these bytes complete."""
        if self._after_return or data.find(b"\r") >= 0:  # and not `in`, which first takes the bytes for a number
            data = self._with_plain_ends(data)
        if not self._ends_one(data):
            self._keep(data)
            return []
        if self._pieces:
            self._pieces.append(data)
            data = b"".join(self._pieces)
            self._pieces, self._size = [], 0
        *blocks, begun = data.split(b"\n\n")
        self._keep(begun)
        return [event for block in blocks if (event := _event(block)) is not None]

    def rest(self) -> list[tuple[str, bytes]]:
        """What is left when the bytes are over: perhaps an event that nothing has closed, perhaps a torn one."""
        if not self._pieces:
            return []
        left = b"".join(self._pieces)
        self._pieces, self._size = [], 0
        event = _event(left)
        return [] if event is None else [event]

    def _ends_one(self, data: bytes) -> bool:
        """Whether there is an empty line in it, or between what came before and it."""
        if data.find(b"\n\n") >= 0:
            return True
        return data.startswith(b"\n") and bool(self._pieces) and self._pieces[-1].endswith(b"\n")

    def _keep(self, data: bytes) -> None:
        if data:
            self._size += len(data)
            if self._size > self._most:
                raise TooLarge(f"one event of a stream is larger than {self._most} bytes")
            self._pieces.append(data)

    def _with_plain_ends(self, data: bytes) -> bytes:
        """All line ends as one character."""
        if self._after_return and data.startswith(b"\n"):
            data = data[1:]
            self._after_return = False
        if data:
            self._after_return = data.endswith(b"\r")
        return data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")


def _event(block: bytes) -> tuple[str, bytes] | None:
    if block.startswith(b"data: "):
        if block.find(b"\n") < 0:  # nearly always
            return "", block[6:]
    elif block.startswith(b"event: "):
        name, _, data = block[7:].partition(b"\ndata: ")
        if data and data.find(b"\n") < 0 and name.find(b"\n") < 0:  # nearly always, where events are named
            return name.decode("utf-8", "replace"), data
    return _unusual_event(block.removeprefix(_BYTE_ORDER_MARK))


def _unusual_event(block: bytes) -> tuple[str, bytes] | None:
    """With several lines of data, with comments, in another order, or without any data at all."""
    name, data = "", list[bytes]()
    for line in block.split(b"\n"):
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if field == b"data":
            data.append(value)
        elif field == b"event":
            name = value.decode("utf-8", "replace")
    return (name, b"\n".join(data)) if data else None
