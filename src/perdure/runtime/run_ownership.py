"""Find and check which agent began the last run of a session, and which session gave it its task."""

from perdure.core.error import UsageError
from perdure.core.fold import State
from perdure.core.last_run_progress import GIVEN_BY_SETTING


def find_task_giver(state: State, session_id: str) -> str:
    """Return the id of the session that gave a background agent its task; empty for any other session.

    It is stored as the process knew it that gave the task, which may have used a part of this store, or the whole.
    """
    above = state.settings.get(GIVEN_BY_SETTING)
    if not isinstance(above, str):
        return ""
    here = session_id.rpartition("/")[0]
    return here if f"/{here}".endswith(f"/{above}") or f"/{above}".endswith(f"/{here}") else above


def check_agent_of_run(state: State, agent: str, session_id: str) -> None:
    """Raise `UsageError` if an agent of another name began the last run: this one may lack its tools."""
    if state.run is None or state.run.agent in {agent, ""}:  # a log need not name it
        return
    advice = "continue it with its own agent, or begin another run with run()"
    if above := find_task_giver(state, session_id):
        advice = f"it works in the background for session {above!r}: wake() that one, which continues both"
    raise UsageError(
        f"the last run of session {session_id!r} was begun by agent {state.run.agent!r}, and this is agent {agent!r}: "
        f"{advice}"
    )
