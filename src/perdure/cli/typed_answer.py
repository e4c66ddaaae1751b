"""Parse an answer that the user typed as a JSON value that fits the schema of the question.

The schema decides: "5" is a number where a number is expected, and text where text is.
"""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any, Final

import msgspec

from perdure.core.schema import Invalid, check_value

YES_NO: Final[Mapping[str, bool]] = {"yes": True, "y": True, "no": False, "n": False}


def parse_typed_answer(text: str, schema: Mapping[str, Any] | None) -> Any:
    """Convert typed text to a JSON value that fits `schema`. Raises `Invalid` with every problem if none fits."""
    if schema is None:
        return text
    *earlier, last = _list_readings(text)
    for value in earlier:
        with suppress(Invalid):
            check_value(value, dict(schema))
            return value
    check_value(last, dict(schema))
    return last


def _list_readings(text: str) -> Iterator[Any]:
    """Yield the JSON values that typed text could mean, the simplest first."""
    yield text
    word = text.strip()
    if word != text:
        yield word
    if "," in word and not word.startswith(("[", "{", '"')):
        yield [each.strip() for each in word.split(",") if each.strip()]
    if word.lower() in YES_NO:
        yield YES_NO[word.lower()]
    try:
        yield msgspec.json.decode(word)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        yield [word] if word else []
        yield text
