"""Which rules of a provider a schema breaks, found without asking it. Above: lints, and tests. Below: `dialect.py`.

Written apart from the compiler, on purpose: each is a check of the other.
"""

from collections.abc import Iterator
from typing import Any

from perdure.core.definitions import is_array, is_object

from .dialect import DIALECTS, Dialect, is_simple
from .repair import TYPES
from .size import oversizes, parts

_MOST_LEVELS = 100
_BESIDE_UNION = frozenset({"anyOf", "$defs"})


def violations(schema: Any, rules: str) -> list[str]:
    """What the provider would refuse, each in a sentence. Nothing when it would take the schema."""
    dialect = DIALECTS[rules]
    if not is_object(schema):
        return [f"the schema is {schema!r}, and no object"]
    found = [*_at_top(schema, dialect, rules)]
    if rules != "plain":
        found += _Walk(schema, dialect).node(schema, "", 0)
        found += oversizes(schema, dialect)
    return found


def _at_top(schema: dict[str, Any], dialect: Dialect, rules: str) -> Iterator[str]:
    unions = [word for word in ("anyOf", "oneOf", "allOf", "not", "enum") if word in schema]
    if unions and not dialect.top_union:
        yield f"there is {unions[0]!r} at the top"
    if rules == "plain" and ("$ref" in schema or unions):
        return
    if schema.get("type") != "object" and not unions:
        yield "the top is not of type 'object'"
    if not is_object(schema.get("properties")) and not unions:
        yield "the top has no properties"


class _Walk:
    """One look at a whole schema."""

    def __init__(self, root: dict[str, Any], dialect: Dialect) -> None:
        self._root = root
        self._dialect = dialect

    def node(self, schema: Any, where: str, level: int) -> Iterator[str]:
        if level > _MOST_LEVELS:
            yield f"{where}: nested too deep"
        elif not is_object(schema):
            if self._dialect.keywords is not None or not isinstance(schema, bool):
                yield f"{where}: {schema!r} is no schema"
        else:
            yield from self._words(schema, where)
            yield from self._types(schema, where)
            yield from self._values(schema, where)
            yield from self._objects(schema, where)
            yield from self._references(schema, where)
            yield from self._unions(schema, where)
            for name, each in parts(schema):
                yield from self.node(each, f"{where}/{name}", level + 1)

    def _words(self, schema: dict[str, Any], where: str) -> Iterator[str]:
        dialect = self._dialect
        for word in sorted(schema.keys() - (dialect.keywords if dialect.keywords is not None else schema.keys())):
            yield f"{where}: the word {word!r} is not known"
        told = schema.get("format")
        kinds = _listed(schema.get("type"))
        if told and dialect.formats is not None and not any(told in dialect.formats.get(kind, ()) for kind in kinds):
            yield f"{where}: the format {told!r} is not known"
        if dialect.simple_patterns and "pattern" in schema and not is_simple(schema["pattern"]):
            yield f"{where}: the pattern {schema['pattern']!r} is not simple enough"
        least = schema.get("minItems", 0)
        if dialect.most_least_items is not None and least > dialect.most_least_items:
            yield f"{where}: minItems is {least!r}"
        for word in ("minItems", "maxItems", "minLength", "maxLength"):
            if dialect.most_repeats is not None and schema.get(word, 0) > dialect.most_repeats:
                yield f"{where}: {word} is {schema[word]!r}, more than a grammar can repeat"
        for word in ("exclusiveMinimum", "exclusiveMaximum"):
            if isinstance(schema.get(word), bool):
                yield f"{where}: {word} is a flag, as in draft 4"

    def _types(self, schema: dict[str, Any], where: str) -> Iterator[str]:
        dialect, told = self._dialect, schema.get("type")
        for kind in _listed(told):
            if kind not in TYPES:
                yield f"{where}: there is no type {kind!r}"
        if is_array(told) and dialect.nulls != "type" and dialect.keywords is not None:
            yield f"{where}: a list of types"
        if dialect.typed and told is None and not schema.keys() & {"anyOf", "$ref"}:
            yield f"{where}: there is no type"
        if dialect.needs_items and told == "array" and not is_object(schema.get("items")):
            yield f"{where}: an array must say what is in it"
        if is_array(schema.get("items")):
            yield f"{where}: items are a list, as in draft 7"

    def _values(self, schema: dict[str, Any], where: str) -> Iterator[str]:
        values = schema.get("enum")
        if values is None:
            return
        if not is_array(values) or not values:
            yield f"{where}: enum is {values!r}"
            return
        if self._dialect.text_enums and not all(isinstance(value, str) and value for value in values):
            yield f"{where}: enum holds something else than text"
        if self._dialect.text_enums and schema.get("type") != "string":
            yield f"{where}: enum of something else than text"
        if self._dialect.plain_enums and any(isinstance(value, (dict, list)) for value in values):
            yield f"{where}: enum holds objects or arrays"

    def _objects(self, schema: dict[str, Any], where: str) -> Iterator[str]:
        dialect = self._dialect
        properties: Any = schema.get("properties", {})
        required: Any = schema.get("required", [])
        if not is_object(properties) or not is_array(required):
            yield f"{where}: properties or required are not as they should be"
            return
        if dialect.keywords is not None and set(required) - properties.keys():
            yield f"{where}: something is required that is no property"
        if dialect.all_required and set(properties) - set(required):
            yield f"{where}: not all properties are required"
        if (
            dialect.closed
            and "object" in _listed(schema.get("type"))
            and schema.get("additionalProperties") is not False
        ):
            yield f"{where}: additionalProperties is not false"
        if where and not dialect.empty_objects and schema.get("properties") == {}:
            yield f"{where}: there are no properties"
        if (
            "object" not in _listed(schema.get("type"))
            and dialect.keywords is not None
            and schema.keys() & {"properties", "required"}
        ):
            yield f"{where}: properties of something else than an object"
        for name in properties:
            if dialect.property_names is not None and not dialect.property_names.fullmatch(name):
                yield f"{where}: no property may be called {name!r}"

    def _references(self, schema: dict[str, Any], where: str) -> Iterator[str]:
        if "$ref" not in schema:
            return
        told = schema["$ref"]
        definitions = self._root.get("$defs", {})
        if not self._dialect.references:
            yield f"{where}: references are not known"
        elif not isinstance(told, str) or told.removeprefix("#/$defs/") not in definitions:
            yield f"{where}: refers to {told!r}, and there is nothing"
        if not self._dialect.annotated_references and len(schema) > 1:
            yield f"{where}: something stands beside a reference"

    def _unions(self, schema: dict[str, Any], where: str) -> Iterator[str]:
        if "anyOf" not in schema:
            return
        if self._dialect.lone_union and schema.keys() - _BESIDE_UNION:
            yield f"{where}: something stands beside anyOf"


def _listed(value: Any) -> list[Any]:
    if value is None:
        return []
    return value if is_array(value) else [value]
