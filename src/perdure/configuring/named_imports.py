"""Import tools and extensions that `perdure.toml` names as `"package.module:name"` or `"file.py:name"`.

Importing runs code, so nothing here is called before a file is trusted.
"""

import re
from collections.abc import Callable
from importlib import import_module
from typing import Any, Final

from perdure.core.error import ConfigError
from perdure.core.jsonable import short_repr
from perdure.core.tool import Tool
from perdure.runtime.extension import Extension

from .python_file import PythonFileContent, import_python_file

_NAMES: Final = r"[^\W\d]\w*(?:\.[^\W\d]\w*)*"
_IMPORT: Final = re.compile(rf"(?:{_NAMES}|[^:]*[^:/]\.py):{_NAMES}")

ReadSource = Callable[[str], PythonFileContent]
"""Reads a file of Python, named by a path as the configuration has it. Raises `ConfigError`."""


def is_import_path(place: str) -> bool:
    """Return True if a text has the form `"package.module:name"` or `"file.py:name"`."""
    return _IMPORT.fullmatch(place) is not None


def get_file_name(place: str) -> str:
    """Return the file's path in an import path `"file.py:name"`; empty for `"package.module:name"`."""
    path, _, _ = place.rpartition(":")
    return path if path.endswith(".py") else ""


def import_tools(place: str, read_source: ReadSource) -> list[Tool[..., Any]]:
    """Import a tool, or a list of tools, from `place`: `"package.module:name"` or `"file.py:name"`.

    Raises `ConfigError`.
    """
    found = import_object(place, read_source)
    tools: list[Any] = [*found] if isinstance(found, list | tuple) else [found]
    for each in tools:
        if not isinstance(each, Tool):
            raise ConfigError(f"{place!r} is {short_repr(each, 80)}, and no tool: decorate a function with @tool")
        if each.isolate and get_file_name(place):
            raise ConfigError(
                f"{place!r} is isolated, and imported by name in another process: put it into a package, and name it "
                "as 'package.module:name'"
            )
    return tools


def import_extension(place: str, read_source: ReadSource) -> Extension:
    """Import an extension, or the function that builds it, from `"package.module:name"` or `"file.py:name"`.

    Raises `ConfigError`.
    """
    found = import_object(place, read_source)
    if not isinstance(found, Extension) and callable(found):
        try:
            found = found()
        except Exception as error:  # whatever it raises
            raise ConfigError(f"{place!r} makes none: {type(error).__name__}: {short_repr(str(error))}") from error
    if not isinstance(found, Extension):
        raise ConfigError(f"{place!r} is {short_repr(found, 80)}, and no Extension(…), nor a function that makes one")
    return found


def import_object(place: str, read_source: ReadSource | None = None) -> Any:
    """Import the object at `place`: `"package.module:name"` or, with `read_source`, `"file.py:name"`.

    Raises `ConfigError`.
    """
    file_name = "" if read_source is None else get_file_name(place)
    module_name, _, attributes = place.rpartition(":") if file_name else place.partition(":")
    source = read_source(file_name) if file_name and read_source is not None else None
    try:
        found: Any = import_module(module_name) if source is None else import_python_file(source)
    except Exception as error:  # whatever the code of a module raises
        hint = "" if source is not None or not _is_missing(error, module_name) else _FILE_HINT
        problem = f"{type(error).__name__}: {short_repr(str(error))}{hint}"
        raise ConfigError(f"{place!r} cannot be imported: {problem}") from error
    for name in attributes.split("."):
        try:
            found = getattr(found, name)
        except AttributeError as error:
            raise ConfigError(f"{place!r} cannot be imported: {_suggest_name(found, name)}") from error
    return found


_FILE_HINT: Final = "; install it, or name a file beside perdure.toml, as in './tools.py:name'"


def _is_missing(error: Exception, module_name: str) -> bool:
    """Return True if the module itself was not found, rather than one that it imports."""
    return isinstance(error, ModuleNotFoundError) and f"{module_name}.".startswith(f"{error.name}.")


def _suggest_name(found: object, name: str) -> str:
    import difflib

    near = difflib.get_close_matches(name, [each for each in dir(found) if not each.startswith("_")], n=1)
    return f"there is no {name!r} in it{f'; did you mean {near[0]!r}?' if near else ''}"
