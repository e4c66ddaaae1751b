"""Results that are too long for a model: it sees the beginning and the end, and can read and search the rest.

Above: the assembly, which makes an extension of it. Below: `core`. Nothing is thrown away and nothing is written
elsewhere: the log keeps the whole result, and the id of its call is the handle.
"""

from collections.abc import Callable, Iterator
from typing import Any

import msgspec
from msgspec import Struct

from perdure.core import check
from perdure.core.message import ToolCall, ToolResult
from perdure.core.plain import excerpt
from perdure.core.tool import Tool, ToolContext, ToolOutput, tool
from perdure.core.wrap import after

MAX_CHARACTERS = 12_000
"""Of a result that is sent as it is."""
MOST_CHARACTERS = 20_000
"""That can be read at once."""
MOST_LINES = 50
"""That a search shows."""
LINE_CHARACTERS = 300
"""Of each of them."""
MOST_SEARCHED = 10_000
"""Characters of one line that a search looks at."""
PATTERN_BYTES = 100_000
"""Of a compiled pattern: one that is larger would be slow."""


class LargeResults(Struct, frozen=True):
    """What an agent needs so that no result fills its window."""

    tools: tuple[Tool[..., Any], ...]
    """To read on, and to search."""
    wrap_tool: Callable[[Tool[..., Any]], Tool[..., Any]]
    """Put around each tool of the agent."""


def large_results(max_characters: int = MAX_CHARACTERS) -> LargeResults:
    """The pieces of an extension: results longer than this are sent as a preview, and two tools look at the rest."""
    _check("large_results", max_characters)
    return LargeResults((read_result, grep_result), lambda each: previewed(each, max_characters))


def previewed(tool: Tool[..., Any], max_characters: int = MAX_CHARACTERS) -> Tool[..., Any]:
    """Send a long result of a tool as its beginning and its end, and say how to get at the rest. The log keeps it all.

    Media in such a result are named in the preview, and not sent.
    """
    _check("previewed", max_characters)
    if tool.name in _OWN:  # what they show is bounded
        return tool

    def shorten(call: ToolCall, result: ToolResult) -> ToolResult:
        text = result.text
        if len(text) <= max_characters or result.preview:
            return result
        return msgspec.structs.replace(result, preview=preview_of(text, call.call_id, max_characters))

    return after(tool, shorten)


def _check(call: str, max_characters: object) -> None:
    check.whole_number(call, "max_characters", max_characters, 200)


def preview_of(text: str, call_id: str, max_characters: int) -> str:
    """The beginning and the end of a text, with a note between them that names the handle."""
    head, tail = max_characters * 2 // 3, max_characters // 3
    note = (
        f"[… {len(text) - head - tail} of {len(text)} characters left out here. All of it is kept: "
        f'read_result(call_id="{call_id}", offset={head}) reads on, '
        f'grep_result(call_id="{call_id}", pattern="…") searches it …]'
    )
    return f"{text[:head]}\n{note}\n{text[len(text) - tail :]}"


@tool(effect="read", credentials=False)
def read_result(context: ToolContext[Any], call_id: str, offset: int = 0, limit: int = 8_000) -> ToolOutput:
    """Read a part of the whole result of an earlier call that was shown to you shortened.

    Args:
        context: of the call.
        call_id: The call whose result it is, as the shortened result names it.
        offset: Where to begin, in characters.
        limit: How many characters, at most 20000.
    """
    text = _whole(context, call_id)
    if text is None:
        return _unknown(call_id)
    begin = max(offset, 0)
    end = min(begin + max(1, min(limit, MOST_CHARACTERS)), len(text))
    if begin >= len(text):
        return ToolOutput(f"The result has {len(text)} characters; there is nothing from {begin} on.", is_error=True)
    more = f"; read on with offset={end}" if end < len(text) else "; this is its end"
    return ToolOutput(f"[characters {begin} to {end} of {len(text)}{more}]\n{text[begin:end]}")


@tool(effect="read", credentials=False)
def grep_result(context: ToolContext[Any], call_id: str, pattern: str, regex: bool = False) -> ToolOutput:  # noqa: FBT001, FBT002 - a model names its arguments
    """Find the lines of the whole result of an earlier call that have a text in them, with their offsets.

    Args:
        context: of the call.
        call_id: The call whose result it is, as the shortened result names it.
        pattern: The text to look for, in small or capital letters; or a regular expression.
        regex: Whether the pattern is a regular expression (without back-references and look-around).
    """
    text = _whole(context, call_id)
    if text is None:
        return _unknown(call_id)
    if not pattern:
        return ToolOutput("There is nothing to look for in an empty pattern.", is_error=True)
    try:
        holds = matcher(pattern) if regex else _contains(pattern)
    except ValueError as error:
        return ToolOutput(str(error), is_error=True)
    found = [(number, offset, line) for number, offset, line in lines_of(text) if holds(line[:MOST_SEARCHED])]
    shown = [f"line {number} (offset {offset}): {_piece(line, pattern)}" for number, offset, line in found[:MOST_LINES]]
    if len(found) > MOST_LINES:
        shown.append(f"({len(found) - MOST_LINES} more lines; look for something rarer)")
    return ToolOutput("\n".join(shown) or "No line has it.")


_OWN = frozenset({read_result.name, grep_result.name})


def _whole(context: ToolContext[Any], call_id: str) -> str | None:
    result = context.result_of(call_id)
    return None if result is None else result.text


def _unknown(call_id: str) -> ToolOutput:
    told = f"There is no result of a call {call_id!r} in this conversation: use the id that the shortened result names."
    return ToolOutput(told, is_error=True)


def lines_of(text: str) -> Iterator[tuple[int, int, str]]:
    """The lines of a text, with their numbers from 1 and where they begin."""
    offset = 0
    for number, line in enumerate(text.split("\n"), 1):
        yield number, offset, line
        offset += len(line) + 1


def _contains(pattern: str) -> Callable[[str], bool]:
    wanted = pattern.lower()
    return lambda line: wanted in line.lower()


def matcher(pattern: str) -> Callable[[str], bool]:
    """Whether a regular expression matches somewhere, in time that grows with the text alone. Raises `ValueError`.

    Patterns come from a model, and Python's own engine takes centuries for some of them. The one that validates
    schemas does not: it has no back-references and no look-around, and so never has to go back.
    """
    import jsonschema_rs

    options = jsonschema_rs.RegexOptions(size_limit=PATTERN_BYTES)
    try:
        return jsonschema_rs.validator_for({"pattern": pattern}, pattern_options=options).is_valid
    except (jsonschema_rs.ValidationError, ValueError) as error:
        refused = f"{excerpt(pattern, 100)} is no regular expression that can be used here"
        raise ValueError(f"{refused} (no back-references, no look-around)") from error


def _piece(line: str, pattern: str) -> str:
    """A line, or what is around the place if it is long."""
    if len(line) <= LINE_CHARACTERS:
        return line
    begin = max(line.lower().find(pattern.lower()) - LINE_CHARACTERS // 3, 0)
    return f"{'…' if begin else ''}{line[begin : begin + LINE_CHARACTERS]}…"
