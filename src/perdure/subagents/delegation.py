"""The tools by which a model gives tasks to agents that it knows by name. Above: callers. Below: `crew.py`.

editor = Agent(model, extensions=[delegation([researcher, writer])])
editor = orchestrator(planner, [researcher, writer])
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

from perdure.core import check
from perdure.core.error import ConfigError, ToolError
from perdure.core.event import ValueKept
from perdure.core.run import Run
from perdure.core.tool import Tool, ToolContext, ToolOutput, tool
from perdure.extension import Extension

from .as_tool import ABOUT_TASK, segment_of
from .attached import MAX_DEPTH, Errand, carry_out, check_depth, place_of
from .crew import Crew
from .job import Job, is_pending, jobs_of, new_job, opening
from .report import last_words

if TYPE_CHECKING:
    from perdure.agent import Agent

MOST_AT_ONCE = 4
"""How many agents work in the background at the same time."""
WAIT_SECONDS = 300.0
"""How long `wait_for_agents` waits, unless the model says otherwise."""
_SHOWN = 500
_HISTORY = "agent_history:"
_TOLD = "agents_told"


def delegation(
    agents: "Sequence[Agent[Any]]", *, most_at_once: int = MOST_AT_ONCE, max_depth: int = MAX_DEPTH
) -> Extension:
    """Tools to give tasks to these agents, to wait for them, to look at them and to stop them.

    Args:
        agents: Whom the model can give tasks to. Their names and descriptions are what it is told.
        most_at_once: How many of them work in the background at the same time; the others wait for their turn.
        max_depth: How many agents may stand between one of them and the session, itself included.
    """
    named = _by_name(agents)
    check.whole_number("delegation", "most_at_once", most_at_once, 1)
    check.whole_number("delegation", "max_depth", max_depth, 1)
    crew = Crew(named, most_at_once)
    tools = [_delegate(crew, max_depth), _wait_for_agents(crew), _list_agents(crew), _cancel_agent(crew)]
    return Extension(
        name="delegation",
        tools=[*tools, _clear_agent_history(crew)],
        agents=tuple(named),
        upkeep=[crew.tend],
        lifespan=crew.lifespan,
    )


def orchestrator(
    planner: "Agent[Any]",
    agents: "Sequence[Agent[Any]]",
    *,
    most_at_once: int = MOST_AT_ONCE,
    max_depth: int = MAX_DEPTH,
) -> "Agent[Any]":
    """The planner as an agent that can give tasks to the others."""
    from perdure.agent import Agent  # which stands above this

    if not isinstance(planner, Agent):  # pyright: ignore[reportUnnecessaryIsInstance] - callers are not all typed
        check.refuse("orchestrator", "planner", planner, "give an Agent(…)")
    more = delegation(agents, most_at_once=most_at_once, max_depth=max_depth)
    return planner.replace(extensions=[*planner.extensions, more])


def _by_name(agents: "Sequence[Agent[Any]]") -> "dict[str, Agent[Any]]":
    from perdure.agent import Agent  # which stands above this

    if isinstance(agents, str) or not isinstance(agents, Sequence) or not agents:
        check.refuse("delegation", "agents", agents, "give a list of agents")
    named: dict[str, Agent[Any]] = {}
    for each in agents:
        if not isinstance(each, Agent):  # pyright: ignore[reportUnnecessaryIsInstance] - callers are not all typed
            check.refuse("delegation", "agents", each, "give a list of Agent(…)")
        if segment_of(each.name) in map(segment_of, named):
            raise ConfigError(f"two agents are called {each.name!r}: give one of them another name")
        named[each.name] = each
    return named


# -- the tools ---------------------------------------------------------------------------------------------------------


def _delegate(crew: Crew, max_depth: int) -> Tool[..., Any]:
    listed = [f"- {name}: {agent.description or 'no description'}" for name, agent in crew.agents.items()]
    description = "\n".join(
        [
            "Give a task to another agent. It works with tools of its own and answers when it is done.",
            "In a message, @name means: give this to the agent of that name. There are:",
            *listed,
            "With background=true this returns a handle at once, and you are told the answer when it is there.",
            "Use wait_for_agents when you cannot go on without it.",
        ]
    )

    async def delegate(
        agent: Annotated[str, "The name of the agent."],
        task: Annotated[str, ABOUT_TASK],
        context: ToolContext[Any],
        background: Annotated[bool, "Whether to go on at once instead of waiting for the answer."] = False,  # noqa: FBT002 - the model's
    ) -> ToolOutput:
        name, run = _known(crew, agent), context.run
        if not task.strip():
            raise ToolError("the task is empty: say what is to be done")
        check_depth(run, name, max_depth)
        if background:
            return await _in_background(crew, context, name, task)
        segment = segment_of(name)
        if times := context.kept(f"{_HISTORY}{name}", 0):
            segment = f"{segment}.{times}"
        path = place_of(run, context.call_id, segment)
        return await carry_out(Errand(name, crew.agents[name], context.call_id, task, path), run)

    return tool(delegate, description=description, effect="idempotent", asks_first=True, credentials=False)


async def _in_background(crew: Crew, context: ToolContext[Any], name: str, task: str) -> ToolOutput:
    """Begin with a task, and return its handle. A call that is made again finds the one that it has given."""
    run = context.run
    if run.path:
        raise ToolError(
            "an agent that works for another one cannot have tasks done in the background: leave background out, and "
            "wait for the answer"
        )
    job = next((each for each in jobs_of(run.state) if each.call_id == context.call_id), None)
    if job is None:
        job = new_job(run, context.call_id, name, task)
        await run.emit(*map(run.stamped, opening(job)), sync=True)
    crew.begin(run, job)
    return ToolOutput(f"{name} works on it as {job.handle!r}.", render={"handle": job.handle, "child": job.session_id})


def _wait_for_agents(crew: Crew) -> Tool[..., Any]:
    async def wait_for_agents(
        context: ToolContext[Any],
        handles: Annotated[list[str], "Which ones; all that are at work when empty."] = [],  # noqa: B006 - never changed
        timeout_seconds: Annotated[float, "How long to wait at most."] = WAIT_SECONDS,
    ) -> str:
        """Wait until agents that work in the background are done, and read their answers."""
        run = context.run
        before = _told_before(context)  # what this very call was told when a crash cut it off
        jobs = [_job(run, each) for each in handles] or [
            each for each in jobs_of(run.state) if is_pending(run, each) or each.handle in before
        ]
        if not jobs:
            return "No agent is at work in the background."
        await crew.wait(run, jobs, timeout_seconds)
        return await _told(crew, context, jobs)

    return tool(wait_for_agents, effect="read", credentials=False)


async def _told(crew: Crew, context: ToolContext[Any], jobs: Sequence[Job]) -> str:
    """How tasks stand. Whoever is told their end here is not told again by the inbox."""
    run, lines, ends = context.run, list[str](), dict[Job, str]()
    for job in jobs:
        status, words = await crew.status(run, job)
        if status in {"running", "waiting", "interrupted"}:
            lines.append(f"{job.handle}: still at work ({status}).")
        else:
            ends[job] = words
            lines.append(f"{job.handle} ({status}), given the task {job.task!r}:\n{words}")
    told = {**_open_tellings(context), context.call_id: [job.handle for job in ends]}
    await crew.take(run, ends, ValueKept(_TOLD, told))
    return "\n\n".join(lines)


def _told_before(context: ToolContext[Any]) -> Sequence[str]:
    return _open_tellings(context).get(context.call_id, ())


def _open_tellings(context: ToolContext[Any]) -> dict[str, list[str]]:
    """What calls have been told that have no result yet."""
    told: dict[str, list[str]] = context.kept(_TOLD, {})
    return {call_id: handles for call_id, handles in told.items() if call_id in context.run.state.open_calls}


def _list_agents(crew: Crew) -> Tool[..., Any]:
    async def list_agents(context: ToolContext[Any]) -> str:
        """List the agents that tasks can be given to, what each is doing, and what it said last."""
        run, lines = context.run, list[str]()
        jobs = jobs_of(run.state)
        for name in crew.agents:
            status, words = _in_foreground(run, name)
            lines.append(_line(name, status, words))
            for job in [each for each in jobs if each.agent == name]:
                status, words = await crew.status(run, job)
                lines.append(_line(f"  {job.handle}", status, words))
        return "\n".join(lines)

    return tool(list_agents, effect="read", credentials=False)


def _in_foreground(run: Run, name: str) -> tuple[str, str]:
    """What an agent is doing, or has done, for a call that waits for it."""
    times = run.state.kept.get(f"{_HISTORY}{name}", 0)
    segment = f"{segment_of(name)}.{times}" if times else segment_of(name)
    state = run.state.children.get(f"{run.path}/{segment}" if run.path else segment)
    if state is None or state.run is None:
        return "idle", ""
    if state.ended is None:
        return "running", ""
    return state.ended.status, last_words(state.messages)


def _line(name: str, status: str, words: str) -> str:
    said = words if len(words) <= _SHOWN else f"{words[:_SHOWN]}…"
    return f"{name}: {status}{f': {said}' if said else ''}"


def _cancel_agent(crew: Crew) -> Tool[..., Any]:
    async def cancel_agent(handle: Annotated[str, "What `delegate` returned."], context: ToolContext[Any]) -> str:
        """Stop an agent that works in the background."""
        run = context.run
        job = _job(run, handle)
        if not is_pending(run, job):
            return f"{handle} is not at work any more."
        await crew.cancel(run, job)
        await crew.take(run, {job: "cancelled"})
        return f"{handle} is cancelled."

    return tool(cancel_agent, effect="idempotent", credentials=False)


def _clear_agent_history(crew: Crew) -> Tool[..., Any]:
    async def clear_agent_history(agent: Annotated[str, "The name of the agent."], context: ToolContext[Any]) -> str:
        """Let an agent forget the tasks that it was given before, so that the next one finds it fresh."""
        name = _known(crew, agent)
        await context.keep(f"{_HISTORY}{name}", context.kept(f"{_HISTORY}{name}", 0) + 1)
        return f"{name} begins afresh with its next task."

    return tool(clear_agent_history, effect="idempotent", parallel=False, credentials=False)


def _known(crew: Crew, name: str) -> str:
    """An agent as the model calls it, perhaps with the sign of a mention."""
    plain = name.strip().removeprefix("@")
    if plain not in crew.agents:
        raise ToolError(f"there is no agent {name!r}: there are {', '.join(map(repr, crew.agents))}")
    return plain


def _job(run: Run, handle: str) -> Job:
    jobs = {job.handle: job for job in jobs_of(run.state)}
    if handle not in jobs:
        raise ToolError(f"there is no handle {handle!r}: there are {', '.join(map(repr, jobs)) or 'none'}")
    return jobs[handle]
