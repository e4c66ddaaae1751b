"""An event without its words. Above: sessions, on behalf of whoever must forget. Below: events and messages.

What is left is the form: who spoke, which tool was called, how it ended. So a log that has lost a secret is still one
from which a valid history can be made.
"""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any, cast

import msgspec

from .event import RESERVED, Compacted, Entry, Event, MessageAdded, QuestionAsked, ToolFinished, ValueKept
from .fold import State
from .message import Message, Part, Text, ToolCall, ToolResult, Usage

REDACTED = "[redacted]"
NO_SUMMARY = "[There was a summary of what came before. It was taken out on request.]"

_NAMES = ("run_id", "path", "agent", "input_id", "call_id", "ask_id", "item_id", "name", "tool", "guardrail", "kind")
_WORDS = ("about", "effect", "mode", "status", "scope", "source", "action", "cause", "model", "provider", "prefix")
_KEYS = ("idempotency_key", "arguments_hash", "slot_id", "grant_id", "child", "renderer", "until")
_KEPT = frozenset({*_NAMES, *_WORDS, *_KEYS})
"""Texts that name something, or are one of a few words. All other text may be what somebody said."""

_OF_A_CALL = frozenset({"call_id", "tool", "place", "arguments_hash", "attempt"})
"""By these a question is found again that was asked about a call: without them, an answer to it would go nowhere."""

_OF_OURS = _KEPT | {"handle", "session_id"}
"""By these the runtime finds again what it keeps for itself."""


def redacted(event: Event) -> Event:
    """The same event with nothing in it that anybody said."""
    if isinstance(event, MessageAdded):
        return msgspec.structs.replace(event, message=_message(event.message))
    if isinstance(event, ToolFinished):
        return msgspec.structs.replace(event, result=_result(event.result))
    if isinstance(event, Compacted):
        return msgspec.structs.replace(event, summary=_message(event.summary, NO_SUMMARY))
    if isinstance(event, ValueKept) and event.name.startswith(RESERVED):
        return msgspec.structs.replace(event, value=_of_ours(event.value))
    said = [name for name in event.__struct_fields__ if name not in _KEPT]
    if isinstance(event, QuestionAsked):
        event = msgspec.structs.replace(event, calls=tuple([_call(each) for each in event.calls]))
        said.remove("calls")
    return msgspec.structs.replace(event, **{name: _blank(getattr(event, name)) for name in said})


def retold_in(entries: Sequence[Entry], found: Entry) -> list[Entry]:
    """The summaries that were made of what this entry says, also by way of another summary."""
    if not isinstance(found.event, (MessageAdded, ToolFinished, Compacted)):
        return []
    path, state = found.event.path, State()
    for entry in entries:
        if entry.seq < found.seq:
            state.apply(entry.event)
    before = 0 if isinstance(found.event, Compacted) else len((state.child(path) if path else state).messages)
    later = [(each, each.event) for each in entries if each.seq > found.seq and each.event.path == path]
    return [each for each, event in later if isinstance(event, Compacted) and event.upto > before]


def _of_ours(kept: Any) -> Any:
    if not isinstance(kept, dict):
        return _blank(kept)
    named = cast("dict[str, Any]", kept)
    return {name: value if name in _OF_OURS else _blank(value) for name, value in named.items()}


def _call(call: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in call.items() if name in _OF_A_CALL}


def _message(message: Message, words: str = "") -> Message:
    parts = (Text(words),) if words else tuple([_part(part) for part in message.parts])
    return msgspec.structs.replace(message, parts=parts, original_text="", metadata={})


def _part(part: Part) -> Part:
    if isinstance(part, ToolCall):
        return msgspec.structs.replace(part, arguments="{}", signature="")
    if isinstance(part, ToolResult):
        return _result(part)
    return Text(REDACTED)


def _result(result: ToolResult) -> ToolResult:
    return msgspec.structs.replace(result, content=(Text(REDACTED),), render=None, summary="", preview="")


def _blank(value: Any) -> Any:
    """Nothing of what was said; what counts or dates something stays."""
    if type(value) is str:
        return REDACTED
    if isinstance(value, dict):
        return {}
    if isinstance(value, tuple):
        return ()
    return value if isinstance(value, (bool, int, float, StrEnum, Usage)) else None
