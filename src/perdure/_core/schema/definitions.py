"""The `$defs` of a JSON Schema (collect, rename, inline), and the defaults that a raw schema declares."""

from collections.abc import Callable, Collection, Sequence
from typing import Any, TypeAlias, TypeGuard

import msgspec

JsonSchema: TypeAlias = dict[str, Any]

REF = "#/$defs/"
"""The prefix of a reference to a definition of the root."""


def add_definitions(schema: JsonSchema, definitions: JsonSchema) -> JsonSchema:
    """Return the schema with the `$defs` it refers to, directly or indirectly, added from `definitions`."""
    used: JsonSchema = {}
    pending = [schema]
    while pending:
        text = msgspec.json.encode(pending.pop())
        found = [name for name in definitions if name not in used and f'"{REF}{name}"'.encode() in text]
        used |= {name: definitions[name] for name in found}
        pending += [definitions[name] for name in found]
    return {**schema, "$defs": used} if used else schema


def hoist_definitions(schema: JsonSchema, definitions: JsonSchema) -> JsonSchema:
    """Move the `$defs` of a schema into `definitions`, renamed where names clash; return the rest of the schema."""
    own: JsonSchema = schema.get("$defs", {})
    body = {key: value for key, value in schema.items() if key != "$defs"}
    if any(definitions.get(name, value) != value for name, value in own.items()):
        names = {name: _free_name(name, {*definitions, *own}) for name in own}
        references = {REF + old: REF + new for old, new in names.items()}
        body = _replace_strings(body, references)
        own = {names[name]: _replace_strings(value, references) for name, value in own.items()}
    definitions.update(own)
    return body


def _free_name(name: str, taken: Collection[str]) -> str:
    number = 2
    while f"{name}_{number}" in taken:
        number += 1
    return f"{name}_{number}"


def _replace_strings(node: Any, texts: dict[str, str]) -> Any:
    if is_json_object(node):
        return {key: _replace_strings(value, texts) for key, value in node.items()}
    if is_json_array(node):
        return [_replace_strings(value, texts) for value in node]
    return texts.get(node, node) if isinstance(node, str) else node


def inline_root_reference(schema: JsonSchema) -> JsonSchema:
    """Replace a `$ref` at the root of a schema by its definition, which stays in `$defs` if it refers to itself."""
    reference = schema.pop("$ref", None)
    if reference is None:
        return schema
    definitions = schema.pop("$defs")
    name = reference.removeprefix(REF)
    root = {**definitions[name], **schema}
    return add_definitions(root, definitions)


def add_enum_types(node: Any) -> Any:
    """Add a `type` beside each `enum` of strings or integers: some providers require it."""
    if is_json_array(node):
        return [add_enum_types(value) for value in node]
    if not is_json_object(node):
        return node
    values = node.get("enum")
    found = {key: add_enum_types(value) for key, value in node.items()}
    if is_json_array(values) and "type" not in node:
        kinds: set[type] = {type(value) for value in values}
        name = {str: "string", int: "integer"}.get(kinds.pop()) if len(kinds) == 1 else None
        return {"type": name, **found} if name else found
    return found


def is_json_object(node: Any) -> TypeGuard[JsonSchema]:
    """Return True if the value is a JSON object."""
    return isinstance(node, dict)


def is_json_array(node: Any) -> TypeGuard[list[Any]]:
    """Return True if the value is a JSON array."""
    return isinstance(node, list)


_type_of: Callable[[Any], Any] = type  # the same function, but type checkers do not narrow by it

_MAX_DEPTH = 32
_MAX_STEPS = 20_000  # a server writes the schema, and it must not be able to keep the event loop busy
_FORMS = ("allOf", "anyOf", "oneOf")
_ABSENT: Any = object()
_TYPES: dict[str, frozenset[Any]] = {
    "object": frozenset({dict}),
    "array": frozenset({list}),
    "string": frozenset({str}),
    "boolean": frozenset({bool}),
    "number": frozenset({int, float}),
    "integer": frozenset({int, float}),
    "null": frozenset({type(None)}),
}


def has_defaults(schema: Any) -> bool:
    """Return True if a schema declares a default anywhere."""
    if _type_of(schema) is dict:
        return "default" in schema or any(map(has_defaults, schema.values()))
    return _type_of(schema) is list and any(map(has_defaults, schema))


def add_schema_defaults(schema: JsonSchema, value: dict[str, Any]) -> dict[str, Any]:
    """Return an object with the defaults that its schema declares for absent properties, also in what it contains."""
    filled: dict[str, Any] = _Filling(schema).fill(schema, value, 0)
    return filled


