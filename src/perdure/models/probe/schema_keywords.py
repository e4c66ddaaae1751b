"""Find the JSON Schema keywords that an endpoint rejects in tool schemas.

One request has all of them. If it is rejected, each is tested alone, and a dialect is chosen that uses none of the
rejected ones.
"""

from collections.abc import Mapping, Sequence
from typing import Any, cast

from msgspec.structs import replace

from perdure.core.message import user
from perdure.core.model import ToolSpec
from perdure.models.schemas import compile_schema

from .client import ProbeClient
from .profile_draft import ProfileDraft

_PROMPT = "Call the tool note with whatever fits."

KEYWORDS: Mapping[str, Mapping[str, Any]] = {
    "$ref": {"$ref": "#/$defs/size"},
    "anyOf": {"anyOf": [{"type": "string"}, {"type": "integer"}]},
    "type as a list": {"type": ["string", "null"]},
    "const": {"const": "fixed"},
    "format": {"type": "string", "format": "date-time"},
    "pattern": {"type": "string", "pattern": "^[a-z]+$"},
    "minimum": {"type": "integer", "minimum": 1},
    "additionalProperties": {"type": "object", "properties": {"a": {"type": "string"}}, "additionalProperties": False},
}
"""Each keyword in a schema that needs no other of them."""

_DEFINITIONS = {"size": {"type": "string", "enum": ["small", "large"]}}
_RULES = ("plain", "bedrock", "llamacpp", "gemini_json", "kimi", "gemini")
"""Dialects that a schema can be compiled to, the richest first."""


def build_tool_with_keywords(*keywords: str) -> ToolSpec:
    """Build a tool definition whose parameter schema uses the given JSON Schema keywords, to test an endpoint with."""
    properties = {f"p{place}": KEYWORDS[each] for place, each in enumerate(keywords)}
    schema: dict[str, Any] = {"type": "object", "properties": properties, "required": sorted(properties)}
    if "$ref" in keywords:
        schema["$defs"] = _DEFINITIONS
    return ToolSpec("note", "Note something down.", schema)


async def probe_schema_keywords(client: ProbeClient, draft: ProfileDraft) -> None:
    """Test which JSON Schema keywords the endpoint rejects, and record a schema dialect without them."""
    plain = replace(draft.profile, schema="plain")
    reply = await client.send_request(
        "schema keywords", plain, user(_PROMPT), tools=(build_tool_with_keywords(*KEYWORDS),)
    )
    if reply.is_accepted:
        draft.record_finding("schema keywords", f"all accepted: {', '.join(KEYWORDS)}", schema="plain")
        return
    refused = [word for word in KEYWORDS if not await _is_accepted(client, draft, build_tool_with_keywords(word), word)]
    draft.rejects_schemas = bool(refused)
    rules = choose_schema_dialect(refused)
    if not refused:
        draft.record_finding(
            "schema keywords", f"each accepted, all at once refused ({reply.reason})", schema=rules or "plain"
        )
    elif rules:
        draft.record_finding(
            "schema keywords", f"refused: {', '.join(refused)}; the rules {rules!r} do without", schema=rules
        )
    else:
        draft.record_finding("schema keywords", f"refused: {', '.join(refused)}; no rules do without all of them")


async def _is_accepted(client: ProbeClient, draft: ProfileDraft, tool: ToolSpec, word: str) -> bool:
    plain = replace(draft.profile, schema="plain")
    return (await client.send_request(f"the keyword {word}", plain, user(_PROMPT), tools=(tool,))).is_accepted


def choose_schema_dialect(refused: list[str]) -> str:
    """Return the richest JSON Schema dialect that uses none of these keywords; empty if there is none."""
    whole = build_tool_with_keywords(*KEYWORDS).parameters
    return next((rules for rules in _RULES if not find_used_keywords(compile_schema(whole, rules)) & set(refused)), "")


def find_used_keywords(schema: Any) -> set[str]:
    """Return which of the JSON Schema keywords that a probe tests are used in a schema."""
    if isinstance(schema, (list, tuple)):
        return _find_used_keywords_in(cast("Sequence[Any]", schema))
    if not isinstance(schema, Mapping):
        return set()
    node = cast("Mapping[str, Any]", schema)
    found = {word for word in KEYWORDS if word in node}
    if isinstance(node.get("type"), (list, tuple)):
        found.add("type as a list")
    inner = [value for key, value in node.items() if key not in {"properties", "$defs", "enum", "const", "default"}]
    named = [each for key in ("properties", "$defs") for each in cast("Mapping[str, Any]", node.get(key, {})).values()]
    return found | _find_used_keywords_in(inner) | _find_used_keywords_in(named)


def _find_used_keywords_in(schemas: Sequence[Any]) -> set[str]:
    found: set[str] = set()
    return found.union(*map(find_used_keywords, schemas))
