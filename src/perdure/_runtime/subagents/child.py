"""Child runs: runs of subagents that carry out a tool call of a parent run, stored in the parent's log.

The call has no intent: the child's events record its progress. So a call that was cut off is simply made again, finds
its child in the log, and resumes it; if the child has ended, its outcome is rebuilt from the log. The child shares its
parent's log, watchers, answers, gate and budgets; its conversation is separate.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from perdure._core.log.fold import State
from perdure._core.log.past_runs import RunWithInputId
from perdure._core.log.repair import build_repair_events
from perdure._core.run.children import wait_for_child_run
from perdure._core.run.costs import count_past_usage, count_unreported_entries
from perdure._core.run.loop import execute
from perdure._core.run.outcome import Outcome, select_run_entries
from perdure._core.run.run import Run
from perdure._core.run.spec import Engine, RunPlace, get_engine_name
from perdure._core.tools.results import RunSuspended
from perdure._core.tools.tool import ToolOutput
from perdure._core.values.error import ConfigError, ToolError
from perdure._core.values.event import MessageAdded, RunResumed, RunStarted, SubagentFinished, SubagentStarted
from perdure._core.values.event_class import Event
from perdure._core.values.jsonable import error_message, replace_surrogates
from perdure._core.values.message import Message, Text
from perdure._runtime.agent.build import build_run, check_deps
from perdure._runtime.agent.output import Output, end_run_on_answer
from perdure._runtime.agent.overrides import RunOverrides
from perdure._runtime.agent.redaction import add_agent_redactors
from perdure._runtime.agent.spec import AgentSpec
from perdure._runtime.resume.outcome import rebuild_outcome
from perdure._runtime.tasks import start_task_eagerly

from .result import build_subagent_result

MAX_DEPTH = 5
"""Default for the most agents in a row below a session."""
SHOWN_ANSWER_CHARACTERS = 500
"""Characters of an answer that the `SubagentFinished` event repeats, for display."""
DEPTH_SETTING = "depth"
"""The setting in which the session of a background agent stores its depth."""


class SubagentTask(Struct, frozen=True, eq=False):
    """A task for a subagent: the agent, its prompt, and the tool call of the parent run that the task carries out."""

    name: str
    """The name by which the caller knows the agent."""
    agent: AgentSpec[Any]
    call_id: str
    """The tool call that it carries out."""
    prompt: str
    """The prompt for the agent."""
    path: str
    """The path of the child run in the log."""
    output: Output[Any] | None = None
    """The type of value that the agent has to produce; `None` for text."""
    narrow_permission: bool = True
    """True if the agent's calls need the consent of the parent's gate too."""


def get_child_run_path(parent: Run, call_id: str, segment: str) -> str:
    """Return the log path of a tool call's child run: the recorded path, or a new one that ends with `segment`."""
    begun = parent.state.child_paths_by_call.get(call_id)
    return begun or (f"{parent.path}/{segment}" if parent.path else segment)


def check_depth(parent: Run, name: str, max_depth: int) -> None:
    """Raise `ToolError` if a subagent of this run would be nested deeper than allowed."""
    deep = get_delegation_depth(parent) + 1
    if deep > max_depth:
        raise ToolError(
            f"{name!r} cannot be given a task from here: it would be agent number {deep} in a row, and at most "
            f"{max_depth} are allowed. Do the work yourself, or report what is missing."
        )


def get_delegation_depth(run: Run) -> int:
    """Return the depth of a run in the tree of agents: 0 for the user's session, 1 for its subagent, and so on.

    A private run of an engine is as deep as the run of the engine.
    """
    top, depth = run.state, 0
    while top.parent is not None:
        depth += not top.is_private
        top = top.parent
    return int(top.settings.get(DEPTH_SETTING, 0)) + depth


async def run_subagent(task: SubagentTask, parent: Run) -> ToolOutput:
    """Run the subagent for this task, or resume it, and return its answer as a tool result.

    Raises `RunSuspended` if the subagent waits for an answer.
    """
    async with _lock_path(parent, task.path):
        state = parent.state.get_child(task.path)
        past = state.runs_by_input_id.get(task.call_id)
        if past is not None and past.run_ended_event is not None:
            outcome = rebuild_outcome(parent.session_id, state, past, past.run_ended_event)
        else:
            outcome = await _run_child_or_repair(task, parent, state, past)
        result = build_subagent_result(task.name, outcome, task.output, task.path)
        if state.labels:
            result = replace(result, labels=tuple(state.labels))
        if task.call_id in parent.state.subagents:
            await parent.emit(_build_subagent_finished(task, parent, outcome.status, str(result.content)))
    return result


@asynccontextmanager
async def _lock_path(parent: Run, path: str) -> AsyncGenerator[None]:
    """Async context manager: lock the path of a subagent, so that it works on one task at a time."""
    lock: asyncio.Lock = parent.scratch.setdefault(f"turn of {path}", asyncio.Lock())
    async with lock:
        yield


