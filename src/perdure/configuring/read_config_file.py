"""Read a TOML or JSON file and parse it, with the digest of its bytes and the line number of each value.

Errors of the TOML and JSON parsers become `BadConfig` here. The text is scanned before it is parsed, and parsed no
further than the scanner got: nothing in a file can keep a parser busy.
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

from perdure.core.error import ConfigError
from perdure.core.jsonable import replace_surrogates
from perdure.files.file_head import UnreadableFile, read_file_head

from .config_error import BadConfig, ConfigFault
from .json_line_numbers import find_json_line_numbers
from .line_numbers import LineNumbers, ScanError
from .referenced_file_digests import compute_trust_digest
from .toml_line_numbers import find_toml_line_numbers

MAX_BYTES: Final = 1024 * 1024
"""Limit on the size of a configuration file."""

_type_of: Callable[[Any], Any] = type  # the same, but no type checker draws conclusions from it
_BOM: Final = b"\xef\xbb\xbf"
_WHERE: Final = re.compile(r" \((?:at line (\d+), column \d+|at end of document)\)\Z")


class ParsedConfigFile(Struct, frozen=True):
    """A configuration file that was read and parsed, but not validated: its values, line numbers and digest."""

    path: str
    """The file, as the caller named it."""
    digest: str
    """SHA-256 of its bytes and of its place: the same bytes elsewhere are not trusted by it."""
    content_hash: str
    """SHA-256 of its bytes alone."""
    values: dict[str, Any]
    """The parsed values."""
    lines: LineNumbers
    """Line numbers of the values."""

    def build_fault(self, path: tuple[str | int, ...] | str, message: str) -> ConfigFault:
        """Return a `ConfigFault` with `message` and the line of the value at `path`."""
        return ConfigFault(self.lines.line_of(path), message)

    def fail(self, path: tuple[str | int, ...] | str, message: str) -> NoReturn:
        """Raise `BadConfig` with `message` and the line of the value at `path`."""
        raise BadConfig(self.path, [self.build_fault(path, message)])


def read_toml(path: str | os.PathLike[str]) -> ParsedConfigFile:
    """Read and parse a TOML file. Raises only `BadConfig`, also for a file that cannot be read."""
    return _read_source(path, find_toml_line_numbers, _parse_toml)


def read_json(path: str | os.PathLike[str]) -> ParsedConfigFile:
    """Read and parse a file with one JSON object. Raises only `BadConfig`, also for a file that cannot be read."""
    return _read_source(path, find_json_line_numbers, _parse_json)


_Parse = Callable[[str], dict[str, Any]]


def _read_source(path: str | os.PathLike[str], scan: Callable[[str], LineNumbers], parse: _Parse) -> ParsedConfigFile:
    if not isinstance(path, str | os.PathLike) or not os.fspath(path):
        raise ConfigError(f"{path!r} is no path of a file: name the file to be read")
    name = replace_surrogates(os.fspath(path))
    data = _read_bytes(name, os.path.expanduser(os.fspath(path)))
    text = _decode_text(name, data)
    try:
        lines = scan(text)
    except ScanError as stop:
        _fail_at_scan_error(name, text, stop, parse)
    except RecursionError:  # when the caller is already deep in the stack
        raise BadConfig(name, [ConfigFault(0, "values are nested too deep to be read here: make it flatter")]) from None
    try:
        values = parse(text)
    except _ParseError as error:
        raise BadConfig(name, [ConfigFault(error.line, error.message)]) from error
    content_hash = hashlib.sha256(data).hexdigest()
    return ParsedConfigFile(name, compute_trust_digest(name, {"itself": content_hash}), content_hash, values, lines)


def _read_bytes(name: str, path: str) -> bytes:
    try:
        found = read_file_head(path, MAX_BYTES)
    except UnreadableFile as error:
        raise BadConfig(name, [ConfigFault(0, str(error))]) from error
    if found.is_truncated:
        size = f"the file has {found.size:,} bytes, and {MAX_BYTES:,} are the most: make it shorter"
        raise BadConfig(name, [ConfigFault(0, size)])
    return found.data


def _decode_text(name: str, data: bytes) -> str:
    try:
        return data.removeprefix(_BOM).decode().replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise BadConfig(name, [ConfigFault(line, "this is no UTF-8: save the file as UTF-8")]) from error


def _fail_at_scan_error(name: str, text: str, stop: ScanError, parse: _Parse) -> NoReturn:
    """Raise `BadConfig` at the line where the scanner stopped, with the parser's message if it has one."""
    line, message = stop.line, stop.message
    if not message:
        upto = "\n".join(text.split("\n", line)[:line])
        try:
            parse(upto)
            message = "this cannot be understood: write it in a simpler way"
        except _ParseError as error:
            line, message = error.line or line, error.message
    raise BadConfig(name, [ConfigFault(line, message)]) from stop


class _ParseError(Exception):
    """A syntax error that the TOML or JSON parser reported, with its line."""

    def __init__(self, line: int, message: str) -> None:
        super().__init__(line, message)
        self.line = line
        self.message = message


def _parse_toml(text: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        where = _WHERE.search(str(error))
        line = int(where[1]) if where and where[1] else text.count("\n") + 1
        said = _WHERE.sub("", str(error))
        raise _ParseError(line, f"this is no TOML: {said[:1].lower()}{said[1:]}") from error
    except (ValueError, OverflowError, RecursionError) as error:  # numbers of thousands of digits, impossible dates
        raise _ParseError(0, f"a value cannot be read: {error}") from error


def _parse_json(text: str) -> dict[str, Any]:
    try:
        values: Any = json.loads(text, parse_constant=_reject_constant)
    except json.JSONDecodeError as error:
        raise _ParseError(error.lineno, f"this is no JSON: {error.msg[:1].lower()}{error.msg[1:]}") from error
    except (ValueError, RecursionError) as error:
        raise _ParseError(0, f"a value cannot be read: {error}") from error
    if _type_of(values) is not dict:
        raise _ParseError(1, "the file has to be one JSON object: { … }")
    found: dict[str, Any] = values
    return found


def _reject_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number of JSON")
