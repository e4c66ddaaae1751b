"""Wrappers: a model from a model, a tool from a tool. Above: callers, assembly. Below: the seams they wrap.

They read as adjectives, and stack: `retried(gated(model, budget))`. A wrapper of a stream closes what it wraps.
"""

import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from typing import Any, TypeAlias, cast

import msgspec

from .clock import SYSTEM_CLOCK, Clock
from .error import AllModelsFailed, ConfigError, ModelError
from .event import FailedOver, ModelEvent, RetryScheduled
from .message import Text, ToolCall, ToolResult
from .model import Model, ModelInfo, Request, info_of
from .tool import Arguments, Finish, Prepare, Tool, ToolContext

# -- models ------------------------------------------------------------------------------------------------------------


class Wrapped:
    """A model made from a function; says what the model inside it is."""

    __slots__ = ("_stream", "info")

    def __init__(self, info: ModelInfo, stream: Callable[[Request], AsyncIterator[ModelEvent]]) -> None:
        self.info = info
        self._stream = stream

    def stream(self, request: Request) -> AsyncIterator[ModelEvent]:
        """Answer a request."""
        return self._stream(request)

    def __repr__(self) -> str:
        return f"Wrapped({self.info.name!r})"


def listening(model: Model, request: Request) -> "aclosing[Any]":
    """The stream of a model, closed when the block is left."""
    return aclosing(cast("Any", model.stream(request)))


def observed(model: Model, watch: Callable[[Request, ModelEvent], object]) -> Model:
    """Show every event of every answer to `watch`, which cannot change them."""

    async def stream(request: Request) -> AsyncIterator[ModelEvent]:
        async with listening(model, request) as events:
            async for event in events:
                watch(request, event)
                yield event

    return Wrapped(info_of(model), stream)


def gated(model: Model, gate: Callable[[Request], Awaitable[Request | None]]) -> Model:
    """Await `gate` before each request: to wait for a turn, to change the request, or to raise instead of asking."""

    async def stream(request: Request) -> AsyncIterator[ModelEvent]:
        async with listening(model, await gate(request) or request) as events:
            async for event in events:
                yield event

    return Wrapped(info_of(model), stream)


def retried(  # noqa: PLR0913 - each is a knob of one policy
    model: Model,
    *,
    attempts: int = 4,
    base_seconds: float = 2.0,
    max_seconds: float = 30.0,
    jitter: Callable[[], float] = random.random,
    clock: Clock = SYSTEM_CLOCK,
) -> Model:
    """Ask again after an error that may pass, and say so while waiting.

    The wait doubles from `base_seconds`, at most `max_seconds`, and is shortened by chance so that many do not come
    back at once; a provider that asks for a longer wait gets it, up to the same maximum.
    """
    if attempts < 1 or base_seconds < 0 or max_seconds < base_seconds:
        message = f"retried(attempts={attempts}, base_seconds={base_seconds}, max_seconds={max_seconds}) makes no sense"
        raise ConfigError(message)

    async def stream(request: Request) -> AsyncIterator[ModelEvent]:
        for attempt in range(1, attempts + 1):
            try:
                async with listening(model, request) as events:
                    async for event in events:
                        yield event
                    return
            except ModelError as error:
                if not error.retryable or attempt == attempts:
                    raise
                longest = min(base_seconds * 2 ** (attempt - 1), max_seconds)
                wait = min(max(longest * (0.5 + jitter() / 2), error.retry_after_seconds or 0.0), max_seconds)
                yield RetryScheduled(attempt, attempts, wait, type(error).__name__, str(error))
            await clock.sleep(wait)

    return Wrapped(info_of(model), stream)


def failover(*models: Model) -> Model:
    """Ask the next model when one fails before it has said anything. One that has begun is never replaced."""
    if not models:
        message = "failover() needs at least one model"
        raise ConfigError(message)

    async def stream(request: Request) -> AsyncIterator[ModelEvent]:
        failed: list[tuple[str, Exception]] = []
        for place, model in enumerate(models):
            begun = False
            try:
                async with listening(model, request) as events:
                    async for event in events:
                        begun = begun or not isinstance(event, RetryScheduled)
                        yield event
                    return
            except ModelError as error:
                if begun:
                    raise
                failed.append((info_of(model).name, error))
                if place + 1 < len(models):
                    following = info_of(models[place + 1]).name
                    yield FailedOver(info_of(model).name, following, type(error).__name__, str(error))
        raise AllModelsFailed(tuple(failed))

    return Wrapped(info_of(models[0]), stream)


# -- tools -------------------------------------------------------------------------------------------------------------

CallNext: TypeAlias = Callable[[], Awaitable[Any]]
Around: TypeAlias = Callable[[CallNext, Arguments, ToolContext[Any]], Awaitable[Any]]


def before(tool: Tool[..., Any], hook: Prepare) -> Tool[..., Any]:
    """Let `hook` see each call first; it may rewrite the arguments, or `Skip` the call."""
    return msgspec.structs.replace(tool, prepare=(*tool.prepare, hook))


def after(tool: Tool[..., Any], hook: Finish) -> Tool[..., Any]:
    """Let `hook` see each result before it is stored; it may return another."""
    return msgspec.structs.replace(tool, finish=(*tool.finish, hook))


def around(tool: Tool[..., Any], wrapper: Around) -> Tool[..., Any]:
    """Put `wrapper(call_next, arguments, context)` around the effect. The arguments are settled: it cannot change them."""
    inner = tool.call

    def call(arguments: Arguments, context: ToolContext[Any]) -> Awaitable[Any]:
        return wrapper(lambda: inner(arguments, context), dict(arguments), context)

    return msgspec.structs.replace(tool, call=call)


def timed(tool: Tool[..., Any], seconds: float) -> Tool[..., Any]:
    """Give up waiting for a call after `seconds`."""
    if seconds <= 0:
        message = f"timed({tool.name}, {seconds!r}): the time has to be above zero"
        raise ConfigError(message)
    return msgspec.structs.replace(tool, timeout_seconds=seconds)


def truncated(tool: Tool[..., Any], max_characters: int) -> Tool[..., Any]:
    """Keep the beginning and the end of a long result, and say how much is missing between them."""
    if max_characters < 2:  # noqa: PLR2004 - one for the head and one for the tail
        message = f"truncated({tool.name}, {max_characters!r}): keep at least 2 characters"
        raise ConfigError(message)

    def cut(_call: ToolCall, result: ToolResult) -> ToolResult:
        content = tuple(
            [Text(shortened(part.text, max_characters)) if isinstance(part, Text) else part for part in result.content]
        )
        return msgspec.structs.replace(result, content=content)

    return after(tool, cut)


def shortened(text: str, max_characters: int) -> str:
    """A text of at most so many characters (and a note), its middle left out."""
    missing = len(text) - max_characters
    if missing <= 0:
        return text
    head = max_characters - max_characters // 2
    return f"{text[:head]}\n[… {missing} characters left out …]\n{text[len(text) - max_characters // 2 :]}"
