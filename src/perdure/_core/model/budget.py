"""A budget in tokens or money that several runs share; requests that would exceed it are not sent.

Before a request is sent, the most that it can cost is reserved; the actual cost is settled when the answer has arrived.
Spent and reserved amounts together never exceed the ceiling, however many runs share it. When another request like this
one would not fit any more, the model is informed that this is its last turn, and is given no tools.
"""

import threading
from collections.abc import AsyncIterator, Sequence

import msgspec
from msgspec import Struct

from perdure._core.values import checks
from perdure._core.values.error import ConfigError, OutOfBudget
from perdure._core.values.event import FailedOver, ModelEvent, ReplyFinished, RetryScheduled, UsageReported
from perdure._core.values.message import Message, Usage, clamp_usage, user

from .protocol import CONCLUDED_FOR, Model, Request, model_info
from .transcript import MessagesSnapshot, add_passing_messages

DEFAULT_OUTPUT_TOKENS = 4096
"""The longest answer that is requested when the settings do not set `max_output_tokens`."""
MIN_OUTPUT_TOKENS = 64
"""The shortest answer that is worth requesting."""
OVERHEAD_TOKENS = 16
"""The tokens that a provider may add around a message."""
MEDIA_TOKENS = 6000
"""The tokens counted for an image or another attachment, whose cost cannot be computed from its bytes."""

WRAP_UP = (
    "[Budget: this is the last turn that the budget allows, and it has no tools. Conclude now: say what was done, what "
    "was found, and what is left.]"
)


class Reservation(Struct, frozen=True, eq=False):
    """The tokens and dollars reserved in a budget for one request to a model."""

    tokens: int
    cost_usd: float
    is_last: bool
    """True if another request of this size would not fit any more."""


class Budget:
    """A budget in tokens, in money, or both. Give the same object to every agent that shares it.

    With 0, nothing is left: a run ends as `limit` with the reason `budget` before its first request.
    """

    def __init__(self, *, token_budget: int | None = None, max_cost_usd: float | None = None) -> None:
        if token_budget is None and max_cost_usd is None:
            raise ConfigError("Budget(): give it a token_budget, a max_cost_usd, or both")
        if token_budget is not None:
            checks.require_int("Budget", "token_budget", token_budget)
        if max_cost_usd is not None and (
            not isinstance(max_cost_usd, (int, float)) or isinstance(max_cost_usd, bool) or not max_cost_usd >= 0
        ):
            checks.raise_config_error("Budget", "max_cost_usd", max_cost_usd, "give a number of dollars, 0 or more")
        self.token_budget = token_budget
        """The most tokens that all requests together may use; `None` for any number."""
        self.max_cost_usd = max_cost_usd
        """The most dollars that all requests together may cost; `None` for any amount."""
        self.spent_tokens = 0
        """The tokens that answers have used."""
        self.spent_usd = 0.0
        """The dollars that answers have cost."""
        self._open: dict[int, Reservation] = {}
        self._run_ids: set[str] = set()
        """The runs whose requests are counted here from their beginning, or whose past was counted."""
        self._lock = threading.Lock()

    @property
    def reserved_tokens(self) -> int:
        """The tokens reserved for requests that are in progress."""
        return sum([each.tokens for each in self._open.values()])

    @property
    def reserved_usd(self) -> float:
        """The dollars reserved for requests that are in progress."""
        return sum([each.cost_usd for each in self._open.values()])

    def reserve(self, tokens: int, cost_usd: float) -> Reservation | None:
        """Reserve tokens and dollars for a request; return `None` when not enough is left."""
        with self._lock:
            left = self._remaining()
            if tokens > left[0] or cost_usd > left[1]:
                return None
            reservation = Reservation(tokens, cost_usd, 2 * tokens > left[0] or 2 * cost_usd > left[1])
            self._open[id(reservation)] = reservation
            return reservation

    def reserve_part(self, part: float) -> Reservation | None:
        """Reserve a part of what is left, such as for an answer; return `None` if nothing is left."""
        tokens, money = [0.0 if each == float("inf") else each * part for each in self.remaining()]
        return self.reserve(int(tokens), money) if tokens > 0 or money > 0 else None

    def settle(self, reservation: Reservation, tokens: int, cost_usd: float) -> None:
        """Replace a reservation by the actual cost of its request. A second call changes nothing."""
        with self._lock:
            if self._open.pop(id(reservation), None) is not None:
                self.spent_tokens += tokens
                self.spent_usd += cost_usd

    def count_past(self, run_id: str, tokens: int, cost_usd: float) -> None:
        """Count, once per run, the tokens and dollars that a resumed run had used in a process that died."""
        with self._lock:
            if run_id not in self._run_ids:
                self._run_ids.add(run_id)
                self.spent_tokens += tokens
                self.spent_usd += cost_usd

    def remaining(self) -> tuple[float, float]:
        """Return the tokens and the dollars that are neither spent nor reserved; infinite without a ceiling."""
        with self._lock:
            return self._remaining()

    def _remaining(self) -> tuple[float, float]:
        infinite = float("inf")
        tokens = infinite if self.token_budget is None else self.token_budget - self.spent_tokens - self.reserved_tokens
        money = infinite if self.max_cost_usd is None else self.max_cost_usd - self.spent_usd - self.reserved_usd
        return tokens, money

    def __repr__(self) -> str:
        of_tokens = "" if self.token_budget is None else f"{self.spent_tokens} of {self.token_budget} tokens"
        of_money = "" if self.max_cost_usd is None else f"${self.spent_usd:.4f} of ${self.max_cost_usd:g}"
        return f"Budget({', '.join([each for each in (of_tokens, of_money) if each])})"


