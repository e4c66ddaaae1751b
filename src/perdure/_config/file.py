"""Read a TOML or JSON file and those that it names, with one digest of all and the line of each value."""

# ruff: noqa: PTH111, PTH118 - a Path would cost milliseconds, and adds nothing here

import hashlib
import json
import os
import re
import tomllib
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, NoReturn

from msgspec import Struct

from perdure._context.skills.files import combine_hashes, hash_files
from perdure._core.values.error import ConfigError
from perdure._core.values.jsonable import replace_surrogates, short_repr
from perdure._io.files.confined_folder import ConfinedFolder, FileRefused
from perdure._io.files.head import FileHead, UnreadableFile, read_file_head
from perdure._io.files.sensitive import SENSITIVE_NAMES

from .error import BadConfig, ConfigFault
from .lines import LineNumbers, ValuePath

UNREADABLE: Final = "cannot be read"
"""Stands for the digest of a file that cannot be read."""


def compute_trust_digest(place: str, digests: Mapping[str, str]) -> str:
    """Compute the digest under which a configuration file is trusted, from its path and the digests of its files."""
    return combine_hashes({"": os.path.realpath(os.path.expanduser(place)), **digests})


class ReferencedFiles:
    """The files that a configuration file names, each read once, and their digests.

    Unless the configuration is trusted, they must be inside its folder.
    """

    def __init__(self, folder: str, *, is_trusted: bool) -> None:
        self.digests: dict[str, str] = {}
        """SHA-256 of each file that was read, by its path with links resolved."""
        self._folder = folder
        self._is_trusted = is_trusted

    def resolve(self, named: str) -> str:
        """Return the path of a file or folder that the configuration names, with links resolved."""
        return os.path.realpath(os.path.join(self._folder, os.path.expanduser(named)))

    def read_file(self, named: str, max_bytes: int) -> bytes:
        """Read a file that the configuration names. Raises `ConfigError`, also if it is too large."""
        path = self.resolve(named)
        if self._is_trusted:
            found = read_file_head(path, max_bytes)
            self._record(path, found)
        else:
            found = self._confine().read_head(path, max_bytes)
        if found.is_truncated:
            raise FileRefused(f"{path!r} has {found.size:,} bytes, and the limit is {max_bytes:,}: make it shorter")
        return found.data

    def open_folder(self, named: str) -> ConfinedFolder:
        """Open a folder that the configuration names; files read from it are recorded. Raises `FileRefused`."""
        path = self.resolve(named)
        return ConfinedFolder(path, on_read=self._record) if self._is_trusted else self._confine().enter(path)

    def record_file(self, named: str, max_bytes: int) -> None:
        """Record the current hash of a file that is read elsewhere."""
        path = self.resolve(named)
        try:
            self._record(path, read_file_head(path, max_bytes))
        except ConfigError:
            self.digests[path] = UNREADABLE

    def record_skills(self, named: str) -> None:
        """Record the current hash of all files of a folder with skills."""
        path = self.resolve(named)
        self.digests[path] = hash_skills(path)

    def _confine(self) -> ConfinedFolder:
        return ConfinedFolder(self._folder, blocked=SENSITIVE_NAMES, on_read=self._record)

    def _record(self, path: str, found: FileHead) -> None:
        self.digests[path] = hashlib.sha256(found.data).hexdigest()


def hash_skills(folder: str) -> str:
    """Return a hash of all files in a folder with skills, and of their names."""
    try:
        return combine_hashes(hash_files(folder))
    except (OSError, ConfigError):
        return UNREADABLE


MAX_BYTES: Final = 1024 * 1024
"""Limit on the size of a configuration file."""

MAX_DEPTH: Final = 24
"""Limit on the nesting of a value: the number of keys and array positions in its path."""
MAX_VALUES: Final = 10_000
"""Limit on the number of values in a file, tables and arrays included."""

_type_of: Callable[[Any], Any] = type  # the same, but no type checker draws conclusions from it
_BOM: Final = b"\xef\xbb\xbf"
_WHERE: Final = re.compile(r" \((?:at line (\d+), column \d+|at end of document)\)\Z")
_LONG_NUMBER: Final = re.compile(r"\d{1000}")
_NO_NUMBER: Final = re.compile(r"[:,\[]\s*-?(?:NaN|Infinity)\b")
_LONG_KEY: Final = re.compile(r"""(?<![\w-])(?:(?:[\w-]++|"(?:[^"\\\n]|\\.)*+"|'[^'\n]*+')[ \t]*+\.[ \t]*+){40}""")
"""Pattern of a dotted key on which `tomllib` would work for a time that grows with the square of its length."""


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

    def build_fault(self, path: ValuePath | str, message: str) -> ConfigFault:
        """Return a `ConfigFault` with `message` and the line of the value at `path`, or its keys if that is unknown."""
        return self.lines.build_fault(path, message)

    def fail(self, path: ValuePath | str, message: str) -> NoReturn:
        """Raise `BadConfig` with `message` and the line of the value at `path`."""
        raise BadConfig(self.path, [self.build_fault(path, message)])


def read_toml(path: str | os.PathLike[str]) -> ParsedConfigFile:
    """Read and parse a TOML file. Raises only `BadConfig`, also for a file that cannot be read."""
    return _read_source(path, _parse_toml, is_json=False)


