"""Four small tools that need no key and no network: the current time, arithmetic, reading and creating text files.

`perdure run` offers them. Writing needs permission; only files below one folder are read or written.
"""

import os
from datetime import datetime
from typing import Annotated, Any

from perdure.core.clock_and_ids import SYSTEM_CLOCK, Clock
from perdure.core.error import ToolError
from perdure.core.model_and_tool_wrappers import CallNext, around
from perdure.core.path_target import PathTarget
from perdure.core.tool import Arguments, Tool, ToolContext, tool
from perdure.files.protected_names import add_caution

from .arithmetic_evaluator import evaluate_arithmetic, format_number
from .confined_text_folder import ConfinedTextFolder
from .text_origin import labelled_by_origin, record_write


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
