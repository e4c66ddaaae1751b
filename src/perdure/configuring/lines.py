"""On which line of a file each of its values stands. Above: `source.py`. Below: `core/problem.py`, for how paths look.

Parsers tell the line of what they cannot read, and forget it of what they can. So a scanner, `toml_lines.py` or
`json_lines.py`, goes through the text first, before anything is parsed. It also is what keeps the parser from work
that has no bound: it goes neither deeper nor further than a configuration ever needs.
"""

from bisect import bisect_left
from collections.abc import Mapping
from typing import Final, TypeAlias

from perdure.core.problem import path_text

MAX_DEPTH: Final = 24
"""How many keys and places a path may have."""

MAX_VALUES: Final = 10_000
"""How many values a file may have, tables and arrays included."""
MAX_WORD: Final = 300
"""Characters of a number, a date, or whatever else has no quotes."""

Path: TypeAlias = tuple[str | int, ...]
"""The way to a value: names of keys, and places in arrays."""


class Lines:
    """The line of each path."""

    def __init__(self, lines: Mapping[Path, int]) -> None:
        self._lines = lines
        self._paths = {path_text(path): path for path in lines}

    def of(self, path: Path | str) -> int:
        """The line of a value; of the nearest thing around it, when it has none of its own; 0 when nothing has one."""
        if isinstance(path, str):
            while path and path not in self._paths:
                path = path[: max(path.rfind("."), path.rfind("["), 0)]
            path = self._paths.get(path, ())
        steps = path
        while steps and steps not in self._lines:
            steps = steps[:-1]
        return self._lines.get(steps, 0)

    def __contains__(self, path: Path) -> bool:
        return path in self._lines


class Unscannable(Exception):
    """The text is not what it should be, from this line on. Whether that is so, the parser has to say."""

    def __init__(self, line: int, message: str = "") -> None:
        super().__init__(line, message)
        self.line = line
        self.message = message
        """What is wrong, when the scanner knows; then nobody else need be asked."""


class Survey:
    """What a scanner has found so far of one text: which path stands on which line."""

    def __init__(self, text: str) -> None:
        self._ends = [place for place, character in enumerate(text) if character == "\n"]
        self._lines: dict[Path, int] = {}

    def line(self, place: int) -> int:
        """The line of a place in the text, from 1."""
        return bisect_left(self._ends, place) + 1

    def note(self, path: Path, place: int) -> None:
        """A value begins here. Its first line counts."""
        self._lines.setdefault(path, self.line(place))
        check_depth(path, self.line(place))
        if len(self._lines) > MAX_VALUES:
            raise Unscannable(self.line(place), f"there are more than {MAX_VALUES:,} values: make the file shorter")

    def check_word(self, word: str, place: int) -> None:
        """Refuse a number that would take long to read, and that nothing could hold."""
        if len(word) > MAX_WORD:
            raise Unscannable(
                self.line(place), f"this value has {len(word):,} characters and no quotes: make it shorter"
            )

    def __contains__(self, path: Path) -> bool:
        return path in self._lines

    def result(self) -> Lines:
        """All of it."""
        return Lines(self._lines)


def check_depth(path: Path, line: int) -> None:
    """Refuse what no configuration needs, and what would keep a parser busy for hours."""
    if len(path) > MAX_DEPTH:
        raise Unscannable(line, f"values are nested deeper than {MAX_DEPTH} levels: make it flatter")
