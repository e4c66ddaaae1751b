"""The lines of a JSON text: which key stands where. Above: `source.py`. Below: `lines.py`.

A key that is there twice is refused: parsers take one of the two, and a reader may have seen the other.
"""

import json
import re
from typing import Final, NoReturn

from windlass.core.plain import excerpt

from .lines import Lines, Path, Survey, Unscannable

_BLANK: Final = re.compile(r"[ \t\r\n]*+")
_STRING: Final = re.compile(r'"(?:[^"\\\n]|\\.)*+"')
_PLAIN: Final = re.compile(r"[-+.\w]++")
_WORD: Final = re.compile(r"[-+.0-9eE]++|true|false|null")


def json_lines(text: str) -> Lines:
    """The line of each value. Raises `Unscannable` where the text stops being JSON."""
    return _Scanner(text).document()


class _Scanner:
    """Goes through a text once."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._place = 0
        self._survey = Survey(text)

    def document(self) -> Lines:
        self._take(_BLANK)
        self._value(())
        self._take(_BLANK)
        if self._place < len(self._text):
            self._stop()
        return self._survey.result()

    def _value(self, path: Path) -> None:
        self._survey.note(path, self._place)
        first = self._text[self._place : self._place + 1]
        if first == "{":
            self._object(path)
        elif first == "[":
            self._array(path)
        elif first == '"':
            if not self._take(_STRING):
                self._stop()
        else:
            self._word()

    def _word(self) -> None:
        """A number, `true`, `false` or `null`. What only looks like one is left to the parser."""
        start, word = self._place, self._take(_PLAIN)
        self._survey.check_word(word, start)
        if not _WORD.fullmatch(word):
            self._place = start
            self._stop()

    def _object(self, path: Path) -> None:
        self._place += 1
        while not self._closed("}"):
            start, written = self._place, self._take(_STRING)
            key = self._decoded(written) if written else self._stop()
            if (here := (*path, key)) in self._survey:
                raise Unscannable(self._survey.line(start), f"the key {excerpt(key, 80)} is there twice: keep one")
            self._survey.note(here, start)
            self._take(_BLANK)
            if not self._text.startswith(":", self._place):
                self._stop()
            self._place += 1
            self._take(_BLANK)
            self._value(here)
            self._comma("}")

    def _array(self, path: Path) -> None:
        self._place += 1
        number = 0
        while not self._closed("]"):
            self._value((*path, number))
            number += 1
            self._comma("]")

    def _closed(self, bracket: str) -> bool:
        """Whether the bracket comes next; it is taken."""
        self._take(_BLANK)
        if not self._text.startswith(bracket, self._place):
            return False
        self._place += 1
        return True

    def _comma(self, bracket: str) -> None:
        self._take(_BLANK)
        if self._text.startswith(",", self._place):
            self._place += 1
        elif not self._text.startswith(bracket, self._place):
            self._stop()

    def _decoded(self, written: str) -> str:
        try:
            return str(json.loads(written))
        except ValueError:
            self._stop()

    def _take(self, pattern: re.Pattern[str]) -> str:
        match = pattern.match(self._text, self._place)
        if match is None:
            return ""
        self._place = match.end()
        return match[0]

    def _stop(self) -> NoReturn:
        raise Unscannable(self._survey.line(self._place))
