"""A model for tests that streams replies written in the test."""

import asyncio
import inspect
import itertools
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Sequence
from typing import Any, TypeAlias, cast, get_args

import msgspec
from msgspec import Struct

from perdure._core.model.protocol import ModelInfo, Price, Request
from perdure._core.values.error import ConfigError, ModelError
from perdure._core.values.event import CitationAdded, ModelEvent, ReplyFinished, TextDelta, ThinkingDelta, ToolCallDelta
from perdure._core.values.message import Citation, Message, Part, StopReason, Text, Thinking, ToolCall, Usage

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


Scripted: TypeAlias = str | ToolCall | Reply | Message | BaseException | Sequence[ScriptStep] | Callable[[Request], Any]
"""A scripted reply: text; a call; a `Reply`; a message; an error to raise; a list of events, streamed as it is (cut off
unless it ends with `ReplyFinished`); or a function of the request, sync or async, that returns one of these.
"""

_Player: TypeAlias = Callable[[Request], AsyncIterator[ModelEvent]]

_STEPS = (*get_args(ModelEvent), Pause, asyncio.Event, BaseException)


class ScriptEnded(ModelError, AssertionError):
    """Raised when a `ScriptedModel` gets more requests than it has replies."""


class ScriptedModel:
    """Model for tests: it streams the next scripted reply for each request, and records the requests."""

    def __init__(
        self,
        *replies: Scripted,
        name: str = "scripted",
        price: Price | None = None,
        repeat_last: bool = False,
        chunk: int | None = None,
    ) -> None:
        """Create the model. Texts are streamed whole, or in pieces of `chunk` characters; `repeat_last` repeats the
        last reply for ever.
        """
        if chunk is not None and not (isinstance(chunk, int) and chunk >= 1):
            raise ConfigError(f"ScriptedModel(chunk={chunk!r}): chunk must be at least 1, or None for whole texts")
        if repeat_last and not replies:
            raise ConfigError("ScriptedModel(repeat_last=True) needs a reply to repeat")
        self.info = ModelInfo(name, "scripted", price)
        """Information that `model_info` returns."""
        self.requests: list[Request] = []
        """Received requests, in order. They are copies and do not change."""
        self._chunk = chunk
        self._repeat_last = repeat_last
        self._ids = (f"call_{number}" for number in itertools.count(1))
        self._players = [self._build_player(reply, f"reply {place}") for place, reply in enumerate(replies, 1)]
        self._asked = 0

    def __repr__(self) -> str:
        return f"<ScriptedModel {self.info.name!r}: {len(self._players)} replies, asked {self._asked} times>"

    @property
    def remaining(self) -> int:
        """Number of scripted replies that are not used yet."""
        return max(0, len(self._players) - self._asked)

    def stream(self, request: Request) -> AsyncIterator[ModelEvent]:
        """Stream the next scripted reply. Raises `ScriptEnded` when none is left."""
        self.requests.append(_copy_request(request) if type(request.messages) is list else request)
        place = self._asked
        self._asked = place + 1
        if place < len(self._players):
            return self._players[place](request)
        if self._repeat_last:
            return self._players[-1](request)
        return _stream_steps([self._build_script_ended()])

    def _build_script_ended(self) -> ScriptEnded:
        replies = "1 reply" if len(self._players) == 1 else f"{len(self._players)} replies"
        return ScriptEnded(
            f"ScriptedModel {self.info.name!r} has {replies}, and this is request {self._asked}: "
            f"script another reply, or pass repeat_last=True"
        )

    def _build_player(self, reply: Any, label: str) -> _Player:
        """Return a function that plays a reply, with everything precomputed that is the same each time."""
        match reply:
            case str():
                return self._build_reply_player(Reply(reply))
            case ToolCall():
                return self._build_reply_player(Reply(calls=(reply,)))
            case Reply():
                return self._build_reply_player(reply)
            case Message():
                return self._build_message_player(reply, label)
            case BaseException():
                return lambda _: _stream_steps([reply])
            case list() | tuple():
                return _build_list_player(tuple(cast("list[Any]", reply)), label)
            case _ if callable(reply) and not isinstance(reply, type):
                return lambda request: self._call_function(reply, request)
            case _:
                raise ConfigError(
                    f"{label} of a ScriptedModel is {reply!r}: give a str, call(...), calls(...), Reply(...), a "
                    f"Message, an exception instance, a list of events, or a function of the request that returns one"
                )

    def _build_reply_player(self, reply: Reply) -> _Player:
        stop = reply.stop or (StopReason.TOOL_USE if reply.calls else StopReason.STOP)
        events = (*build_deltas(reply.parts, self._chunk), self._build_finished(stop, reply.usage))
        unnumbered = [
            (place, event)
            for place, event in enumerate(events)
            if isinstance(event, ToolCallDelta) and event.name and not event.call_id
        ]
        if not unnumbered:
            return lambda _: _Playback(events)

        def play(_: Request) -> AsyncIterator[ModelEvent]:
            told = list(events)
            for place, delta in unnumbered:
                told[place] = ToolCallDelta(next(self._ids), delta.name, delta.arguments, delta.signature, delta.index)
            return _Playback(told)

        return play

    def _build_message_player(self, message: Message, label: str) -> _Player:
        if message.role != "assistant":
            raise ConfigError(
                f"{label} of a ScriptedModel is a message of role {message.role!r}: a model says 'assistant'"
            )
        stop = message.stop or (StopReason.TOOL_USE if message.tool_calls else StopReason.STOP)
        whole = msgspec.structs.replace(
            message,
            stop=stop,
            usage=message.usage or USAGE,
            model=message.model or self.info.name,
            provider=message.provider or self.info.provider,
        )

        def play(_: Request) -> AsyncIterator[ModelEvent]:
            told = assign_call_ids(whole, self._ids)
            finished = ReplyFinished(stop, told.usage, told.model, told.provider, told)
            return _Playback([*build_deltas(told.parts, self._chunk), finished])

        return play

    def _build_finished(self, stop: StopReason, usage: Usage | None) -> ReplyFinished:
        return ReplyFinished(stop, usage, self.info.name, self.info.provider)

    async def _call_function(
        self, function: Callable[[Request], Any], request: Request
    ) -> AsyncGenerator[ModelEvent, None]:
        reply = function(request)
        if inspect.isawaitable(reply):
            reply = await reply
        async for event in self._build_player(reply, f"the reply of {function!r}")(request):
            yield event


