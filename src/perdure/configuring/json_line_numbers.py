"""Find the line number of each value in a JSON text, for error messages.

A duplicate key is refused: parsers use one of the two, and the reader may have seen the other.
"""

import json
import re
from typing import Final

from perdure.core.jsonable import short_repr

from .line_number_scanner import TextScanner
from .line_numbers import LineNumbers, ScanError, ValuePath

_JSON_BLANK: Final = re.compile(r"[ \t\r\n]*+")
_STRING: Final = re.compile(r'"(?:[^"\\\n]|\\.)*+"')
_JSON_PLAIN: Final = re.compile(r"[-+.\w]++")
_WORD: Final = re.compile(r"[-+.0-9eE]++|true|false|null")


def find_json_line_numbers(text: str) -> LineNumbers:
    """Return the line number of each value in a JSON text. Raises `ScanError` where the text stops being JSON."""
    return _JsonScanner(text).scan_document()


class _JsonScanner(TextScanner):
    """Walks through a JSON text once and records the line of each value."""

    separator = _JSON_BLANK

    def scan_document(self) -> LineNumbers:
        self.skip_match(_JSON_BLANK)
        self._scan_value(())
        self.skip_match(_JSON_BLANK)
        if self.position < len(self.text):
            self.fail()
        return self.line_numbers.build()

    def _scan_value(self, path: ValuePath) -> None:
        self.line_numbers.add(path, self.position)
        first = self.text[self.position : self.position + 1]
        if first == "{":
            self._scan_object(path)
        elif first == "[":
            self._scan_array(path)
        elif first == '"':
            if not self.skip_match(_STRING):
                self.fail()
        else:
            self._scan_unquoted()

    def _scan_unquoted(self) -> None:
        """Scan a number, `true`, `false` or `null`; the parser checks that it is valid."""
        start, word = self.position, self.skip_match(_JSON_PLAIN)
        self.line_numbers.check_unquoted(word, start)
        if not _WORD.fullmatch(word):
            self.position = start
            self.fail()

    def _scan_object(self, path: ValuePath) -> None:
        self.position += 1
        while not self.skip_bracket("}"):
            start, written = self.position, self.skip_match(_STRING)
            key = self._decode_string(written) if written else self.fail()
            if (here := (*path, key)) in self.line_numbers:
                raise ScanError(
                    self.line_numbers.line_at(start), f"the key {short_repr(key, 80)} is there twice: keep one"
                )
            self.line_numbers.add(here, start)
            self.skip_match(_JSON_BLANK)
            if not self.text.startswith(":", self.position):
                self.fail()
            self.position += 1
            self.skip_match(_JSON_BLANK)
            self._scan_value(here)
            self.skip_comma("}")

    def _scan_array(self, path: ValuePath) -> None:
        self.position += 1
        number = 0
        while not self.skip_bracket("]"):
            self._scan_value((*path, number))
            number += 1
            self.skip_comma("]")

    def _decode_string(self, written: str) -> str:
        try:
            return str(json.loads(written))
        except ValueError:
            self.fail()
