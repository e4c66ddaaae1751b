"""JSON of somebody else, looked at without trust: what is not as it should be counts as absent. Above: wires.
Below: `core`.
"""

import json
from collections.abc import Iterable
from typing import Any, cast

import msgspec

from perdure.core.plain import to_jsonable

_strict = msgspec.json.Decoder().decode


def parsed(told: bytes | str) -> Any:
    """JSON, also such as only browsers and Python take: half a pair of surrogates, `NaN`.

    Raises `msgspec.DecodeError` when it is none at all, is torn, or is nested without end.
    """
    try:
        return _strict(told)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        pass
    try:
        words = told if isinstance(told, str) else told.decode("utf-8", "replace")
        return to_jsonable(json.loads(words, strict=False))
    except (ValueError, RecursionError) as error:
        raise msgspec.DecodeError(f"no JSON: {type(error).__name__}") from None


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
