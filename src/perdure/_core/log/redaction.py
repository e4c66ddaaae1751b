"""Redaction: protocols of redactors, which remove secrets, and erasure of the content of stored events."""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any, Protocol, TypeVar, cast

import msgspec

from perdure._core.model.protocol import Model
from perdure._core.values.event import (
    RESERVED_PREFIX,
    Compacted,
    Entry,
    MessageAdded,
    ModelReplied,
    ToolFinished,
    ValueKept,
)
from perdure._core.values.event_class import Event, QuestionAsked
from perdure._core.values.message import Citation, Message, Part, Text, ToolCall, ToolResult, Usage

from .fold import State

REDACTED = "[redacted]"
NO_SUMMARY = "[There was a summary of what came before. It was taken out on request.]"

_KEPT_CALL_FIELDS = frozenset({"call_id", "tool", "place", "arguments_hash", "attempt"})
"""Fields of a call in a question that are kept: by them an answer is matched to the question."""

_KEPT_RUNTIME_FIELDS = frozenset({"handle", "agent", "session_id", "full_session_id", "call_id", "item_id"})
"""Fields that are kept in the runtime's own stored values, since the runtime looks them up."""


def erase_event_content(event: Event) -> Event:
    """Return a copy of an event with its content erased; ids, statuses and other `structural` fields are kept."""
    if isinstance(event, (MessageAdded, ModelReplied)):
        return msgspec.structs.replace(event, message=_redact_message(event.message))
    if isinstance(event, ToolFinished):
        return msgspec.structs.replace(event, result=_redact_result(event.result))
    if isinstance(event, Compacted):
        return msgspec.structs.replace(event, summary=_redact_message(event.summary, NO_SUMMARY))
    if isinstance(event, ValueKept) and event.name.startswith(RESERVED_PREFIX):
        return msgspec.structs.replace(event, value=_redact_runtime_value(event.value))
    said = [name for name in event.__struct_fields__ if name not in event.structural]
    if isinstance(event, QuestionAsked):
        event = msgspec.structs.replace(event, calls=tuple([_redact_call(each) for each in event.calls]))
        said.remove("calls")
    return msgspec.structs.replace(event, **{name: _empty_value(getattr(event, name)) for name in said})


def find_summaries_of(entries: Sequence[Entry], entry: Entry) -> list[Entry]:
    """Return the log entries whose summaries may repeat the content of an entry, directly or through another
    summary.
    """
    if not isinstance(entry.event, (MessageAdded, ToolFinished, Compacted)):
        return []
    path, state = entry.event.path, State()
    for each in entries:
        if each.seq < entry.seq:
            state.apply(each.event)
    before = 0 if isinstance(entry.event, Compacted) else len((state.get_child(path) if path else state).messages)
    later = [(each, each.event) for each in entries if each.seq > entry.seq and each.event.path == path]
    return [each for each, event in later if isinstance(event, Compacted) and event.upto > before]


def _redact_runtime_value(value: Any) -> Any:
    if not isinstance(value, dict):
        return _empty_value(value)
    named = cast("dict[str, Any]", value)
    return {name: value if name in _KEPT_RUNTIME_FIELDS else _empty_value(value) for name, value in named.items()}


def _redact_call(call: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in call.items() if name in _KEPT_CALL_FIELDS}


def _redact_message(message: Message, replacement: str = "") -> Message:
    parts = (Text(replacement),) if replacement else tuple([_redact_part(part) for part in message.parts])
    return msgspec.structs.replace(message, parts=parts, original_text="", metadata={})


def _redact_part(part: Part) -> Part:
    if isinstance(part, ToolCall):
        return msgspec.structs.replace(part, arguments="{}", signature="")
    if isinstance(part, ToolResult):
        return _redact_result(part)
    return Text(REDACTED)


def _redact_result(result: ToolResult) -> ToolResult:
    return msgspec.structs.replace(result, content=(Text(REDACTED),), render=None, summary="", preview="")


def _empty_value(value: Any) -> Any:
    """Return an empty value of the same type; numbers, dates and statuses are returned unchanged."""
    if type(value) is str:
        return REDACTED
    if isinstance(value, dict):
        return {}
    if isinstance(value, tuple):
        return ()
    if isinstance(value, Citation):
        return Citation(REDACTED)
    return value if isinstance(value, (bool, int, float, StrEnum, Usage)) else None


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
