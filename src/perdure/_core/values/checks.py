"""Checks of the arguments and options of public functions: each raises `ConfigError` for a wrong one."""

import functools
import inspect
from collections.abc import Collection, Iterable
from types import FunctionType
from typing import TYPE_CHECKING, Any, NoReturn, cast

from msgspec import NODEFAULT, StructMeta

from .error import ConfigError
from .jsonable import short_repr

if TYPE_CHECKING:
    from inspect import Signature


def raise_config_error(call: str, name: str, value: object, advice: str) -> NoReturn:
    """Raise a `ConfigError` that names the call, the parameter and its value, and gives advice."""
    message = f"{call}({name}={short_repr(value)}): {advice}"
    raise ConfigError(message)


def suggest_name(name: str, known: Iterable[str]) -> str:
    """Return `did you mean …? ` with the known name that is most like a misspelt one; empty if none is like it."""
    import difflib  # at first use: only errors need it

    spelled = {each.lower(): each for each in known}
    near = difflib.get_close_matches(name.lower(), spelled, n=1)
    return f"did you mean {spelled[near[0]]!r}? " if near else ""


def require_text(call: str, name: str, value: object, *, non_empty: bool = False) -> None:
    """Raise `ConfigError` unless the value is text; with `non_empty`, also if it is blank."""
    if not isinstance(value, str) or (non_empty and not value.strip()):
        raise_config_error(call, name, value, "give non-empty text" if non_empty else "give text")


def require_one_line(call: str, name: str, value: str) -> None:
    """Raise `ConfigError` if a name or id has line breaks or other control characters, which garble lists and logs."""
    if has_control_characters(value):
        raise_config_error(call, name, value, "give text without line breaks and other control characters")


def has_control_characters(text: str) -> bool:
    """Return True if a text has line breaks or other control characters."""
    if text.isprintable():
        return False
    import unicodedata  # at first use: nearly all names are printable

    return any(unicodedata.category(each) in {"Cc", "Zl", "Zp"} for each in text)


def require_bool(call: str, name: str, value: object) -> None:
    """Raise `ConfigError` unless the value is True or False."""
    if not isinstance(value, bool):
        raise_config_error(call, name, value, "give True or False")


def require_int(call: str, name: str, value: object, minimum: int = 0) -> None:
    """Raise `ConfigError` unless the value is an integer of at least `minimum`."""
    if not isinstance(value, int) or isinstance(value, bool) or value < minimum:
        raise_config_error(call, name, value, f"give a whole number, {minimum} or more")


def require_number(call: str, name: str, value: object, maximum: float = float("inf")) -> None:
    """Raise `ConfigError` unless the value is a number from 0 to `maximum`."""
    if not isinstance(value, (int, float)) or isinstance(value, bool) or not 0 <= value <= maximum:
        raise_config_error(
            call, name, value, f"give a number from 0 {'on' if maximum == float('inf') else f'to {maximum:g}'}"
        )


def require_one_of(call: str, name: str, value: object, allowed: Collection[object]) -> None:
    """Raise `ConfigError` unless the value is one of `allowed`."""
    if value not in allowed:
        raise_config_error(call, name, value, f"use {', '.join(map(repr, allowed))}")


def require_callable(call: str, name: str, value: object) -> None:
    """Raise `ConfigError` unless the value is callable."""
    if not callable(value):
        raise_config_error(call, name, value, "give a function")


def require_callable_or_none(call: str, name: str, value: object) -> None:
    """Raise `ConfigError` unless the value is callable or None."""
    if value is not None:
        require_callable(call, name, value)


def require_plain_function(call: str, name: str, value: object) -> None:
    """Raise `ConfigError` unless the value is a function, and not async: its result is used without `await`."""
    require_callable(call, name, value)
    if is_async_function(value) or inspect.isasyncgenfunction(value):
        raise_config_error(call, name, value, "give a plain function, and no async one: nothing awaits it")


def require_plain_function_or_none(call: str, name: str, value: object) -> None:
    """Raise `ConfigError` unless the value is None, or a function that is not async."""
    if value is not None:
        require_plain_function(call, name, value)


