"""Build union, nullable, any-value and depth-limited schemas in the JSON Schema dialect of one provider."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from perdure.core.schema_definitions import is_json_array

from .dialect_table import SchemaDialect
from .merge import is_same_json
from .schema_upgrade import get_possible_types, upgrade_schema_draft
from .typed_dialect_schema_builder import build_title_field
from .unsupported_keyword_notes import build_description_field, describe_keyword

_NULL = {"type": "null"}


def build_union_schema(
    compiled: Iterable[dict[str, Any]], schema: Mapping[str, Any], notes: Sequence[str], dialect: SchemaDialect
) -> dict[str, Any]:
    """Build the union (`anyOf`) of compiled schemas without duplicates, with the title and description of `schema`."""
    branches: list[dict[str, Any]] = []
    for each in compiled:
        inner = each["anyOf"] if each.keys() == {"anyOf"} else [each]
        branches += [one for one in inner if not any(is_same_json(one, known) for known in branches)]
    if dialect.nulls == "keyword":
        branches = _use_nullable_keyword(branches)
    text = build_description_field(schema, [*notes, describe_keyword("default", schema.get("default"))])
    if dialect.lone_union and text:
        branches = [{**each, "description": _join_descriptions(text["description"], each)} for each in branches]
        text = {}
    if len(branches) == 1 and "$ref" not in branches[0]:
        return {**branches[0], **text}
    return {"anyOf": branches, **({} if dialect.lone_union else build_title_field(schema)), **text}


def make_nullable(schema: dict[str, Any], dialect: SchemaDialect) -> dict[str, Any]:
    """Return a compiled schema that also allows null, written as the dialect requires."""
    if "anyOf" in schema:
        return build_union_schema([*schema["anyOf"], _NULL], schema, (), dialect)
    if dialect.nulls == "keyword":
        return {**schema, "nullable": True}
    if dialect.nulls == "type" and "type" in schema:
        return _add_null_type(schema)
    about = () if dialect.lone_union else ("title", "description")
    text = {key: value for key, value in schema.items() if key in about}
    return build_union_schema(
        [{key: value for key, value in schema.items() if key not in about}, _NULL], text, (), dialect
    )


def build_any_value_schema(schema: Mapping[str, Any], notes: Sequence[str], dialect: SchemaDialect) -> dict[str, Any]:
    """Build a schema that allows any value; if the dialect requires types, a union of types.

    All arrays in the union are arrays of strings.
    """
    told = [describe_keyword(word, schema[word]) for word in ("default", "not", "examples") if word in schema]
    text = {**build_title_field(schema), **build_description_field(schema, [*notes, *told])}
    if not dialect.type_required:
        return text
    kinds: list[dict[str, Any]] = [{"type": kind} for kind in ("string", "number", "boolean")]
    if not dialect.must_be_closed:
        kinds += [{"type": "object"}, {"type": "array", "items": {"type": "string"}}]
    return build_union_schema([*kinds, _NULL], text, (), dialect)


def build_truncated_schema(schema: dict[str, Any], dialect: SchemaDialect) -> dict[str, Any]:
    """Build a schema with the type of `schema` but without its contents, to stop at a provider's maximum depth."""
    text = build_description_field(schema, ["what is in it is not described here"])
    if dialect.must_be_closed:
        needs = {"required": list[str]()} if dialect.all_required else {}
        return {"type": "object", "properties": {}, **needs, "additionalProperties": False, **text}
    types = get_possible_types(upgrade_schema_draft(schema))
    if not types and not dialect.type_required:
        return text
    kind = types[0] if types else "object"
    items = {"items": {"type": "string"}} if kind == "array" and dialect.needs_items else {}
    found: dict[str, Any] = {"type": kind, **items, **text}
    return make_nullable(found, dialect) if "null" in types and kind != "null" else found


def _add_null_type(schema: dict[str, Any]) -> dict[str, Any]:
    types: list[str] = schema["type"] if is_json_array(schema["type"]) else [schema["type"]]
    found = {**schema, "type": [*types, *(() if "null" in types else ("null",))]}
    values = found.get("enum", [found.pop("const")] if "const" in found else None)
    return found if values is None else {**found, "enum": [*values, *(() if None in values else (None,))]}


def _use_nullable_keyword(branches: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Remove a null branch, and set `nullable` in each other branch instead."""
    others = [each for each in branches if each.get("type") != "null"]
    if len(others) == len(branches) or not others:
        return branches
    return [{**each, "nullable": True} for each in others]


def _join_descriptions(text: str, schema: dict[str, Any]) -> str:
    own = schema.get("description", "")
    return text if not own or own in text else f"{text} {own}"
