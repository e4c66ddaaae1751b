"""The arguments of a tool call as they are checked: what its function gets, with defaults, as JSON values.

A model may leave arguments out, or write `"500"` for 500. Hooks, rules, people and the hash that an approval is bound
to see the values that the function works with: converted, with the defaults of parameters and of nested models. The
reply in the log keeps what the model wrote, since providers are sent it again.
"""

import re
from collections.abc import Callable, Mapping
from copy import deepcopy
from typing import Any

import msgspec

from perdure._core.schema.problems import Invalid
from perdure._core.values.jsonable import to_jsonable, to_text

from .tool import Arguments, Tool

MAX_LOGGED_LENGTH = 4_000
"""The longest value, as JSON, that the intent of a call repeats in the log."""
_MAX_DEPTH = 150  # deeper than JSON that is accepted: only objects of the program that contain themselves are
_SCALARS: frozenset[Any] = frozenset({str, int, float, bool, type(None)})
_NUMBERS: frozenset[Any] = frozenset({int, float, bool, type(None)})
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")
_HAS_NO_JSON = re.compile("<unserialisable |<cut: |<cycle>")
_ABSENT: Any = object()
_type_of: Callable[[Any], Any] = type  # the same function, but type checkers do not narrow by it


def build_checked_arguments(tool: Tool[..., Any], arguments: Arguments, parsed: Arguments) -> Arguments:
    """Return validated arguments as they are checked: with the defaults of absent ones, as JSON values.

    `arguments` are those that were written. They are shown where a value has no JSON form, such as a masked secret.
    """
    complete = tool.parameters.add_defaults(parsed)
    return {name: _to_plain(value, arguments.get(name, _ABSENT), 0) for name, value in complete.items()}


def build_hook_arguments(tool: Tool[..., Any], arguments: Arguments) -> Arguments:
    """Return the arguments that a `prepare` hook sees, before the call is validated: invalid ones are not converted."""
    try:
        return build_checked_arguments(tool, arguments, tool.parameters.parse(arguments))
    except Invalid:
        return build_checked_arguments(tool, arguments, deepcopy(arguments))


def take_changed_arguments(arguments: Arguments, shown: Arguments, changed: Arguments) -> Arguments:
    """Return the arguments after a hook that was shown `shown`: what it left alone stays as the model wrote it."""
    left_alone = {name for name, value in changed.items() if name in shown and shown[name] == value}
    return {
        name: arguments[name] if name in left_alone else value
        for name, value in changed.items()
        if name not in left_alone or name in arguments
    }


def has_containers(checked: Arguments) -> bool:
    """Return True if some checked argument is more than a text, a number or the like."""
    return any(type(value) is dict or type(value) is list for value in checked.values())


def describe_adjusted_arguments(arguments: Arguments, checked: Arguments) -> str:
    """Return the checked arguments that are not as the model wrote them, as JSON; empty if there are none.

    They are defaults, and values that were converted.
    """
    adjusted = _list_adjusted_arguments(arguments, checked)
    return to_text(adjusted) if adjusted else ""


def _list_adjusted_arguments(arguments: Arguments, checked: Arguments) -> Arguments:
    adjusted: Arguments = {}
    for name, value in checked.items():
        written = arguments.get(name, _ABSENT)
        if written == value:
            continue
        if _type_of(written) is dict and _type_of(value) is dict:
            adjusted[name] = _list_adjusted_arguments(written, value)
        elif _type_of(value) in _NUMBERS or len(text := to_text(value)) <= MAX_LOGGED_LENGTH:
            adjusted[name] = value
        else:
            adjusted[name] = f"<{len(text)} characters>"
    return adjusted


def _to_plain(value: Any, written: Any, depth: int) -> Any:
    """Convert a value to JSON values, with every field of a model, even one that its own JSON would leave out.

    Unlike `to_jsonable` it cuts nothing that a model can write: different arguments would look the same.
    """
    kind: Any = _type_of(value)
    if kind in _SCALARS:
        return value
    if depth < _MAX_DEPTH:
        if kind is list or kind is tuple:
            items = written if _type_of(written) is list and len(written) == len(value) else [_ABSENT] * len(value)
            return [_to_plain(each, item, depth + 1) for each, item in zip(value, items, strict=True)]
        try:
            fields = value if kind is dict else _list_fields(value)
        except Exception:  # noqa: BLE001 - an object may raise anything when it is inspected
            fields = None
        if fields is not None:
            known: Arguments = written if _type_of(written) is dict else {}
            return {
                name if _type_of(name) is str else to_text(name): _to_plain(each, known.get(name, _ABSENT), depth + 1)
                for name, each in fields.items()
                if each is not msgspec.UNSET
            }
    plain = to_jsonable(value)
    if written is _ABSENT:  # an address would make the same call differ in each process
        return _ADDRESS.sub("", plain) if type(plain) is str else plain
    return written if _HAS_NO_JSON.search(to_text(plain)) else plain


def _list_fields(value: Any) -> Mapping[str, Any] | None:
    """Return the fields of a struct, a dataclass or a model of attrs or pydantic; `None` for any other value."""
    kind: Any = _type_of(value)
    if isinstance(value, msgspec.Struct):
        config = value.__struct_config__
        tag = {} if config.tag_field is None else {config.tag_field: config.tag}
        names = zip(value.__struct_encode_fields__, value.__struct_fields__, strict=True)
        return {**tag, **{encoded: getattr(value, name) for encoded, name in names}}
    if hasattr(kind, "__pydantic_fields__"):
        return _list_pydantic_fields(value)
    if hasattr(kind, "__dataclass_fields__"):
        return {name: getattr(value, name, msgspec.UNSET) for name in kind.__dataclass_fields__}
    if hasattr(kind, "__attrs_attrs__"):
        return {each.name: getattr(value, each.name, msgspec.UNSET) for each in kind.__attrs_attrs__}
    return None


def _list_pydantic_fields(value: Any) -> Mapping[str, Any]:
    """Return the fields of a pydantic model, and what was given beside them; neither hides the other.

    What was given beside them may have the name of a field, if the field is given by another name (an alias).
    """
    fields: dict[str, Any] = value.__dict__
    more: dict[str, Any] = getattr(value, "__pydantic_extra__", None) or {}
    if fields.keys().isdisjoint(more):
        return {**fields, **more}
    return {**fields, "__pydantic_extra__": more}
