"""Import tools and extensions that `perdure.toml` names as `"package.module:name"`.

Importing runs code, so nothing here is called before a file is trusted.
"""

from importlib import import_module
from typing import Any

from perdure.core.error import ConfigError
from perdure.core.jsonable import short_repr
from perdure.core.tool import Tool
from perdure.runtime.extension import Extension


def import_tools(place: str) -> list[Tool[..., Any]]:
    """Import a tool, or a list of tools, from `place`: `"package.module:name"`. Raises `ConfigError`."""
    found = import_object(place)
    tools: list[Any] = [*found] if isinstance(found, list | tuple) else [found]
    for each in tools:
        if not isinstance(each, Tool):
            raise ConfigError(f"{place!r} is {short_repr(each, 80)}, and no tool: decorate a function with @tool")
    return tools


def import_extension(place: str) -> Extension:
    """Import an extension, or call the function that returns one, from `place`: `"package.module:name"`.

    Raises `ConfigError`.
    """
    found = import_object(place)
    if not isinstance(found, Extension) and callable(found):
        try:
            found = found()
        except Exception as error:  # whatever it raises
            raise ConfigError(f"{place!r} makes none: {type(error).__name__}: {short_repr(str(error))}") from error
    if not isinstance(found, Extension):
        raise ConfigError(f"{place!r} is {short_repr(found, 80)}, and no Extension(…), nor a function that makes one")
    return found


def import_object(place: str) -> Any:
    """Import the object at `place`: `"package.module:name"`. Raises `ConfigError`."""
    module_name, _, attributes = place.partition(":")
    try:
        found: Any = import_module(module_name)
    except Exception as error:  # whatever the code of a module raises
        raise ConfigError(f"{place!r} cannot be imported: {type(error).__name__}: {short_repr(str(error))}") from error
    for name in attributes.split("."):
        try:
            found = getattr(found, name)
        except AttributeError as error:
            raise ConfigError(f"{place!r} cannot be imported: {_suggest_name(found, name)}") from error
    return found


def _suggest_name(found: object, name: str) -> str:
    import difflib

    near = difflib.get_close_matches(name, [each for each in dir(found) if not each.startswith("_")], n=1)
    return f"there is no {name!r} in it{f'; did you mean {near[0]!r}?' if near else ''}"
