"""Parse the front matter of a Markdown file: the fields between two lines of `---`.

Such files are untrusted, so the work is bounded before it starts, and only the structure of YAML is used: every value
is text, or a map or list of texts. Nothing is coerced (`no`, `1.10` and dates stay as written), and aliases, which YAML
bombs are made of, are refused.
"""

import contextlib
import re
from collections.abc import Iterator
from importlib import import_module
from typing import Any, Final, NoReturn

from msgspec import Struct

from perdure._core.values.error import ConfigError
from perdure._core.values.jsonable import replace_surrogates, short_repr

MAX_FRONT_MATTER_BYTES: Final = 64 * 1024
"""Maximum size of front matter; longer ones are refused before parsing."""
MAX_DEPTH: Final = 8
"""Maximum nesting of maps and lists, the outermost map included."""
MAX_VALUES: Final = 2000
"""Maximum number of values, keys included."""

_BOM: Final = "\ufeff"
_OPENING: Final = re.compile(r"---[ \t]*(?:\n|\Z)")
_CLOSING: Final = re.compile(r"^---[ \t]*(?:\n|\Z)", re.MULTILINE)
_UNQUOTED: Final = re.compile(r"^([A-Za-z_][\w-]*:)[ \t]+([^\s'\"\[{|>&*!#].*(?:\n +\S.*)*)", re.MULTILINE)
"""Match an outermost field with an unquoted text, and its continuation lines."""
_NEEDS_QUOTES: Final = re.compile(r"[@`%]|.*:(?:\s|\Z)")


class FrontMatter(Struct, frozen=True):
    """A parsed Markdown file: the fields of its front matter, and the body below them."""

    fields: dict[str, Any]
    """Texts, and maps and lists of texts. Empty for a file without front matter."""
    body: str
    """Rest of the file, with `\\n` at the end of each line."""
    lines: dict[str, int]
    """Line of the file on which each field starts, from 1."""


class BadFrontMatter(ConfigError):
    """Raised when front matter cannot be parsed; has the reason and the line."""

    def __init__(self, problem: str, line: int) -> None:
        super().__init__(f"line {line}: {problem}")
        self.problem = problem
        """The reason, and what to do."""
        self.line = line
        """The line, from 1."""

    def __reduce__(self) -> tuple[type["BadFrontMatter"], tuple[object, ...]]:
        """Rebuild the error from its two parts when it is copied or pickled."""
        return type(self), (self.problem, self.line)


def parse_front_matter(text: str) -> FrontMatter:
    """Split a Markdown file into the fields of its front matter and its body.

    Without `---` at its start, all of the file is body.
    """
    text = text.removeprefix(_BOM).replace("\r\n", "\n").replace("\r", "\n")
    if "\0" in text:
        _raise_bad_front_matter(
            "there is a NUL character: save the file as UTF-8 text", 1 + text.count("\n", 0, text.index("\0"))
        )
    opening = _OPENING.match(text)
    if opening is None:
        return FrontMatter({}, text, {})
    closing = _CLOSING.search(text, opening.end())
    if closing is None:
        _raise_bad_front_matter(
            "the front matter that begins here is not closed: add a line '---' after its last field", 1
        )
    head = text[opening.end() : closing.start()]
    if len(head) > MAX_FRONT_MATTER_BYTES or len(replace_surrogates(head).encode()) > MAX_FRONT_MATTER_BYTES:
        _raise_bad_front_matter(
            f"the front matter is longer than {MAX_FRONT_MATTER_BYTES // 1024} KiB: move text below the closing '---'",
            1,
        )
    fields, lines = _parse_fields(head)
    return FrontMatter(fields, text[closing.end() :], lines)


def _raise_bad_front_matter(problem: str, line: int) -> NoReturn:
    raise BadFrontMatter(problem, line)


def _parse_fields(head: str) -> tuple[dict[str, Any], dict[str, int]]:
    """Parse the YAML fields; if that fails, quote values that need it (`description: Note: a colon`) and try again."""
    try:
        return _YamlReader(head).read_document()
    except _NotYaml as error:
        with contextlib.suppress(_NotYaml):
            return _YamlReader(_quote_values(head)).read_document()
        raise BadFrontMatter(error.problem, error.line) from error  # with the lines of the original file


def _quote_values(head: str) -> str:
    """Quote each top-level text that is not valid YAML without quotes, keeping the lines."""

    def quote_value(field: re.Match[str]) -> str:
        value = field[2].rstrip()
        return f"{field[1]} '" + value.replace("'", "''") + "'" if _NEEDS_QUOTES.match(value) else field[0]

    return _UNQUOTED.sub(quote_value, head)


class _NotYaml(BadFrontMatter):
    """PyYAML could not parse the text."""