def budgeted(model: Model, budget: Budget) -> Model:
    """Wrap a model so that it sends only requests that the budget allows. Raises `OutOfBudget` once none fits."""
    if not isinstance(budget, Budget):
        checks.raise_config_error("budgeted", "budget", budget, "give a Budget(…)")
    from .wrappers import (  # at first use: an agent without a budget starts faster
        WrappedModel,
        open_stream,
    )

    info = model_info(model)
    if budget.max_cost_usd is not None and info.price is None:
        raise ConfigError(f"a budget in money needs a model whose price is known, and {info.name!r} has none")
    gauge = MaxInputTokenEstimate()

    async def stream(request: Request) -> AsyncIterator[ModelEvent]:
        planned, reservation = _plan_request(model, budget, request, gauge)
        usage: Usage | None = None
        began = False
        is_last = bool(planned.messages) and planned.messages[-1] is _WRAP_UP_MESSAGE
        try:
            async with open_stream(model, planned) as events:
                async for event in events:
                    if isinstance(event, (RetryScheduled, FailedOver)):  # the failed attempt may have been billed
                        _settle_reservation(model, budget, reservation, usage, began=began)
                        reservation, usage, began = _reserve_again(model, budget, reservation), None, False
                        yield event
                        continue
                    began = True
                    if isinstance(event, (UsageReported, ReplyFinished)) and event.usage is not None:
                        usage = clamp_usage(event.usage)
                    if is_last and isinstance(event, ReplyFinished):
                        event = _mark_concluded(event)  # noqa: PLW2901 - the same event, marked
                    yield event
        finally:
            _settle_reservation(model, budget, reservation, usage, began=began)

    return WrappedModel(model, stream)


def _mark_concluded(finished: ReplyFinished) -> ReplyFinished:
    """Return the end of a reply with the note that the model was told to conclude, for the log and the outcome."""
    return msgspec.structs.replace(finished, metadata={**finished.metadata, CONCLUDED_FOR: "budget"})


def _settle_reservation(
    model: Model, budget: Budget, reservation: Reservation, usage: Usage | None, *, began: bool
) -> None:
    """Replace a reservation by the actual cost. With no reported usage, a begun answer costs the full reservation."""
    price = model_info(model).price
    if usage is not None:
        cost_usd = usage.reported_usd if price is None else price.cost_usd(usage)
        budget.settle(reservation, usage.total_tokens, cost_usd or 0.0)
    elif began:
        budget.settle(reservation, reservation.tokens, reservation.cost_usd)
    else:
        budget.settle(reservation, 0, 0.0)


def _reserve_again(model: Model, budget: Budget, before: Reservation) -> Reservation:
    """Reserve the same amount again, for a second attempt at a request."""
    reservation = budget.reserve(before.tokens, before.cost_usd)
    if reservation is None:
        raise _out_of_budget_error(model, budget)
    return reservation


def _out_of_budget_error(model: Model, budget: Budget) -> OutOfBudget:
    reason = f"the budget does not allow another request to {model_info(model).name!r} ({budget!r})"
    return OutOfBudget(f"{reason}: give it a larger Budget(…)")


