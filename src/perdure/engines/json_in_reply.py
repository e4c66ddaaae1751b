"""Find JSON in the reply of a model, also between prose or in a code fence."""

from typing import Any

import msgspec

_PAIRS = {"{": "}", "[": "]"}


def find_json(text: str) -> Any:
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
            value = msgspec.json.decode(each)
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            continue
        if isinstance(value, (dict, list)):
            return value
    raise ValueError("there is no JSON in the reply")


def _find_or_end(text: str, part: str) -> int:
    place = text.find(part)
    return len(text) if place < 0 else place
