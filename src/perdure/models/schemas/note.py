"""What a provider's schema has no words for, said in a description. Above: `compiler.py`. Below: `core`."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from perdure.core.plain import to_jsonable

_MOST = 200
_SILENT = frozenset(
    {"$schema", "$id", "id", "$comment", "$anchor", "$dynamicAnchor", "$vocabulary", "$defs", "definitions", "nullable"}
    | {"readOnly", "writeOnly", "deprecated", "discriminator", "xml", "externalDocs", "title", "strict"}
    | {"propertyOrdering", "unevaluatedProperties", "unevaluatedItems", "contentEncoding", "contentMediaType"}
)
"""What says nothing about a value."""

_WORDS: Mapping[str, str] = {
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


def noted(keyword: str, value: Any) -> str:
    """What a word and its value mean, in a few words; empty when that is nothing."""
    if keyword in _SILENT or keyword.startswith("x-"):
        return ""
    if (keyword == "additionalProperties" and isinstance(value, bool)) or value is None or value is False:
        return ""
    return _WORDS.get(keyword, keyword + " {}").format(_short(keyword, value))


def described(schema: Mapping[str, Any], notes: Sequence[str]) -> dict[str, str]:
    """The description, with the notes at its end."""
    text = str(schema.get("description") or "")
    told = "; ".join(note for note in dict.fromkeys(notes) if note and note not in text)
    if told:
        text = f"{text} ({told})" if text else told[:1].upper() + told[1:]
    return {"description": text} if text else {}


def _short(keyword: str, value: Any) -> str:
    if isinstance(value, str) and keyword in ("format", "pattern"):
        return value[:_MOST]
    try:
        text = msgspec.json.encode(value).decode()
    except (TypeError, ValueError, RecursionError):
        text = str(to_jsonable(value))
    if keyword in ("enum", "examples") and text.startswith("["):
        text = text[1:-1].replace(",", ", ")
    return text if len(text) <= _MOST else f"{text[: _MOST - 1]}…"
