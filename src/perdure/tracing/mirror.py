"""Two small watchers: the words as they come, and one log line for each call. Above: callers. Below: `core`."""

import logging
from collections.abc import Callable
from typing import Protocol

from perdure.core import check
from perdure.core.event import Entry, RunEnded, SessionOpened, TextDelta, ToolFinished, ToolStarted


class Writer(Protocol):
    """Anything that text can be written to."""

    def write(self, text: str, /) -> object:
        """Take some text."""


def mirror_text(writer: Writer) -> Callable[[Entry], None]:
    """Write the model's words to `writer` as they come; a file, a socket, `sys.stdout`."""
    if not callable(getattr(writer, "write", None)):
        check.refuse("mirror_text", "writer", writer, "give something with write(text), such as sys.stdout")
    flush: Callable[[], object] | None = getattr(writer, "flush", None)

    def watch(entry: Entry) -> None:
        if isinstance(entry.event, TextDelta):
            writer.write(entry.event.text)
            if flush is not None:
                flush()

    return watch


def log_tool_calls(logger: logging.Logger | None = None, level: int = logging.INFO) -> Callable[[Entry], None]:
    """Log each call as it starts and as it ends, with the ids of session and run."""
    if logger is not None and not callable(getattr(logger, "log", None)):
        check.refuse("log_tool_calls", "logger", logger, "give a logger, such as logging.getLogger('tools')")
    if not isinstance(level, int):
        check.refuse("log_tool_calls", "level", level, "give a number, such as logging.INFO")
    log = logger or logging.getLogger("perdure.tools")
    sessions: dict[str, str] = {}  # of the runs that are going

    def watch(entry: Entry) -> None:
        event = entry.event
        names = {"session_id": sessions.get(event.run_id, ""), "run_id": event.run_id}
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
