"""Evaluate arithmetic expressions such as `(17 + 4) * 2`, without running them as code.

The text is parsed, and only numbers, operators and a few functions are evaluated. Every intermediate number is bounded,
so that no short text costs more than a moment.
"""

import ast
import math
import re
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

from perdure.core.error import ToolError

Number: TypeAlias = int | float

MOST_CHARACTERS: Final = 500
"""The longest expression, in characters."""
MOST_BITS: Final = 4096
"""The largest whole number, in bits: a little over 1,200 digits."""


def _round_to_int(number: Number) -> int:
    """Round to a whole number. Unlike `round`, it takes no second argument, which could request a billion digits."""
    return round(number)


_CONSTANTS: Final[Mapping[str, Number]] = {"e": math.e, "pi": math.pi}
_FUNCTIONS: Final[Mapping[str, Callable[..., Any]]] = {
    "abs": abs,
    "ceil": math.ceil,
    "floor": math.floor,
    "max": max,
    "min": min,
    "round": _round_to_int,
    "sqrt": math.sqrt,
}

_LOOKALIKES: Final = str.maketrans({"×": "*", "·": "*", "÷": "/", "−": "-", "^": "**"})  # noqa: RUF001 - people type them
_NUMBER: Final = r"(?:[0-9][0-9_]*\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?(?!\w)"
_NAME: Final = rf"(?:{'|'.join([*_FUNCTIONS, *_CONSTANTS])})(?!\w)"
_TOKENS: Final = re.compile(rf"(?:\s|{_NUMBER}|{_NAME}|[-+*/%(),])*")
_KNOWN: Final = f"numbers, + - * / // % **, parentheses, {', '.join([*_FUNCTIONS, *_CONSTANTS])}"


def evaluate_arithmetic(expression: str) -> Number:
    """Evaluate an expression such as `(17 + 4) * 2`. Raises `ToolError` if it is invalid or too large."""
    if len(expression) > MOST_CHARACTERS:
        problem = f"it has {len(expression)} characters, and {MOST_CHARACTERS} are the most: split it"
        raise ToolError(f"{expression[:20]!r}… cannot be calculated: {problem}")
    text = expression.translate(_LOOKALIKES).strip()
    understood = _TOKENS.match(text)
    rest = text[understood.end() :] if understood else text
    if rest:
        raise ToolError(f"{expression!r} is not arithmetic from {rest[:20]!r} on: use {_KNOWN}")
    try:
        return _evaluate_node(ast.parse(text, mode="eval").body)
    except ZeroDivisionError:
        problem = "it divides by zero"
    except OverflowError:
        problem = "it becomes too large"
    except SyntaxError as error:
        problem = f"{error.msg}; use {_KNOWN}"
    except (ValueError, TypeError, RecursionError, MemoryError) as error:
        problem = f"{error}; use {_KNOWN}"
    raise ToolError(f"{expression!r} cannot be calculated: {problem}")


def format_number(number: Number) -> str:
    """Format a number as text: `5` for 5.0, and other floats with at most 15 significant digits."""
    if isinstance(number, float) and number.is_integer() and abs(number) < 1e15:  # noqa: PLR2004 - exact up to there
        number = int(number)
    return str(number) if isinstance(number, int) else f"{number:.15g}"


def _evaluate_node(node: ast.expr) -> Number:
    match node:
        case ast.Constant(value=int() | float() as number):
            return _check_bounds(number)
        case ast.Name(id=name) if name in _CONSTANTS:
            return _CONSTANTS[name]
        case ast.UnaryOp(op=ast.UAdd(), operand=operand):
            return _evaluate_node(operand)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_evaluate_node(operand)
        case ast.BinOp(left=left, op=sign, right=right):
            return _check_bounds(_apply_operator(_evaluate_node(left), sign, _evaluate_node(right)))
        case ast.Call(func=ast.Name(id=name), args=arguments, keywords=[]) if name in _FUNCTIONS:
            return _check_bounds(_FUNCTIONS[name](*[_evaluate_node(each) for each in arguments]))
        case _:
            raise ValueError(f"{ast.unparse(node)!r} is no number")


def _apply_operator(left: Number, sign: ast.operator, right: Number) -> Any:
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
        case _:  # the only other operator that the tokens allow
            return _compute_power(left, right)


def _compute_power(number: Number, exponent: Number) -> Any:
    """Compute a power. Raises `OverflowError` beforehand if it would be too large."""
    bits = number.bit_length() if isinstance(number, int) and abs(number) > 1 else 0
    if isinstance(exponent, int) and bits * exponent > MOST_BITS:
        raise OverflowError
    return number**exponent


def _check_bounds(number: Any) -> Number:
    """Return the number. Raises an error if it is complex, too large or not finite."""
    if isinstance(number, complex):
        raise ValueError("it has no real result")  # noqa: TRY004 - it is the value that is wrong
    too_large = number.bit_length() > MOST_BITS if isinstance(number, int) else not math.isfinite(number)
    if too_large:
        raise OverflowError
    checked: Number = number
    return checked
