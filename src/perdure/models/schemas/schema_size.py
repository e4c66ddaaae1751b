"""Measure the size and depth of a JSON Schema, and check them against the limits of a provider."""

from collections.abc import Iterator
from typing import Any

from perdure.core.schema_definitions import is_json_array, is_json_object

from .dialect_table import SchemaDialect

_MAPS = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")
_LISTS = ("anyOf", "oneOf", "allOf", "prefixItems")
_SINGLES = ("items", "additionalProperties", "not", "if", "then", "else", "contains", "propertyNames")
_MAX_LEVELS = 100


def iterate_direct_subschemas(schema: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield the direct subschemas of a schema, each with its path inside it."""
    for word in _MAPS:
        inner = schema.get(word)
        if is_json_object(inner):
            yield from inner.items()
    for word in _LISTS:
        inner = schema.get(word)
        if is_json_array(inner):
            yield from ((f"{word}/{place}", each) for place, each in enumerate(inner))
    for word in _SINGLES:
        if is_json_object(schema.get(word)):
            yield word, schema[word]


def find_exceeded_limits(schema: dict[str, Any], dialect: SchemaDialect) -> Iterator[str]:
    """Yield a sentence for each size limit of the dialect that a schema exceeds."""
    if dialect.max_properties is None or dialect.max_levels is None:
        return
    properties, levels = _measure_schema(schema, 0)
    if properties > dialect.max_properties:
        yield f"there are {properties} properties, more than {dialect.max_properties}"
    if levels > dialect.max_levels:
        yield f"objects are nested {levels} deep, more than {dialect.max_levels}"


def _measure_schema(schema: dict[str, Any], level: int) -> tuple[int, int]:
    """Return the number of properties, and the maximum nesting of objects."""
    properties = schema.get("properties")
    count = len(properties) if is_json_object(properties) else 0
    level += count > 0
    deepest = level
    for _, each in iterate_direct_subschemas(schema) if level <= _MAX_LEVELS else ():
        if is_json_object(each):
            more, depth = _measure_schema(each, level)
            count, deepest = count + more, max(deepest, depth)
    return count, deepest
