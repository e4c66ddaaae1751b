"""Which words of JSON Schema an endpoint refuses in its tools. Above: the probe. Below: `ask.py`, `schemas.py`.

One request has all of them. When that is refused each is tried alone, and the rules are chosen that use none of those
which are refused.
"""

from collections.abc import Mapping, Sequence
from typing import Any, cast

from msgspec.structs import replace

from perdure.core.message import user
from perdure.core.model import ToolSpec
from perdure.models.schemas import compiled

from .ask import Asker
from .draft import Draft

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
"""Each word in a schema that needs no other of them."""

_DEFINITIONS = {"size": {"type": "string", "enum": ["small", "large"]}}
_RULES = ("plain", "bedrock", "llamacpp", "gemini_json", "kimi", "gemini")
"""The rules that a schema can be compiled to, the richest first."""


def tool_with(*keywords: str) -> ToolSpec:
    """A tool whose schema uses these words."""
    properties = {f"p{place}": KEYWORDS[each] for place, each in enumerate(keywords)}
    schema: dict[str, Any] = {"type": "object", "properties": properties, "required": sorted(properties)}
    if "$ref" in keywords:
        schema["$defs"] = _DEFINITIONS
    return ToolSpec("note", "Note something down.", schema)


async def schema_keywords(asker: Asker, draft: Draft) -> None:
    """Which words are refused, and which rules avoid them."""
    plain = replace(draft.profile, schema="plain")
    heard = await asker.ask("schema keywords", plain, user(_PROMPT), tools=(tool_with(*KEYWORDS),))
    if heard.answered:
        draft.note("schema keywords", f"all accepted: {', '.join(KEYWORDS)}", schema="plain")
        return
    refused = [word for word in KEYWORDS if not await _accepts(asker, draft, tool_with(word), word)]
    rules = rules_without(refused)
    if not refused:
        draft.note("schema keywords", f"each accepted, all at once refused ({heard.reason})", schema=rules or "plain")
    elif rules:
        draft.note("schema keywords", f"refused: {', '.join(refused)}; the rules {rules!r} do without", schema=rules)
    else:
        draft.note("schema keywords", f"refused: {', '.join(refused)}; no rules do without all of them")


async def _accepts(asker: Asker, draft: Draft, tool: ToolSpec, word: str) -> bool:
    plain = replace(draft.profile, schema="plain")
    return (await asker.ask(f"the keyword {word}", plain, user(_PROMPT), tools=(tool,))).answered


def rules_without(refused: list[str]) -> str:
    """The richest rules that leave none of these words in a schema that has all of them; empty when there are none."""
    whole = tool_with(*KEYWORDS).parameters
    return next((rules for rules in _RULES if not words_in(compiled(whole, rules)) & set(refused)), "")


def words_in(schema: Any) -> set[str]:
    """Which of the words a schema uses."""
    if isinstance(schema, (list, tuple)):
        return _in_any(cast("Sequence[Any]", schema))
    if not isinstance(schema, Mapping):
        return set()
    node = cast("Mapping[str, Any]", schema)
    found = {word for word in KEYWORDS if word in node}
    if isinstance(node.get("type"), (list, tuple)):
        found.add("type as a list")
    inner = [value for key, value in node.items() if key not in {"properties", "$defs", "enum", "const", "default"}]
    named = [each for key in ("properties", "$defs") for each in cast("Mapping[str, Any]", node.get(key, {})).values()]
    return found | _in_any(inner) | _in_any(named)


def _in_any(schemas: Sequence[Any]) -> set[str]:
    found: set[str] = set()
    return found.union(*map(words_in, schemas))
