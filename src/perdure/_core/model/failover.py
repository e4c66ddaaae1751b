"""`failover`: one model made of several, in the order in which they are asked.

A model that fails is replaced at once, also one that would have to wait for a retry or a pause of its provider. Then it
rests: the requests that follow do not ask it, until its rest is over and one of them tries it again.
"""

from collections.abc import AsyncIterator, Generator, Sequence
from contextlib import contextmanager
from itertools import takewhile

from msgspec.structs import replace

from perdure._core.values.clock import SYSTEM_CLOCK, Clock
from perdure._core.values.error import (
    AllModelsFailed,
    BadRequest,
    ConfigError,
    ContentRefused,
    ContextOverflow,
    EmptyReply,
    InvalidOutput,
    ModelError,
    OutOfBudget,
    UsageError,
)
from perdure._core.values.event import ErrorRaised, FailedOver, ModelEvent, RetryScheduled, UsageReported
from perdure._core.values.jsonable import error_message

from .protocol import Model, Price, Request, model_info
from .wrappers import WrappedModel, check_complete, check_models, open_stream

FIRST_REST_SECONDS = 10.0
"""How long a model is not asked after it failed. The time doubles with each failure that follows."""
MAX_REST_SECONDS = 300.0
"""The longest rest, unless the provider itself asked for a longer wait."""
RESTS_PER_FAILURE = 10.0
"""A rest is at least this many times as long as the failure took, so that a model that hangs costs little time."""
MAX_HANG_REST_SECONDS = 3600.0
"""The longest rest of a model that hangs."""
_MAX_DOUBLINGS = 10
_STATUS_EVENTS = (RetryScheduled, FailedOver, ErrorRaised, UsageReported)
"""Events that are no part of an answer."""
_CALLER_MISTAKES = (ConfigError, UsageError)
"""Errors that the next model would raise as well."""
_ERRORS_OF_ONE_REQUEST = (BadRequest, ContentRefused, ContextOverflow, EmptyReply, InvalidOutput, OutOfBudget)
"""Errors that say nothing about the next request: the model does not rest after them."""


def failover(*models: Model, clock: Clock = SYSTEM_CLOCK) -> Model:
    """Make one model of several: when one fails before its answer has begun, the next one is asked.

    Any exception of a model is a failure, unless the caller made a mistake (`ConfigError`, `UsageError`). A model whose
    answer has begun is never replaced. Costs are counted at the highest price of all of them, so that a limit in money
    applies whichever answers.

    Only the last model is waited for: the others are not retried, and one whose provider has asked for a pause counts
    as failed. After a failure, a model is not asked for 10 seconds, twice as long after each failure that follows, and
    at least as long as its provider asks, or ten times as long as the failure took (it may hang), an hour at most; then
    one request tries it again. An error about the request itself, such as `BadRequest`, does not count, unless there is
    no such model or address. If all others fail, the resting models are asked after all.
    """
    check_models("failover", *models)
    members = [_Member(model, clock) for model in models]

    async def stream(request: Request) -> AsyncIterator[ModelEvent]:
        failed: list[tuple[str, Exception]] = []
        order, waited_for = _choose_order(members)
        for resting in takewhile(lambda each: each is not order[0], members):
            yield FailedOver(resting.name, order[0].name, resting.error_name, resting.describe_rest())
        for member, following in zip(order, [*order[1:], None], strict=True):
            sent = request if member is waited_for or not request.may_wait else replace(request, may_wait=False)
            begun, event, asked_at = False, None, clock.monotonic()
            try:
                with member.tried():
                    async with open_stream(member.model, sent) as events:
                        async for event in events:
                            if not begun and not isinstance(event, _STATUS_EVENTS):
                                begun = True
                                member.record_answer()
                            yield event
                    check_complete(member.model, event)
                return
            except _CALLER_MISTAKES:
                raise
            except Exception as error:
                if begun:
                    raise
                hung_seconds = 0.0 if member is waited_for else clock.monotonic() - asked_at
                member.record_failure(error, hung_seconds)
                failed.append((member.name, error))
                if following is not None:
                    yield FailedOver(member.name, following.name, type(error).__name__, error_message(error))
        raise AllModelsFailed(tuple(failed)) from failed[-1][1]

    info = replace(model_info(models[0]), price=_highest_price([model_info(model).price for model in models]))
    return WrappedModel(info, stream)


