"""Events as lines on a screen. Above: `drive.py`. Below: `screen.py`.

The model's words go to standard output as they come; what tools do goes to standard error, a short line each.
"""

import sys
from typing import Final

from perdure.core.codec import encode_event
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
    SkillLoaded,
    SlotOpened,
    SlotUpdated,
    TextDelta,
    ToolFinished,
    ToolStarted,
    ValueKept,
)
from perdure.core.message import Message, ToolResult

from .screen import Screen, json_line, line_width, one_line
from .slot_text import slot_text

LONGEST: Final = 1000
"""Characters of a line about a call, where it need not fit a terminal."""


class TextReport:
    """For people."""

    def __init__(self, screen: Screen) -> None:
        self._screen = screen
        self._arguments: dict[str, str] = {}
        self._renderers: dict[str, str] = {}
        self._streamed = False
        """Whether words of the current reply have been shown."""

    def __call__(self, event: Event) -> None:
        if isinstance(event, (SlotOpened, SlotUpdated)):  # by whichever agent: it is for the person here
            self._slot(event)
        if event.path:
            return  # what agents below this one say is theirs to report
        match event:
            case TextDelta(text=text):
                self._streamed = True
                self._screen.say(text)
            case MessageAdded(message=message) if message.role == "assistant":
                self._reply(message)
            case ReplyDiscarded(reason=reason):
                self._break_off()
                self._line(f"the reply broke off ({reason})")
            case ToolStarted(call_id=call_id, name=name):
                self._line(f"tool {name} {self._arguments.get(call_id, '')}".rstrip())
            case ToolFinished(result=result):
                self._line(told(result))
            case MessageAdded(message=message) if message.metadata:
                self._not_attached(message)
            case _:
                self._aside(event)

    def _not_attached(self, message: Message) -> None:
        """Files that a prompt mentions and that the model does not see."""
        from perdure.context.directives.directed import NOT_ATTACHED

        for note in message.metadata.get(NOT_ATTACHED, ()):
            self._line(note)

    def _reply(self, message: Message) -> None:
        if not self._streamed:  # a model may say everything at once, at the end
            self._screen.say(message.text)
        self._break_off()
        self._arguments = {call.call_id: call.arguments for call in message.tool_calls}

    def _slot(self, event: SlotOpened | SlotUpdated) -> None:
        if isinstance(event, SlotOpened):
            self._renderers[event.slot_id] = event.renderer
        self._screen.note(slot_text(self._renderers.get(event.slot_id, ""), event.input))

    def _break_off(self) -> None:
        self._screen.end_line()
        self._streamed = False

    def _aside(self, event: Event) -> None:
        """What a person may wonder about if it is not told."""
        match event:
            case RetryScheduled():
                self._line(f"{event.error}: {event.message}; trying again in {event.delay_seconds:.1f} s")
            case FailedOver():
                self._line(f"{event.failed} failed ({event.error}); asking {event.next}")
            case GuardrailTripped():
                self._line(f"the model goes in circles ({event.guardrail}, {event.count} times): {event.action}")
            case ErrorRaised() if not event.where.startswith("tool "):  # those are told with their results
                self._line(f"{event.where}: {event.error}: {event.message}")
            case Lagged():
                self._line(f"{event.missed} events came too fast to be shown")
            case SkillLoaded(name=name, source="user"):
                self._line(f"skill {name} is loaded")
            case Compacted(upto=upto):
                self._line(f"the first {upto} messages are summed up for the model; the session keeps them")
            case ValueKept() if line := kept_line(event):
                self._line(line)
            case _:
                pass

    def _line(self, text: str) -> None:
        self._screen.note(one_line(text, line_width(sys.stderr) or LONGEST))


def told(result: ToolResult) -> str:
    """What became of a call, briefly: its status, the first line, and how much more there is."""
    first, *more = result.text.strip().splitlines() or [""]
    rest = f" (and {len(more)} lines more)" if more else ""
    return f"tool {result.name} {result.status}: {first}{rest}"


def kept_line(event: ValueKept) -> str:
    """How the list of tasks, or the page of notes, stands now; empty for whatever else tools keep."""
    from perdure.toolkits.scratchpad import SCRATCHPAD
    from perdure.toolkits.tasks import TASKS, tasks_of

    if event.name == SCRATCHPAD and isinstance(event.value, str):
        first, *more = event.value.splitlines() or ["(empty)"]
        return f"notes: {first}{f' (and {len(more)} lines more)' if more else ''}"
    if event.name != TASKS:
        return ""
    try:
        tasks = tasks_of(event.value)
    except ConfigError:  # somebody else's, under the same name
        return ""
    done = sum(task.status == "completed" for task in tasks)
    now = [task.shown for task in tasks if task.status == "in_progress"]
    return "; ".join([f"tasks: {done} of {len(tasks)} done", *now])


class JsonReport:
    """For programs: a line of JSON for each event."""

    def __init__(self, screen: Screen) -> None:
        self._screen = screen

    def __call__(self, event: Event) -> None:
        self._screen.say(json_line(encode_event(event)) + "\n")
