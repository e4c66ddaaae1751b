"""Any value as JSON, and as text, that can always be stored. Above: the tool boundary, `codec.py`. Below: msgspec.

What JSON can hold is kept exactly; what it cannot hold is kept as a string that says so: `"NaN"`, `"<cycle>"`,
`"<cut: …>"`, `"<unserialisable …>"`. A tool may return anything, objects that raise when they are looked at included:
nothing that is done here raises because of them, and nothing runs for ever.
"""

import base64
import functools
import math
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, MappingView, Sequence
from collections.abc import Set as AbstractSet
from datetime import date, time, timedelta
from decimal import Decimal
from enum import Enum
from itertools import islice
from typing import Any, TypeAlias
from uuid import UUID

import msgspec

MAX_DEPTH = 64
"""Containers nested deeper than this are cut."""
MAX_VALUES = 1_000_000
"""A value that holds more values than this is cut; `TEXT_PER_VALUE` characters of text count as one more."""
TEXT_PER_VALUE = 64
REPR_LENGTH = 300
"""How much of its `repr` stands for an object that is not serialisable."""

_CYCLE = "<cycle>"
_TOO_DEEP = f"<cut: nested deeper than {MAX_DEPTH} levels>"
_TOO_MANY = f"<cut: more than {MAX_VALUES} values>"
_LARGEST_INT = 2**63 - 1

_encode = msgspec.json.Encoder().encode
_type_of: Callable[[Any], Any] = type  # the same, but no type checker draws conclusions from it


def to_text(value: Any) -> str:
    """The value as text for a model: a string as it is, anything else as compact JSON. Always encodes to UTF-8.

    `None` is `null`, as it is inside JSON. What becomes a string (bytes, a date, an enum of strings) has no quotes.
    """
    if type(value) is str:
        return value if value.isascii() else clean(value)
    plain = to_jsonable(value)
    return plain if type(plain) is str else _encode(plain).decode()


def to_jsonable(value: Any) -> Any:
    """The value as dicts, lists, strings, finite numbers, booleans and None, which any JSON encoder takes.

    Structs, dataclasses, attrs classes, pydantic models and mappings become dicts; sequences, sets and arrays lists;
    dates, decimals, UUIDs and paths strings; enums their value; bytes text if they are UTF-8, else a `data:` URL.
    """
    return _Walk().plain(value, 0)


def clean(text: str) -> str:
    """The text with U+FFFD in place of each lone surrogate, so that it can be encoded."""
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        # Not by way of UTF-16, which takes seconds for a megabyte of surrogates.
        joined = re.sub("[\ud800-\udbff][\udc00-\udfff]", _joined, text)
        return re.sub("[\ud800-\udfff]+", lambda lone: "\ufffd" * len(lone[0]), joined)
    return text


def _joined(pair: re.Match[str]) -> str:
    return pair[0].encode("utf-16-le", "surrogatepass").decode("utf-16-le")


def excerpt(value: Any, length: int = REPR_LENGTH) -> str:
    """The beginning of the value's `repr`, on one line and encodable, whatever the value does when it is asked."""
    if type(value) is str and len(value) > length:
        value = value[: length + 1]
    try:
        text = str.__str__(repr(value))
    except KeyboardInterrupt:
        raise
    except BaseException:  # noqa: BLE001 - an object may raise anything from its __repr__
        text = f"<{_kind_name(value)} whose repr fails>"
    text = clean(text[: length + 1]).replace("\n", " ")
    return text if len(text) <= length else f"{text[: length - 1]}…"


def words_of(error: BaseException) -> str:
    """What an error says, encodable, whatever it does when it is asked."""
    try:
        return clean(str.__str__(str(error)))
    except BaseException:  # noqa: BLE001 - an error may raise anything from its __str__
        return "(no readable message)"


