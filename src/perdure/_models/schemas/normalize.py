"""Normalize a JSON Schema: convert older drafts and OpenAPI to draft 2020-12, and resolve `$ref`."""

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote

from perdure._core.schema.definitions import is_json_array, is_json_object
from perdure._core.values.error import ConfigError
from perdure._core.values.jsonable import short_repr


class SchemaDocument:
    """Root JSON Schema, in which the references (`$ref`) of its subschemas are resolved."""

    __slots__ = ("_names", "root")

    def __init__(self, root: dict[str, Any]) -> None:
        self.root = root
        self._names: dict[str, str] = {}

    def resolve_reference(self, reference: Any) -> Any:
        """Return the schema that a reference points to. Raises `ConfigError` if it is external or missing."""
        node: Any = self.root
        for step in _split_pointer(reference):
            if is_json_object(node) and step in node:
                node = node[step]
            elif is_json_array(node) and step.isdecimal() and int(step) < len(node):
                node = node[int(step)]
            else:
                message = f"a schema refers to {short_repr(reference)}, which does not exist: define it there"
                raise ConfigError(message)
        return node

    def get_definition_name(self, reference: str) -> str:
        """Return a unique name for the target of a reference, for `$defs`."""
        known = self._names.get(reference)
        if known is None:
            wanted = (
                re.sub(r"[^A-Za-z0-9_.-]", "_", ([*_split_pointer(reference)] or ["root"])[-1])[:60] or "definition"
            )
            known, number = wanted, 2
            while known in self._names.values():
                known, number = f"{wanted}_{number}", number + 1
            self._names[reference] = known
        return known


def _split_pointer(reference: Any) -> list[str]:
    if not isinstance(reference, str) or not reference.startswith("#"):
        message = f"a schema refers to {short_repr(reference)}, in another document: move it under $defs"
        raise ConfigError(message)
    pointer = unquote(reference[1:])
    if pointer and not pointer.startswith("/"):
        message = f"a schema refers to the anchor {short_repr(reference)}: refer to it as '#/$defs/…'"
        raise ConfigError(message)
    return [step.replace("~1", "/").replace("~0", "~") for step in pointer.split("/")[1:]]


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
_KEYWORDS_BY_TYPE = {"object": ("properties", "required", "additionalProperties"), "array": ("items", "prefixItems")}


def upgrade_schema_draft(schema: dict[str, Any]) -> dict[str, Any]:
    """Convert a JSON Schema to draft 2020-12. Malformed keywords are left out."""
    fixed = {key: value for key, value in schema.items() if _is_well_formed(key, value)}
    if "type" in fixed:
        types = get_declared_types(fixed)
        fixed["type"] = types[0] if len(types) == 1 else types
        if not types:
            del fixed["type"]
    if fixed.pop("nullable", False) is True:
        fixed = _apply_nullable(fixed)
    for bound in ("minimum", "maximum"):
        exclusive = f"exclusive{bound.capitalize()}"
        if isinstance(fixed.get(exclusive), bool) and fixed.pop(exclusive) and bound in fixed:  # draft 4
            fixed[exclusive] = fixed.pop(bound)
    if is_json_array(fixed.get("items")):  # draft 7
        fixed["prefixItems"] = fixed.pop("items")
        if "additionalItems" in fixed:
            fixed["items"] = fixed["additionalItems"]
    fixed.pop("additionalItems", None)
    return fixed


def get_declared_types(schema: dict[str, Any]) -> list[str]:
    """Return the types in a schema's `type` keyword; invalid ones are left out."""
    told = schema.get("type")
    listed = told if is_json_array(told) else [told]
    known = [each.lower() for each in listed if isinstance(each, str)]
    return [each for each in dict.fromkeys(known) if each in TYPES]


def get_possible_types(schema: dict[str, Any]) -> list[str]:
    """Return the types that a schema allows, from `type` or else from other keywords; empty if any type is possible."""
    types = get_declared_types(schema)
    values = schema.get("enum")
    if not types and is_json_array(values):
        types = list(dict.fromkeys(get_json_type(value) for value in values))
    if not types:
        types = [name for name, signs in _KEYWORDS_BY_TYPE.items() if any(sign in schema for sign in signs)][:1]
    return [each for each in types if each != "integer" or "number" not in types]


def get_json_type(value: Any) -> str:
    """Return the JSON Schema type of a Python value, such as `integer`."""
    return next((name for kind, name in _KINDS.items() if type(value) is kind), "object")


def _apply_nullable(schema: dict[str, Any]) -> dict[str, Any]:
    types = get_declared_types(schema)
    if "null" in types or not types:
        return schema
    found = {**schema, "type": [*types, "null"]}
    if is_json_array(schema.get("enum")) and None not in schema["enum"]:
        found["enum"] = [*schema["enum"], None]
    return found


_MAPS = {"properties", "patternProperties", "$defs", "definitions", "dependentSchemas"}
_LISTS = {"anyOf", "oneOf", "allOf", "enum"}


def _is_well_formed(key: str, value: Any) -> bool:
    if key in _MAPS:
        return is_json_object(value)
    if key in _LISTS:
        return is_json_array(value) and bool(value)
    if key == "required":  # in draft 3 it is a flag of each property
        return is_json_array(value) and all(isinstance(name, str) for name in value)
    if key in ("pattern", "format", "description", "title", "$ref"):
        return isinstance(value, str)
    return True
