"""The functions that a run is given, as types: how it thinks, what may stand, what is done in between.

Above: `run.py`, and whoever gives a run such functions. Below: messages, events, outcomes.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias

from msgspec import Struct

from . import check
from .error import ContextOverflow
from .event import Event
from .message import Message
from .outcome import Outcome

if TYPE_CHECKING:
    from .run import Run

CancelMode: TypeAlias = Literal["now", "after_tools", "after_turn"]
"""At once; when the calls that run now have their results; or when the reply and all its calls are settled."""

Shape: TypeAlias = Callable[[Sequence[Message]], Sequence[Message] | Awaitable[Sequence[Message]]]
"""What the model sees of a conversation. A pure view: what it returns is sent, and never kept."""


class Accepted(Struct, frozen=True):
    """The reply may stand."""


class Again(Struct, frozen=True):
    """The model has to go on; it is told this."""

    feedback: str
    origin: str = "feedback"
    """What the message is marked with."""
    event: Event | None = None
    """Something for the log beside it."""

    def __post_init__(self) -> None:
        check.text("Again", "feedback", self.feedback, filled=True)
        check.text("Again", "origin", self.origin)
        if self.event is not None and not isinstance(self.event, Event):
            check.refuse("Again", "event", self.event, "give an event, such as Custom(…)")


Accept: TypeAlias = Callable[["Run", Message], "Accepted | Again | Awaitable[Accepted | Again]"]
"""Asked about a reply that calls no tool: is this the end? Output types, guards and graders are all of this kind."""

Upkeep: TypeAlias = Callable[["Run"], Awaitable[None]]
"""What has to be done before the model is asked, and before its calls are made (then `run.state.reply` is there)."""

Reminder: TypeAlias = Callable[["Run"], "str | None"]
"""Words for the very end of one request, which are never kept: the place for whatever changes all the time."""


class CompactNow(Protocol):
    """Sums the conversation up for the model, because of something; says whether it is shorter now."""

    def __call__(self, run: "Run", cause: str, *, error: ContextOverflow | None = None) -> Awaitable[bool]:
        """`error` is how the model refused the request, if it did."""
        ...


Engine: TypeAlias = Callable[["Run"], Awaitable[Outcome[Any]]]
"""How a run thinks. `react` is the one we ship in core; others wrap it."""
