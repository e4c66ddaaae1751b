"""Watchers (functions called with each event) that write the model's text, or write or log its tool calls."""

import logging
from collections.abc import Callable
from typing import Protocol

from perdure._core.values import checks
from perdure._core.values.event import (
    Entry,
    RunEnded,
    SessionOpened,
    SubagentStarted,
    TextDelta,
    ToolFinished,
    ToolStarted,
)


class TextWriter(Protocol):
    """Protocol of an object that text can be written to, such as a file or `sys.stdout`."""

    def write(self, text: str, /) -> object:
        """Write some text."""


def mirror_text(writer: TextWriter, *, subagents: bool = False) -> Callable[[Entry], None]:
    """Make a watcher that writes the model's text to `writer` (a file, a socket, `sys.stdout`) as it streams.

    With `subagents`, the text of subagents is written too, wherever it comes between.
    """
    write = _build_write("mirror_text", writer)
    checks.require_bool("mirror_text", "subagents", subagents)

    def watch(entry: Entry) -> None:
        if isinstance(entry.event, TextDelta) and (subagents or not entry.event.path):
            write(entry.event.text)

    return watch


def mirror_tool_calls(writer: TextWriter, *, subagents: bool = False) -> Callable[[Entry], None]:
    """Make a watcher that writes a line `[tool] NAME` to `writer` when a tool call starts.

    With `subagents`, the calls of subagents are written too.
    """
    write = _build_write("mirror_tool_calls", writer)
    checks.require_bool("mirror_tool_calls", "subagents", subagents)

    def watch(entry: Entry) -> None:
        if isinstance(entry.event, ToolStarted | SubagentStarted) and (subagents or not entry.event.path):
            write(f"[tool] {entry.event.name}\n")

    return watch


def _build_write(watcher: str, writer: TextWriter) -> Callable[[str], None]:
    """Return a function that writes and flushes text. Raises `ConfigError` for something that cannot write."""
    if not callable(getattr(writer, "write", None)):
        checks.raise_config_error(watcher, "writer", writer, "give something with write(text), such as sys.stdout")
    flush: Callable[[], object] | None = getattr(writer, "flush", None)

    def write(text: str) -> None:
        writer.write(text)
        if flush is not None:
            flush()

    return write


def log_tool_calls(logger: logging.Logger | None = None, level: int = logging.INFO) -> Callable[[Entry], None]:
    """Make a watcher that logs the start and the end of each tool call, with the ids of session and run."""
    if logger is not None and not callable(getattr(logger, "log", None)):
        checks.raise_config_error(
            "log_tool_calls", "logger", logger, "give a logger, such as logging.getLogger('tools')"
        )
    if not isinstance(level, int):
        checks.raise_config_error("log_tool_calls", "level", level, "give a number, such as logging.INFO")
    log = logger or logging.getLogger("perdure.tools")
    sessions: dict[str, str] = {}  # of the runs in progress

    def watch(entry: Entry) -> None:
        event = entry.event
        first_run_id = event.run_id.partition("/")[0]  # of a subagent's run: that of the session's own agent
        names = {"session_id": sessions.get(first_run_id, ""), "run_id": event.run_id}
        match event:
            case SessionOpened():
                sessions[event.run_id] = event.session_id
            case RunEnded():
                sessions.pop(event.run_id, None)
            case ToolStarted():
                log.log(level, "%s begins (%s)", event.name, event.call_id, extra=names)
            case ToolFinished(name=name, result=result, duration_seconds=seconds):
                log.log(level, "%s %s after %.3f s (%s)", name, result.status, seconds, event.call_id, extra=names)
            case _:
                pass

    return watch
