"""Find the line of a value in the text of a configuration file, so that an error about the value can name its line.

Parsers do not tell the lines of the values that they read. So the keys that lead to a value are searched for in the
text, each one behind the key before it. Of a value that is written in an unusual way, the line of a table around it is
found, or none; errors then name its keys as well.
"""

import json
import re
from typing import Final, NamedTuple, TypeAlias

from perdure._core.schema.problems import format_path

from .error import ConfigFault

ValuePath: TypeAlias = tuple[str | int, ...]
"""Path to a value in a file, as keys and array positions: `("mcp", "servers", "git", "args", 0)`."""

_LONGEST_PATH: Final = 200
_STEP: Final = re.compile(r"\[(\d+)\]|([^.\[\]]+)")
_HEADER: Final = re.compile(r"^[ \t]*\[\[?[^\[\]\n,=]+\]\]?[ \t]*(?:#.*)?$", re.MULTILINE)
"""Pattern of a line of TOML that begins a table."""


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
            path = tuple(int(step[1]) if step[1] else step[2] for step in _STEP.finditer(path))
        if not path:
            return FoundLine(1, is_exact=True)
        place, is_exact = (_find_in_json if self._is_json else _find_in_toml)(self._text, path)
        return FoundLine(self._text.count("\n", 0, place) + 1 if place >= 0 else 0, is_exact)

    def build_fault(self, path: ValuePath | str, message: str) -> ConfigFault:
        """Return a `ConfigFault` with `message` and the line of the value at `path`, or its keys if that is unknown."""
        line, is_exact = self.find_line(path)
        keys = path if isinstance(path, str) else format_path(path)
        keys = keys if len(keys) <= _LONGEST_PATH else f"{keys[:_LONGEST_PATH]}…"
        is_told = is_exact or keys.strip("[]") in message
        return ConfigFault(line, message if is_told else f"{keys}: {message}")


def _find_in_json(text: str, path: ValuePath) -> tuple[int, bool]:
    """Return the position of a value in a text of JSON, and True if no part of the path was left out."""
    place, at, is_exact = -1, 0, True
    for step in path:
        key = json.dumps(step, ensure_ascii=False) if isinstance(step, str) else None
        found = re.compile(re.escape(key) + r"\s*:").search(text, at) if key else None
        if found is not None:
            place, at = found.start(), found.end()
        elif key:
            return place, False
        is_exact = found is not None
    return place, is_exact or _is_on_one_line(text, place)


def _find_in_toml(text: str, path: ValuePath) -> tuple[int, bool]:
    """Return the position of a value in a text of TOML, and True if no part of the path was left out."""
    begin, end, names, is_whole = 0, len(text), list[str](), True
    for step in path:
        is_whole = isinstance(step, str)
        if isinstance(step, str):
            names.append(step)
            continue
        tables = [found.start() for found in _build_header_pattern(names, r"\[\[").finditer(text, begin, end)]
        if step < len(tables):  # else it is an array of values, whose line is that of its key
            begin, end, is_whole = tables[step], [*tables, end][step + 1], True
    best, most = -1, 0
    for count in range(len(names), -1, -1):
        place, found = _find_below_header(text, names, count, begin, end)
        if found == len(names):
            return place, is_whole or _is_on_one_line(text, place)
        best, most = (place, found) if found > most else (best, most)
    return best, False


def _is_on_one_line(text: str, place: int) -> bool:
    """Return True if an array whose key is at `place` ends on the same line."""
    line, _, _ = text[place:].partition("\n")
    return line.count("[") == line.count("]")


def _find_below_header(text: str, names: list[str], count: int, begin: int, end: int) -> tuple[int, int]:
    """Return the position of the last of these keys that is found, and how many are; `count` are those of a header."""
    place, at = -1, begin
    if count:
        is_last = count == len(names)  # of which any header may tell, such as [mcp.servers] of `mcp`
        header = _build_header_pattern(names[:count], r"\[\[?", r"[.\]]" if is_last else r"\]").search(text, begin, end)
        if header is None:
            return -1, 0
        place, at = header.start("name"), header.end()
    below = _HEADER.search(text, at, end)
    end = below.start() if below else end
    for number, name in enumerate(names[count:], count):
        before = r"^[ \t]*" if number == count else r"(?<![\w\"'-])"
        found = re.compile(rf"{before}(?P<name>{_match_key(name)})[ \t]*[=.]", re.MULTILINE).search(text, at, end)
        if found is None:
            return place, number
        place, at = found.start("name"), found.end()
    return place, len(names)


def _build_header_pattern(names: list[str], brackets: str, ending: str = r"\]") -> re.Pattern[str]:
    """Return a pattern of the line that begins the table with these keys."""
    keys = r"[ \t]*\.[ \t]*".join(map(_match_key, names))
    return re.compile(rf"^[ \t]*(?P<name>{brackets}[ \t]*{keys})[ \t]*{ending}", re.MULTILINE)


def _match_key(name: str) -> str:
    key = re.escape(name)
    return f"(?:{key}|\"{key}\"|'{key}')"
