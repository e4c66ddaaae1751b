"""Import tools and extensions that a configuration names, by module or by file."""

import hashlib
import re
import sys
from collections.abc import Callable
from importlib import import_module
from importlib.abc import SourceLoader
from importlib.util import module_from_spec, spec_from_loader
from types import ModuleType
from typing import Any, Final, NamedTuple

from perdure._core.tools.tool import Tool
from perdure._core.values.error import ConfigError
from perdure._core.values.jsonable import short_repr
from perdure._runtime.agent.extension import Extension


class PythonFileContent(NamedTuple):
    """A Python file that a configuration names: its path, with links resolved, and its content."""

    path: str
    data: bytes


def import_python_file(source: PythonFileContent) -> ModuleType:
    """Import a Python file as a module, once for each content; raises whatever its code raises."""
    digest = hashlib.sha256(source.path.encode() + b"\0" + source.data).hexdigest()
    name = f"perdure_source_{digest[:24]}"
    if name in sys.modules:
        return sys.modules[name]
    loader = _BytesLoader(source)
    spec = spec_from_loader(name, loader, origin=source.path)
    assert spec is not None  # noqa: S101 - it is `None` only without a loader
    module = module_from_spec(spec)
    sys.modules[name] = module  # type hints of its functions are looked up there
    try:
        loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


class _BytesLoader(SourceLoader):
    """Loads a module from bytes, which are not read a second time, and writes no bytecode."""

    def __init__(self, source: PythonFileContent) -> None:
        self._source = source

    def get_filename(self, fullname: str) -> str:  # noqa: ARG002 - the interface of importlib
        return self._source.path

    def get_data(self, path: str) -> bytes:  # noqa: ARG002 - as above
        return self._source.data


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
