"""Rows of the chat: notes that are wrapped, tool calls with their results, and the status line."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

import msgspec

from perdure._cli.terminal.frame import quote_unless_plain, wrap_text, wrap_words
from perdure._cli.terminal.output import escape_controls, indent_lines, to_one_line
from perdure._core.values.message import Status, ToolResult

if TYPE_CHECKING:
    from perdure._runtime.session.report import SessionUsage


NOTE_MARK: Final = "- "
"""Begins a note of the chat."""


def build_note_rows(text: str, columns: int) -> list[str]:
    """Return a note as rows that fit into `columns` columns: the first begins with a mark, the others are indented."""
    width = columns - 1  # in the last column some terminals begin a new row
    lines = indent_lines(escape_controls(text)).expandtabs(4).split("\n")
    rows = [row for line in lines for row in wrap_words(line, width, len(NOTE_MARK))]
    return [(" " * len(NOTE_MARK) if place else NOTE_MARK) + row for place, row in enumerate(rows)]


SPINNER: Final = "-\\|/"
_THOUSAND: Final = 1000
_MILLION: Final = 1_000_000


def format_status(
    *, state: str, model: str, session: str, usage: "SessionUsage | None", columns: int, separator: str = " | "
) -> str:
    """Return the status line of the chat; on a narrow terminal, the least important parts are left out.

    Kept longest are the state, the tokens and the cost.
    """
    spent, name, number = format_usage(usage), to_one_line(model), to_one_line(session)
    choices = ((state, spent, name, number), (state, spent, name), (state, spent), (state, format_usage_briefly(usage)))
    for parts in choices:
        line = separator.join([each for each in parts if each])
        if len(line) < columns:
            return line
    return state


def format_usage(usage: "SessionUsage | None") -> str:
    """Return a session's tokens, the share of its input that the prompt cache supplied, and its cost, as text."""
    if usage is None or not usage.turns:
        return ""
    tokens = usage.usage
    share = tokens.cache_read_tokens / max(tokens.input_tokens, 1)
    cached = f", {share:.0%} cached" if tokens.cache_read_tokens else ""
    cost = "" if usage.cost_usd is None else f" {format_cost(usage.cost_usd)}"
    return f"{shorten_count(tokens.input_tokens)} in{cached}, {shorten_count(tokens.output_tokens)} out{cost}"


def format_usage_briefly(usage: "SessionUsage | None") -> str:
    """Return tokens in and out, the cached share and the cost, for a narrow terminal."""
    if usage is None or not usage.turns:
        return ""
    tokens = usage.usage
    share = f" {tokens.cache_read_tokens / max(tokens.input_tokens, 1):.0%}" if tokens.cache_read_tokens else ""
    cost = "" if usage.cost_usd is None else f" {format_cost(usage.cost_usd)}"
    return f"{shorten_count(tokens.input_tokens)}/{shorten_count(tokens.output_tokens)}{share}{cost}"


def format_cost(cost_usd: float) -> str:
    """Return a cost in dollars as text: four decimals below one dollar, otherwise two (also for zero)."""
    return f"${cost_usd:.2f}" if cost_usd >= 1 or not cost_usd else f"${cost_usd:.4f}"


def shorten_count(count: int) -> str:
    """Return a number of tokens in few characters, such as `12.3k`."""
    if count < _THOUSAND:
        return str(count)
    return f"{count / _THOUSAND:.1f}k" if count < _MILLION else f"{count / _MILLION:.1f}M"


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
