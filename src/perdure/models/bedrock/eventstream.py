"""Event streams of AWS, from bytes in pieces of any size. Pure. Above: `decode.py`. Below: `library.py`."""

from typing import Any

from msgspec import Struct

from perdure.core.error import ReplyCutOff

from .library import botocore


class Frame(Struct, frozen=True, gc=False):
    """One message of the stream."""

    kind: str
    """`event`, `exception` or `error`."""
    name: str
    """Which event, or which error."""
    payload: bytes


class EventStreamReader:
    """Takes bytes as they come, and gives each message once it is whole and its checksums agree."""

    def __init__(self) -> None:
        eventstream = botocore("eventstream")
        self._buffer: Any = eventstream.EventStreamBuffer()
        self._damaged: type[Exception] = eventstream.ParserError

    def feed(self, data: bytes) -> list[Frame]:
        """The messages that these bytes complete. Raises `ReplyCutOff` when they are damaged."""
        self._buffer.add_data(data)
        try:
            return [_frame(message) for message in self._buffer]
        except (self._damaged, LookupError, ValueError) as error:
            raise ReplyCutOff(f"the event stream is damaged ({error}); asking again may help") from error


def _frame(message: Any) -> Frame:
    headers: dict[str, Any] = message.headers
    kind = str(headers.get(":message-type", "event"))
    name = headers.get(":event-type") or headers.get(":exception-type") or headers.get(":error-code") or ""
    payload: bytes = message.payload or str(headers.get(":error-message", "")).encode()
    return Frame(kind, str(name), payload)
