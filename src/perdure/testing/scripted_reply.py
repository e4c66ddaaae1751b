"""Build the replies that a `ScriptedModel` streams: text, thinking, tool calls and pauses."""

import asyncio
from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias, cast

import msgspec
from msgspec import Struct

from perdure.core.error import ConfigError
from perdure.core.event import CitationAdded, ModelEvent, TextDelta, ThinkingDelta, ToolCallDelta
from perdure.core.message import Citation, Message, Part, StopReason, Text, Thinking, ToolCall, Usage

USAGE = Usage(input_tokens=10, output_tokens=5)
"""Default token usage of a scripted reply."""


class Reply(Struct, frozen=True):
    """A reply for a `ScriptedModel`: thinking, text and tool calls, which are streamed in this order."""

    text: str = ""
    """Text of the reply."""
    thinking: str = ""
    """Thinking before the reply."""
    calls: Sequence[ToolCall] = ()
    """Tool calls; a call without an id gets one."""
    usage: Usage | None = USAGE
    """Reported token usage; `None` simulates a provider that reports none."""
    stop: StopReason | None = None
    """Stop reason; `None` derives it from the parts."""

    def __post_init__(self) -> None:
        for name in ("text", "thinking"):
            value: Any = getattr(self, name)
            if not isinstance(value, str):
                raise ConfigError(f"Reply({name}={value!r}): {name} must be a str")
        if not _is_call_sequence(self.calls):
            raise ConfigError(f"Reply(calls={self.calls!r}): calls must be a list of what call(name, ...) returns")
        if self.usage is not None and not isinstance(self.usage, Usage):
            raise ConfigError(f"Reply(usage={self.usage!r}): usage must be a Usage(...), or None")
        if self.stop is not None and self.stop not in set(StopReason):
            raise ConfigError(f"Reply(stop={self.stop!r}): stop must be a StopReason, or None")

    @property
    def parts(self) -> tuple[Part, ...]:
        """The reply as message parts."""
        thought = (Thinking(self.thinking),) if self.thinking else ()
        words = (Text(self.text),) if self.text else ()
        return (*thought, *words, *self.calls)


def call(name: str, arguments: str | None = None, /, **keywords: Any) -> ToolCall:
    """Build a scripted call of the tool `name`: `call("shell", command="ls")`.

    The second positional argument is the arguments as raw text instead, to simulate a confused model: `call("shell",
    '{"command": ')`. The model numbers its calls; a `ToolCall` made by hand keeps its id.
    """
    tool: Any = name
    raw: Any = arguments
    if not isinstance(tool, str) or not tool:
        raise ConfigError(f"call({tool!r}): the first argument is the name of a tool")
    if raw is not None and (not isinstance(raw, str) or keywords):
        raise ConfigError(f"call({tool!r}, {raw!r}): give the arguments as keywords, or as one raw JSON text")
    return ToolCall("", name, arguments if arguments is not None else _encode_arguments(name, keywords))


def calls(*several: ToolCall) -> Reply:
    """Build a scripted reply with several tool calls: `calls(call("add", a=1, b=2), call("add", a=3, b=4))`."""
    if not several:
        raise ConfigError("calls() needs at least one call(name, ...)")
    return Reply(calls=several)


def thinking(text: str, *then: str | ToolCall) -> Reply:
    """Build a scripted reply that begins with thinking: `thinking("Two and two...", "4")`."""
    words = "".join([item for item in then if isinstance(item, str)])
    return Reply(words, text, tuple([item for item in then if not isinstance(item, str)]))


class Pause:
    """A point in a scripted reply where the model waits until the test calls `release`."""

    def __init__(self) -> None:
        self._reached = asyncio.Event()
        self._released = asyncio.Event()

    async def wait_reached(self) -> None:
        """Wait until the model's stream has reached the pause. Without limit: use `async with asyncio.timeout(5)`."""
        await self._reached.wait()

    def release(self) -> None:
        """Let the waiting stream continue; streams that reach the pause later do not wait."""
        self._released.set()

    async def wait_released(self) -> None:
        """Wait until the test calls `release`. Called by `ScriptedModel`."""
        self._reached.set()
        await self._released.wait()


def pause() -> Pause:
    """Create a `Pause`: a point in a scripted reply where the model waits until the test calls `release`."""
    return Pause()


ScriptStep: TypeAlias = ModelEvent | Pause | asyncio.Event | BaseException
"""Item of a scripted list of events: an event, a pause, an `asyncio.Event` to wait for, or an error to raise."""


def build_deltas(parts: Sequence[Part], chunk: int | None) -> list[ModelEvent]:
    """Return the events that stream these message parts, with texts cut into pieces of `chunk` characters."""
    events: list[ModelEvent] = []
    thoughts = asked = 0
    for part in parts:
        match part:
            case Text(text=text):
                events += [TextDelta(piece) for piece in _split_text(text, chunk)]
            case Thinking():
                events += _thinking_deltas(part, thoughts, chunk)
                thoughts += 1
            case ToolCall():
                events += _call_deltas(part, asked, chunk)
                asked += 1
            case Citation():
                events.append(CitationAdded(part))
            case _:
                pass  # media have no deltas: the message at the end of the stream has them
    return events


def assign_call_ids(message: Message, ids: Iterator[str]) -> Message:
    """Return a copy of a message in which each tool call without an id gets the next one from `ids`."""
    parts = [
        msgspec.structs.replace(part, call_id=next(ids)) if isinstance(part, ToolCall) and not part.call_id else part
        for part in message.parts
    ]
    return msgspec.structs.replace(message, parts=tuple(parts))


def _thinking_deltas(part: Thinking, index: int, chunk: int | None) -> list[ModelEvent]:
    told: list[ModelEvent] = [ThinkingDelta(piece, index=index) for piece in _split_text(part.text, chunk)]
    if part.signature or part.data or part.details:
        told.append(ThinkingDelta("", part.signature, part.data, part.details, index, is_item=part.is_item))
    return told


def _call_deltas(part: ToolCall, index: int, chunk: int | None) -> list[ModelEvent]:
    first, *rest = _split_text(part.arguments, chunk) or [""]
    return [
        ToolCallDelta(part.call_id, part.name, first, part.signature, index),
        *(ToolCallDelta(arguments=piece, index=index) for piece in rest),
    ]


def _split_text(text: str, chunk: int | None) -> list[str]:
    if chunk is None:
        return [text] if text else []
    return [text[start : start + chunk] for start in range(0, len(text), chunk)]


def _is_call_sequence(value: Any) -> bool:
    return isinstance(value, (list, tuple)) and all(isinstance(item, ToolCall) for item in cast("list[Any]", value))


def _encode_arguments(name: str, arguments: dict[str, Any]) -> str:
    try:
        return msgspec.json.encode(arguments).decode()
    except (TypeError, ValueError, RecursionError) as error:
        raise ConfigError(f"call({name!r}): the arguments cannot be written as JSON: {error}") from error
