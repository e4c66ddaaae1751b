"""The status of a log, read without folding it: progress of the last run, and entries lost to damage."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeAlias

from msgspec import Struct

from perdure._core.values.error import StoreError
from perdure._core.values.event import (
    EntriesLost,
    Entry,
    RunEnded,
    RunResumed,
    RunStarted,
    RunWaiting,
    SessionConfigured,
)
from perdure._core.values.event_class import Event

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


def mark_lost_entries(entries: Sequence[Entry], after: int | None = None, head: int = 0) -> list[Event]:
    """Return the events of log entries, with an `EntriesLost` event wherever entry numbers are missing.

    `after` is the number of the entry before them, by default that before the first one; `head` is the number that the
    log is known to have reached.
    """
    first = entries[0].seq - 1 if entries and after is None else after or 0
    last = max(head, entries[-1].seq) if entries else head
    if last - first == len(entries):
        return [entry.event for entry in entries]
    events: list[Event] = []
    before = first
    for entry in entries:
        if entry.seq > before + 1:
            events.append(_build_mark(before, entry.seq, events, entry.event))
        events.append(entry.event)
        before = entry.seq
    if last > before:
        events.append(_build_mark(before, last + 1, events, None))
    return events


def _build_mark(before: int, next_seq: int, events: Sequence[Event], event: Event | None) -> EntriesLost:
    """Build the `EntriesLost` event for the gap between two entries. If both belong to one run, no other run is
    missing.
    """
    run_id = events[-1].run_id if events else ""
    is_inside = event is not None and event.run_id == run_id and not isinstance(event, RunStarted)
    return EntriesLost(before + 1, next_seq - 1, run_id=run_id if is_inside else "")


def build_lost_entries_error(session_id: str) -> StoreError:
    """Build the error for a run that cannot be resumed because some of its entries were lost."""
    return StoreError(
        f"entries of the interrupted run of session {session_id!r} were lost to damage, and its calls may have had "
        "effects that the log does not show: check those, then go on with run()"
    )


def build_lost_input_error(session_id: str, input_id: str) -> StoreError:
    """Build the error for an input whose `input_id` may be in lost log entries, so that it may have run already."""
    return StoreError(
        f"session {session_id!r} has lost entries to damage, and the input {input_id!r} may have been among them: "
        "check whether it had its effect, then repeat it without an input_id, or in another session"
    )