class _Playback:
    """A stream of precomputed events, which is cheaper to start than a generator."""

    __slots__ = ("_events",)

    def __init__(self, events: Sequence[ModelEvent]) -> None:
        self._events = iter(events)

    def __aiter__(self) -> "_Playback":
        return self

    async def __anext__(self) -> ModelEvent:
        for event in self._events:
            return event
        raise StopAsyncIteration

    async def aclose(self) -> None:
        self._events = iter(())


async def _stream_steps(steps: Sequence[ScriptStep]) -> AsyncGenerator[ModelEvent, None]:
    """Stream steps that may wait or raise."""
    for step in steps:
        if isinstance(step, Pause):
            await step.wait_released()
        elif isinstance(step, asyncio.Event):
            await step.wait()
        elif isinstance(step, BaseException):
            raise step.with_traceback(None)  # it may be raised again: without the frames of the last time
        else:
            yield step


def _build_list_player(steps: tuple[Any, ...], label: str) -> _Player:
    for step in steps:
        if not isinstance(step, _STEPS):
            raise ConfigError(
                f"{label} of a ScriptedModel is a list that holds {step!r}: a list is played as it is, and holds "
                f"events such as TextDelta('...'), pause(), an asyncio.Event or an exception; for several calls use "
                f"calls(...)"
            )
    return lambda _: _stream_steps(steps)


def _copy_request(request: Request) -> Request:
    """Copy the request, in case the caller changes its list later."""
    return msgspec.structs.replace(request, messages=tuple(request.messages), tools=tuple(request.tools))
