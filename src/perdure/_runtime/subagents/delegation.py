"""Tools by which a model gives tasks to other agents by name, waits for them, lists them and cancels them.

editor = Agent(model, extensions=[delegation([researcher, writer])])
editor = orchestrator(planner, [researcher, writer])
"""

from collections.abc import Sequence
from typing import Annotated, Any, TypeVar

from msgspec.structs import replace

from perdure._core.run.calling_run import get_run_of_call
from perdure._core.run.run import Run
from perdure._core.tools.context import ToolContext
from perdure._core.tools.tool import Tool, ToolOutput, tool
from perdure._core.values import checks
from perdure._core.values.error import ConfigError, ToolError
from perdure._core.values.event import ValueKept
from perdure._runtime.agent.extension import Extension
from perdure._runtime.agent.handoff import sanitize_agent_name
from perdure._runtime.agent.spec import AgentSpec

from .background import BackgroundAgents
from .child import MAX_DEPTH, SubagentTask, check_depth, get_child_run_path, run_subagent
from .jobs import (
    BackgroundAgentTask,
    build_background_job,
    build_job_started_events,
    is_result_unreported,
    list_background_jobs,
)
from .result import get_last_text
from .tool import TASK_DESCRIPTION

A = TypeVar("A", bound=AgentSpec[Any])

MOST_AT_ONCE = 4
"""Default number of agents that work in the background at the same time."""
WAIT_SECONDS = 300.0
"""Default timeout of `wait_for_agents`."""
_SHOWN_CHARACTERS = 500
_HISTORY_PREFIX = "agent_history:"
_REPORTED_KEY = "agents_told"


def delegation(
    agents: Sequence[AgentSpec[Any]],
    *,
    most_at_once: int = MOST_AT_ONCE,
    max_depth: int = MAX_DEPTH,
    narrow_permission: bool = True,
) -> Extension:
    """Build an extension with tools to give tasks to these agents, wait for them, list them and cancel them.

    Args:
        agents: The agents that the model can give tasks to. It is shown their names and descriptions.
        most_at_once: The number of them that work in the background at the same time; further tasks are queued.
        max_depth: The most agents in a row between the session and one of these agents, itself included.
        narrow_permission: False if the `permission` of these agents decides alone; otherwise their calls need the
            consent of that of the agent which gives the tasks, too.
    """
    named = _index_by_name(agents)
    checks.require_int("delegation", "most_at_once", most_at_once, 1)
    checks.require_int("delegation", "max_depth", max_depth, 1)
    checks.require_bool("delegation", "narrow_permission", narrow_permission)
    crew = BackgroundAgents(named, most_at_once, narrow_permission=narrow_permission)
    tools = [
        _build_delegate_tool(crew, max_depth),
        _build_wait_tool(crew),
        _build_list_tool(crew),
        _build_cancel_tool(crew),
    ]
    return Extension(
        name="delegation",
        tools=[*tools, _build_clear_history_tool(crew)],
        agents=tuple(named),
        between_turns=[crew.resume_and_report_tasks],
        background=crew,
        lifespan=crew.lifespan,
    )


def orchestrator(
    planner: A,
    agents: Sequence[AgentSpec[Any]],
    *,
    most_at_once: int = MOST_AT_ONCE,
    max_depth: int = MAX_DEPTH,
    narrow_permission: bool = True,
) -> A:
    """Return the agent `planner` with tools to delegate tasks to `agents`. The options are those of `delegation`."""
    if not isinstance(planner, AgentSpec):  # pyright: ignore[reportUnnecessaryIsInstance] - callers are not all typed
        checks.raise_config_error("orchestrator", "planner", planner, "give an Agent(…)")
    more = delegation(agents, most_at_once=most_at_once, max_depth=max_depth, narrow_permission=narrow_permission)
    return planner.replace(extensions=[*planner.extensions, more])


def _index_by_name(agents: Sequence[AgentSpec[Any]]) -> dict[str, AgentSpec[Any]]:
    """Return the agents by name; raise `ConfigError` for a wrong type or two equal names."""
    if isinstance(agents, str) or not isinstance(agents, Sequence) or not agents:
        checks.raise_config_error("delegation", "agents", agents, "give a list of agents")
    named: dict[str, AgentSpec[Any]] = {}
    for each in agents:
        if not isinstance(each, AgentSpec):  # pyright: ignore[reportUnnecessaryIsInstance] - callers are not all typed
            checks.raise_config_error("delegation", "agents", each, "give a list of Agent(…)")
        if sanitize_agent_name(each.name) in map(sanitize_agent_name, named):
            raise ConfigError(f"two agents are called {each.name!r}: give one of them another name")
        named[each.name] = each
    return named


