"""Check that the agent that is to continue a session's last run has the name of the agent that began it."""

from perdure.core.error import UsageError
from perdure.core.fold import State
from perdure.core.last_run_progress import GIVEN_BY_SETTING

from .resume_reasons import is_resumable


def check_agent_of_run(agent: str, session_id: str, state: State, *, unpark: bool = False) -> None:
    """Raise `UsageError` if an agent of another name began the run that is to be resumed: this one may lack its tools.

    In the session of a background agent, other agents may not begin a run for messages either.
    """
    if state.run is None or state.run.agent in {agent, ""}:  # older logs have no name
        return
    if not (is_resumable(state) or (unpark and state.is_parked) or GIVEN_BY_SETTING in state.settings):
        return
    from .late_result_forwarding import find_task_giver  # at first use: for a quick start

    above = find_task_giver(state, session_id)
    advice = "continue it with its own agent, or begin another run with run()"
    if above:
        advice = f"it works in the background for session {above!r}: wake() that one, which continues both"
    raise UsageError(
        f"the last run of session {session_id!r} was begun by agent {state.run.agent!r}, and this is agent {agent!r}: "
        f"{advice}"
    )
