"""Outlines of ended runs, by which a session's state is computed without applying each of their events.

Most of a long log are runs that went as usual and ended long ago. Of those, the state has the messages, and a few sums.
A store that merges entries can outline such runs (`outline_ended_runs`) when it does so, and when the log is read give
the fold an `EndedRuns` in their place. The state is the same, as tests of random logs show.

An outline is derived from its events, and from nothing before them. It is never needed: a store that does not find one,
or does not trust it, reads the events.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Final

from msgspec import Struct

from .event import (
    Event,
    MessageAdded,
    ModelRequested,
    PermissionDecided,
    RunEnded,
    RunStarted,
    ToolFinished,
    ToolStarted,
)
from .message import NO_USAGE, Message, ToolCall, ToolResult, Usage
from .past_run_totals import CRASH_REASONS, RunWithInputId, UncountedRuns

if TYPE_CHECKING:
    from .fold import State

OUTLINE_VERSION: Final = 1
"""Version of outlines. Increased when one says something else, or when the fold makes something else of the same
events: an outline that was stored by another version is ignored."""


class InputIdMessageRange(Struct, frozen=True, array_like=True, gc=False):
    """The `input_id` of an ended run, and the positions of that run's messages among those of all ended runs."""

    input_id: str
    first_message: int
    """Index of its first message among those of the outline."""
    end_message: int
    """Index after its last message."""


class EndedRunsSummary(Struct, frozen=True, array_like=True, gc=False):
    """Summary of consecutive ended runs: tokens, turns, cost, the last tool result, and runs with an `input_id`."""

    totals: UncountedRuns
    turns_begun: int
    """Number of turns, without further attempts at one."""
    latest_result: tuple[int, int] | None
    """The result that was stored last: index of its message, and index in it; `None` without tool calls."""
    inputs: list[InputIdMessageRange]
    """Those of the runs whose input has an id."""


class EndedRunsOutline(Struct, frozen=True):
    """Outline of consecutive ended runs in a list of events: the positions of their messages, and a summary.

    The last of the runs is not part of the summary: its events are folded.
    """

    first: int
    """Index of the first event."""
    last_run: int
    """Index of the first event of the last run."""
    end: int
    """Index after the last event."""
    messages: list[list[int]]
    """The events that each message is made of: one `MessageAdded`, or the `ToolFinished` of a reply's calls, in order
    of the calls. The two are told apart by the class of the event."""
    ends: list[int]
    """Indices of the `RunEnded` of the runs in `summary.inputs`."""
    summary: EndedRunsSummary


class EndedRuns(Struct, frozen=True, kw_only=True):
    """Consecutive ended runs in outline (messages and totals), from which a session's state is computed."""

    path: ClassVar[str] = ""
    """They are runs of the session's own agent."""

    summary: EndedRunsSummary
    first_event: RunStarted
    """The event with which the first of the runs begins."""
    messages: list[Message]
    """Their messages, without those of the last run."""
    result_messages: list[int]
    """Indices of those messages that have the results of tool calls."""
    ends: list[RunEnded]
    """How the runs in `summary.inputs` ended."""
    last_run: list[Event]
    """All events of the last run."""
    list_events: Callable[[], list[Event]]
    """Returns all events of all runs."""


def apply_ended_runs(state: "State", runs: EndedRuns) -> None:
    """Apply ended runs to the state of a session: the result is the same as if all their events were applied."""
    if not has_nothing_open(state):
        state.apply_all(runs.list_events())
        return
    summary, messages, transcript = runs.summary, runs.messages, state.transcript
    state.apply_run_started(runs.first_event)  # counts the run before
    state.past_runs.uncounted.append(summary.totals)
    before = len(transcript.messages)
    transcript.extend(messages)
    state.call_ids.update(_list_call_ids(messages, runs.result_messages))
    state.view_turns += summary.turns_begun
    if summary.latest_result is not None:
        place, part = summary.latest_result
        state.latest_results = messages[place].tool_results
        state.latest_result = state.latest_results[part]
    for run, ended in zip(summary.inputs, runs.ends, strict=True):
        past = RunWithInputId(ended.run_id, before + run.first_message, before + run.end_message, ended)
        state.runs_by_input_id[run.input_id] = past
    state.apply_all(runs.last_run)


def _list_call_ids(messages: Sequence[Message], places: Sequence[int]) -> list[str]:
    return [part.call_id for place in places for part in messages[place].parts if type(part) is ToolResult]


def has_nothing_open(state: "State") -> bool:
    """Return True if a session's state has no open calls, decisions or slots that a later run could change.

    Questions may be: the end of the last run, which is folded by its events, removes them.
    """
    about_calls = state.open_calls or state.started_calls or state.decisions or state.child_paths_by_call
    return not (about_calls or state.slots)


# -- outlines ----------------------------------------------------------------------------------------------------------


