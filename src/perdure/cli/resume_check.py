"""Check that the command line has the agent and the tools to continue the last run of a session.

Another program may have begun the run, with tools that only that program has.
"""

from typing import TYPE_CHECKING, Any

from perdure.core.error import UsageError

from .perdure_home import format_session_arguments
from .run_options import was_begun_by_command

if TYPE_CHECKING:
    from collections.abc import Iterator

    from perdure.core.fold import State
    from perdure.runtime.agent_spec import AgentSpec

IN_ITS_PROGRAM = "continue it in the program that began it, with session.resume() or agent.attend_all()"
"""How a run is continued that the command line cannot continue."""


def format_resume_hint(session_id: str, state: "State", store: str | None, *options: str) -> str:
    """Return how to continue the last run of a session: a command, or the program that began it."""
    if not was_begun_by_command(state):
        return IN_ITS_PROGRAM
    return f"finish it with: perdure resume {format_session_arguments(session_id, store, *options)}"


def check_can_resume(agent: "AgentSpec[Any]", session_id: str, state: "State") -> None:
    """Raise `UsageError` if the session's last run belongs to another agent, or calls tools that this one lacks."""
    problem = find_resume_problem(agent, state)
    if problem is not None:
        raise UsageError(f"session {session_id!r}: {problem}; {IN_ITS_PROGRAM}")


def find_resume_problem(agent: "AgentSpec[Any]", state: "State") -> str | None:
    """Return why this agent must not continue the last run of a session; `None` if it may.

    Without the tool of an approved call, the model would be told that there is no such tool, and the call be lost.
    """
    if state.run is None or not (state.is_interrupted or state.is_parked):
        return None
    if state.run.agent != agent.name:
        return f"its run belongs to agent {state.run.agent!r}, and this is agent {agent.name!r}"
    missing = sorted({*_list_called_tools(state)}.difference(_list_tool_names(agent, state)))
    if missing:
        names = ", ".join([repr(name) for name in missing])
        return f"its run calls {names}, which this agent does not have"
    return None


def _list_tool_names(agent: "AgentSpec[Any]", state: "State") -> "Iterator[str]":
    """Yield the tools that the agent has, or has once a skill is loaded or a tool adds them."""
    from perdure.core.added_tools import find_added_tools

    yield from agent.toolbox.names
    yield from agent.spare_toolbox.names
    run_id = "" if state.run is None else state.run.run_id
    yield from [each.name for each in find_added_tools(state, agent.name, run_id, agent.spare_toolbox)]
    if (skills := agent.all_skills()) is not None:
        yield "skill_resource"
        yield from [each.name for name in skills.names for each in skills.get(name).tools]


def _list_called_tools(state: "State") -> "Iterator[str]":
    """Yield the tools of open calls that exist for certain: the call has begun, is decided, or a person was asked."""
    certain = {*state.begun_call_ids, *state.decisions}
    for question in state.open_questions:
        certain |= {call["call_id"] for call in question.calls}
    yield from [call.name for call in state.unsettled_calls if call.call_id in certain]
