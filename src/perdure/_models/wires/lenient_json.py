"""Parse JSON from providers leniently: a value of the wrong type counts as absent."""

import json
from collections.abc import Sequence
from typing import Any, cast

import msgspec

from perdure._core.values.jsonable import to_jsonable

_strict = msgspec.json.Decoder().decode


def parse_lenient_json(data: bytes | str) -> Any:
    """Parse JSON leniently: lone surrogates, `NaN` and control characters in strings are accepted.

    Raises `msgspec.DecodeError` if it is not JSON, is cut off, or is nested too deeply.
    """
    try:
        return _strict(data)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        pass
    try:
        words = data if isinstance(data, str) else data.decode("utf-8", "replace")
        return to_jsonable(json.loads(words, strict=False))
    except (ValueError, RecursionError) as error:
        raise msgspec.DecodeError(f"not JSON: {type(error).__name__}") from None


def as_dict(value: Any) -> dict[str, Any]:
    """Return the value if it is a dict, else an empty dict."""
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def as_list(value: Any) -> Sequence[Any]:
    """Return the value if it is a list, else an empty sequence."""
    return cast("Sequence[Any]", value) if isinstance(value, list) else ()


def as_dicts(value: Any) -> list[dict[str, Any]]:
    """Return the elements of a list that are dicts; an empty list if the value is not a list."""
    return [each for each in as_list(value) if isinstance(each, dict)]


def as_text(value: Any) -> str:
    """Return the value if it is a string, else an empty string."""
    return value if isinstance(value, str) else ""


def as_count(value: Any) -> int:
    """Return the value if it is a positive integer, else 0."""
    return value if type(value) is int and value > 0 else 0
