"""Timings of schedules: at an interval (`every`), at one moment (`at`), or by a cron expression (`cron`).

These are plain values, which are stored with a schedule. Moments are seconds since 1970.
"""

import math
import re
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Final, TypeAlias

from msgspec import Struct

from perdure._core.values import checks
from perdure._core.values.error import ConfigError
from perdure._core.values.jsonable import short_repr

from .cron import find_next_cron_time, parse_cron_expression

SHORTEST_INTERVAL_SECONDS: Final = 1.0
"""The shortest interval of a schedule."""
_LATEST_MOMENT: Final = 253_402_300_799.0
"""The end of the year 9999."""
_LONGEST_INTERVAL_SECONDS: Final = 3_660 * 86_400.0
_UNITS: Final = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}
_INTERVAL: Final = re.compile(r"(\d{1,9}(?:\.\d{1,3})?)\s?([smhdw])", re.ASCII)


class Every(Struct, frozen=True, tag_field="kind", tag="every"):
    """Timing of a schedule that is due at an interval, counted from the moment a scheduler first processed it."""

    seconds: float

    def __post_init__(self) -> None:
        checks.require_number("Every", "seconds", self.seconds)
        if not SHORTEST_INTERVAL_SECONDS <= self.seconds <= _LONGEST_INTERVAL_SECONDS:
            raise ConfigError(
                f"an interval of {self.seconds!r} seconds is no schedule: give a second or more, and at most ten years"
            )

    def find_next(self, after: float, anchor: float) -> float | None:
        """Return the first due moment after `after`; the interval is counted from `anchor`."""
        count = max(1, math.floor((after - anchor) / self.seconds))
        while (due := anchor + count * self.seconds) <= after:
            count += 1
        return due

    def describe(self) -> str:
        """Return the timing as text, such as `every 5m`."""
        for unit, seconds in reversed(_UNITS.items()):
            if unit != "w" and self.seconds % seconds == 0:
                return f"every {self.seconds / seconds:.0f}{unit}"
        return f"every {self.seconds:g}s"


class At(Struct, frozen=True, tag_field="kind", tag="at"):
    """Timing of a schedule that is due once, at a given moment."""

    moment: float
    """Seconds since 1970."""

    def __post_init__(self) -> None:
        if not isinstance(self.moment, (int, float)) or not math.isfinite(self.moment):
            raise ConfigError(f"{short_repr(self.moment, 80)} is no moment: give seconds since 1970, or use at(…)")

    def find_next(self, after: float, anchor: float) -> float | None:  # noqa: ARG002 - as for the other timings
        """Return the moment if it is after `after`, else `None`."""
        return self.moment if self.moment > after else None

    def describe(self) -> str:
        """Return the timing as text, such as `at 2026-11-18T09:00:00Z`."""
        return f"at {format_moment(self.moment)}"


class Cron(Struct, frozen=True, tag_field="kind", tag="cron"):
    """Timing of a schedule that is due by a cron expression, in a time zone."""

    expression: str
    timezone: str = "UTC"

    def __post_init__(self) -> None:
        parse_cron_expression(self.expression)
        open_timezone(self.timezone)

    @property
    def has_any_hour(self) -> bool:
        """True if the hour begins with `*`: then it counts real time."""
        return parse_cron_expression(self.expression).has_any_hour

    def find_next(self, after: float, anchor: float) -> float | None:  # noqa: ARG002 - as for the other timings
        """Return the first due moment after `after`; `None` if there is none in the next nine years."""
        moment = datetime.fromtimestamp(after, UTC)
        found = find_next_cron_time(parse_cron_expression(self.expression), open_timezone(self.timezone), moment)
        return None if found is None else found.timestamp()

    def describe(self) -> str:
        """Return the timing as text, such as `cron 0 9 * * 1-5 (Europe/Berlin)`."""
        return f"cron {self.expression} ({self.timezone})"


Timing: TypeAlias = Every | At | Cron
"""The times at which a schedule is due."""


def every(*, seconds: float = 0, minutes: float = 0, hours: float = 0, days: float = 0) -> Every:
    """Return the timing of a schedule that is due at an interval, such as `every(minutes=5)`.

    It is counted from the moment at which the schedule is first served: that moment is stored, so a restart does not
    move it. Raises `ConfigError` for less than a second.
    """
    for name, value in (("seconds", seconds), ("minutes", minutes), ("hours", hours), ("days", days)):
        checks.require_number("every", name, value, _LONGEST_INTERVAL_SECONDS)
    return Every(float(timedelta(seconds=seconds, minutes=minutes, hours=hours, days=days).total_seconds()))


def at(moment: datetime | str, *, timezone: str = "") -> At:
    """Return the timing of a schedule that is due once, such as `at("2026-11-18T09:00", timezone="Europe/Berlin")`.

    Give a `datetime`, or a text in ISO format. One without an offset from UTC needs a `timezone`. Raises `ConfigError`
    for anything else.
    """
    given: object = moment
    if isinstance(given, str):
        try:
            given = datetime.fromisoformat(given.strip())
        except ValueError:
            checks.raise_config_error("at", "moment", moment, "write it like '2026-11-18T09:00+01:00'")
    if not isinstance(given, datetime):
        checks.raise_config_error("at", "moment", moment, "give a datetime, or a text in ISO format")
    if given.tzinfo is None:
        if not timezone:
            checks.raise_config_error(
                "at", "moment", moment, "it has no time zone: add an offset such as +01:00, or give timezone="
            )
        given = given.replace(tzinfo=open_timezone(timezone))
    try:
        return At(given.timestamp())
    except (OverflowError, OSError):
        checks.raise_config_error("at", "moment", moment, "it is out of reach: give a year from 1970 to 9999")


def cron(expression: str, *, timezone: str = "UTC") -> Cron:
    """Return the timing of a schedule by a cron expression, such as `cron("0 9 * * 1-5", timezone="Europe/Berlin")`.

    Raises `ConfigError` for an expression that is wrong or fits no date, and for an unknown time zone.
    """
    checks.require_text("cron", "expression", expression, non_empty=True)
    checks.require_text("cron", "timezone", timezone, non_empty=True)
    return Cron(" ".join(expression.split()), timezone)


def parse_interval(text: str) -> Every:
    """Convert an interval such as `5m`, `1.5h` or `2d` to a timing. Raises `ConfigError`."""
    found = _INTERVAL.fullmatch(text.strip())
    if found is None:
        raise ConfigError(f"{short_repr(text, 80)} is no interval: write it like 30s, 5m, 12h, 1d or 1w")
    return Every(float(found[1]) * _UNITS[found[2]])


def open_timezone(name: str) -> tzinfo:
    """Return the time zone with this name, such as `Europe/Berlin`. Raises `ConfigError` if there is none."""
    if name == "UTC":  # which needs no database
        return UTC
    from zoneinfo import ZoneInfo  # at first use: most schedules are in UTC

    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError) as error:
        raise ConfigError(
            f"there is no time zone {short_repr(name, 80)}: use a name such as 'Europe/Berlin'; if there are none at "
            "all, install the time zones of your system, or the package tzdata"
        ) from error


def format_moment(moment: float) -> str:
    """Return a moment as text in UTC, such as `2026-11-18T09:00:00Z`, with milliseconds only if there are any."""
    shown = datetime.fromtimestamp(max(0.0, min(moment, _LATEST_MOMENT)), UTC)
    has_fraction = round(shown.microsecond / 1000) > 0
    return shown.isoformat(timespec="milliseconds" if has_fraction else "seconds").replace("+00:00", "Z")
