"""JSON that comes in pieces: what a string says, where a value ends. Pure. Above: `reply.py`. Below: nothing."""

import re

_ESCAPES = {'"': '"', "\\": "\\", "/": "/", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
_REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
_ORDINARY = re.compile(r'[^"\\]*')
_UNIT = re.compile(r"\\u([0-9a-fA-F]{4})")
_UNIT_BEGUN = re.compile(r"\\(?:u[0-9a-fA-F]{0,3})?")
_HALF = re.compile(r"\\u[dD][89a-fA-F]")
"""Half of a character that takes two."""
_PAIR = re.compile(r"\\u([dD][89abAB][0-9a-fA-F]{2})\\u([dD][c-fC-F][0-9a-fA-F]{2})")
_PAIR_BEGUN = re.compile(r"\\u[dD][89abAB][0-9a-fA-F]{2}(?:\\(?:u(?:[dD](?:[c-fC-F][0-9a-fA-F]?)?)?)?)?")
_LANDMARK = re.compile(r'["{}\[\]]')
_END_OF_STRING = re.compile(r'["\\]')
_END_OF_SCALAR = re.compile(r"[\s,}\]]")


class JsonString:
    """The characters of a JSON string behind its opening quote. An escape may be torn anywhere."""

    __slots__ = ("_torn",)

    def __init__(self) -> None:
        self._torn = ""

    def feed(self, text: str) -> tuple[str, str | None]:
        """What more of the string says; and what follows the string, once its end has come."""
        if self._torn:
            text, self._torn = self._torn + text, ""
        said: list[str] = []
        place = 0
        while ordinary := _ORDINARY.match(text, place):  # always: it is content with nothing
            said.append(ordinary[0])
            place = ordinary.end()
            if text[place : place + 1] == '"':
                return "".join(said), text[place + 1 :]
            character, length = _unescaped(text, place)
            if not length:
                self._torn = text[place:]
                break
            said.append(character)
            place += length
        return "".join(said), None


def _unescaped(text: str, place: int) -> tuple[str, int]:
    """The character that is escaped at this place, and the length of its escape; 0 when more of it has to come.

    What is no escape stands for itself, and half a character for one that cannot be shown.
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


class JsonSpan:
    """Where a JSON value ends."""

    __slots__ = ("_begun", "_depth", "_escaped", "_in_string", "_scalar")

    def __init__(self) -> None:
        self._begun = self._scalar = self._in_string = self._escaped = False
        self._depth = 0

    def feed(self, text: str) -> int | None:
        """How many of these characters belong to the value; nothing when all do and more may come."""
        if text and not self._begun:
            self._begun = True
            self._scalar = text[0] not in '{["'
        if self._scalar:
            end = _END_OF_SCALAR.search(text)
            return end.start() if end else None
        place = self._passed(text, 0)
        while place is not None and (self._depth or self._in_string):
            place = self._passed(text, place)
        return place

    def _passed(self, text: str, place: int) -> int | None:
        """The place behind the next character that matters; nothing when there is none."""
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
