"""Resolve `$ref` within a JSON Schema. References to other documents are never fetched."""

import re
from typing import Any
from urllib.parse import unquote

from perdure.core.error import ConfigError
from perdure.core.jsonable import short_repr
from perdure.core.schema_definitions import is_json_array, is_json_object


class SchemaDocument:
    """Root JSON Schema, in which the references (`$ref`) of its subschemas are resolved."""

    __slots__ = ("_names", "root")

    def __init__(self, root: dict[str, Any]) -> None:
        self.root = root
        self._names: dict[str, str] = {}

    def resolve_reference(self, reference: Any) -> Any:
        """Return the schema that a reference points to. Raises `ConfigError` if it is external or missing."""
        node: Any = self.root
        for step in _split_pointer(reference):
            if is_json_object(node) and step in node:
                node = node[step]
            elif is_json_array(node) and step.isdecimal() and int(step) < len(node):
                node = node[int(step)]
            else:
                message = f"a schema refers to {short_repr(reference)}, which does not exist: define it there"
                raise ConfigError(message)
        return node

    def get_definition_name(self, reference: str) -> str:
        """Return a unique name for the target of a reference, for `$defs`."""
        known = self._names.get(reference)
        if known is None:
            wanted = (
                re.sub(r"[^A-Za-z0-9_.-]", "_", ([*_split_pointer(reference)] or ["root"])[-1])[:60] or "definition"
            )
            known, number = wanted, 2
            while known in self._names.values():
                known, number = f"{wanted}_{number}", number + 1
            self._names[reference] = known
        return known


def _split_pointer(reference: Any) -> list[str]:
    if not isinstance(reference, str) or not reference.startswith("#"):
        message = f"a schema refers to {short_repr(reference)}, in another document: move it under $defs"
        raise ConfigError(message)
    pointer = unquote(reference[1:])
    if pointer and not pointer.startswith("/"):
        message = f"a schema refers to the anchor {short_repr(reference)}: refer to it as '#/$defs/…'"
        raise ConfigError(message)
    return [step.replace("~1", "/").replace("~0", "~") for step in pointer.split("/")[1:]]
