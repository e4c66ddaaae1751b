"""Two small watchers: the words as they come, and one log line for each call. Above: callers. Below: `core`."""

import logging
from collections.abc import Callable
from typing import Protocol

from windlass.core.event import Entry, TextDelta, ToolFinished, ToolStarted


class Writer(Protocol):
    """Anything that text can be written to."""

    def write(self, text: str, /) -> object:
        """Take some text."""


def mirror_text(writer: Writer) -> Callable[[Entry], None]:
    """Write the model's words to `writer` as they come; a file, a socket, `sys.stdout`."""
    flush: Callable[[], object] | None = getattr(writer, "flush", None)

    def watch(entry: Entry) -> None:
        if isinstance(entry.event, TextDelta):
            writer.write(entry.event.text)
            if flush is not None:
                flush()

    return watch


def log_tool_calls(logger: logging.Logger | None = None, level: int = logging.INFO) -> Callable[[Entry], None]:
    """Log each call as it starts and as it ends, with the ids of session and run."""
    log = logger or logging.getLogger("windlass.tools")

    def watch(entry: Entry) -> None:
        event = entry.event
        if isinstance(event, ToolStarted):
            log.log(level, "%s begins (%s)", event.name, event.call_id, extra={"run_id": event.run_id})
        elif isinstance(event, ToolFinished):
            log.log(
                level,
                "%s %s after %.3f s (%s)",
                event.name,
                event.result.status,
                event.duration_seconds,
                event.call_id,
                extra={"run_id": event.run_id},
            )

    return watch