def is_async_function(value: Any) -> bool:
    """Return True for an async function, a partial of one, or an object whose `__call__` is async."""
    while isinstance(value, functools.partial):
        value = cast("Any", value).func
    function = getattr(value, "__func__", value)  # that of a method
    if type(function) is FunctionType and not function.__dict__:  # a mark of `inspect` would be there
        return bool(function.__code__.co_flags & inspect.CO_COROUTINE)
    return inspect.iscoroutinefunction(value) or inspect.iscoroutinefunction(type(value).__call__)


def require_callables(call: str, name: str, value: Any) -> None:
    """Raise `ConfigError` unless the value is a list of callables."""
    if not isinstance(value, (tuple, list)) or not all(map(callable, cast("list[Any]", value))):
        raise_config_error(call, name, cast("Any", value), "give a list of functions")


def require_plain_return_type(
    role: str, function: object, value: object, kind: type | tuple[type, ...], advice: str
) -> None:
    """Raise `ConfigError` unless a function that must not be async returned a value of the right type."""
    close_coroutine(value)
    require_return_type(role, function, value, kind, advice)


def close_coroutine(value: object) -> None:
    """Close the value if it is a coroutine, as it will not be awaited; leave any other value alone."""
    if inspect.iscoroutine(value):
        value.close()


def require_return_type(role: str, function: object, value: object, kind: type | tuple[type, ...], advice: str) -> None:
    """Raise `ConfigError` unless the value that a caller's function returned is of the right type."""
    if not isinstance(value, kind):
        message = f"the {role} function {short_repr(function)} returned {short_repr(value)}: it has to return {advice}"
        raise ConfigError(message)


class UnresolvedSignatureMeta(StructMeta):
    """Metaclass of structs for which `help` works even if annotations name types that are not imported at run time.

    msgspec resolves all annotations for the signature of a struct, so that `inspect.signature` and `help` would raise
    `NameError`. Here those of such a struct are shown as they were written.
    """

    if TYPE_CHECKING:
        ...  # type checkers know the constructor from the fields
    else:

        @property
        def __signature__(cls) -> "Signature":  # noqa: N805 - its instances are classes
            """The signature of the constructor, for `inspect` and `help`."""
            try:
                return StructMeta.__signature__.__get__(cls)
            except NameError:
                return _build_unresolved_signature(cls)


def _build_unresolved_signature(cls: Any) -> "Signature":
    """Build the signature of a struct's constructor with its annotations as they were written."""
    from inspect import Parameter, Signature, get_annotations  # at first use, which few programs have

    hints: dict[str, Any] = {}
    for each in reversed(cls.__mro__):
        hints |= get_annotations(each)
    names, defaults = cls.__struct_fields__, cls.__struct_defaults__
    by_name = dict(zip(names[len(names) - len(defaults) :], defaults, strict=True))
    parameters = [
        Parameter(
            name,
            Parameter.POSITIONAL_OR_KEYWORD if name in cls.__match_args__ else Parameter.KEYWORD_ONLY,
            default=Parameter.empty if (default := by_name.get(name, NODEFAULT)) is NODEFAULT else default,
            annotation=hints[name],
        )
        for name in names
    ]
    return Signature(parameters)


class StrictOptionsMeta(UnresolvedSignatureMeta):
    """Metaclass of a struct whose constructor raises `ConfigError` for an option that it does not have."""

    if TYPE_CHECKING:
        ...  # type checkers know the constructor from the fields
    else:

        def __call__(cls, *args: Any, **options: Any) -> Any:  # noqa: N805 - its instances are classes
            """Build an object. Raises `ConfigError` for options that are unknown, missing or given by position."""
            try:
                return StructMeta.__call__(cls, *args, **options)
            except TypeError as error:
                if error.__traceback__.tb_next is not None:  # raised by code of ours or of the caller
                    raise
                raise ConfigError(_explain_options(cls, options, error)) from None


def _explain_options(cls: Any, options: dict[str, Any], error: TypeError) -> str:
    """Return the message for options that a class refuses: which class, which option, and what was probably meant."""
    known: tuple[str, ...] = cls.__struct_fields__
    unknown = [name for name in options if name not in known]
    if not unknown:
        return f"{cls.__name__}(…): {error}; its options are {', '.join(known)}"
    name = unknown[0]
    advice = suggest_name(name, known) or f"its options are {', '.join(known)}"
    return f"{cls.__name__}({name}=…): there is no option {name!r}: {advice.rstrip()}"
