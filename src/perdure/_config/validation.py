"""Validate a parsed `perdure.toml`: its schema, and settings that fit the schema but cannot work."""

import functools
import math
import re
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any, Final, TypeAlias

import msgspec

from perdure._core.schema.problems import problem_from_msgspec_error, problems_from_schema_error
from perdure._core.values.jsonable import convert, replace_surrogates, short_repr

from .error import MAX_FAULTS, BadConfig, ConfigFault
from .file import ParsedConfigFile
from .imports import is_import_path
from .lines import ValuePath
from .schedules import find_schedule_mistakes
from .schema import build_schema
from .tables import ConfigFile, PermissionsTable, RuleTable

Mistake: TypeAlias = tuple[ValuePath, str]
"""Path of a wrong value, and the message."""

MAX_PATTERN: Final = 1000
"""Limit on the characters of a pattern in a permission rule."""

_TOOL: Final = re.compile(r"[\w.:/*?!\[\]-]+")
_URL: Final = re.compile(r"https?://[^\s/?#@\\]+[^\s@\\]*", re.IGNORECASE)


def find_mistakes(file: ConfigFile) -> Iterator[Mistake]:
    """Yield each setting of `perdure.toml` that contradicts another or can have no effect, as path and message."""
    if not file.name.strip():
        yield ("name",), "the agent needs a name: fill it, or leave it out"
    given = [name for name in ("instructions", "instructions_file", "prompts") if getattr(file, name)]
    for name in given[1:]:
        yield (name,), f"there is {given[0]!r} already: keep one of the two"
    for place, path in enumerate(file.tools):
        if not is_import_path(path):
            forms = "'package.module:name', or as './file.py:name' for a file beside this one"
            yield ("tools", place), f"{short_repr(path, 80)} is no place to import from: write it as {forms}"
    if file.base_url and not _URL.fullmatch(file.base_url):
        yield ("base_url",), f"{short_repr(file.base_url, 80)} is no address: write it as 'https://host/path'"
    if file.base_url and not file.model:
        yield ("base_url",), "there is no 'model' that could be reached there: add one"
    if file.permissions is not None:
        yield from _find_in_permissions(file.permissions)
    if file.schedule:
        yield from find_schedule_mistakes(file.schedule)


def _find_in_permissions(table: PermissionsTable) -> Iterator[Mistake]:
    for policy in ("allow", "deny", "ask"):
        for place, entry in enumerate(getattr(table, policy)):
            path: ValuePath = ("permissions", policy, place)
            if isinstance(entry, str):
                yield from ((path, message) for message in _find_in_tool(entry))
            else:
                yield from ((path, message) for message in _find_in_rule(entry))
    if table.expires_seconds is not None and not table.expires_seconds > 0:
        yield ("permissions", "expires_seconds"), "give a number above zero"


def _find_in_rule(rule: RuleTable) -> Iterator[str]:
    yield from _find_in_tool(rule.tool)
    yield from _find_in_pattern("action", rule.action)
    yield from _find_in_pattern("target", rule.target)
    if rule.when:
        yield from _find_in_pattern("when", rule.when)


def _find_in_tool(pattern: str) -> Iterator[str]:
    """Yield the mistakes in a pattern for tool names, such as one that can match no tool."""
    if "(" in pattern:
        yield f'{short_repr(pattern, 80)} names no tool: write {{ tool = "shell", target = "git *" }} to say on what'
    elif pattern and not _TOOL.fullmatch(pattern):
        yield f"{short_repr(pattern, 80)} can match no name of a tool: write it like 'git_*'"
    else:
        yield from _find_in_pattern("tool", pattern)


def _find_in_pattern(name: str, pattern: str) -> Iterator[str]:
    if not pattern or len(pattern) > MAX_PATTERN:
        yield f"the pattern of {name!r} is {short_repr(pattern, 80)}: give 1 to {MAX_PATTERN} characters"
    elif not _has_closed_brackets(pattern):
        yield f"the pattern {short_repr(pattern, 80)} has a '[' that is not closed: close it, or write '[[]'"


