"""Cron expressions: parsed, checked, and the next time at which one is due."""

import calendar
import functools
import re
from bisect import bisect_left
from collections.abc import Iterator
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from typing import Final, NamedTuple, NoReturn

from msgspec import Struct

from perdure._core.values.error import ConfigError
from perdure._core.values.jsonable import short_repr

SHORT_FORMS: Final = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
"""Names for usual expressions, and the expressions."""

_LONGEST_EXPRESSION: Final = 200
_PART: Final = re.compile(r"(\*|(\w+)(?:-(\w+))?)(?:/(\d{1,4}))?", re.ASCII)
_MONTHS: Final = {name.lower(): number for number, name in enumerate(calendar.month_abbr) if name}
_WEEKDAYS: Final = {name: number for number, name in enumerate(("sun", "mon", "tue", "wed", "thu", "fri", "sat"))}
_LONGEST_MONTHS: Final = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
_NO_NAMES: Final[dict[str, int]] = {}


class _Field(NamedTuple):
    """The name of a field, its smallest and largest number, and the names of its values."""

    name: str
    first: int
    last: int
    names: dict[str, int] = _NO_NAMES

    @property
    def end(self) -> int:
        """The largest number of `*`: 7 is Sunday, as is 0."""
        return 6 if self.names is _WEEKDAYS else self.last


_FIELDS: Final = (
    _Field("minute", 0, 59),
    _Field("hour", 0, 23),
    _Field("day of the month", 1, 31),
    _Field("month", 1, 12, _MONTHS),
    _Field("day of the week", 0, 7, _WEEKDAYS),
)


class CronExpression(Struct, frozen=True):
    """A parsed cron expression: the numbers that each field allows."""

    minutes: tuple[int, ...]
    hours: tuple[int, ...]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]
    """From 0 for Sunday to 6."""
    has_any_hour: bool
    """True if the field of the hour begins with `*`: such an expression counts real time when clocks are changed."""
    has_any_day: bool
    """True if the field of the day of the month begins with `*`."""
    has_any_weekday: bool

    def matches_date(self, month: int, day: int, weekday: int) -> bool:
        """Return True if an expression fits a date; `weekday` is 0 for Sunday."""
        if month not in self.months:
            return False
        if self.has_any_day or self.has_any_weekday:
            return day in self.days and weekday in self.weekdays
        return day in self.days or weekday in self.weekdays


@functools.lru_cache(maxsize=1024)
def parse_cron_expression(text: str) -> CronExpression:
    """Parse a cron expression. Raises `ConfigError` for a wrong field, and for dates that never come."""
    written = SHORT_FORMS.get(text.strip().lower(), text)
    fields = written.split() if len(written) <= _LONGEST_EXPRESSION else []
    if len(fields) != len(_FIELDS):
        raise ConfigError(
            f"{short_repr(text, 80)} is no cron expression: give five fields (minute, hour, day of the month, month, "
            "day of the week), such as '0 9 * * 1-5'"
        )
    minutes, hours, days, months, weekdays = [
        _parse_field(each, text, kind) for each, kind in zip(fields, _FIELDS, strict=True)
    ]
    parsed = CronExpression(
        tuple(sorted(minutes)),
        tuple(sorted(hours)),
        days,
        months,
        frozenset([each % 7 for each in weekdays]),
        has_any_hour=fields[1].startswith("*"),
        has_any_day=fields[2].startswith("*"),
        has_any_weekday=fields[4].startswith("*"),
    )
    if parsed.has_any_weekday and min(days) > max(_LONGEST_MONTHS[month - 1] for month in months):
        raise ConfigError(f"cron expression {text!r} fits no date: no such month has a day {min(days)}")
    return parsed


def _parse_field(text: str, whole: str, kind: _Field) -> frozenset[int]:
    """Return the numbers that a field of the expression `whole` allows."""
    return frozenset([number for part in text.split(",") for number in _parse_part(part, whole, kind)])


def _parse_part(part: str, whole: str, kind: _Field) -> range:
    found = _PART.fullmatch(part)
    if found is None:
        _raise_bad_field(part, whole, kind, "write it like *, 5, 1-5, */15 or 8-18/2")
    step = 1 if found[4] is None else int(found[4])
    if step == 0:
        _raise_bad_field(part, whole, kind, "a step is 1 or more")
    if found[1] == "*":
        return range(kind.first, kind.end + 1, step)
    first = _parse_number(found[2], part, whole, kind)
    if found[3] is None:  # a value with a step goes on to the end of the field, as in other crons
        last = first if found[4] is None else max(first, kind.end)
    else:
        last = _parse_number(found[3], part, whole, kind)
        if last == 0 and kind.names is _WEEKDAYS and first > 0:  # as in fri-sun
            last = 7
    if last < first:
        _raise_bad_field(part, whole, kind, "a range goes from the smaller value to the larger one")
    return range(first, last + 1, step)


def _parse_number(text: str, part: str, whole: str, kind: _Field) -> int:
    number = kind.names.get(text.lower(), int(text) if text.isdecimal() and len(text) <= 4 else -1)  # noqa: PLR2004
    if not kind.first <= number <= kind.last:
        names = f" or {', '.join(kind.names)}" if kind.names else ""
        _raise_bad_field(part, whole, kind, f"give numbers from {kind.first} to {kind.last}{names}")
    return number


def _raise_bad_field(part: str, whole: str, kind: _Field, advice: str) -> NoReturn:
    raise ConfigError(f"cron expression {short_repr(whole, 80)}: {part!r} is no {kind.name}: {advice}")


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
