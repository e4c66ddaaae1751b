"""Private runs: runs by which an engine has the model do a task outside the conversation, with or without tools.

A private run is a run of its own below a path in the log of the session, as that of a subagent is. So its tool calls
have permissions, intents and results, it can wait for a person, and after a crash it is found in the log by its name:
ended, or resumed where it was. Its turns and tool calls count towards the limits of the run of the engine.
"""

import asyncio
from collections.abc import Callable, Generator
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from perdure._core.log.fold import State
from perdure._core.log.past_runs import RunWithInputId
from perdure._core.people.mailbox import FOLLOW_UP_POST
from perdure._core.run.answers import ENGINE_ORIGIN
from perdure._core.run.children import wait_for_child_run
from perdure._core.run.costs import count_past_usage
from perdure._core.run.loop import execute, react
from perdure._core.run.outcome import Outcome
from perdure._core.run.run import Run
from perdure._core.run.spec import RECALL_ATTRIBUTE, PrivateRunTask, Reminder, RunSpec
from perdure._core.run.stop import KEPT_FOR_ANSWER
from perdure._core.run.turn import deliver_due_messages, run_between_turns
from perdure._core.tools.results import RunSuspended
from perdure._core.values.error import UsageError
from perdure._core.values.event import MessageAdded, RunResumed, RunStarted
from perdure._core.values.event_class import Event
from perdure._core.values.jsonable import replace_surrogates
from perdure._core.values.message import Message, Text, merge_labels

from .private_settings import get_private_path

NEXT_ROUND_ORIGIN = "grade"
"""Origin of the message with which `until` begins another round: the feedback of its grader."""
TURNS_FOR_ANSWER = 1
"""Turns of the run that private runs before the answer leave for it."""

LIMITS_OF_THE_RUN = frozenset({"token_budget", "max_cost", "timeout", "max_tool_calls", "budget"})
"""Reasons of a private run that has used up its part of a limit of the run: no other one could go on."""
_REMINDERS_KEY = "perdure:engine_reminders"


class PrivateRunResult(Struct, frozen=True):
    """The result of a private run (outside the conversation): its status and reason, and the last text of the model."""

    status: str
    reason: str = ""
    text: str = ""
    is_new: bool = True
    """False if it was found in the log."""

    @property
    def is_done(self) -> bool:
        """True if the model has answered."""
        return self.status == "done"


class EngineRunStopped(Exception):
    """Raised in an engine to end its run, which was cancelled or reached a limit while the engine asked the model."""

    def __init__(self, outcome: Outcome[Any]) -> None:
        super().__init__(outcome.reason)
        self.outcome = outcome
        """The outcome of the run of the engine."""


async def run_privately(run: Run, task: PrivateRunTask) -> PrivateRunResult:
    """Carry out a task in a run outside the conversation: begin it, resume it after a crash, or read its stored answer.

    Raises `RunSuspended` if it waits for a person, or this process leaves the run, and `EngineRunStopped` if the run of
    the engine is over.
    """
    path = get_private_path(run, task.name)
    for step in run.spec.between_turns:
        if (recall := getattr(step, RECALL_ATTRIBUTE, None)) is not None:
            await recall(run, path)
    state = run.state.get_child(path)
    past = state.runs_by_input_id.get(task.name)
    if past is not None and past.run_ended_event is not None:
        answer = _read_answer(state, past)
    elif run.leaving_reason:
        raise RunSuspended
    else:
        answer = await _carry_out(run, task, past)
        if run.cancel_mode is not None:
            raise EngineRunStopped(run.outcome("cancelled", "cancelled"))
    if (answer.status, answer.reason) == ("stopped", "stop_condition"):
        raise EngineRunStopped(run.outcome("stopped", "stop_condition"))
    return answer


async def deliver_and_compact(run: Run) -> None:
    """Deliver queued messages and compact the conversation, for an engine that begins with a private run.

    Queued messages are added, such as those that woke the session, and a conversation that is too long is compacted, as
    before a turn.
    """
    if run.state.turns or run.leaving_reason:
        return
    if run.mailbox.has_messages_due and not run.state.is_steered and not run.is_paused:
        await deliver_due_messages(run)
    await run_between_turns(run)


def compute_private_turn_limit(run: Run, name: str, most: int) -> int:
    """Return how many turns a private run may take: at most `most`, and 0 if its parent run has none left.

    One turn of the run is left for its answer. Turns that the private run took before a crash count.
    """
    if run.limits.max_turns is None or find_private_answer(run, name) is not None:
        return most
    begun = run.state.children.get(get_private_path(run, name))
    left = run.limits.max_turns - run.state.turns - TURNS_FOR_ANSWER
    return max(0, min(most, left + (0 if begun is None else begun.turns)))


def find_private_answer(run: Run, name: str) -> PrivateRunResult | None:
    """Return the answer of a private run that has ended, from the log; `None` if it has not ended."""
    state = run.state.children.get(get_private_path(run, name))
    past = None if state is None else state.runs_by_input_id.get(name)
    return None if state is None or past is None or past.run_ended_event is None else _read_answer(state, past)