def _plan_request(
    model: Model, budget: Budget, request: Request, gauge: "MaxInputTokenEstimate"
) -> tuple[Request, Reservation]:
    """Return the request to send and its reservation; if only one more fits the budget, it has no tools and a shorter
    answer.
    """
    reading = gauge.estimate(request) + _count_bytes([_WRAP_UP_MESSAGE])  # in case it turns out to be the last one
    wanted = request.settings.max_output_tokens or DEFAULT_OUTPUT_TOKENS
    reservation = budget.reserve(*_max_cost(model, reading, wanted))
    if reservation is None:
        last = _as_last_request(request)
        reading = gauge.estimate(last)
        wanted = min(wanted, _affordable_output_tokens(model, budget, reading))
        reservation = budget.reserve(*_max_cost(model, reading, wanted)) if wanted >= MIN_OUTPUT_TOKENS else None
        if reservation is None:
            raise _out_of_budget_error(model, budget)
        request = last
    elif reservation.is_last:
        request = _as_last_request(request)
    settings = msgspec.structs.replace(request.settings, max_output_tokens=wanted)
    return msgspec.structs.replace(request, settings=settings), reservation


def _as_last_request(request: Request) -> Request:
    """Return the request without tools, and with a note (never stored) that this is the model's last turn."""
    return msgspec.structs.replace(request, tools=(), messages=add_passing_messages(request.messages, _WRAP_UP_MESSAGE))


_WRAP_UP_MESSAGE = user(WRAP_UP, origin="budget")


def _max_cost(model: Model, reading: int, writing: int) -> tuple[int, float]:
    """Return the most that a request can cost, in tokens and in dollars."""
    price = model_info(model).price
    if price is None:
        return reading + writing, 0.0
    dearest = max(price.input_usd, price.read_usd, price.write_usd)
    return reading + writing, (reading * dearest + writing * price.output_usd) / 1_000_000


def _affordable_output_tokens(model: Model, budget: Budget, reading: int) -> int:
    """Return the longest answer, in tokens, that the budget still allows."""
    tokens, money = budget.remaining()
    price = model_info(model).price
    most = tokens - reading
    if price is not None and price.output_usd > 0:
        _, cost = _max_cost(model, reading, 0)
        most = min(most, (money - cost) * 1_000_000 / price.output_usd)
    return int(max(0.0, min(most, DEFAULT_OUTPUT_TOKENS)))


class _Reading(Struct, frozen=True):
    """The most tokens that the messages of a request are: those that a provider has counted, and those added since."""

    counted: int | None = None
    """The tokens of the last answer that a provider has counted, with everything before it."""
    since: int = 0
    """The tokens of the messages since then."""


_NOTHING_READ = _Reading()


class MaxInputTokenEstimate:
    """Upper bounds of the input tokens of the requests of one conversation. Each of its messages is counted once."""

    __slots__ = ("_known",)

    def __init__(self) -> None:
        self._known: tuple[MessagesSnapshot, _Reading] | None = None

    def estimate(self, request: Request) -> int:
        """Estimate an upper bound of the input tokens of a request, as `estimate_max_input_tokens` does."""
        messages, known = request.messages, self._known
        if not isinstance(messages, MessagesSnapshot):
            return estimate_max_input_tokens(request)
        length, first, reading = messages.shared_length, 0, _NOTHING_READ
        if known is not None and messages.is_extension_of(known[0]):
            first, reading = known[0].shared_length, known[1]
        reading = _read_on(reading, messages[first:length])
        self._known = messages, reading
        return _add_up(_read_on(reading, messages[length:]), request)


def estimate_max_input_tokens(request: Request) -> int:
    """Estimate an upper bound of the input tokens of a request.

    The provider has counted the model's last answer, with everything before it. The messages since then are counted
    here, one token for each byte: no token is shorter.
    """
    return _add_up(_read_on(_NOTHING_READ, request.messages), request)


def _read_on(before: _Reading, messages: Sequence[Message]) -> _Reading:
    """Return a reading with the messages that come after it."""
    for place in range(len(messages) - 1, -1, -1):
        usage = messages[place].usage
        if usage is not None and usage.precision == "exact" and usage.input_tokens:
            return _Reading(usage.total_tokens, _count_bytes(messages[place + 1 :]))
    return _Reading(before.counted, before.since + _count_bytes(messages))


def _add_up(reading: _Reading, request: Request) -> int:
    """Return the tokens of a whole request; what a provider has counted has its instructions and tools in it."""
    counted = reading.counted
    if counted is None:
        counted = len(msgspec.json.encode((request.instructions, request.tools)))
    return counted + reading.since + OVERHEAD_TOKENS


def _count_bytes(messages: Sequence[Message]) -> int:
    total = 0
    for message in messages:
        media = [part for part in message.parts if hasattr(part, "media_type")]
        texts = tuple([part for part in message.parts if not hasattr(part, "media_type")])
        total += len(msgspec.json.encode(texts)) + len(media) * MEDIA_TOKENS + OVERHEAD_TOKENS
    return total
