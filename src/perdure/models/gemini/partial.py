"""Arguments that come value by value, each with its place (`partialArgs`). Above: `decode.py`. Below: msgspec.

`{"jsonPath": "$.place.city", "stringValue": "Bos", "willContinue": true}` puts a value there; a text that comes again
for the same place goes on. A place that cannot be reached is kept under its own name, so that nothing gets lost.
"""

import re
from collections.abc import Mapping
from itertools import pairwise
from typing import Any, cast

import msgspec

_STEP = re.compile(r"""\.([^.\[\]]+)|\[(\d+)\]|\['((?:[^'\\]|\\.)*)'\]|\["((?:[^"\\]|\\.)*)"\]""")
_VALUES = ("stringValue", "numberValue", "boolValue", "nullValue")


class PartialCall:
    """A call whose arguments are still coming."""

    __slots__ = ("_arguments", "_unfinished", "call_id", "name", "signature")

    def __init__(self, name: str, call_id: str, signature: str, arguments: str = "{}") -> None:
        self.name = name
        self.call_id = call_id
        self.signature = signature
        known: Any = msgspec.json.decode(arguments)
        self._arguments: dict[str, Any] = known if isinstance(known, dict) else {}
        self._unfinished = ""
        """The place of a text that goes on."""

    @property
    def arguments(self) -> str:
        """What has come of the arguments, as JSON."""
        return msgspec.json.encode(self._arguments).decode()

    def take(self, piece: Mapping[str, Any]) -> None:
        """One more value, or more of a text."""
        path = piece.get("jsonPath")
        kind = next((kind for kind in _VALUES if kind in piece), None)
        if not isinstance(path, str) or kind is None:
            return
        value = None if kind == "nullValue" else piece[kind]
        _put(self._arguments, path, value, goes_on=isinstance(value, str) and self._unfinished == path)
        self._unfinished = path if piece.get("willContinue") else ""


def _put(root: dict[str, Any], path: str, value: Any, *, goes_on: bool) -> None:
    steps = _steps(path)
    place: Any = root
    for step, following in pairwise(steps):
        place = _entered(place, step, [] if isinstance(following, int) else {})
    last: str | int = steps[-1] if steps else path
    if not _fits(place, last):
        place, last = root, path
    before = _at(place, last)
    _set(place, last, before + value if goes_on and isinstance(before, str) else value)


def _steps(path: str) -> list[str | int]:
    """`$.a['b c'][0]` as `a`, `b c`, 0; nothing when it is not understood."""
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


def _fits(place: Any, step: str | int) -> bool:
    return isinstance(place, list) if isinstance(step, int) else isinstance(place, dict)


def _entered(place: Any, step: str | int, empty: Any) -> Any:
    """The container at this step, made if there is none; nothing when there is something else."""
    if not _fits(place, step):
        return None
    found = _at(place, step)
    if found is None:
        _set(place, step, empty)
        return empty
    return found


def _at(place: Any, step: str | int) -> Any:
    if isinstance(step, int):
        items = cast("list[Any]", place)
        return items[step] if step < len(items) else None
    return place.get(step)


def _set(place: Any, step: str | int, value: Any) -> None:
    """Elements come in order: one beyond the end is the next one, however large a number it is given."""
    if isinstance(step, int) and step >= len(place):
        place.append(value)
    else:
        place[step] = value
