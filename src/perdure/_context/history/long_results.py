"""Send long tool results as previews, with tools to read the rest, and old ones as their tools' summaries."""

from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from perdure._core.model.transcript import shorten_message_for_model
from perdure._core.run.run import Run
from perdure._core.tools.context import ToolContext
from perdure._core.tools.tool import Tool, ToolOutput, tool
from perdure._core.tools.wrappers import after
from perdure._core.values import checks
from perdure._core.values.event import ViewChanged
from perdure._core.values.jsonable import short_repr
from perdure._core.values.message import Message, ToolCall, ToolResult

from .tokens import count_context_tokens, estimate_message_tokens

MAX_CHARACTERS = 12_000
"""Maximum length of a result that is sent as it is."""
MAX_READ_CHARACTERS = 20_000
"""Maximum number of characters that can be read at once."""
MAX_LINES = 50
"""Maximum number of lines that a search returns."""
MAX_LINE_CHARACTERS = 300
"""Maximum length of each returned line."""
MAX_SEARCHED_CHARACTERS = 10_000
"""Maximum number of characters of one line that are searched."""
MAX_PATTERN_BYTES = 100_000
"""Maximum size of a compiled pattern: a larger one would be slow."""


class LargeResults(Struct, frozen=True):
    """The tools and the tool wrapper that keep large results from filling the model's context window."""

    tools: tuple[Tool[..., Any], ...]
    """Tools that read and search a whole result."""
    wrap_tool: Callable[[Tool[..., Any]], Tool[..., Any]]
    """Wrapper for each tool of the agent."""


def large_results(max_characters: int = MAX_CHARACTERS) -> LargeResults:
    """Return the tools and the tool wrapper that send long tool results to the model as previews.

    A result is long if it has more than `max_characters` characters. The tools let the model read the rest.
    """
    _check_max_characters("large_results", max_characters)
    return LargeResults((read_result, grep_result), lambda each: previewed(each, max_characters))


def previewed(tool: Tool[..., Any], max_characters: int = MAX_CHARACTERS) -> Tool[..., Any]:
    """Wrap a tool so that the model is sent only the beginning and the end of a long result.

    A note between them says how to read the rest. The log keeps the whole result.

    Media in such a result are named in the preview and not sent.
    """
    _check_max_characters("previewed", max_characters)
    if tool.name in _OWN_TOOL_NAMES:  # their output is bounded
        return tool

    def add_preview(call: ToolCall, result: ToolResult) -> ToolResult:
        text = result.text
        if len(text) <= max_characters or result.preview:
            return result
        return msgspec.structs.replace(result, preview=build_preview(text, call.call_id, max_characters))

    return after(tool, add_preview)


def _check_max_characters(call: str, max_characters: object) -> None:
    checks.require_int(call, "max_characters", max_characters, 200)


def build_preview(text: str, call_id: str, max_characters: int) -> str:
    """Return the beginning and the end of a text, and between them a note with the call id for reading the rest."""
    head, tail = max_characters * 2 // 3, max_characters // 3
    note = (
        f"[… {len(text) - head - tail} of {len(text)} characters left out here. All of it is kept: "
        f'read_result(call_id="{call_id}", offset={head}) reads on, '
        f'grep_result(call_id="{call_id}", pattern="…") searches it …]'
    )
    return f"{text[:head]}\n{note}\n{text[len(text) - tail :]}"


@tool(effect="read", credentials=False)
def read_result(context: ToolContext[Any], call_id: str, offset: int = 0, limit: int = 8_000) -> ToolOutput:
    """Read a part of the full result of an earlier tool call of which you were shown only a preview.

    Args:
        context: of the call.
        call_id: The call whose result it is, as the shortened result names it.
        offset: Where to begin, in characters.
        limit: How many characters, at most 20000.
    """
    text = _get_result_text(context, call_id)
    if text is None:
        return _build_unknown_call_error(call_id)
    begin = max(offset, 0)
    end = min(begin + max(1, min(limit, MAX_READ_CHARACTERS)), len(text))
    if begin >= len(text):
        return ToolOutput(f"The result has {len(text)} characters; there is nothing from {begin} on.", is_error=True)
    more = f"; read on with offset={end}" if end < len(text) else "; this is its end"
    return ToolOutput(f"[characters {begin} to {end} of {len(text)}{more}]\n{text[begin:end]}")


