"""Alternatives at the top of a schema, folded into one object. Above: `compiler.py`. Below: `merge.py`, `note.py`.

Most providers want one object there. It gets the properties of all alternatives, and needs what all of them need: a
little too wide, and the description says what is missing.
"""

from collections.abc import Callable, Mapping
from typing import Any

from perdure.core.definitions import is_array, is_object

from .merge import same
from .note import described, noted

_UNSPEAKABLE = ("not", "if", "then", "else", "enum", "const")


def folded(schema: dict[str, Any], follow: Callable[[dict[str, Any]], dict[str, Any]]) -> dict[str, Any]:
    """One object; the very same schema when it is one."""
    for word in ("anyOf", "oneOf"):
        branches = schema.get(word)
        if is_array(branches):
            objects = [follow(each) for each in branches if is_object(each)]
            rest = {key: value for key, value in schema.items() if key != word}
            schema = _united(rest, objects) if objects else rest
            schema |= described(schema, [_needs(objects)])
    for word in _UNSPEAKABLE:
        if word in schema:
            note = noted(word, schema[word])
            schema = {key: value for key, value in schema.items() if key != word}
            schema |= described(schema, [note])
    return schema


def _united(rest: dict[str, Any], objects: list[dict[str, Any]]) -> dict[str, Any]:
    properties: dict[str, Any] = dict(rest.get("properties", {}))
    for each in objects:
        for name, schema in each.get("properties", {}).items():
            properties[name] = _either(properties[name], schema) if name in properties else schema
    shared = [name for name in _required(objects[0]) if all(name in _required(each) for each in objects)]
    found = {**rest, "properties": properties}
    required = list(dict.fromkeys([*_required(rest), *shared]))
    if required:
        found["required"] = required
    if "additionalProperties" not in rest and all(_is_closed(each) for each in objects):
        found["additionalProperties"] = False
    return found


def _either(one: Any, other: Any) -> Any:
    if _is_open(one) or _is_open(other) or same(one, other):  # `{}` beside a real one only says that it may be there
        return other if _is_open(one) else one
    return {"anyOf": [one, other]}


def _is_open(schema: Any) -> bool:
    return schema is True or schema == {}


def _is_closed(schema: Mapping[str, Any]) -> bool:
    return schema.get("additionalProperties") is False


def _required(schema: Mapping[str, Any]) -> list[str]:
    return list(schema.get("required", ()))


def _needs(objects: list[dict[str, Any]]) -> str:
    """`needs a and b, or c`."""
    needs = [" and ".join(_required(each)) for each in objects]
    return f"needs {', or '.join(dict.fromkeys(needs))}" if needs and all(needs) else ""
