"""What typed words mean as a JSON value. Above: `prompt.py`, `reach.py`. Below: `core.schema`.

The schema decides: "5" is a number where a number is wanted, and text where text is.
"""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any, Final

import msgspec

from perdure.core.schema import Invalid, check_value

YES_NO: Final[Mapping[str, bool]] = {"yes": True, "y": True, "no": False, "n": False}


def meant(text: str, schema: Mapping[str, Any] | None) -> Any:
    """The words as a value of that schema. Raises `Invalid`, with every problem, when they are none."""
    if schema is None:
        return text
    *earlier, last = _readings(text)
    for value in earlier:
        with suppress(Invalid):
            check_value(value, dict(schema))
            return value
    check_value(last, dict(schema))
    return last


def _readings(text: str) -> Iterator[Any]:
    """What the words could mean, the plainest first. What is wrong with the last is told."""
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
