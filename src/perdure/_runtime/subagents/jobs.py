"""Records of background jobs (tasks that other agents work on), in the log of the session that gave the tasks.

A job is stored in the log as a kept value, with an item in the inbox of the session that gave the task. While the item
is pending, the task is not done, or its end was not yet reported to the model.
"""

from typing import Any

import msgspec
from msgspec import Struct

from perdure._core.log.fold import State
from perdure._core.log.store import Store, get_namespaced_session_id
from perdure._core.people.inbox import build_resolution_post
from perdure._core.run.run import Run
from perdure._core.values.clock import new_id
from perdure._core.values.event import RESERVED_PREFIX, InboxAdded, SubagentStarted, ValueKept
from perdure._core.values.event_class import Event
from perdure._core.values.jsonable import convert
from perdure._runtime.agent.handoff import sanitize_agent_name

INBOX_TAG_PREFIX = "agent:"
"""The prefix of inbox item tags that belong to background agents; an agent's name follows."""
JOB_NAME_PREFIX = f"{RESERVED_PREFIX}{INBOX_TAG_PREFIX}"
"""The prefix of the name under which a job is kept in the log; its handle follows."""
_HANDLE_ID_LENGTH = 8


class BackgroundAgentTask(Struct, frozen=True):
    """The record of a task that another agent works on in the background, in the log of the session that gave it."""

    handle: str
    """The name by which the model refers to the task."""
    agent: str
    """The name of the agent that does it."""
    task: str
    session_id: str
    """The session in which the agent does it: its id in the store that the session above is opened in."""
    item_id: str
    """The inbox item that is resolved when the task ends."""
    call_id: str
    """The tool call that gave the task."""
    full_session_id: str
    """The id of that session in the innermost store."""

    @property
    def post_id(self) -> str:
        """The id of the post (a stored message to the session) that reports the end of the task."""
        return build_resolution_post(self.item_id, None, 0.0).id


def build_background_job(run: Run, call_id: str, agent: str, task: str) -> BackgroundAgentTask:
    """Build the record of a new background task: its id, and the id of the session in which it is carried out."""
    handle = f"{sanitize_agent_name(agent)}-{new_id()[-_HANDLE_ID_LENGTH:]}"
    session_id, full_id = f"{run.session_id}/{handle}", f"{run.full_session_id}/{handle}"
    return BackgroundAgentTask(handle, agent, task, session_id, new_id(), call_id, full_id)


def build_job_started_events(job: BackgroundAgentTask) -> list[Event]:
    """Build the events that store in the log that a task was given to a background agent."""
    kept: dict[str, Any] = msgspec.to_builtins(job)
    return [
        SubagentStarted(job.call_id, job.agent, job.task, job.session_id),
        InboxAdded(job.item_id, f"{INBOX_TAG_PREFIX}{job.agent}", job.task, wake=True),
        ValueKept(f"{JOB_NAME_PREFIX}{job.handle}", kept),
    ]


def list_background_jobs(state: State, store: Store) -> list[BackgroundAgentTask]:
    """Return all background jobs of a session, finished ones too, in the order in which they were started.

    Their session ids are those in this store, also if another process gave the tasks through a part of it.
    """
    found = [_parse_job(value) for name, value in state.kept_values.items() if name.startswith(JOB_NAME_PREFIX)]
    jobs = [job for job in found if job is not None]
    if not jobs:
        return []
    prefix = get_namespaced_session_id(store, "")
    return [_translate_session_id(job, prefix) for job in jobs]


def _translate_session_id(job: BackgroundAgentTask, prefix: str) -> BackgroundAgentTask:
    """Return the job with its session id as it is in the part of the store that has this prefix."""
    if not job.full_session_id.startswith(prefix):
        return job
    return msgspec.structs.replace(job, session_id=job.full_session_id.removeprefix(prefix))


def _parse_job(value: Any) -> BackgroundAgentTask | None:
    """Convert a stored value to a background job; None if it is not one."""
    try:
        return convert(value, BackgroundAgentTask)
    except msgspec.ValidationError:
        return None


def is_result_unreported(run: Run, job: BackgroundAgentTask) -> bool:
    """Return True if the model that started a background job has not yet received its result."""
    return job.item_id in run.state.inbox
