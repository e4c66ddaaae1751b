"""Wrappers that return a changed model: retry, gating, a shorter request.

They read as adjectives, and stack: `retried(gated(model, budget))`. A wrapper of a stream closes the stream that it
wraps.
"""

import random
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from inspect import isawaitable
from typing import Any, NoReturn, cast

from perdure._core.values import checks
from perdure._core.values.clock import SYSTEM_CLOCK, Clock
from perdure._core.values.error import (
    ConfigError,
    ContextOverflow,
    EmptyReply,
    ModelError,
    ReplyCutOff,
    is_transient,
)
from perdure._core.values.event import (
    ErrorRaised,
    ModelEvent,
    ReplyFinished,
    RetryScheduled,
    TextDelta,
    ThinkingDelta,
    ToolCallDelta,
    UsageReported,
)
from perdure._core.values.jsonable import error_message
from perdure._core.values.message import is_empty

from .protocol import Model, ModelInfo, Request, ShortenRequest, find_empty_reply_reason, model_info


class WrappedModel:
    """A model made from a stream function; its `info` is that of the model it wraps."""

    __slots__ = ("_about", "_stream")

    def __init__(self, about: Model | ModelInfo, stream: Callable[[Request], AsyncIterator[ModelEvent]]) -> None:
        self._about = about
        self._stream = stream

    @property
    def info(self) -> ModelInfo:
        """The current facts about the wrapped model. They may change, as when its context window is discovered."""
        return self._about if isinstance(self._about, ModelInfo) else model_info(self._about)

    def stream(self, request: Request) -> AsyncIterator[ModelEvent]:
        """Stream the answer to a request."""
        return self._stream(request)

    def __repr__(self) -> str:
        return f"WrappedModel({self.info.name!r})"


def open_stream(model: Model, request: Request) -> "aclosing[Any]":
    """Open the stream of a model's answer as a context manager that closes it."""
    return aclosing(cast("Any", model.stream(request)))


def observed(model: Model, watch: Callable[[Request, ModelEvent], object]) -> Model:
    """Wrap a model so that `watch`, plain or async, gets each request with each event of its answer, unchanged.

    A request that fails ends with an `ErrorRaised`, which only `watch` gets: the error itself is raised as ever. So
    `retried(observed(model, watch))` shows every attempt, and `observed(retried(model), watch)` a `RetryScheduled` for
    each one that is repeated. If `watch` raises, the answer ends.
    """
    check_models("observed", model)
    checks.require_callable("observed", "watch", watch)

    async def show(request: Request, event: ModelEvent) -> None:
        watched = watch(request, event)
        if isawaitable(watched):
            await watched

    async def stream(request: Request) -> AsyncIterator[ModelEvent]:
        event: Any = None
        async with aclosing(_stream_or_error(model, request)) as events:
            async for event in events:
                if isinstance(event, Exception):
                    await show(request, ErrorRaised(type(event).__name__, error_message(event), "model"))
                    raise event
                await show(request, event)
                yield event
        if type(event) is not ReplyFinished:
            await show(request, ErrorRaised(ReplyCutOff.__name__, _describe_cut_off(model), "model"))

    return WrappedModel(model, stream)


async def _stream_or_error(model: Model, request: Request) -> AsyncGenerator[Any, None]:
    """Yield the events of a model's answer, and the error that it raises, if any, as the last item."""
    try:
        async with open_stream(model, request) as events:
            async for event in events:
                yield event
    except Exception as error:  # noqa: BLE001 - it is raised again by the caller
        yield error


def gated(model: Model, gate: Callable[[Request], "Awaitable[Request | None] | Request | None"]) -> Model:
    """Wrap a model so that `gate`, plain or async, gets each request first: it may wait, change it, or raise."""
    check_models("gated", model)
    checks.require_callable("gated", "gate", gate)

    async def stream(request: Request) -> AsyncIterator[ModelEvent]:
        answer = gate(request)
        changed = await answer if isawaitable(answer) else answer
        if changed is not None:
            checks.require_return_type("gated", gate, changed, Request, "a request, or None to leave it as it is")
        async with open_stream(model, changed or request) as events:
            async for event in events:
                yield event

    return WrappedModel(model, stream)


