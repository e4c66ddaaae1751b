"""Progress of a session's last run (over, waiting, cut off), which stores record to find interrupted sessions.

A store that records the last value for each session, in the same transaction as the append, can list the sessions whose
last run is not over without reading their logs. The session of a background agent is cut off from its first entry on,
which names the session that gave the task: the task has to be done even if no run of it has begun. It is cut off until
that session was told of the end: a process can die between the two.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeAlias

from msgspec import Struct

from .event import Entry, Event, RunEnded, RunResumed, RunStarted, RunWaiting, SessionConfigured

RunProgress: TypeAlias = Literal["over", "cut_off", "waiting"]
"""Progress of a session's last run. `over`: it has ended, or there was none. `cut_off`: it has begun and not ended, or
was given as a task and not begun, or the session that gave the task was not told of its end, so if no process drives
the session, it was interrupted. `waiting`: it waits for answers."""

GIVEN_BY_SETTING = "given_by"
"""The setting in which the session of a background agent names the session that gave the task."""

REPORTED_SETTING = "is_reported"
"""The setting of the session of a background agent that is true once the session that gave the task was told of its
end. It is stored together with `GIVEN_BY_SETTING`."""


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
            return _CUT_OFF if has_unreported_task(event.changes) else NO_RUN
    return None


def has_unreported_task(settings: Mapping[str, Any]) -> bool:
    """Return True if these settings are of a background agent's session whose task, or its end, was not reported."""
    return bool(settings.get(GIVEN_BY_SETTING)) and not settings.get(REPORTED_SETTING)


_RUN_EVENTS: frozenset[type[Event]] = frozenset({RunStarted, RunResumed, RunWaiting, RunEnded})


def _progress_after(event: Event) -> LastRunProgress:
    if isinstance(event, RunEnded):
        return _CUT_OFF if event.is_unreported else NO_RUN
    return LastRunProgress("waiting", event.due_at) if isinstance(event, RunWaiting) else _CUT_OFF
