"""Arithmetic from text, without running it as code. Above: `basics.py`. Below: the standard library.

The text is parsed, and only numbers, operators and a few functions are followed. Every number on the way is bounded, so
that no short text costs more than a moment.
"""

import ast
import math
import re
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

from perdure.core.error import ToolError

Number: TypeAlias = int | float

MOST_CHARACTERS: Final = 500
"""Of an expression."""
MOST_BITS: Final = 4096
"""Of a whole number: a little over 1,200 digits."""


def _to_whole(number: Number) -> int:
    """`round` without its second argument, which could ask for a billion digits."""
    return round(number)


_CONSTANTS: Final[Mapping[str, Number]] = {"e": math.e, "pi": math.pi}
_FUNCTIONS: Final[Mapping[str, Callable[..., Any]]] = {
    "abs": abs,
    "ceil": math.ceil,
    "floor": math.floor,
    "max": max,
    "min": min,
    "round": _to_whole,
    "sqrt": math.sqrt,
}

_LOOKALIKES: Final = str.maketrans({"×": "*", "·": "*", "÷": "/", "−": "-", "^": "**"})  # noqa: RUF001 - people type them
_NUMBER: Final = r"(?:[0-9][0-9_]*\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?(?!\w)"
_NAME: Final = rf"(?:{'|'.join([*_FUNCTIONS, *_CONSTANTS])})(?!\w)"
_TOKENS: Final = re.compile(rf"(?:\s|{_NUMBER}|{_NAME}|[-+*/%(),])*")
_KNOWN: Final = f"numbers, + - * / // % **, parentheses, {', '.join([*_FUNCTIONS, *_CONSTANTS])}"


def evaluate(expression: str) -> Number:
    """The value of an expression such as `(17 + 4) * 2`. Raises `ToolError` saying what cannot be worked out."""
    if len(expression) > MOST_CHARACTERS:
        problem = f"it has {len(expression)} characters, and {MOST_CHARACTERS} are the most: split it"
        raise ToolError(f"{expression[:20]!r}… cannot be calculated: {problem}")
    text = expression.translate(_LOOKALIKES).strip()
    understood = _TOKENS.match(text)
    rest = text[understood.end() :] if understood else text
    if rest:
        raise ToolError(f"{expression!r} is not arithmetic from {rest[:20]!r} on: use {_KNOWN}")
    try:
        return _value(ast.parse(text, mode="eval").body)
    except ZeroDivisionError:
        problem = "it divides by zero"
    except OverflowError:
        problem = "it becomes too large"
    except SyntaxError as error:
        problem = f"{error.msg}; use {_KNOWN}"
    except (ValueError, TypeError, RecursionError, MemoryError) as error:
        problem = f"{error}; use {_KNOWN}"
    raise ToolError(f"{expression!r} cannot be calculated: {problem}")


def written(number: Number) -> str:
    """A number as people write it: `5` for 5.0, and no trace of binary fractions."""
    if isinstance(number, float) and number.is_integer() and abs(number) < 1e15:  # noqa: PLR2004 - exact up to there
        number = int(number)
    return str(number) if isinstance(number, int) else f"{number:.15g}"


def _value(node: ast.expr) -> Number:
    match node:
        case ast.Constant(value=int() | float() as number):
            return _bounded(number)
        case ast.Name(id=name) if name in _CONSTANTS:
            return _CONSTANTS[name]
        case ast.UnaryOp(op=ast.UAdd(), operand=operand):
            return _value(operand)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_value(operand)
        case ast.BinOp(left=left, op=sign, right=right):
            return _bounded(_combined(_value(left), sign, _value(right)))
        case ast.Call(func=ast.Name(id=name), args=arguments, keywords=[]) if name in _FUNCTIONS:
            return _bounded(_FUNCTIONS[name](*[_value(each) for each in arguments]))
        case _:
            raise ValueError(f"{ast.unparse(node)!r} is no number")


def _combined(left: Number, sign: ast.operator, right: Number) -> Any:
    match sign:
        case ast.Add():
            return left + right
        case ast.Sub():
            return left - right
        case ast.Mult():
            return left * right
        case ast.Div():
            return left / right
        case ast.FloorDiv():
            return left // right
        case ast.Mod():
            return left % right
        case _:  # the pattern of tokens leaves only this one
            return _power(left, right)


def _power(number: Number, exponent: Number) -> Any:
    """A power, unless it can be seen beforehand that it is too large."""
    bits = number.bit_length() if isinstance(number, int) and abs(number) > 1 else 0
    if isinstance(exponent, int) and bits * exponent > MOST_BITS:
        raise OverflowError
    return number**exponent


def _bounded(number: Any) -> Number:
    """The number, if it is one that can be gone on with."""
    if isinstance(number, complex):
        raise ValueError("it has no real result")  # noqa: TRY004 - its type only shows it
    too_large = number.bit_length() > MOST_BITS if isinstance(number, int) else not math.isfinite(number)
    if too_large:
        raise OverflowError
    checked: Number = number
    return checked
