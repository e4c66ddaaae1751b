"""Thinking shown in the text as well, between `<think>` and `</think>`: what `Settings.reasoning_in_text` asks for.

Pure. Above: `opening.py`, for what comes; `memo.py`, for what goes. Below: `core`. The thinking itself stays where it
is: whoever looks at the parts of a message finds both, and no model gets its thinking back as something that it said.
"""

from collections.abc import AsyncIterator, Iterable, Sequence

from msgspec.structs import replace

from perdure.core.event import ModelEvent, ReplyFinished, TextDelta, ThinkingDelta, ToolCallDelta
from perdure.core.message import Message, Part, Text, Thinking
from perdure.core.model import Model, Request
from perdure.core.wrap import Wrapped, listening

_OPEN, _CLOSE = "<think>", "</think>\n\n"


class ThinkTags:
    """The events of one reply, with each block of thinking repeated in the text when it is whole."""

    def __init__(self) -> None:
        self._thought: list[str] = []
        self._block = 0
        """Which block of thinking they belong to."""

    def of(self, event: ModelEvent) -> Sequence[ModelEvent]:
        """What is to be told instead of one event of a model."""
        if isinstance(event, ThinkingDelta):
            shown = self._shown() if event.index != self._block else ()
            self._block = event.index
            self._thought.append(event.text)
            return (*shown, event)
        if isinstance(event, ReplyFinished) and event.message is not None:
            event = replace(event, message=tagged(event.message))
        if self._thought and isinstance(event, (TextDelta, ToolCallDelta, ReplyFinished)):
            return (*self._shown(), event)
        return (event,)

    def _shown(self) -> Sequence[ModelEvent]:
        thought = "".join(self._thought)
        self._thought.clear()
        return (TextDelta(f"{_OPEN}{thought}{_CLOSE}"),) if thought else ()


def thinking_aloud(model: Model) -> Model:
    """A model that shows its thinking in its text to whoever asks for that, and is itself to everybody else."""

    async def aloud(request: Request) -> AsyncIterator[ModelEvent]:
        tags = ThinkTags()
        async with listening(model, request) as events:
            async for event in events:
                for shown in tags.of(event):
                    yield shown

    def stream(request: Request) -> AsyncIterator[ModelEvent]:
        return aloud(request) if request.settings.reasoning_in_text else model.stream(request)

    return Wrapped(model, stream)


def tagged(message: Message) -> Message:
    """A reply that was told whole, with its thinking in its text."""
    parts: list[Part] = []
    for part in message.parts:
        parts.append(part)
        if isinstance(part, Thinking) and part.text:
            parts.append(Text(f"{_OPEN}{part.text}{_CLOSE}"))
    return replace(message, parts=tuple(parts))


def untagged(message: Message) -> Message:
    """A message without the thinking that was shown in its text; the very same one when there was none."""
    if message.role != "assistant" or not any(type(part) is Text and _OPEN in part.text for part in message.parts):
        return message
    thoughts = [f"{_OPEN}{part.text}{_CLOSE}" for part in message.parts if isinstance(part, Thinking)]
    parts = [
        replace(part, text=_without(part.text, thoughts)) if type(part) is Text else part for part in message.parts
    ]
    return replace(message, parts=tuple([part for part in parts if not (type(part) is Text and not part.text)]))


def _without(text: str, thoughts: Iterable[str]) -> str:
    for thought in thoughts:
        text = text.replace(thought, "", 1)
    return text