class _Walk:
    """One conversion: how much may still be taken in, and which containers it is inside of."""

    __slots__ = ("inside", "left")

    def __init__(self) -> None:
        self.left = MAX_VALUES
        self.inside: set[int] = set()

    def plain(self, value: Any, depth: int) -> Any:
        """One value and all that is in it."""
        kind = _type_of(value)
        if kind is str:
            self.left -= len(value) // TEXT_PER_VALUE
            return value if value.isascii() else clean(value)
        if kind is bool or value is None:
            return value
        if kind is int:
            return _integer(value)
        if kind is float:
            return value if math.isfinite(value) else _not_finite(value)
        return self.opened(value, kind, depth)

    def opened(self, value: Any, kind: type, depth: int) -> Any:
        """A value with something in it, unless we are in it already or too deep."""
        if depth >= MAX_DEPTH:
            return _TOO_DEEP
        identity = id(value)
        if identity in self.inside:
            return _CYCLE
        self.inside.add(identity)
        try:
            if kind is dict:
                return self.mapping(list(value.items()), depth)
            if kind is list:
                return self.items(value, depth)
            return _converter(kind)(self, value, depth)
        except KeyboardInterrupt:
            raise
        except BaseException:  # noqa: BLE001 - a foreign object may raise anything when it is looked at
            return _unserialisable(value)
        finally:
            self.inside.discard(identity)

    def items(self, values: Iterable[Any], depth: int) -> list[Any]:
        """What a sequence holds, as far as there is room for it."""
        found: list[Any] = []
        for value in islice(values, max(self.left, 0) + 1):
            found.append(self.plain(value, depth + 1))
            if self.left < 0:
                break
        self.left -= len(found)
        if self.left < 0:
            found.append(_TOO_MANY)
        return found

    def mapping(self, pairs: Iterable[tuple[Any, Any]], depth: int) -> dict[str, Any]:
        """What a mapping holds, as far as there is room for it, with a text for every key."""
        found: dict[str, Any] = {}
        for key, value in islice(pairs, max(self.left, 0) + 1):
            is_short = type(key) is str and len(key) < TEXT_PER_VALUE and key.isascii()
            text = key if is_short else self.key(key, depth)
            if text in found:
                text = _free_key(text, found)
            found[text] = self.plain(value, depth + 1)
            if self.left < 0:
                break
        self.left -= len(found)
        if self.left < 0:
            found["…"] = _TOO_MANY
        return found

    def key(self, key: Any, depth: int) -> str:
        plain = self.plain(key, depth + 1)
        return plain if type(plain) is str else _encode(plain).decode()


_Converter: TypeAlias = Callable[[_Walk, Any, int], Any]


def _mapping(walk: _Walk, value: Mapping[Any, Any], depth: int) -> Any:
    return walk.mapping(_pairs(value), depth)


# The built-in ways to look into a dict, a list and a tuple: a subclass with an endless __iter__ cannot keep us.
_Dict: Any = dict
_List: Any = list
_Tuple: Any = tuple


def _dict(walk: _Walk, value: dict[Any, Any], depth: int) -> Any:
    return walk.mapping(list(_Dict.items(value)), depth)


def _list(walk: _Walk, value: list[Any], depth: int) -> Any:
    return walk.items(_List.__iter__(value), depth)


def _tuple(walk: _Walk, value: tuple[Any, ...], depth: int) -> Any:
    return walk.items(_Tuple.__iter__(value), depth)


def _pairs(value: Mapping[Any, Any]) -> Iterator[tuple[Any, Any]]:
    for key in value:
        yield key, value[key]


def _sequence(walk: _Walk, value: Iterable[Any], depth: int) -> Any:
    return walk.items(value, depth)


def _set(walk: _Walk, value: Iterable[Any], depth: int) -> Any:
    # Sets have no order, and one that differs from run to run would change hashes and caches.
    return sorted(walk.items(value, depth), key=_encode)


def _struct(walk: _Walk, value: msgspec.Struct, depth: int) -> Any:
    config = value.__struct_config__
    names = zip(value.__struct_encode_fields__, value.__struct_fields__, strict=True)
    fields = {encoded: getattr(value, name) for encoded, name in names}
    present = {name: field for name, field in fields.items() if field is not msgspec.UNSET}
    tag = {} if config.tag_field is None else {config.tag_field: config.tag}
    if config.array_like:
        return walk.items([*tag.values(), *fields.values()], depth)
    return walk.mapping({**tag, **present}.items(), depth)


def _fields(walk: _Walk, value: Any, depth: int) -> Any:
    names = getattr(value, "__dataclass_fields__", None) or [field.name for field in value.__attrs_attrs__]
    return walk.mapping([(name, getattr(value, name)) for name in names], depth)


