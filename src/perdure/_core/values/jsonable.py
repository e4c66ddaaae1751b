"""Conversion of any Python value to JSON that can be stored, and of JSON values to types, also by many threads."""

import base64
import functools
import math
import os
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, MappingView, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from datetime import date, time, timedelta
from decimal import Decimal
from enum import Enum
from itertools import islice
from typing import Any, TypeAlias, TypeVar, overload
from uuid import UUID

import msgspec

MAX_DEPTH = 64
"""Containers nested deeper than this are cut."""
MAX_VALUES = 1_000_000
"""A value that contains more values than this is cut; `TEXT_PER_VALUE` characters of text count as one more."""
TEXT_PER_VALUE = 64
REPR_LENGTH = 300
"""The length of the `repr` that replaces an object that is not serialisable."""

_CYCLE = "<cycle>"
_TOO_DEEP = f"<cut: nested deeper than {MAX_DEPTH} levels>"
_TOO_MANY = f"<cut: more than {MAX_VALUES} values>"
_LARGEST_INT = 2**63 - 1

_encode = msgspec.json.Encoder().encode
_type_of: Callable[[Any], Any] = type  # the same function, but type checkers do not narrow by it


def to_text(value: Any) -> str:
    """Return the value as text for a model: a string as it is, anything else as compact JSON. Always encodes to UTF-8.

    `None` is `null`, as it is inside JSON. A value that becomes a string (bytes, a date, an enum of strings) has no
    quotes.
    """
    if type(value) is str:
        return value if value.isascii() else replace_surrogates(value)
    plain = to_jsonable(value)
    return plain if type(plain) is str else _encode(plain).decode()


def to_jsonable(value: Any) -> Any:
    """Convert a value to dicts, lists, strings, finite numbers, booleans and None, which any JSON encoder accepts.

    Structs, dataclasses, attrs classes, pydantic models and mappings become dicts; sequences, sets and arrays lists;
    dates, decimals, UUIDs and paths strings; enums their value; bytes text if they are UTF-8, else a `data:` URL.
    """
    return _Conversion().convert(value, 0)


def replace_surrogates(text: str) -> str:
    """Replace each lone surrogate of a text by U+FFFD, so that it can be encoded."""
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        # Not through UTF-16, which takes seconds for a megabyte of surrogates.
        joined = re.sub("[\ud800-\udbff][\udc00-\udfff]", _join_surrogates, text)
        return re.sub("[\ud800-\udfff]+", lambda lone: "\ufffd" * len(lone[0]), joined)
    return text


def _join_surrogates(pair: re.Match[str]) -> str:
    return pair[0].encode("utf-16-le", "surrogatepass").decode("utf-16-le")


def short_repr(value: Any, length: int = REPR_LENGTH) -> str:
    """Return the beginning of a value's `repr`, on one line and encodable, even if its `__repr__` raises."""
    if type(value) is str and len(value) > length:
        value = value[: length + 1]
    try:
        text = str.__str__(repr(value))
    except KeyboardInterrupt:
        raise
    except BaseException:  # noqa: BLE001 - an object may raise anything from its __repr__
        text = f"<{_type_name(value)} whose repr fails>"
    text = replace_surrogates(text[: length + 1]).replace("\n", " ")
    return text if len(text) <= length else f"{text[: length - 1]}…"


MAX_ERROR_CHARACTERS = 1_000_000
"""The most characters that are kept of the message of an error."""


def error_message(error: BaseException) -> str:
    """Return the message of an error, encodable and of bounded length, even if its `__str__` raises."""
    try:
        message = replace_surrogates(str.__str__(str(error)))
        return message if len(message) <= MAX_ERROR_CHARACTERS else f"{message[:MAX_ERROR_CHARACTERS]}… (cut off)"
    except BaseException:  # noqa: BLE001 - an error may raise anything from its __str__
        return "(no readable message)"


