"""A budget that several runs share, and that holds. Above: whoever gives it to agents. Below: the seam to a model.

Before a request is sent, the most that it can cost is set aside; what it has cost is settled when the answer is there.
What is spent and what is set aside never exceed the ceiling together, however many runs share it. When another request
like this one would not fit any more, the model is told that this is its last turn, and has no tools in it.
"""

import threading
from collections.abc import AsyncIterator, Sequence

import msgspec
from msgspec import Struct

from . import check
from .error import ConfigError, OutOfBudget
from .event import FailedOver, ModelEvent, ReplyFinished, RetryScheduled, UsageReported
from .message import Message, Usage, user
from .model import Model, Request, info_of

OUTPUT_TOKENS = 4096
"""The longest answer that is asked for, when the settings do not say."""
LEAST_OUTPUT_TOKENS = 64
"""An answer shorter than this is not worth asking for."""
OVERHEAD_TOKENS = 16
"""What a provider may add around a message."""
MEDIA_TOKENS = 6000
"""What an image or another attachment is taken for: nobody can tell from its bytes."""

WRAP_UP = (
    "[Budget: this is the last turn that the budget allows, and it has no tools. Conclude now: say what was done, what "
    "was found, and what is left.]"
)


class Reservation(Struct, frozen=True, eq=False):
    """What was set aside for one request."""

    tokens: int
    cost_usd: float
    is_last: bool
    """Whether another one like it would not fit any more."""


class Ledger:
    """A budget in tokens, in money, or both. Give the same one to every agent that shares it."""

    def __init__(self, *, token_budget: int | None = None, max_cost_usd: float | None = None) -> None:
        if token_budget is None and max_cost_usd is None:
            raise ConfigError("Ledger(): give it a token_budget, a max_cost_usd, or both")
        if token_budget is not None:
            check.whole_number("Ledger", "token_budget", token_budget, 1)
        if max_cost_usd is not None and (
            not isinstance(max_cost_usd, (int, float)) or isinstance(max_cost_usd, bool) or not max_cost_usd > 0
        ):
            check.refuse("Ledger", "max_cost_usd", max_cost_usd, "give a number of dollars above zero")
        self.token_budget = token_budget
        self.max_cost_usd = max_cost_usd
        self.spent_tokens = 0
        """What answers have used."""
        self.spent_usd = 0.0
        self._open: dict[int, Reservation] = {}
        self._lock = threading.Lock()

    @property
    def reserved_tokens(self) -> int:
        """What is set aside for requests that are under way."""
        return sum([each.tokens for each in self._open.values()])

    @property
    def reserved_usd(self) -> float:
        """The same in money."""
        return sum([each.cost_usd for each in self._open.values()])

    def reserve(self, tokens: int, cost_usd: float) -> Reservation | None:
        """Set something aside; `None` when there is not that much."""
        with self._lock:
            left = self._left()
            if tokens > left[0] or cost_usd > left[1]:
                return None
            reservation = Reservation(tokens, cost_usd, 2 * tokens > left[0] or 2 * cost_usd > left[1])
            self._open[id(reservation)] = reservation
            return reservation

    def settle(self, reservation: Reservation, tokens: int, cost_usd: float) -> None:
        """Say what it has cost in the end. A second time changes nothing."""
        with self._lock:
            if self._open.pop(id(reservation), None) is not None:
                self.spent_tokens += tokens
                self.spent_usd += cost_usd

    def left(self) -> tuple[float, float]:
        """The tokens and the dollars that nobody has spent or set aside; infinite without a ceiling."""
        with self._lock:
            return self._left()

    def _left(self) -> tuple[float, float]:
        infinite = float("inf")
        tokens = infinite if self.token_budget is None else self.token_budget - self.spent_tokens - self.reserved_tokens
        money = infinite if self.max_cost_usd is None else self.max_cost_usd - self.spent_usd - self.reserved_usd
        return tokens, money

    def __repr__(self) -> str:
        of_tokens = "" if self.token_budget is None else f"{self.spent_tokens} of {self.token_budget} tokens"
        of_money = "" if self.max_cost_usd is None else f"${self.spent_usd:.4f} of ${self.max_cost_usd:g}"
        return f"Ledger({', '.join([each for each in (of_tokens, of_money) if each])})"


