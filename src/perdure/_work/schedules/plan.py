"""Decide if a schedule fires now, from its journal and the time, and which missed or overlapping times it skips.

Firings that were missed are not made up for: of all due times that have passed, only the last one is fired, and only if
it is not too late for it. While a run of the schedule is not over, due times are skipped. Triggers wait, and are fired
one after another.
"""

from collections.abc import Sequence
from itertools import count
from typing import Any, Final, cast

from msgspec import Struct

from perdure._core.log.store import Post
from perdure._core.values.clock import JUMP_SECONDS, describe_jump
from perdure._core.values.provenance import UNTRUSTED_LABEL

from .firing import JournalState, ScheduleJournalRecord
from .journal import TRIGGER_POST
from .schedule import Schedule
from .timing import At, Cron, Every, Timing, format_moment

OVERLAP_REASON: Final = "the last run is not over"
_MOST_COUNTED: Final = 1000
"""Due times that are counted one by one."""
_FIRST_WINDOW_SECONDS: Final = 60.0
_FIXED_HOUR_LEAD_SECONDS: Final = 3 * 3_600.0


class OverdueTimes(Struct, frozen=True):
    """Due times of a schedule that have passed without a firing: the first, the last, and how many there were."""

    first: float
    last: float
    count: int


def plan_records(
    schedule: Schedule, state: JournalState, posts: Sequence[Post], now: float, *, can_rearm: bool = True
) -> list[ScheduleJournalRecord]:
    """Return the records to add to the journal of a schedule that has no run in progress; empty if nothing is due.

    If the last of them is `fired` or `resumed`, a run has to begin once they are stored. With `can_rearm`, the times of
    a journal that lies in the future are counted from now.
    """
    if state.open is not None:
        opened = state.open
        return [_build(schedule, "resumed", firing_id=opened.firing_id, session_id=opened.session_id)]
    if schedule.when is not None and state.timing != schedule.when:
        return _plan_arming(schedule, now)
    if can_rearm and (lead := find_journal_lead(state, now)):
        return [_build(schedule, "armed", timing=schedule.when, reason=f"the clock was set {describe_jump(-lead)}")]
    trigger = next((post for post in posts if post.kind == TRIGGER_POST), None)
    if trigger is not None:
        return [build_triggered_record(schedule, trigger)]
    if schedule.when is None or (due := find_overdue_times(state, now)) is None:
        return []
    longest = schedule.longest_delay_seconds
    if longest is not None and now - due.last > longest:
        return [_build_passed(schedule, state, "missed", due, "no process served it in time")]
    missed = OverdueTimes(due.first, due.first, due.count - 1)
    before = [_build_passed(schedule, state, "missed", missed, "no process served it in time")] if due.count > 1 else []
    return [*before, _build_fired(schedule, _name_firing(state, due.last), due=due.last)]


def plan_skipped(schedule: Schedule, state: JournalState, now: float) -> list[ScheduleJournalRecord]:
    """Return a record that skips the due times which passed while the schedule's last run went on; empty if none."""
    if schedule.when is None or state.timing != schedule.when or (due := find_overdue_times(state, now)) is None:
        return []
    return [_build_passed(schedule, state, "skipped", due, OVERLAP_REASON)]


def _plan_arming(schedule: Schedule, now: float) -> list[ScheduleJournalRecord]:
    """Return the record from which the times of a new or changed schedule are counted."""
    armed = _build(schedule, "armed", timing=schedule.when)
    if schedule.when is not None and schedule.when.find_next(now, now) is None:
        due = schedule.when.moment if isinstance(schedule.when, At) else None
        reason = "its time had passed when it was added"
        return [armed, _build(schedule, "missed", firing_id="never", due=due, reason=reason)]
    return [armed]


def find_journal_lead(state: JournalState, now: float) -> float:
    """Return by how many seconds the last due time of a journal lies in the future, if that cannot be right; else 0.

    The clock was wrong when it was stored, or has been set back since. As with the crons of Unix, times of a fixed hour
    are not repeated if that is less than three hours. A moment that was fired is not fired again.
    """
    timing, lead = state.timing, max(state.anchor, state.handled_until) - now
    is_fixed_hour = isinstance(timing, Cron) and not timing.has_any_hour
    if timing is None or lead <= (_FIXED_HOUR_LEAD_SECONDS if is_fixed_hour else JUMP_SECONDS):
        return 0.0
    if isinstance(timing, At) and (timing.moment <= now or _was_fired(state, timing.moment)):
        return 0.0
    return lead


def _was_fired(state: JournalState, moment: float) -> bool:
    return any(each.due == moment and each.attempts for each in state.firings.values())


def find_overdue_times(state: JournalState, now: float) -> OverdueTimes | None:
    """Return the due times up to `now` that were not fired, skipped or missed yet; `None` if there are none."""
    first, timing = state.next_due, state.timing
    if timing is None or first is None or first > now:
        return None
    last = _find_last(timing, state.anchor, first, now)
    return OverdueTimes(first, last, _count(timing, state.anchor, first, last))


def _find_last(timing: Timing, anchor: float, first: float, now: float) -> float:
    """Return the last due time up to `now`, which is `first` or later; the search begins near `now`."""
    window = _FIRST_WINDOW_SECONDS
    while (start := now - window) > first:
        due = timing.find_next(start, anchor)
        if due is not None and due <= now:
            break
        window *= 2
    last = max(first, start)
    found = first
    while (due := timing.find_next(last, anchor)) is not None and due <= now:
        last = found = due
    return found


def _count(timing: Timing, anchor: float, first: float, last: float) -> int:
    """Return how many due times there are from `first` to `last`; of other timings than intervals at most 1000."""
    if isinstance(timing, Every):
        return round((last - first) / timing.seconds) + 1
    found, due = 1, first
    while due < last and found < _MOST_COUNTED:
        due = timing.find_next(due, anchor) or last
        found += 1
    return found


def build_triggered_record(schedule: Schedule, post: Post) -> ScheduleJournalRecord:
    """Build the record of a firing that a trigger asked for; the firing has the id of the trigger's post."""
    body = cast("dict[str, Any]", post.body if isinstance(post.body, dict) else {})
    given = body.get("labels", (UNTRUSTED_LABEL,))  # a post of another program may say nothing
    labels = () if body.get("input") is None else tuple(map(str, cast("Sequence[object]", given or ())))
    return _build_fired(schedule, post.id, input=body.get("input"), labels=labels)


def _build_fired(schedule: Schedule, firing_id: str, **fields: Any) -> ScheduleJournalRecord:
    return _build(
        schedule,
        "fired",
        firing_id=firing_id,
        session_id=schedule.choose_session(firing_id),
        prompt=schedule.prompt,
        skill=schedule.skill,
        **fields,
    )


def _build_passed(
    schedule: Schedule, state: JournalState, kind: Any, due: OverdueTimes, reason: str
) -> ScheduleJournalRecord:
    firing_id = _name_firing(state, due.first)
    return _build(schedule, kind, firing_id=firing_id, due=due.last, count=due.count, reason=reason)


def _name_firing(state: JournalState, due: float) -> str:
    """Return the id of a firing: its due time, with a number if that was handled before, while the clock was wrong."""
    name = format_moment(due)
    if name not in state.firings:
        return name
    return next(each for number in count(2) if (each := f"{name}-{number}") not in state.firings)


def _build(schedule: Schedule, kind: Any, **fields: Any) -> ScheduleJournalRecord:
    return ScheduleJournalRecord(kind=kind, schedule=schedule.name, **fields)