class _Conversion:
    """State of one conversion to JSON: how many more values are allowed, and the containers it is inside of."""

    __slots__ = ("open_containers", "values_left")

    def __init__(self) -> None:
        self.values_left = MAX_VALUES
        self.open_containers: set[int] = set()

    def convert(self, value: Any, depth: int) -> Any:
        """Convert a value, with everything in it."""
        kind = _type_of(value)
        if kind is str:
            self.values_left -= len(value) // TEXT_PER_VALUE
            return value if value.isascii() else replace_surrogates(value)
        if kind is bool or value is None:
            return value
        if kind is int:
            return _convert_integer(value)
        if kind is float:
            return value if math.isfinite(value) else _name_non_finite(value)
        return self.convert_container(value, kind, depth)

    def convert_container(self, value: Any, kind: type, depth: int) -> Any:
        """Convert a container, unless it contains itself or is nested too deep."""
        if depth >= MAX_DEPTH:
            return _TOO_DEEP
        identity = id(value)
        if identity in self.open_containers:
            return _CYCLE
        self.open_containers.add(identity)
        try:
            if kind is dict:
                return self.convert_mapping(list(value.items()), depth)
            if kind is list:
                return self.convert_items(value, depth)
            return _find_converter(kind)(self, value, depth)
        except KeyboardInterrupt:
            raise
        except BaseException:  # noqa: BLE001 - an object may raise anything when it is inspected
            return _describe_unserialisable(value)
        finally:
            self.open_containers.discard(identity)

    def convert_items(self, values: Iterable[Any], depth: int) -> list[Any]:
        """Convert the items of a sequence, as far as the limit allows."""
        found: list[Any] = []
        for value in islice(values, max(self.values_left, 0) + 1):
            found.append(self.convert(value, depth + 1))
            if self.values_left < 0:
                break
        self.values_left -= len(found)
        if self.values_left < 0:
            found.append(_TOO_MANY)
        return found

    def convert_mapping(self, pairs: Iterable[tuple[Any, Any]], depth: int) -> dict[str, Any]:
        """Convert the items of a mapping, as far as the limit allows, with text for every key."""
        found: dict[str, Any] = {}
        for key, value in islice(pairs, max(self.values_left, 0) + 1):
            is_short = type(key) is str and len(key) < TEXT_PER_VALUE and key.isascii()
            text = key if is_short else self.convert_key(key, depth)
            if text in found:
                text = _free_key(text, found)
            found[text] = self.convert(value, depth + 1)
            if self.values_left < 0:
                break
        self.values_left -= len(found)
        if self.values_left < 0:
            found["…"] = _TOO_MANY
        return found

    def convert_key(self, key: Any, depth: int) -> str:
        plain = self.convert(key, depth + 1)
        return plain if type(plain) is str else _encode(plain).decode()


_Converter: TypeAlias = Callable[[_Conversion, Any, int], Any]


def _convert_mapping(walk: _Conversion, value: Mapping[Any, Any], depth: int) -> Any:
    return walk.convert_mapping(_iterate_pairs(value), depth)


# The built-in iteration of dict, list and tuple: a subclass with an endless __iter__ cannot block us.
_Dict: Any = dict
_List: Any = list
_Tuple: Any = tuple


def _convert_dict(walk: _Conversion, value: dict[Any, Any], depth: int) -> Any:
    return walk.convert_mapping(list(_Dict.items(value)), depth)


def _convert_list(walk: _Conversion, value: list[Any], depth: int) -> Any:
    return walk.convert_items(_List.__iter__(value), depth)


def _convert_tuple(walk: _Conversion, value: tuple[Any, ...], depth: int) -> Any:
    return walk.convert_items(_Tuple.__iter__(value), depth)


def _iterate_pairs(value: Mapping[Any, Any]) -> Iterator[tuple[Any, Any]]:
    for key in value:
        yield key, value[key]


def _convert_sequence(walk: _Conversion, value: Iterable[Any], depth: int) -> Any:
    return walk.convert_items(value, depth)


def _convert_set(walk: _Conversion, value: Iterable[Any], depth: int) -> Any:
    # Sets have no order, and one that differs from run to run would change hashes and caches.
    return sorted(walk.convert_items(value, depth), key=_encode)


def _convert_struct(walk: _Conversion, value: msgspec.Struct, depth: int) -> Any:
    config = value.__struct_config__
    names = zip(value.__struct_encode_fields__, value.__struct_fields__, strict=True)
    fields = {encoded: getattr(value, name) for encoded, name in names}
    present = {name: field for name, field in fields.items() if field is not msgspec.UNSET}
    tag = {} if config.tag_field is None else {config.tag_field: config.tag}
    if config.array_like:
        return walk.convert_items([*tag.values(), *fields.values()], depth)
    return walk.convert_mapping({**tag, **present}.items(), depth)


def _convert_fields(walk: _Conversion, value: Any, depth: int) -> Any:
    names = getattr(value, "__dataclass_fields__", None) or [field.name for field in value.__attrs_attrs__]
    return walk.convert_mapping([(name, getattr(value, name)) for name in names], depth)


