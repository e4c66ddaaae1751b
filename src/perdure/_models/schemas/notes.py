"""Describe JSON Schema keywords that a provider does not support, as notes in the schema's description."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from perdure._core.values.jsonable import to_jsonable

_MAX_CHARACTERS = 200
_IGNORED_KEYWORDS = frozenset(
    {"$schema", "$id", "id", "$comment", "$anchor", "$dynamicAnchor", "$vocabulary", "$defs", "definitions", "nullable"}
    | {"readOnly", "writeOnly", "deprecated", "discriminator", "xml", "externalDocs", "title", "strict"}
    | {"propertyOrdering", "unevaluatedProperties", "unevaluatedItems", "contentEncoding", "contentMediaType"}
)
"""Keywords that do not constrain a value."""

_VALUE_KEYWORDS = frozenset({"default", "const", "example"})
"""Keywords that contain a value of the instance, for which `false` is one like any other."""

_PHRASES: Mapping[str, str] = {
    "minLength": "at least {} characters",
    "maxLength": "at most {} characters",
    "pattern": "matches the regular expression {}",
    "format": "format {}",
    "minimum": "at least {}",
    "maximum": "at most {}",
    "exclusiveMinimum": "more than {}",
    "exclusiveMaximum": "less than {}",
    "multipleOf": "a multiple of {}",
    "minItems": "at least {} items",
    "maxItems": "at most {} items",
    "uniqueItems": "no item twice",
    "minProperties": "at least {} properties",
    "maxProperties": "at most {} properties",
    "enum": "one of {}",
    "const": "always {}",
    "default": "default {}",
    "examples": "for example {}",
    "example": "for example {}",
    "additionalProperties": "further properties: {}",
    "patternProperties": "properties by pattern: {}",
    "propertyNames": "names of properties: {}",
    "not": "but not {}",
    "contains": "with an item of {}",
    "oneOf": "exactly one of {}",
    "anyOf": "any of {}",
    "allOf": "all of {}",
    "prefixItems": "items in this order: {}",
}


def describe_keyword(keyword: str, value: Any) -> str:
    """Return a phrase for a JSON Schema keyword, such as `at most 5 items`; empty if the keyword is no constraint."""
    if keyword in _IGNORED_KEYWORDS or keyword.startswith("x-"):
        return ""
    if (keyword == "additionalProperties" and isinstance(value, bool)) or value is None:
        return ""
    if value is False and keyword not in _VALUE_KEYWORDS:  # it constrains nothing
        return ""
    return _PHRASES.get(keyword, keyword + " {}").format(_format_value(keyword, value))


def build_description_field(schema: Mapping[str, Any], notes: Sequence[str]) -> dict[str, str]:
    """Return the `description` field of a schema, with the notes appended; empty if there is no text."""
    text = str(schema.get("description") or "")
    told = "; ".join(note for note in dict.fromkeys(notes) if note and note not in text)
    if told:
        text = f"{text} ({told})" if text else told[:1].upper() + told[1:]
    return {"description": text} if text else {}


def _format_value(keyword: str, value: Any) -> str:
    if isinstance(value, str) and keyword in ("format", "pattern"):
        return value[:_MAX_CHARACTERS]
    try:
        text = msgspec.json.encode(value).decode()
    except (TypeError, ValueError, RecursionError):
        text = str(to_jsonable(value))
    if keyword in ("enum", "examples") and text.startswith("["):
        text = text[1:-1].replace(",", ", ")
    return text if len(text) <= _MAX_CHARACTERS else f"{text[: _MAX_CHARACTERS - 1]}…"
