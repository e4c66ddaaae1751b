"""Wrappers: a model from a model, a tool from a tool. Above: callers, assembly. Below: the seams they wrap.

They read as adjectives, and stack: `retried(gated(model, budget))`. A wrapper of a stream closes what it wraps.
"""

import random
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import aclosing
from typing import Any, NoReturn, TypeAlias, cast

import msgspec

from . import check
from .clock import SYSTEM_CLOCK, Clock
from .error import AllModelsFailed, ConfigError, ContextOverflow, EmptyReply, ModelError, ReplyCutOff
from .event import ErrorRaised, FailedOver, ModelEvent, ReplyFinished, RetryScheduled, TextDelta, ToolCallDelta
from .message import Text, ToolCall, ToolResult
from .model import Compact, Model, ModelInfo, Price, Request, info_of, is_empty
from .tool import Arguments, Finish, Prepare, Tool, ToolContext

# -- models ------------------------------------------------------------------------------------------------------------


class Wrapped:
    """A model made from a function; says what the model inside it is."""

    __slots__ = ("_about", "_stream")

    def __init__(self, about: Model | ModelInfo, stream: Callable[[Request], AsyncIterator[ModelEvent]]) -> None:
        self._about = about
        self._stream = stream

    @property
    def info(self) -> ModelInfo:
        """What is known about the model inside it now: a window may be learned."""
        return self._about if isinstance(self._about, ModelInfo) else info_of(self._about)

    def stream(self, request: Request) -> AsyncIterator[ModelEvent]:
        """Answer a request."""
        return self._stream(request)

    def __repr__(self) -> str:
        return f"Wrapped({self.info.name!r})"


def listening(model: Model, request: Request) -> "aclosing[Any]":
    """The stream of a model, closed when the block is left."""
    return aclosing(cast("Any", model.stream(request)))


def observed(model: Model, watch: Callable[[Request, ModelEvent], object]) -> Model:
    """Show every event of every answer to `watch`, which cannot change them. An error of `watch` ends the answer."""
    _check_models("observed", model)
    check.function("observed", "watch", watch)

    async def stream(request: Request) -> AsyncIterator[ModelEvent]:
        async with listening(model, request) as events:
            async for event in events:
                watch(request, event)
                yield event

    return Wrapped(model, stream)


def gated(model: Model, gate: Callable[[Request], Awaitable[Request | None]]) -> Model:
    """Await `gate` before each request: to wait for a turn, to change the request, or to raise instead of asking."""
    _check_models("gated", model)
    check.function("gated", "gate", gate)

    async def stream(request: Request) -> AsyncIterator[ModelEvent]:
        async with listening(model, await gate(request) or request) as events:
            async for event in events:
                yield event

    return Wrapped(model, stream)


def retried(
    model: Model,
    *,
    attempts: int = 4,
    base_seconds: float = 2.0,
    max_seconds: float = 30.0,
    jitter: Callable[[], float] = random.random,
    clock: Clock = SYSTEM_CLOCK,
) -> Model:
    """Ask again after an error that may pass, an answer that broke off or an empty one, and say so while waiting.

    The wait doubles from `base_seconds`, at most `max_seconds`, and is shortened by chance so that many do not come
    back at once; a provider that asks for a longer wait gets it, up to the same maximum.
    """
    _check_models("retried", model)
    check.function("retried", "jitter", jitter)
    numbers = isinstance(base_seconds, (int, float)) and isinstance(max_seconds, (int, float))
    if not isinstance(attempts, int) or attempts < 1 or not numbers or not 0 <= base_seconds <= max_seconds:
        given = f"retried(attempts={attempts!r}, base_seconds={base_seconds!r}, max_seconds={max_seconds!r})"
        message = f"{given}: give at least one attempt, and a base from 0 to the maximum"
        raise ConfigError(message)

    async def stream(request: Request) -> AsyncIterator[ModelEvent]:
        attempt = 0
        while True:
            attempt += 1
            try:
                event, said = None, False
                async with listening(model, request) as events:
                    async for event in events:
                        said = said or _says_something(event)
                        if type(event) is ReplyFinished and not said:
                            _refuse_empty(model)
                        yield event
                _check_whole(model, event)
                return
            except ModelError as error:
                if not error.retryable or attempt == attempts:
                    raise
                longest = min(base_seconds * 2 ** (attempt - 1), max_seconds)
                wait = min(max(longest * (0.5 + jitter() / 2), error.retry_after_seconds or 0.0), max_seconds)
                yield RetryScheduled(attempt, attempts, wait, type(error).__name__, str(error))
            await clock.sleep(wait)

    return Wrapped(model, stream)


def compacted(model: Model, compact: Compact) -> Model:
    """Ask once more when a request was too long, with what `compact` makes of it. What does not fit then never will."""
    _check_models("compacted", model)
    check.function("compacted", "compact", compact)

    async def stream(request: Request) -> AsyncIterator[ModelEvent]:
        try:
            async with listening(model, request) as events:
                async for event in events:
                    yield event
            return
        except ContextOverflow as error:
            shorter = await compact(request, error)
            if shorter is None:
                raise
            yield RetryScheduled(1, 2, 0.0, type(error).__name__, str(error))
        async with listening(model, shorter) as events:
            async for event in events:
                yield event

    return Wrapped(model, stream)


_SAYS_NOTHING = (RetryScheduled, FailedOver, ErrorRaised)
"""Events that are no part of an answer."""


