"""Build typed, union, nullable, any-value and depth-limited schemas in one provider's JSON Schema dialect."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from perdure._core.schema.definitions import is_json_array

from .dialects import SchemaDialect, is_portable_pattern
from .merge import is_same_json
from .normalize import get_json_type, get_possible_types, upgrade_schema_draft
from .notes import build_description_field, describe_keyword

_NUMBERS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "format")
_KEYWORDS_BY_TYPE: Mapping[str, tuple[str, ...]] = {
    "string": ("minLength", "maxLength", "pattern", "format"),
    "number": _NUMBERS,
    "integer": _NUMBERS,
    "object": ("minProperties", "maxProperties", "patternProperties", "propertyNames"),
    "array": ("minItems", "maxItems", "uniqueItems", "contains"),
}
"""Keywords that apply to each type, besides those for its contents."""
_COMMON_KEYWORDS = ("not", "if", "then", "else", "dependentRequired", "default", "examples", "example")


class TypedDialectSchemaBuilder:
    """Builder of a provider's form of a schema with known types; constraints that it lacks become descriptions."""

    __slots__ = ("dialect", "found", "inexact", "kinds", "notes", "schema")

    def __init__(self, schema: dict[str, Any], kinds: list[str], notes: Iterable[str], dialect: SchemaDialect) -> None:
        self.schema = schema
        self.kinds = kinds
        self.dialect = dialect
        self.found: dict[str, Any] = {"type": kinds[0] if len(kinds) == 1 else kinds}
        self.notes = list(notes)
        """Notes about keywords that the dialect does not support, for the description."""
        self.inexact: list[str] = []
        """Constraints that should be enforced, but which the dialect cannot express."""
        for word in dict.fromkeys(word for kind in kinds for word in _KEYWORDS_BY_TYPE.get(kind, ())):
            if word in schema:
                self.set_keyword(word, schema[word])
        self._set_allowed_values()

    def has_keyword(self, keyword: str) -> bool:
        """Return True if the dialect supports this keyword."""
        return keyword in (self.dialect.keywords or ())

    def set_keyword(self, keyword: str, value: Any) -> None:
        """Set a keyword; if the dialect does not support it, add a note to the description instead."""
        if self.has_keyword(keyword) and self._can_set(keyword, value):
            self.found[keyword] = value
            return
        self.notes.append(describe_keyword(keyword, value))
        wider = keyword.removeprefix("exclusive").lower()
        if wider != keyword.lower() and self.has_keyword(wider) and not isinstance(value, bool):
            self.found.setdefault(wider, value)
        if keyword == "minItems" and self.has_keyword(keyword) and self.dialect.max_min_items is not None:
            self.found[keyword] = self.dialect.max_min_items
        if keyword in ("patternProperties", "propertyNames") and self.dialect.must_be_closed:
            self.inexact.append(f"{keyword} cannot be said")

    def build(self) -> dict[str, Any]:
        """Return the finished schema, with title, description and notes."""
        for word in _COMMON_KEYWORDS:
            if word in self.schema and self.has_keyword(word):
                self.found[word] = self.schema[word]
            elif word in self.schema:
                self.notes.append(describe_keyword(word, self.schema[word]))
        return {**self.found, **build_title_field(self.schema), **build_description_field(self.schema, self.notes)}

    def _can_set(self, word: str, value: Any) -> bool:
        dialect = self.dialect
        if word == "format" and dialect.formats is not None:
            return any(value in dialect.formats.get(kind, ()) for kind in self.kinds)
        if word == "pattern" and dialect.simple_patterns:
            return is_portable_pattern(value)
        if word == "minItems" and dialect.max_min_items is not None:
            return value in range(dialect.max_min_items + 1)
        if dialect.max_repeats is not None and word.endswith(("Items", "Length")):
            return isinstance(value, int) and value <= dialect.max_repeats
        return not isinstance(value, bool) or word == "uniqueItems"

    def _set_allowed_values(self) -> None:
        """Set `enum` or `const` to the allowed values that have these types."""
        if "const" in self.schema:
            self.found["const"] = self.schema["const"]
        values = self.schema.get("enum")
        if not is_json_array(values):
            return
        fitting = [value for value in values if self._is_of_type(value)]
        if not self._can_list_values(fitting):
            self.notes.append(describe_keyword("enum", fitting))
            if self.dialect.must_be_closed:
                self.inexact.append("these values cannot be listed")
        elif fitting:
            self.found["enum"] = fitting

    def _is_of_type(self, value: Any) -> bool:
        kind = get_json_type(value)
        if kind == "integer":
            return "integer" in self.kinds or "number" in self.kinds
        return kind in self.kinds or (kind == "number" and "integer" in self.kinds and float(value).is_integer())

    def _can_list_values(self, values: list[Any]) -> bool:
        if self.dialect.only_text_enums:
            return all(isinstance(value, str) and value for value in values)
        return not (self.dialect.only_scalar_enums and any(isinstance(value, (dict, list)) for value in values))


def build_title_field(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return the `title` of a schema as a dict with this one field; an empty dict if it has none."""
    return {"title": schema["title"]} if "title" in schema else {}


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
