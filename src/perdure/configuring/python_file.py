"""Import a Python file from the bytes that were read and hashed when the configuration was checked.

The file is imported under a name of its own, and its folder is not searched for modules: what is imported is what is
trusted, and no file beside it can replace a module of the standard library.
"""

import hashlib
import sys
from importlib.abc import SourceLoader
from importlib.util import module_from_spec, spec_from_loader
from types import ModuleType
from typing import NamedTuple


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
