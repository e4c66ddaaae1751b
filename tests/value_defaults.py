"""The defaults of every public value, function and method, and the numbers of every module, as rows of text.

    python -m tests.value_defaults      write the table that the tests compare with

A default is a promise to every caller who leaves an option out, and a limit or a timeout to every caller who reaches
it. Each row of `value_defaults.txt` names one with its value, so that a change of it is a change of a line that a
reviewer sees.
"""

import importlib
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from perdure._config import tables
from perdure._models.catalogue.families import MODEL_FAMILIES
from perdure._models.catalogue.providers import PROVIDERS

SOURCE = Path(__file__).resolve().parent.parent / "src"
NUMBER = re.compile(
    r"^(_?[A-Z][A-Z0-9_]*)(?:: [^=]+)? = "
    r"((?:frozenset)?[-+*(){}, 0-9._]*[0-9][-+*(){}, 0-9._e]*|True|False)(?:  #.*)?$",
    re.MULTILINE,
)
TABLE = Path(__file__).with_suffix(".txt")
MODULES = (
    "perdure",
    "perdure.events",
    "perdure._credentials",
    "perdure.hosts",
    "perdure._people",
    "perdure.models",
    "perdure.stores",
    "perdure.testing",
)
"""The modules whose names are public."""
TABLES_OF_THE_FILE = [
    name for name, value in vars(tables).items() if inspect.isclass(value) and value.__module__ == tables.__name__
]
"""The tables of a configuration file: their fields are options of everyone who writes one."""


def list_rows() -> list[str]:
    """Return all rows of the table."""
    return [*list_defaults(), *list_numbers(), *list_catalog()]


def list_defaults() -> list[str]:
    """Return a row for each option of the public names and of the configuration file that has a default."""
    rows = set[str]()
    for name in TABLES_OF_THE_FILE:
        rows.update(_list_of_class(f"{tables.__name__}.{name}", getattr(tables, name)))
    for module in map(importlib.import_module, MODULES):
        for name in module.__all__:
            value = getattr(module, name)
            if inspect.isclass(value):
                rows.update(_list_of_class(f"{value.__module__}.{value.__qualname__}", value))
            elif inspect.isfunction(value):
                rows.update(_list_of_function(f"{value.__module__}.{value.__qualname__}", value))
    return sorted(rows)


def list_numbers() -> list[str]:
    """Return a row for each constant of a module that is a number, or some numbers."""
    return [
        f"{'.'.join(path.relative_to(SOURCE).with_suffix('').parts)}.{name} = {value}"
        for path in sorted(SOURCE.rglob("*.py"))
        for name, value in NUMBER.findall(path.read_text("utf-8"))
    ]


def list_catalog() -> list[str]:
    """Return a row for each model family and each provider that is known by name."""
    return [f"{type(each).__qualname__} {each!r}" for each in (*MODEL_FAMILIES, *PROVIDERS)]


def _list_of_class(place: str, value: type[Any]) -> Iterator[str]:
    if issubclass(value, msgspec.Struct):
        defaults = value.__struct_defaults__  # of the last fields; msgspec.structs.fields would resolve all annotations
        for name, default in zip(reversed(value.__struct_fields__), reversed(defaults), strict=False):
            if default is not msgspec.NODEFAULT:
                yield f"{place}.{name} = {describe(getattr(default, 'factory', default))}"
    for name, member in vars(value).items():
        if isinstance(member, property) or (name.startswith("_") and name not in {"__init__", "__new__", "__call__"}):
            continue
        function = getattr(member, "__func__", member)
        if isinstance(member, (bool, int, float, str, tuple, frozenset)):
            yield f"{place}.{name} = {describe(member)}"
        elif inspect.isfunction(function):
            yield from _list_of_function(f"{place}.{name}", function)


def _list_of_function(place: str, function: Any) -> Iterator[str]:
    for parameter in inspect.signature(inspect.unwrap(function)).parameters.values():
        if parameter.default is not inspect.Parameter.empty:
            yield f"{place}({parameter.name}={describe(parameter.default)})"


def describe(value: object) -> str:
    """Return a default as text that is the same in every process."""
    if inspect.isclass(value) or inspect.isfunction(value) or inspect.isbuiltin(value):
        return str(value.__qualname__)
    if isinstance(value, (frozenset, set)):
        return f"{{{', '.join(sorted(map(describe, value)))}}}"
    text = repr(value)
    return type(value).__qualname__ if " at 0x" in text else text


def main() -> None:
    """Write the table."""
    TABLE.write_text("".join(f"{row}\n" for row in list_rows()), encoding="utf-8")


if __name__ == "__main__":
    main()
