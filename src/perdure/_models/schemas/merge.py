"""Merge JSON Schemas: two into one that requires both, and a union at the top into one object."""

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from perdure._core.schema.definitions import is_json_array, is_json_object

from .normalize import get_declared_types
from .notes import build_description_field, describe_keyword

_Schema = dict[str, Any]
MAX_LEVELS = 40

_encode = msgspec.json.Encoder(order="deterministic").encode


def merge_schemas(one: Any, other: Any, levels: int = 0) -> Any:
    """Merge two schemas into one that allows the values that both allow (and sometimes a few more)."""
    if not is_json_object(one):
        return other if one is True else one
    if not is_json_object(other):
        return one if other is True else other
    found = dict(one)
    for key, value in other.items():
        if key not in one:
            found[key] = value
        elif levels < MAX_LEVELS and key in _MERGES:
            found[key] = _MERGES[key](one[key], value, levels + 1)
    _merge_types_and_closedness(found, one, other)
    return found


def is_same_json(one: Any, other: Any) -> bool:
    """Return True if two values are the same JSON; unlike in Python, `1` and `True` differ."""
    return _encode(one) == _encode(other)


def _merge_types_and_closedness(found: _Schema, one: _Schema, other: _Schema) -> None:
    """Merge the keywords that depend on each other: types, and `additionalProperties`."""
    if "type" in one and "type" in other:
        types = _intersect_types(get_declared_types(one), get_declared_types(other))
        found.pop("type")
        if types:
            found["type"] = types[0] if len(types) == 1 else types
    if ("additionalProperties" in one) != ("additionalProperties" in other) and found["additionalProperties"] is False:
        closed, open_ = (one, other) if "additionalProperties" in one else (other, one)
        if open_.get("properties", {}).keys() - closed.get("properties", {}).keys():
            del found["additionalProperties"]  # composition is intended, not a schema that nothing satisfies


def _intersect_types(one: list[str], other: list[str]) -> list[str]:
    wide = {*other, *(["integer"] if "number" in other else [])}
    narrowed = ["integer" if each == "number" and each not in wide else each for each in one]
    return [each for each in dict.fromkeys(narrowed) if each in wide]


def _merge_properties(one: Any, other: Any, levels: int) -> Any:
    found = dict(one)
    for name, schema in other.items():
        found[name] = merge_schemas(found[name], schema, levels) if name in found else schema
    return found


def _merge_required(one: Any, other: Any, _levels: int) -> Any:
    return list(dict.fromkeys([*one, *other]))


def _intersect_enums(one: Any, other: Any, _levels: int) -> Any:
    common = [value for value in one if any(is_same_json(value, each) for each in other)]
    return common or one


def _merge_additional_properties(one: Any, other: Any, levels: int) -> Any:
    if one is False or other is False:
        return other if one is False else one
    return merge_schemas(one, other, levels)


def _take_larger(one: Any, other: Any, _levels: int) -> Any:
    return max(one, other) if _are_numbers(one, other) else one


def _take_smaller(one: Any, other: Any, _levels: int) -> Any:
    return min(one, other) if _are_numbers(one, other) else one


def _join_lists(one: Any, other: Any, _levels: int) -> Any:
    return [*one, *other] if is_json_array(one) and is_json_array(other) else one


def _are_numbers(*values: Any) -> bool:
    return all(isinstance(value, (int, float)) for value in values)


_MERGES: Mapping[str, Callable[[Any, Any, int], Any]] = {
    "properties": _merge_properties,
    "patternProperties": _merge_properties,
    "required": _merge_required,
    "enum": _intersect_enums,
    "items": merge_schemas,
    "additionalProperties": _merge_additional_properties,
    "allOf": _join_lists,
    **dict.fromkeys(
        ("minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties", "minContains"), _take_larger
    ),
    **dict.fromkeys(
        ("maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties", "maxContains"), _take_smaller
    ),
    "uniqueItems": lambda one, other, _levels: one or other,
}
"""How two values of the same keyword are merged. For other keywords the first value is kept."""


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