def read_json(path: str | os.PathLike[str]) -> ParsedConfigFile:
    """Read and parse a file with one JSON object. Raises only `BadConfig`, also for a file that cannot be read."""
    return _read_source(path, _parse_json, is_json=True)


_Parse = Callable[[str], dict[str, Any]]


def _read_source(path: str | os.PathLike[str], parse: _Parse, *, is_json: bool) -> ParsedConfigFile:
    if not isinstance(path, str | os.PathLike) or not os.fspath(path):
        raise ConfigError(f"{path!r} is no path of a file: name the file to be read")
    name = replace_surrogates(os.fspath(path))
    data = _read_bytes(name, os.path.expanduser(os.fspath(path)))
    text = _decode_text(name, data)
    try:
        values = _parse_within_limits(text, parse)
    except _ParseError as error:
        raise BadConfig(name, [ConfigFault(error.line, error.message)]) from error
    content_hash = hashlib.sha256(data).hexdigest()
    digest, lines = compute_trust_digest(name, {"itself": content_hash}), LineNumbers(text, is_json=is_json)
    return ParsedConfigFile(name, digest, content_hash, values, lines)


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


def check_size(value: Any) -> None:
    """Raise `ValueError` for a value that has too many others in it, or is nested too deep."""
    level: list[Any] = [value]
    count = 0
    for _ in range(MAX_DEPTH):
        count += len(level)
        if count > MAX_VALUES:
            raise ValueError(f"there are more than {MAX_VALUES:,} values: make it shorter")
        level = [inner for each in level for inner in _list_inner_values(each)]
        if not level:
            return
    raise ValueError(f"values are nested deeper than {MAX_DEPTH} levels: make it flatter")


def _list_inner_values(value: Any) -> Iterable[Any]:
    if _type_of(value) is dict:
        inner: Iterable[Any] = value.values()
        return inner
    return value if _type_of(value) is list else ()


class _ParseError(Exception):
    """A syntax error that the TOML or JSON parser reported, with its line."""

    def __init__(self, line: int, message: str) -> None:
        super().__init__(line, message)
        self.line = line
        self.message = message


def _parse_within_limits(text: str, parse: _Parse) -> dict[str, Any]:
    """Parse a text. Raises `_ParseError`, also for numbers, and values in values, that no configuration has."""
    try:
        values = parse(text)
    except RecursionError as error:
        raise _ParseError(0, "values are nested too deep to be read here: make it flatter") from error
    except (ValueError, OverflowError) as error:
        raise _explain_value_error(text, error) from error
    try:
        check_size(values)
    except ValueError as error:
        raise _ParseError(0, str(error)) from error
    return values


def _explain_value_error(text: str, error: Exception) -> _ParseError:
    """Return the error for a number that a parser does not convert: of thousands of digits, or none that is finite."""
    if number := _LONG_NUMBER.search(text):
        return _ParseError(text.count("\n", 0, number.end()) + 1, "the number is too large: use at most 64 bits")
    found = _NO_NUMBER.search(text)
    return _ParseError(text.count("\n", 0, found.end()) + 1 if found else 0, f"a value cannot be read: {error}")


def _parse_toml(text: str) -> dict[str, Any]:
    if key := _LONG_KEY.search(text):
        line = text.count("\n", 0, key.start()) + 1
        raise _ParseError(line, f"values are nested deeper than {MAX_DEPTH} levels: make it flatter")
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        where = _WHERE.search(str(error))
        line = int(where[1]) if where and where[1] else text.rstrip("\n").count("\n") + 1
        said = _WHERE.sub("", str(error))
        raise _ParseError(line, f"this is no TOML: {said[:1].lower()}{said[1:]}") from error


def _parse_json(text: str) -> dict[str, Any]:
    try:
        values: Any = json.loads(text, parse_constant=_reject_constant, object_pairs_hook=_build_object)
    except json.JSONDecodeError as error:
        raise _ParseError(error.lineno, f"this is no JSON: {error.msg[:1].lower()}{error.msg[1:]}") from error
    except _RepeatedKeyError as error:
        places = [found.start() for found in re.finditer(re.escape(json.dumps(error.key)) + r"\s*:", text)]
        line = text.count("\n", 0, places[1]) + 1 if len(places) == 2 else 0  # noqa: PLR2004 - the key and its repetition
        raise _ParseError(line, f"the key {short_repr(error.key, 80)} is there twice: keep one") from error
    if _type_of(values) is not dict:
        raise _ParseError(1, "the file has to be one JSON object: { … }")
    found: dict[str, Any] = values
    return found


def _build_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Build an object. Raises `_RepeatedKeyError` for a repeated key: parsers use one of the two values, and the reader
    may have seen the other.
    """
    values: dict[str, Any] = {}
    for key, value in pairs:
        if key in values:
            raise _RepeatedKeyError(key)
        values[key] = value
    return values


class _RepeatedKeyError(Exception):
    """Raised for an object of JSON in which a key is there twice."""

    def __init__(self, key: str) -> None:
        super().__init__(key)
        self.key = key


def _reject_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number of JSON")
