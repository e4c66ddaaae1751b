"""What a model was made to say, taken back: null for what it would have left out. Above: the wires. Below: `core`."""

from collections.abc import Mapping
from typing import Any

from windlass.core.definitions import is_array, is_object
from windlass.core.error import ConfigError

from .reference import Document
from .repair import types_of

_MOST_LEVELS = 64


def restored(value: Any, schema: Mapping[str, Any]) -> Any:
    """The value without nulls that stand for properties which are optional, and may not be null.

    A model that is held to a schema whose properties are all required says null for those that it has nothing to say
    about. `schema` is the one that was compiled, not what came out of it. The value itself is not changed.
    """
    root = dict(schema)
    return _without(value, root, Document(root), 0)


def _without(value: Any, schema: Any, document: Document, level: int) -> Any:
    schema = _followed(schema, document)
    if level > _MOST_LEVELS or not is_object(schema):
        return value
    if is_array(value):
        return [_without(each, schema.get("items"), document, level + 1) for each in value]
    if not is_object(value):
        return value
    branches = [_followed(each, document) for word in ("anyOf", "oneOf", "allOf") for each in schema.get(word, ())]
    found: dict[str, Any] = {}
    for name, each in value.items():
        told = [known for part in (schema, *branches) if (known := _property(part, name)) is not None]
        is_needed = any(name in part.get("required", ()) for part in (schema, *branches) if is_object(part))
        if each is None and told and not is_needed and not any(_allows_null(one, document) for one in told):
            continue
        found[name] = _without(each, told[0], document, level + 1) if told else each
    return found


def _property(schema: Any, name: str) -> Any:
    properties = schema.get("properties") if is_object(schema) else None
    return properties.get(name) if is_object(properties) else None


def _followed(schema: Any, document: Document) -> Any:
    for _ in range(_MOST_LEVELS):
        if not is_object(schema) or "$ref" not in schema:
            break
        try:
            schema = document.target(schema["$ref"])
        except ConfigError:
            return {}
    return schema


def _allows_null(schema: Any, document: Document, level: int = 0) -> bool:
    schema = _followed(schema, document)
    if not is_object(schema) or level > _MOST_LEVELS:
        return schema is not False
    if schema.get("nullable") is True or "null" in types_of(schema):
        return True
    for word in ("anyOf", "oneOf"):
        if is_array(schema.get(word)):
            return any(_allows_null(each, document, level + 1) for each in schema[word])
    if "enum" in schema:
        return None in schema["enum"]
    return "type" not in schema and "const" not in schema and "properties" not in schema
