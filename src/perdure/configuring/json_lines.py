"""The lines of a JSON text: which key stands where. Above: `source.py`. Below: `lines.py`.

A key that is there twice is refused: parsers take one of the two, and a reader may have seen the other.
"""

import json
import re
from typing import Final

from perdure.core.plain import excerpt

from .lines import Lines, Path, Unscannable
from .scanner import Scanner

_BLANK: Final = re.compile(r"[ \t\r\n]*+")
_STRING: Final = re.compile(r'"(?:[^"\\\n]|\\.)*+"')
_PLAIN: Final = re.compile(r"[-+.\w]++")
_WORD: Final = re.compile(r"[-+.0-9eE]++|true|false|null")


def json_lines(text: str) -> Lines:
    """The line of each value. Raises `Unscannable` where the text stops being JSON."""
    return _Scanner(text).document()


class _Scanner(Scanner):
    """Goes through a text once."""

    between = _BLANK

    def document(self) -> Lines:
        self.take(_BLANK)
        self._value(())
        self.take(_BLANK)
        if self.place < len(self.text):
            self.stop()
        return self.survey.result()

    def _value(self, path: Path) -> None:
        self.survey.note(path, self.place)
        first = self.text[self.place : self.place + 1]
        if first == "{":
            self._object(path)
        elif first == "[":
            self._array(path)
        elif first == '"':
            if not self.take(_STRING):
                self.stop()
        else:
            self._word()

    def _word(self) -> None:
        """A number, `true`, `false` or `null`. What only looks like one is left to the parser."""
        start, word = self.place, self.take(_PLAIN)
        self.survey.check_word(word, start)
        if not _WORD.fullmatch(word):
            self.place = start
            self.stop()

    def _object(self, path: Path) -> None:
        self.place += 1
        while not self.closed("}"):
            start, written = self.place, self.take(_STRING)
            key = self._decoded(written) if written else self.stop()
            if (here := (*path, key)) in self.survey:
                raise Unscannable(self.survey.line(start), f"the key {excerpt(key, 80)} is there twice: keep one")
            self.survey.note(here, start)
            self.take(_BLANK)
            if not self.text.startswith(":", self.place):
                self.stop()
            self.place += 1
            self.take(_BLANK)
            self._value(here)
            self.comma("}")

    def _array(self, path: Path) -> None:
        self.place += 1
        number = 0
        while not self.closed("]"):
            self._value((*path, number))
            number += 1
            self.comma("]")

    def _decoded(self, written: str) -> str:
        try:
            return str(json.loads(written))
        except ValueError:
            self.stop()
