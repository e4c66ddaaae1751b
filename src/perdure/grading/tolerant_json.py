"""Find JSON in the reply of a model: bare, in a code fence, after its thinking, or with text around it."""

import json
import re
from collections.abc import Iterator
from typing import Any, Final, cast

MOST_CHARACTERS: Final = 200_000
"""Characters of a reply that are searched, from its end."""
MOST_BEGINNINGS: Final = 2_000
"""Braces and brackets at which a value may begin that are tried."""

_THINKING = re.compile(r"<(think|thinking|thought)>.*?</\1>", re.DOTALL | re.IGNORECASE)
_FENCE = re.compile(r"```[a-zA-Z0-9_-]*\n?(.*?)```", re.DOTALL)
_BEGINNING = re.compile(r"[{\[]")
_TRAILING_COMMA = re.compile(r",(\s*[}\]])")
_DECODER = json.JSONDecoder(strict=False)


def find_json_value(text: str) -> tuple[Any] | None:
    """Return the JSON value of a reply in a tuple of one; `None` if there is none.

    The whole text counts first, then the last code fence with JSON, then the last outermost object or list in the text.
    """
    plain = _THINKING.sub("", text[-MOST_CHARACTERS:]).strip()
    for candidate in (plain, *reversed([found[1].strip() for found in _FENCE.finditer(plain)])):
        if (value := _parse(candidate)) is not None:
            return value
    found = [*_find_embedded_values(plain)]
    return found[-1] if found else None


def find_json_object(text: str) -> dict[str, Any] | None:
    """Return the JSON object of a reply, as `find_json_value` does; `None` if there is none."""
    plain = _THINKING.sub("", text[-MOST_CHARACTERS:]).strip()
    whole = find_json_value(text)
    candidates = [whole] if whole is not None else []
    for (value,) in [*candidates, *reversed([*_find_embedded_values(plain)])]:
        if isinstance(value, dict):
            return cast("dict[str, Any]", value)
    return None


def list_json_objects(text: str) -> list[dict[str, Any]]:
    """Return all outermost JSON objects of a reply, in order, also those in code fences."""
    plain = _THINKING.sub("", text[-MOST_CHARACTERS:]).strip()
    return [cast("dict[str, Any]", value) for (value,) in _find_embedded_values(plain) if isinstance(value, dict)]


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


def _find_embedded_values(text: str) -> Iterator[tuple[Any]]:
    """Yield the outermost objects and lists in a text, in order."""
    place = 0
    cleaned = _TRAILING_COMMA.sub(r"\1", text)
    for _ in range(MOST_BEGINNINGS):
        found = _BEGINNING.search(cleaned, place)
        if found is None:
            return
        try:
            value, place = _DECODER.raw_decode(cleaned, found.start())
        except ValueError:
            place = found.end()
        except RecursionError:  # nested so deeply that what is inside is no answer either, and slow to try
            return
        else:
            yield (value,)
