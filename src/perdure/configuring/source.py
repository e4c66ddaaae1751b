"""A configuration file as it lies there: read within bounds, with its digest and its lines. Above: `config.py`.

Below: the scanners and parsers of TOML and JSON, whose errors become `BadConfig` here. The text is scanned before it is
parsed, and it is parsed no further than where the scanner stopped: nothing in a file can keep a parser busy.
"""

# ruff: noqa: PTH111 - a Path would cost milliseconds, and adds nothing here
import hashlib
import json
import os
import re
import tomllib
from collections.abc import Callable
from typing import Any, Final, NoReturn

from msgspec import Struct

from perdure.context.text_file import Unreadable, read_beginning
from perdure.core.error import ConfigError
from perdure.core.plain import clean

from .fault import BadConfig, Fault
from .json_lines import json_lines
from .lines import Lines, Unscannable
from .toml_lines import toml_lines

MOST_BYTES: Final = 1024 * 1024
"""Of a file."""

_type_of: Callable[[Any], Any] = type  # the same, but no type checker draws conclusions from it
_BOM: Final = b"\xef\xbb\xbf"
_WHERE: Final = re.compile(r" \((?:at line (\d+), column \d+|at end of document)\)\Z")


class Source(Struct, frozen=True):
    """A file that could be parsed."""

    path: str
    """As it was named."""
    digest: str
    """The SHA-256 of its bytes: what trust is bound to."""
    values: dict[str, Any]
    """What it says, as the parser read it."""
    lines: Lines
    """Where it says that."""

    def fault(self, path: tuple[str | int, ...] | str, message: str) -> Fault:
        """Something that is wrong with a value."""
        return Fault(self.lines.of(path), message)

    def refuse(self, path: tuple[str | int, ...] | str, message: str) -> NoReturn:
        """Say that a value cannot be used."""
        raise BadConfig(self.path, [self.fault(path, message)])


def read_toml(path: str | os.PathLike[str]) -> Source:
    """A TOML file. Raises `BadConfig`, and nothing else."""
    return _read(path, toml_lines, _parsed_toml)


def read_json(path: str | os.PathLike[str]) -> Source:
    """A file with one JSON object. Raises `BadConfig`, and nothing else."""
    return _read(path, json_lines, _parsed_json)


_Parse = Callable[[str], dict[str, Any]]


def _read(path: str | os.PathLike[str], scan: Callable[[str], Lines], parse: _Parse) -> Source:
    if not isinstance(path, str | os.PathLike) or not os.fspath(path):
        raise ConfigError(f"{path!r} is no path of a file: name the file to be read")
    name = clean(os.fspath(path))
    data = _data(name, os.path.expanduser(os.fspath(path)))
    text = _text(name, data)
    try:
        lines = scan(text)
    except Unscannable as stop:
        _refuse_from(name, text, stop, parse)
    except RecursionError:  # when whoever calls us is deep already
        raise BadConfig(name, [Fault(0, "values are nested too deep to be read here: make it flatter")]) from None
    try:
        values = parse(text)
    except _Unparsable as error:
        raise BadConfig(name, [Fault(error.line, error.message)]) from error
    return Source(name, hashlib.sha256(data).hexdigest(), values, lines)


def _data(name: str, path: str) -> bytes:
    try:
        found = read_beginning(path, MOST_BYTES)
    except Unreadable as error:
        raise BadConfig(name, [Fault(0, str(error))]) from error
    if found.cut:
        size = f"the file has {found.size:,} bytes, and {MOST_BYTES:,} are the most: make it shorter"
        raise BadConfig(name, [Fault(0, size)])
    return found.data


def _text(name: str, data: bytes) -> str:
    try:
        return data.removeprefix(_BOM).decode().replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise BadConfig(name, [Fault(line, "this is no UTF-8: save the file as UTF-8")]) from error


def _refuse_from(name: str, text: str, stop: Unscannable, parse: _Parse) -> NoReturn:
    """Say what is wrong where the scanner stopped, in the words of the parser if it has some."""
    line, message = stop.line, stop.message
    if not message:
        upto = "\n".join(text.split("\n", line)[:line])
        try:
            parse(upto)
            message = "this cannot be understood: write it in a simpler way"
        except _Unparsable as error:
            line, message = error.line or line, error.message
    raise BadConfig(name, [Fault(line, message)]) from stop


class _Unparsable(Exception):
    """What a parser could not make sense of."""

    def __init__(self, line: int, message: str) -> None:
        super().__init__(line, message)
        self.line = line
        self.message = message


def _parsed_toml(text: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        where = _WHERE.search(str(error))
        line = int(where[1]) if where and where[1] else text.count("\n") + 1
        said = _WHERE.sub("", str(error))
        raise _Unparsable(line, f"this is no TOML: {said[:1].lower()}{said[1:]}") from error
    except (ValueError, OverflowError, RecursionError) as error:  # numbers of thousands of digits, impossible dates
        raise _Unparsable(0, f"a value cannot be read: {error}") from error


def _parsed_json(text: str) -> dict[str, Any]:
    try:
        values: Any = json.loads(text, parse_constant=_refuse_constant)
    except json.JSONDecodeError as error:
        raise _Unparsable(error.lineno, f"this is no JSON: {error.msg[:1].lower()}{error.msg[1:]}") from error
    except (ValueError, RecursionError) as error:
        raise _Unparsable(0, f"a value cannot be read: {error}") from error
    if _type_of(values) is not dict:
        raise _Unparsable(1, "the file has to be one JSON object: { … }")
    found: dict[str, Any] = values
    return found


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number of JSON")
