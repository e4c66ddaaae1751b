"""Progress of a session's last run (over, waiting, cut off), which stores record to find interrupted sessions.

A store that records the last value for each session, in the same transaction as the append, can list the sessions whose
last run is not over without reading their logs. The session of a background agent is cut off from its first entry on,
which names the session that gave the task: the task has to be done even if no run of it has begun.
"""

from collections.abc import Sequence
from typing import Literal, TypeAlias

from msgspec import Struct

from .event import Entry, Event, RunEnded, RunResumed, RunStarted, RunWaiting, SessionConfigured

RunProgress: TypeAlias = Literal["over", "cut_off", "waiting"]
"""Progress of a session's last run. `over`: it has ended, or there was none. `cut_off`: it has begun and not ended, or
was given as a task and not begun, so if no process drives the session, it was interrupted. `waiting`: it waits for
answers."""

GIVEN_BY_SETTING = "given_by"
"""The setting in which the session of a background agent names the session that gave the task."""


class LastRunProgress(Struct, frozen=True):
    """The progress of a session's last run, and the time at which it must continue even without an answer."""

    progress: RunProgress
    due_at: float | None = None
    """When the first of the questions it waits for expires, in seconds since 1970; `None` if none does."""


NO_RUN = LastRunProgress("over")
_CUT_OFF = LastRunProgress("cut_off")


def find_last_run_progress(entries: Sequence[Entry]) -> LastRunProgress | None:
    """Return the progress of a session's last run as of these new log entries; `None` if they do not change it.

    Runs of subagents do not count: they are part of the session's own run.
    """
    for entry in reversed(entries):
        event = entry.event
        if type(event) in _RUN_EVENTS and not event.path:
            return _progress_after(event)
        if type(event) is SessionConfigured and GIVEN_BY_SETTING in event.changes:
            return _CUT_OFF
    return None


_RUN_EVENTS: frozenset[type[Event]] = frozenset({RunStarted, RunResumed, RunWaiting, RunEnded})


def _progress_after(event: Event) -> LastRunProgress:
    if isinstance(event, RunEnded):
        return NO_RUN
    return LastRunProgress("waiting", event.due_at) if isinstance(event, RunWaiting) else _CUT_OFF
