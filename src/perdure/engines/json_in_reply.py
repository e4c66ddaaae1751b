"""Find JSON in the reply of a model, also between prose or in a code fence."""

from collections.abc import Sequence
from typing import Any, cast

import msgspec

_PAIRS = {"{": "}", "[": "]"}


def find_json(text: str) -> object:
    """Return the first JSON object or list in a text; raise `ValueError` if there is none.

    The whole text is tried first, then what is between the first opening and the last closing bracket of each kind.
    """
    plain = text.rpartition("</think>")[2].strip()
    candidates = [plain]
    for first, last in sorted(_PAIRS.items(), key=lambda pair: _find_or_end(plain, pair[0])):
        begin, end = plain.find(first), plain.rfind(last)
        if 0 <= begin < end:
            candidates.append(plain[begin : end + 1])
    for each in candidates:
        try:
            value: object = msgspec.json.decode(each)
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            continue
        if get_fields(value) is not None or get_items(value) is not None:
            return value
    raise ValueError("there is no JSON in the reply")


def get_fields(value: object) -> dict[str, Any] | None:
    """Return a JSON value as an object; `None` if it is none."""
    return cast("dict[str, Any]", value) if isinstance(value, dict) else None


def get_items(value: object) -> Sequence[Any] | None:
    """Return a JSON value as a list; `None` if it is none."""
    return cast("Sequence[Any]", value) if isinstance(value, list) else None


def _find_or_end(text: str, part: str) -> int:
    place = text.find(part)
    return len(text) if place < 0 else place
