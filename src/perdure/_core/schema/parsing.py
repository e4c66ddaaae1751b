"""Parsing of a tool call's arguments from the model's JSON text to a dict, and hashes of them.

A permission is bound to the hash.

Any problem with the text is raised as `Invalid`, and never as another error: it may be truncated, ambiguous, far too
long or far too deep.
"""

import functools
import re
from collections.abc import Callable
from typing import Any

import msgspec
from msgspec import Struct

from perdure._core.values.jsonable import short_repr, to_jsonable

from .problems import Invalid, Problem

MAX_LENGTH = 8 * 2**20
"""The longest text of arguments that is parsed, in characters: 8 MiB."""
MAX_DEPTH = 100
"""The deepest nesting of arguments that is accepted."""

_EXCERPT_LENGTH = 40
_CONTAINERS = frozenset({dict, list})
_KINDS: dict[Any, str] = {list: "an array", str: "a string", bool: "a boolean", type(None): "null"}

_type_of: Callable[[Any], Any] = type  # the same function, but type checkers do not narrow by it
_decode = msgspec.json.Decoder().decode
_encode = msgspec.json.Encoder().encode
_encode_sorted = msgspec.json.Encoder(order="sorted").encode


def parse_arguments(raw: str) -> dict[str, Any]:
    """Parse the JSON text of a tool call's arguments into a dict. Raises `Invalid` unless it is an object or empty."""
    if len(raw) > MAX_LENGTH:
        raise _make_invalid(f"the arguments have {len(raw)} characters, and at most {MAX_LENGTH} (8 MiB) are allowed")
    try:
        value: dict[str, Any] = _decode(raw)
    except Exception as error:  # noqa: BLE001 - several kinds, and a model can cause all of them
        if not raw.strip():
            return {}
        raise _make_invalid(_describe_parse_error(raw, error)) from None
    if _type_of(value) is not dict:
        kind = _KINDS.get(_type_of(value), "a number")
        raise _make_invalid(f'the arguments must be one JSON object such as {{"name": "value"}}, got {kind}')
    # With as many colons as keys at the top level, there are no nested keys, and no duplicates.
    if raw.count(":") != len(value) or raw.count("[") >= MAX_DEPTH:
        _check_tree(raw, value)
    return value


class FrozenArguments(Struct, frozen=True):
    """The arguments of a tool call as bytes, so that what a person approved is exactly what runs.

    They are shown, hashed, and decoded again for the call.
    """

    data: bytes
    is_plain: bool
    """True if the usual decoder reads them; False for numbers that it would change."""

    def thaw(self) -> dict[str, Any]:
        """Decode the arguments of the call to a new dict."""
        if self.is_plain:
            plain: dict[str, Any] = _decode(self.data)
            return plain
        import json

        exact: dict[str, Any] = json.loads(self.data)
        return exact


def encode_canonical_arguments(arguments: dict[str, Any]) -> FrozenArguments:
    """Encode the arguments of a tool call as JSON bytes, with sorted keys; values that JSON cannot express become
    text.
    """
    try:
        data = _encode(arguments)
    except Exception:  # noqa: BLE001 - a value that JSON cannot express; a hook may have put it there
        data = b"null"
    if b"null" not in data:  # which is also how NaN is encoded
        return FrozenArguments(data, is_plain=True)
    import json

    try:
        return FrozenArguments(json.dumps(arguments).encode(), is_plain=False)
    except (TypeError, ValueError, RecursionError):
        return FrozenArguments(_encode(to_jsonable(arguments)), is_plain=True)


def arguments_hash(arguments: dict[str, Any]) -> str:
    """Return a hash of a tool call's arguments that does not depend on the order of their keys."""
    try:
        text = _encode_sorted(arguments)
    except Exception:  # noqa: BLE001 - a value that JSON cannot express; a hook may have put it there
        text = _encode_exactly(arguments)
    else:
        if b"null" in text:  # which is also how NaN is encoded
            text = _encode_exactly(arguments)
    from hashlib import blake2b  # at first use: only calls that need permission have a hash

    return blake2b(text, digest_size=16).hexdigest()  # four times as fast as the others for so short a text


def _encode_exactly(arguments: dict[str, Any]) -> bytes:
    """Encode arguments for hashing, so that NaN differs from null and large numbers differ from text."""
    import json

    try:
        return json.dumps(arguments, sort_keys=True, separators=(",", ":")).encode()
    except (TypeError, ValueError, RecursionError):
        return _encode_sorted(to_jsonable(arguments))


def _check_tree(raw: str, value: dict[str, Any]) -> None:
    """Raise `Invalid` for arguments that are nested too deep or have duplicate keys (msgspec keeps the last)."""
    keys = 0
    level: list[Any] = [value]
    for _ in range(MAX_DEPTH):
        below: list[Any] = []
        for container in level:
            if _type_of(container) is dict:
                keys += len(container)
                container = container.values()  # noqa: PLW2901 - its keys are counted, its values visited
            below += [each for each in container if _type_of(each) in _CONTAINERS]
        level = below
        if not level:
            break
    else:
        raise _make_invalid(_too_deep_message())
    if raw.count(":") != keys:  # a colon may also be inside a string
        _duplicate_finder().decode(raw)


@functools.cache
def _duplicate_finder() -> Any:
    import json

    def refuse_duplicates(pairs: list[tuple[str, Any]]) -> None:
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                message = f"the key {short_repr(key, _EXCERPT_LENGTH)} appears twice; give each key once"
                raise _make_invalid(message)
            seen.add(key)

    return json.JSONDecoder(object_pairs_hook=refuse_duplicates, parse_int=len, parse_float=len)


def _describe_parse_error(raw: str, error: Exception) -> str:
    if isinstance(error, RecursionError):
        return _too_deep_message()
    if isinstance(error, UnicodeEncodeError):
        return f"the arguments are not valid text: a lone surrogate {_format_position(raw, error.start)}"
    if lone := re.search(_LONE_SURROGATE, raw):
        return f"the arguments are not valid JSON: a lone surrogate {_format_position(raw, lone.start())}"
    text = str(error)
    if "truncated" in text:
        end = _format_position(raw, len(raw))
        return f"the arguments end too early: incomplete JSON {end}; send the whole object again"
    detail = text.removeprefix("JSON is malformed: ").partition(" - at `")[0]
    detail, _, byte = detail.partition(" (byte ")
    if not byte:
        return f"the arguments are not valid JSON: {detail[:1].lower()}{detail[1:]}"
    place = len(raw.encode()[: int(byte.rstrip(")"))].decode(errors="ignore"))
    return f"the arguments are not valid JSON: {detail} {_format_position(raw, place)}"


_LONE_SURROGATE = (
    r"(?<!\\)(?:\\\\)*"  # not where the backslash is itself escaped
    r"(?:\\u[dD][89abAB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F]|\\?u?[dD]?\Z)"  # a high surrogate without a low one
    r"|(?<!\\u[dD][89abAB][0-9a-fA-F]{2})\\u[dD][c-fC-F][0-9a-fA-F]{2})"  # a low surrogate without a high one
)


def _format_position(raw: str, place: int) -> str:
    start = max(0, place - _EXCERPT_LENGTH // 2)
    return f"at character {place}, near {short_repr(raw[start : start + _EXCERPT_LENGTH], 2 * _EXCERPT_LENGTH)}"


def _too_deep_message() -> str:
    return f"the arguments are nested more than {MAX_DEPTH} levels deep"


def _make_invalid(message: str) -> Invalid:
    return Invalid([Problem("", message)])
