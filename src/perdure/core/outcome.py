"""How a run ended, with all its work. Above: everything that runs an agent. Below: `message.py`, `cache.py`."""

from collections.abc import Sequence
from typing import Generic, Literal, TypeAlias, TypeVar

from msgspec import Struct

from .cache import CacheReport
from .error import UsageError
from .event import QuestionAsked
from .message import Message, Usage

T = TypeVar("T")

OutcomeStatus: TypeAlias = Literal["done", "stopped", "limit", "waiting", "cancelled", "failed", "parked"]


class Outcome(Struct, Generic[T], frozen=True, kw_only=True):
    """How a run ended, with all its work. A limit, a cancel or a failure is an outcome too, never a loss."""

    status: OutcomeStatus
    """`done`, or one of the other ways to end."""
    reason: str = ""
    """Why it ended, when not simply done: `max_turns`, `token_budget`, `max_cost`, `budget`, `timeout`,
    `max_tool_calls`, `stop_condition`, `terminated`, `repeat`, `mistakes`, `length`, `content_filter`, the name of an
    error, …"""
    text: str = ""
    """The words of the last message of the model."""
    message: Message | None = None
    """The last message of the model; when it was cut off, what had come of it."""
    new_messages: Sequence[Message] = ()
    """What this run has added to the conversation, the prompt included."""
    messages: Sequence[Message] = ()
    """The whole conversation."""
    output: T | None = None
    """The validated output, when a type was asked for."""
    usage: Usage = Usage()
    """Tokens of this run."""
    cost_usd: float | None = None
    """What they cost; `None` when the model's price is not known."""
    cache: CacheReport = CacheReport()
    """How the provider's prompt cache was used, and what kept it from being used."""
    steps: int = 0
    """How many turns the model had."""
    run_id: str = ""
    session_id: str = ""
    error: Exception | None = None
    """What went wrong, when the status is `failed`."""
    questions: tuple[QuestionAsked, ...] = ()
    """What has to be answered first, when the status is `waiting`: by `session.answer`, then `session.resume`."""

    @property
    def value(self) -> T:
        """The validated output. Raises when there is none, as `unwrap` does."""
        if self.output is None:
            self.unwrap()
            how = f"{self.status!r}{f', {self.reason}' if self.reason else ''}"
            message = f"this run has no output (it ended as {how}): was it given a type, as in run(…, output=Plan)?"
            raise UsageError(message)
        return self.output

    def unwrap(self) -> "Outcome[T]":
        """This outcome if the run got to its end; raises the error of one that failed, and a `UsageError` otherwise."""
        if self.error is not None:
            raise self.error
        if self.status not in {"done", "stopped"}:
            message = f"the run ended with status {self.status!r} ({self.reason or 'no reason given'})"
            raise UsageError(message)
        return self
