"""Compile the JSON Schemas of tools and outputs to the dialect that each provider supports. No I/O; cached."""

from collections import OrderedDict
from collections.abc import Mapping
from typing import Any, TypeAlias

import msgspec
from msgspec import Struct

from perdure._core.schema.definitions import is_json_array, is_json_object
from perdure._core.values.error import ConfigError
from perdure._core.values.jsonable import to_jsonable

from .build import (
    TypedDialectSchemaBuilder,
    build_any_value_schema,
    build_title_field,
    build_truncated_schema,
    build_union_schema,
    make_nullable,
)
from .dialects import DIALECTS, SchemaDialect
from .lint import find_exceeded_limits, find_violations
from .merge import merge_schemas, merge_top_union
from .normalize import SchemaDocument, get_possible_types, upgrade_schema_draft
from .notes import build_description_field, describe_keyword

MAX_NODES = 4_000
"""Maximum number of nodes in a compiled schema."""

ReferencePath: TypeAlias = tuple[str, ...]
"""References that were followed on the way to a schema."""

_ANNOTATIONS = frozenset({"title", "description", "default", "examples", "example", "$comment", "deprecated"})
_DEFINITIONS = ("$defs", "definitions")
_MAPS = ("properties", "patternProperties", "dependentSchemas")
_LISTS = ("anyOf", "oneOf", "allOf", "prefixItems")
_SINGLES = (
    *("items", "additionalProperties", "not", "if", "then", "else", "contains", "propertyNames"),
    *("unevaluatedItems", "unevaluatedProperties"),
)


class TooManySchemaNodes(Exception):
    """Raised when a compiled schema has too many nodes; always caught within the package `schemas`."""


