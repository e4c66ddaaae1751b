"""Past runs of a session, from its log: their totals, the cost of one, and its turns and tool calls with times."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Literal, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from perdure._core.model.protocol import Price
from perdure._core.values.clock import find_program_call_id
from perdure._core.values.event import (
    Entry,
    MessageAdded,
    ModelReplied,
    ModelRequested,
    RunEnded,
    ToolFinished,
    ToolStarted,
)
from perdure._core.values.event_class import Event
from perdure._core.values.message import NO_USAGE, SENT_ORIGINS, Message, ToolResult, Usage

if TYPE_CHECKING:
    from .fold import State


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
            if last is not None and self._steps[last].reply is None and is_reply(event.message):
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


def is_reply(message: Message) -> bool:
    """Return True if a model wrote this message, and not a host program in the assistant's name."""
    return message.role == "assistant" and message.origin not in SENT_ORIGINS


CRASH_REASONS = frozenset({"interrupted", "crash_loop", "log_damaged"})
"""Reasons of runs that were ended in the log after their process had died."""


class RunWithInputId(Struct, frozen=True):
    """A run whose caller gave an `input_id`: when the input is sent again, its outcome is returned."""

    run_id: str
    first_message_index: int
    """Index of its first message in the transcript."""
    end_message_index: int = 0
    """Index after its last message in the transcript."""
    run_ended_event: RunEnded | None = None
    """The event that ended it; `None` while it has not ended."""


class PastRunTotals(Struct, frozen=True, gc=False):
    """Tokens, turns and cost of several runs of a session, added up."""

    usage: Usage = NO_USAGE
    turns: int = 0
    cost_usd: float | None = 0.0
    """Cost in US dollars; `None` if the price of one of them is not known."""

    def with_run(self, usage: Usage, turns: int, ended: RunEnded | None) -> "PastRunTotals":
        """Return the totals of these runs and another one; `ended` is the event that ended it, or `None`."""
        used = usage if self.usage is NO_USAGE else self.usage + usage
        return PastRunTotals(used, self.turns + turns, add_run_cost(self.cost_usd, ended))


def add_run_cost(past_usd: float | None, ended: RunEnded | None) -> float | None:
    """Add the cost of a run that has ended to the cost of the runs before it; `None` if either is not known.

    A run that has not ended, or that has no known cost and used no tokens, adds nothing.
    """
    if ended is None or past_usd is None:
        return past_usd
    if ended.cost_usd is None:
        return None if ended.usage.total_tokens else past_usd
    return past_usd + ended.cost_usd


def estimate_usage(request: ModelRequested) -> Usage:
    """Return the estimated input tokens of a model request that got no reply."""
    tokens = request.estimated_tokens
    return Usage(tokens, precision="estimated") if tokens else NO_USAGE


def find_usage_beside(ended: Usage, logged: Usage) -> Usage:
    """Return the tokens of models beside a run, such as graders: those it ended with, without those in its log."""
    beside = ended.minus(logged)
    if ended.reported_usd is None or logged.reported_usd is None:
        return beside
    return replace(beside, reported_usd=ended.reported_usd - logged.reported_usd)


def find_cost_usd(state: "State", *, with_unanswered: bool = False) -> float | None:
    """Return the cost of a run and its subagents in US dollars; `None` if a price is not known.

    `with_unanswered` adds the estimated input of requests without a reply, which may be billed after a crash.
    """
    price = Price.from_tuple(state.price_usd)
    own, asked = state.own_cost_usd(price), state.own_unanswered_usage if with_unanswered else NO_USAGE
    if own is None and not state.own_usage.total_tokens:
        own = 0.0
    if asked.total_tokens:
        own = None if own is None or price is None else own + price.cost_usd(asked)
    below = [find_cost_usd(child, with_unanswered=with_unanswered) for child in state.open_children.values()]
    if own is None or None in below:
        return None
    return own + state.children_usd + sum([each or 0.0 for each in below])