async def _run_child_or_repair(
    task: SubagentTask, parent: Run, state: State, past: RunWithInputId | None
) -> Outcome[Any]:
    """Perform the child run. After an error, end it in the log before the error is raised."""
    if past is None and state.is_waiting:
        raise RunSuspended  # an earlier task of this agent waits for an answer: this one has to wait for it
    try:
        return await _open_and_drive_child(task, parent, state, past)
    except (Exception, asyncio.CancelledError) as error:
        await record_failed_task(parent, SubagentStarted(task.call_id, task.name, task.prompt, task.path), error)
        raise


async def record_failed_task(parent: Run, started: SubagentStarted, error: BaseException) -> None:
    """Record in the log of the parent run that a subagent's task has failed or was cancelled.

    Works also if the subagent could not be built or started.
    """
    stopped = isinstance(error, asyncio.CancelledError)
    ending = ("cancelled", "cancelled", "") if stopped else ("failed", type(error).__name__, error_message(error))
    given = [] if started.call_id in parent.state.subagents else [parent.stamp_event(started)]
    finished = SubagentFinished(started.call_id, started.name, ending[0], ending[2][:SHOWN_ANSWER_CHARACTERS])
    left = build_repair_events(parent.state.get_child(started.child), ending)
    await parent.emit(*given, *left, parent.stamp_event(finished), sync=True)


async def _open_and_drive_child(
    task: SubagentTask, parent: Run, state: State, past: RunWithInputId | None
) -> Outcome[Any]:
    """Build the child run, store its first events, and perform it; raise `RunSuspended` if it has to wait."""
    await add_agent_redactors(task.agent, state, parent.redaction)
    async with task.agent.open_lifespans():
        child = _build_child_run(task, parent, state)
        if past is not None:
            stored = await parent.log.store.read(parent.session_id)
            child.entries = select_run_entries(stored, child.run_id)
            count_unreported_entries(child, stored)
        await parent.emit(*_build_opening_events(task, parent, child, past), sync=True)
        count_past_usage(child)
        parent.children.append(child)
        try:
            work = start_task_eagerly(execute(child, _choose_engine(task)))
            outcome = await wait_for_child_run(child, work)
        finally:
            parent.children.remove(child)
            if child.is_abandoned:  # what is stored as its end does not have them
                parent.spent_beside += child.spent_beside
    if outcome.status == "waiting":
        raise RunSuspended
    return outcome


def _build_child_run(task: SubagentTask, parent: Run, state: State) -> Run:
    """Build the child run below its parent."""
    agent = task.agent
    place = RunPlace(
        session_id=parent.session_id,
        run_id=f"{parent.run_id}/{task.call_id}",
        log=parent.log,
        fanout=parent.fanout,
        mailbox=parent.mailbox.create_child_mailbox(),
        can_wait=parent.can_wait,
        parent=parent,
        is_restricted=task.narrow_permission,
        redaction=parent.redaction,
    )
    options: RunOverrides = {} if task.output is None else {"output": task.output}
    if agent.deps is None:
        options["deps"] = parent.deps
    child = build_run(agent, place, state, options)
    check_deps(child.toolbox, child.deps)
    _require_known_price(child)
    return child


def _require_known_price(child: Run) -> None:
    """Raise `ConfigError` if a parent has a cost limit and the price of the child's model is not known."""
    above = child.parent
    while above is not None and child.info.price is None:
        if above.limits.max_cost_usd is not None:
            name = child.info.name
            raise ConfigError(f"max_cost_usd needs models whose price is known, and {name!r} has none")
        above = above.parent


def _build_opening_events(task: SubagentTask, parent: Run, child: Run, past: RunWithInputId | None) -> list[Event]:
    """Return the events that start the child's run in the log, or that resume it."""
    if past is not None:
        return [child.stamp_event(RunResumed())]
    prompt = replace_surrogates(task.prompt)
    given = parent.stamp_event(SubagentStarted(task.call_id, task.name, prompt, task.path))
    return [
        *build_repair_events(child.state),
        *([] if task.call_id in parent.state.subagents else [given]),
        child.stamp_event(
            RunStarted(task.agent.name, input_id=task.call_id, engine=get_engine_name(task.agent.engine))
        ),
        child.stamp_event(MessageAdded(_build_prompt(parent, prompt))),
    ]


def _build_prompt(parent: Run, prompt: str) -> Message:
    """Build the child's first message, with the labels of everything that the parent agent, which wrote it, has
    seen.
    """
    return Message("user", (Text(prompt),), sources=(f"agent:{parent.agent_name}",), labels=tuple(parent.state.labels))


def _choose_engine(task: SubagentTask) -> Engine:
    """Return the engine of the subagent, extended to produce the requested output type."""
    engine = task.agent.engine
    if layers := task.agent.middleware_layers:
        from perdure._runtime.agent.middleware import wrap_engine  # at first use: most agents have none

        engine = wrap_engine(engine, layers)
    return engine if task.output is None else end_run_on_answer(engine, task.output)


def _build_subagent_finished(task: SubagentTask, parent: Run, status: str, answer: str) -> Event:
    """Build the `SubagentFinished` event with the beginning of the answer; the tool result has the whole answer."""
    return parent.stamp_event(SubagentFinished(task.call_id, task.name, status, answer[:SHOWN_ANSWER_CHARACTERS]))
