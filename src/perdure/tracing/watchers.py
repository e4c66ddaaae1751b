"""Two ready-made watchers (functions called with each event): one writes the model's text, one logs each tool call."""

import logging
from collections.abc import Callable
from typing import Protocol

from perdure.core import check
from perdure.core.event import Entry, RunEnded, SessionOpened, TextDelta, ToolFinished, ToolStarted


class TextWriter(Protocol):
    """Protocol of an object that text can be written to, such as a file or `sys.stdout`."""

    def write(self, text: str, /) -> object:
        """Write some text."""


def mirror_text(writer: TextWriter, *, subagents: bool = False) -> Callable[[Entry], None]:
    """Make a watcher that writes the model's text to `writer` (a file, a socket, `sys.stdout`) as it streams.

    With `subagents`, the text of subagents is written too, wherever it comes between.
    """
    check.require_bool("mirror_text", "subagents", subagents)
    if not callable(getattr(writer, "write", None)):
        check.raise_config_error("mirror_text", "writer", writer, "give something with write(text), such as sys.stdout")
    flush: Callable[[], object] | None = getattr(writer, "flush", None)

    def watch(entry: Entry) -> None:
        if isinstance(entry.event, TextDelta) and (subagents or not entry.event.path):
            writer.write(entry.event.text)
            if flush is not None:
                flush()

    return watch


def log_tool_calls(logger: logging.Logger | None = None, level: int = logging.INFO) -> Callable[[Entry], None]:
    """Make a watcher that logs the start and the end of each tool call, with the ids of session and run."""
    if logger is not None and not callable(getattr(logger, "log", None)):
        check.raise_config_error(
            "log_tool_calls", "logger", logger, "give a logger, such as logging.getLogger('tools')"
        )
    if not isinstance(level, int):
        check.raise_config_error("log_tool_calls", "level", level, "give a number, such as logging.INFO")
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
