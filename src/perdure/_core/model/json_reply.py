"""Extraction of JSON from the reply of a model: bare, in a code fence, after its thinking, or with text around it."""

import json
import re
from collections.abc import Iterator
from typing import Any, Final, NoReturn, cast

MOST_CHARACTERS: Final = 200_000
"""Characters of a reply that are searched, from its end."""
MOST_BEGINNINGS: Final = 2_000
"""Braces and brackets at which a value may begin that are tried."""
MOST_READ: Final = 2_000_000
"""Characters that are read in all these tries together, so that no reply takes seconds."""
_NESTED_READ: Final = 10_000
"""Characters for which a try counts that was nested too deep."""

_THINKING = re.compile(r"<(think|thinking|thought)>", re.IGNORECASE)
_FENCE = re.compile(r"```[a-zA-Z0-9_-]*\n?(.*?)```", re.DOTALL)
_BEGINNING = re.compile(r"[{\[]")
_TRAILING_COMMA = re.compile(r",(\s*[}\]])")


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")


_DECODER = json.JSONDecoder(strict=False, parse_constant=_refuse_constant)
"""Decodes as `json` does, without NaN and infinities, which are in no order with other numbers."""


def list_json_values(text: str) -> list[Any]:
    """Return the JSON values of a reply, the likeliest first.

    If the whole text is JSON, it is the only one. Else the values in code fences come first, and then the outermost
    objects and lists in the text; of both the last one first, which a model may have written to correct another.
    """
    plain = _remove_thinking(text)
    if (whole := _parse(plain)) is not None:
        return [*whole]
    fences = [value for found in _FENCE.finditer(plain) for value in _parse(found[1].strip()) or ()]
    return [*reversed(fences), *reversed([value for value, _, _ in _find_embedded_values(plain)])]


def list_json_objects(text: str) -> list[dict[str, Any]]:
    """Return all outermost JSON objects of a reply, in order, also those in code fences."""
    plain = _remove_thinking(text)
    return [cast("dict[str, Any]", value) for value, _, _ in _find_embedded_values(plain) if isinstance(value, dict)]


def separate_json_from_text(text: str) -> tuple[list[dict[str, Any]], str]:
    """Return all outermost JSON objects of a reply, and the text around them."""
    plain = _remove_thinking(text)
    if (whole := _parse(plain)) is not None and isinstance(whole[0], dict):
        return [cast("dict[str, Any]", whole[0])], ""
    objects: list[dict[str, Any]] = []
    around: list[str] = []
    cleaned, place = _TRAILING_COMMA.sub(r"\1", plain), 0
    for value, begin, end in _find_embedded_values(plain):
        if isinstance(value, dict):
            objects.append(cast("dict[str, Any]", value))
            around.append(cleaned[place:begin])
            place = end
    return objects, "".join([*around, cleaned[place:]])


def is_true(value: Any) -> bool:
    """Return True for a JSON true, and for texts with which models mean it, such as "true" or "Yes"."""
    return value is True or (isinstance(value, str) and value.strip().casefold() in {"true", "yes", "done", "pass"})


def _parse(text: str) -> tuple[Any] | None:
    for each in (text, _TRAILING_COMMA.sub(r"\1", text)):
        try:
            return (_DECODER.decode(each),)
        except (ValueError, RecursionError):
            continue
    return None


def _remove_thinking(text: str) -> str:
    """Return the end of a reply without the thinking in it."""
    given = text[-MOST_CHARACTERS:]
    parts: list[str] = []
    unclosed: set[str] = set()  # so that a text is searched once for an end that it does not have
    place = 0
    for begin in _THINKING.finditer(given):
        name = begin[1].lower()
        if begin.start() < place or name in unclosed:
            continue
        end = re.compile(f"</{name}>", re.IGNORECASE).search(given, begin.end())
        if end is None:
            unclosed.add(name)
        else:
            parts.append(given[place : begin.start()])
            place = end.end()
    return "".join([*parts, given[place:]]).strip()


def _find_embedded_values(text: str) -> Iterator[tuple[Any, int, int]]:
    """Yield the outermost objects and lists in a text without its trailing commas, and where they begin and end."""
    place, left = 0, MOST_READ
    cleaned = _TRAILING_COMMA.sub(r"\1", text)
    for _ in range(MOST_BEGINNINGS):
        found = _BEGINNING.search(cleaned, place)
        if found is None or left <= 0:
            return
        try:
            value, place = _DECODER.raw_decode(cleaned, found.start())
        except (ValueError, RecursionError) as error:
            place = found.end()
            left -= error.pos - found.start() if isinstance(error, json.JSONDecodeError) else _NESTED_READ
        else:
            yield value, found.start(), place
