"""From what a file says to its tables, or to all that is wrong with it. Above: `config.py`. Below: the schema.

The values of the file are looked at three times: whether JSON could hold them at all, whether they fit the schema, and
whether what they say can work. Each time everything that is found is told, with its line.
"""

import functools
import math
import re
from collections.abc import Callable, Iterator
from typing import Any, Final

import msgspec

from perdure.core.plain import clean, excerpt
from perdure.core.problem import from_msgspec_error, from_schema_error

from .fault import BadConfig, Fault
from .lines import Path
from .mistakes import mistakes_in
from .schema import bare_schema
from .source import Source
from .tables import ConfigFile

_type_of: Callable[[Any], Any] = type  # the same, but no type checker draws conclusions from it
_LARGEST_INT: Final = 2**63 - 1
_FIELD: Final = re.compile(r"\w+\((\w+)=")
"""How the checks of a value begin what they say: `Limits(max_turns=0): …`."""


def validated(source: Source) -> ConfigFile:
    """The tables of a file. Raises `BadConfig` with all that is wrong."""
    for look in (_unusable, _unfitting):
        _refuse_if_any(source, list(look(source)))
    file = _converted(source)
    _refuse_if_any(source, [source.fault(path, message) for path, message in mistakes_in(file)])
    return file


def _refuse_if_any(source: Source, faults: list[Fault]) -> None:
    if faults:
        raise BadConfig(source.path, faults)


# -- what JSON could not hold ------------------------------------------------------------------------------------------


def _unusable(source: Source) -> Iterator[Fault]:
    for path, message in unusable_values(source.values, ()):
        yield source.fault(path, message)


def unusable_values(value: Any, path: Path) -> Iterator[tuple[Path, str]]:
    """Values that no schema speaks of: dates, endless numbers, characters that nothing can store. Depth is bounded
    already, by the scanner of the file.
    """
    if _type_of(value) is dict:
        for key, each in value.items():
            if message := _unstorable(key):
                yield path, message
            yield from unusable_values(each, (*path, key))
    elif _type_of(value) is list:
        for place, each in enumerate(value):
            yield from unusable_values(each, (*path, place))
    elif message := _unusable_value(value):
        yield path, message


def _unusable_value(value: Any) -> str:
    if isinstance(value, str):
        return _unstorable(value)
    if isinstance(value, int) and abs(value) > _LARGEST_INT:
        return "the number is too large: use at most 64 bits"
    if isinstance(value, float) and not math.isfinite(value):
        return f"{value} is no number that can be used: give a finite one"
    if value is None or isinstance(value, int | float):
        return ""
    return f"{value} is a date or a time, and none is wanted anywhere: put it in quotes"


def _unstorable(text: str) -> str:
    if "\0" in text or clean(text) != text:
        return f"{excerpt(text, 80)} has characters that cannot be stored: remove them"
    return ""


# -- what does not fit -------------------------------------------------------------------------------------------------


@functools.cache
def _validator() -> tuple[Any, dict[str, Any]]:
    import jsonschema_rs

    schema = bare_schema()
    return jsonschema_rs.Draft202012Validator(schema), schema


def _unfitting(source: Source) -> Iterator[Fault]:
    validator, schema = _validator()
    for error in validator.iter_errors(source.values):
        path: Path = tuple(error.instance_path)
        strangers: list[str] = error.kind.as_dict().get("unexpected", [])
        for place, problem in enumerate(from_schema_error(error, schema)):
            where = (*path, strangers[place]) if strangers else problem.path
            yield source.fault(where, str(problem))


def _converted(source: Source) -> ConfigFile:
    try:
        return msgspec.convert(source.values, ConfigFile)
    except msgspec.ValidationError as error:
        problem = from_msgspec_error(error)
        field = _FIELD.match(problem.message)
        inner = f"{problem.path}.{field[1]}" if field and problem.path else problem.path
        line = source.lines.of(inner) or source.lines.of(problem.path)
        raise BadConfig(source.path, [Fault(line, str(problem))]) from error
