"""Four small tools that need no key and no network: the current time, arithmetic, reading and creating text files."""

import ast
import math
import os
import re
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Annotated, Any, Final, TypeAlias

from perdure._core.permission.targets.path import PathTarget
from perdure._core.tools.context import ToolContext
from perdure._core.tools.tool import Arguments, Tool, tool
from perdure._core.tools.wrappers import CallNext, around
from perdure._core.values.clock import SYSTEM_CLOCK, Clock
from perdure._core.values.error import ToolError
from perdure._io.files.confined_folder import ConfinedFolder, FileRefused, Steps
from perdure._io.files.head import FileHead
from perdure._io.files.origin import FolderOrigin
from perdure._io.files.protected import PROTECTED_NAMES, add_caution
from perdure._io.files.sensitive import SENSITIVE_NAMES, find_blocking_pattern

from .origin import labelled_by_origin, record_write

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


MOST_BYTES: Final = 100_000
"""The most bytes of a file that are read or written."""


class ConfinedTextFolder:
    """A folder in which tools may read and create text files, without access outside of it."""

    def __init__(self, path: str | os.PathLike[str], *, trusted: bool | None = None) -> None:
        self._folder = ConfinedFolder(path, blocked=SENSITIVE_NAMES)
        self._folder_for_new_files = ConfinedFolder(path)
        self.root = self._folder.root
        """The folder, with links resolved."""
        self.origin = FolderOrigin.of("basic_tools", self.root, trusted=trusted)
        """Who wrote the text in the folder."""

    def read_text(self, path: str, checked: str = "") -> str:
        """Return the text of a file; for a large file only the beginning, with a note.

        `checked` is the real path that permission was given for: no other file is read.
        """
        try:
            data, size = self._read(path, checked)
        except FileRefused as error:
            raise ToolError(f"{path!r} cannot be read: {error}") from error
        if b"\0" in data:
            raise ToolError(f"{path!r} is not a text file")
        text = data.decode("utf-8", "replace")
        return text if size <= len(data) else f"{text}\n[cut off: the first {len(data):,} of {size:,} bytes]"

    def write_text(self, path: str, text: str, checked: str = "") -> str:
        """Create a new file, and return a message with its size. `checked` is as for `read_text`."""
        data = text.encode("utf-8", "replace")
        if len(data) > MOST_BYTES:
            raise ToolError(f"the text has {len(data):,} bytes, and {MOST_BYTES:,} are the most: write several files")
        try:
            steps = self._resolve_steps(path, self._folder_for_new_files, checked)
            _require_unprotected(steps)
            self._folder_for_new_files.create_resolved(steps, data)
        except FileExistsError as error:
            raise ToolError(f"{path!r} exists, and is not replaced: choose another name") from error
        except OSError as error:
            raise ToolError(f"{path!r} cannot be written: {error.strerror}") from error
        except FileRefused as error:
            raise ToolError(f"{path!r} cannot be written: {error}") from error
        return f"wrote {len(data):,} bytes to {path!r}"

    def _read(self, path: str, checked: str) -> FileHead:
        """Return the beginning of a file, and the size of the whole file."""
        return self._folder.read_resolved(self._resolve_steps(path, self._folder, checked), MOST_BYTES)

    def _resolve_steps(self, path: str, folder: ConfinedFolder, checked: str) -> Steps:
        """Return the names of the folders on the way to a file, with symbolic links resolved."""
        if not path.strip() or "\0" in path:
            raise FileRefused("it is no path of a file")
        steps = folder.resolve(path)
        if not steps or any(step.startswith(".") for step in steps):
            raise FileRefused("it is hidden, or no file at all: use one whose name has no dot in front")
        if checked and os.path.join(self.root, *steps) != checked:  # noqa: PTH118 - pathlib is slow to import
            raise FileRefused("a link on the way has changed since permission was given: try it again")
        return steps


def _require_unprotected(steps: Steps) -> None:
    """Raise `FileRefused` for a name that no tool writes."""
    if pattern := find_blocking_pattern(steps, PROTECTED_NAMES):
        raise FileRefused(f"files like {pattern!r} are never written by tools")


def basic_tools(
    folder: str | os.PathLike[str] = ".", *, trusted: bool | None = None, clock: Clock = SYSTEM_CLOCK
) -> list[Tool[..., Any]]:
    """Return four tools: the current time, arithmetic, and reading and creating text files below `folder`.

    `trusted` is whether the user trusts who wrote the files there, as for `LocalFiles`.
    """
    files = ConfinedTextFolder(folder, trusted=trusted)

    target = PathTarget.of_argument("path", files.root)

    @tool(effect="read")
    def now(zone: Annotated[str, "A time zone such as 'Europe/Oslo', or its city"] = "UTC") -> str:
        """Return the current time, with today's date and day of the week."""
        return format_time_in_zone(zone, clock.now())

    @tool(effect="read")
    async def calculate(expression: Annotated[str, "For instance '(17 + 4) * 2'"]) -> str:
        """Calculate the result of an arithmetic expression."""
        return format_number(evaluate_arithmetic(expression))

    @tool(effect="read", target=target)
    def read_text(path: Annotated[str, "Where it lies below the working folder"], context: ToolContext[Any]) -> str:
        """Read a text file."""
        return files.read_text(path, _get_checked_path(context))

    def write_target(arguments: dict[str, Any]) -> PathTarget:
        return add_caution(target(arguments))

    @tool(permission=True, action="write", target=write_target, credentials=False)
    def write_text(
        path: Annotated[str, "Where to put it below the working folder"], text: str, context: ToolContext[Any]
    ) -> str:
        """Write a new text file. One that exists is not replaced."""
        return files.write_text(path, text, _get_checked_path(context))

    async def record_first(call_next: CallNext, arguments: Arguments, context: ToolContext[Any]) -> Any:
        try:
            written = target(arguments).path
        except ValueError:
            written = files.root  # it is no path, and the folder says so
        await record_write(context, files, written)
        return await call_next()

    return [now, calculate, labelled_by_origin(read_text, files), around(write_text, record_first)]


def _get_checked_path(context: ToolContext[Any]) -> str:
    """Return the real path that permission was given for; empty if none was needed, or only the arguments were
    approved.
    """
    if not context.is_approved:
        return ""
    try:
        return str(context.target)
    except ValueError:  # it is no path, and the folder says so
        return ""


def _find_zone(name: str) -> str:
    """Return the name of the time zone of a city, such as `Asia/Tokyo` for `Tokyo`; any other name as it is."""
    import zoneinfo

    ending = f"/{name.strip().replace(' ', '_')}".lower()
    found = [] if "/" in name else [zone for zone in zoneinfo.available_timezones() if zone.lower().endswith(ending)]
    return found[0] if len(found) == 1 else name


def format_time_in_zone(zone: str, at: float) -> str:
    """Format a point in time for a time zone. Raises `ToolError` if there is no such zone."""
    import zoneinfo

    try:
        there = datetime.fromtimestamp(at, zoneinfo.ZoneInfo(_find_zone(zone)))
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError) as error:
        import difflib

        near = difflib.get_close_matches(zone[:60], zoneinfo.available_timezones(), 3, 0.5)
        hint = f"did you mean {' or '.join(map(repr, near))}?" if near else "write it like 'Europe/Oslo'"
        raise ToolError(f"there is no time zone {zone[:60]!r}: {hint}") from error
    return there.strftime("%A, %Y-%m-%d %H:%M:%S %Z (UTC%z)")