def _text(walk: _Walk, value: str, depth: int) -> Any:
    return walk.plain(str.__str__(value), depth)


def _number(walk: _Walk, value: float, depth: int) -> Any:
    # By way of the built-in methods, so that a subclass cannot answer something else.
    return walk.plain(int.__pos__(value) if isinstance(value, int) else float.__pos__(value), depth)


def _bytes(walk: _Walk, value: bytes | bytearray | memoryview | msgspec.Raw, depth: int) -> Any:
    data = bytes(value)
    try:
        text = data.decode()
    except UnicodeDecodeError:
        text = f"data:;base64,{base64.b64encode(data).decode()}"
    return walk.plain(text, depth)


def _enum(walk: _Walk, value: Enum, depth: int) -> Any:
    return walk.plain(value.value, depth + 1)


def _moment(walk: _Walk, value: date | time, depth: int) -> Any:
    return walk.plain(value.isoformat(), depth + 1)


def _written(walk: _Walk, value: Decimal | UUID, depth: int) -> Any:
    return walk.plain(str(value), depth + 1)


def _duration(walk: _Walk, value: timedelta, depth: int) -> Any:
    return walk.plain(msgspec.to_builtins(value), depth + 1)


def _path(walk: _Walk, value: os.PathLike[Any], depth: int) -> Any:
    return walk.plain(os.fspath(value), depth + 1)


def _dumped(walk: _Walk, value: Any, depth: int) -> Any:
    return walk.plain(value.model_dump(mode="json"), depth + 1)


def _listed(walk: _Walk, value: Any, depth: int) -> Any:
    return walk.plain(value.tolist(), depth + 1)


def _unknown(_walk: _Walk, value: Any, _depth: int) -> Any:
    return _unserialisable(value)


_FAMILIES: tuple[tuple[type | tuple[type, ...], _Converter], ...] = (
    (Enum, _enum),
    (str, _text),
    ((int, float), _number),
    ((bytes, bytearray, memoryview, msgspec.Raw), _bytes),
    (msgspec.Struct, _struct),
    (dict, _dict),
    (list, _list),
    (tuple, _tuple),
    (Mapping, _mapping),
    ((Sequence, MappingView), _sequence),
    (AbstractSet, _set),
    ((date, time), _moment),
    ((Decimal, UUID), _written),
    (timedelta, _duration),
    (os.PathLike, _path),
)
"""The first family that a type belongs to says how it is converted."""

_SIGNS: tuple[tuple[str, _Converter], ...] = (
    ("model_dump", _dumped),
    ("__dataclass_fields__", _fields),
    ("__attrs_attrs__", _fields),
    ("tolist", _listed),
)
"""Classes of libraries that we do not import are known by what they have: pydantic, dataclasses, attrs, arrays."""


@functools.lru_cache(maxsize=512)
def _converter(kind: type) -> _Converter:
    for family, converter in _FAMILIES:
        if issubclass(kind, family):
            return converter
    for sign, converter in _SIGNS:
        if hasattr(kind, sign):
            return converter
    return _unknown


def _integer(value: int) -> int | str:
    if -_LARGEST_INT <= value <= _LARGEST_INT:
        return value
    try:
        return str(value)
    except ValueError:  # more digits than Python agrees to write in decimal
        return hex(value)


def _not_finite(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    return "Infinity" if value > 0 else "-Infinity"


def _free_key(text: str, taken: Mapping[str, Any]) -> str:
    """Two keys that are the same as text: `1` and `"1"`. Both are kept."""
    number = len(taken) + 1  # and not from 2 on: that would be slow where very many collide
    while f"{text} ({number})" in taken:
        number += 1
    return f"{text} ({number})"


def _unserialisable(value: Any) -> str:
    return f"<unserialisable {_kind_name(value)}: {excerpt(value)}>"


def _kind_name(value: Any) -> str:
    kind = _type_of(value)
    # As `type` itself would answer: a metaclass may answer something else, or raise.
    return clean(f"{type.__dict__['__module__'].__get__(kind)}.{type.__dict__['__qualname__'].__get__(kind)}")
