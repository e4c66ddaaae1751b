"""Schemas of older drafts and of OpenAPI, as draft 2020-12 says the same. Above: `compiler.py`. Below: `core`."""

from collections.abc import Mapping
from typing import Any

from perdure.core.definitions import is_array, is_object

TYPES = ("string", "number", "integer", "boolean", "object", "array", "null")

_KINDS: Mapping[type, str] = {
    str: "string",
    int: "integer",
    float: "number",
    bool: "boolean",
    dict: "object",
    list: "array",
    type(None): "null",
}
_TELLING = {"object": ("properties", "required", "additionalProperties"), "array": ("items", "prefixItems")}


def repaired(schema: dict[str, Any]) -> dict[str, Any]:
    """The same schema, in the words of draft 2020-12. What makes no sense there is left out."""
    fixed = {key: value for key, value in schema.items() if _is_well_formed(key, value)}
    if "type" in fixed:
        types = types_of(fixed)
        fixed["type"] = types[0] if len(types) == 1 else types
        if not types:
            del fixed["type"]
    if fixed.pop("nullable", False) is True:
        fixed = _or_null(fixed)
    for bound in ("minimum", "maximum"):
        exclusive = f"exclusive{bound.capitalize()}"
        if isinstance(fixed.get(exclusive), bool) and fixed.pop(exclusive) and bound in fixed:  # draft 4
            fixed[exclusive] = fixed.pop(bound)
    if is_array(fixed.get("items")):  # draft 7
        fixed["prefixItems"] = fixed.pop("items")
        if "additionalItems" in fixed:
            fixed["items"] = fixed["additionalItems"]
    fixed.pop("additionalItems", None)
    return fixed


def types_of(schema: dict[str, Any]) -> list[str]:
    """The types that are told, those that there are."""
    told = schema.get("type")
    listed = told if is_array(told) else [told]
    known = [each.lower() for each in listed if isinstance(each, str)]
    return [each for each in dict.fromkeys(known) if each in TYPES]


def likely_types(schema: dict[str, Any]) -> list[str]:
    """The types that are told, else those that the rest speaks of; none when it may be anything."""
    types = types_of(schema)
    values = schema.get("enum")
    if not types and is_array(values):
        types = list(dict.fromkeys(kind_of(value) for value in values))
    if not types:
        types = [name for name, signs in _TELLING.items() if any(sign in schema for sign in signs)][:1]
    return [each for each in types if each != "integer" or "number" not in types]


def kind_of(value: Any) -> str:
    """The type of a value, as JSON Schema calls it."""
    return next((name for kind, name in _KINDS.items() if type(value) is kind), "object")


def _or_null(schema: dict[str, Any]) -> dict[str, Any]:
    types = types_of(schema)
    if "null" in types or not types:
        return schema
    found = {**schema, "type": [*types, "null"]}
    if is_array(schema.get("enum")) and None not in schema["enum"]:
        found["enum"] = [*schema["enum"], None]
    return found


_MAPS = {"properties", "patternProperties", "$defs", "definitions", "dependentSchemas"}
_LISTS = {"anyOf", "oneOf", "allOf", "enum"}


def _is_well_formed(key: str, value: Any) -> bool:
    if key in _MAPS:
        return is_object(value)
    if key in _LISTS:
        return is_array(value) and bool(value)
    if key == "required":  # draft 3 says it of each property, as a flag
        return is_array(value) and all(isinstance(name, str) for name in value)
    if key in ("pattern", "format", "description", "title", "$ref"):
        return isinstance(value, str)
    return True
