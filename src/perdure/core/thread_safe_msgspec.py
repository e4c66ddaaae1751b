"""Thread-safe use of msgspec: convert plain values (dicts, lists, strings) to typed ones, and build JSON decoders.

msgspec gathers what it has to know about a class when the class is first needed. If two threads let it do that for the
same class at the same time, the process crashes. So it is done for one type at a time, before the type is first used.
"""

import threading
from contextlib import suppress
from typing import Any, TypeVar, overload

import msgspec

T = TypeVar("T")

_building = threading.RLock()
"""Belongs to the thread that lets msgspec gather what it has to know about a type."""
_prepared: set[Any] = set()
"""The types for which that is done."""


@overload
def convert(value: Any, kind: type[T], *, strict: bool = True) -> T: ...


@overload
def convert(value: Any, kind: Any, *, strict: bool = True) -> Any: ...


def convert(value: Any, kind: Any, *, strict: bool = True) -> Any:
    """Convert a plain value to a type, as `msgspec.convert` does. Raises `ValidationError`."""
    if kind not in _prepared:
        build_decoder_under_lock(kind)
        _prepared.add(kind)
    return msgspec.convert(value, kind, strict=strict)


def build_decoder_under_lock(kind: type[T]) -> "msgspec.json.Decoder[T]":
    """Build a JSON decoder for a type, under a lock, since msgspec may crash if two threads build one at once."""
    with _building:
        return msgspec.json.Decoder(kind)


def prepare_type(kind: Any) -> None:
    """Let msgspec analyze a type before its first use, so that several threads can then convert values to it."""
    with suppress(TypeError):
        build_decoder_under_lock(kind)
