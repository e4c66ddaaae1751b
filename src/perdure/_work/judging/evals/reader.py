"""Read a dataset from a TOML or JSONL file; mistakes are reported with their lines."""

# ruff: noqa: PTH111, PTH119, PTH122 - pathlib would cost every start milliseconds
import io
import json
import os
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple, NoReturn, cast

from perdure._config.error import MAX_FAULTS, BadConfig, ConfigFault
from perdure._config.file import check_size, read_toml
from perdure._config.lines import ValuePath
from perdure._config.validation import find_unusable_values
from perdure._core.run.stop import Limits
from perdure._core.values import checks
from perdure._core.values.error import ConfigError
from perdure._core.values.jsonable import replace_surrogates, short_repr
from perdure._io.files.head import UnreadableFile, read_file_head

from .dataset import MAX_ID, MAX_NAME, MAX_REPEAT, Case, Dataset
from .named_graders import find_grader_mistakes

MAX_BYTES: Final = 50_000_000
"""Limit on the size of a JSONL file; for TOML it is that of configuration files."""
MAX_CASES: Final = 10_000
"""The most cases of a file."""
MAX_PROMPT: Final = 1_000_000
"""Characters of a prompt."""
MAX_TAGS: Final = 100
"""The most tags of a case."""
_type_of: Callable[[Any], Any] = type  # the same, but no type checker draws conclusions from it
_CASE_KEYS: Final = ("prompt", "id", "expected", "graders", "tags", "deps", "limits", "output", "repeat")
_SHARED_KEYS: Final = ("graders", "tags", "limits", "repeat")
_TOP_KEYS: Final = ("name", *_SHARED_KEYS, "case")
_ADVICE: Final = {
    "graders": 'give a list, such as ["contains"]',
    "tags": f'give a list of words, such as ["arithmetic"]: at most {MAX_TAGS}, of {MAX_ID} characters each',
    "limits": "give a table, such as {max_turns = 5}",
    "repeat": f"give a whole number, 1 or more, and at most {MAX_REPEAT}",
    "prompt": f"give a text of at most {MAX_PROMPT:,} characters",
    "id": "give a text",
    "output": "give a JSON Schema, as a table",
}


class BadDataset(BadConfig):
    """Raised when a dataset cannot be used. The message has a line per mistake: `file:line: mistake; what to do`."""


class _Table(NamedTuple):
    """The values of one case, or of the whole file, and where they are."""

    values: Mapping[str, Any]
    path: ValuePath


def load_dataset(path: str | os.PathLike[str], *, trusted: bool = False) -> Dataset:
    """Read a dataset from a `.toml` or `.jsonl` file. Raises `BadDataset` with all mistakes of the file.

    Args:
        path: The file. TOML has a table `[[case]]` for each case, JSONL an object on each line.
        trusted: True if you wrote the file, or have read it. Then it may name graders that run code (`command`, and
            functions as `module:name`) and the model of a grader, set limits above those of the agent, and attach
            files with `@file`. Otherwise the dataset `is_untrusted`.
    """
    if not isinstance(path, str | os.PathLike) or not os.fspath(path):
        raise ConfigError(f"{path!r} is no path of a file: name the dataset to be read")
    name = replace_surrogates(os.fspath(path))
    ending = os.path.splitext(name)[1].lower()
    if ending == ".toml":
        return _read_toml_dataset(name, path, trusted=trusted)
    if ending in {".jsonl", ".ndjson"}:
        return _read_json_lines(name, os.path.expanduser(os.fspath(path)), trusted=trusted)
    raise BadDataset(name, [ConfigFault(0, "a dataset is a file whose name ends in .toml or .jsonl: rename it")])