class _YamlReader:
    """Builds texts, maps and lists from the events of a YAML document, within the bounds. Nothing after an exceeded
    bound is parsed.
    """

    def __init__(self, head: str) -> None:
        self._yaml: Any = import_module("yaml")  # when it is first needed; it has no types
        self._events = self._iterate_events(head)
        self._values = 0
        self.lines: dict[str, int] = {}

    def read_document(self) -> tuple[dict[str, Any], dict[str, int]]:
        """Parse the map that the front matter consists of."""
        next(self._events)  # the stream begins
        event = next(self._events)
        if isinstance(event, self._yaml.StreamEndEvent):
            return {}, {}
        event = next(self._events)
        if not isinstance(event, self._yaml.MappingStartEvent):
            _raise_bad_front_matter(
                "the front matter is not a list of fields: write each as 'name: value'", _get_line_number(event)
            )
        fields = self._read_map(event, 1)
        next(self._events)  # the document ends
        event = next(self._events)
        if not isinstance(event, self._yaml.StreamEndEvent):
            _raise_bad_front_matter("there is a second document: keep all fields in one", _get_line_number(event))
        return fields, self.lines

    def _iterate_events(self, head: str) -> Iterator[Any]:
        try:
            yield from self._yaml.parse(head, Loader=self._yaml.SafeLoader)
        except self._yaml.YAMLError as error:
            raise _NotYaml(*_describe_yaml_error(error, head)) from error
        except (ValueError, OverflowError) as error:  # as of a number in a directive, or in an escape
            raise _NotYaml(f"this is not YAML: {str(error)[:120]}", 2) from error

    def _read_value(self, event: Any, depth: int) -> Any:
        """Parse one value with everything inside it. `depth` is the number of enclosing maps and lists."""
        self._values += 1
        if self._values > MAX_VALUES:
            _raise_bad_front_matter(
                f"there are more than {MAX_VALUES} values: move text below the closing '---'", _get_line_number(event)
            )
        if isinstance(event, self._yaml.AliasEvent) or event.anchor is not None:
            _raise_bad_front_matter(
                "anchors and aliases ('&name', '*name') are not read: write the value itself", _get_line_number(event)
            )
        if event.tag is not None:
            _raise_bad_front_matter(
                f"the tag {short_repr(event.tag, 80)} is not read: every value is text, so leave it out",
                _get_line_number(event),
            )
        if isinstance(event, self._yaml.ScalarEvent):
            return event.value
        if depth >= MAX_DEPTH:
            _raise_bad_front_matter(
                f"maps and lists are nested deeper than {MAX_DEPTH} levels: make it flatter", _get_line_number(event)
            )
        return (
            self._read_map(event, depth + 1)
            if isinstance(event, self._yaml.MappingStartEvent)
            else self._read_list(depth + 1)
        )

    def _read_list(self, depth: int) -> list[Any]:
        found: list[Any] = []
        while not isinstance(event := next(self._events), self._yaml.SequenceEndEvent):
            found.append(self._read_value(event, depth))
        return found

    def _read_map(self, start: Any, depth: int) -> dict[str, Any]:
        if start.anchor is not None or start.tag is not None:
            _raise_bad_front_matter(
                "anchors and tags ('&name', '!name') are not read: leave them out", _get_line_number(start)
            )
        found: dict[str, Any] = {}
        while not isinstance(event := next(self._events), self._yaml.MappingEndEvent):
            key = self._read_key(event, depth)
            if key in found:
                _raise_bad_front_matter(
                    f"the field {short_repr(key, 80)} is there twice: keep one", _get_line_number(event)
                )
            if depth == 1:
                self.lines[key] = _get_line_number(event)
            found[key] = self._read_value(next(self._events), depth)
        return found

    def _read_key(self, event: Any, depth: int) -> str:
        key = (
            self._read_value(event, depth)
            if isinstance(event, self._yaml.ScalarEvent | self._yaml.AliasEvent)
            else None
        )
        if key is None:
            _raise_bad_front_matter("a map or list cannot be the name of a field: use text", _get_line_number(event))
        if key == "<<":
            _raise_bad_front_matter("fields are not merged ('<<'): write each of them", _get_line_number(event))
        return str(key)


def _get_line_number(event: Any) -> int:
    """Return the line of the file on which an event starts: line 1 is the opening `---`."""
    return int(event.start_mark.line) + 2


def _describe_yaml_error(error: Any, head: str) -> tuple[str, int]:
    """Return a short message for a PyYAML error, and the line."""
    if (mark := getattr(error, "problem_mark", None)) is not None:
        return f"this is not YAML: {str(error.problem)[:120]}", int(mark.line) + 2
    place = int(getattr(error, "position", 0))  # of a character that YAML does not allow
    return f"the character {short_repr(head[place : place + 1])} cannot be here: remove it", 2 + head.count(
        "\n", 0, place
    )
