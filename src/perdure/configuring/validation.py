"""Validate a parsed `perdure.toml`, and convert its values to the classes in `table_classes.py`.

Values are checked in three steps: that JSON can represent them, that they fit the schema, and that together they make
sense. Each step reports all errors it finds, with their lines.
"""

import functools
import math
import re
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any, Final

import msgspec

from perdure.core.jsonable import replace_surrogates, short_repr
from perdure.core.thread_safe_msgspec import convert
from perdure.core.validation_problems import problem_from_msgspec_error, problems_from_schema_error

from .config_error import MAX_FAULTS, BadConfig, ConfigFault
from .line_numbers import ValuePath
from .read_config_file import ParsedConfigFile
from .schema import build_schema
from .semantic_checks import find_mistakes
from .table_classes import ConfigFile

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
