"""A task that an agent does in the background: what the log keeps of it. Above: `crew.py`. Below: `core`.

It is kept by name, with an item in the inbox of whoever gave the task: as long as the item is pending, the task is not
done, or nobody has been told of its end.
"""

from typing import Any

import msgspec
from msgspec import Struct

from perdure.core.clock import new_id
from perdure.core.event import RESERVED, Event, InboxAdded, SubagentStarted, ValueKept
from perdure.core.fold import State
from perdure.core.inbox import resolution
from perdure.core.run import Run

from .as_tool import segment_of

TAG = "agent:"
"""In front of an agent's name: what marks items of the inbox."""
KEPT = f"{RESERVED}{TAG}"
"""In front of a handle: the name under which a task is kept."""
_SHORT = 8


class Job(Struct, frozen=True):
    """A task that an agent does in the background."""

    handle: str
    """What the model calls it."""
    agent: str
    """Who does it."""
    task: str
    session_id: str
    """The session of its own in which it is done."""
    item_id: str
    """The item of the inbox that is resolved at its end."""
    call_id: str
    """The call that gave it."""

    @property
    def post_id(self) -> str:
        """The post that tells its end."""
        return resolution(self.item_id, None, 0.0).id


def new_job(run: Run, call_id: str, agent: str, task: str) -> Job:
    """A task that nobody has begun."""
    handle = f"{segment_of(agent)}-{new_id()[-_SHORT:]}"
    return Job(handle, agent, task, f"{run.session_id}/{handle}", new_id(), call_id)


def opening(job: Job) -> list[Event]:
    """How the log says that a task was given."""
    kept: dict[str, Any] = msgspec.to_builtins(job)
    return [
        SubagentStarted(job.call_id, job.agent, job.task, job.session_id),
        InboxAdded(job.item_id, f"{TAG}{job.agent}", job.task, wake=True),
        ValueKept(f"{KEPT}{job.handle}", kept),
    ]


def jobs_of(state: State) -> list[Job]:
    """Every task that was ever given in this session, in the order of giving."""
    found = [_read(value) for name, value in state.kept.items() if name.startswith((KEPT, TAG))]
    return [job for job in found if job is not None]


def _read(value: Any) -> Job | None:
    """A task as it was kept. `None` for what is none: older logs keep tasks beside what tools have left."""
    try:
        return msgspec.convert(value, Job)
    except msgspec.ValidationError:
        return None


def is_pending(run: Run, job: Job) -> bool:
    """Whether nobody has been told of its end."""
    return job.item_id in run.state.inbox
