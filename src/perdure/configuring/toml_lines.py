"""The lines of a TOML text: which key stands where. Above: `source.py`. Below: `lines.py`.

The scanner knows tables, arrays of tables, dotted and quoted keys, strings of all four kinds, arrays and inline tables.
It does not look at what values mean: whatever it lets pass, the parser checks.
"""

import re
import tomllib
from typing import Final

from .lines import Lines, Path, check_depth
from .scanner import Scanner

_BLANK: Final = re.compile(r"[ \t]*+")
_EMPTY: Final = re.compile(r"(?:[ \t\n]++|#[^\n]*+)*+")
_REST_OF_LINE: Final = re.compile(r"[ \t]*+(?:#[^\n]*+)?(?:\n|\Z)")
_KEY: Final = re.compile(r"""[A-Za-z0-9_-]++|"(?:[^"\\\n]|\\.)*+"|'[^'\n]*+'""")
_STRINGS: Final = (
    ('"""', re.compile(r'"""(?:[^"\\]|\\.|"(?!""))*+"""(?:"{0,2})', re.DOTALL)),
    ("'''", re.compile(r"'''(?:[^']|'(?!''))*+'''(?:'{0,2})")),
    ('"', re.compile(r'"(?:[^"\\\n]|\\.)*+"')),
    ("'", re.compile(r"'[^'\n]*+'")),
)
_PLAIN: Final = re.compile(r"[^,\[\]{}#\n\"'=]++")
"""A number, a date, `true` or `false`: up to what ends it."""


def toml_lines(text: str) -> Lines:
    """The line of each key. Raises `Unscannable` where the text stops being TOML."""
    return _Scanner(text).document()


class _Scanner(Scanner):
    """Goes through a text once, from one statement to the next."""

    between = _EMPTY

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.survey.note((), 0)
        self._last: dict[Path, int] = {}
        """Of each array of tables, the place of its newest table."""

    def document(self) -> Lines:
        table: Path = ()
        while self._skip_to_statement():
            if self.text.startswith("[", self.place):
                table = self._header()
            else:
                self._pair(table)
            if not self.take(_REST_OF_LINE):
                self.stop()
        return self.survey.result()

    # -- statements ----------------------------------------------------------------------------------------------------

    def _header(self) -> Path:
        start, many = self.place, self.text.startswith("[[", self.place)
        self.place += 2 if many else 1
        *parents, name = self._key()
        self._expect("]]" if many else "]")
        path: Path = ()
        for parent in parents:
            path = self._current((*path, parent))
            self.survey.note(path, start)
        path = (*path, name)
        if many:
            self.survey.note(path, start)
            self._last[path] = self._last.get(path, -1) + 1
        path = self._current(path)
        self.survey.note(path, start)
        return path

    def _current(self, path: Path) -> Path:
        """A key that names an array of tables means the newest of them."""
        return (*path, self._last[path]) if path in self._last else path

    def _pair(self, table: Path) -> None:
        """`key = value`, in a table or in braces."""
        start, path = self.place, table
        for part in self._key():
            path = (*path, part)
            self.survey.note(path, start)
        self._expect("=")
        self.take(_BLANK)
        self._value(path)

    def _key(self) -> list[str]:
        """The parts of a dotted key."""
        parts: list[str] = []
        while True:
            self.take(_BLANK)
            found = self.take(_KEY)
            if not found:
                self.stop()
            parts.append(self._unquoted(found))
            check_depth(tuple(parts), self._line())
            self.take(_BLANK)
            if not self.text.startswith(".", self.place):
                return parts
            self.place += 1

    def _unquoted(self, key: str) -> str:
        if key[0] == "'" or (key[0] == '"' and "\\" not in key):
            return key[1:-1]
        if key[0] != '"':
            return key
        try:
            return str(tomllib.loads(f"key = {key}")["key"])
        except ValueError:
            self.stop()

    # -- values --------------------------------------------------------------------------------------------------------

    def _value(self, path: Path) -> None:
        first = self.text[self.place : self.place + 1]
        if first == "[":
            self._array(path)
        elif first == "{":
            self._braces(path)
        elif first in {'"', "'"}:
            _, pattern = next(each for each in _STRINGS if self.text.startswith(each[0], self.place))
            if not self.take(pattern):
                self.stop()
        else:
            self._word()

    def _word(self) -> None:
        """A number, a date, `true` or `false`."""
        start, word = self.place, self.take(_PLAIN)
        if not word:
            self.stop()
        self.survey.check_word(word, start)

    def _array(self, path: Path) -> None:
        self.place += 1
        number = 0
        while not self.closed("]"):
            here = (*path, number)
            self.survey.note(here, self.place)
            self._value(here)
            number += 1
            self.comma("]")

    def _braces(self, path: Path) -> None:
        self.place += 1
        while not self.closed("}"):
            self._pair(path)
            self.comma("}")

    # -- the text ------------------------------------------------------------------------------------------------------

    def _skip_to_statement(self) -> bool:
        self.take(_EMPTY)
        return self.place < len(self.text)

    def _expect(self, word: str) -> None:
        self.take(_BLANK)
        if not self.text.startswith(word, self.place):
            self.stop()
        self.place += len(word)

    def _line(self) -> int:
        return self.survey.line(self.place)
