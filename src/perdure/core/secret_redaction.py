"""Protocols of redactors, objects that remove secrets from text and events; related agents share one redactor.

Agents that hand over to one another share it too. Secrets are redacted in what is stored, shown and sent.

A secret given to one of these agents may appear in the output of any other, so all of them use the same redactor.
Unrelated sessions have separate ones.
"""

from typing import Protocol, TypeVar

from .event import Event
from .model import Model

T = TypeVar("T")
E = TypeVar("E", bound=Event)


class StreamRedactor(Protocol):
    """Protocol of an object that removes secrets from one text that arrives in pieces."""

    def feed(self, chunk: str, /) -> str:
        """Add a piece of text; return, redacted, as much as cannot be the beginning of a secret."""
        ...

    def end(self) -> str:
        """Return the redacted rest of the text, after the last piece."""
        ...


class SecretRedactor(Protocol):
    """Protocol of an object that removes secrets from events, values, errors, streams and models."""

    def event(self, event: E, /) -> E:
        """Return the event without secrets; called before it is stored or shown."""
        ...

    def value(self, value: T, /) -> T:
        """Return any other value without secrets; called before it is stored or shown."""
        ...

    def error(self, error: BaseException, /) -> BaseException:
        """Return the error without secrets; called before it is reported or logged."""
        ...

    def stream(self) -> StreamRedactor:
        """Return a redactor for a text that arrives in pieces; it also finds a secret that is split between two."""
        ...

    def model(self, model: Model, /) -> Model:
        """Wrap a model so that its requests and its replies contain no secrets."""
        ...


class RelatedRunsRedaction:
    """Redaction of secrets with one redactor for the runs of an agent, its subagents and the agents it hands over to.

    These runs are called related. Until a redactor is set, nothing is changed.

    All related runs share one object, so that the redactor of the first agent with a vault applies to all of them at
    once.
    """

    __slots__ = ("redactor",)

    def __init__(self) -> None:
        self.redactor: SecretRedactor | None = None
        """Redactor of all related runs; `None` while none of them has secrets."""

    def redact_event(self, event: E) -> E:
        """Return an event without the secrets of the related runs."""
        return event if self.redactor is None else self.redactor.event(event)

    def redact_value(self, value: T) -> T:
        """Return a value without the secrets of the related runs."""
        return value if self.redactor is None else self.redactor.value(value)

    def redact_error(self, error: BaseException) -> BaseException:
        """Return an error without the secrets of the related runs."""
        return error if self.redactor is None else self.redactor.error(error)
