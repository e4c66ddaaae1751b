"""Compile the JSON Schemas of tools and outputs to the dialect (subset) that each provider supports. No I/O; cached.

dialect_table.py              table: the JSON Schema features that each provider supports
compiler.py                   compile one schema to one dialect
typed_dialect_schema_builder.py       build the schema of one type
dialect_schema_builders.py      combine schemas: unions, nullable, any value
top_union_merge.py                  turn a union at the top into one object
schema_upgrade.py             convert older drafts, and OpenAPI
references.py                 resolve `$ref`
merge.py                      merge `allOf`
unsupported_keyword_notes.py  describe unsupported keywords in the description
schema_size.py                measure a schema
lint.py                       check a schema against a dialect
"""

from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Struct

from perdure.core.error import ConfigError
from perdure.core.jsonable import to_jsonable
from perdure.core.schema_definitions import is_json_object

from .compiler import SchemaCompiler, TooManySchemaNodes
from .dialect_schema_builders import build_truncated_schema
from .dialect_table import DIALECTS
from .lint import find_violations
from .references import SchemaDocument
from .schema_size import find_exceeded_limits

__all__ = ["can_be_strict", "compile_schema", "find_violations", "get_lenient_dialect", "list_schema_dialects"]

MAX_CACHED = 2_048
"""Maximum number of cached schemas."""

_ATTEMPTS = ((32, 1), (32, 0), (10, 0), (5, 0), (3, 0), (1, 0))
"""Maximum depth, and how often a definition is unfolded within itself: reduced until the result is small enough."""


class _CompiledSchema(Struct, frozen=True):
    schema: Mapping[str, Any]
    inexact: tuple[str, ...]


def compile_schema(schema: Mapping[str, Any], rules: str) -> Mapping[str, Any]:
    """Compile a schema to a provider's JSON Schema dialect; `rules` is its name (see `list_schema_dialects`).

    The result must not be modified. Raises `ConfigError` for unknown rules, and for a reference to another document or
    to nothing.
    """
    return _compile_cached(schema, rules).schema


def can_be_strict(schema: Mapping[str, Any], rules: str = "openai_strict") -> bool:
    """Return True if the compiled schema means exactly what the original means, so that a provider may enforce it."""
    return not _compile_cached(schema, rules).inexact


def get_lenient_dialect(rules: str) -> str:
    """Return the name of the same provider's dialect for schemas that it does not enforce."""
    return "openai" if rules == "openai_strict" else rules


def list_schema_dialects() -> list[str]:
    """Return the names of all JSON Schema dialects."""
    return sorted(DIALECTS)


def _compile_cached(schema: Mapping[str, Any], rules: str) -> _CompiledSchema:
    known = _by_identity.get((id(schema), rules))
    if known is not None and known[0] is schema:
        return known[1]
    if rules not in DIALECTS:
        message = f"unknown schema rules {rules!r}; use one of {', '.join(DIALECTS)}"
        raise ConfigError(message)
    own: Any = to_jsonable(schema)
    text = msgspec.json.encode(own)
    result = _by_text.get((text, rules)) or _compile_uncached(own, rules)
    _cache_result(_by_text, (text, rules), result)
    _cache_result(_by_identity, (id(schema), rules), (schema, result))
    return result


_by_identity: OrderedDict[tuple[int, str], tuple[Mapping[str, Any], _CompiledSchema]] = OrderedDict()
"""Cached results by schema object. The object is kept too, so that no other one can have its id."""
_by_text: OrderedDict[tuple[bytes, str], _CompiledSchema] = OrderedDict()


def _cache_result(kept: OrderedDict[Any, Any], key: Any, value: Any) -> None:
    kept[key] = value
    if len(kept) > MAX_CACHED:
        kept.popitem(last=False)


def _compile_uncached(schema: Any, rules: str) -> _CompiledSchema:
    dialect = DIALECTS[rules]
    root: dict[str, Any] = schema if is_json_object(schema) else {}
    if rules == "plain":
        return _CompiledSchema(_ensure_object_top(root), ())
    reasons: list[str] = []
    for depth, unfolded in _ATTEMPTS:
        compiler = SchemaCompiler(SchemaDocument(root), dialect, depth, unfolded)
        compiler.inexact += reasons
        try:
            found = compiler.compile_root()
        except TooManySchemaNodes:
            reasons = ["the schema is too large"]
        else:
            return _CompiledSchema(
                found, tuple(dict.fromkeys([*compiler.inexact, *find_exceeded_limits(found, dialect)]))
            )
    return _CompiledSchema(_ensure_object_top(build_truncated_schema({}, dialect)), tuple(reasons))


def _ensure_object_top(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the schema with an object at the top, unless the top is a reference or a union."""
    if any(word in schema for word in ("$ref", "anyOf", "oneOf", "allOf")):
        return schema
    return {**schema, "type": "object", "properties": schema.get("properties", {})}
