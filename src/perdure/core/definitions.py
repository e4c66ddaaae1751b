"""JSON Schemas put together: definitions moved to one root, and named once. Above: `schema.py`. Below: nothing."""

from collections.abc import Collection
from typing import Any, TypeAlias, TypeGuard

import msgspec

JsonSchema: TypeAlias = dict[str, Any]

REF = "#/$defs/"
"""Where references point to: the definitions of the root."""


def with_definitions(schema: JsonSchema, definitions: JsonSchema) -> JsonSchema:
    """The schema with those definitions that it refers to, in one step or in many."""
    used: JsonSchema = {}
    pending = [schema]
    while pending:
        text = msgspec.json.encode(pending.pop())
        found = [name for name in definitions if name not in used and f'"{REF}{name}"'.encode() in text]
        used |= {name: definitions[name] for name in found}
        pending += [definitions[name] for name in found]
    return {**schema, "$defs": used} if used else schema


def hoisted(schema: JsonSchema, definitions: JsonSchema) -> JsonSchema:
    """The schema without its `$defs`, which are moved to those of the whole, under other names if theirs are taken."""
    own: JsonSchema = schema.get("$defs", {})
    body = {key: value for key, value in schema.items() if key != "$defs"}
    if any(definitions.get(name, value) != value for name, value in own.items()):
        names = {name: _free_name(name, {*definitions, *own}) for name in own}
        references = {REF + old: REF + new for old, new in names.items()}
        body = _replaced(body, references)
        own = {names[name]: _replaced(value, references) for name, value in own.items()}
    definitions.update(own)
    return body


def _free_name(name: str, taken: Collection[str]) -> str:
    number = 2
    while f"{name}_{number}" in taken:
        number += 1
    return f"{name}_{number}"


def _replaced(node: Any, texts: dict[str, str]) -> Any:
    if is_object(node):
        return {key: _replaced(value, texts) for key, value in node.items()}
    if is_array(node):
        return [_replaced(value, texts) for value in node]
    return texts.get(node, node) if isinstance(node, str) else node


def with_type_at_root(schema: JsonSchema) -> JsonSchema:
    """In place of a reference to a definition, the definition; it stays a definition too if it refers to itself."""
    reference = schema.pop("$ref", None)
    if reference is None:
        return schema
    definitions = schema.pop("$defs")
    name = reference.removeprefix(REF)
    root = {**definitions[name], **schema}
    return with_definitions(root, definitions)


def with_typed_enums(node: Any) -> Any:
    """With a type beside each list of allowed values: some providers want one."""
    if is_array(node):
        return [with_typed_enums(value) for value in node]
    if not is_object(node):
        return node
    values = node.get("enum")
    found = {key: with_typed_enums(value) for key, value in node.items()}
    if is_array(values) and "type" not in node:
        kinds: set[type] = {type(value) for value in values}
        name = {str: "string", int: "integer"}.get(kinds.pop()) if len(kinds) == 1 else None
        return {"type": name, **found} if name else found
    return found


def is_object(node: Any) -> TypeGuard[JsonSchema]:
    """Whether it is an object of JSON."""
    return isinstance(node, dict)


def is_array(node: Any) -> TypeGuard[list[Any]]:
    """Whether it is an array of JSON."""
    return isinstance(node, list)
