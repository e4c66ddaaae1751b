"""The fields at the top of a Markdown file, between two lines of `---`. Above: skills, roles. Below: PyYAML.

Such files come from projects that nobody has vouched for, so the work is bounded before it begins, and YAML is taken
for its shape alone: every value is text, or a map or list of texts. Nothing is coerced (`no`, `1.10` and dates stay as
they were written), and nothing can refer to anything else, which is what the bombs are made of.
"""

import contextlib
import re
from collections.abc import Iterator
from importlib import import_module
from typing import Any, Final, NoReturn

from msgspec import Struct

from perdure.core.error import ConfigError
from perdure.core.plain import clean, excerpt

MAX_BYTES: Final = 64 * 1024
"""Front matter that is longer is refused before it is parsed."""
MAX_DEPTH: Final = 8
"""How deep maps and lists may be nested, the outermost map included."""
MAX_VALUES: Final = 2000
"""How many values there may be, keys and all."""

_BOM: Final = "\ufeff"
_OPENING: Final = re.compile(r"---[ \t]*(?:\n|\Z)")
_CLOSING: Final = re.compile(r"^---[ \t]*(?:\n|\Z)", re.MULTILINE)
_UNQUOTED: Final = re.compile(r"^([A-Za-z_][\w-]*:)[ \t]+([^\s'\"\[{|>&*!#].*(?:\n +\S.*)*)", re.MULTILINE)
"""An outermost field whose value is plain text, and the lines on which it goes on."""
_NEEDS_QUOTES: Final = re.compile(r"[@`%]|.*:(?:\s|\Z)")


class FrontMatter(Struct, frozen=True):
    """A file in its two parts."""

    fields: dict[str, Any]
    """What is said at the top: texts, and maps and lists of texts. Empty for a file that has no front matter."""
    body: str
    """The rest of the file, with `\\n` at the end of each line."""
    lines: dict[str, int]
    """On which line of the file each field begins, from 1."""


class BadFrontMatter(ConfigError):
    """The top of a file cannot be read; the message says why, and on which line."""

    def __init__(self, problem: str, line: int) -> None:
        super().__init__(f"line {line}: {problem}")
        self.problem = problem
        """What is wrong, and what to do."""
        self.line = line
        """Where, from 1."""

    def __reduce__(self) -> tuple[type["BadFrontMatter"], tuple[object, ...]]:
        """Made anew from its two parts, when it is copied or sent to another process."""
        return type(self), (self.problem, self.line)


def read_front_matter(text: str) -> FrontMatter:
    """Part a file into its fields and its body. A file that does not begin with `---` is all body."""
    text = text.removeprefix(_BOM).replace("\r\n", "\n").replace("\r", "\n")
    if "\0" in text:
        _refuse("there is a NUL character: save the file as UTF-8 text", 1 + text.count("\n", 0, text.index("\0")))
    opening = _OPENING.match(text)
    if opening is None:
        return FrontMatter({}, text, {})
    closing = _CLOSING.search(text, opening.end())
    if closing is None:
        _refuse("the front matter that begins here is not closed: add a line '---' after its last field", 1)
    head = text[opening.end() : closing.start()]
    if len(head) > MAX_BYTES or len(clean(head).encode()) > MAX_BYTES:
        _refuse(f"the front matter is longer than {MAX_BYTES // 1024} KiB: move text below the closing '---'", 1)
    fields, lines = _parsed(head)
    return FrontMatter(fields, text[closing.end() :], lines)


def _refuse(problem: str, line: int) -> NoReturn:
    raise BadFrontMatter(problem, line)


def _parsed(head: str) -> tuple[dict[str, Any], dict[str, int]]:
    """The fields; with values quoted, when that makes YAML of what is none, as in `description: Two words: a colon`."""
    try:
        return _Reader(head).document()
    except _NotYaml as error:
        with contextlib.suppress(_NotYaml):
            return _Reader(_with_quotes(head)).document()
        raise BadFrontMatter(error.problem, error.line) from error  # which speaks of the file as it is


def _with_quotes(head: str) -> str:
    """The same, on the same lines, with quotes around each outermost text that is no YAML without them."""

    def quoted(field: re.Match[str]) -> str:
        value = field[2].rstrip()
        return f"{field[1]} '" + value.replace("'", "''") + "'" if _NEEDS_QUOTES.match(value) else field[0]

    return _UNQUOTED.sub(quoted, head)


