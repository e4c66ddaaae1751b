"""Find the line of a value in the text of a configuration file, so that an error about the value can name its line.

Parsers do not tell the lines of the values that they read. So the brackets, keys and strings of the text are read once
more, when the first line is asked for. Of a value that is not there, or has a key that is there twice, the line of a
table around it is found, or none; errors then name its keys as well.
"""

import ast
import contextlib
import json
import re
from functools import cached_property
from typing import Final, NamedTuple, TypeAlias, cast

from perdure._core.schema.problems import format_path

from .error import ConfigFault

ValuePath: TypeAlias = tuple[str | int, ...]
"""Path to a value in a file, as keys and array positions: `("mcp", "servers", "git", "args", 0)`."""

_LONGEST_PATH: Final = 200
_STEP: Final = re.compile(r"\[(\d+)\]|\[('(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\")\]|([^.\[\]]+)")
_TOKEN: Final = re.compile(
    r"""
    \"{3}(?:[^\\]|\\.)*?\"{3,5} | '{3}.*?'{3,5}  # text of several lines
    | "(?:[^"\\\n]|\\.)*" | '[^'\n]*' | \#[^\n]* |  [^\s\[\]{}=.,:"'#]+ | .
    """,
    re.DOTALL | re.VERBOSE,
)
"""Pattern of a string, a comment, a bare word, or any other character of TOML or JSON."""


class FoundLine(NamedTuple):
    """The line at which a value, or else a table around it, was found."""

    line: int
    """Line number from 1; 0 if nothing was found."""
    is_exact: bool
    """True if it is the line of the value itself."""


class LineNumbers:
    """Looks up the line number of a value of a configuration file by the keys that lead to it."""

    def __init__(self, text: str = "", *, is_json: bool = False) -> None:
        self._text = text
        self._is_json = is_json

    def find_line(self, path: ValuePath | str) -> FoundLine:
        """Return the line of the value at `path`, or of the nearest table around it that is found."""
        if isinstance(path, str):
            path = tuple(int(step[1]) if step[1] else _parse_step(step[2]) or step[3] for step in _STEP.finditer(path))
        if not path:
            return FoundLine(1, is_exact=True)
        found = 0
        while found < len(path) and path[: found + 1] in self._places:
            found += 1
        line = self._text.count("\n", 0, self._places[path[:found]]) + 1 if found else 0
        return FoundLine(line, is_exact=found == len(path))

    @cached_property
    def _places(self) -> dict[ValuePath, int]:
        return _find_places(self._text, is_json=self._is_json)

    def build_fault(self, path: ValuePath | str, message: str) -> ConfigFault:
        """Return a `ConfigFault` with `message` and the line of the value at `path`, or its keys if that is unknown."""
        line, is_exact = self.find_line(path)
        keys = path if isinstance(path, str) else format_path(path)
        keys = keys if len(keys) <= _LONGEST_PATH else f"{keys[:_LONGEST_PATH]}…"
        is_told = is_exact or keys.strip("[]") in message
        return ConfigFault(line, message if is_told else f"{keys}: {message}")


def _parse_step(quoted: str | None) -> str:
    """Return a key that is written like a string of Python, as `format_path` does; empty if there is none."""
    return str(ast.literal_eval(quoted)) if quoted else ""


def _find_places(text: str, *, is_json: bool) -> dict[ValuePath, int]:
    """Return the position of each value and table in a text of TOML or JSON, but of no key that is there twice."""
    reader = _PlaceReader(is_json=is_json)
    for token in _TOKEN.finditer(text):
        if token[0] == "\n" or not (token[0].isspace() or token[0].startswith("#")):
            reader.read(token[0], token.start())
    return {path: place for path, place in reader.places.items() if path not in reader.repeated}


class _PlaceReader:
    """Follows the tokens of a text, to know which keys lead to the place that has been reached."""

    def __init__(self, *, is_json: bool) -> None:
        self.places: dict[ValuePath, int] = {}
        self.repeated: set[ValuePath] = set()
        self._is_json = is_json
        self._is_in_value = is_json  # or in keys
        self._table: ValuePath = ()
        self._lengths: dict[ValuePath, int] = {}
        """The number of tables `[[path]]` so far."""
        self._path: ValuePath = ()
        """The path of the value that is read."""
        self._around: list[tuple[str, ValuePath]] = []
        """The open brackets of the value, with their paths."""
        self._keys: list[str] = []
        self._place = 0
        """The position of the first of the keys, or of the brackets before it."""
        self._brackets = 0

    def read(self, mark: str, place: int) -> None:
        """Read the next token."""
        if mark == "\n":
            if not self._around and not self._is_json:
                self._begin_keys()
        elif mark in ("]", "}") and self._around:
            _, self._path = self._around.pop()
            self._is_in_value = True
        elif self._is_in_value:
            self._read_in_value(mark, place)
        else:
            self._read_in_keys(mark, place)

    def _begin_keys(self) -> None:
        self._keys, self._brackets, self._is_in_value = [], 0, False

    def _read_in_value(self, mark: str, place: int) -> None:
        bracket, path = self._around[-1] if self._around else ("", ())
        if mark == "," and bracket == "{":
            self._begin_keys()
        elif mark == "," and bracket:
            self._path = (*path, cast("int", self._path[-1]) + 1)
        else:
            if bracket == "[":
                self.places.setdefault(self._path, place)
            if mark in ("[", "{"):
                self._around.append((mark, self._path))
            if mark == "[":
                self._path = (*self._path, 0)
            elif mark == "{":
                self._begin_keys()

    def _read_in_keys(self, mark: str, place: int) -> None:
        self._place = self._place if self._keys or self._brackets else place
        if mark == "[":
            self._brackets += 1
        elif mark in ("]", "=", ":"):
            self._path = self._add_keys(self._around[-1][1] if self._around else self._table if mark == "=" else ())
            self._table = self._path if mark == "]" else self._table
            self._is_in_value = True
        elif mark not in (".", ","):
            self._keys.append(_parse_key(mark))

    def _add_keys(self, path: ValuePath) -> ValuePath:
        """Return the path with the keys, and in a header the positions in arrays of tables, that have been read."""
        if self._is_json and (*path, *self._keys) in self.places:
            self.repeated.add((*path, *self._keys))
        for number, key in enumerate(self._keys, 1):
            path = (*path, key)
            self.places.setdefault(path, self._place)
            if self._brackets == 2 and number == len(self._keys):  # noqa: PLR2004 - as in [[schedule]]
                self._lengths[path] = self._lengths.get(path, 0) + 1
            if self._brackets and path in self._lengths:
                path = (*path, self._lengths[path] - 1)
                self.places.setdefault(path, self._place)
        return path


def _parse_key(token: str) -> str:
    """Return a key as it is without quotes and escapes."""
    if token[0] == '"':
        with contextlib.suppress(ValueError):
            return str(json.loads(token))
    return token[1:-1] if token[0] in "\"'" else token
