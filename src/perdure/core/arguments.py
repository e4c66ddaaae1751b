"""The arguments of a call as a model wrote them: from text to a dict, and the hash that a permission is bound to.

Above: the loop, `schema.py`. Below: msgspec. What is wrong with the text is told as `Invalid`, never as anything else:
it may be truncated, ambiguous, far too long or far too deep.
"""

import functools
import re
from collections.abc import Callable
from typing import Any

import msgspec

from .plain import excerpt, to_jsonable
from .problem import Invalid, Problem

MAX_LENGTH = 8 * 2**20
"""Arguments may be this long, in characters: 8 MiB."""
MAX_DEPTH = 100
"""Arguments may be nested this deep."""

_EXCERPT_LENGTH = 40
_CONTAINERS = frozenset({dict, list})
_KINDS: dict[Any, str] = {list: "an array", str: "a string", bool: "a boolean", type(None): "null"}

_type_of: Callable[[Any], Any] = type  # the same, but no type checker draws conclusions from it
_decode = msgspec.json.Decoder().decode
_encode_sorted = msgspec.json.Encoder(order="sorted").encode


def parse_object(raw: str) -> dict[str, Any]:
    """The arguments as a dict; none at all for an empty text. Raises `Invalid` if they are not one JSON object."""
    if len(raw) > MAX_LENGTH:
        raise _invalid(f"the arguments have {len(raw)} characters, and at most {MAX_LENGTH} (8 MiB) are taken")
    try:
        value: dict[str, Any] = _decode(raw)
    except Exception as error:  # noqa: BLE001 - several kinds, and a model can cause all of them
        if not raw.strip():
            return {}
        raise _invalid(_what_is_wrong(raw, error)) from None
    if _type_of(value) is not dict:
        kind = _KINDS.get(_type_of(value), "a number")
        raise _invalid(f'the arguments must be one JSON object such as {{"name": "value"}}, got {kind}')
    # With as many colons as keys at the top, there is no key below it, and none is there twice.
    if raw.count(":") != len(value) or raw.count("[") >= MAX_DEPTH:
        _check_tree(raw, value)
    return value


def arguments_hash(arguments: dict[str, Any]) -> str:
    """A digest of the arguments: the same for the same arguments, whatever the order of their keys."""
    try:
        text = _encode_sorted(arguments)
    except Exception:  # noqa: BLE001 - whatever JSON cannot hold; a hook may have put it there
        text = _exact(arguments)
    else:
        if b"null" in text:  # which also stands for NaN
            text = _exact(arguments)
    from hashlib import blake2b  # at first use: only calls that need permission have a hash

    return blake2b(text, digest_size=16).hexdigest()  # four times as quick as the others for so short a text


def _exact(arguments: dict[str, Any]) -> bytes:
    """Tells NaN from null and large numbers from text, which the quick way does not."""
    import json

    try:
        return json.dumps(arguments, sort_keys=True, separators=(",", ":")).encode()
    except (TypeError, ValueError, RecursionError):
        return _encode_sorted(to_jsonable(arguments))


def _check_tree(raw: str, value: dict[str, Any]) -> None:
    """Refuse what is too deep, and keys that were there twice, of which msgspec keeps the last."""
    keys = 0
    level: list[Any] = [value]
    for _ in range(MAX_DEPTH):
        below: list[Any] = []
        for container in level:
            if _type_of(container) is dict:
                keys += len(container)
                container = container.values()  # noqa: PLW2901 - its keys are counted, its values looked into
            below += [each for each in container if _type_of(each) in _CONTAINERS]
        level = below
        if not level:
            break
    else:
        raise _invalid(_too_deep())
    if raw.count(":") != keys:  # a colon more may also stand in some text
        _duplicate_finder().decode(raw)


@functools.cache
def _duplicate_finder() -> Any:
    import json

    def refuse_duplicates(pairs: list[tuple[str, Any]]) -> None:
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                message = f"the key {excerpt(key, _EXCERPT_LENGTH)} is there twice; give each key once"
                raise _invalid(message)
            seen.add(key)

    return json.JSONDecoder(object_pairs_hook=refuse_duplicates, parse_int=len, parse_float=len)


def _what_is_wrong(raw: str, error: Exception) -> str:
    if isinstance(error, RecursionError):
        return _too_deep()
    if isinstance(error, UnicodeEncodeError):
        return f"the arguments are not valid text: a lone surrogate {_near(raw, error.start)}"
    if lone := re.search(_LONE_SURROGATE, raw):
        return f"the arguments are not valid JSON: a lone surrogate {_near(raw, lone.start())}"
    text = str(error)
    if "truncated" in text:
        return f"the arguments end too early: incomplete JSON {_near(raw, len(raw))}; send the whole object again"
    detail = text.removeprefix("JSON is malformed: ").partition(" - at `")[0]
    detail, _, byte = detail.partition(" (byte ")
    if not byte:
        return f"the arguments are not valid JSON: {detail[:1].lower()}{detail[1:]}"
    place = len(raw.encode()[: int(byte.rstrip(")"))].decode(errors="ignore"))
    return f"the arguments are not valid JSON: {detail} {_near(raw, place)}"


_LONE_SURROGATE = (
    r"(?<!\\)(?:\\\\)*"  # not where the backslash is itself escaped
    r"(?:\\u[dD][89abAB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F]|\\?u?[dD]?\Z)"  # a first half without a second, text going on
    r"|(?<!\\u[dD][89abAB][0-9a-fA-F]{2})\\u[dD][c-fC-F][0-9a-fA-F]{2})"  # a second half without a first
)


def _near(raw: str, place: int) -> str:
    start = max(0, place - _EXCERPT_LENGTH // 2)
    return f"at character {place}, near {excerpt(raw[start : start + _EXCERPT_LENGTH], 2 * _EXCERPT_LENGTH)}"


def _too_deep() -> str:
    return f"the arguments are nested more than {MAX_DEPTH} levels deep"


def _invalid(message: str) -> Invalid:
    return Invalid([Problem("", message)])
