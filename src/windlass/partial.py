"""JSON that is still being written, as the value that it is so far. Above: `stream.py`. Below: nothing.

Each character is looked at once. What is decoded is the longest beginning that can be closed into valid JSON: a text
is shown as far as it has come, a number or a word when it is whole, a key when it has a value.
"""

from typing import Any

import msgspec

_CLOSING = {"{": "}", "[": "]"}
_BLANK = " \t\r\n"


class PartialJson:
    """Takes the text of a JSON value piece by piece."""

    __slots__ = ("_closing", "_cut", "_escape", "_in_key", "_in_text", "_is_key", "_pieces", "_stack", "_word", "value")

    def __init__(self) -> None:
        self.value: Any = None
        """What has come so far; `None` before anything has."""
        self._pieces = ""
        self._stack: list[str] = []
        self._cut = 0
        """Up to here the text can be closed by `_closing`."""
        self._closing = ""
        self._in_text = False
        self._in_key = False
        self._is_key = False
        """Whether the next text is the key of an object."""
        self._escape = 0
        """Characters of an escape that are still to come."""
        self._word = False
        """Whether a number or a word such as `true` is being written."""

    def feed(self, text: str) -> bool:
        """More of the text. Whether the value has changed."""
        start = len(self._pieces)
        self._pieces += text
        before = (self._cut, self._closing)
        for place, character in enumerate(text, start):
            self._step(place, character)
        if (self._cut, self._closing) == before:
            return False
        try:
            value = msgspec.json.decode(self._pieces[: self._cut] + self._closing)
        except msgspec.DecodeError:
            return False  # half of a pair of escapes, or no JSON at all
        changed = bool(value != self.value)
        self.value = value
        return changed

    def _step(self, place: int, character: str) -> None:
        if self._in_text:
            self._within_text(place, character)
        elif character in '{["':
            self._open(place, character)
        elif character in "}]" and self._stack:
            self._end_word(place)
            self._stack.pop()
            self._is_key = False
            self._mark(place + 1)
        elif character == ",":
            self._end_word(place)
            self._is_key = bool(self._stack) and self._stack[-1] == "{"
        elif character == ":":
            self._is_key = False
        elif character in _BLANK:
            self._end_word(place)
        else:
            self._word = True

    def _open(self, place: int, character: str) -> None:
        if character == '"':
            self._in_text, self._in_key = True, self._is_key
            if not self._in_key:
                self._mark(place + 1, '"')
        else:
            self._stack.append(character)
            self._is_key = character == "{"
            self._mark(place + 1)

    def _within_text(self, place: int, character: str) -> None:
        if self._escape:
            self._escape = (
                4 if self._escape == 1 and character == "u" and not self._in_unicode(place) else self._escape - 1
            )
        elif character == "\\":
            self._escape = 1
        elif character == '"':
            self._in_text = False
            if self._in_key:
                self._in_key = False
            else:
                self._mark(place + 1)
            return
        if not self._escape and not self._in_key:
            self._mark(place + 1, '"')

    def _in_unicode(self, place: int) -> bool:
        """Whether the `u` is a digit's place of an escape, and not its beginning."""
        return self._pieces[place - 1] != "\\"

    def _end_word(self, place: int) -> None:
        if self._word:
            self._word = False
            self._mark(place)

    def _mark(self, cut: int, quote: str = "") -> None:
        self._cut = cut
        self._closing = quote + "".join([_CLOSING[each] for each in reversed(self._stack)])
