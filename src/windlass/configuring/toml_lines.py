"""The lines of a TOML text: which key stands where. Above: `source.py`. Below: `lines.py`.

The scanner knows tables, arrays of tables, dotted and quoted keys, strings of all four kinds, arrays and inline tables.
It does not look at what values mean: whatever it lets pass, the parser checks.
"""

import re
import tomllib
from typing import Final, NoReturn

from .lines import Lines, Path, Survey, Unscannable, check_depth

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


class _Scanner:
    """Goes through a text once, from one statement to the next."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._place = 0
        self._survey = Survey(text)
        self._survey.note((), 0)
        self._last: dict[Path, int] = {}
        """Of each array of tables, the place of its newest table."""

    def document(self) -> Lines:
        table: Path = ()
        while self._skip_to_statement():
            if self._text.startswith("[", self._place):
                table = self._header()
            else:
                self._pair(table)
            if not self._take(_REST_OF_LINE):
                self._stop()
        return self._survey.result()

    # -- statements ----------------------------------------------------------------------------------------------------

    def _header(self) -> Path:
        start, many = self._place, self._text.startswith("[[", self._place)
        self._place += 2 if many else 1
        *parents, name = self._key()
        self._expect("]]" if many else "]")
        path: Path = ()
        for parent in parents:
            path = self._current((*path, parent))
            self._survey.note(path, start)
        path = (*path, name)
        if many:
            self._survey.note(path, start)
            self._last[path] = self._last.get(path, -1) + 1
        path = self._current(path)
        self._survey.note(path, start)
        return path

    def _current(self, path: Path) -> Path:
        """A key that names an array of tables means the newest of them."""
        return (*path, self._last[path]) if path in self._last else path

    def _pair(self, table: Path) -> None:
        """`key = value`, in a table or in braces."""
        start, path = self._place, table
        for part in self._key():
            path = (*path, part)
            self._survey.note(path, start)
        self._expect("=")
        self._take(_BLANK)
        self._value(path)

    def _key(self) -> list[str]:
        """The parts of a dotted key."""
        parts: list[str] = []
        while True:
            self._take(_BLANK)
            found = self._take(_KEY)
            if not found:
                self._stop()
            parts.append(self._unquoted(found))
            check_depth(tuple(parts), self._line())
            self._take(_BLANK)
            if not self._text.startswith(".", self._place):
                return parts
            self._place += 1

    def _unquoted(self, key: str) -> str:
        if key[0] == "'" or (key[0] == '"' and "\\" not in key):
            return key[1:-1]
        if key[0] != '"':
            return key
        try:
            return str(tomllib.loads(f"key = {key}")["key"])
        except ValueError:
            self._stop()

    # -- values --------------------------------------------------------------------------------------------------------

    def _value(self, path: Path) -> None:
        first = self._text[self._place : self._place + 1]
        if first == "[":
            self._array(path)
        elif first == "{":
            self._braces(path)
        elif first in {'"', "'"}:
            _, pattern = next(each for each in _STRINGS if self._text.startswith(each[0], self._place))
            if not self._take(pattern):
                self._stop()
        else:
            self._word()

    def _word(self) -> None:
        """A number, a date, `true` or `false`."""
        start, word = self._place, self._take(_PLAIN)
        if not word:
            self._stop()
        self._survey.check_word(word, start)

    def _array(self, path: Path) -> None:
        self._place += 1
        number = 0
        while not self._closed("]"):
            here = (*path, number)
            self._survey.note(here, self._place)
            self._value(here)
            number += 1
            self._comma("]")

    def _braces(self, path: Path) -> None:
        self._place += 1
        while not self._closed("}"):
            self._pair(path)
            self._comma("}")

    def _closed(self, bracket: str) -> bool:
        """Whether the bracket comes next; it is taken."""
        self._take(_EMPTY)
        if self._place >= len(self._text):
            self._stop()
        if not self._text.startswith(bracket, self._place):
            return False
        self._place += 1
        return True

    def _comma(self, bracket: str) -> None:
        """Between two values stands a comma; after the last there may be one."""
        self._take(_EMPTY)
        if self._text.startswith(",", self._place):
            self._place += 1
        elif not self._text.startswith(bracket, self._place):
            self._stop()

    # -- the text ------------------------------------------------------------------------------------------------------

    def _skip_to_statement(self) -> bool:
        self._take(_EMPTY)
        return self._place < len(self._text)

    def _take(self, pattern: re.Pattern[str]) -> str:
        """What matches here; it is stepped over."""
        match = pattern.match(self._text, self._place)
        if match is None:
            return ""
        self._place = match.end()
        # A line that ends with nothing at all has ended too.
        return match[0] or "\n"

    def _expect(self, word: str) -> None:
        self._take(_BLANK)
        if not self._text.startswith(word, self._place):
            self._stop()
        self._place += len(word)

    def _line(self) -> int:
        return self._survey.line(self._place)

    def _stop(self) -> NoReturn:
        raise Unscannable(self._line())
