"""Scan TOML or JSON settings for their line numbers: the base class of both scanners.

A scanner makes one pass over a text, from left to right.
"""

import re
from typing import ClassVar, NoReturn

from .line_numbers import LineNumbersBuilder, ScanError


class TextScanner:
    """Base class of the TOML and JSON scanners: a position in the text, and the line numbers found up to there."""

    separator: ClassVar[re.Pattern[str]]
    """Pattern of the blanks and comments that may separate two values."""
    position: int
    """Current position in the text."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.position = 0
        self.line_numbers = LineNumbersBuilder(text)

    def skip_bracket(self, bracket: str) -> bool:
        """Move past `bracket` and return True if it is the next character. Raises `ScanError` at the end of the
        text.
        """
        self.skip_match(self.separator)
        if self.position >= len(self.text):
            self.fail()
        if not self.text.startswith(bracket, self.position):
            return False
        self.position += 1
        return True

    def skip_comma(self, bracket: str) -> None:
        """Advance past a comma between two values. Raises `ScanError` if neither a comma nor `bracket` is next."""
        self.skip_match(self.separator)
        if self.text.startswith(",", self.position):
            self.position += 1
        elif not self.text.startswith(bracket, self.position):
            self.fail()

    def skip_match(self, pattern: re.Pattern[str]) -> str:
        """Advance past the text that matches `pattern` here, and return it; empty if it does not match."""
        match = pattern.match(self.text, self.position)
        if match is None:
            return ""
        self.position = match.end()
        return match[0] or "\n"  # a line that ends with nothing at all has ended too

    def fail(self) -> NoReturn:
        """Raise `ScanError` with the current line and no message, so that the parser reports the error."""
        raise ScanError(self.line_numbers.line_at(self.position))