def _read_answer(state: State, past: RunWithInputId) -> PrivateRunResult:
    messages = state.messages[past.first_message_index : past.end_message_index]
    text = next((each.text for each in reversed(messages) if each.role == "assistant"), "")
    ended = past.run_ended_event
    status, reason = ("", "") if ended is None else (ended.status, ended.reason)
    return PrivateRunResult(status, reason, text, is_new=False)


async def _carry_out(run: Run, task: PrivateRunTask, past: RunWithInputId | None) -> PrivateRunResult:
    """Build the private run, store its first events, and perform it to its end."""
    builder = run.spec.private_run_builder
    if builder is None:
        raise UsageError("this run was built without a private_run_builder: see RunSpec")
    child = builder(run, task)
    await run.emit(*_build_opening_events(run, task, child, past))
    count_past_usage(child)
    run.children.append(child)
    try:
        outcome = await wait_for_child_run(child, asyncio.ensure_future(execute(child, react)))
    finally:
        run.children.remove(child)
    if outcome.status == "waiting":
        raise RunSuspended
    return PrivateRunResult(outcome.status, outcome.reason, outcome.text)


def _build_opening_events(run: Run, task: PrivateRunTask, child: Run, past: RunWithInputId | None) -> list[Event]:
    """Return the events that begin the private run in the log, or that resume it."""
    if past is not None and len(child.state.messages) > past.first_message_index:
        return [child.stamp_event(RunResumed())]
    prompt = Message(
        "user",
        (Text(replace_surrogates(task.prompt)),),
        origin=ENGINE_ORIGIN,
        sources=merge_labels((f"agent:{run.agent_name}",), *run.state.labels.values()),
        labels=tuple(run.state.labels),  # of the conversation, which the private run sees
    )
    if past is not None:  # its prompt was lost
        return [child.stamp_event(RunResumed()), child.stamp_event(MessageAdded(prompt))]
    started = RunStarted(run.agent_name, input_id=task.name, private=True)
    return [child.stamp_event(started), child.stamp_event(MessageAdded(prompt))]


def override_run_spec(run: Run, **changes: Callable[[RunSpec], Any]) -> None:
    """Override fields of a run's `RunSpec`, such as its tools, now and after each handoff to another agent.

    Each change is a function of the spec that returns the new value of the field.
    """

    def apply_changes(changed: Run) -> None:
        spec = changed.spec
        values = {name: change(spec) for name, change in changes.items()}
        values["between_turns"] = [*spec.between_turns, apply_after_handoff]
        changed.switch_spec(replace(spec, **values))

    def apply_after_handoff(changed: Run) -> None:
        if apply_after_handoff not in changed.spec.between_turns:
            apply_changes(changed)

    apply_changes(run)


def add_reminder(run: Run, name: str, reminder: Reminder) -> None:
    """Add a reminder to a run: text at the end of each request to the model, which is never stored.

    It replaces that of the same name, which an engine has added in a round before.
    """
    named: dict[str, Reminder] = run.scratch.setdefault(_REMINDERS_KEY, {})
    is_new, named[name] = name not in named, reminder

    def remind(reminded: Run) -> Any:
        return named[name](reminded)

    if is_new:
        override_run_spec(run, reminders=lambda spec: [*spec.reminders, remind])


def find_work_index(run: Run) -> int:
    """Return the index of the message with which the work of an engine began: a later round of `until` is new work."""
    first = run.state.first_message_index
    rounds = [index for index, each in enumerate(run.messages[first:], first) if each.origin == NEXT_ROUND_ORIGIN]
    return rounds[-1] if rounds else first


@contextmanager
def keep_budget_for_answer(run: Run) -> Generator[None]:
    """Keep a part of what is left of shared budgets for the answer, while private runs before it are made."""
    kept = [(each, each.reserve_part(KEPT_FOR_ANSWER)) for each in run.spec.budgets]
    try:
        yield
    finally:
        for budget, reservation in kept:
            if reservation is not None:
                budget.settle(reservation, 0, 0.0)


def has_continued_with_follow_up(run: Run, first: int | None = None) -> bool:
    """Return True if the run continued after an answer, because a follow-up message was queued.

    `first` is the index of the first message that is considered; without it, it is that of the first one of the run.
    """
    messages = run.messages[run.state.first_message_index if first is None else first :]
    return any(later.origin == FOLLOW_UP_POST and earlier.role == "assistant" for earlier, later in pairwise(messages))


def is_answered(run: Run, outcome: Outcome[Any]) -> bool:
    """Return True if the model has answered: with text, or by calling the tool that takes the answer."""
    if outcome.status == "done":
        return True
    answer_tool = run.spec.answer_tool
    is_ended_by_tool = (outcome.status, outcome.reason) == ("stopped", "terminated")
    return bool(answer_tool) and is_ended_by_tool and any(each.name == answer_tool for each in run.state.latest_results)
