"""Line numbers of the values in a configuration file, so that an error about a value can name its line.

Parsers report the line of a syntax error, but not the lines of the values they read. So a scanner,
`toml_line_numbers.py` or `json_line_numbers.py`, goes through the text first. It also protects the parser from
unbounded work, by limits on depth and number of values that no configuration reaches.
"""

from bisect import bisect_left
from collections.abc import Mapping
from typing import Final, TypeAlias

from perdure.core.validation_problems import format_path

MAX_DEPTH: Final = 24
"""Limit on the nesting of a value: the number of keys and array positions in its path."""

MAX_VALUES: Final = 10_000
"""Limit on the number of values in a file, tables and arrays included."""
MAX_UNQUOTED: Final = 300
"""Limit on the characters of an unquoted value, such as a number or a date."""

ValuePath: TypeAlias = tuple[str | int, ...]
"""Path to a value in a file, as keys and array positions: `("mcp", "servers", "git", "args", 0)`."""


class LineNumbers:
    """Looks up the line number of a value of a configuration file by the keys that lead to it."""

    def __init__(self, lines: Mapping[ValuePath, int]) -> None:
        self._lines = lines
        self._paths = {format_path(path): path for path in lines}

    def line_of(self, path: ValuePath | str) -> int:
        """Return the line of the value at `path`, or of its nearest parent that has one; 0 when none has."""
        if isinstance(path, str):
            while path and path not in self._paths:
                path = path[: max(path.rfind("."), path.rfind("["), 0)]
            path = self._paths.get(path, ())
        steps = path
        while steps and steps not in self._lines:
            steps = steps[:-1]
        return self._lines.get(steps, 0)

    def __contains__(self, path: ValuePath) -> bool:
        return path in self._lines


class ScanError(Exception):
    """Raised by a TOML or JSON scanner at the line where it cannot continue.

    If it has no message, the TOML or JSON parser reports the error.
    """

    def __init__(self, line: int, message: str = "") -> None:
        super().__init__(line, message)
        self.line = line
        self.message = message
        """The error, when the scanner knows it; then the parser is not run."""


class LineNumbersBuilder:
    """Collects the line number of each value while a TOML or JSON scanner walks through a configuration file's text."""

    def __init__(self, text: str) -> None:
        self._ends = [place for place, character in enumerate(text) if character == "\n"]
        self._lines: dict[ValuePath, int] = {}

    def line_at(self, place: int) -> int:
        """Return the line number, from 1, of character position `place`."""
        return bisect_left(self._ends, place) + 1

    def add(self, path: ValuePath, place: int) -> None:
        """Record that the value at `path` begins at character position `place`; a second call for the path is ignored.

        Raises `ScanError` beyond the limits.
        """
        self._lines.setdefault(path, self.line_at(place))
        check_depth(path, self.line_at(place))
        if len(self._lines) > MAX_VALUES:
            raise ScanError(self.line_at(place), f"there are more than {MAX_VALUES:,} values: make the file shorter")

    def check_unquoted(self, word: str, place: int) -> None:
        """Raise `ScanError` for an unquoted value, such as a number, that is too long to be parsed quickly."""
        if len(word) > MAX_UNQUOTED:
            raise ScanError(
                self.line_at(place), f"this value has {len(word):,} characters and no quotes: make it shorter"
            )

    def __contains__(self, path: ValuePath) -> bool:
        return path in self._lines

    def build(self) -> LineNumbers:
        """Return the `LineNumbers` of the values added so far."""
        return LineNumbers(self._lines)


def check_depth(path: ValuePath, line: int) -> None:
    """Raise `ScanError` if a value is nested more than `MAX_DEPTH` deep, which would slow the parser down."""
    if len(path) > MAX_DEPTH:
        raise ScanError(line, f"values are nested deeper than {MAX_DEPTH} levels: make it flatter")
