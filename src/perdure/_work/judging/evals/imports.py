"""Import agents and graders that a user names: `package.module:name`, or `path/to/file.py:name`."""

# ruff: noqa: PTH100, PTH113, PTH119, PTH120, PTH122 - pathlib would cost every start milliseconds
import importlib.util
import os
import sys
from hashlib import sha256
from typing import Any

from perdure._config.imports import import_object
from perdure._core.values.error import ConfigError
from perdure._core.values.jsonable import error_message, short_repr
from perdure._runtime.agent.agent import Agent


def import_from_module_or_file(place: str) -> Any:
    """Import the object that a user names as `module:name` or `file.py:name`. The working folder is searched last.

    Raises `ConfigError` if it cannot be imported.
    """
    module, colon, name = place.rpartition(":")
    if not colon or not module or not name:
        raise ConfigError(f"{short_repr(place)} names no object: write package.module:name, or path/to/file.py:name")
    if module.endswith(".py"):
        module = _import_file(module)
    elif (here := os.getcwd()) not in sys.path:  # noqa: PTH109 - as above
        sys.path.append(here)
    return import_object(f"{module}:{name}")


def import_agent(place: str) -> Agent[Any]:
    """Import the agent that a user names, or call the named function that returns one. Raises `ConfigError`."""
    found: Any = import_from_module_or_file(place)
    make: Any = found
    if not _is_agent(found) and callable(found):
        try:
            found = make()
        except Exception as error:
            raise ConfigError(f"{place!r} makes no agent: {type(error).__name__}: {error_message(error)}") from error
    if not _is_agent(found):
        raise ConfigError(f"{place!r} is {short_repr(found, 80)}, and no Agent(…), nor a function that returns one")
    agent: Agent[Any] = found
    return agent


def _is_agent(value: Any) -> bool:
    return isinstance(value, Agent)


def _import_file(path: str) -> str:
    """Import a Python file once, and return the name of its module. Its folder is searched for what it imports."""
    whole = os.path.abspath(path)
    if not os.path.isfile(whole):
        raise ConfigError(f"there is no file {path!r}: name a Python file, as path/to/file.py:name")
    stem = os.path.splitext(os.path.basename(whole))[0]
    name = f"perdure_named_{sha256(whole.encode()).hexdigest()[:12]}_{stem}"
    if name in sys.modules:
        return name
    spec = importlib.util.spec_from_file_location(name, whole)
    assert spec is not None  # noqa: S101 - the name of the file ends in .py
    assert spec.loader is not None  # noqa: S101 - as above
    if (folder := os.path.dirname(whole)) not in sys.path:
        sys.path.append(folder)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:  # whatever the code of a file raises
        del sys.modules[name]
        raise ConfigError(f"{path!r} cannot be imported: {type(error).__name__}: {error_message(error)}") from error
    return name
