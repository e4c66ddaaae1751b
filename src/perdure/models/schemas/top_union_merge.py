"""Merge a union at the top of a JSON Schema into one object, for providers that require an object there.

Most providers need one object there. It gets the properties of all branches, and requires the properties that all of
them require: slightly too wide, and the description lists what is missing.
"""

from collections.abc import Callable, Mapping
from typing import Any

from perdure.core.schema_definitions import is_json_array, is_json_object

from .merge import is_same_json
from .unsupported_keyword_notes import build_description_field, describe_keyword

_UNSUPPORTED_AT_TOP = ("not", "if", "then", "else", "enum", "const")


def merge_top_union(
    schema: dict[str, Any], resolve_reference: Callable[[dict[str, Any]], dict[str, Any]]
) -> dict[str, Any]:
    """Merge the branches of a union at the top of a schema into one object; a schema without one is returned
    unchanged.
    """
    for word in ("anyOf", "oneOf"):
        branches = schema.get(word)
        if is_json_array(branches):
            objects = [resolve_reference(each) for each in branches if is_json_object(each)]
            rest = {key: value for key, value in schema.items() if key != word}
            schema = _merge_branches(rest, objects) if objects else rest
            schema |= build_description_field(schema, [_describe_required(objects)])
    for word in _UNSUPPORTED_AT_TOP:
        if word in schema:
            note = describe_keyword(word, schema[word])
            schema = {key: value for key, value in schema.items() if key != word}
            schema |= build_description_field(schema, [note])
    return schema


def _merge_branches(rest: dict[str, Any], objects: list[dict[str, Any]]) -> dict[str, Any]:
    properties: dict[str, Any] = dict(rest.get("properties", {}))
    for each in objects:
        for name, schema in each.get("properties", {}).items():
            properties[name] = _unite_property(properties[name], schema) if name in properties else schema
    shared = [name for name in _get_required(objects[0]) if all(name in _get_required(each) for each in objects)]
    found = {**rest, "properties": properties}
    required = list(dict.fromkeys([*_get_required(rest), *shared]))
    if required:
        found["required"] = required
    if "additionalProperties" not in rest and all(_is_closed(each) for each in objects):
        found["additionalProperties"] = False
    return found


def _unite_property(one: Any, other: Any) -> Any:
    if _is_open(one) or _is_open(other) or is_same_json(one, other):  # `{}` beside a real schema adds no constraint
        return other if _is_open(one) else one
    return {"anyOf": [one, other]}


def _is_open(schema: Any) -> bool:
    return schema is True or schema == {}


def _is_closed(schema: Mapping[str, Any]) -> bool:
    return schema.get("additionalProperties") is False


def _get_required(schema: Mapping[str, Any]) -> list[str]:
    return list(schema.get("required", ()))


def _describe_required(objects: list[dict[str, Any]]) -> str:
    """Return a phrase for the required properties of each branch: `needs a and b, or c`."""
    needs = [" and ".join(_get_required(each)) for each in objects]
    return f"needs {', or '.join(dict.fromkeys(needs))}" if needs and all(needs) else ""
