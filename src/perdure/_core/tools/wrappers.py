"""Wrappers that return a changed tool: hooks, labels, timeout, truncation."""

from collections.abc import Awaitable, Callable, Sequence
from copy import deepcopy
from inspect import isawaitable
from typing import Any, TypeAlias

import msgspec

from perdure._core.values.error import ConfigError
from perdure._core.values.message import Text, ToolCall, ToolResult, merge_labels

from .context import ToolContext
from .tool import Arguments, Finish, Prepare, Tool, ToolOutput, sanitize_labels

CallNext: TypeAlias = Callable[[], Awaitable[Any]]
ToolWrapper: TypeAlias = Callable[[CallNext, Arguments, ToolContext[Any]], Any]
"""Plain or async function of the function that makes the call, its arguments and its context; returns the result."""


def before(tool: Tool[..., Any], hook: Prepare) -> Tool[..., Any]:
    """Wrap a tool so that `hook` gets each call first, and may rewrite the arguments or `Skip` the call."""
    _check_tool("before", tool, hook)
    return msgspec.structs.replace(tool, prepare=(*tool.prepare, hook))


def after(tool: Tool[..., Any], hook: Finish) -> Tool[..., Any]:
    """Wrap a tool so that `hook` gets each result before it is stored, and may replace it."""
    _check_tool("after", tool, hook)
    return msgspec.structs.replace(tool, finish=(*tool.finish, hook))


def around(tool: Tool[..., Any], wrapper: ToolWrapper) -> Tool[..., Any]:
    """Wrap a tool so that `wrapper(call_next, arguments, context)` runs around its function.

    The wrapper may read the arguments, but not change them.
    """
    _check_tool("around", tool, wrapper)
    inner, receiver = tool.call, tool.receiver

    async def call(arguments: Arguments, context: ToolContext[Any]) -> Any:
        given = {name: value for name, value in arguments.items() if name != receiver}
        shown = tool.parameters.add_defaults(given)
        # neither the wrapper nor an earlier try can change what was approved
        approved = deepcopy(given) if context.is_approved else None
        labels: list[str] = []

        async def call_next() -> Any:
            passed = arguments if approved is None else {**arguments, **deepcopy(approved)}
            value = await inner(passed, context)
            if isinstance(value, (ToolOutput, ToolResult)):
                labels.extend(sanitize_labels(value.labels))
            return value

        answer = wrapper(call_next, shown, context)
        return _add_labels(await answer if isawaitable(answer) else answer, labels)

    return msgspec.structs.replace(tool, call=call)


def _add_labels(value: Any, labels: Sequence[str]) -> Any:
    """Return a value of a wrapper with the labels of what it has got: no wrapper takes any away."""
    if not labels:
        return value
    output = value if isinstance(value, (ToolOutput, ToolResult)) else ToolOutput(value)
    return msgspec.structs.replace(output, labels=merge_labels(sanitize_labels(output.labels), labels))


def labelled(tool: Tool[..., Any], list_labels: Callable[[ToolContext[Any]], Sequence[str]]) -> Tool[..., Any]:
    """Wrap a tool so that `list_labels(context)`, asked after each call, adds labels to its result, also an error."""
    _check_tool("labelled", tool, list_labels)

    async def add_labels(call_next: CallNext, _arguments: Arguments, context: ToolContext[Any]) -> Any:
        try:
            value = await call_next()
        except BaseException:
            context.label_result(sanitize_labels(list_labels(context)))
            raise
        if not (labels := list_labels(context)):
            return value
        output = value if isinstance(value, (ToolOutput, ToolResult)) else ToolOutput(value)
        return msgspec.structs.replace(output, labels=merge_labels(output.labels, labels))

    return around(tool, add_labels)


def timed(tool: Tool[..., Any], seconds: float) -> Tool[..., Any]:
    """Wrap a tool so that a call times out after `seconds`."""
    _check_tool("timed", tool)
    return msgspec.structs.replace(tool, timeout_seconds=seconds)


def truncated(tool: Tool[..., Any], max_characters: int) -> Tool[..., Any]:
    """Wrap a tool so that the middle of a long result is replaced by a note of how many characters are missing."""
    _check_tool("truncated", tool)
    if not isinstance(max_characters, int) or max_characters < 2:  # noqa: PLR2004 - one for the head, one for the tail
        message = f"truncated({tool!r}, {max_characters!r}): keep at least 2 characters"
        raise ConfigError(message)

    def cut(_call: ToolCall, result: ToolResult) -> ToolResult:
        content = [
            Text(shorten_text(part.text, max_characters), part.signature) if isinstance(part, Text) else part
            for part in result.content
        ]
        return msgspec.structs.replace(result, content=tuple(content))

    return after(tool, cut)


def shorten_text(text: str, max_characters: int) -> str:
    """Return at most this many characters of a text, with its middle replaced by a note."""
    missing = len(text) - max_characters
    if missing <= 0:
        return text
    head = max_characters - max_characters // 2
    return f"{text[:head]}\n[… {missing} characters left out …]\n{text[len(text) - max_characters // 2 :]}"


def _check_tool(name: str, tool: object, *hooks: object) -> None:
    if not isinstance(tool, Tool):
        message = f"{name}({tool!r}, …): give a tool; @tool makes one from a function"
        raise ConfigError(message)
    for hook in hooks:
        if not callable(hook):
            message = f"{name}({tool!r}, {hook!r}): give a function"
            raise ConfigError(message)
