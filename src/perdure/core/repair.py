"""What has to be added to a log so that a conversation can go on. Above: the driver, the loop. Below: `fold.py`.

Repairs are appended, never patched. Nothing here asks for time, chance or the outside world.
"""

from .event import Event, QuestionWithdrawn, RunEnded, SubagentFinished, SubagentStarted, ToolFinished
from .fold import State
from .message import Status, Text, ToolResult

INTERRUPTED = (
    "The runtime stopped while this ran. It may or may not have taken effect. Check the state before repeating."
)
NOT_STARTED = "This call was not started: the run ended before its turn came. It had no effect."


CUT_OFF = ("failed", "interrupted", "the process ended")
UNANSWERED = ("cancelled", "unanswered", "the conversation went on without an answer")
CRASHES = ("parked", "crash_loop", "the process ended again and again at this place")
LEFT_ALONE = ("cancelled", "left_alone", "the run that it worked for has ended")
"""How a run is closed that nobody drives: status, reason, words."""


def repairs(state: State, ending: tuple[str, str, str] = CUT_OFF) -> list[Event]:
    """What has to be added to a log whose last run was cut off, so that a new message can follow.

    A call that was started becomes *unknown*, one that was not says so, and the run is closed. Repairing twice finds
    nothing the second time.
    """
    events = repairs_below(state, ending)
    run_id = state.run.run_id if state.run else ""
    for call in state.unsettled:
        events += _settled(state, call.call_id, call.name, run_id, started=call.call_id in state.begun)
    for start in [start for call_id, start in state.started.items() if call_id not in state.open_calls]:
        events += _settled(state, start.call_id, start.name, start.run_id, started=True)
    if state.interrupted:
        status, reason, words = ending
        ended = RunEnded(status, reason, words, state.usage, turns=state.turns, run_id=run_id, path=state.path)
        events.append(ended)
    return events


def repairs_below(state: State, ending: tuple[str, str, str]) -> list[Event]:
    """The same for the runs that carried out calls of this one: each is closed, and its task given up."""
    events: list[Event] = [event for child in state.open_below.values() for event in repairs(child, ending)]
    own = [each for each in state.subagents.values() if each.child.rpartition("/")[0] == state.path]  # in this log
    return events + [_given_up(each, ending) for each in own]


def _given_up(task: SubagentStarted, ending: tuple[str, str, str]) -> SubagentFinished:
    status, _, words = ending
    return SubagentFinished(task.call_id, task.name, status, words, run_id=task.run_id, path=task.path)


def _settled(state: State, call_id: str, name: str, run_id: str, *, started: bool) -> list[Event]:
    status, text = (Status.UNKNOWN, INTERRUPTED) if started else (Status.CANCELLED_BEFORE_START, NOT_STARTED)
    result = ToolResult(call_id, name, (Text(text),), status)
    return [*withdrawals(state, result), ToolFinished(call_id, name, result, run_id=run_id, path=state.path)]


def withdrawals(state: State, result: ToolResult) -> list[Event]:
    """A call that has its result does not wait any more for what it has asked."""
    asked = [each for each in state.questions if each.about == "slot" and each.path == state.path]
    left = [each for each in asked if result.call_id in [call.get("call_id") for call in each.calls]]
    reason = f"the call that asked is over ({result.status}), and nobody waits for an answer"
    return [QuestionWithdrawn(each.ask_id, reason, run_id=each.run_id, path=each.path) for each in left]
