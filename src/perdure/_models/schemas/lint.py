"""Check schemas offline against the rules of a provider's JSON Schema dialect, and measure their size and depth."""

from collections.abc import Iterator
from typing import Any

from perdure._core.schema.definitions import is_json_array, is_json_object

from .dialects import DIALECTS, SchemaDialect, is_portable_pattern
from .normalize import TYPES

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


_BESIDE_UNION = frozenset({"anyOf", "$defs"})


def find_violations(schema: Any, rules: str) -> list[str]:
    """Return a sentence for each rule of a provider's dialect that a schema breaks; empty if it would be accepted."""
    dialect = DIALECTS[rules]
    if not is_json_object(schema):
        return [f"the schema is {schema!r}, not an object"]
    found = [*_check_top(schema, dialect, rules)]
    if rules != "plain":
        found += _SchemaChecker(schema, dialect).check_node(schema, "", 0)
        found += find_exceeded_limits(schema, dialect)
    return found


def _check_top(schema: dict[str, Any], dialect: SchemaDialect, rules: str) -> Iterator[str]:
    unions = [word for word in ("anyOf", "oneOf", "allOf", "not", "enum") if word in schema]
    if unions and not dialect.top_union:
        yield f"there is {unions[0]!r} at the top"
    if rules == "plain" and ("$ref" in schema or unions):
        return
    if schema.get("type") != "object" and not unions:
        yield "the top is not of type 'object'"
    if not is_json_object(schema.get("properties")) and not unions:
        yield "the top has no properties"


class _SchemaChecker:
    """Checker of a schema and its subschemas against the rules of a dialect."""

    def __init__(self, root: dict[str, Any], dialect: SchemaDialect) -> None:
        self._root = root
        self._dialect = dialect

    def check_node(self, schema: Any, where: str, level: int) -> Iterator[str]:
        if level > _MAX_LEVELS:
            yield f"{where}: nested too deep"
        elif not is_json_object(schema):
            if self._dialect.keywords is not None or not isinstance(schema, bool):
                yield f"{where}: {schema!r} is not a schema"
        else:
            yield from self._check_keywords(schema, where)
            yield from self._check_types(schema, where)
            yield from self._check_enum(schema, where)
            yield from self._check_object(schema, where)
            yield from self._check_reference(schema, where)
            yield from self._check_union(schema, where)
            for name, each in iterate_direct_subschemas(schema):
                yield from self.check_node(each, f"{where}/{name}", level + 1)

    def _check_keywords(self, schema: dict[str, Any], where: str) -> Iterator[str]:
        dialect = self._dialect
        for word in sorted(schema.keys() - (dialect.keywords if dialect.keywords is not None else schema.keys())):
            yield f"{where}: the keyword {word!r} is not supported"
        told = schema.get("format")
        kinds = _as_list(schema.get("type"))
        if told and dialect.formats is not None and not any(told in dialect.formats.get(kind, ()) for kind in kinds):
            yield f"{where}: the format {told!r} is not supported"
        if dialect.simple_patterns and "pattern" in schema and not is_portable_pattern(schema["pattern"]):
            yield f"{where}: the pattern {schema['pattern']!r} is not simple enough"
        least = schema.get("minItems", 0)
        if dialect.max_min_items is not None and least > dialect.max_min_items:
            yield f"{where}: minItems is {least!r}"
        for word in ("minItems", "maxItems", "minLength", "maxLength"):
            if dialect.max_repeats is not None and schema.get(word, 0) > dialect.max_repeats:
                yield f"{where}: {word} is {schema[word]!r}, more than a grammar can repeat"
        for word in ("exclusiveMinimum", "exclusiveMaximum"):
            if isinstance(schema.get(word), bool):
                yield f"{where}: {word} is a flag, as in draft 4"

    def _check_types(self, schema: dict[str, Any], where: str) -> Iterator[str]:
        dialect, told = self._dialect, schema.get("type")
        for kind in _as_list(told):
            if kind not in TYPES:
                yield f"{where}: there is no type {kind!r}"
        if is_json_array(told) and dialect.nulls != "type" and dialect.keywords is not None:
            yield f"{where}: a list of types"
        if dialect.type_required and told is None and not schema.keys() & {"anyOf", "$ref"}:
            yield f"{where}: there is no type"
        if dialect.needs_items and told == "array" and not is_json_object(schema.get("items")):
            yield f"{where}: an array must have items"
        if is_json_array(schema.get("items")):
            yield f"{where}: items are a list, as in draft 7"

    def _check_enum(self, schema: dict[str, Any], where: str) -> Iterator[str]:
        values = schema.get("enum")
        if values is None:
            return
        if not is_json_array(values) or not values:
            yield f"{where}: enum is {values!r}"
            return
        if self._dialect.only_text_enums and not all(isinstance(value, str) and value for value in values):
            yield f"{where}: enum contains a value that is not text"
        if self._dialect.only_text_enums and schema.get("type") != "string":
            yield f"{where}: enum of a type other than string"
        if self._dialect.only_scalar_enums and any(isinstance(value, (dict, list)) for value in values):
            yield f"{where}: enum contains objects or arrays"

    def _check_object(self, schema: dict[str, Any], where: str) -> Iterator[str]:
        dialect = self._dialect
        properties: Any = schema.get("properties", {})
        required: Any = schema.get("required", [])
        if not is_json_object(properties) or not is_json_array(required):
            yield f"{where}: properties or required are malformed"
            return
        if dialect.keywords is not None and set(required) - properties.keys():
            yield f"{where}: a required name is not a property"
        if dialect.all_required and set(properties) - set(required):
            yield f"{where}: not all properties are required"
        if (
            dialect.must_be_closed
            and "object" in _as_list(schema.get("type"))
            and schema.get("additionalProperties") is not False
        ):
            yield f"{where}: additionalProperties is not false"
        if where and not dialect.empty_objects and schema.get("properties") == {}:
            yield f"{where}: there are no properties"
        if (
            "object" not in _as_list(schema.get("type"))
            and dialect.keywords is not None
            and schema.keys() & {"properties", "required"}
        ):
            yield f"{where}: properties of a type other than object"
        for name in properties:
            if dialect.property_names is not None and not dialect.property_names.fullmatch(name):
                yield f"{where}: no property may be called {name!r}"

    def _check_reference(self, schema: dict[str, Any], where: str) -> Iterator[str]:
        if "$ref" not in schema:
            return
        told = schema["$ref"]
        definitions = self._root.get("$defs", {})
        if not self._dialect.references:
            yield f"{where}: references are not supported"
        elif not isinstance(told, str) or told.removeprefix("#/$defs/") not in definitions:
            yield f"{where}: refers to {told!r}, which does not exist"
        if not self._dialect.annotated_references and len(schema) > 1:
            yield f"{where}: there are keywords beside a reference"

    def _check_union(self, schema: dict[str, Any], where: str) -> Iterator[str]:
        if "anyOf" not in schema:
            return
        if self._dialect.lone_union and schema.keys() - _BESIDE_UNION:
            yield f"{where}: there are keywords beside anyOf"


def _as_list(value: Any) -> list[Any]:
    if value is None:
        return []
    return value if is_json_array(value) else [value]
