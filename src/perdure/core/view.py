"""A transcript, and what of it the model is sent. Above: `fold.py`. Below: `message.py`.

A transcript only grows. What is sent is the same list, until something makes it shorter: a summary that stands for its
beginning, the short form of older results, the preview of one that is too long. Nothing is ever taken from the
transcript itself.
"""

from collections.abc import Iterator, Sequence
from typing import Any, cast, overload

from msgspec.structs import replace

from .message import Message, Text, ToolResult


class View(Sequence[Message]):
    """The first messages of a list that only grows. So a view never changes, and costs nothing."""

    __slots__ = ("_length", "_messages")

    def __init__(self, messages: list[Message]) -> None:
        self._messages = messages
        self._length = len(messages)

    def continues(self, other: "View") -> bool:
        """Whether it is the same transcript, at least as long."""
        return self._messages is other._messages and self._length >= len(other)  # noqa: SLF001 - of its own kind

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[Message]:
        messages = self._messages
        return map(messages.__getitem__, range(self._length))

    @overload
    def __getitem__(self, place: int) -> Message: ...
    @overload
    def __getitem__(self, place: slice) -> list[Message]: ...
    def __getitem__(self, place: int | slice) -> Message | list[Message]:
        if isinstance(place, slice):
            return [self._messages[each] for each in range(*place.indices(self._length))]
        return self._messages[range(self._length)[place]]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, (View, list, tuple)):
            return NotImplemented
        return list(self) == list(cast("Sequence[Any]", other))

    __hash__ = None  # type: ignore[assignment] # equal to lists, which have none either

    def __repr__(self) -> str:
        return f"View({list(self)!r})"


class Transcript:
    """What was said, and what of it is sent. Both only grow, until a summary or a short form begins another `sent`."""

    __slots__ = ("compacted", "messages", "sent", "short", "summary")

    def __init__(self) -> None:
        self.messages: list[Message] = []
        """Everything that was said."""
        self.sent = self.messages
        """What the model is sent: the very same list as long as that is everything."""
        self.summary: Message | None = None
        """What stands for the beginning, if something does."""
        self.compacted = 0
        """How many messages that summary stands for."""
        self.short = 0
        """In how many messages results are sent in their short form."""

    def add(self, message: Message) -> None:
        """Something more was said."""
        self.messages.append(message)
        if self.sent is not self.messages:
            self.sent.append(message)

    def add_settled(self, reply: Message, results: Message) -> None:
        """A reply with calls, and the results of all of them."""
        self.messages += (reply, results)
        if self.sent is not self.messages:
            self.sent += (reply, as_sent(results))
        elif [None for part in results.parts if type(part) is ToolResult and part.preview]:
            self._begin_anew()

    def compact(self, summary: Message, upto: int) -> None:
        """From here on a summary stands for the first messages."""
        self.summary, self.compacted = summary, upto
        self._begin_anew()

    def shorten(self, upto: int) -> None:
        """From here on results in the first messages are sent in their short form."""
        self.short = upto
        self._begin_anew()

    def _begin_anew(self) -> None:
        first = self.compacted
        rest = [as_sent(each, short=place < self.short) for place, each in enumerate(self.messages[first:], first)]
        self.sent = rest if self.summary is None else [self.summary, *rest]


def as_sent(message: Message, *, short: bool = False) -> Message:
    """A message as the model is sent it: what is too long in its preview, what is older in its short form."""
    if message.role != "tool":
        return message
    parts = [_result_as_sent(part, short=short) if type(part) is ToolResult else part for part in message.parts]
    changed = any(one is not other for one, other in zip(parts, message.parts, strict=True))
    return replace(message, parts=tuple(parts)) if changed else message


def _result_as_sent(result: ToolResult, *, short: bool) -> ToolResult:
    text = (result.summary if short else "") or result.preview
    return replace(result, content=(Text(text),)) if text else result
