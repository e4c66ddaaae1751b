"""The messages of a conversation, and the list that is sent to the model, which may be shorter.

A transcript only grows. The view is the same list until something makes it shorter: a summary of its beginning, the
short form of older results, the preview of a long one. Nothing is ever removed from the transcript itself.
"""

from collections.abc import Iterator, Sequence
from typing import Any, cast, overload

from msgspec.structs import replace

from .message import Message, Text, ToolResult


class MessagesSnapshot(Sequence[Message]):
    """Read-only snapshot of an append-only list of messages, which shares the list instead of copying it."""

    __slots__ = ("_length", "_messages")

    def __init__(self, messages: list[Message]) -> None:
        self._messages = messages
        self._length = len(messages)

    def is_extension_of(self, other: "MessagesSnapshot") -> bool:
        """Return True if this is a snapshot of the same list as `other`, and at least as long."""
        return self._messages is other._messages and self._length >= other._length  # noqa: SLF001 - same class

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[Message]:
        messages = self._messages
        return map(messages.__getitem__, range(self._length))

    def __reversed__(self) -> Iterator[Message]:
        messages = self._messages
        return map(messages.__getitem__, range(self._length - 1, -1, -1))

    @overload
    def __getitem__(self, index: int) -> Message: ...
    @overload
    def __getitem__(self, index: slice) -> list[Message]: ...
    def __getitem__(self, index: int | slice) -> Message | list[Message]:
        if type(index) is int and 0 <= index < self._length:
            return self._messages[index]  # nearly always
        if isinstance(index, slice):
            start, step = index.start, index.step
            if index.stop is None and step is None and type(start) is int and start >= 0:
                return self._messages[start : self._length]  # the latest messages
            return [self._messages[each] for each in range(*index.indices(self._length))]
        return self._messages[range(self._length)[index]]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, (MessagesSnapshot, list, tuple)):
            return NotImplemented
        return list(self) == list(cast("Sequence[Any]", other))

    __hash__ = None  # type: ignore[assignment] # equal to lists, which are not hashable either

    def __repr__(self) -> str:
        return f"View({list(self)!r})"


class Transcript:
    """All messages of a conversation, and the list that the model is sent, with summaries and short results."""

    __slots__ = ("compacted_count", "messages", "sent_messages", "shortened_count", "summary")

    def __init__(self) -> None:
        self.messages: list[Message] = []
        """All messages of the conversation."""
        self.sent_messages = self.messages
        """Messages that the model is sent: the same list object as `messages` while nothing is left out."""
        self.summary: Message | None = None
        """Message that replaces the beginning, if there is one."""
        self.compacted_count = 0
        """Number of messages that the summary replaces."""
        self.shortened_count = 0
        """Number of messages whose results are sent in their short form."""

    def add(self, message: Message) -> None:
        """Append a message."""
        self.messages.append(message)
        if self.sent_messages is not self.messages:
            self.sent_messages.append(message)

    def extend(self, messages: Sequence[Message]) -> None:
        """Append messages, of which none has a result with a preview."""
        self.messages += messages
        if self.sent_messages is not self.messages:
            self.sent_messages += messages

    def add_reply_with_results(self, reply: Message, results: Message) -> None:
        """Append a reply with tool calls, and the message with all their results."""
        messages = self.messages
        messages.append(reply)
        messages.append(results)
        if self.sent_messages is not messages:
            self.sent_messages += (reply, shorten_message_for_model(results))
            return
        for part in results.parts:
            if type(part) is ToolResult and part.preview:
                self._rebuild_sent()
                return

    def compact(self, summary: Message, upto: int) -> None:
        """Replace the first `upto` messages by a summary in the list that the model is sent."""
        self.summary, self.compacted_count = summary, upto
        self._rebuild_sent()

    def shorten(self, upto: int) -> None:
        """Use the short form of the results in the first `upto` messages in the list that the model is sent."""
        self.shortened_count = upto
        self._rebuild_sent()

    def _rebuild_sent(self) -> None:
        first = self.compacted_count
        rest = [
            shorten_message_for_model(each, short=place < self.shortened_count)
            for place, each in enumerate(self.messages[first:], first)
        ]
        self.sent_messages = rest if self.summary is None else [self.summary, *rest]


def shorten_message_for_model(message: Message, *, short: bool = False) -> Message:
    """Return a message as it is sent to the model: long results as previews or, with `short`, as their summaries."""
    if message.role != "tool":
        return message
    parts = [_result_as_sent(part, short=short) if type(part) is ToolResult else part for part in message.parts]
    changed = any(one is not other for one, other in zip(parts, message.parts, strict=True))
    return replace(message, parts=tuple(parts)) if changed else message


def _result_as_sent(result: ToolResult, *, short: bool) -> ToolResult:
    text = (result.summary if short else "") or result.preview
    return replace(result, content=(Text(text),)) if text else result
