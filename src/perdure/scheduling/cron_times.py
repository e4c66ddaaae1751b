"""Find the next time at which a cron expression is due, in a time zone, also when its clocks change.

An expression with a fixed hour is due once on each date that it fits: a time that the clocks skip is due at the end of
the gap, and a time that they show twice is due the first time. An expression whose hour begins with `*`, such as
`*/15 * * * *`, counts real time: it is due whenever the clocks show a time that fits, so also the second time, and a
time that they skip is not due.
"""

from bisect import bisect_left
from collections.abc import Iterator
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from typing import Final

from .cron_expression_parser import CronExpression

_LONGEST_SEARCH_DAYS: Final = 366 * 9
"""29 February can be eight years away."""
_LARGEST_SHIFT_DAYS: Final = 2
"""Clocks have been moved by a whole day, and dates begin up to a day earlier or later than in UTC."""
_MINUTE: Final = timedelta(minutes=1)
_DAY: Final = timedelta(days=1)


def find_next_cron_time(expression: CronExpression, zone: tzinfo, after: datetime) -> datetime | None:
    """Return the first moment after `after` at which a cron expression is due, in UTC; `None` if there is none.

    `None` means that no date of the next nine years fits, or that the calendar ends before.
    """
    after = after.astimezone(UTC)
    try:
        first = after.astimezone(zone).date() - _LARGEST_SHIFT_DAYS * _DAY
        for days in range(_LONGEST_SEARCH_DAYS):
            today = first + days * _DAY
            if not _fits(expression, today):
                continue
            found = _find_first(expression, zone, today, after)
            if found is None:
                continue
            tomorrow = today + _DAY  # clocks that are set back over midnight show its first minutes before
            other = _find_first(expression, zone, tomorrow, after) if _fits(expression, tomorrow) else None
            return found if other is None else min(found, other)
    except OverflowError:  # the calendar ends with the year 9999
        return None
    return None


def _fits(expression: CronExpression, day: date) -> bool:
    return expression.matches_date(day.month, day.day, day.isoweekday() % 7)


def _find_first(expression: CronExpression, zone: tzinfo, day: date, after: datetime) -> datetime | None:
    """Return the first moment of a date after `after` at which an expression is due."""
    midnight = datetime.combine(day, time())
    offset = (midnight - _DAY).replace(tzinfo=zone).utcoffset()
    if offset is not None and offset == (midnight + 2 * _DAY).replace(tzinfo=zone).utcoffset():  # no change of clocks
        wall = _find_first_wall_time(expression, midnight, after.replace(tzinfo=None) + offset)
        return None if wall is None else (wall - offset).replace(tzinfo=UTC)
    due = [moment for wall in _list_wall_times(expression, midnight) for moment in _to_moments(expression, zone, wall)]
    return min((moment for moment in due if moment > after), default=None)


def _find_first_wall_time(expression: CronExpression, midnight: datetime, shown: datetime) -> datetime | None:
    """Return the first time of a date that fits, after the time `shown` by the clocks."""
    if shown - midnight >= _DAY:
        return None
    first_hour = shown.hour if shown > midnight else 0
    times = _list_wall_times(expression, midnight, first_hour)
    return next((wall for wall in times if wall > shown), None)


def _list_wall_times(expression: CronExpression, midnight: datetime, first_hour: int = 0) -> Iterator[datetime]:
    """Yield the times of a date that fit, as clocks show them, in order, from an hour on."""
    for hour in expression.hours[bisect_left(expression.hours, first_hour) :]:
        for minute in expression.minutes:
            yield midnight + timedelta(hours=hour, minutes=minute)


def _to_moments(expression: CronExpression, zone: tzinfo, wall: datetime) -> Iterator[datetime]:
    """Yield the moments, in UTC, at which a time of the clocks is due: none, one, or both."""
    early, late = (wall.replace(tzinfo=zone, fold=fold).astimezone(UTC) for fold in (0, 1))
    is_shown = early.astimezone(zone).replace(tzinfo=None) == wall
    if is_shown:
        yield early
        if expression.has_any_hour and late != early:
            yield late
    elif not expression.has_any_hour:
        yield _find_gap_end(zone, late, early)


def _find_gap_end(zone: tzinfo, before: datetime, after: datetime) -> datetime:
    """Return the first minute between two moments at which the clocks have the offset that they have `after`."""
    offset = after.astimezone(zone).utcoffset()
    while after - before > _MINUTE:
        middle = before + (after - before) // (2 * _MINUTE) * _MINUTE
        if middle.astimezone(zone).utcoffset() == offset:
            after = middle
        else:
            before = middle
    return after
