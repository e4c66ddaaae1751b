"""References within a schema. Above: `compiler.py`. Below: `core`. Nothing is ever fetched."""

import re
from typing import Any
from urllib.parse import unquote

from perdure.core.definitions import is_array, is_object
from perdure.core.error import ConfigError
from perdure.core.plain import excerpt


class Document:
    """One whole schema: what its references refer to."""

    __slots__ = ("_names", "root")

    def __init__(self, root: dict[str, Any]) -> None:
        self.root = root
        self._names: dict[str, str] = {}

    def target(self, reference: Any) -> Any:
        """What is referred to. Raises `ConfigError` when it is elsewhere, or not there."""
        node: Any = self.root
        for step in _steps(reference):
            if is_object(node) and step in node:
                node = node[step]
            elif is_array(node) and step.isdecimal() and int(step) < len(node):
                node = node[int(step)]
            else:
                message = f"a schema refers to {excerpt(reference)}, and there is nothing: define it there"
                raise ConfigError(message)
        return node

    def name(self, reference: str) -> str:
        """What the target is called among the definitions."""
        known = self._names.get(reference)
        if known is None:
            wanted = re.sub(r"[^A-Za-z0-9_.-]", "_", ([*_steps(reference)] or ["root"])[-1])[:60] or "definition"
            known, number = wanted, 2
            while known in self._names.values():
                known, number = f"{wanted}_{number}", number + 1
            self._names[reference] = known
        return known


def _steps(reference: Any) -> list[str]:
    if not isinstance(reference, str) or not reference.startswith("#"):
        message = f"a schema refers to {excerpt(reference)}, outside of itself: move it under $defs"
        raise ConfigError(message)
    pointer = unquote(reference[1:])
    if pointer and not pointer.startswith("/"):
        message = f"a schema refers to the anchor {excerpt(reference)}: refer to it as '#/$defs/…'"
        raise ConfigError(message)
    return [step.replace("~1", "/").replace("~0", "~") for step in pointer.split("/")[1:]]