def _read_toml_dataset(name: str, path: str | os.PathLike[str], *, trusted: bool) -> Dataset:
    try:
        source = read_toml(path)
    except BadConfig as error:
        raise BadDataset(error.path, error.faults) from error
    builder = _DatasetBuilder(name, source.build_fault, trusted=trusted)
    top = _Table(source.values, ())
    builder.check_values(top)
    builder.check_keys(top, _TOP_KEYS)
    shared = builder.read_fields(top, _SHARED_KEYS)
    title = source.values.get("name", _derive_name(name))
    if not isinstance(title, str) or not title.strip() or checks.has_control_characters(title):
        builder.add(("name",), f"name is {short_repr(title)}: give one line of text")
    elif len(title) > MAX_NAME:
        builder.add(("name",), f"name has {len(title):,} characters: give at most {MAX_NAME}")
    found: list[Any] = _to_list(source.values.get("case", []))
    if not all(isinstance(each, dict) for each in found):
        builder.add(("case",), "case has to be a list of tables: begin each one with [[case]]")
        builder.fail()
    cases = [builder.read_case(_Table(each, ("case", place)), shared) for place, each in enumerate(found)]
    return builder.build(title, cases)


def _read_json_lines(name: str, path: str, *, trusted: bool) -> Dataset:
    try:
        head = read_file_head(path, MAX_BYTES)
    except UnreadableFile as error:
        raise BadDataset(name, [ConfigFault(0, str(error))]) from error
    if head.is_truncated:
        size = f"the file has {head.size:,} bytes, and {MAX_BYTES:,} are the most: split it"
        raise BadDataset(name, [ConfigFault(0, size)])
    lines: list[int] = []
    tables: list[_Table] = []
    faults: list[ConfigFault] = []
    for number, line in enumerate(io.BytesIO(head.data.removeprefix(b"\xef\xbb\xbf")), 1):
        if not line.strip():
            continue
        if len(tables) == MAX_CASES or len(faults) == MAX_FAULTS:
            many = [] if faults else [ConfigFault(number, _TOO_MANY_CASES)]
            raise BadDataset(name, [*faults, *many])
        try:
            tables.append(_Table(_parse_line(line), ("case", len(tables))))
            lines.append(number)
        except ValueError as error:
            faults.append(ConfigFault(number, str(error)))

    def build_fault(path: ValuePath, message: str) -> ConfigFault:
        return ConfigFault(lines[int(path[1])] if path else 0, message)

    builder = _DatasetBuilder(name, build_fault, trusted=trusted)
    builder.faults += faults
    for table in tables:
        builder.check_values(table)
    return builder.build(_derive_name(name), [builder.read_case(table, {}) for table in tables])


_TOO_MANY_CASES: Final = f"there are more than {MAX_CASES:,} cases, which are the most: split the file"


def _parse_line(line: bytes) -> dict[str, Any]:
    """Return the object on a line of JSON. Raises `ValueError` with a message for the user."""
    try:
        value: Any = json.loads(line.decode(), parse_constant=_reject_constant)
    except UnicodeDecodeError:
        raise ValueError("this is no UTF-8: save the file as UTF-8") from None
    except json.JSONDecodeError as error:
        raise ValueError(f"this is no JSON: {error.msg[:1].lower()}{error.msg[1:]}; write one object a line") from None
    except RecursionError:
        raise ValueError("values are nested too deep to be read: make it flatter") from None
    if not isinstance(value, dict):
        raise ValueError('a line has to be one JSON object, such as {"prompt": "…", "expected": "…"}')  # noqa: TRY004
    check_size(value)
    return cast("dict[str, Any]", value)


def _reject_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number of JSON: give a finite one")


def _derive_name(path: str) -> str:
    """Return the name of a dataset that has none: that of its file."""
    return os.path.splitext(os.path.basename(path))[0] or "dataset"