def budgeted(model: Model, ledger: Ledger) -> Model:
    """A model that asks only what the ledger allows. Raises `OutOfBudget` when it allows nothing more."""
    if not isinstance(ledger, Ledger):
        check.refuse("budgeted", "ledger", ledger, "give a Ledger(…)")
    from .wrap import Wrapped, listening  # at first use: an agent without a budget starts quicker

    info = info_of(model)
    if ledger.max_cost_usd is not None and info.price is None:
        raise ConfigError(f"a budget in money needs a model whose price is known, and {info.name!r} has none")

    async def stream(request: Request) -> AsyncIterator[ModelEvent]:
        planned, reservation = _planned(model, ledger, request)
        usage: Usage | None = None
        began = False
        try:
            async with listening(model, planned) as events:
                async for event in events:
                    if isinstance(event, (RetryScheduled, FailedOver)):  # what failed may have been paid for
                        _settle(model, ledger, reservation, usage, began=began)
                        reservation, usage, began = _reserved_again(model, ledger, reservation), None, False
                        yield event
                        continue
                    began = True
                    if isinstance(event, (UsageReported, ReplyFinished)) and event.usage is not None:
                        usage = event.usage
                    yield event
        finally:
            _settle(model, ledger, reservation, usage, began=began)

    return Wrapped(model, stream)


def _settle(model: Model, ledger: Ledger, reservation: Reservation, usage: Usage | None, *, began: bool) -> None:
    """What nobody has told the price of is taken for what was set aside, unless nothing has come at all."""
    price = info_of(model).price
    if usage is not None:
        ledger.settle(reservation, usage.total_tokens, 0.0 if price is None else price.cost_usd(usage))
    elif began:
        ledger.settle(reservation, reservation.tokens, reservation.cost_usd)
    else:
        ledger.settle(reservation, 0, 0.0)


def _reserved_again(model: Model, ledger: Ledger, before: Reservation) -> Reservation:
    """As much as was set aside before, for the same request to be sent once more."""
    reservation = ledger.reserve(before.tokens, before.cost_usd)
    if reservation is None:
        raise _out_of_budget(model, ledger)
    return reservation


def _out_of_budget(model: Model, ledger: Ledger) -> OutOfBudget:
    told = f"the budget does not allow another request to {info_of(model).name!r} ({ledger!r})"
    return OutOfBudget(f"{told}: give it a larger Ledger(…)")


def _planned(model: Model, ledger: Ledger, request: Request) -> tuple[Request, Reservation]:
    """The request as it can be paid for, and what is set aside for it."""
    reading = most_tokens(request) + _bytes_of([_LAST_WORD])  # it may turn out to be the last one
    wanted = request.settings.max_output_tokens or OUTPUT_TOKENS
    reservation = ledger.reserve(*_most(model, reading, wanted))
    if reservation is None:
        last = _wrapped_up(request)
        reading = most_tokens(last)
        wanted = min(wanted, _affordable(model, ledger, reading))
        reservation = ledger.reserve(*_most(model, reading, wanted)) if wanted >= LEAST_OUTPUT_TOKENS else None
        if reservation is None:
            raise _out_of_budget(model, ledger)
        request = last
    elif reservation.is_last:
        request = _wrapped_up(request)
    settings = msgspec.structs.replace(request.settings, max_output_tokens=wanted)
    return msgspec.structs.replace(request, settings=settings), reservation


def _wrapped_up(request: Request) -> Request:
    """The same question as the last one: no tools, and a word about it that is not kept."""
    return msgspec.structs.replace(request, tools=(), messages=[*request.messages, _LAST_WORD])


_LAST_WORD = user(WRAP_UP, origin="budget")


def _most(model: Model, reading: int, writing: int) -> tuple[int, float]:
    """The most that a request can use, in tokens and in money."""
    price = info_of(model).price
    if price is None:
        return reading + writing, 0.0
    dearest = max(price.input_usd, price.read_usd, price.write_usd)
    return reading + writing, (reading * dearest + writing * price.output_usd) / 1_000_000


def _affordable(model: Model, ledger: Ledger, reading: int) -> int:
    """The longest answer that can still be paid for."""
    tokens, money = ledger.left()
    price = info_of(model).price
    most = tokens - reading
    if price is not None and price.output_usd > 0:
        _, cost = _most(model, reading, 0)
        most = min(most, (money - cost) * 1_000_000 / price.output_usd)
    return int(max(0.0, min(most, OUTPUT_TOKENS)))


def most_tokens(request: Request) -> int:
    """The most that the provider can count for reading a request.

    What the model answered last has been counted by its provider, with everything before it. The rest is counted here:
    no token is shorter than a byte.
    """
    messages = request.messages
    for place in range(len(messages) - 1, -1, -1):
        usage = messages[place].usage
        if usage is not None and usage.precision == "exact" and usage.input_tokens:
            return usage.total_tokens + _bytes_of(messages[place + 1 :]) + OVERHEAD_TOKENS
    beside = len(msgspec.json.encode((request.instructions, request.tools)))
    return beside + _bytes_of(messages) + OVERHEAD_TOKENS


def _bytes_of(messages: Sequence[Message]) -> int:
    total = 0
    for message in messages:
        media = [part for part in message.parts if hasattr(part, "media_type")]
        words = tuple([part for part in message.parts if not hasattr(part, "media_type")])
        total += len(msgspec.json.encode(words)) + len(media) * MEDIA_TOKENS + OVERHEAD_TOKENS
    return total
