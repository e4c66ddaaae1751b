"""Find the line number of each key in a TOML text, for error messages.

The scanner knows tables, arrays of tables, dotted and quoted keys, the four kinds of strings, arrays and inline tables.
It does not validate values: that is left to the parser.
"""

import re
import tomllib
from typing import Final

from .line_number_scanner import TextScanner
from .line_numbers import LineNumbers, ValuePath, check_depth

_TOML_BLANK: Final = re.compile(r"[ \t]*+")
_EMPTY: Final = re.compile(r"(?:[ \t\n]++|#[^\n]*+)*+")
_REST_OF_LINE: Final = re.compile(r"[ \t]*+(?:#[^\n]*+)?(?:\n|\Z)")
_KEY: Final = re.compile(r"""[A-Za-z0-9_-]++|"(?:[^"\\\n]|\\.)*+"|'[^'\n]*+'""")
_STRINGS: Final = (
    ('"""', re.compile(r'"""(?:[^"\\]|\\.|"(?!""))*+"""(?:"{0,2})', re.DOTALL)),
    ("'''", re.compile(r"'''(?:[^']|'(?!''))*+'''(?:'{0,2})")),
    ('"', re.compile(r'"(?:[^"\\\n]|\\.)*+"')),
    ("'", re.compile(r"'[^'\n]*+'")),
)
_TOML_PLAIN: Final = re.compile(r"[^,\[\]{}#\n\"'=]++")
"""Pattern of a number, a date, `true` or `false`, up to what ends it."""


def find_toml_line_numbers(text: str) -> LineNumbers:
    """Return the line number of each key in a TOML text. Raises `ScanError` where the text stops being TOML."""
    return _TomlScanner(text).scan_document()


class _TomlScanner(TextScanner):
    """Walks through a TOML text once, statement by statement, and records the line of each key."""

    separator = _EMPTY

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.line_numbers.add((), 0)
        self._last: dict[ValuePath, int] = {}
        """Position of the newest table of each array of tables."""

    def scan_document(self) -> LineNumbers:
        table: ValuePath = ()
        while self._skip_to_statement():
            if self.text.startswith("[", self.position):
                table = self._scan_header()
            else:
                self._scan_pair(table)
            if not self.skip_match(_REST_OF_LINE):
                self.fail()
        return self.line_numbers.build()

    # -- statements ----------------------------------------------------------------------------------------------------

    def _scan_header(self) -> ValuePath:
        start, many = self.position, self.text.startswith("[[", self.position)
        self.position += 2 if many else 1
        *parents, name = self._scan_key()
        self._expect("]]" if many else "]")
        path: ValuePath = ()
        for parent in parents:
            path = self._resolve_array((*path, parent))
            self.line_numbers.add(path, start)
        path = (*path, name)
        if many:
            self.line_numbers.add(path, start)
            self._last[path] = self._last.get(path, -1) + 1
        path = self._resolve_array(path)
        self.line_numbers.add(path, start)
        return path

    def _resolve_array(self, path: ValuePath) -> ValuePath:
        """Resolve a key that names an array of tables to the newest table."""
        return (*path, self._last[path]) if path in self._last else path

    def _scan_pair(self, table: ValuePath) -> None:
        """Scan `key = value`, in a table or an inline table."""
        start, path = self.position, table
        for part in self._scan_key():
            path = (*path, part)
            self.line_numbers.add(path, start)
        self._expect("=")
        self.skip_match(_TOML_BLANK)
        self._scan_value(path)

    def _scan_key(self) -> list[str]:
        """Scan a dotted key and return its parts."""
        parts: list[str] = []
        while True:
            self.skip_match(_TOML_BLANK)
            found = self.skip_match(_KEY)
            if not found:
                self.fail()
            parts.append(self._unquote(found))
            check_depth(tuple(parts), self._current_line())
            self.skip_match(_TOML_BLANK)
            if not self.text.startswith(".", self.position):
                return parts
            self.position += 1

    def _unquote(self, key: str) -> str:
        if key[0] == "'" or (key[0] == '"' and "\\" not in key):
            return key[1:-1]
        if key[0] != '"':
            return key
        try:
            return str(tomllib.loads(f"key = {key}")["key"])
        except ValueError:
            self.fail()

    # -- values --------------------------------------------------------------------------------------------------------

    def _scan_value(self, path: ValuePath) -> None:
        first = self.text[self.position : self.position + 1]
        if first == "[":
            self._scan_array(path)
        elif first == "{":
            self._scan_inline_table(path)
        elif first in {'"', "'"}:
            _, pattern = next(each for each in _STRINGS if self.text.startswith(each[0], self.position))
            if not self.skip_match(pattern):
                self.fail()
        else:
            self._scan_unquoted()

    def _scan_unquoted(self) -> None:
        """Scan a number, a date, `true` or `false`."""
        start, word = self.position, self.skip_match(_TOML_PLAIN)
        if not word:
            self.fail()
        self.line_numbers.check_unquoted(word, start)

    def _scan_array(self, path: ValuePath) -> None:
        self.position += 1
        number = 0
        while not self.skip_bracket("]"):
            here = (*path, number)
            self.line_numbers.add(here, self.position)
            self._scan_value(here)
            number += 1
            self.skip_comma("]")

    def _scan_inline_table(self, path: ValuePath) -> None:
        self.position += 1
        while not self.skip_bracket("}"):
            self._scan_pair(path)
            self.skip_comma("}")

    # -- the text ------------------------------------------------------------------------------------------------------

    def _skip_to_statement(self) -> bool:
        self.skip_match(_EMPTY)
        return self.position < len(self.text)

    def _expect(self, word: str) -> None:
        self.skip_match(_TOML_BLANK)
        if not self.text.startswith(word, self.position):
            self.fail()
        self.position += len(word)

    def _current_line(self) -> int:
        return self.line_numbers.line_at(self.position)
