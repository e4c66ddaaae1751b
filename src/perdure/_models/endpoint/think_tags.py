"""Write a model's thinking into the text of its reply, in think tags (`<think>`), and remove it again.

It is on if `Settings.reasoning_in_text` is set.

No I/O. The thinking parts of a message are kept beside the tagged text. The tags are removed again before a message is
sent to a model, so that no model gets thinking back as text.
"""

from collections.abc import AsyncIterator, Iterable, Sequence

from msgspec.structs import replace

from perdure._core.model.protocol import Model, Request
from perdure._core.model.wrappers import WrappedModel, open_stream
from perdure._core.values.event import CitationAdded, ModelEvent, ReplyFinished, TextDelta, ThinkingDelta, ToolCallDelta
from perdure._core.values.message import Citation, Message, Part, Text, Thinking

_OPEN, _CLOSE = "<think>", "</think>\n\n"


class ThinkingToTagsConverter:
    """Converter of one reply's events that repeats each finished block of thinking as text in think tags."""

    def __init__(self) -> None:
        self._thought: list[str] = []
        self._block = 0
        """Index of the block of thinking that they belong to."""
        self._added = 0
        """Characters added to the text so far, by which citations are moved."""

    def convert_event(self, event: ModelEvent) -> Sequence[ModelEvent]:
        """Return the events to emit in place of one event of the model."""
        if isinstance(event, ThinkingDelta):
            shown = self._flush_thinking() if event.index != self._block else ()
            self._block = event.index
            self._thought.append(event.text)
            return (*shown, event)
        if isinstance(event, CitationAdded):
            return (CitationAdded(shift_citation(event.citation, self._added)),)
        if isinstance(event, ReplyFinished) and event.message is not None:
            event = replace(event, message=add_think_tags(event.message))
        if self._thought and isinstance(event, (TextDelta, ToolCallDelta, ReplyFinished)):
            return (*self._flush_thinking(), event)
        return (event,)

    def _flush_thinking(self) -> Sequence[ModelEvent]:
        thought = "".join(self._thought)
        self._thought.clear()
        if not thought:
            return ()
        shown = f"{_OPEN}{thought}{_CLOSE}"
        self._added += len(shown)
        return (TextDelta(shown),)


def with_think_tags(model: Model) -> Model:
    """Wrap a model: its replies repeat the thinking as `<think>` text, if `Settings.reasoning_in_text` is set."""

    async def aloud(request: Request) -> AsyncIterator[ModelEvent]:
        tags = ThinkingToTagsConverter()
        async with open_stream(model, request) as events:
            async for event in events:
                for shown in tags.convert_event(event):
                    yield shown

    def stream(request: Request) -> AsyncIterator[ModelEvent]:
        return aloud(request) if request.settings.reasoning_in_text else model.stream(request)

    return WrappedModel(model, stream)


def add_think_tags(message: Message) -> Message:
    """Return a copy of a reply whose text also contains its thinking, in `<think>` tags."""
    parts: list[Part] = []
    added = 0
    for part in message.parts:
        parts.append(shift_citation(part, added) if isinstance(part, Citation) else part)
        if isinstance(part, Thinking) and part.text:
            shown = f"{_OPEN}{part.text}{_CLOSE}"
            added += len(shown)
            parts.append(Text(shown))
    return replace(message, parts=tuple(parts))


def shift_citation(citation: Citation, characters: int) -> Citation:
    """Return a citation moved by `characters`, because text was inserted before its passage."""
    if citation.start is None or citation.end is None or not characters:
        return citation
    return replace(citation, start=max(citation.start + characters, 0), end=max(citation.end + characters, 0))


def remove_think_tags(message: Message) -> Message:
    """Remove the thinking that `add_think_tags` added to a message; return the same object if there is none."""
    if message.role != "assistant" or not any(type(part) is Text and _OPEN in part.text for part in message.parts):
        return message
    thoughts = [f"{_OPEN}{part.text}{_CLOSE}" for part in message.parts if isinstance(part, Thinking)]
    parts: list[Part] = []
    removed = 0
    for part in message.parts:
        if type(part) is Text:
            text = _remove_thoughts(part.text, thoughts)
            removed += len(part.text) - len(text)
            parts += [replace(part, text=text)] if text else []
        else:
            parts.append(shift_citation(part, -removed) if isinstance(part, Citation) else part)
    return replace(message, parts=tuple(parts))


def _remove_thoughts(text: str, thoughts: Iterable[str]) -> str:
    for thought in thoughts:
        text = text.replace(thought, "", 1)
    return text
