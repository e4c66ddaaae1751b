"""JSON that is still being written, as the value that it is so far. Above: `stream.py`. Below: nothing.

Each character is looked at once. What is decoded is the longest beginning that can be closed into valid JSON: a text
is shown as far as it has come, a number or a word when it is whole, a key when it has a value.

Every look at the value decodes it from its beginning, so a long text is not looked at with each piece of it, but
whenever it has grown by a little of its length, and when it is whole.
"""

from typing import Any

import msgspec

GROWTH = 64
"""A text is looked at when it is longer by this part of its length than at the last look."""

_CLOSING = {"{": "}", "[": "]"}
_BLANK = " \t\r\n"
_AFTER_BACKSLASH = -1
_DIGITS = 4
"""How many of them follow `\\u`."""


class PartialJson:
    """Takes the text of a JSON value piece by piece."""

    __slots__ = (
        *("_cut", "_escape", "_in_key", "_in_text", "_is_key", "_length", "_next", "_pieces", "_stack", "_word"),
        "value",
    )

    def __init__(self) -> None:
        self.value: Any = None
        """What has come so far; `None` before anything has."""
        self._pieces: list[str] = []
        self._length = 0
        self._stack: list[str] = []
        """The objects and arrays that are open."""
        self._cut = 0
        """Up to here the text can be closed: it moves whenever something opens, closes or is whole."""
        self._next = 0
        """How long the text has to be for the next look."""
        self._in_text = False
        self._in_key = False
        self._is_key = False
        """Whether the next text is the key of an object."""
        self._escape = 0
        """Digits of an escape that are still to come."""
        self._word = False
        """Whether a number or a word such as `true` is being written."""

    def feed(self, text: str) -> bool:
        """More of the text. Whether the value has changed."""
        before = self._cut
        for place, character in enumerate(text, self._length):
            self._step(place, character)
        self._pieces.append(text)
        self._length += len(text)
        is_whole = not (self._stack or self._in_text)
        return self._cut > before and (is_whole or self._length >= self._next) and self._look()

    def _look(self) -> bool:
        self._next = self._length + self._length // GROWTH
        whole = "".join(self._pieces)
        self._pieces = [whole]
        try:
            value = msgspec.json.decode(whole[: self._cut] + self._closing())
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            return False  # half of a pair of escapes, or no JSON at all
        changed = bool(value != self.value)
        self.value = value
        return changed

    def _closing(self) -> str:
        """What makes valid JSON of the text up to the cut."""
        quote = '"' if self._in_text and not self._in_key else ""
        return quote + "".join([_CLOSING[each] for each in reversed(self._stack)])

    def _step(self, place: int, character: str) -> None:
        if self._in_text:
            self._within_text(place, character)
        elif character in '{["':
            self._open(place, character)
        elif character in "}]" and self._stack:
            self._end_word(place)
            self._stack.pop()
            self._is_key = False
            self._cut = place + 1
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
        else:
            self._stack.append(character)
            self._is_key = character == "{"
        if not self._in_key:
            self._cut = place + 1

    def _within_text(self, place: int, character: str) -> None:
        if self._escape == _AFTER_BACKSLASH:
            self._escape = _DIGITS if character == "u" else 0
        elif self._escape:
            self._escape -= 1
        elif character == "\\":
            self._escape = _AFTER_BACKSLASH
        elif character == '"':
            self._in_text = False
        if not (self._escape or self._in_key):
            self._cut = place + 1
        self._in_key = self._in_key and self._in_text

    def _end_word(self, place: int) -> None:
        if self._word:
            self._word = False
            self._cut = place