@tool(effect="read", credentials=False)
def grep_result(context: ToolContext[Any], call_id: str, pattern: str, regex: bool = False) -> ToolOutput:  # noqa: FBT001, FBT002 - a model names its arguments
    """Search the full result of an earlier tool call, and return the matching lines with their offsets.

    Args:
        context: of the call.
        call_id: The call whose result it is, as the shortened result names it.
        pattern: The text to look for, in small or capital letters; or a regular expression.
        regex: Whether the pattern is a regular expression (without back-references and look-around).
    """
    text = _get_result_text(context, call_id)
    if text is None:
        return _build_unknown_call_error(call_id)
    if not pattern:
        return ToolOutput("There is nothing to look for in an empty pattern.", is_error=True)
    try:
        holds = build_regex_matcher(pattern) if regex else _build_substring_matcher(pattern)
    except ValueError as error:
        return ToolOutput(str(error), is_error=True)
    found = [
        (number, offset, line)
        for number, offset, line in enumerate_lines(text)
        if holds(line[:MAX_SEARCHED_CHARACTERS])
    ]
    shown = [
        f"line {number} (offset {offset}): {_excerpt_line(line, pattern)}" for number, offset, line in found[:MAX_LINES]
    ]
    if len(found) > MAX_LINES:
        shown.append(f"({len(found) - MAX_LINES} more lines; look for something rarer)")
    return ToolOutput("\n".join(shown) or "No line has it.")


_OWN_TOOL_NAMES = frozenset({read_result.name, grep_result.name})


def _get_result_text(context: ToolContext[Any], call_id: str) -> str | None:
    result = context.result_of(call_id)
    return None if result is None else result.text


def _build_unknown_call_error(call_id: str) -> ToolOutput:
    told = f"There is no result of a call {call_id!r} in this conversation: use the id that the shortened result names."
    return ToolOutput(told, is_error=True)


def enumerate_lines(text: str) -> Iterator[tuple[int, int, str]]:
    """Yield the lines of a text with their numbers, from 1, and their offsets."""
    offset = 0
    for number, line in enumerate(text.split("\n"), 1):
        yield number, offset, line
        offset += len(line) + 1


def _build_substring_matcher(pattern: str) -> Callable[[str], bool]:
    wanted = pattern.lower()
    return lambda line: wanted in line.lower()


def build_regex_matcher(pattern: str) -> Callable[[str], bool]:
    """Return a function that searches a line for a regular expression in linear time.

    Raises `ValueError` for an unsupported expression.

    Patterns are written by a model, and Python's engine needs exponential time for some. The engine that validates
    schemas does not: it has no back-references and no look-around, and so never backtracks.
    """
    import jsonschema_rs

    options = jsonschema_rs.RegexOptions(size_limit=MAX_PATTERN_BYTES)
    try:
        return jsonschema_rs.validator_for({"pattern": pattern}, pattern_options=options).is_valid
    except (jsonschema_rs.ValidationError, ValueError) as error:
        refused = f"{short_repr(pattern, 100)} is not a supported regular expression"
        raise ValueError(f"{refused} (no back-references, no look-around)") from error


def _excerpt_line(line: str, pattern: str) -> str:
    """Return a line; of a long one, an excerpt around the match."""
    if len(line) <= MAX_LINE_CHARACTERS:
        return line
    begin = max(line.lower().find(pattern.lower()) - MAX_LINE_CHARACTERS // 3, 0)
    return f"{'…' if begin else ''}{line[begin : begin + MAX_LINE_CHARACTERS]}…"


VIEW_CHANGE_CAUSE = "summaries"


def summarize_old_results(*, min_tokens: int = 2_000, min_fraction: float = 0.1) -> Callable[[Run], Awaitable[None]]:
    """Make a `between_turns` function that replaces tool results of earlier runs by their tools' short summaries.

    It does so once that saves `min_tokens` and `min_fraction` of the context.

    Pass it to an extension as `between_turns`, before the compaction: shortened results need not be summarized.
    """
    checks.require_int("summarize_old_results", "min_tokens", min_tokens)
    checks.require_number("summarize_old_results", "min_fraction", min_fraction, 1)

    async def upkeep(run: Run) -> None:
        state, transcript = run.state, run.state.transcript
        if state.turns:  # only at the start of a run: older messages do not change during it
            return
        first = max(transcript.shortened_count, transcript.compacted_count)
        saved = sum(estimate_savings(state.messages[first : state.first_message_index]))
        if saved and saved >= min_tokens and saved >= min_fraction * count_context_tokens(run):
            await run.emit(run.stamp_event(ViewChanged(VIEW_CHANGE_CAUSE, state.first_message_index)))

    return upkeep


def estimate_savings(messages: Sequence[Message]) -> Iterator[int]:
    """Yield, for each message with tool results, the tokens saved by sending the results' summaries instead."""
    for message in messages:
        if message.role == "tool":
            yield max(
                estimate_message_tokens(shorten_message_for_model(message))
                - estimate_message_tokens(shorten_message_for_model(message, short=True)),
                0,
            )
