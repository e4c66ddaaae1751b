"""The report of a background agent's end to the session that gave the task, as the agent's own log records it.

A process can die after the run of a background agent has ended, and before the result is posted to the session that
gave the task. So the session of the agent is listed as interrupted until its log says that the end was reported.
"""

import logging
from typing import Any

from perdure._core.log.fold import fold_events
from perdure._core.log.status import GIVEN_BY_SETTING, REPORTED_SETTING, has_unreported_task
from perdure._core.log.store import Store, get_namespaced_session_id, read_events
from perdure._core.values.error import Fenced, SessionBusy, StoreError
from perdure._core.values.event import SessionConfigured
from perdure._runtime.session.stored import StoredSession

from .jobs import list_background_jobs

logger = logging.getLogger("perdure")


async def record_task_end_report(session: StoredSession[Any]) -> None:
    """Record in the log of a background agent that the session which gave the task was told of its end.

    Does nothing while the task is not over. If it cannot be stored now, a worker does it later.
    """
    try:
        state = await session.read_state()
        if state.is_interrupted or not has_unreported_task(state.settings):
            return
        reported = {GIVEN_BY_SETTING: state.settings[GIVEN_BY_SETTING], REPORTED_SETTING: True}
        await session._append_events(SessionConfigured(reported))  # noqa: SLF001 # pyright: ignore[reportPrivateUsage] - the same package
    except (SessionBusy, Fenced, StoreError) as error:
        full_id = get_namespaced_session_id(session.store, session.session_id)
        logger.info("session %s does not record yet that its end was reported: %s", full_id, error)


async def is_task_end_reported(store: Store, session_id: str, given_by: str) -> bool:
    """Return True if the session that gave a task was told of its end: the result is posted, or no longer expected."""
    events, _ = await read_events(store, given_by)
    state = fold_events(events)
    posted = {post.id for post in await store.posts(given_by)}
    return not any(
        job.item_id in state.inbox and job.post_id not in posted
        for job in list_background_jobs(state, store)
        if job.session_id == session_id
    )
