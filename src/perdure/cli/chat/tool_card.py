"""Tool cards of the chat: a row that names a tool call, and the call's result below it, folded if it is long.

The heading begins in the first column with a mark of ours. Everything that a tool or a model wrote is indented.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple, cast

import msgspec

from perdure.cli.terminal_output import to_one_line
from perdure.cli.untrusted_text_frame import quote_unless_plain, wrap_text
from perdure.core.message import Status, ToolResult

MARK: Final = "* "
"""Begins the heading of a card."""
BODY_INDENT: Final = "    "
"""Begins each row of a result."""
FOLDED_HEAD: Final = 4
"""Lines at the beginning of a long result that are shown."""
FOLDED_TAIL: Final = 4
"""Lines at the end of a long result that are shown."""
FOLDED_DIFF: Final = 16
"""Lines of a long diff that are shown."""
_LEAST_CALL: Final = 20
"""Columns that a heading has at least for the call."""
_TELLING: Final = ("command", "path", "file", "pattern", "url", "query", "expression", "question", "name")
"""Arguments that say most about a call, the most telling one first."""


class ToolCard(NamedTuple):
    """A finished tool call as the chat shows it: a heading, and the lines of its result or diff."""

    number: int
    """Number of the card in this chat, by which `/show` unfolds it."""
    heading: str
    """What was called: not sanitised."""
    lines: Sequence[str]
    """The lines of the result, or of the diff: not sanitised."""
    is_diff: bool = False
    ending: str = ""
    """How it ended, if not well, and how long it took: it is shown in full, however long the call is."""

    def format_heading(self, columns: int) -> str:
        """Return the heading as one row. The call is cut rather than its ending, unless too little would be left."""
        called = f"{MARK}{to_one_line(self.heading)}"
        room = columns - len(self.ending)
        return cut_row(called, room) + self.ending if room >= _LEAST_CALL else cut_row(called + self.ending, columns)

    def fold_rows(self) -> tuple[Sequence[str], Sequence[str], int]:
        """Return the lines at the beginning and at the end that are shown, and the number of those between them."""
        limit = FOLDED_DIFF if self.is_diff else FOLDED_HEAD + FOLDED_TAIL
        if len(self.lines) <= limit + 1:
            return self.lines, (), 0
        head, tail = (limit, 0) if self.is_diff else (FOLDED_HEAD, FOLDED_TAIL)
        return self.lines[:head], self.lines[len(self.lines) - tail :], len(self.lines) - head - tail


def build_card(number: int, result: ToolResult, arguments: str, seconds: float, diff: str = "") -> ToolCard:
    """Build the card of a finished tool call; if a diff is given, the card shows it instead of the result."""
    status = "" if result.status == Status.OK else f" ({result.status})"
    took = f" ({seconds:.0f} s)" if seconds >= 1 else ""
    text = diff or result.text
    lines = text.rstrip("\n").split("\n") if text.strip() else ()
    return ToolCard(number, describe_call(result.name, arguments), lines, bool(diff), f"{status}{took}")


def describe_call(name: str, arguments: str) -> str:
    """Return a tool call as short text: the tool's name, and its most informative argument, such as a command."""
    try:
        given: object = msgspec.json.decode(arguments or "{}")
    except (msgspec.DecodeError, RecursionError):
        given = arguments
    telling = ""
    if isinstance(given, Mapping):
        values = cast("Mapping[str, Any]", given)
        named = [values[key] for key in _TELLING if isinstance(values.get(key), str)]
        texts = [each for each in values.values() if isinstance(each, str)]
        telling = (named or texts or [arguments if values else ""])[0]
    else:
        telling = arguments
    return f"{quote_unless_plain(name)} {telling}".rstrip()


def cut_row(text: str, columns: int) -> str:
    """Cut a text to one row of the terminal, without its last column; a row that was cut ends with `…`."""
    first, *more = wrap_text(text, max(columns, 20) - 1)
    return f"{wrap_text(text, max(columns, 20) - 3)[0]}…" if more else first
