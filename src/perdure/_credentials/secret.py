"""The `Secret` class, a value that is not shown by accident, and its `{{name}}` placeholders in tool arguments."""

import os
import re
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

import msgspec

from perdure._core.values import checks
from perdure._core.values.error import ConfigError

is_a: Callable[[Any, Any], bool] = isinstance
has: Callable[[Any, str], bool] = hasattr
type_of: Callable[[Any], Any] = type
fspath: Callable[[Any], Any] = os.fspath


MIN_SECRET_LENGTH = 4
"""Minimum length of a value: shorter ones occur in ordinary text, and could not be redacted."""


class Secret:
    """A secret text that only `reveal` returns: `repr`, formatting, JSON and pickling do not show it."""

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        if not isinstance(value, str):
            message = f"Secret(<{type(value).__name__}>): give text"  # without the value, which may be a secret too
            raise ConfigError(message)
        self._value = value

    def reveal(self) -> str:
        """Return the secret text. Pass it only to the code that needs it."""
        return self._value

    def __repr__(self) -> str:
        return "Secret(…)"

    def __format__(self, spec: str) -> str:
        return format(repr(self), spec)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Secret):
            return NotImplemented
        from hmac import compare_digest  # at first use: it loads OpenSSL

        return compare_digest(self._value.encode(errors="replace"), other._value.encode(errors="replace"))

    def __hash__(self) -> int:
        return hash(self._value)

    def __copy__(self) -> "Secret":
        return self

    def __deepcopy__(self, _memo: object) -> "Secret":
        return self

    def __reduce__(self) -> NoReturn:
        message = "a Secret cannot be pickled or stored: keep its name, and ask the vault where it is needed"
        raise TypeError(message)


def check_secret_name(call: str, name: object) -> None:
    """Raise `ConfigError` unless this can be the name of a secret, which is used in a placeholder `{{name}}`."""
    if not isinstance(name, str) or NAME.fullmatch(name) is None:
        checks.raise_config_error(call, "name", name, "name a credential with letters, digits, `_`, `-` and `.`")


def check_secret_value(name: str, value: object) -> str:
    """Return the value of a secret as text; raise `ConfigError` if it is too short or not valid text.

    The error does not contain the secret.
    """
    plain = value.reveal() if isinstance(value, Secret) else value
    if not isinstance(plain, str):
        _raise_bad_value(name, f"is a {type(plain).__name__}, not text", "keep it as text")
    if len(plain.strip()) < MIN_SECRET_LENGTH:
        _raise_bad_value(
            name,
            f"has fewer than {MIN_SECRET_LENGTH} characters, which occur in ordinary text too: it could not be "
            "redacted from the results of tools",
            "use a longer value",
        )
    try:
        plain.encode()
    except UnicodeEncodeError:
        _raise_bad_value(name, "contains a lone surrogate, which is not valid text", "store it again as UTF-8")
    return plain


def _raise_bad_value(name: str, problem: str, advice: str) -> NoReturn:
    message = f"the value of the credential {name!r} {problem}; {advice}"
    raise ConfigError(message)


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
