"""Build a JSON Schema with known types (string, number, object, array) in the dialect of a provider."""

from collections.abc import Iterable, Mapping
from typing import Any

from perdure.core.schema_definitions import is_json_array

from .dialect_table import SchemaDialect, is_portable_pattern
from .schema_upgrade import get_json_type
from .unsupported_keyword_notes import build_description_field, describe_keyword

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