class _Member:
    """A model of a `failover`, and how long it rests after a failure."""

    __slots__ = ("_clock", "_failure_count", "_is_tried", "_rests_until", "error_name", "model")

    def __init__(self, model: Model, clock: Clock) -> None:
        self.model = model
        self.error_name = ""
        """The name of the error after which it rests."""
        self._clock = clock
        self._failure_count = 0
        """Failures since its last answer."""
        self._rests_until = 0.0
        self._is_tried = False
        """True while a request asks it for the first time after its rest."""

    @property
    def name(self) -> str:
        """The name of the model."""
        return model_info(self.model).name

    @property
    def is_ready(self) -> bool:
        """True if it is to be asked: it does not rest, or its rest is over and no other request is trying it."""
        return not self._failure_count or (not self._is_tried and self._seconds_left <= 0)

    @property
    def _seconds_left(self) -> float:
        return self._rests_until - self._clock.monotonic()

    def describe_rest(self) -> str:
        """Return why it is not asked at the moment."""
        if self._is_tried:
            return "not asked: another request is trying it again"
        return f"not asked for {max(0.0, self._seconds_left):.0f} s, since it failed before"

    @contextmanager
    def tried(self) -> Generator[None]:
        """Mark the model, if it has failed before, as tried by one request for the length of this block."""
        is_trial = bool(self._failure_count)
        self._is_tried = self._is_tried or is_trial
        try:
            yield
        finally:
            self._is_tried = self._is_tried and not is_trial

    def record_answer(self) -> None:
        """Record that an answer has begun: the model is well."""
        self._failure_count = 0

    def record_failure(self, error: Exception, hung_seconds: float) -> None:
        """Record that the model failed, and let it rest. Failures of requests sent together count once."""
        if _is_about_one_request(error):
            return
        asked = error.retry_after_seconds or 0.0 if isinstance(error, ModelError) else 0.0
        usual = 0.0
        if not self._failure_count or self._seconds_left <= 0:
            usual = min(FIRST_REST_SECONDS * 2 ** min(self._failure_count, _MAX_DOUBLINGS), MAX_REST_SECONDS)
            self._failure_count += 1
        self.error_name = type(error).__name__
        slow = min(hung_seconds * RESTS_PER_FAILURE, MAX_HANG_REST_SECONDS)
        self._rests_until = max(self._rests_until, self._clock.monotonic() + max(usual, asked, slow))


def _is_about_one_request(error: Exception) -> bool:
    """Return True if an error says nothing about the next request."""
    if isinstance(error, BadRequest) and error.is_unknown_model:
        return False
    return isinstance(error, _ERRORS_OF_ONE_REQUEST)


def _choose_order(members: Sequence[_Member]) -> tuple[Sequence[_Member], _Member]:
    """Return the models in the order in which a request asks them, and the one that it waits for.

    Models that rest are asked after all others, without waiting for them. If all of them rest, none is left out.
    """
    ready = [each for each in members if each.is_ready]
    if not ready:
        return members, members[-1]
    return [*ready, *[each for each in members if each not in ready]], ready[-1]


def _highest_price(prices: Sequence[Price | None]) -> Price | None:
    """Return a price with the highest of each rate; `None` when one of the prices is unknown."""
    known = [price for price in prices if price is not None]
    if len(known) < len(prices):
        return None
    return Price(
        input_usd=max(price.input_usd for price in known),
        output_usd=max(price.output_usd for price in known),
        cache_read_usd=max(price.read_usd for price in known),
        cache_write_usd=max(price.write_usd for price in known),
    )
