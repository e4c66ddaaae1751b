"""Parse AWS event streams, the binary format of Bedrock's streamed responses. No I/O."""

from typing import Any

from msgspec import Struct

from perdure.core.error import ReplyCutOff

from .botocore_import import import_botocore


class EventStreamMessage(Struct, frozen=True, gc=False):
    """Message of an AWS event stream: an event or error with its name and payload."""

    kind: str
    """`event`, `exception` or `error`."""
    name: str
    """Name of the event or of the error."""
    payload: bytes


class EventStreamParser:
    """Incremental parser of AWS event streams; returns each message once it is complete and its checksums match."""

    def __init__(self) -> None:
        eventstream = import_botocore("eventstream")
        self._buffer: Any = eventstream.EventStreamBuffer()
        self._damaged: type[Exception] = eventstream.ParserError

    def feed(self, data: bytes) -> list[EventStreamMessage]:
        """Add bytes and return the messages that they complete. Raise `ReplyCutOff` if they are damaged."""
        self._buffer.add_data(data)
        try:
            return [_build_message(message) for message in self._buffer]
        except (self._damaged, LookupError, ValueError) as error:
            raise ReplyCutOff(f"the event stream is damaged ({error}); asking again may help") from error


def _build_message(message: Any) -> EventStreamMessage:
    headers: dict[str, Any] = message.headers
    kind = str(headers.get(":message-type", "event"))
    name = headers.get(":event-type") or headers.get(":exception-type") or headers.get(":error-code") or ""
    payload: bytes = message.payload or str(headers.get(":error-message", "")).encode()
    return EventStreamMessage(kind, str(name), payload)
