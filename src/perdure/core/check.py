"""What callers give, checked where they give it. Above: whatever callers make. Below: `error.py`, `plain.py`.

Each function is given the call, the name of the parameter and its value, and raises a `ConfigError` that shows all
three and says what to give instead.
"""

from collections.abc import Collection
from typing import Any, NoReturn, cast

from .error import ConfigError
from .plain import excerpt


def refuse(call: str, name: str, value: object, advice: str) -> NoReturn:
    """Say that this value cannot work, and what to do."""
    message = f"{call}({name}={excerpt(value)}): {advice}"
    raise ConfigError(message)


def text(call: str, name: str, value: object, *, filled: bool = False) -> None:
    """Refuse what is not text; with `filled`, also what says nothing."""
    if not isinstance(value, str) or (filled and not value.strip()):
        refuse(call, name, value, "give some words" if filled else "give text")


def flag(call: str, name: str, value: object) -> None:
    """Refuse what is neither true nor false."""
    if not isinstance(value, bool):
        refuse(call, name, value, "say True or False")


def whole_number(call: str, name: str, value: object, least: int = 0) -> None:
    """Refuse what is no whole number from `least` on."""
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        refuse(call, name, value, f"give a whole number, {least} or more")


def number(call: str, name: str, value: object, most: float = float("inf")) -> None:
    """Refuse what is no number from 0 to `most`."""
    if not isinstance(value, (int, float)) or isinstance(value, bool) or not 0 <= value <= most:
        refuse(call, name, value, f"give a number from 0 {'on' if most == float('inf') else f'to {most:g}'}")


def one_of(call: str, name: str, value: object, allowed: Collection[object]) -> None:
    """Refuse what is none of these."""
    if value not in allowed:
        refuse(call, name, value, f"use {', '.join(map(repr, allowed))}")


def function(call: str, name: str, value: object) -> None:
    """Refuse what cannot be called."""
    if not callable(value):
        refuse(call, name, value, "give a function")


def function_or_none(call: str, name: str, value: object) -> None:
    """Refuse what is neither a function nor nothing."""
    if value is not None:
        function(call, name, value)


def functions(call: str, name: str, value: Any) -> None:
    """Refuse what is no list of functions."""
    if not isinstance(value, (tuple, list)) or not all(map(callable, cast("list[Any]", value))):
        refuse(call, name, cast("Any", value), "give a list of functions")


def returned(seam: str, function: object, value: object, kind: type, advice: str) -> None:
    """Refuse what a function of the caller's returned, where it comes back."""
    if not isinstance(value, kind):
        message = f"the {seam} function {excerpt(function)} returned {excerpt(value)}: it has to return {advice}"
        raise ConfigError(message)
