"""What a family of runs keeps to itself: an agent, whoever works for it, and whoever it hands the conversation to.

Above: `run.py`, assembly, which makes one for each session that somebody talks to. Below: the seams. A value that one
agent of a family was given may turn up with any other: so all of them ask the same place, and other families another.
"""

from typing import Protocol, TypeVar

from .event import Event
from .model import Model

T = TypeVar("T")
E = TypeVar("E", bound=Event)


class Clearing(Protocol):
    """Takes secrets out of a text that comes in pieces."""

    def feed(self, chunk: str, /) -> str:
        """What is clear by now."""
        ...

    def end(self) -> str:
        """The rest, when nothing more comes."""
        ...


class Redacts(Protocol):
    """Takes secrets out of things."""

    def event(self, event: E, /) -> E:
        """An event, before it is stored or shown."""
        ...

    def value(self, value: T, /) -> T:
        """Anything else that is stored or shown."""
        ...

    def error(self, error: BaseException, /) -> BaseException:
        """An error, before it is told or logged."""
        ...

    def stream(self) -> Clearing:
        """For one text that comes in pieces: a secret may begin in one and end in another."""
        ...

    def model(self, model: Model, /) -> Model:
        """A model that is told no secret, and in whose words none is kept."""
        ...


class Secrecy:
    """Where the runs of a family find what takes their secrets out. Whatever they are given stays as it is until then.

    It is one object for all of them, so that each knows at once what the first agent with a vault brings along.
    """

    __slots__ = ("redactor",)

    def __init__(self) -> None:
        self.redactor: Redacts | None = None
        """Takes the secrets of all of them out; `None` while none of them has any."""

    def event(self, event: E) -> E:
        """An event without the secrets of the family."""
        return event if self.redactor is None else self.redactor.event(event)

    def value(self, value: T) -> T:
        """Anything without the secrets of the family."""
        return value if self.redactor is None else self.redactor.value(value)

    def error(self, error: BaseException) -> BaseException:
        """An error without the secrets of the family."""
        return error if self.redactor is None else self.redactor.error(error)
