"""What of an item has no place in a message, and how it is kept for the way back. Pure. Above: `items.py`, `reply.py`.

The id and the phase of words, and the id and the kind of a call, are JSON in their `signature`. Reasoning is kept
whole: its encrypted part as `Thinking.data`, the rest as `Thinking.details`. So is any item that we do not understand,
a search that the provider made itself say, all of it in `details`.
"""

from collections.abc import Mapping
from typing import Any, TypeAlias

import msgspec

from perdure.core.message import Thinking

Marks: TypeAlias = Mapping[str, str]
"""What is kept beside words or a call."""

CUSTOM = "custom_tool_call"
"""The kind of a call whose input is free text."""

_KEPT = ("id", "phase", "namespace")
_REASONING = "reasoning"

_decode = msgspec.json.Decoder(dict[str, str]).decode
_encode = msgspec.json.Encoder().encode


def made(item: Mapping[str, Any]) -> str:
    """The signature for the words or the call of an item; empty when there is nothing to keep."""
    kept = {name: item[name] for name in _KEPT if isinstance(item.get(name), str) and item[name]}
    if item.get("type") == CUSTOM:
        kept["type"] = CUSTOM
    return _encode(kept).decode() if kept else ""


def read(signature: str) -> Marks:
    """What a signature of ours says; nothing when it is somebody else's."""
    if not signature.startswith("{"):
        return {}
    try:
        return _decode(signature)
    except msgspec.DecodeError:
        return {}


def kept(item: Mapping[str, Any], text: str, provider: str, model: str) -> Thinking:
    """Reasoning, or an item that we do not understand, as a part of a message."""
    if item.get("type") != _REASONING:
        return Thinking("", "", "", provider, model, dict(item))
    details = {name: value for name, value in item.items() if name not in {"encrypted_content", "status"}}
    if not details.get("content"):
        details.pop("content", None)
    return Thinking(text, "", item.get("encrypted_content") or "", provider, model, details)


def is_opaque(thought: Thinking) -> bool:
    """Whether it is an item that we do not understand, and not reasoning."""
    return bool(thought.details.get("type", _REASONING) != _REASONING)


def can_return(thought: Thinking, *, stored: bool) -> bool:
    """Whether there is enough of it to be sent back: a provider that keeps nothing needs all of it."""
    return "type" in thought.details and (
        stored or is_opaque(thought) or bool(thought.data or thought.details.get("content"))
    )


def returned(thought: Thinking) -> dict[str, Any]:
    """The item, as it came."""
    item = dict(thought.details)
    if not is_opaque(thought):
        item.setdefault("summary", [])
    if thought.data:
        item["encrypted_content"] = thought.data
    return item