class _DatasetBuilder:
    """Converts the values of a file to cases, and collects all mistakes with their lines."""

    def __init__(self, path: str, build_fault: Callable[[ValuePath, str], ConfigFault], *, trusted: bool) -> None:
        self.faults: list[ConfigFault] = []
        self._path = path
        self._build_fault = build_fault
        self._trusted = trusted
        self._ids: dict[str, int] = {}

    def add(self, path: ValuePath, message: str) -> None:
        """Note a mistake of the value at `path`. Raises `BadDataset` when there are as many as are reported."""
        self.faults.append(self._build_fault(path, message))
        if len(self.faults) >= MAX_FAULTS:
            self.fail()

    def fail(self) -> NoReturn:
        raise BadDataset(self._path, self.faults)

    def build(self, name: str, cases: list[Case | None]) -> Dataset:
        """Return the dataset. Raises `BadDataset` if there are mistakes."""
        if not cases and not self.faults:
            self.add((), 'there are no cases: add one, as [[case]] in TOML, with prompt = "…"')
        if self.faults:
            self.fail()
        found = [case for case in cases if case is not None]
        return Dataset(name, found, self._path, is_untrusted=not self._trusted)

    def check_values(self, table: _Table) -> None:
        for path, message in find_unusable_values(table.values, table.path):
            self.add(path, message)

    def check_keys(self, table: _Table, known: tuple[str, ...]) -> None:
        for key in table.values:
            if key not in known:
                meant = checks.suggest_name(key, known)
                self.add((*table.path, key), f"{short_repr(key)} is not known here: {meant}use {', '.join(known)}")

    def read_case(self, table: _Table, shared: Mapping[str, Any]) -> Case | None:
        """Return a case of the file; `None` if it has a mistake, which is noted."""
        before = len(self.faults)
        self.check_keys(table, _CASE_KEYS)
        if "prompt" not in table.values:
            self.add(table.path, 'this case has no prompt: add prompt = "…"')
        fields = self.read_fields(table, _CASE_KEYS)
        self._check_id(table)
        if len(self.faults) > before:
            return None
        merged = {**shared, **fields}
        merged["tags"] = tuple(dict.fromkeys([*shared.get("tags", ()), *fields.get("tags", ())]))
        try:
            return Case(**merged)
        except ConfigError as error:
            self.add(table.path, str(error))
            return None

    def read_fields(self, table: _Table, names: tuple[str, ...]) -> dict[str, Any]:
        """Return the fields of a table that are right; mistakes are noted."""
        fields: dict[str, Any] = {}
        for name in names:
            if name not in table.values:
                continue
            value, path = table.values[name], (*table.path, name)
            if not _has_right_type(name, value):
                self.add(path, f"{name} is {short_repr(value, 80)}: {_ADVICE[name]}")
            elif name == "graders":
                fields[name] = value
                for place, mistake in find_grader_mistakes(value, trusted=self._trusted):
                    self.add((*path, place), mistake)
            elif name == "limits":
                fields[name] = self._read_limits(value, path)
            else:
                fields[name] = tuple(value) if name == "tags" else value
        return fields

    def _read_limits(self, values: dict[str, Any], path: ValuePath) -> Limits | None:
        given: dict[str, Any] = dict(values)
        if "allowed_tools" in given:
            given["allowed_tools"] = tuple(_to_list(given["allowed_tools"]))
        try:
            return Limits(**given)
        except ConfigError as error:
            wrong = next((name for name in values if f"({name}=" in str(error)), "")
            self.add((*path, wrong) if wrong else path, str(error))
            return None

    def _check_id(self, table: _Table) -> None:
        name = table.values.get("id")
        if not isinstance(name, str) or not name:
            return
        line = self._build_fault((*table.path, "id"), "").line
        if name in self._ids:
            self.add(
                (*table.path, "id"), f"the id {short_repr(name)} is that of line {self._ids[name]} too: rename one"
            )
        self._ids.setdefault(name, line)


def _to_list(value: Any) -> list[Any]:
    """Return the items of a list; a value that is none as the only item."""
    items: list[Any] = value if _type_of(value) is list else [value]
    return items


def _has_right_type(name: str, value: Any) -> bool:
    if name in {"graders", "tags"}:
        if _type_of(value) is not list:
            return False
        return bool(value) if name == "graders" else len(value) <= MAX_TAGS and all(map(_is_tag, value))
    if name in {"limits", "output"}:
        return isinstance(value, dict)
    if name == "repeat":
        return isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= MAX_REPEAT
    if name in {"prompt", "id"}:
        return isinstance(value, str) and bool(value.strip()) and len(value) <= MAX_PROMPT
    return True


def _is_tag(value: Any) -> bool:
    is_word = isinstance(value, str) and bool(value) and not checks.has_control_characters(value)
    return is_word and len(value) <= MAX_ID