# -- the tools ---------------------------------------------------------------------------------------------------------


def _build_delegate_tool(crew: BackgroundAgents, max_depth: int) -> Tool[..., Any]:
    listed = [f"- {name}: {agent.description or 'no description'}" for name, agent in crew.agents.items()]
    description = "\n".join(
        [
            "Give a task to another agent. It works with its own tools and answers when it is done.",
            "In a message, @name means: give this to the agent of that name. The agents are:",
            *listed,
            "With background=true this returns a handle at once, and you get the answer later, when it is ready.",
            "Use wait_for_agents when you cannot continue without it.",
        ]
    )

    async def delegate(
        agent: Annotated[str, "The name of the agent."],
        task: Annotated[str, TASK_DESCRIPTION],
        context: ToolContext[Any],
        background: Annotated[bool, "True to continue at once instead of waiting for the answer."] = False,  # noqa: FBT002 - an argument of the model
    ) -> ToolOutput:
        name, run = _resolve_agent_name(crew, agent), get_run_of_call(context)
        if not task.strip():
            raise ToolError("the task is empty: describe the task")
        check_depth(run, name, max_depth)
        if background:
            return await _start_in_background(crew, context, name, task)
        segment = sanitize_agent_name(name)
        if times := context.kept(f"{_HISTORY_PREFIX}{name}", 0):
            segment = f"{segment}.{times}"
        path = get_child_run_path(run, context.call_id, segment)
        given = SubagentTask(
            name, crew.agents[name], context.call_id, task, path, narrow_permission=crew.narrow_permission
        )
        return await run_subagent(given, run)

    given = tool(delegate, description=description, effect="idempotent", asks_first=True, credentials=False)
    return replace(given, agents=tuple(crew.agents.values()))


async def _start_in_background(crew: BackgroundAgents, context: ToolContext[Any], name: str, task: str) -> ToolOutput:
    """Start a background task and return its handle. A call that is made again finds the task it has started."""
    run = get_run_of_call(context)
    if run.path:
        raise ToolError("a subagent cannot give tasks in the background: leave out background, and wait for the answer")
    job = next(
        (each for each in list_background_jobs(run.state, run.log.store) if each.call_id == context.call_id), None
    )
    if job is None:
        job = build_background_job(run, context.call_id, name, task)
        await run.emit(*map(run.stamp_event, build_job_started_events(job)), sync=True)
    await crew.record_task(run, job)  # before this run can end, after which nothing else would tell of the task
    crew.start_task(run, job)
    return ToolOutput(f"{name} works on it as {job.handle!r}.", render={"handle": job.handle, "child": job.session_id})


def _build_wait_tool(crew: BackgroundAgents) -> Tool[..., Any]:
    async def wait_for_agents(
        context: ToolContext[Any],
        handles: Annotated[list[str], "The handles to wait for; empty for all that are at work."] = [],  # noqa: B006 - never changed
        timeout_seconds: Annotated[float, "Seconds to wait at most."] = WAIT_SECONDS,
    ) -> ToolOutput:
        """Wait until agents that work in the background are done, and read their answers."""
        run = get_run_of_call(context)
        before = _get_reported_before(context)  # reported by this very call before a crash cut it off
        jobs = [_find_task(run, each) for each in handles] or [
            each
            for each in list_background_jobs(run.state, run.log.store)
            if is_result_unreported(run, each) or each.handle in before
        ]
        if not jobs:
            return ToolOutput("No agent is at work in the background.")
        await crew.wait_for_tasks(run, jobs, timeout_seconds)
        return await _report_tasks(crew, context, jobs)

    return tool(wait_for_agents, effect="read", credentials=False)


async def _report_tasks(
    crew: BackgroundAgents, context: ToolContext[Any], jobs: Sequence[BackgroundAgentTask]
) -> ToolOutput:
    """Report the status of tasks to the model. Tasks that are over are not reported again by the inbox."""
    run, lines, ends = get_run_of_call(context), list[str](), dict[BackgroundAgentTask, str]()
    for job in jobs:
        status, answer = await crew.get_task_status(run, job)
        if status in {"running", "waiting", "interrupted"}:
            lines.append(f"{job.handle}: still at work ({status}).")
        else:
            ends[job] = answer
            lines.append(f"{job.handle} ({status}), given the task {job.task!r}:\n{answer}")
    told = {**_get_open_reports(context), context.call_id: [job.handle for job in ends]}
    await crew.resolve_inbox_items(run, ends, ValueKept(_REPORTED_KEY, told))
    return ToolOutput("\n\n".join(lines), labels=await crew.read_task_labels(run, ends))


