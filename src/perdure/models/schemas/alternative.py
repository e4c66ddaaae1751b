"""Compiled schemas put together: any of these, this or null, anything, nothing more. Above: `compiler.py`."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from perdure.core.definitions import is_array

from .dialect import Dialect
from .merge import same
from .note import described, noted
from .part import titled
from .repair import likely_types, repaired

_NULL = {"type": "null"}


def either(
    compiled: Iterable[dict[str, Any]], schema: Mapping[str, Any], notes: Sequence[str], dialect: Dialect
) -> dict[str, Any]:
    """Any of these, each once, with what `schema` says about all of them."""
    branches: list[dict[str, Any]] = []
    for each in compiled:
        inner = each["anyOf"] if each.keys() == {"anyOf"} else [each]
        branches += [one for one in inner if not any(same(one, known) for known in branches)]
    if dialect.nulls == "keyword":
        branches = _with_keyword(branches)
    text = described(schema, [*notes, noted("default", schema.get("default"))])
    if dialect.lone_union and text:
        branches = [{**each, "description": _joined(text["description"], each)} for each in branches]
        text = {}
    if len(branches) == 1 and "$ref" not in branches[0]:
        return {**branches[0], **text}
    return {"anyOf": branches, **({} if dialect.lone_union else titled(schema)), **text}


def or_null(schema: dict[str, Any], dialect: Dialect) -> dict[str, Any]:
    """What was compiled, or null."""
    if "anyOf" in schema:
        return either([*schema["anyOf"], _NULL], schema, (), dialect)
    if dialect.nulls == "keyword":
        return {**schema, "nullable": True}
    if dialect.nulls == "type" and "type" in schema:
        return _with_null_type(schema)
    about = () if dialect.lone_union else ("title", "description")
    text = {key: value for key, value in schema.items() if key in about}
    return either([{key: value for key, value in schema.items() if key not in about}, _NULL], text, (), dialect)


def anything(schema: Mapping[str, Any], notes: Sequence[str], dialect: Dialect) -> dict[str, Any]:
    """Any value at all, or nearly: where everything must have a type, arrays of texts stand for all arrays."""
    told = [noted(word, schema[word]) for word in ("default", "not", "examples") if word in schema]
    text = {**titled(schema), **described(schema, [*notes, *told])}
    if not dialect.typed:
        return text
    kinds: list[dict[str, Any]] = [{"type": kind} for kind in ("string", "number", "boolean")]
    if not dialect.closed:
        kinds += [{"type": "object"}, {"type": "array", "items": {"type": "string"}}]
    return either([*kinds, _NULL], text, (), dialect)


def cut(schema: dict[str, Any], dialect: Dialect) -> dict[str, Any]:
    """Where the way down ends: something of the same type."""
    text = described(schema, ["what is in it is not described here"])
    if dialect.closed:
        needs = {"required": list[str]()} if dialect.all_required else {}
        return {"type": "object", "properties": {}, **needs, "additionalProperties": False, **text}
    types = likely_types(repaired(schema))
    if not types and not dialect.typed:
        return text
    kind = types[0] if types else "object"
    items = {"items": {"type": "string"}} if kind == "array" and dialect.needs_items else {}
    found: dict[str, Any] = {"type": kind, **items, **text}
    return or_null(found, dialect) if "null" in types and kind != "null" else found


def _with_null_type(schema: dict[str, Any]) -> dict[str, Any]:
    types: list[str] = schema["type"] if is_array(schema["type"]) else [schema["type"]]
    found = {**schema, "type": [*types, *(() if "null" in types else ("null",))]}
    values = found.get("enum", [found.pop("const")] if "const" in found else None)
    return found if values is None else {**found, "enum": [*values, *(() if None in values else (None,))]}


def _with_keyword(branches: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """`nullable` in each branch, in place of a branch for null."""
    others = [each for each in branches if each.get("type") != "null"]
    if len(others) == len(branches) or not others:
        return branches
    return [{**each, "nullable": True} for each in others]


def _joined(text: str, schema: dict[str, Any]) -> str:
    own = schema.get("description", "")
    return text if not own or own in text else f"{text} {own}"