def _convert_str(walk: _Conversion, value: str, depth: int) -> Any:
    return walk.convert(str.__str__(value), depth)


def _convert_number(walk: _Conversion, value: float, depth: int) -> Any:
    # With the built-in methods, so that a subclass cannot return something else.
    return walk.convert(int.__pos__(value) if isinstance(value, int) else float.__pos__(value), depth)


def _convert_bytes(walk: _Conversion, value: bytes | bytearray | memoryview | msgspec.Raw, depth: int) -> Any:
    data = bytes(value)
    try:
        text = data.decode()
    except UnicodeDecodeError:
        text = f"data:;base64,{base64.b64encode(data).decode()}"
    return walk.convert(text, depth)


def _convert_enum(walk: _Conversion, value: Enum, depth: int) -> Any:
    return walk.convert(value.value, depth + 1)


def _convert_datetime(walk: _Conversion, value: date | time, depth: int) -> Any:
    return walk.convert(value.isoformat(), depth + 1)


def _convert_by_str(walk: _Conversion, value: Decimal | UUID, depth: int) -> Any:
    return walk.convert(str(value), depth + 1)


def _convert_timedelta(walk: _Conversion, value: timedelta, depth: int) -> Any:
    return walk.convert(msgspec.to_builtins(value), depth + 1)


def _convert_path(walk: _Conversion, value: os.PathLike[Any], depth: int) -> Any:
    return walk.convert(os.fspath(value), depth + 1)


def _convert_pydantic_model(walk: _Conversion, value: Any, depth: int) -> Any:
    return walk.convert(value.model_dump(mode="json"), depth + 1)


def _convert_array(walk: _Conversion, value: Any, depth: int) -> Any:
    return walk.convert(value.tolist(), depth + 1)


def _convert_unknown(_walk: _Conversion, value: Any, _depth: int) -> Any:
    return _describe_unserialisable(value)


_CONVERTERS_BY_TYPE: tuple[tuple[type | tuple[type, ...], _Converter], ...] = (
    (Enum, _convert_enum),
    (str, _convert_str),
    ((int, float), _convert_number),
    ((bytes, bytearray, memoryview, msgspec.Raw), _convert_bytes),
    (msgspec.Struct, _convert_struct),
    (dict, _convert_dict),
    (list, _convert_list),
    (tuple, _convert_tuple),
    (Mapping, _convert_mapping),
    ((Sequence, MappingView), _convert_sequence),
    (AbstractSet, _convert_set),
    ((date, time), _convert_datetime),
    ((Decimal, UUID), _convert_by_str),
    (timedelta, _convert_timedelta),
    (os.PathLike, _convert_path),
)
"""The converter of each kind of type; the first that matches is used."""

_CONVERTERS_BY_ATTRIBUTE: tuple[tuple[str, _Converter], ...] = (
    ("model_dump", _convert_pydantic_model),
    ("__dataclass_fields__", _convert_fields),
    ("__attrs_attrs__", _convert_fields),
    ("tolist", _convert_array),
)
"""The converters of classes of libraries that are not imported, by an attribute: pydantic, dataclasses, attrs,
arrays."""


@functools.lru_cache(maxsize=512)
def _find_converter(kind: type) -> _Converter:
    for types, converter in _CONVERTERS_BY_TYPE:
        if issubclass(kind, types):
            return converter
    for sign, converter in _CONVERTERS_BY_ATTRIBUTE:
        if hasattr(kind, sign):
            return converter
    return _convert_unknown


def _convert_integer(value: int) -> int | str:
    if -_LARGEST_INT <= value <= _LARGEST_INT:
        return value
    try:
        return str(value)
    except ValueError:  # more digits than Python converts to decimal
        return hex(value)


def _name_non_finite(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    return "Infinity" if value > 0 else "-Infinity"


def _free_key(text: str, taken: Mapping[str, Any]) -> str:
    """Return an unused key for one that clashes with an earlier key as text, such as `1` and `"1"`."""
    number = len(taken) + 1  # not from 2: that would be slow when very many collide
    while f"{text} ({number})" in taken:
        number += 1
    return f"{text} ({number})"


def _describe_unserialisable(value: Any) -> str:
    return f"<unserialisable {_type_name(value)}: {short_repr(value)}>"


def _type_name(value: Any) -> str:
    kind = _type_of(value)
    # With the methods of `type`: a metaclass may return something else, or raise.
    return replace_surrogates(
        f"{type.__dict__['__module__'].__get__(kind)}.{type.__dict__['__qualname__'].__get__(kind)}"
    )


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
