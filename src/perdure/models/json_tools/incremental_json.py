"""Scan JSON that arrives in pieces: decode a string, and find the end of a value. No I/O."""

import re

_ESCAPES = {'"': '"', "\\": "\\", "/": "/", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
_REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
_ORDINARY = re.compile(r'[^"\\]*')
_UNIT = re.compile(r"\\u([0-9a-fA-F]{4})")
_UNIT_BEGUN = re.compile(r"\\(?:u[0-9a-fA-F]{0,3})?")
_HALF = re.compile(r"\\u[dD][89a-fA-F]")
"""Half of a surrogate pair."""
_PAIR = re.compile(r"\\u([dD][89abAB][0-9a-fA-F]{2})\\u([dD][c-fC-F][0-9a-fA-F]{2})")
_PAIR_BEGUN = re.compile(r"\\u[dD][89abAB][0-9a-fA-F]{2}(?:\\(?:u(?:[dD](?:[c-fC-F][0-9a-fA-F]?)?)?)?)?")
_LANDMARK = re.compile(r'["{}\[\]]')
_END_OF_STRING = re.compile(r'["\\]')
_END_OF_SCALAR = re.compile(r"[\s,}\]]")


class JsonStringDecoder:
    """Incremental decoder of a JSON string, started after its opening quote. Escapes may be split anywhere."""

    __slots__ = ("_torn",)

    def __init__(self) -> None:
        self._torn = ""

    def feed(self, text: str) -> tuple[str, str | None]:
        """Decode more of the string. Return the decoded text, and the text after the string once it has ended."""
        if self._torn:
            text, self._torn = self._torn + text, ""
        said: list[str] = []
        place = 0
        while ordinary := _ORDINARY.match(text, place):  # always matches: it may be empty
            said.append(ordinary[0])
            place = ordinary.end()
            if text[place : place + 1] == '"':
                return "".join(said), text[place + 1 :]
            character, length = _decode_escape(text, place)
            if not length:
                self._torn = text[place:]
                break
            said.append(character)
            place += length
        return "".join(said), None


def _decode_escape(text: str, place: int) -> tuple[str, int]:
    """Decode the escape at this index; return the character and the length of the escape, 0 if it is incomplete.

    An invalid escape is kept as it is, and a lone surrogate becomes the replacement character.
    """
    if pair := _PAIR.match(text, place):
        high, low = int(pair[1], 16), int(pair[2], 16)
        return chr(0x10000 + ((high & 0x3FF) << 10) + (low & 0x3FF)), pair.end() - place
    if place == len(text) or _UNIT_BEGUN.fullmatch(text, place) or _PAIR_BEGUN.fullmatch(text, place):
        return "", 0
    if unit := _UNIT.match(text, place):
        return _REPLACEMENT if _HALF.match(text, place) else chr(int(unit[1], 16)), unit.end() - place
    letter = text[place + 1]
    return _ESCAPES.get(letter, f"\\{letter}"), 2


class JsonValueScanner:
    """Incremental scanner that finds the end of a JSON value."""

    __slots__ = ("_begun", "_depth", "_escaped", "_in_string", "_scalar")

    def __init__(self) -> None:
        self._begun = self._scalar = self._in_string = self._escaped = False
        self._depth = 0

    def feed(self, text: str) -> int | None:
        """Return how many of these characters belong to the value; `None` if all do, and it may continue."""
        if text and not self._begun:
            self._begun = True
            self._scalar = text[0] not in '{["'
        if self._scalar:
            end = _END_OF_SCALAR.search(text)
            return end.start() if end else None
        place = self._advance(text, 0)
        while place is not None and (self._depth or self._in_string):
            place = self._advance(text, place)
        return place

    def _advance(self, text: str, place: int) -> int | None:
        """Return the index after the next significant character; `None` if there is none."""
        if self._escaped and place < len(text):
            self._escaped = False
            place += 1
        found = (_END_OF_STRING if self._in_string else _LANDMARK).search(text, place)
        if not found:
            return None
        match found[0]:
            case '"':
                self._in_string = not self._in_string
            case "\\":
                self._escaped = True
            case "{" | "[":
                self._depth += 1
            case _:
                self._depth -= 1
        return found.end()
