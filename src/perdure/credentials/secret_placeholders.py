"""Replace `{{name}}` placeholders in tool arguments by the secrets of these names.

A model writes `{{github_token}}` where a credential belongs. The arguments are validated and converted already, so a
placeholder may be in a list, a dict, a Struct, a dataclass, a pydantic model or a path: the result has the same type,
and values without placeholders are returned unchanged. Keys are not replaced.
"""

import os
import re
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from .isinstance_without_narrowing import fspath, has, is_a, type_of

NAME = re.compile(r"[A-Za-z0-9_.-]+")
"""Pattern of valid credential names."""
PLACEHOLDER = re.compile(r"\{\{\s*([A-Za-z0-9_.-]+)\s*\}\}")
_IN_URL = re.compile(r"(?:\{\{|%7[Bb]%7[Bb])(?:\s|%20)*([A-Za-z0-9_.-]+)(?:\s|%20)*(?:\}\}|%7[Dd]%7[Dd])")
"""Placeholder in a parsed URL, where braces may be percent-encoded."""

_COLLECTIONS: frozenset[Any] = frozenset({list, tuple, set, frozenset})
_WITHOUT_TEXT: frozenset[Any] = frozenset({int, float, bool, bytes, type(None)})

Change = Callable[[str, re.Pattern[str]], str]


def build_placeholder(name: str) -> str:
    """Return the placeholder of a credential, `{{name}}`."""
    return f"{{{{{name}}}}}"


def find_placeholder_names(arguments: Any) -> list[str]:
    """Return the names in the `{{name}}` placeholders of the arguments, without duplicates, in order."""
    found: dict[str, None] = {}

    def note(text: str, pattern: re.Pattern[str]) -> str:
        found.update(dict.fromkeys(pattern.findall(text)))
        return text

    _change_texts(arguments, note)
    return list(found)


def substitute_placeholders(arguments: Any, values: Mapping[str, str]) -> Any:
    """Return the arguments with each `{{name}}` replaced by the value of that name; inserted values are not changed."""

    def fill(text: str, pattern: re.Pattern[str]) -> str:
        if pattern.search(text) is None:
            return text
        return pattern.sub(lambda found: values.get(found[1], found[0]), text)

    return _change_texts(arguments, fill)


def _change_texts(value: Any, change: Change) -> Any:
    """Apply `change` to each text inside a value; return the same object if nothing changes."""
    kind = type_of(value)
    if kind is str:
        return change(value, PLACEHOLDER)
    if kind is dict:
        pairs = [(key, each, _change_texts(each, change)) for key, each in value.items()]
        return value if all(old is new for _, old, new in pairs) else {key: new for key, _, new in pairs}
    if kind in _COLLECTIONS:
        items = [(each, _change_texts(each, change)) for each in value]
        return value if all(old is new for old, new in items) else kind([new for _, new in items])
    if kind in _WITHOUT_TEXT:
        return value
    return _change_object(value, change)


def _change_object(value: Any, change: Change) -> Any:
    """Apply `change` to the fields of a Struct, dataclass, attrs or pydantic object; other objects are unchanged."""
    if is_a(value, msgspec.Struct):
        fields = {name: getattr(value, name) for name in value.__struct_fields__}
        return _replace_fields(value, fields, change, msgspec.structs.replace)
    if has(value, "__dataclass_fields__") and not is_a(value, type):
        import dataclasses

        fields = {each.name: getattr(value, each.name) for each in dataclasses.fields(value) if each.init}
        return _replace_fields(value, fields, change, dataclasses.replace)
    if has(value, "__attrs_attrs__"):
        fields = {each.name: getattr(value, each.name) for each in value.__attrs_attrs__}
        return _replace_fields(value, fields, change, _copy_with)
    if has(value, "model_copy"):
        fields = dict(value)
        return _replace_fields(value, fields, change, _copy_pydantic_with)
    return _change_text_like(value, change)


def _replace_fields(value: Any, fields: Mapping[str, Any], change: Change, replace: Callable[..., Any]) -> Any:
    new = {name: _change_texts(each, change) for name, each in fields.items()}
    different = {name: each for name, each in new.items() if each is not fields[name]}
    return replace(value, **different) if different else value


def _copy_with(value: Any, **fields: Any) -> Any:
    import copy

    new = copy.copy(value)
    for name, each in fields.items():
        object.__setattr__(new, name, each)
    return new


def _copy_pydantic_with(value: Any, **fields: Any) -> Any:
    return value.model_copy(update=fields)


def _change_text_like(value: Any, change: Change) -> Any:
    """Apply `change` to an object made from text: a named tuple, a path, a masked text, a URL."""
    kind = type_of(value)
    if is_a(value, tuple) and has(value, "_fields"):
        items = [_change_texts(each, change) for each in value]
        return kind(*items) if any(new is not old for new, old in zip(items, value, strict=True)) else value
    text: Any
    if is_a(value, os.PathLike):
        text, pattern = fspath(value), PLACEHOLDER
    elif has(value, "get_secret_value"):
        text, pattern = value.get_secret_value(), PLACEHOLDER
    elif kind.__module__.partition(".")[0].startswith("pydantic"):
        text, pattern = str(value), _IN_URL
    else:
        return value
    new: Any = change(text, pattern) if is_a(text, str) else text
    return value if new == text else kind(new)
