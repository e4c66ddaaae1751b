"""JSON of somebody else, looked at without trust: what is not as it should be counts as absent. Above: wires.
Below: nothing.
"""

from collections.abc import Iterable
from typing import Any, cast


def mapping(value: Any) -> dict[str, Any]:
    """An object, or an empty one."""
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def mappings(value: Any) -> list[dict[str, Any]]:
    """The objects in a list."""
    elements = cast("Iterable[Any]", value) if isinstance(value, list) else ()
    return [each for each in elements if isinstance(each, dict)]


def text(value: Any) -> str:
    """A text, or an empty one."""
    return value if isinstance(value, str) else ""


def count(value: Any) -> int:
    """A number of things, or none."""
    return value if type(value) is int and value > 0 else 0
