"""Two schemas as the one that both hold for. Above: `compiler.py`. Below: `core`.

Where both cannot be said at once, what is said is what more values fit: a model that is told too little is corrected by
the check of its arguments, one that is told something wrong never gets it right.
"""

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from perdure.core.definitions import is_array, is_object

from .repair import types_of

Both = dict[str, Any]
MOST_LEVELS = 40

_encode = msgspec.json.Encoder(order="deterministic").encode


def merged(one: Any, other: Any, levels: int = 0) -> Any:
    """What both schemas allow, or a little more."""
    if not is_object(one):
        return other if one is True else one
    if not is_object(other):
        return one if other is True else other
    found = dict(one)
    for key, value in other.items():
        if key not in one:
            found[key] = value
        elif levels < MOST_LEVELS and key in _MERGES:
            found[key] = _MERGES[key](one[key], value, levels + 1)
    _settle(found, one, other)
    return found


def same(one: Any, other: Any) -> bool:
    """Whether they are the same JSON: `1` and `True` are not."""
    return _encode(one) == _encode(other)


def _settle(found: Both, one: Both, other: Both) -> None:
    """What depends on more than one word."""
    if "type" in one and "type" in other:
        types = _common(types_of(one), types_of(other))
        found.pop("type")
        if types:
            found["type"] = types[0] if len(types) == 1 else types
    if ("additionalProperties" in one) != ("additionalProperties" in other) and found["additionalProperties"] is False:
        closed, open_ = (one, other) if "additionalProperties" in one else (other, one)
        if open_.get("properties", {}).keys() - closed.get("properties", {}).keys():
            del found["additionalProperties"]  # composition is what is meant, not that nothing fits


def _common(one: list[str], other: list[str]) -> list[str]:
    wide = {*other, *(["integer"] if "number" in other else [])}
    narrowed = ["integer" if each == "number" and each not in wide else each for each in one]
    return [each for each in dict.fromkeys(narrowed) if each in wide]


def _properties(one: Any, other: Any, levels: int) -> Any:
    found = dict(one)
    for name, schema in other.items():
        found[name] = merged(found[name], schema, levels) if name in found else schema
    return found


def _names(one: Any, other: Any, _levels: int) -> Any:
    return list(dict.fromkeys([*one, *other]))


def _values(one: Any, other: Any, _levels: int) -> Any:
    common = [value for value in one if any(same(value, each) for each in other)]
    return common or one


def _further(one: Any, other: Any, levels: int) -> Any:
    if one is False or other is False:
        return other if one is False else one
    return merged(one, other, levels)


def _largest(one: Any, other: Any, _levels: int) -> Any:
    return max(one, other) if _are_numbers(one, other) else one


def _smallest(one: Any, other: Any, _levels: int) -> Any:
    return min(one, other) if _are_numbers(one, other) else one


def _all(one: Any, other: Any, _levels: int) -> Any:
    return [*one, *other] if is_array(one) and is_array(other) else one


def _are_numbers(*values: Any) -> bool:
    return all(isinstance(value, (int, float)) for value in values)


_MERGES: Mapping[str, Callable[[Any, Any, int], Any]] = {
    "properties": _properties,
    "patternProperties": _properties,
    "required": _names,
    "enum": _values,
    "items": merged,
    "additionalProperties": _further,
    "allOf": _all,
    **dict.fromkeys(("minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties", "minContains"), _largest),
    **dict.fromkeys(
        ("maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties", "maxContains"), _smallest
    ),
    "uniqueItems": lambda one, other, _levels: one or other,
}
"""How two of the same word become one. Of others, the first is kept."""