class _UsualRun:
    """A run that is read event by event, as long as nothing unusual is found in it."""

    def __init__(self, first: int, started: RunStarted) -> None:
        self.first = first
        self.end = first + 1
        self.started = started
        self.ended: RunEnded | None = None
        self.messages: list[list[int]] = []
        self.usage = NO_USAGE
        self.turns = self.turns_begun = 0
        self.latest_result: tuple[int, int] | None = None
        self._reply = 0
        self._finished_at: dict[str, int] = {}
        """The calls of the last reply, in order: index of the event with the result of each; 0 while it has none."""

    def read(self, event: Event) -> bool:
        """Read the next event; return False if it is not part of a usual run."""
        check = _USUAL_EVENTS.get(type(event))
        if check is None or event.path or not check(self, event):
            return False
        self.end += 1
        return True

    def add_message(self, event: MessageAdded) -> bool:
        message = event.message
        if message.labels or self._finished_at:
            return False
        calls: list[str] = []
        if message.role == "assistant":
            calls = [part.call_id for part in message.parts if type(part) is ToolCall]
            if message.usage is not None:
                if message.usage.reported_usd is not None:
                    return False  # sums of money depend on their order
                self.usage += message.usage
        if calls:
            self._reply, self._finished_at = self.end, dict.fromkeys(calls, 0)
        else:
            self.messages.append([self.end])
        return True

    def add_request(self, event: ModelRequested) -> bool:
        self.turns = max(self.turns, event.turn)
        self.turns_begun += event.attempt == 1
        return not event.aside

    def add_call(self, event: ToolStarted) -> bool:
        return self._finished_at.get(event.call_id) == 0

    def add_decision(self, event: PermissionDecided) -> bool:
        return event.scope == "once" and self._finished_at.get(event.call_id) == 0

    def add_result(self, event: ToolFinished) -> bool:
        call_id, result, places = event.call_id, event.result, self._finished_at
        if result.labels or result.preview or result.call_id != call_id or call_id not in places:
            return False
        places[call_id] = self.end
        if all(places.values()):
            self.latest_result = (len(self.messages) + 1, [*places].index(call_id))
            self.messages += ([self._reply], [*places.values()])
            self._finished_at = {}
        return True

    def finish(self, event: RunEnded) -> bool:
        self.ended = event
        return bool(self.turns) and not self._finished_at and event.reason not in CRASH_REASONS


_USUAL_EVENTS: Final[dict[type[Event], Callable[[_UsualRun, Any], bool]]] = {
    MessageAdded: _UsualRun.add_message,
    ModelRequested: _UsualRun.add_request,
    ToolStarted: _UsualRun.add_call,
    PermissionDecided: _UsualRun.add_decision,
    ToolFinished: _UsualRun.add_result,
    RunEnded: _UsualRun.finish,
}


def outline_ended_runs(events: Sequence[Event]) -> list[EndedRunsOutline]:
    """Return an outline of each sequence of two or more ended runs; a run with unusual events ends a sequence."""
    outlines: list[EndedRunsOutline] = []
    runs: list[_UsualRun] = []
    place = 0
    while place < len(events):
        run = _read_usual_run(events, place)
        if run is None:
            outlines += _outline_runs(runs)
            runs = []
            place += 1
        else:
            runs.append(run)
            place = run.end
    return outlines + _outline_runs(runs)


def _read_usual_run(events: Sequence[Event], first: int) -> _UsualRun | None:
    """Return the run that begins with this event; `None` if none does, if it has not ended, or is an unusual one."""
    started = events[first]
    if type(started) is not RunStarted or started.path:
        return None
    run = _UsualRun(first, started)
    while run.end < len(events) and run.read(events[run.end]):
        if run.ended is not None:
            return run
    return None


def _outline_runs(runs: Sequence[_UsualRun]) -> list[EndedRunsOutline]:
    if len(runs) < 2:  # noqa: PLR2004 - the last one is folded event by event
        return []
    messages: list[list[int]] = []
    latest: tuple[int, int] | None = None
    usage, inputs, ends, costs = NO_USAGE, list[InputIdMessageRange](), list[int](), list[float]()
    is_cost_known = True
    for run in runs[:-1]:
        before = len(messages)
        messages += run.messages
        usage = _add_usage(usage, run.usage)
        if run.latest_result is not None:
            latest = (before + run.latest_result[0], run.latest_result[1])
        if run.started.input_id:
            inputs.append(InputIdMessageRange(run.started.input_id, before, len(messages)))
            ends.append(run.end - 1)
        if run.ended is not None and run.ended.cost_usd is not None:
            costs.append(run.ended.cost_usd)
        elif run.ended is not None and run.ended.usage.total_tokens:
            is_cost_known = False
    totals = UncountedRuns(usage, sum([run.turns for run in runs[:-1]]), costs, is_cost_known)
    summary = EndedRunsSummary(totals, sum([run.turns_begun for run in runs[:-1]]), latest, inputs)
    return [EndedRunsOutline(runs[0].first, runs[-1].first, runs[-1].end, messages, ends, summary)]


def _add_usage(one: Usage, other: Usage) -> Usage:
    return other if one is NO_USAGE else one + other
