"""Cron expressions: five fields (minute, hour, day of the month, month, day of the week), parsed and checked.

A field is `*`, a value, a range `1-5`, a step `*/15` or `8-18/2`, or a list of these. Months and weekdays have English
names of three letters, and both 0 and 7 are Sunday. If both days are restricted, a date that fits either counts, as in
every cron. `@hourly`, `@daily`, `@weekly`, `@monthly` and `@yearly` are short forms.
"""

import calendar
import functools
import re
from typing import Final, NamedTuple, NoReturn

from msgspec import Struct

from perdure.core.error import ConfigError
from perdure.core.jsonable import short_repr

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
