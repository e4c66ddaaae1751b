"""Tools and extensions by where they are imported from. Above: `config.py`. Below: `core`.

Importing runs code, so nothing here is called before a file is trusted.
"""

from importlib import import_module
from typing import Any

from perdure.core.error import ConfigError
from perdure.core.plain import excerpt
from perdure.core.tool import Tool
from perdure.extension import Extension


def imported_tools(place: str) -> list[Tool[..., Any]]:
    """The tools at `"package.module:name"`, which may be one tool or a list of them. Raises `ConfigError`."""
    found = _imported(place)
    tools: list[Any] = [*found] if isinstance(found, list | tuple) else [found]
    for each in tools:
        if not isinstance(each, Tool):
            raise ConfigError(f"{place!r} is {excerpt(each, 80)}, and no tool: decorate a function with @tool")
    return tools


def imported_extension(place: str) -> Extension:
    """The extension at `"package.module:name"`, or what a function there makes. Raises `ConfigError`."""
    found = _imported(place)
    if not isinstance(found, Extension) and callable(found):
        try:
            found = found()
        except Exception as error:  # whatever it raises
            raise ConfigError(f"{place!r} makes none: {type(error).__name__}: {excerpt(str(error))}") from error
    if not isinstance(found, Extension):
        raise ConfigError(f"{place!r} is {excerpt(found, 80)}, and no Extension(…), nor a function that makes one")
    return found


def _imported(place: str) -> Any:
    module_name, _, attributes = place.partition(":")
    try:
        found: Any = import_module(module_name)
    except Exception as error:  # whatever the code of a module raises
        raise ConfigError(f"{place!r} cannot be imported: {type(error).__name__}: {excerpt(str(error))}") from error
    for name in attributes.split("."):
        try:
            found = getattr(found, name)
        except AttributeError as error:
            raise ConfigError(f"{place!r} cannot be imported: {_advice(found, name)}") from error
    return found


def _advice(found: object, name: str) -> str:
    import difflib

    near = difflib.get_close_matches(name, [each for each in dir(found) if not each.startswith("_")], n=1)
    return f"there is no {name!r} in it{f'; did you mean {near[0]!r}?' if near else ''}"