class _NotYaml(BadFrontMatter):
    """What PyYAML itself could not make sense of."""


class _Reader:
    """Builds texts, maps and lists from the events of a YAML document, one after the other, for as long as they keep
    within the bounds. What comes after a broken bound is never looked at.
    """

    def __init__(self, head: str) -> None:
        self._yaml: Any = import_module("yaml")  # when it is first needed; it has no types
        self._events = self._parse(head)
        self._values = 0
        self.lines: dict[str, int] = {}

    def document(self) -> tuple[dict[str, Any], dict[str, int]]:
        """The one map that the front matter is."""
        next(self._events)  # the stream begins
        event = next(self._events)
        if isinstance(event, self._yaml.StreamEndEvent):
            return {}, {}
        event = next(self._events)
        if not isinstance(event, self._yaml.MappingStartEvent):
            _refuse("the front matter is no list of fields: write each as 'name: value'", _line(event))
        fields = self._map(event, 1)
        next(self._events)  # the document ends
        event = next(self._events)
        if not isinstance(event, self._yaml.StreamEndEvent):
            _refuse("there is a second document: keep all fields in one", _line(event))
        return fields, self.lines

    def _parse(self, head: str) -> Iterator[Any]:
        try:
            yield from self._yaml.parse(head, Loader=self._yaml.SafeLoader)
        except self._yaml.YAMLError as error:
            raise _NotYaml(*_told(error, head)) from error
        except (ValueError, OverflowError) as error:  # as of a number in a directive, or in an escape
            raise _NotYaml(f"this is not YAML: {str(error)[:120]}", 2) from error

    def _value(self, event: Any, depth: int) -> Any:
        """One value and all that is in it. `depth` is how many maps and lists it is inside of."""
        self._values += 1
        if self._values > MAX_VALUES:
            _refuse(f"there are more than {MAX_VALUES} values: move text below the closing '---'", _line(event))
        if isinstance(event, self._yaml.AliasEvent) or event.anchor is not None:
            _refuse("anchors and aliases ('&name', '*name') are not read: write the value itself", _line(event))
        if event.tag is not None:
            _refuse(f"the tag {excerpt(event.tag, 80)} is not read: every value is text, so leave it out", _line(event))
        if isinstance(event, self._yaml.ScalarEvent):
            return event.value
        if depth >= MAX_DEPTH:
            _refuse(f"maps and lists are nested deeper than {MAX_DEPTH} levels: make it flatter", _line(event))
        return self._map(event, depth + 1) if isinstance(event, self._yaml.MappingStartEvent) else self._list(depth + 1)

    def _list(self, depth: int) -> list[Any]:
        found: list[Any] = []
        while not isinstance(event := next(self._events), self._yaml.SequenceEndEvent):
            found.append(self._value(event, depth))
        return found

    def _map(self, start: Any, depth: int) -> dict[str, Any]:
        if start.anchor is not None or start.tag is not None:
            _refuse("anchors and tags ('&name', '!name') are not read: leave them out", _line(start))
        found: dict[str, Any] = {}
        while not isinstance(event := next(self._events), self._yaml.MappingEndEvent):
            key = self._key(event, depth)
            if key in found:
                _refuse(f"the field {excerpt(key, 80)} is there twice: keep one", _line(event))
            if depth == 1:
                self.lines[key] = _line(event)
            found[key] = self._value(next(self._events), depth)
        return found

    def _key(self, event: Any, depth: int) -> str:
        key = self._value(event, depth) if isinstance(event, self._yaml.ScalarEvent | self._yaml.AliasEvent) else None
        if key is None:
            _refuse("a map or list is no name for a field: use text", _line(event))
        if key == "<<":
            _refuse("fields are not merged ('<<'): write each of them", _line(event))
        return str(key)


def _line(event: Any) -> int:
    """Where in the file an event begins: its first line is the opening `---`."""
    return int(event.start_mark.line) + 2


def _told(error: Any, head: str) -> tuple[str, int]:
    """What PyYAML says, in few words, and the line."""
    if (mark := getattr(error, "problem_mark", None)) is not None:
        return f"this is not YAML: {str(error.problem)[:120]}", int(mark.line) + 2
    place = int(getattr(error, "position", 0))  # of a character that YAML does not allow
    return f"the character {excerpt(head[place : place + 1])} cannot be here: remove it", 2 + head.count("\n", 0, place)