def _has_closed_brackets(pattern: str) -> bool:
    """Return True if each `[` has its `]`. An unclosed `[` would match itself, which is hardly ever meant."""
    place = pattern.find("[")
    while place >= 0:
        first = place + (2 if pattern.startswith("!", place + 1) else 1)
        end = pattern.find("]", first + 1)  # a ']' at the first position is literal
        if end < 0:
            return False
        place = pattern.find("[", end)
    return True


_type_of: Callable[[Any], Any] = type  # the same, but no type checker draws conclusions from it
_LARGEST_INT: Final = 2**63 - 1
_FIELD: Final = re.compile(r"\w+\((\w+)=")
"""Pattern of messages from value checks: `Limits(max_turns=0): …`."""


def convert_config(source: ParsedConfigFile) -> ConfigFile:
    """Convert a parsed `perdure.toml` to a `ConfigFile`. Raises `BadConfig` with all mistakes of the file."""
    for look in (_find_unusable, _find_schema_errors):
        _raise_faults(source, list(islice(look(source), MAX_FAULTS)))
    file = _convert_values(source)
    _raise_faults(source, [source.build_fault(path, message) for path, message in find_mistakes(file)])
    return file


def _raise_faults(source: ParsedConfigFile, faults: list[ConfigFault]) -> None:
    if faults:
        raise BadConfig(source.path, faults)


# -- what JSON cannot represent ----------------------------------------------------------------------------------------


def _find_unusable(source: ParsedConfigFile) -> Iterator[ConfigFault]:
    for path, message in find_unusable_values(source.values, ()):
        yield source.build_fault(path, message)


def find_unusable_values(value: Any, path: ValuePath) -> Iterator[tuple[ValuePath, str]]:
    """Yield path and message of each value of a parsed file that JSON cannot represent, such as dates and infinity.

    Its depth is limited.
    """
    if _type_of(value) is dict:
        for key, each in value.items():
            if message := _describe_unstorable(key):
                yield path, message
            yield from find_unusable_values(each, (*path, key))
    elif _type_of(value) is list:
        for place, each in enumerate(value):
            yield from find_unusable_values(each, (*path, place))
    elif message := _describe_unusable(value):
        yield path, message


def _describe_unusable(value: Any) -> str:
    if isinstance(value, str):
        return _describe_unstorable(value)
    if isinstance(value, int) and abs(value) > _LARGEST_INT:
        return "the number is too large: use at most 64 bits"
    if isinstance(value, float) and not math.isfinite(value):
        return f"{value} is no number that can be used: give a finite one"
    if value is None or isinstance(value, int | float):
        return ""
    return f"{value} is a date or a time, and none is wanted anywhere: put it in quotes"


def _describe_unstorable(text: str) -> str:
    if "\0" in text or replace_surrogates(text) != text:
        return f"{short_repr(text, 80)} has characters that cannot be stored: remove them"
    return ""


# -- what does not fit -------------------------------------------------------------------------------------------------


@functools.cache
def _validator() -> tuple[Any, dict[str, Any]]:
    import jsonschema_rs

    schema = build_schema()
    return jsonschema_rs.Draft202012Validator(schema), schema


def _find_schema_errors(source: ParsedConfigFile) -> Iterator[ConfigFault]:
    validator, schema = _validator()
    for error in validator.iter_errors(source.values):
        path: ValuePath = tuple(error.instance_path)
        strangers: list[str] = error.kind.as_dict().get("unexpected", [])
        for place, problem in enumerate(problems_from_schema_error(error, schema)):
            where = (*path, strangers[place]) if strangers else problem.path
            yield source.build_fault(where, str(problem))


def _convert_values(source: ParsedConfigFile) -> ConfigFile:
    try:
        return convert(source.values, ConfigFile)
    except msgspec.ValidationError as error:
        problem = problem_from_msgspec_error(error)
        field = _FIELD.match(problem.message)
        inner = f"{problem.path}.{field[1]}" if field and problem.path else problem.path
        line = source.lines.find_line(inner).line
        raise BadConfig(source.path, [ConfigFault(line, str(problem))]) from error
