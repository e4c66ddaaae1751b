"""Print a run's events: the answer to standard output, a short line per tool call to standard error."""

import sys
from typing import Final

from perdure.core.error import ConfigError
from perdure.core.event import (
    Compacted,
    ErrorRaised,
    Event,
    FailedOver,
    GuardrailTripped,
    Lagged,
    MessageAdded,
    ReplyDiscarded,
    RetryScheduled,
    RunEnded,
    SkillLoaded,
    SlotOpened,
    SlotUpdated,
    TextDelta,
    ToolFinished,
    ToolStarted,
    ValueKept,
)
from perdure.core.log_codec import encode_event
from perdure.core.message import Message, ToolResult, parts_to_text

from .display_slot_text import render_slot
from .terminal_output import TerminalOutput, line_width, to_ascii_json, to_one_line

MAX_LINE: Final = 1000
"""Limit on the characters of a line about a tool call, where there is no terminal width."""


class TextEventPrinter:
    """Prints the events of a run for people: the answer as it streams, and a line per tool call, retry or error."""

    def __init__(self, screen: TerminalOutput, *, with_text: bool = True) -> None:
        """Create the printer. Without text, the answer is left to the caller, as when it has to fit a schema."""
        self._screen = screen
        self._with_text = with_text
        self._arguments: dict[str, str] = {}
        self._renderers: dict[str, str] = {}
        self._streamed = False
        """True if part of the current reply has been printed."""

    def __call__(self, event: Event) -> None:
        if isinstance(event, (SlotOpened, SlotUpdated)):  # of any agent: slots are meant for the user
            self._print_slot(event)
        if event.path:
            return  # the output of subagents is not printed
        match event:
            case TextDelta(text=text):
                self._streamed = True
                self._screen.write(text if self._with_text else "")
            case MessageAdded(message=message) if message.role == "assistant":
                self._print_reply(message)
            case ReplyDiscarded(reason=reason) if not event.aside:
                self._end_reply()
                if reason != "CancelledError":  # that it was cancelled is said at the end of the run
                    self._print_line(f"the reply broke off ({reason})")
            case ToolStarted(call_id=call_id, name=name):
                self._print_line(f"tool {name} {self._arguments.get(call_id, '')}".rstrip())
            case ToolFinished(result=result):
                self._print_line(format_tool_result(result))
            case MessageAdded(message=message) if message.metadata:
                self._print_unattached_files(message)
            case _:
                self._print_notice(event)

    def _print_unattached_files(self, message: Message) -> None:
        """Print the names of mentioned files that were not attached."""
        from perdure.context.directives.user_message_directives import NOT_ATTACHED_KEY

        for note in message.metadata.get(NOT_ATTACHED_KEY, ()):
            self._print_line(note)

    def _print_reply(self, message: Message) -> None:
        if not self._streamed:  # a model may send its whole reply at the end
            self._screen.write(message.text if self._with_text else "")
        self._end_reply()
        for source in dict.fromkeys([parts_to_text((each,)) for each in message.citations]):
            self._print_line(source)
        self._arguments = {call.call_id: call.arguments for call in message.tool_calls}

    def _print_slot(self, event: SlotOpened | SlotUpdated) -> None:
        if isinstance(event, SlotOpened):
            self._renderers[event.slot_id] = event.renderer
        self._screen.note_rows(render_slot(self._renderers.get(event.slot_id, ""), event.input))

    def _end_reply(self) -> None:
        self._screen.end_line()
        self._streamed = False

    def _print_notice(self, event: Event) -> None:
        if line := format_event_notice(event):
            self._print_line(line)

    def _print_line(self, text: str) -> None:
        self._screen.note(to_one_line(text, line_width(sys.stderr) or MAX_LINE))


def format_event_notice(event: Event) -> str:  # noqa: PLR0911 - one for each kind of event
    """Return a line about a retry, failover, guardrail, error, compaction or the like; empty for other events."""
    match event:
        case RetryScheduled():
            return f"{event.error}: {event.message}; trying again in {event.delay_seconds:.1f} s"
        case FailedOver():
            return f"{event.failed} failed ({event.error}); asking {event.next}"
        case GuardrailTripped():
            return f"guardrail {event.guardrail} tripped ({event.count} times): {event.action}"
        case ErrorRaised() if not event.where.startswith("tool "):  # those are printed with their results
            return f"{event.where}: {event.error}: {event.message}"
        case Lagged():
            return f"{event.missed} events were not shown: output is too slow"
        case SkillLoaded(name=name, source="user"):
            return f"skill {name} is loaded"
        case Compacted(upto=upto):
            return f"the first {upto} messages are summarised for the model; the session keeps them"
        case ValueKept():
            return format_tasks_or_notes(event)
        case _:
            return ""


def describe_early_end(event: RunEnded) -> str:
    """Return a line about a run that was cancelled, failed or reached a limit; empty if it ended normally."""
    if event.status == "cancelled":
        return "cancelled; what was written so far is kept, and the next prompt goes on from there"
    if event.status in {"done", "stopped"}:
        return ""
    why = event.error or event.reason
    more = "; the next prompt goes on from there, and the limits count anew" if event.status == "limit" else ""
    return to_one_line(f"the run ended early ({event.status}{f': {why}' if why else ''}){more}")


def format_tool_result(result: ToolResult) -> str:
    """Return a tool result as one line: status, first line, and the number of further lines."""
    first, *more = result.text.strip().splitlines() or [""]
    rest = f" (and {len(more)} more lines)" if more else ""
    return f"tool {result.name} {result.status}: {first}{rest}"


def format_tasks_or_notes(event: ValueKept) -> str:
    """Return a line that shows the model's new task list or notes; empty if the event stored another value."""
    from perdure.toolkits.rewritten_task_list import TASKS, parse_tasks
    from perdure.toolkits.scratchpad import SCRATCHPAD

    if event.name == SCRATCHPAD and isinstance(event.value, str):
        first, *more = event.value.splitlines() or ["(empty)"]
        return f"notes: {first}{f' (and {len(more)} more lines)' if more else ''}"
    if event.name != TASKS:
        return ""
    try:
        tasks = parse_tasks(event.value)
    except ConfigError:  # another value under the same name
        return ""
    done = sum(task.status == "completed" for task in tasks)
    now = [task.display_text for task in tasks if task.status == "in_progress"]
    return "; ".join([f"tasks: {done} of {len(tasks)} done", *now])


class JsonEventPrinter:
    """Prints each event of a run as a line of JSON, for `--json`."""

    def __init__(self, screen: TerminalOutput) -> None:
        self._screen = screen

    def __call__(self, event: Event) -> None:
        self._screen.write(to_ascii_json(encode_event(event)) + "\n")
