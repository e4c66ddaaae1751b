"""Check that the command line has the agent and the tools to continue the last run of a session.

Another program may have begun the run, with tools that only that program has.
"""

from typing import TYPE_CHECKING, Any, Final

from perdure._cli.home import format_session_arguments
from perdure._cli.run.options import is_last_run_from_cli
from perdure._core.values.error import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from perdure._core.log.fold import State
    from perdure._core.log.store import Store
    from perdure._runtime.agent.spec import AgentSpec

_IN_PROGRAM: Final = "in the program that began it, with "
_OR: Final = " or agent.attend_all()"


async def format_resume_hint(
    store: "Store", session_id: str, state: "State", store_option: str | None, *, is_of_task: bool = False
) -> str:
    """Return a hint on how to continue the last run of a session: a command, or in the program that began the run.

    The session of a background agent is continued by the session that gave the task, which knows the agent.
    `is_of_task` asks how to continue the background agents of the session, instead of its own run.
    """
    parent_id, parent_state = await find_parent_session(store, session_id, state)
    is_ours = is_last_run_from_cli(parent_state)
    if is_of_task or parent_id != session_id:
        command = f"with: perdure attend --once --prefix {format_session_arguments(parent_id, store_option)}"
        how = command if is_ours else f"{_IN_PROGRAM}session.wake(){_OR}"
        return f"continue session {parent_id!r}, which continues its background agents, {how}"
    if is_ours:
        options = ("--unpark",) if state.is_parked else ()
        return f"finish it with: perdure resume {format_session_arguments(session_id, store_option, *options)}"
    how = "session.resume(unpark=True)" if state.is_parked else f"session.resume(){_OR}"
    return f"continue it {_IN_PROGRAM}{how}"


async def find_parent_session(store: "Store", session_id: str, state: "State") -> "tuple[str, State]":
    """Return the id and state of the session that gave a background agent its task; for other sessions, their own."""
    from perdure._core.log.fold import fold_entries
    from perdure._runtime.resume.reasons import find_task_giver

    while above := find_task_giver(state, session_id):
        session_id, state = above, fold_entries(await store.read(above))
    return session_id, state


async def check_can_resume(
    agent: "AgentSpec[Any]", store: "Store", session_id: str, state: "State", store_option: str | None
) -> None:
    """Raise `UsageError` if the command line must not continue the session's last run with this agent."""
    problem = find_resume_problem(agent, state)
    if problem is not None:
        hint = "continue it with the options and the configuration that it was begun with"
        if not is_last_run_from_cli(state):
            hint = await format_resume_hint(store, session_id, state, store_option)
        raise UsageError(f"session {session_id!r}: {problem}; {hint}")


def find_resume_problem(agent: "AgentSpec[Any]", state: "State") -> str | None:
    """Return why this agent of the command line must not continue the last run of a session; `None` if it may.

    Without the tool of an approved call, the model would be told that there is no such tool, and the call be lost.
    """
    if state.run is None or not (state.is_interrupted or state.is_parked):
        return None
    if state.run.agent != agent.name:
        return f"its run belongs to agent {state.run.agent!r}, and this is agent {agent.name!r}"
    if not is_last_run_from_cli(state):
        return "its run was begun by another program than perdure run"
    missing = sorted({*_list_called_tools(state)}.difference(_list_tool_names(agent, state)))
    if missing:
        names = ", ".join([repr(name) for name in missing])
        return f"its run calls {names}, which this agent does not have"
    return None


def _list_tool_names(agent: "AgentSpec[Any]", state: "State") -> "Iterator[str]":
    """Yield the tools that the agent has, or has once a skill is loaded or a tool adds them."""
    from perdure._core.run.toolset import find_added_tools

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
