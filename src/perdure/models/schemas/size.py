"""How large a schema is, and whether that is too large for a provider. Above: the package. Below: `dialect.py`."""

from collections.abc import Iterator
from typing import Any

from perdure.core.definitions import is_array, is_object

from .dialect import Dialect

_MAPS = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")
_LISTS = ("anyOf", "oneOf", "allOf", "prefixItems")
_SINGLES = ("items", "additionalProperties", "not", "if", "then", "else", "contains", "propertyNames")
_MOST_LEVELS = 100


def parts(schema: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """The schemas within a schema, each with where it is."""
    for word in _MAPS:
        inner = schema.get(word)
        if is_object(inner):
            yield from inner.items()
    for word in _LISTS:
        inner = schema.get(word)
        if is_array(inner):
            yield from ((f"{word}/{place}", each) for place, each in enumerate(inner))
    for word in _SINGLES:
        if is_object(schema.get(word)):
            yield word, schema[word]


def oversizes(schema: dict[str, Any], dialect: Dialect) -> Iterator[str]:
    """In which respects it is larger than the provider takes."""
    if dialect.most_properties is None or dialect.most_levels is None:
        return
    properties, levels = _measured(schema, 0)
    if properties > dialect.most_properties:
        yield f"there are {properties} properties, more than {dialect.most_properties}"
    if levels > dialect.most_levels:
        yield f"objects are nested {levels} deep, more than {dialect.most_levels}"


def _measured(schema: dict[str, Any], level: int) -> tuple[int, int]:
    """How many properties there are, and how deep objects are nested."""
    properties = schema.get("properties")
    count = len(properties) if is_object(properties) else 0
    level += count > 0
    deepest = level
    for _, each in parts(schema) if level <= _MOST_LEVELS else ():
        if is_object(each):
            more, depth = _measured(each, level)
            count, deepest = count + more, max(deepest, depth)
    return count, deepest
