"""The messages of a conversation, and the list that is sent to the model, which may be shorter.

A transcript only grows. The view is the same list until something makes it shorter: a summary of its beginning, the
short form of older results, the preview of a long one. Nothing is ever removed from the transcript itself.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Any, cast, overload

from msgspec.structs import replace

from perdure._core.values.message import Message, Text, ToolResult

CHARACTERS_PER_TOKEN = 4
"""The average used to estimate tokens that no provider has counted."""


class MessagesSnapshot(Sequence[Message]):
    """Read-only snapshot of an append-only list of messages, which shares the list instead of copying it."""

    __slots__ = ("_length", "_messages")

    def __init__(self, messages: list[Message]) -> None:
        self._messages = messages
        self._length = len(messages)

    @property
    def shared_length(self) -> int:
        """Number of messages that are those of the shared list."""
        return self._length

    def is_extension_of(self, other: "MessagesSnapshot") -> bool:
        """Return True if this is a snapshot of the same list as `other`, and at least as long.

        Messages of this request alone do not count.
        """
        return self._messages is other._messages and self._length >= other._length  # noqa: SLF001 - same class

    def with_passing(self, *passing: Message) -> "MessagesSnapshot":
        """Return these messages followed by some of one request alone, without a copy of the shared list."""
        return _SnapshotWithPassingMessages(self._messages, self._length, passing) if passing else self

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


class _SnapshotWithPassingMessages(MessagesSnapshot):
    """A snapshot followed by messages that only this request has, such as reminders."""

    __slots__ = ("_passing",)

    def __init__(self, messages: list[Message], length: int, passing: tuple[Message, ...]) -> None:
        self._messages = messages
        self._length = length
        self._passing = passing

    def with_passing(self, *passing: Message) -> MessagesSnapshot:
        return _SnapshotWithPassingMessages(self._messages, self._length, (*self._passing, *passing))

    def __len__(self) -> int:
        return self._length + len(self._passing)

    def __iter__(self) -> Iterator[Message]:
        return chain(super().__iter__(), self._passing)

    def __reversed__(self) -> Iterator[Message]:
        return chain(reversed(self._passing), super().__reversed__())

    @overload
    def __getitem__(self, index: int) -> Message: ...
    @overload
    def __getitem__(self, index: slice) -> list[Message]: ...
    def __getitem__(self, index: int | slice) -> Message | list[Message]:
        if isinstance(index, slice):
            return [self[each] for each in range(*index.indices(len(self)))]
        place = range(len(self))[index]
        return self._messages[place] if place < self._length else self._passing[place - self._length]


def add_passing_messages(messages: Sequence[Message], *passing: Message) -> Sequence[Message]:
    """Return the messages of a request followed by some that are never stored."""
    return messages.with_passing(*passing) if isinstance(messages, MessagesSnapshot) else [*messages, *passing]


class InputTokenEstimate:
    """Estimate of the input tokens of the requests of a session. Each message of its transcript is looked at once."""

    __slots__ = ("_characters", "_reported", "_view")

    def __init__(self) -> None:
        self._begin()

    def _begin(self) -> None:
        self._view: MessagesSnapshot | None = None
        self._reported: int | None = None
        """The tokens that the provider has counted for the last reply, with everything before it."""
        self._characters = 0
        """The characters of the messages since then."""

    def estimate(self, messages: Sequence[Message], prefix_tokens: int) -> int:
        """Estimate the input tokens of a request; `prefix_tokens` are those of its instructions and tools."""
        if not isinstance(messages, MessagesSnapshot):
            return _estimate_whole(messages, prefix_tokens)
        if self._view is None or not messages.is_extension_of(self._view):
            self._begin()
        first, self._view = 0 if self._view is None else self._view.shared_length, messages
        for message in messages[first : messages.shared_length]:
            counted = _get_reported_tokens(message)
            if counted is None:
                self._characters += count_characters((message,))
            else:
                self._reported, self._characters = counted, 0
        characters = self._characters + count_characters(messages[messages.shared_length :])
        return (prefix_tokens if self._reported is None else self._reported) + characters // CHARACTERS_PER_TOKEN


def _estimate_whole(messages: Sequence[Message], prefix_tokens: int) -> int:
    characters = 0
    for message in reversed(messages):
        counted = _get_reported_tokens(message)
        if counted is not None:
            return counted + characters // CHARACTERS_PER_TOKEN
        characters += count_characters((message,))
    return prefix_tokens + characters // CHARACTERS_PER_TOKEN


def _get_reported_tokens(message: Message) -> int | None:
    """Return the tokens that a provider has counted for a reply, with everything before it; None if it has not."""
    usage = message.usage
    return usage.input_tokens + usage.output_tokens if usage is not None and usage.input_tokens else None


def count_characters(messages: Iterable[Message]) -> int:
    """Return the number of characters of the texts and tool results in these messages."""
    parts = [part for each in messages for part in each.parts]
    return sum([len(part.text) for part in parts if type(part) is Text or type(part) is ToolResult])


class Transcript:
    """All messages of a conversation, and the list that the model is sent, with summaries and short results."""

    __slots__ = ("compacted_count", "input_tokens", "messages", "sent_messages", "shortened_count", "summary")

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
        self.input_tokens = InputTokenEstimate()
        """Estimate of the tokens of the next request."""

    def add(self, message: Message) -> None:
        """Append a message."""
        self.messages.append(message)
        if self.sent_messages is not self.messages:
            self.sent_messages.append(message)

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
