"""`SessionResumer`: continues interrupted runs of stored sessions, for a process that works through many."""

import inspect
import logging
from typing import Any, cast

from perdure._core.log.fold import State
from perdure._core.log.store import Store, get_namespaced_session_id
from perdure._core.run.outcome import Outcome
from perdure._core.values import checks
from perdure._core.values.error import Fenced, SessionBusy, ShuttingDown
from perdure._runtime.agent.overrides import (
    ChooseOverrides,
    Overrides,
    RunOverrides,
    add_output,
    check_overrides,
    merge_overrides,
)
from perdure._runtime.agent.redaction import list_related_agents
from perdure._runtime.agent.spec import AgentSpec
from perdure._runtime.session.session import Session
from perdure._runtime.subagents.end_report import is_task_end_reported, record_task_end_report
from perdure._runtime.subagents.late_results import forward_late_inbox_results, report_end_to_ended_task

from .reasons import find_task_giver

logger = logging.getLogger("perdure")

_MAX_SESSIONS = 10_000
"""The number of sessions that are remembered."""


class SessionResumer:
    """Finds the sessions of a store that a worker can resume with its agent; `attend` resumes one of them.

    These are the sessions whose last run was begun by an agent of the same name, and those without a run.
    """

    def __init__(
        self,
        agent: AgentSpec[Any],
        store: Store,
        overrides: Overrides[Any],
        overrides_for: "ChooseOverrides[Any] | None" = None,
    ) -> None:
        if overrides_for is not None:
            checks.require_callable("attend_all", "overrides_for", overrides_for)
        self._agent = agent
        self._store = store
        self._overrides = overrides
        self._overrides_for = overrides_for
        self._sessions: dict[str, Session[Any]] = {}
        """Sessions that were looked at: each remembers the reasons that had no effect."""
        self._warned: set[str] = set()
        """Sessions of background agents that are not known here."""

    async def attend(self, session_id: str) -> Outcome[Any] | None:
        """Continue a session if there is a reason to, and return the outcome; `None` if there is none.

        The session of a background agent is continued by the session that gave the task, which knows the agent.
        """
        session = self._get_session(session_id)
        state = await session.read_state()
        if above := find_task_giver(state, session_id):
            return await self._attend_task(session, state, above)
        if not self._is_ours(state):
            return None
        try:
            return await session.attend_once(**await self._choose_overrides(session_id))
        except (SessionBusy, Fenced, ShuttingDown):  # another process has the session, or the next one will
            return None

    async def _attend_task(self, session: Session[Any], state: State, above: str) -> Outcome[Any] | None:
        """Continue the session that gave a task to a background agent, and pass on what the agent has for it."""
        self._warn_about_unknown_agent(state, session.session_id)
        await forward_late_inbox_results(self._store, session.session_id, self._agent.clock)
        await report_end_to_ended_task(self._store, session.session_id, self._agent.clock)
        outcome = await self.attend(above)
        if not state.is_interrupted and await is_task_end_reported(self._store, session.session_id, above):
            await record_task_end_report(session)
        return outcome

    def _warn_about_unknown_agent(self, state: State, session_id: str) -> None:
        """Log once that no process like this one continues a background task, because it does not know the agent."""
        name = session_id.rpartition("/")[2].rpartition("-")[0] if state.run is None else state.run.agent
        related = list_related_agents(self._agent)
        known = {each for agent in related for extension in agent.extensions for each in extension.agents}
        if name in known or session_id in self._warned:
            return
        self._warned.add(session_id)
        full_id = get_namespaced_session_id(self._store, session_id)
        logger.warning(
            "session %s waits: agent %r, which works there in the background, is not one of this worker's agents",
            full_id,
            name,
            extra={"session_id": full_id},
        )

    async def _choose_overrides(self, session_id: str) -> Overrides[Any]:
        """Return the options for the runs of one session: those for all, with those chosen for it merged into them."""
        if self._overrides_for is None:
            return self._overrides
        chosen = self._overrides_for(session_id)
        own = await chosen if inspect.isawaitable(chosen) else chosen
        checks.require_return_type("overrides_for", self._overrides_for, own, dict, "a dict, such as {'deps': …}")
        chosen_options = cast("RunOverrides", own)
        check_overrides(chosen_options)
        return merge_overrides(add_output(self._overrides, None), chosen_options)

    def _is_ours(self, state: State) -> bool:
        """Return True if this agent may continue a session: it began the last run, or there was none yet."""
        return state.run is None or state.run.agent == self._agent.name

    def _get_session(self, session_id: str) -> Session[Any]:
        session = self._sessions.pop(session_id, None) or Session(self._agent, session_id, self._store)
        self._sessions[session_id] = session
        while len(self._sessions) > _MAX_SESSIONS:
            del self._sessions[next(iter(self._sessions))]
        return session
