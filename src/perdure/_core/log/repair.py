"""Repair of a log after an interrupted run: build events that end the run, so that a new message can follow.

Repairs are appended; entries are never changed. They depend on nothing but the state: no clock, no randomness, no I/O.
"""

from perdure._core.values.event import RunEnded, SubagentFinished, SubagentStarted, ToolFinished
from perdure._core.values.event_class import Event, QuestionWithdrawn
from perdure._core.values.message import Status, Text, ToolResult

from .fold import State
from .past_runs import CRASH_REASONS, find_cost_usd
from .status import has_unreported_task

INTERRUPTED_CALL_TEXT = (
    "The runtime stopped while this ran. It may or may not have taken effect. Check the state before repeating."
)
READ_IS_REPEATABLE = "It only reads, and changes nothing: it can be repeated."
INTERRUPTED_READ_TEXT = f"The runtime stopped while this ran. {READ_IS_REPEATABLE}"
NOT_STARTED_CALL_TEXT = "This call was not started: the run ended before its turn came. It had no effect."


ENDING_PROCESS_DIED = ("failed", "interrupted", "the process ended")
ENDING_UNANSWERED = ("cancelled", "unanswered", "the conversation went on without an answer")
ENDING_CRASH_LOOP = ("parked", "crash_loop", "the process ended again and again at this place")
ENDING_PARENT_ENDED = ("cancelled", "left_alone", "the run that it worked for has ended")
ENDING_LOG_DAMAGED = ("failed", "log_damaged", "entries of its log were lost to damage")
"""Status, reason and error text with which a run is closed that no process drives."""


def build_repair_events(state: State, ending: tuple[str, str, str] = ENDING_PROCESS_DIED) -> list[Event]:
    """Build the events that end an interrupted run and give its open tool calls a result.

    A new message can follow them.

    A call that was started gets the status *unknown*, one that was not gets a result saying so, and the run is ended.
    If entries of the run were lost to damage, every open call may have been started, and is *unknown*. Applying the
    repairs twice adds nothing the second time.
    """
    if not (state.is_interrupted or state.open_calls or state.started_calls or has_open_children(state)):
        return []  # nearly always, before a run
    events = build_child_repairs(state, ending)
    run_id = state.run.run_id if state.run else ""
    begun = state.begun_call_ids
    for call in state.unsettled_calls:
        started = state.has_lost_entries or call.call_id in begun
        events += _build_lost_result(state, call.call_id, call.name, run_id, started=started)
    events += build_direct_call_repairs(state)
    if state.is_interrupted:
        status, reason, words = ending
        is_crash = reason in CRASH_REASONS  # then the provider may bill requests whose replies were lost
        usage = state.usage + state.unanswered_usage if is_crash else state.usage
        cost_usd = find_cost_usd(state, with_unanswered=is_crash)
        totals = (usage, cost_usd, state.turns, has_unreported_task(state.settings))
        events.append(RunEnded(status, reason, words, *totals, run_id=run_id, path=state.path))
    return events


def build_direct_call_repairs(state: State) -> list[Event]:
    """Build the events that record an `unknown` result for each direct tool call that was started and has none."""
    lost = [start for call_id, start in state.started_calls.items() if call_id not in state.open_calls]
    return [
        event
        for start in lost
        for event in _build_lost_result(state, start.call_id, start.name, start.run_id, started=True)
    ]


def build_child_repairs(state: State, ending: tuple[str, str, str]) -> list[Event]:
    """Build the events that end the interrupted runs of subagents that carried out tool calls of this run."""
    if not has_open_children(state):
        return []
    events: list[Event] = [
        event for child in state.open_children.values() for event in build_repair_events(child, ending)
    ]
    own = [each for each in state.subagents.values() if each.child.rpartition("/")[0] == state.path]  # in this log
    return events + [_build_task_given_up(each, ending) for each in own]


def has_open_children(state: State) -> bool:
    """Return True if subagents of this run have runs or tasks that have not ended."""
    return bool(state.open_children or state.subagents)


def _build_task_given_up(task: SubagentStarted, ending: tuple[str, str, str]) -> SubagentFinished:
    status, _, words = ending
    return SubagentFinished(task.call_id, task.name, status, words, run_id=task.run_id, path=task.path)


def describe_interrupted_call(effect: str) -> str:
    """Return a text for the model about a tool call that a crash interrupted, by the effect of its tool."""
    return INTERRUPTED_READ_TEXT if effect == "read" else INTERRUPTED_CALL_TEXT


def _build_lost_result(state: State, call_id: str, name: str, run_id: str, *, started: bool) -> list[Event]:
    if started:
        status, text = Status.UNKNOWN, describe_interrupted_call(state.find_started_effect(call_id))
    else:
        status, text = Status.CANCELLED_BEFORE_START, NOT_STARTED_CALL_TEXT
    result = ToolResult(call_id, name, (Text(text),), status)
    return [*build_withdrawals(state, result), ToolFinished(call_id, name, result, run_id=run_id, path=state.path)]


def build_withdrawals(state: State, result: ToolResult) -> list[Event]:
    """Build the events that withdraw the open questions of a tool call that now has its result."""
    asked = [each for each in state.open_questions if each.about == "slot" and each.path == state.path]
    left = [each for each in asked if result.call_id in [call.get("call_id") for call in each.calls]]
    reason = f"the call that asked is over ({result.status}): no answer is needed any more"
    return [QuestionWithdrawn(each.ask_id, reason, run_id=each.run_id, path=each.path) for each in left]
