"""`Screen`: what people see of a session, in one order, in the window of a chat, on a plain terminal and in a pipe.

It follows the events, and says when there is text of a reply, a call, a result, a note or something to wait for. How
each of them looks is left to its subclasses.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar, Final, NamedTuple

from perdure._core.values.engine_event import GuardrailTripped
from perdure._core.values.error import ConfigError
from perdure._core.values.event import (
    Compacted,
    ErrorRaised,
    FailedOver,
    Lagged,
    MessageAdded,
    ModelRequested,
    ReplyDiscarded,
    RetryScheduled,
    RunEnded,
    RunWaiting,
    SkillLoaded,
    TextDelta,
    ThinkingDelta,
    ToolFinished,
    ToolProgress,
    ToolStarted,
    TurnEnded,
    ValueKept,
)
from perdure._core.values.event_class import Event, QuestionAsked, SlotOpened, SlotUpdated
from perdure._core.values.message import Message, ToolResult

from .output import to_one_line
from .slots import render_slot

MAX_CALLS: Final = 100
"""Tool calls whose results can be shown in full: the last ones."""
CUT_OFF: Final = "(The user cancelled the reply here.)"
"""Ends a partial reply that a chat keeps in the conversation."""


class ShownCall(NamedTuple):
    """A finished tool call that was shown, by its number in this chat; `/show` shows all of its result."""

    number: int
    result: ToolResult
    arguments: str
    seconds: float = 0.0
    diff: str = ""
    """The change that it has made to a file."""


class Screen(ABC):
    """Shows the events of a session to people, except those of subagents, and tracks what the run waits for."""

    answering: ClassVar[str] = ""
    """What a run waits for while a reply arrives; empty where that is seen."""
    between_turns: ClassVar[str] = ""
    """What a run waits for when its calls have ended."""

    def __init__(self) -> None:
        self.calls: list[ShownCall] = []
        """The last finished tool calls."""
        self.call_count = 0
        self.waiting_for = ""
        """What the run waits for, in a few words; empty if for nothing."""
        self.last_answer = ""
        """The text of the last complete reply."""
        self._has_text = False
        """True if part of the current reply is on the screen."""
        self._arguments: dict[str, str] = {}
        self._running: dict[str, str] = {}
        """The calls in progress, described, by call id."""
        self._renderers: dict[str, str] = {}

    # -- how each thing looks ------------------------------------------------------------------------------------------

    @abstractmethod
    def note(self, text: str) -> None:
        """Show a note of one line, such as one about an error or a delay."""

    @abstractmethod
    def add_text(self, text: str) -> None:
        """Show the next part of a reply."""

    @abstractmethod
    def finish_reply(self, message: Message | None) -> None:
        """Show that a reply is complete, or has broken off (`None`)."""

    @abstractmethod
    def show_message(self, message: Message, *, is_stored: bool) -> None:
        """Show what there is to see of a message that is no reply."""

    @abstractmethod
    def show_running_call(self, event: ToolStarted | ToolProgress, arguments: str) -> str:
        """Show that a call is in progress; return it in a few words."""

    @abstractmethod
    def describe_running_calls(self, calls: Sequence[str]) -> str:
        """Return in a few words that a run waits for these calls."""

    @abstractmethod
    def show_call(self, call: ShownCall) -> None:
        """Show a finished call with its result."""

    @abstractmethod
    def show_slot(self, text: str) -> None:
        """Show rows that a tool displays to the user; sanitised and framed."""

    @abstractmethod
    def end_run(self, line: str) -> None:
        """Show why a run has ended early."""

    @abstractmethod
    def begin_question(self) -> None:
        """Make room for a question to a person."""

    # -- what is shown -------------------------------------------------------------------------------------------------

    def show(self, event: Event, diff: str = "") -> None:
        """Show an event; `diff` is what a finished call has changed in a file."""
        if isinstance(event, (SlotOpened, SlotUpdated)):  # of any agent: slots are meant for the user
            self._show_slot(event)
        if event.path:
            return
        match event:
            case TextDelta(text=text):
                self._has_text = True
                self.waiting_for = self.answering or self.waiting_for
                self.add_text(text)
            case MessageAdded(message=message) if event.run_id or not message.text.endswith(CUT_OFF):
                self._show_message(message, is_stored=False)  # what a chat adds after a run is on the screen already
            case ReplyDiscarded(reason=reason) if not event.aside:  # it was no part of the conversation
                self._finish_reply()
                if reason != "CancelledError":  # that it was cancelled is said at the end of the run
                    self.note(f"the reply broke off ({reason})")
            case ToolStarted() | ToolProgress():
                about = self.show_running_call(event, self._arguments.get(event.call_id, ""))
                if self._running.get(event.call_id) != about:
                    self._running[event.call_id] = about
                    self._wait_for_calls()
            case ToolFinished(call_id=call_id):
                self._running.pop(call_id, None)
                self._wait_for_calls()
                self._add_call(event.result, event.duration_seconds, diff)
            case RunEnded():
                self._finish_run(event)
            case _:
                self._follow_wait(event)
                if line := format_event_notice(event):
                    self.note(line)

    def show_stored(self, messages: Sequence[Message]) -> None:
        """Show messages of a stored conversation, as they looked when they arrived; calls only by their results."""
        for message in messages:
            self._show_message(message, is_stored=True)
            for result in message.tool_results:
                self._add_call(result)

    def find_call(self, number: int | None) -> ShownCall | None:
        """Return the finished call of this number, or the last one."""
        found = [each for each in self.calls if number in {None, each.number}]
        return found[-1] if found else None

    def _show_message(self, message: Message, *, is_stored: bool) -> None:
        if message.role != "assistant":
            self.show_message(message, is_stored=is_stored)
            return
        if not self._has_text:  # a model may send its whole reply at the end
            self.add_text(message.text)
        self._finish_reply(message)
        self.last_answer = message.text or self.last_answer
        self._arguments |= {call.call_id: call.arguments for call in message.tool_calls}

    def _finish_reply(self, message: Message | None = None) -> None:
        self.finish_reply(message)
        self._has_text = False

    def _add_call(self, result: ToolResult, seconds: float = 0.0, diff: str = "") -> None:
        self.call_count += 1
        call = ShownCall(self.call_count, result, self._arguments.get(result.call_id, ""), seconds, diff)
        self.calls = [*self.calls[-MAX_CALLS + 1 :], call]
        self.show_call(call)

    def _show_slot(self, event: SlotOpened | SlotUpdated) -> None:
        if isinstance(event, SlotOpened):
            self._renderers[event.slot_id] = event.renderer
        self.show_slot(render_slot(self._renderers.get(event.slot_id, ""), event.input))

    def _finish_run(self, event: RunEnded) -> None:
        self._finish_reply()
        self._running.clear()
        self.waiting_for = ""
        if line := describe_early_end(event):
            self.end_run(line)

    def _wait_for_calls(self) -> None:
        calls = list(self._running.values())
        self.waiting_for = self.describe_running_calls(calls) if calls else self.between_turns

    def _follow_wait(self, event: Event) -> None:
        """Learn from an event what the run waits for now."""
        match event:
            case ModelRequested(model=model):
                self.waiting_for = f"the model {to_one_line(model)}".rstrip()
            case ThinkingDelta():
                self.waiting_for = "the model, which thinks"
            case RetryScheduled(error=error):
                self.waiting_for = f"the next attempt, after {to_one_line(error)}"
            case TurnEnded():
                self.waiting_for = self.between_turns
            case RunWaiting():
                self.waiting_for = ""
            case QuestionAsked():
                self.begin_question()
            case _:
                pass


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


def format_tasks_or_notes(event: ValueKept) -> str:
    """Return a line that shows the model's new task list or notes; empty if the event stored another value."""
    from perdure._tools.tasks.storage import SCRATCHPAD
    from perdure._tools.tasks.task_list import TASKS, parse_tasks

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
