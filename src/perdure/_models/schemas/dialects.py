"""Table of the JSON Schema dialects: the keywords and limits that each provider supports.

This is all that is known about a provider: the compiler and the checker have no rules of their own.
"""

import re
from collections.abc import Mapping
from typing import Literal, TypeAlias

from msgspec import Struct

NullStyle: TypeAlias = Literal["type", "keyword", "union"]
"""How a nullable type is written: in a list of types; with `nullable`; as another member of `anyOf`."""


class SchemaDialect(Struct, frozen=True, kw_only=True):
    """JSON Schema keywords and limits that one provider supports."""

    keywords: frozenset[str] | None = None
    """Supported keywords. `None`: all of draft 2020-12, so that only the top has to be changed."""
    references: bool = True
    """True if `$ref` and `$defs` are supported; else references are replaced by their targets."""
    annotated_references: bool = True
    """True if other keywords are allowed beside `$ref`."""
    top_union: bool = False
    """True if the top may be `anyOf` and the like; else it is folded into one object."""
    lone_union: bool = False
    """True if no other keyword is allowed beside `anyOf`."""
    must_be_closed: bool = False
    """True if every object must have `additionalProperties: false`."""
    all_required: bool = False
    """True if all properties must be required, so that optional ones become nullable."""
    type_required: bool = False
    """True if each schema must have a type."""
    nulls: NullStyle = "type"
    only_text_enums: bool = False
    """True if `enum` may only contain non-empty strings."""
    only_scalar_enums: bool = False
    """True if `enum` may contain neither objects nor arrays."""
    empty_objects: bool = True
    """True if `properties` may be empty, below the top."""
    needs_items: bool = False
    """True if an array must have `items`."""
    formats: Mapping[str, frozenset[str]] | None = None
    """Supported formats by type. `None`: any."""
    simple_patterns: bool = False
    """True if patterns must be simple and anchored at both ends."""
    max_min_items: int | None = None
    """Maximum value of `minItems`."""
    max_repeats: int | None = None
    """Maximum number of repetitions in a grammar: larger bounds are left out."""
    property_names: re.Pattern[str] | None = None
    """Pattern that names of properties must match."""
    max_properties: int | None = None
    max_levels: int | None = None
    """Maximum nesting of objects."""


_BASE = frozenset({"type", "title", "description", "enum", "properties", "required", "items", "anyOf"})
_REFERENCES = frozenset({"$ref", "$defs"})
_BOUNDS = frozenset({"minimum", "maximum"})
_OPEN_BOUNDS = frozenset({"exclusiveMinimum", "exclusiveMaximum"})
_ITEMS = frozenset({"minItems", "maxItems"})
_LENGTHS = frozenset({"minLength", "maxLength"})
_OPENAI_FORMATS = frozenset("date-time time date duration email hostname ipv4 ipv6 uuid".split())  # noqa: SIM905
_NAMES = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_PORTABLE_PATTERN = re.compile(
    r"\^(?:[A-Za-z0-9 _:/@%,=<>#!~;&'-]|\[\^?[A-Za-z0-9 _.:/-]+\]|\((?!\?)|[).|*+?]|\{[0-9]{1,3}(?:,[0-9]{0,3})?\})*\$"
)
"""Patterns that every regular-expression engine reads in the same way."""

DIALECTS: Mapping[str, SchemaDialect] = {
    # Any schema with an object at the top: for unknown servers.
    "plain": SchemaDialect(top_union=True),
    "openai": SchemaDialect(),
    "mistral": SchemaDialect(),
    "anthropic": SchemaDialect(property_names=_NAMES),
    "bedrock": SchemaDialect(references=False, property_names=_NAMES),
    "openai_strict": SchemaDialect(
        keywords=_BASE
        | _REFERENCES
        | _BOUNDS
        | _OPEN_BOUNDS
        | _ITEMS
        | {"const", "additionalProperties", "pattern", "format", "multipleOf"},
        annotated_references=False,
        must_be_closed=True,
        all_required=True,
        type_required=True,
        formats={"string": _OPENAI_FORMATS},
        max_properties=5_000,
        max_levels=10,
    ),
    "anthropic_output": SchemaDialect(
        keywords=_BASE | {"const", "additionalProperties", "pattern", "format", "minItems", "default"},
        references=False,
        must_be_closed=True,
        type_required=True,
        nulls="union",
        only_scalar_enums=True,
        formats={"string": _OPENAI_FORMATS | {"uri"}},
        simple_patterns=True,
        max_min_items=1,
    ),
    "gemini": SchemaDialect(
        keywords=_BASE
        | _BOUNDS
        | _ITEMS
        | _LENGTHS
        | {"format", "nullable", "pattern", "minProperties", "maxProperties"},
        references=False,
        lone_union=True,
        type_required=True,
        nulls="keyword",
        only_text_enums=True,
        empty_objects=False,
        needs_items=True,
        formats={
            "string": frozenset({"date-time", "enum"}),
            "integer": frozenset({"int32", "int64"}),
            "number": frozenset({"float", "double"}),
        },
    ),
    # What Gemini accepts as `responseJsonSchema` and `parametersJsonSchema`.
    "gemini_json": SchemaDialect(
        keywords=_BASE | _REFERENCES | _BOUNDS | _ITEMS | {"additionalProperties", "prefixItems", "format"},
        annotated_references=False,
        top_union=True,
        formats={
            "string": frozenset({"date-time", "date", "time"}),
            "integer": frozenset({"int32", "int64"}),
            "number": frozenset({"float", "double"}),
        },
    ),
    "kimi": SchemaDialect(
        keywords=_BASE | _BOUNDS | _ITEMS | _LENGTHS | {"additionalProperties", "default"},
        references=False,
        lone_union=True,
        type_required=True,
        nulls="union",
        needs_items=True,
    ),
    # Schemas that are converted to a grammar.
    "llamacpp": SchemaDialect(
        keywords=_BASE
        | _REFERENCES
        | _BOUNDS
        | _OPEN_BOUNDS
        | _ITEMS
        | _LENGTHS
        | {"const", "additionalProperties", "prefixItems", "pattern", "format"},
        annotated_references=False,
        top_union=True,
        formats={"string": frozenset({"date", "time", "date-time", "uuid"})},
        simple_patterns=True,
        max_repeats=1_000,
    ),
}


def is_portable_pattern(pattern: str) -> bool:
    """Return True if every regular-expression engine reads this pattern in the same way."""
    return len(pattern) < 500 and _PORTABLE_PATTERN.fullmatch(pattern) is not None  # noqa: PLR2004
