"""Build schedules from the `[[schedule]]` tables of `perdure.toml`, and find the mistakes in them."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import msgspec

from perdure._core.values.error import ConfigError

from .lines import ValuePath
from .tables import ScheduleTable

if TYPE_CHECKING:
    from perdure._work.schedules.schedule import Schedule
    from perdure._work.schedules.timing import Timing

_TIMING_KEYS = ("every", "at", "cron", "timezone")


def build_schedule(table: ScheduleTable) -> "Schedule":
    """Build the schedule that a `[[schedule]]` table describes. Raises `ConfigError` for settings that cannot work."""
    from perdure._work.schedules.schedule import Schedule  # at first use: few files have schedules

    fields = {name: value for name, value in msgspec.structs.asdict(table).items() if name not in _TIMING_KEYS}
    return Schedule(when=_build_timing(table), **fields)


def _build_timing(table: ScheduleTable) -> "Timing | None":
    """Return when a schedule is due; `None` if it is only triggered."""
    from perdure._work.schedules.timing import at, cron, parse_interval

    given = [name for name in ("every", "at", "cron") if getattr(table, name)]
    if len(given) > 1:
        raise ConfigError(f"there is {given[0]!r} already: keep one of {given[0]!r} and {given[1]!r}")
    if table.timezone and not (table.cron or table.at):
        raise ConfigError("'timezone' is for 'cron' and 'at': remove it, or add one of them")
    if table.cron:
        return cron(table.cron, timezone=table.timezone or "UTC")
    if table.at:
        return at(table.at, timezone=table.timezone)
    return parse_interval(table.every) if table.every else None


def find_schedule_mistakes(tables: Sequence[ScheduleTable]) -> Iterator[tuple[ValuePath, str]]:
    """Yield path and message of each `[[schedule]]` table that cannot work, or has the name of another one."""
    names: set[str] = set()
    for place, table in enumerate(tables):
        if table.name in names:
            yield ("schedule", place, "name"), f"there is a schedule {table.name!r} already: rename one of the two"
        names.add(table.name)
        try:
            build_schedule(table)
        except ConfigError as error:
            yield ("schedule", place), str(error)
