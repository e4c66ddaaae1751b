"""A model for tests that streams replies written in the test.

    model = ScriptedModel(call("shell", command="ls"), "Three files.")

It can be used wherever a model can: in the loop, in wrappers, in `check_model`.
"""

import asyncio
import inspect
import itertools
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from typing import Any, TypeAlias, cast, get_args

import msgspec

from perdure.core.error import ConfigError, ModelError
from perdure.core.event import ModelEvent, ReplyFinished, ToolCallDelta
from perdure.core.message import Message, StopReason, ToolCall, Usage
from perdure.core.model import ModelInfo, Price, Request

from .scripted_reply import USAGE, Pause, Reply, ScriptStep, assign_call_ids, build_deltas

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
