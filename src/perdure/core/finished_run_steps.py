"""Record of a finished run, from its log entries: its turns and tool calls with their times."""

from collections.abc import Iterable
from typing import Literal, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from .event import Entry, Event, MessageAdded, ModelReplied, ModelRequested, ToolFinished, ToolStarted
from .message import SENT_ORIGINS, Message, ToolResult
from .program_call_id import find_program_call_id

Caller: TypeAlias = Literal["model", "program", "engine"]


class ToolCallRecord(Struct, frozen=True, kw_only=True):
    """A tool call of a finished run: its tool, arguments, result and times."""

    call_id: str
    name: str
    """Name of the tool."""
    arguments: str
    """Arguments as the model wrote them: raw JSON text. Those of programs and engines are stored as the call begins:
    empty if it never did, or if a subagent carried it out.
    """
    caller: Caller = "model"
    """Who made the call: `model` in a reply, `program` in a program that a tool carried out (code mode), `engine` with
    `run.call_tool`.
    """
    result: ToolResult | None = None
    """Result of the call; `None` if it has none yet, because the run waits for an answer."""
    started_at: float = 0.0
    """Time at which the call began, in seconds since 1970; 0 for one that was denied, or never began."""
    finished_at: float = 0.0
    """Time at which it had its result; 0 if it has none."""
    duration_seconds: float = 0.0
    """Seconds that the tool took, without waiting for permission."""


class RunStep(Struct, frozen=True, kw_only=True):
    """A turn of a finished run: a request to the model, its reply, and the tool calls of the reply."""

    turn: int
    """Number of the turn, from 1; 0 for calls that an engine made before the first one."""
    path: str = ""
    """Path of the private run of an engine that it is a turn of, such as `task:0:1` of the planner; empty for the run
    itself.
    """
    model: str = ""
    """Model that was asked."""
    requested_at: float = 0.0
    """Time of the first request of the turn, in seconds since 1970."""
    replied_at: float = 0.0
    """Time at which the reply was complete; 0 if there is none."""
    reply: Message | None = None
    tool_calls: tuple[ToolCallRecord, ...] = ()
    """Calls of the reply, in order, then those that programs and the engine made before the next turn."""


def list_run_steps(entries: Iterable[Entry]) -> list[RunStep]:
    """Return the turns of a run and of its private runs, from their entries, in the order of the requests.

    A turn whose request was repeated is listed once.
    """
    record = _RunRecord()
    for entry in entries:
        record.add(entry.event, entry.at)
    return record.build_steps()


class _RunRecord:
    """The turns and calls that have been read so far from the entries of a run and of its private runs."""

    def __init__(self) -> None:
        self._steps: list[RunStep] = []
        self._last: dict[str, int] = {}
        """The index of the last step of each path."""
        self._starts: dict[tuple[str, str], tuple[float, ToolStarted]] = {}
        """When each call began, by path and call id, which is unique in its path alone."""
        self._ends: dict[tuple[str, str], tuple[float, ToolFinished]] = {}
        self._places: dict[tuple[str, str], int] = {}
        """The index of the step in which each call began or ended, by path and call id."""

    def add(self, event: Event, at: float) -> None:
        """Read the next event."""
        if isinstance(event, ModelRequested):
            last = self._last.get(event.path)
            if last is None or self._steps[last].turn != event.turn:
                self._add_step(RunStep(turn=event.turn, path=event.path, model=event.model, requested_at=at))
        elif isinstance(event, MessageAdded):
            last = self._last.get(event.path)
            if last is not None and self._steps[last].reply is None and _is_reply(event.message):
                self._steps[last] = replace(self._steps[last], reply=event.message, replied_at=at)
        elif isinstance(event, ModelReplied):  # aside from the conversation: others may have begun meanwhile
            for place, step in enumerate(self._steps):
                if (step.turn, step.path) == (event.turn, event.path):
                    self._steps[place] = replace(step, reply=event.message, replied_at=at)
        elif isinstance(event, ToolStarted):
            self._note_call(event)
            self._starts.setdefault((event.path, event.call_id), (at, event))
        elif isinstance(event, ToolFinished):
            self._note_call(event)
            self._ends[event.path, event.call_id] = (at, event)

    def _add_step(self, step: RunStep) -> None:
        self._last[step.path] = len(self._steps)
        self._steps.append(step)

    def _note_call(self, event: ToolStarted | ToolFinished) -> None:
        if event.path not in self._last:
            self._add_step(RunStep(turn=0, path=event.path))
        self._places.setdefault((event.path, event.call_id), self._last[event.path])

    def build_steps(self) -> list[RunStep]:
        """Return the steps with their calls."""
        made: list[list[ToolCallRecord]] = []
        for step in self._steps:
            calls = () if step.reply is None else step.reply.tool_calls
            made.append([self._build_record(step.path, each.call_id, each.name, each.arguments) for each in calls])
            for each in calls:
                self._places.pop((step.path, each.call_id), None)
        for (path, call_id), place in self._places.items():
            made[place].append(self._build_direct_record(path, call_id))
        return [
            replace(step, tool_calls=tuple(calls)) if calls else step
            for step, calls in zip(self._steps, made, strict=True)
        ]

    def _build_direct_record(self, path: str, call_id: str) -> ToolCallRecord:
        """Return the record of a call that is in no reply."""
        started, finished = self._starts.get((path, call_id)), self._ends.get((path, call_id))
        name = started[1].name if started is not None else "" if finished is None else finished[1].name
        caller: Caller = "program" if find_program_call_id(call_id) else "engine"
        return self._build_record(path, call_id, name, "" if started is None else started[1].arguments, caller)

    def _build_record(
        self, path: str, call_id: str, name: str, arguments: str, caller: Caller = "model"
    ) -> ToolCallRecord:
        started_at, _ = self._starts.get((path, call_id), (0.0, None))
        finished_at, finished = self._ends.get((path, call_id), (0.0, None))
        return ToolCallRecord(
            call_id=call_id,
            name=name,
            arguments=arguments,
            caller=caller,
            result=None if finished is None else finished.result,
            started_at=started_at,
            finished_at=finished_at,
            duration_seconds=0.0 if finished is None else finished.duration_seconds,
        )


def _is_reply(message: Message) -> bool:
    """Return True if a model wrote this message, and not a host program in the assistant's name."""
    return message.role == "assistant" and message.origin not in SENT_ORIGINS
