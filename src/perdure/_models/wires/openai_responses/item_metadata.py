"""Keep the fields of Responses output items that messages have no place for, to send the items back. No I/O.

The id and phase of a text, and the id and type of a call, are stored as JSON in `signature`. Reasoning is stored whole:
its encrypted part as `Thinking.data`, the rest as `Thinking.details`. Items of unknown types, such as a search by the
provider, are stored entirely in `details`.
"""

from collections.abc import Mapping
from typing import Any, TypeAlias

import msgspec

from perdure._core.values.message import Thinking

ItemMetadata: TypeAlias = Mapping[str, str]
"""Fields stored with a text or a call."""

CUSTOM_TOOL_CALL = "custom_tool_call"
"""Type of a call whose input is free text."""
APPROVAL_REQUEST = "mcp_approval_request"
"""Type of a call to a remote MCP server, which the provider makes once it is approved."""

_METADATA_FIELDS = ("id", "phase", "namespace")
_APPROVAL_FIELDS = ("type", "id", "name", "server_label")
_REASONING = "reasoning"

_decode = msgspec.json.Decoder(dict[str, str]).decode
_encode = msgspec.json.Encoder().encode


def encode_item_metadata(item: Mapping[str, Any]) -> str:
    """Encode the id and other metadata of a text or call item as JSON, for the `signature` of its message part.

    Returns an empty string if the item has none.
    """
    kept = {name: item[name] for name in _METADATA_FIELDS if isinstance(item.get(name), str) and item[name]}
    if item.get("type") == CUSTOM_TOOL_CALL:
        kept["type"] = CUSTOM_TOOL_CALL
    return _encode(kept).decode() if kept else ""


def encode_approval_metadata(item: Mapping[str, Any]) -> str:
    """Encode the fields of an approval request as JSON, kept with its tool call and sent back to the provider."""
    return _encode({name: str(item.get(name) or "") for name in _APPROVAL_FIELDS}).decode()


def decode_item_metadata(signature: str) -> ItemMetadata:
    """Return the item metadata stored in a message part's signature; empty if it is from another provider's API."""
    if not signature.startswith("{"):
        return {}
    try:
        return _decode(signature)
    except msgspec.DecodeError:
        return {}


def build_thinking_part(item: Mapping[str, Any], text: str, provider: str, model: str) -> Thinking:
    """Build the thinking part of a message that stores a reasoning item, or an output item of unknown type."""
    if item.get("type") != _REASONING:
        return Thinking("", "", "", provider, model, dict(item), is_item=True)
    details = {name: value for name, value in item.items() if name not in {"encrypted_content", "status"}}
    if not details.get("content"):
        details.pop("content", None)
    return Thinking(text, "", item.get("encrypted_content") or "", provider, model, details)


def has_unknown_item(thought: Thinking) -> bool:
    """Return True if a thinking part stores an output item of unknown type instead of reasoning."""
    return bool(thought.details.get("type", _REASONING) != _REASONING)


def can_send_back(thought: Thinking, *, stored: bool) -> bool:
    """Return True if the output item stored in this thinking part can be sent back to the provider.

    Unless the provider has stored the item (`stored`), a reasoning item needs its encrypted or plain content for that.
    """
    return "type" in thought.details and (
        stored or has_unknown_item(thought) or bool(thought.data or thought.details.get("content"))
    )


def rebuild_item(thought: Thinking) -> dict[str, Any]:
    """Return the output item that a thinking part stores, as it is sent back to the provider."""
    item = dict(thought.details)
    if not has_unknown_item(thought):
        item.setdefault("summary", [])
    if thought.data:
        item["encrypted_content"] = thought.data
    return item