def _get_reported_before(context: ToolContext[Any]) -> Sequence[str]:
    """Return the handles of tasks whose end this same call had reported before a crash interrupted it."""
    return _get_open_reports(context).get(context.call_id, ())


def _get_open_reports(context: ToolContext[Any]) -> dict[str, list[str]]:
    """Return the handles of tasks reported by calls that have no result yet, by call id."""
    reported: dict[str, list[str]] = context.kept(_REPORTED_KEY, {})
    return {call_id: handles for call_id, handles in reported.items() if call_id in context.run.state.open_calls}


def _build_list_tool(crew: BackgroundAgents) -> Tool[..., Any]:
    async def list_agents(context: ToolContext[Any]) -> ToolOutput:
        """List the agents that tasks can be given to, with the status and last answer of each."""
        run, lines = get_run_of_call(context), list[str]()
        jobs = list_background_jobs(run.state, run.log.store)
        answered: list[BackgroundAgentTask] = []
        for name in crew.agents:
            status, answer = _get_foreground_status(run, name)
            lines.append(_format_agent_line(name, status, answer))
            for job in [each for each in jobs if each.agent == name]:
                status, answer = await crew.get_task_status(run, job)
                lines.append(_format_agent_line(f"  {job.handle}", status, answer))
                answered += [job] if answer else []
        return ToolOutput("\n".join(lines), labels=await crew.read_task_labels(run, answered))

    return tool(list_agents, effect="read", credentials=False)


def _get_foreground_status(run: Run, name: str) -> tuple[str, str]:
    """Return the status and last answer of an agent that works for a tool call of this run."""
    times = run.state.kept_values.get(f"{_HISTORY_PREFIX}{name}", 0)
    segment = f"{sanitize_agent_name(name)}.{times}" if times else sanitize_agent_name(name)
    state = run.state.children.get(f"{run.path}/{segment}" if run.path else segment)
    if state is None or state.run is None:
        return "idle", ""
    if state.run_ended_event is None:
        return "running", ""
    return state.run_ended_event.status, get_last_text(state.messages)


def _format_agent_line(name: str, status: str, answer: str) -> str:
    """Format one line of the list of agents."""
    said = answer if len(answer) <= _SHOWN_CHARACTERS else f"{answer[:_SHOWN_CHARACTERS]}…"
    return f"{name}: {status}{f': {said}' if said else ''}"


def _build_cancel_tool(crew: BackgroundAgents) -> Tool[..., Any]:
    async def cancel_agent(handle: Annotated[str, "What `delegate` returned."], context: ToolContext[Any]) -> str:
        """Stop an agent that works in the background."""
        run = get_run_of_call(context)
        job = _find_task(run, handle)
        if not is_result_unreported(run, job):
            return f"{handle} is not at work any more."
        await crew.cancel_task(run, job)
        await crew.resolve_inbox_items(run, {job: "cancelled"})
        return f"{handle} is cancelled."

    return tool(cancel_agent, effect="idempotent", credentials=False)


def _build_clear_history_tool(crew: BackgroundAgents) -> Tool[..., Any]:
    async def clear_agent_history(agent: Annotated[str, "The name of the agent."], context: ToolContext[Any]) -> str:
        """Make an agent forget its earlier tasks, so that its next task starts a new conversation."""
        name = _resolve_agent_name(crew, agent)
        await context.keep(f"{_HISTORY_PREFIX}{name}", context.kept(f"{_HISTORY_PREFIX}{name}", 0) + 1)
        return f"{name} starts a new conversation with its next task."

    return tool(clear_agent_history, effect="idempotent", parallel=False, credentials=False)


def _resolve_agent_name(crew: BackgroundAgents, name: str) -> str:
    """Return the agent's name without a leading `@`; raise `ToolError` if there is no such agent."""
    plain = name.strip().removeprefix("@")
    if plain not in crew.agents:
        raise ToolError(f"there is no agent {name!r}: there are {', '.join(map(repr, crew.agents))}")
    return plain


def _find_task(run: Run, handle: str) -> BackgroundAgentTask:
    """Return the task with this handle; raise `ToolError` if there is none."""
    jobs = {job.handle: job for job in list_background_jobs(run.state, run.log.store)}
    if handle not in jobs:
        raise ToolError(f"there is no handle {handle!r}: there are {', '.join(map(repr, jobs)) or 'none'}")
    return jobs[handle]