def retried(
    model: Model,
    *,
    attempts: int = 4,
    base_seconds: float = 2.0,
    max_seconds: float = 30.0,
    jitter: Callable[[], float] = random.random,
    clock: Clock = SYSTEM_CLOCK,
) -> Model:
    """Wrap a model so that a request is retried after a transient error, an incomplete answer or an empty one.

    Transient are a `ModelError` that is `retryable`, and a `ConnectionError` or `TimeoutError` of a model of your own.
    An answer without text or calls counts if its stop reason explains it, such as `length` or `content_filter`.

    A `RetryScheduled` event is emitted before each wait. The wait doubles from `base_seconds` up to `max_seconds`, and
    is shortened at random so that many clients do not retry at once; a provider that asks for a longer wait gets it, up
    to the same maximum. A `failover` that has another model to ask is not kept waiting: the first error is raised.
    """
    check_models("retried", model)
    checks.require_plain_function("retried", "jitter", jitter)
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
                event, has_content = None, False
                async with open_stream(model, request) as events:
                    async for event in events:
                        has_content = has_content or _has_content(event)
                        if type(event) is ReplyFinished and not has_content and not _is_explained(event, request):
                            if event.usage is not None:
                                yield UsageReported(event.usage)  # the tokens were used all the same
                            _raise_empty_reply(model)
                        yield event
                check_complete(model, event)
                return
            except Exception as error:
                if not is_transient(error) or attempt == attempts or not request.may_wait:
                    raise
                longest = min(base_seconds * 2 ** (attempt - 1), max_seconds)
                asked = error.retry_after_seconds if isinstance(error, ModelError) else None
                part = jitter()
                checks.require_plain_return_type("jitter", jitter, part, (int, float), "a number from 0 to 1")
                wait = min(max(longest * (0.5 + part / 2), asked or 0.0), max_seconds)
                yield RetryScheduled(attempt, attempts, wait, type(error).__name__, error_message(error))
            await clock.sleep(wait)

    return WrappedModel(model, stream)


def compacted(model: Model, compact: ShortenRequest) -> Model:
    """Wrap a model so that a request that was too long is shortened by `compact` and sent once more."""
    check_models("compacted", model)
    checks.require_callable("compacted", "compact", compact)

    async def stream(request: Request) -> AsyncIterator[ModelEvent]:
        try:
            async with open_stream(model, request) as events:
                async for event in events:
                    yield event
            return
        except ContextOverflow as error:
            answer = compact(request, error)
            shorter = await answer if isawaitable(answer) else answer
            if shorter is None:
                raise
            yield RetryScheduled(1, 2, 0.0, type(error).__name__, str(error))
        async with open_stream(model, shorter) as events:
            async for event in events:
                yield event

    return WrappedModel(model, stream)


def check_models(name: str, *models: object) -> None:
    """Raise `ConfigError` unless all these arguments of a wrapper are models, and there is at least one."""
    if not models:
        message = f"{name}() needs at least one model"
        raise ConfigError(message)
    for model in models:
        if isinstance(model, type) or not callable(getattr(model, "stream", None)):
            message = f"{name}({model!r}): give a model object; perdure.models.open_model(…) opens one by its name"
            raise ConfigError(message)


def _has_content(event: ModelEvent) -> bool:
    if type(event) is ReplyFinished:
        return event.message is not None and not is_empty(event.message)
    if type(event) is ThinkingDelta:
        return event.is_item
    return type(event) is ToolCallDelta or (type(event) is TextDelta and bool(event.text.strip()))


def _is_explained(finished: ReplyFinished, request: Request) -> bool:
    """Return True if the stop reason of an answer explains why it has no text and no calls."""
    stop = finished.stop or (None if finished.message is None else finished.message.stop)
    return find_empty_reply_reason(stop, request) is not None


def _raise_empty_reply(model: Model) -> NoReturn:
    raise EmptyReply(f"{model_info(model).name} answered with neither text nor calls")


def check_complete(model: Model, last: ModelEvent | None) -> None:
    """Raise `ReplyCutOff` unless this is the last event of a complete answer."""
    if type(last) is not ReplyFinished:
        raise ReplyCutOff(_describe_cut_off(model))


def _describe_cut_off(model: Model) -> str:
    return f"the reply of {model_info(model).name} broke off before it was finished"
