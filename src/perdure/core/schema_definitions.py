"""Operations on the `$defs` of JSON Schemas: collect them at the root, rename those that clash, inline references."""

from collections.abc import Collection
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