class SchemaCompiler:
    """Compiler of one schema to one provider's dialect. `inexact` lists constraints that the dialect cannot express."""

    __slots__ = ("_definitions", "_depth", "_left", "_pending", "_unfolded", "dialect", "document", "inexact")

    def __init__(self, document: SchemaDocument, dialect: SchemaDialect, depth: int, unfolded: int) -> None:
        self.document = document
        self.dialect = dialect
        self.inexact: list[str] = []
        self._depth = depth
        self._unfolded = unfolded
        self._left = MAX_NODES
        self._definitions: dict[str, Any] = {}
        self._pending: list[str] = []

    def compile_root(self) -> dict[str, Any]:
        """Compile the whole schema to an object, with its definitions."""
        found = self.compile_node(self._build_root_object(), 0, ())
        if found.get("type") == "object":
            found = {"type": "object", "properties": dict[str, Any](), **found}
        elif "anyOf" not in found:  # a union without an object
            found = {"type": "object", "properties": dict[str, Any](), **build_description_field(found, ())}
        while self._pending:
            reference = self._pending.pop()
            self._definitions[self.document.get_definition_name(reference)] = self.compile_node(
                self.document.resolve_reference(reference), 1, ()
            )
        if self._definitions:
            found["$defs"] = dict(sorted(self._definitions.items()))
        return found

    def _build_root_object(self) -> dict[str, Any]:
        """Resolve the root's reference; if the dialect needs an object there, turn a union at the top into one."""
        root, inside = self._resolve_reference(_drop_keys(self.document.root, *_DEFINITIONS), ())
        root, _ = self._flatten(root, inside)
        if self.dialect.top_union and ("anyOf" in root or "oneOf" in root):
            return root
        one = merge_top_union(root, lambda each: self._resolve_reference(each, ())[0])
        if one is not root:
            self.inexact.append("alternatives at the top")
        return {**one, "type": "object"}

    # -- one schema ----------------------------------------------------------------------------------------------------

    def compile_node(self, schema: Any, depth: int, inside: ReferencePath) -> dict[str, Any]:
        """Compile a schema at any depth, and its subschemas. Raises `TooManySchemaNodes`."""
        self._left -= 1
        if self._left < 0:
            raise TooManySchemaNodes
        if not is_json_object(schema):
            return self._build_any_value({}, ["leave this out"] if schema is False else [])
        schema = upgrade_schema_draft(schema)
        if self.dialect.keywords is not None:
            schema, inside = self._flatten(schema, inside)
        if "$ref" in schema:
            return self._compile_reference(schema, depth, inside)
        if depth > self._depth:
            return self._truncate(schema)
        if self.dialect.keywords is None:
            return self._compile_subschemas(schema, depth, inside)
        return self._compile_supported(schema, depth, inside)

    def _compile_supported(self, schema: dict[str, Any], depth: int, inside: ReferencePath) -> dict[str, Any]:
        """Compile a schema to the keywords that the dialect supports."""
        notes: list[str] = []
        if "oneOf" in schema and "anyOf" in schema:
            notes.append(describe_keyword("oneOf", schema["oneOf"]))
        elif "oneOf" in schema:
            schema["anyOf"] = schema["oneOf"]
        if "const" in schema and "const" not in (self.dialect.keywords or ()):
            schema["enum"] = [schema.pop("const")]
        if "anyOf" in schema:
            return self._compile_union(_drop_keys(schema, "oneOf"), notes, depth, inside)
        return self._compile_by_type(schema, notes, depth, inside)

    def _compile_subschemas(self, schema: dict[str, Any], depth: int, inside: ReferencePath) -> dict[str, Any]:
        """Compile only the subschemas, for a dialect that supports all keywords."""
        found = _drop_keys(schema, *_DEFINITIONS, "$schema", "$id")
        for key in _MAPS:
            if key in found:
                found[key] = {name: self.compile_node(each, depth + 1, inside) for name, each in found[key].items()}
        for key in _LISTS:
            if is_json_array(found.get(key)):
                found[key] = [self.compile_node(each, depth + 1, inside) for each in found[key]]
        for key in _SINGLES:
            if is_json_object(found.get(key)):
                found[key] = self.compile_node(found[key], depth + 1, inside)
        return found

    def _build_any_value(self, schema: dict[str, Any], notes: list[str]) -> dict[str, Any]:
        if self.dialect.must_be_closed:
            self.inexact.append("a value of any kind")
        return build_any_value_schema(schema, notes, self.dialect)

    def _truncate(self, schema: dict[str, Any]) -> dict[str, Any]:
        if self.dialect.must_be_closed:
            self.inexact.append("what is nested too deep, or within itself")
        return build_truncated_schema(schema, self.dialect)

    # -- references and allOf ------------------------------------------------------------------------------------------

    def _compile_reference(self, schema: dict[str, Any], depth: int, inside: ReferencePath) -> dict[str, Any]:
        reference: str = schema["$ref"]
        beside = _drop_keys(schema, "$ref", *_DEFINITIONS)
        unfolded = inside.count(reference) > self._unfolded or depth > self._depth
        if self.dialect.references and (unfolded or not beside or self.dialect.annotated_references):
            return {"$ref": self._add_definition(reference), **(beside if self.dialect.annotated_references else {})}
        followed, inside = self._resolve_reference(schema, inside)
        return self._truncate(followed) if unfolded else self.compile_node(followed, depth + 1, inside)

    def _add_definition(self, reference: str) -> str:
        """Return the reference to a target under `$defs`, and queue the target for compilation."""
        name = self.document.get_definition_name(reference)
        if name not in self._definitions:
            self.document.resolve_reference(reference)  # raises if it does not exist
            self._definitions[name] = {}
            self._pending.append(reference)
        return f"#/$defs/{name}"

    def _resolve_reference(self, schema: dict[str, Any], inside: ReferencePath) -> tuple[dict[str, Any], ReferencePath]:
        """Replace a reference by its target, merged with the keywords beside it."""
        schema, seen = upgrade_schema_draft(schema), set[str]()
        while "$ref" in schema:
            reference = schema.pop("$ref")
            target = self.document.resolve_reference(reference)
            if reference not in seen and is_json_object(target):
                schema = merge_schemas(schema, _drop_keys(upgrade_schema_draft(target), *_DEFINITIONS))
            seen.add(reference)
            inside = (*inside, reference)
        return schema, inside

    def _flatten(self, schema: dict[str, Any], inside: ReferencePath) -> tuple[dict[str, Any], ReferencePath]:
        """Remove `allOf`, and unions with one member, by merging them."""
        while True:
            schema, inside = self._merge_all_of(schema, inside)
            for word in ("anyOf", "oneOf"):
                branches = schema.get(word)
                if is_json_array(branches) and len(branches) == 1 and is_json_object(branches[0]):
                    schema = merge_schemas(_drop_keys(schema, word), upgrade_schema_draft(branches[0]))
                    break
            else:
                return schema, inside

    def _merge_all_of(self, schema: dict[str, Any], inside: ReferencePath) -> tuple[dict[str, Any], ReferencePath]:
        """Merge the members of `allOf` into the schema."""
        while "allOf" in schema:
            parts, schema = schema["allOf"], _drop_keys(schema, "allOf")
            if len(parts) == 1 and is_json_object(parts[0]) and not schema.keys() - _ANNOTATIONS:
                schema = {**upgrade_schema_draft(parts[0]), **schema}
                continue
            for part in parts:
                self._left -= 1
                if self._left < 0:
                    raise TooManySchemaNodes
                if is_json_object(part) and inside.count(part.get("$ref", "")) <= self._unfolded:
                    followed, inside = self._resolve_reference(part, inside)
                    schema = merge_schemas(schema, followed)
        return schema, inside

    # -- unions and types ----------------------------------------------------------------------------------------------

    def _compile_union(
        self, schema: dict[str, Any], notes: list[str], depth: int, inside: ReferencePath
    ) -> dict[str, Any]:
        """Compile a union. The keywords beside `anyOf` are merged into every branch."""
        beside = {key: value for key, value in schema.items() if key != "anyOf" and key not in _ANNOTATIONS}
        compiled: list[dict[str, Any]] = []
        for branch in schema["anyOf"]:
            if beside and is_json_object(branch):
                followed, within = self._resolve_reference(branch, inside)
                compiled.append(self.compile_node(merge_schemas(followed, beside), depth + 1, within))
            else:
                compiled.append(self.compile_node(branch, depth + 1, inside))
        return build_union_schema(compiled, schema, notes, self.dialect)

    def _compile_by_type(
        self, schema: dict[str, Any], notes: list[str], depth: int, inside: ReferencePath
    ) -> dict[str, Any]:
        types = get_possible_types({"enum": [schema["const"]], **schema} if "const" in schema else schema)
        kinds = [each for each in types if each != "null"]
        if not types:
            return self._build_any_value(schema, notes)
        if not kinds:
            return {"type": "null", **build_title_field(schema), **build_description_field(schema, notes)}
        if len(kinds) > 1 and (self.dialect.nulls != "type" or {"object", "array"} & {*kinds}):
            compiled = [self._compile_types(schema, [each], notes, depth, inside) for each in kinds]
            nulls: list[dict[str, Any]] = [{"type": "null"}] if "null" in types else []
            return build_union_schema([*compiled, *nulls], {}, (), self.dialect)
        found = self._compile_types(schema, kinds, notes, depth, inside)
        return make_nullable(found, self.dialect) if "null" in types else found

    # -- contents of objects and arrays --------------------------------------------------------------------------------

    def _compile_types(
        self, schema: dict[str, Any], kinds: list[str], notes: list[str], depth: int, inside: ReferencePath
    ) -> dict[str, Any]:
        part = TypedDialectSchemaBuilder(schema, kinds, notes, self.dialect)
        if kinds == ["object"]:
            self._compile_properties(part, depth, inside)
        if kinds == ["array"]:
            self._compile_items(part, depth, inside)
        self.inexact += part.inexact
        return part.build()

    def _compile_properties(self, part: TypedDialectSchemaBuilder, depth: int, inside: ReferencePath) -> None:
        told: dict[str, Any] = part.schema.get("properties", {})
        required = [name for name in dict.fromkeys(part.schema.get("required", ())) if told.get(name) is not False]
        wanted = {name: each for name, each in told.items() if each is not False}
        wanted |= {name: True for name in required if name not in wanted}
        properties = {name: self.compile_node(each, depth + 1, inside) for name, each in wanted.items()}
        if self.dialect.all_required:
            for name in [name for name in properties if name not in set(required)]:
                made = make_nullable(properties[name], self.dialect)
                if made != properties[name]:  # the enforced schema would allow null where null is invalid
                    part.inexact.append("what may be left out, and may not be null")
                properties[name] = made
            required = list(properties)
        if properties or self.dialect.empty_objects:
            part.found["properties"] = properties
        if required or self.dialect.all_required:
            part.found["required"] = required
        self._set_additional_properties(part, depth, inside)

    def _set_additional_properties(self, part: TypedDialectSchemaBuilder, depth: int, inside: ReferencePath) -> None:
        """Set `additionalProperties` of an object schema as the dialect requires."""
        further = part.schema.get("additionalProperties")
        if self.dialect.must_be_closed:
            part.found["additionalProperties"] = False
            if further is True or is_json_object(further) or (further is None and not part.found.get("properties")):
                part.inexact.append("properties of any name")
        elif not part.has_keyword("additionalProperties"):
            part.notes.append(describe_keyword("additionalProperties", further))
        elif further is not None:
            is_schema = is_json_object(further)
            part.found["additionalProperties"] = self.compile_node(further, depth + 1, inside) if is_schema else further

    def _compile_items(self, part: TypedDialectSchemaBuilder, depth: int, inside: ReferencePath) -> None:
        prefix, items = part.schema.get("prefixItems"), part.schema.get("items")
        if is_json_array(prefix) and part.has_keyword("prefixItems"):
            part.found["prefixItems"] = [self.compile_node(each, depth + 1, inside) for each in prefix]
            if items is False:
                part.found["items"] = False
        elif is_json_array(prefix) and prefix:
            part.notes.append(describe_keyword("prefixItems", prefix))
            if items is False and "maxItems" not in part.schema:
                part.set_keyword("maxItems", len(prefix))
            is_open = items is None or items is True  # what follows the prefix may be anything
            items = None if is_open else {"anyOf": [*prefix, *([items] if is_json_object(items) else [])]}
        if is_json_object(items):
            part.found["items"] = self.compile_node(items, depth + 1, inside)
        elif "prefixItems" not in part.found and (self.dialect.needs_items or self.dialect.must_be_closed):
            part.found["items"] = self._build_any_value({}, [])


def _drop_keys(schema: dict[str, Any], *words: str) -> dict[str, Any]:
    return {key: value for key, value in schema.items() if key not in words}


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
