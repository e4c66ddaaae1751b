"""The sessions that a worker continues with one agent: which of them are this agent's, and how each is woken."""

from typing import Any

from perdure.core.error import Fenced, SessionBusy
from perdure.core.fold import State
from perdure.core.outcome import Outcome
from perdure.core.store import Store

from .inbox_forwarding import GIVEN_BY_SETTING
from .overrides import Overrides
from .session import Session
from .spec import AgentSpec

_MAX_SESSIONS = 10_000
"""The number of sessions that are remembered."""


class AttendedSessions:
    """The sessions of a store that belong to one agent: those whose last run was begun by an agent of its name."""

    def __init__(self, agent: AgentSpec[Any], store: Store, overrides: Overrides[Any]) -> None:
        self._agent = agent
        self._store = store
        self._overrides = overrides
        self._sessions: dict[str, Session[Any]] = {}
        """Sessions that were looked at: each remembers the reasons that had no effect."""

    async def attend(self, session_id: str) -> Outcome[Any] | None:
        """Continue a session if there is a reason to, and return the outcome; `None` if there is none.

        The session of a background agent is continued by the session that gave the task, which knows the agent.
        """
        session = self._get_session(session_id)
        state = await session.read_state()
        above = state.settings.get(GIVEN_BY_SETTING)
        if isinstance(above, str) and above:
            return await self.attend(above)
        if not self._is_ours(state):
            return None
        try:
            return await session.attend_once(**self._overrides)
        except (SessionBusy, Fenced):  # another process was quicker, or has taken the session over
            return None

    def _is_ours(self, state: State) -> bool:
        """Return True if this agent may continue a session: it began the last run, or there was none yet."""
        return state.run is None or state.run.agent == self._agent.name

    def _get_session(self, session_id: str) -> Session[Any]:
        session = self._sessions.pop(session_id, None) or Session(self._agent, session_id, self._store)
        self._sessions[session_id] = session
        while len(self._sessions) > _MAX_SESSIONS:
            del self._sessions[next(iter(self._sessions))]
        return session
