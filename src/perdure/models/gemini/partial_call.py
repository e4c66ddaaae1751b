"""Assemble the arguments of a Gemini function call that are streamed as values with a JSON path (`partialArgs`).

`{"jsonPath": "$.place.city", "stringValue": "Bos", "willContinue": true}` puts a value at a path; another string for
the same path is appended. A value whose path cannot be reached is stored under the path itself, so that nothing is
lost.
"""

import re
from collections.abc import Mapping
from itertools import pairwise
from typing import Any, cast

import msgspec

_STEP = re.compile(r"""\.([^.\[\]]+)|\[(\d+)\]|\['((?:[^'\\]|\\.)*)'\]|\["((?:[^"\\]|\\.)*)"\]""")
_VALUES = ("stringValue", "numberValue", "boolValue", "nullValue")


class PartialCallBuilder:
    """Builder of a Gemini function call whose arguments are streamed in pieces."""

    __slots__ = ("_arguments", "_unfinished", "call_id", "name", "signature")

    def __init__(self, name: str, call_id: str, signature: str, arguments: str = "{}") -> None:
        self.name = name
        self.call_id = call_id
        self.signature = signature
        known: Any = msgspec.json.decode(arguments)
        self._arguments: dict[str, Any] = known if isinstance(known, dict) else {}
        self._unfinished = ""
        """Path of a string that will be continued."""

    @property
    def arguments(self) -> str:
        """The arguments received so far, as JSON."""
        return msgspec.json.encode(self._arguments).decode()

    def add_piece(self, piece: Mapping[str, Any]) -> None:
        """Add a streamed value, or the next piece of a string, at its JSON path."""
        path = piece.get("jsonPath")
        kind = next((kind for kind in _VALUES if kind in piece), None)
        if not isinstance(path, str) or kind is None:
            return
        value = None if kind == "nullValue" else piece[kind]
        _put_value(self._arguments, path, value, goes_on=isinstance(value, str) and self._unfinished == path)
        self._unfinished = path if piece.get("willContinue") else ""


def _put_value(root: dict[str, Any], path: str, value: Any, *, goes_on: bool) -> None:
    steps = _parse_path(path)
    place: Any = root
    for step, following in pairwise(steps):
        place = _enter_container(place, step, [] if isinstance(following, int) else {})
    last: str | int = steps[-1] if steps else path
    if not _is_valid_step(place, last):
        place, last = root, path
    before = _get_value(place, last)
    _set_value(place, last, before + value if goes_on and isinstance(before, str) else value)


def _parse_path(path: str) -> list[str | int]:
    """Parse a JSON path into its steps: `$.a['b c'][0]` becomes `a`, `b c`, 0. Empty if it is not understood."""
    steps: list[str | int] = []
    place = 1
    while path[:1] == "$" and place < len(path):
        found = _STEP.match(path, place)
        if found is None:
            return []
        place = found.end()
        index = found[2]
        quoted = found[3] if found[3] is not None else found[4]
        steps.append(int(index) if index else found[1] or re.sub(r"\\(.)", r"\1", quoted))
    return steps


def _is_valid_step(place: Any, step: str | int) -> bool:
    return isinstance(place, list) if isinstance(step, int) else isinstance(place, dict)


def _enter_container(place: Any, step: str | int, empty: Any) -> Any:
    """Return the object or list at this step, created if it is missing; None if another value is there."""
    if not _is_valid_step(place, step):
        return None
    found = _get_value(place, step)
    if found is None:
        _set_value(place, step, empty)
        return empty
    return found


def _get_value(place: Any, step: str | int) -> Any:
    if isinstance(step, int):
        items = cast("list[Any]", place)
        return items[step] if step < len(items) else None
    return place.get(step)


def _set_value(place: Any, step: str | int, value: Any) -> None:
    """Set a value. List elements arrive in order: an index beyond the end appends, however large it is."""
    if isinstance(step, int) and step >= len(place):
        place.append(value)
    else:
        place[step] = value
