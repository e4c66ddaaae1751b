"""What a scripted model can say, and how it comes out as events. Above: `scripted.py`. Below: `core`."""

import asyncio
from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias, cast

import msgspec
from msgspec import Struct

from perdure.core.error import ConfigError
from perdure.core.event import ModelEvent, TextDelta, ThinkingDelta, ToolCallDelta
from perdure.core.message import Message, Part, StopReason, Text, Thinking, ToolCall, Usage

USAGE = Usage(input_tokens=10, output_tokens=5)
"""What a scripted reply is said to have used, unless it says otherwise."""


class Reply(Struct, frozen=True):
    """One answer in full. Its parts are told in the order of these fields."""

    text: str = ""
    """The words of it."""
    thinking: str = ""
    """What the model thought before."""
    calls: Sequence[ToolCall] = ()
    """The tools it asks for; a call without an id is given one."""
    usage: Usage | None = USAGE
    """The tokens it is said to have used; `None` plays a provider that does not tell."""
    stop: StopReason | None = None
    """Why it stopped; `None` means what the parts suggest."""

    def __post_init__(self) -> None:
        for name in ("text", "thinking"):
            value: Any = getattr(self, name)
            if not isinstance(value, str):
                raise ConfigError(f"Reply({name}={value!r}): {name} must be a str")
        if not _are_calls(self.calls):
            raise ConfigError(f"Reply(calls={self.calls!r}): calls must be a list of what call(name, ...) returns")
        if self.usage is not None and not isinstance(self.usage, Usage):
            raise ConfigError(f"Reply(usage={self.usage!r}): usage must be a Usage(...), or None")
        if self.stop is not None and self.stop not in set(StopReason):
            raise ConfigError(f"Reply(stop={self.stop!r}): stop must be a StopReason, or None")

    @property
    def parts(self) -> tuple[Part, ...]:
        """The parts of the message that it makes."""
        thought = (Thinking(self.thinking),) if self.thinking else ()
        words = (Text(self.text),) if self.text else ()
        return (*thought, *words, *self.calls)


def call(name: str, arguments: str | None = None, /, **keywords: Any) -> ToolCall:
    """A call of the tool `name`: `call("shell", command="ls")`.

    The second position takes the arguments as raw text instead, for what only a confused model would write:
    `call("shell", '{"command": ')`. The model numbers its calls; a `ToolCall` made by hand keeps its own id.
    """
    tool: Any = name
    raw: Any = arguments
    if not isinstance(tool, str) or not tool:
        raise ConfigError(f"call({tool!r}): the first argument is the name of a tool")
    if raw is not None and (not isinstance(raw, str) or keywords):
        raise ConfigError(f"call({tool!r}, {raw!r}): give the arguments as keywords, or as one raw JSON text")
    return ToolCall("", name, arguments if arguments is not None else _as_json(name, keywords))


def calls(*several: ToolCall) -> Reply:
    """Several calls in one reply: `calls(call("add", a=1, b=2), call("add", a=3, b=4))`."""
    if not several:
        raise ConfigError("calls() needs at least one call(name, ...)")
    return Reply(calls=several)


def thinking(text: str, *then: str | ToolCall) -> Reply:
    """A reply that begins with thinking: `thinking("Two and two...", "4")`, `thinking("Look.", call("shell"))`."""
    words = "".join([item for item in then if isinstance(item, str)])
    return Reply(words, text, tuple([item for item in then if not isinstance(item, str)]))


class Pause:
    """A place in a list of events where the stream stands still until the test lets it go on."""

    def __init__(self) -> None:
        self._reached = asyncio.Event()
        self._released = asyncio.Event()

    async def reached(self) -> None:
        """Wait until a stream stands here. How long is the test's business: `async with asyncio.timeout(5)`."""
        await self._reached.wait()

    def release(self) -> None:
        """Let every stream pass, those that come later too."""
        self._released.set()

    async def hold(self) -> None:
        """Stand here; what the stream does."""
        self._reached.set()
        await self._released.wait()


def pause() -> Pause:
    """A new pause for a list of events: `[TextDelta("Hel"), held, TextDelta("lo"), ReplyFinished()]`."""
    return Pause()


Step: TypeAlias = ModelEvent | Pause | asyncio.Event | BaseException
"""What a list of events may hold besides events: a pause, an `asyncio.Event` to wait for, an error to raise."""


def deltas(parts: Sequence[Part], chunk: int | None) -> list[ModelEvent]:
    """The parts as a stream tells them, each text cut into pieces of `chunk` characters."""
    events: list[ModelEvent] = []
    thoughts = asked = 0
    for part in parts:
        match part:
            case Text(text=text):
                events += [TextDelta(piece) for piece in _pieces(text, chunk)]
            case Thinking():
                events += _thinking_deltas(part, thoughts, chunk)
                thoughts += 1
            case ToolCall():
                events += _call_deltas(part, asked, chunk)
                asked += 1
            case _:
                pass  # media have no deltas: the message at the end of the stream has them
    return events


def numbered(message: Message, ids: Iterator[str]) -> Message:
    """The message with an id for each call that has none."""
    parts = [
        msgspec.structs.replace(part, call_id=next(ids)) if isinstance(part, ToolCall) and not part.call_id else part
        for part in message.parts
    ]
    return msgspec.structs.replace(message, parts=tuple(parts))


def _thinking_deltas(part: Thinking, index: int, chunk: int | None) -> list[ModelEvent]:
    told: list[ModelEvent] = [ThinkingDelta(piece, index=index) for piece in _pieces(part.text, chunk)]
    if part.signature or part.data or part.details:
        told.append(ThinkingDelta("", part.signature, part.data, part.details, index))
    return told


def _call_deltas(part: ToolCall, index: int, chunk: int | None) -> list[ModelEvent]:
    first, *rest = _pieces(part.arguments, chunk) or [""]
    return [
        ToolCallDelta(part.call_id, part.name, first, part.signature, index),
        *(ToolCallDelta(arguments=piece, index=index) for piece in rest),
    ]


def _pieces(text: str, chunk: int | None) -> list[str]:
    if chunk is None:
        return [text] if text else []
    return [text[start : start + chunk] for start in range(0, len(text), chunk)]


def _are_calls(value: Any) -> bool:
    return isinstance(value, (list, tuple)) and all(isinstance(item, ToolCall) for item in cast("list[Any]", value))


def _as_json(name: str, arguments: dict[str, Any]) -> str:
    try:
        return msgspec.json.encode(arguments).decode()
    except (TypeError, ValueError, RecursionError) as error:
        raise ConfigError(f"call({name!r}): the arguments cannot be written as JSON: {error}") from error
