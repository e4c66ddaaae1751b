"""Print a run's events: the answer to standard output, a short line per tool call to standard error."""

import sys
from collections.abc import Sequence
from typing import Final

from perdure._core.log.codec import encode_event
from perdure._core.values.event import ToolProgress, ToolStarted
from perdure._core.values.event_class import Event
from perdure._core.values.message import Message, ToolResult, parts_to_text

from .output import TerminalOutput, line_width, to_ascii_json, to_one_line
from .screen import Screen, ShownCall

MAX_LINE: Final = 1000
"""Limit on the characters of a line about a tool call, where there is no terminal width."""


class TerminalScreen(Screen):
    """Screen of plain lines, for terminals and pipes: the answer as it streams, and a line per call, retry or error."""

    def __init__(self, output: TerminalOutput, *, with_text: bool = True, tells_end: bool = False) -> None:
        """Print to this output.

        Args:
            output: Where lines are printed.
            with_text: False if the caller prints the answer, as when it has to fit a schema.
            tells_end: Whether to print why a run has ended early; without it, the caller does.
        """
        super().__init__()
        self._output = output
        self._with_text = with_text
        self._tells_end = tells_end

    def note(self, text: str) -> None:
        """Print a line."""
        self._output.note(to_one_line(text, line_width(sys.stderr) or MAX_LINE))

    def add_text(self, text: str) -> None:
        """Print the next part of a reply."""
        self._output.write(text if self._with_text else "")

    def finish_reply(self, message: Message | None) -> None:
        """End the line, and print the sources of a complete reply."""
        self._output.end_line()
        for source in dict.fromkeys([parts_to_text((each,)) for each in message.citations] if message else ()):
            self.note(source)

    def show_message(self, message: Message, *, is_stored: bool) -> None:
        """Print the names of mentioned files that were not attached."""
        if message.metadata and not is_stored:
            from perdure._context.directives.apply import NOT_ATTACHED_KEY

            for line in message.metadata.get(NOT_ATTACHED_KEY, ()):
                self.note(line)

    def show_running_call(self, event: ToolStarted | ToolProgress, arguments: str) -> str:
        """Print a line about a call that has begun."""
        if isinstance(event, ToolStarted):
            self.note(f"tool {event.name} {arguments}".rstrip())
        return event.name

    def describe_running_calls(self, calls: Sequence[str]) -> str:
        """Return the names of the tools."""
        return f"{'tool' if len(calls) == 1 else 'tools'} {', '.join(calls)}"

    def show_call(self, call: ShownCall) -> None:
        """Print a line about the result."""
        self.note(format_tool_result(call.result))

    def show_slot(self, text: str) -> None:
        """Print the rows of a slot."""
        self._output.note_rows(text)

    def end_run(self, line: str) -> None:
        """Print why a run has ended early, in full."""
        if self._tells_end:
            self._output.note(line)

    def begin_question(self) -> None:
        """Wait for nothing: nothing is drawn beside the question."""
        self.waiting_for = ""


def format_tool_result(result: ToolResult) -> str:
    """Return a tool result as one line: status, first line, and the number of further lines."""
    first, *more = result.text.strip().splitlines() or [""]
    rest = f" (and {len(more)} more lines)" if more else ""
    return f"tool {result.name} {result.status}: {first}{rest}"


class JsonEventPrinter:
    """Prints each event of a run as a line of JSON, for `--json`."""

    def __init__(self, screen: TerminalOutput) -> None:
        self._screen = screen

    def __call__(self, event: Event) -> None:
        self._screen.write(to_ascii_json(encode_event(event)) + "\n")