def failover(*models: Model) -> Model:
    """Ask the next model when one fails before it has said anything. One that has begun is never replaced.

    Costs are counted at the dearest price of all of them, so that a limit in money holds whoever answers.
    """
    _check_models("failover", *models)

    async def stream(request: Request) -> AsyncIterator[ModelEvent]:
        failed: list[tuple[str, Exception]] = []
        for place, model in enumerate(models):
            begun, event = False, None
            try:
                async with listening(model, request) as events:
                    async for event in events:
                        begun = begun or not isinstance(event, _SAYS_NOTHING)
                        yield event
                _check_whole(model, event)
                return
            except ModelError as error:
                if begun:
                    raise
                failed.append((info_of(model).name, error))
                if place + 1 < len(models):
                    following = info_of(models[place + 1]).name
                    yield FailedOver(info_of(model).name, following, type(error).__name__, str(error))
        raise AllModelsFailed(tuple(failed)) from failed[-1][1]

    info = msgspec.structs.replace(info_of(models[0]), price=_dearest([info_of(model).price for model in models]))
    return Wrapped(info, stream)


def _dearest(prices: Sequence[Price | None]) -> Price | None:
    """The highest of each price; unknown when one of them is."""
    known = [price for price in prices if price is not None]
    if len(known) < len(prices):
        return None
    return Price(
        input_usd=max(price.input_usd for price in known),
        output_usd=max(price.output_usd for price in known),
        cache_read_usd=max(price.read_usd for price in known),
        cache_write_usd=max(price.write_usd for price in known),
    )


def _check_models(name: str, *models: object) -> None:
    if not models:
        message = f"{name}() needs at least one model"
        raise ConfigError(message)
    for model in models:
        if isinstance(model, type) or not callable(getattr(model, "stream", None)):
            message = f"{name}({model!r}): give a model object; perdure.open_model(…) opens one by its name"
            raise ConfigError(message)


def _says_something(event: ModelEvent) -> bool:
    if type(event) is ReplyFinished:
        return event.message is not None and not is_empty(event.message)
    return type(event) is ToolCallDelta or (type(event) is TextDelta and bool(event.text.strip()))


def _refuse_empty(model: Model) -> NoReturn:
    raise EmptyReply(f"{info_of(model).name} answered with neither text nor calls")


def _check_whole(model: Model, last: ModelEvent | None) -> None:
    if type(last) is not ReplyFinished:
        message = f"the reply of {info_of(model).name} broke off before it was finished"
        raise ReplyCutOff(message)


# -- tools -------------------------------------------------------------------------------------------------------------

CallNext: TypeAlias = Callable[[], Awaitable[Any]]
Around: TypeAlias = Callable[[CallNext, Arguments, ToolContext[Any]], Awaitable[Any]]


def before(tool: Tool[..., Any], hook: Prepare) -> Tool[..., Any]:
    """Let `hook` see each call first; it may rewrite the arguments, or `Skip` the call."""
    _check_tool("before", tool, hook)
    return msgspec.structs.replace(tool, prepare=(*tool.prepare, hook))


def after(tool: Tool[..., Any], hook: Finish) -> Tool[..., Any]:
    """Let `hook` see each result before it is stored; it may return another."""
    _check_tool("after", tool, hook)
    return msgspec.structs.replace(tool, finish=(*tool.finish, hook))


def around(tool: Tool[..., Any], wrapper: Around) -> Tool[..., Any]:
    """Put `wrapper(call_next, arguments, context)` around the effect. It cannot change the arguments."""
    _check_tool("around", tool, wrapper)
    inner, receiver = tool.call, tool.receiver

    def call(arguments: Arguments, context: ToolContext[Any]) -> Awaitable[Any]:
        shown = {name: value for name, value in arguments.items() if name != receiver}
        return wrapper(lambda: inner(arguments, context), shown, context)

    return msgspec.structs.replace(tool, call=call)


def timed(tool: Tool[..., Any], seconds: float) -> Tool[..., Any]:
    """Give up waiting for a call after `seconds`."""
    _check_tool("timed", tool)
    return msgspec.structs.replace(tool, timeout_seconds=seconds)


def truncated(tool: Tool[..., Any], max_characters: int) -> Tool[..., Any]:
    """Keep the beginning and the end of a long result, and say how much is missing between them."""
    _check_tool("truncated", tool)
    if not isinstance(max_characters, int) or max_characters < 2:  # noqa: PLR2004 - one for the head, one for the tail
        message = f"truncated({tool!r}, {max_characters!r}): keep at least 2 characters"
        raise ConfigError(message)

    def cut(_call: ToolCall, result: ToolResult) -> ToolResult:
        content = [
            Text(shortened(part.text, max_characters), part.signature) if isinstance(part, Text) else part
            for part in result.content
        ]
        return msgspec.structs.replace(result, content=tuple(content))

    return after(tool, cut)


def shortened(text: str, max_characters: int) -> str:
    """A text of at most so many characters (and a note), its middle left out."""
    missing = len(text) - max_characters
    if missing <= 0:
        return text
    head = max_characters - max_characters // 2
    return f"{text[:head]}\n[… {missing} characters left out …]\n{text[len(text) - max_characters // 2 :]}"


def _check_tool(name: str, tool: object, *hooks: object) -> None:
    if not isinstance(tool, Tool):
        message = f"{name}({tool!r}, …): give a tool; @tool makes one of a function"
        raise ConfigError(message)
    for hook in hooks:
        if not callable(hook):
            message = f"{name}({tool!r}, {hook!r}): give a function"
            raise ConfigError(message)
