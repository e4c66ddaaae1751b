"""Incremental JSON parser that returns the value as far as its text has arrived.

Each character is scanned once. The longest prefix that can be closed into valid JSON is decoded: a string as far as it
has arrived, a number or a literal once it is complete, a key once it has a value.

Each decoding starts at the beginning of the text. So a long text is not decoded after every piece, but whenever it has
grown by a fraction of its length, and when it is complete.
"""

from typing import Any

import msgspec

REDECODE_FRACTION = 64
"""The text is decoded again when it has grown by 1/`REDECODE_FRACTION` of its length."""

_CLOSING_BRACKETS = {"{": "}", "[": "]"}
_BLANK = " \t\r\n"
_AFTER_BACKSLASH = -1
_UNICODE_ESCAPE_DIGITS = 4
"""The number of hexadecimal digits after `\\u`."""


class PartialJsonParser:
    """A parser for one JSON value that arrives in pieces."""

    __slots__ = (
        *(
            "_closable_length",
            "_escape",
            "_in_key",
            "_in_string",
            "_expects_key",
            "_length",
            "_next_decode_length",
            "_pieces",
            "_open_brackets",
            "_in_literal",
        ),
        "value",
    )

    def __init__(self) -> None:
        self.value: Any = None
        """The value so far; `None` at first."""
        self._pieces: list[str] = []
        self._length = 0
        self._open_brackets: list[str] = []
        """The opening brackets of the objects and arrays that are open."""
        self._closable_length = 0
        """Length of the prefix that can be closed: it grows whenever something opens, closes or is complete."""
        self._next_decode_length = 0
        """Length of the text at which it is decoded next."""
        self._in_string = False
        self._in_key = False
        self._expects_key = False
        """True if the next string is the key of an object."""
        self._escape = 0
        """Digits of an escape that are still missing."""
        self._in_literal = False
        """True within a number or a literal such as `true`."""

    def feed(self, text: str) -> bool:
        """Append a piece of the JSON text. Return True if `value` has changed."""
        before = self._closable_length
        for place, character in enumerate(text, self._length):
            self._scan_character(place, character)
        self._pieces.append(text)
        self._length += len(text)
        is_whole = not (self._open_brackets or self._in_string)
        return (
            self._closable_length > before
            and (is_whole or self._length >= self._next_decode_length)
            and self._decode_prefix()
        )

    def _decode_prefix(self) -> bool:
        self._next_decode_length = self._length + self._length // REDECODE_FRACTION
        whole = "".join(self._pieces)
        self._pieces = [whole]
        try:
            value = msgspec.json.decode(whole[: self._closable_length] + self._closing_text())
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            return False  # half of a surrogate pair, or invalid JSON
        changed = bool(value != self.value)
        self.value = value
        return changed

    def _closing_text(self) -> str:
        """Return the text that makes the JSON received so far complete."""
        quote = '"' if self._in_string and not self._in_key else ""
        return quote + "".join([_CLOSING_BRACKETS[each] for each in reversed(self._open_brackets)])

    def _scan_character(self, index: int, character: str) -> None:
        if self._in_string:
            self._scan_string_character(index, character)
        elif character in '{["':
            self._open_value(index, character)
        elif character in "}]" and self._open_brackets:
            self._end_literal(index)
            self._open_brackets.pop()
            self._expects_key = False
            self._closable_length = index + 1
        elif character == ",":
            self._end_literal(index)
            self._expects_key = bool(self._open_brackets) and self._open_brackets[-1] == "{"
        elif character == ":":
            self._expects_key = False
        elif character in _BLANK:
            self._end_literal(index)
        else:
            self._in_literal = True

    def _open_value(self, index: int, character: str) -> None:
        if character == '"':
            self._in_string, self._in_key = True, self._expects_key
        else:
            self._open_brackets.append(character)
            self._expects_key = character == "{"
        if not self._in_key:
            self._closable_length = index + 1

    def _scan_string_character(self, index: int, character: str) -> None:
        if self._escape == _AFTER_BACKSLASH:
            self._escape = _UNICODE_ESCAPE_DIGITS if character == "u" else 0
        elif self._escape:
            self._escape -= 1
        elif character == "\\":
            self._escape = _AFTER_BACKSLASH
        elif character == '"':
            self._in_string = False
        if not (self._escape or self._in_key):
            self._closable_length = index + 1
        self._in_key = self._in_key and self._in_string

    def _end_literal(self, index: int) -> None:
        if self._in_literal:
            self._in_literal = False
            self._closable_length = index