class _Filling:
    """The defaults of one schema on their way into one value."""

    def __init__(self, root: JsonSchema) -> None:
        self.root = root
        self.steps = 0
        self.comparisons = 0

    def fill(self, schema: Any, value: Any, depth: int) -> Any:
        """Return a value with the defaults of its schema; it is not changed itself."""
        if depth > _MAX_DEPTH or _type_of(schema) is not dict:
            return value
        parts = self.list_parts(schema, value)
        if _type_of(value) is dict:
            return self.fill_object(parts, value, depth)
        return self.fill_list(parts, value, depth) if _type_of(value) is list else value

    def fill_object(self, parts: list[JsonSchema], value: dict[str, Any], depth: int) -> dict[str, Any]:
        """Add the defaults of this object first: a large schema below it cannot use up the steps for them."""
        properties: list[tuple[str, Any]] = []
        for part in parts:
            declared: Any = part.get("properties")
            properties += declared.items() if _type_of(declared) is dict else ()
        filled = dict(value)
        for name, schema in properties:
            if name not in filled:
                defaults = [each["default"] for each in self.list_parts(schema) if "default" in each]
                filled |= {name: defaults[0]} if defaults else {}
        for name, schema in properties:
            if name in filled:
                filled[name] = self.fill(schema, filled[name], depth + 1)
        others: Any = next((part["additionalProperties"] for part in parts if "additionalProperties" in part), None)
        for name in filled.keys() - dict(properties).keys():
            filled[name] = self.fill(others, filled[name], depth + 1)
        return filled

    def fill_list(self, parts: list[JsonSchema], value: list[Any], depth: int) -> list[Any]:
        """Add the defaults of each item; the first ones may have schemas of their own."""
        items: Any = next((part["items"] for part in parts if "items" in part), None)
        first: Any = next((part["prefixItems"] for part in parts if "prefixItems" in part), None)
        schemas = [*(first if _type_of(first) is list else ())][: len(value)]
        schemas += [items] * (len(value) - len(schemas))
        return [self.fill(schema, each, depth + 1) for schema, each in zip(schemas, value, strict=True)]

    def list_parts(self, schema: Any, value: Any = _ABSENT) -> list[JsonSchema]:
        """Return a schema, those that it refers to, and its forms: of several, the first that has a default counts.

        Forms that are about another value than this one do not count.
        """
        parts: list[JsonSchema] = []
        waiting, seen = [schema], set[int]()
        while waiting and self.steps < _MAX_STEPS:
            own = waiting.pop(0)
            if _type_of(own) is not dict or id(own) in seen:
                continue
            self.steps += 1
            seen.add(id(own))
            parts.append(own)
            waiting = [self.find_definition(own.get("$ref")), *self.list_forms(own, value), *waiting]
        return parts

    def list_forms(self, schema: JsonSchema, value: Any) -> list[Any]:
        """Return the forms of a schema that fit a value; all of them if there is no value, or none fits."""
        found: list[Any] = []
        for name in _FORMS:
            forms: Any = schema.get(name)
            if _type_of(forms) is list:
                is_choice = name != "allOf" and value is not _ABSENT
                found += [each for each in forms if not is_choice or self.fits(each, value, 0)] or forms
        return found

    def fits(self, schema: Any, value: Any, depth: int) -> bool:
        """Return False if a schema plainly describes another value: by its type, constants or properties."""
        self.comparisons += 1
        if depth > _MAX_DEPTH or self.comparisons > _MAX_STEPS or _type_of(schema) is not dict:
            return schema is not False
        constants: Any = [schema["const"]] if "const" in schema else schema.get("enum")
        if _type_of(constants) is list and not any(_is_equal(each, value) for each in constants):
            return False
        if not _has_type(value, schema.get("type")):
            return False
        if _type_of(value) is dict and not self.has_fitting_properties(schema, value, depth):
            return False
        referred = self.find_definition(schema.get("$ref"))
        return referred is None or self.fits(referred, value, depth + 1)

    def has_fitting_properties(self, schema: JsonSchema, value: dict[str, Any], depth: int) -> bool:
        """Return False if an object lacks a property that a schema requires, or has one that does not fit."""
        required: Any = schema.get("required")
        declared: Any = schema.get("properties")
        if _type_of(required) is list and not all(each in value for each in required):
            return False
        known: dict[str, Any] = declared if _type_of(declared) is dict else {}
        if schema.get("additionalProperties") is False and not (
            "patternProperties" in schema or value.keys() <= known.keys()
        ):
            return False
        return all(self.fits(known[name], each, depth + 1) for name, each in value.items() if name in known)

    def find_definition(self, reference: Any) -> Any:
        """Return what a reference such as `#/$defs/Name` leads to; `None` for any other, which is never fetched."""
        if reference == "#":
            return self.root
        if not isinstance(reference, str) or not reference.startswith("#/"):
            return None
        found: Any = self.root
        for key in reference.removeprefix("#/").split("/"):
            plain = key.replace("~1", "/").replace("~0", "~")
            found = found.get(plain) if _type_of(found) is dict else None
        return found


def _is_equal(one: Any, other: Any) -> bool:
    """Return True if two JSON values are equal: `true` is not 1."""
    return one == other and (_type_of(one) is bool) == (_type_of(other) is bool)


def _has_type(value: Any, named: Any) -> bool:
    """Return True if a value has one of the types that a schema names; True if it names none that is known."""
    names: Sequence[Any] = named if _type_of(named) is list else [named]
    kinds = [_TYPES.get(each) if isinstance(each, str) else None for each in names]
    return any(kind is None or _type_of(value) in kind for kind in kinds)
