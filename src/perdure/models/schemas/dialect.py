"""Which JSON Schema each provider understands, as a table. Above: the package. Below: nothing.

What is not here is not known about a provider: neither the compiler nor the checker has a rule of its own.
"""

import re
from collections.abc import Mapping
from typing import Literal, TypeAlias

from msgspec import Struct

Nulls: TypeAlias = Literal["type", "keyword", "union"]
"""How "or null" is said: in a list of types; by `nullable`; by one more member of `anyOf`."""


class Dialect(Struct, frozen=True, kw_only=True):
    """What one provider takes."""

    keywords: frozenset[str] | None = None
    """The words it knows. `None`: all of draft 2020-12, so that nothing but the top has to be changed."""
    references: bool = True
    """Whether it takes `$ref` and `$defs`; else what is referred to stands in place of the reference."""
    recursion: bool = True
    """Whether a definition may refer to itself."""
    annotated_references: bool = True
    """Whether anything may stand beside `$ref`."""
    top_union: bool = False
    """Whether the top may be `anyOf` and the like; else it is folded into one object."""
    lone_union: bool = False
    """Whether `anyOf` must stand alone."""
    closed: bool = False
    """Whether every object must say `additionalProperties: false`."""
    all_required: bool = False
    """Whether all properties must be required, so that optional ones become nullable."""
    typed: bool = False
    """Whether everything must have a type."""
    nulls: Nulls = "type"
    text_enums: bool = False
    """Whether lists of allowed values may only hold text, and no empty one."""
    plain_enums: bool = False
    """Whether lists of allowed values may hold neither objects nor arrays."""
    empty_objects: bool = True
    """Whether `properties` may be empty, below the top."""
    needs_items: bool = False
    """Whether an array must say what is in it."""
    formats: Mapping[str, frozenset[str]] | None = None
    """The formats it knows, by type. `None`: it takes any."""
    simple_patterns: bool = False
    """Whether patterns have to be simple ones, with a beginning and an end."""
    most_least_items: int | None = None
    """How large `minItems` may be."""
    most_repeats: int | None = None
    """How many repetitions a grammar can be made of: bounds above are left out."""
    property_names: re.Pattern[str] | None = None
    """How properties may be called."""
    most_properties: int | None = None
    most_levels: int | None = None
    """How many objects may be nested."""


_BASE = frozenset({"type", "title", "description", "enum", "properties", "required", "items", "anyOf"})
_REFERENCES = frozenset({"$ref", "$defs"})
_BOUNDS = frozenset({"minimum", "maximum"})
_OPEN_BOUNDS = frozenset({"exclusiveMinimum", "exclusiveMaximum"})
_ITEMS = frozenset({"minItems", "maxItems"})
_LENGTHS = frozenset({"minLength", "maxLength"})
_OPENAI_FORMATS = frozenset("date-time time date duration email hostname ipv4 ipv6 uuid".split())  # noqa: SIM905
_NAMES = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_SIMPLE = re.compile(
    r"\^(?:[A-Za-z0-9 _:/@%,=<>#!~;&'-]|\[\^?[A-Za-z0-9 _.:/-]+\]|\((?!\?)|[).|*+?]|\{[0-9]{1,3}(?:,[0-9]{0,3})?\})*\$"
)
"""What every engine reads in the same way."""

DIALECTS: Mapping[str, Dialect] = {
    # Whatever it is, but with an object at the top: for servers about which nothing is known.
    "plain": Dialect(top_union=True),
    "openai": Dialect(),
    "mistral": Dialect(),
    "anthropic": Dialect(property_names=_NAMES),
    "bedrock": Dialect(references=False, property_names=_NAMES),
    "openai_strict": Dialect(
        keywords=_BASE
        | _REFERENCES
        | _BOUNDS
        | _OPEN_BOUNDS
        | _ITEMS
        | {"const", "additionalProperties", "pattern", "format", "multipleOf"},
        annotated_references=False,
        closed=True,
        all_required=True,
        typed=True,
        formats={"string": _OPENAI_FORMATS},
        most_properties=5_000,
        most_levels=10,
    ),
    "anthropic_output": Dialect(
        keywords=_BASE | {"const", "additionalProperties", "pattern", "format", "minItems", "default"},
        references=False,
        recursion=False,
        closed=True,
        typed=True,
        nulls="union",
        plain_enums=True,
        formats={"string": _OPENAI_FORMATS | {"uri"}},
        simple_patterns=True,
        most_least_items=1,
    ),
    "gemini": Dialect(
        keywords=_BASE
        | _BOUNDS
        | _ITEMS
        | _LENGTHS
        | {"format", "nullable", "pattern", "minProperties", "maxProperties"},
        references=False,
        lone_union=True,
        typed=True,
        nulls="keyword",
        text_enums=True,
        empty_objects=False,
        needs_items=True,
        formats={
            "string": frozenset({"date-time", "enum"}),
            "integer": frozenset({"int32", "int64"}),
            "number": frozenset({"float", "double"}),
        },
    ),
    # What Gemini takes as `responseJsonSchema` and `parametersJsonSchema`.
    "gemini_json": Dialect(
        keywords=_BASE | _REFERENCES | _BOUNDS | _ITEMS | {"additionalProperties", "prefixItems", "format"},
        annotated_references=False,
        top_union=True,
        formats={
            "string": frozenset({"date-time", "date", "time"}),
            "integer": frozenset({"int32", "int64"}),
            "number": frozenset({"float", "double"}),
        },
    ),
    "kimi": Dialect(
        keywords=_BASE | _BOUNDS | _ITEMS | _LENGTHS | {"additionalProperties", "default"},
        references=False,
        lone_union=True,
        typed=True,
        nulls="union",
        needs_items=True,
    ),
    # Schemas that become a grammar.
    "llamacpp": Dialect(
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
        most_repeats=1_000,
    ),
}


def is_simple(pattern: str) -> bool:
    """Whether every engine reads this pattern in the same way."""
    return len(pattern) < 500 and _SIMPLE.fullmatch(pattern) is not None  # noqa: PLR2004
