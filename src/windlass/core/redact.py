"""An event without its words. Above: sessions, on behalf of whoever must forget. Below: events and messages.

What is left is the form: who spoke, which tool was called, how it ended. So a log that has lost a secret is still one
from which a valid history can be made.
"""

from enum import StrEnum
from typing import Any

import msgspec

from .event import Compacted, Event, MessageAdded, ToolFinished
from .message import Message, Part, Text, ToolCall, ToolResult, Usage

REDACTED = "[redacted]"

_NAMES = ("run_id", "path", "agent", "input_id", "call_id", "ask_id", "item_id", "name", "tool", "guardrail", "kind")
_WORDS = ("about", "effect", "mode", "status", "scope", "source", "action", "cause", "model", "provider", "prefix")
_KEYS = ("idempotency_key", "arguments_hash", "slot_id", "grant_id", "child", "renderer", "until")
_KEPT = frozenset({*_NAMES, *_WORDS, *_KEYS})
"""Texts that name something, or are one of a few words. All other text may be what somebody said."""


def redacted(event: Event) -> Event:
    """The same event with nothing in it that anybody said."""
    if isinstance(event, MessageAdded):
        return msgspec.structs.replace(event, message=_message(event.message))
    if isinstance(event, ToolFinished):
        return msgspec.structs.replace(event, result=_result(event.result))
    if isinstance(event, Compacted):
        return msgspec.structs.replace(event, summary=_message(event.summary))
    said = [name for name in event.__struct_fields__ if name not in _KEPT]
    return msgspec.structs.replace(event, **{name: _blank(getattr(event, name)) for name in said})


def _message(message: Message) -> Message:
    parts = tuple([_part(part) for part in message.parts])
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
