"""Background jobs: the records in a session's log of tasks that another agent works on in the background.

A job is stored in the log as a kept value, with an item in the inbox of the session that gave the task. While the item
is pending, the task is not done, or its end was not yet reported to the model.
"""

from typing import Any

import msgspec
from msgspec import Struct

from perdure.core.clock import new_id
from perdure.core.event import RESERVED_PREFIX, RESERVED_PREFIXES, Event, InboxAdded, SubagentStarted, ValueKept
from perdure.core.fold import State
from perdure.core.inbox import build_resolution_post
from perdure.core.run import Run

from .handoff import sanitize_agent_name

INBOX_TAG_PREFIX = "agent:"
"""The prefix of inbox item tags that belong to background agents; an agent's name follows."""
JOB_NAME_PREFIX = f"{RESERVED_PREFIX}{INBOX_TAG_PREFIX}"
"""The prefix of the name under which a job is kept in the log; its handle follows."""
_JOB_NAME_PREFIXES = (*(f"{prefix}{INBOX_TAG_PREFIX}" for prefix in RESERVED_PREFIXES), INBOX_TAG_PREFIX)
"""The prefixes of job names in this and in older logs."""
_HANDLE_ID_LENGTH = 8


class BackgroundJob(Struct, frozen=True):
    """A task that another agent works on in the background, as recorded in the session that gave it."""

    handle: str
    """The name by which the model refers to the task."""
    agent: str
    """The name of the agent that does it."""
    task: str
    session_id: str
    """The session in which the agent does it."""
    item_id: str
    """The inbox item that is resolved when the task ends."""
    call_id: str
    """The tool call that gave the task."""

    @property
    def post_id(self) -> str:
        """The id of the post (a stored message to the session) that reports the end of the task."""
        return build_resolution_post(self.item_id, None, 0.0).id


def build_background_job(run: Run, call_id: str, agent: str, task: str) -> BackgroundJob:
    """Create the record of a task that was not started yet, with a new handle and session id."""
    handle = f"{sanitize_agent_name(agent)}-{new_id()[-_HANDLE_ID_LENGTH:]}"
    return BackgroundJob(handle, agent, task, f"{run.session_id}/{handle}", new_id(), call_id)


def build_job_events(job: BackgroundJob) -> list[Event]:
    """Build the events that record in the log that a task was given to a background agent."""
    kept: dict[str, Any] = msgspec.to_builtins(job)
    return [
        SubagentStarted(job.call_id, job.agent, job.task, job.session_id),
        InboxAdded(job.item_id, f"{INBOX_TAG_PREFIX}{job.agent}", job.task, wake=True),
        ValueKept(f"{JOB_NAME_PREFIX}{job.handle}", kept),
    ]


def list_background_jobs(state: State) -> list[BackgroundJob]:
    """Return all background jobs of a session, finished ones too, in the order in which they were started."""
    found = [_parse_job(value) for name, value in state.kept_values.items() if name.startswith(_JOB_NAME_PREFIXES)]
    return [job for job in found if job is not None]


def _parse_job(value: Any) -> BackgroundJob | None:
    """Convert a value from the log to a background job; None if it is not one, as a tool's value in older logs."""
    try:
        return msgspec.convert(value, BackgroundJob)
    except msgspec.ValidationError:
        return None


def is_job_pending(run: Run, job: BackgroundJob) -> bool:
    """Return True if the end of a job was not yet reported to the model that gave it."""
    return job.item_id in run.state.inbox
