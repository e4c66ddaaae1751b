"""Placeholders and the values in their place. Above: `wrapper.py`. Below: nothing of ours.

A model writes `{{github_token}}` where a credential belongs. Its arguments have been validated and converted when they
come here, so a placeholder may stand in a list, a dict, a Struct, a dataclass, a pydantic model, a path: what is made
of them is of the same type, and whatever holds no placeholder is handed on as it is. Keys are not looked at.
"""

import os
import re
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from .look import fspath, has, is_a, type_of

NAME = re.compile(r"[A-Za-z0-9_.-]+")
"""What a credential may be called."""
PLACEHOLDER = re.compile(r"\{\{\s*([A-Za-z0-9_.-]+)\s*\}\}")
_IN_URL = re.compile(r"(?:\{\{|%7[Bb]%7[Bb])(?:\s|%20)*([A-Za-z0-9_.-]+)(?:\s|%20)*(?:\}\}|%7[Dd]%7[Dd])")
"""The same in an address that has been parsed, where braces may have been encoded."""

_COLLECTIONS: frozenset[Any] = frozenset({list, tuple, set, frozenset})
_WITHOUT_TEXT: frozenset[Any] = frozenset({int, float, bool, bytes, type(None)})

Change = Callable[[str, re.Pattern[str]], str]


def placeholder(name: str) -> str:
    """What stands for a credential wherever its value must not be seen."""
    return f"{{{{{name}}}}}"


def names_in(arguments: Any) -> list[str]:
    """The credentials that are asked for, each once, in order."""
    found: dict[str, None] = {}

    def note(text: str, pattern: re.Pattern[str]) -> str:
        found.update(dict.fromkeys(pattern.findall(text)))
        return text

    _changed(arguments, note)
    return list(found)


def substituted(arguments: Any, values: Mapping[str, str]) -> Any:
    """The arguments with values in the place of placeholders. Values are not looked into for more of them."""

    def fill(text: str, pattern: re.Pattern[str]) -> str:
        if pattern.search(text) is None:
            return text
        return pattern.sub(lambda found: values.get(found[1], found[0]), text)

    return _changed(arguments, fill)


def _changed(value: Any, change: Change) -> Any:
    """The value with `change` made to each text in it; the very same value when nothing changes."""
    kind = type_of(value)
    if kind is str:
        return change(value, PLACEHOLDER)
    if kind is dict:
        pairs = [(key, each, _changed(each, change)) for key, each in value.items()]
        return value if all(old is new for _, old, new in pairs) else {key: new for key, _, new in pairs}
    if kind in _COLLECTIONS:
        items = [(each, _changed(each, change)) for each in value]
        return value if all(old is new for old, new in items) else kind([new for _, new in items])
    if kind in _WITHOUT_TEXT:
        return value
    return _changed_object(value, change)


def _changed_object(value: Any, change: Change) -> Any:
    """An object of a class that the parameters of a tool may be of. What we do not know is left as it is."""
    if is_a(value, msgspec.Struct):
        fields = {name: getattr(value, name) for name in value.__struct_fields__}
        return _replaced(value, fields, change, msgspec.structs.replace)
    if has(value, "__dataclass_fields__") and not is_a(value, type):
        import dataclasses

        fields = {each.name: getattr(value, each.name) for each in dataclasses.fields(value) if each.init}
        return _replaced(value, fields, change, dataclasses.replace)
    if has(value, "__attrs_attrs__"):
        fields = {each.name: getattr(value, each.name) for each in value.__attrs_attrs__}
        return _replaced(value, fields, change, _copied)
    if has(value, "model_copy"):
        fields = dict(value)
        return _replaced(value, fields, change, _remodelled)
    return _changed_text(value, change)


def _replaced(value: Any, fields: Mapping[str, Any], change: Change, replace: Callable[..., Any]) -> Any:
    new = {name: _changed(each, change) for name, each in fields.items()}
    different = {name: each for name, each in new.items() if each is not fields[name]}
    return replace(value, **different) if different else value


def _copied(value: Any, **fields: Any) -> Any:
    import copy

    new = copy.copy(value)
    for name, each in fields.items():
        object.__setattr__(new, name, each)
    return new


def _remodelled(value: Any, **fields: Any) -> Any:
    return value.model_copy(update=fields)


def _changed_text(value: Any, change: Change) -> Any:
    """What is made of a text, and can be made of another one: a named tuple of texts, a path, a masked text, a URL."""
    kind = type_of(value)
    if is_a(value, tuple) and has(value, "_fields"):
        items = [_changed(each, change) for each in value]
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
