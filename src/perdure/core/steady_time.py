"""The time of day for decisions: when the machine's clock jumps, the new time counts only once it has lasted a while.

A clock that is wrong for some seconds, such as before the machine has asked a time server, must not fire schedules, or
let questions expire. Times that are stored or shown are those of the clock itself.
"""

import logging
from datetime import timedelta
from typing import Final
from weakref import WeakKeyDictionary

from .clock_and_ids import Clock

logger = logging.getLogger("perdure")

JUMP_SECONDS: Final = 60.0
"""A change of the clock by more than this, beside the time that passed, is a jump."""
LASTING_SECONDS: Final = 30.0
"""The time for which a jump has to last before it counts."""


class SteadyTime:
    """The time of day in seconds since 1970, of one clock; logs a warning when that jumps."""

    def __init__(self, clock: Clock) -> None:
        self._offset = clock.now() - clock.monotonic()
        """What the clock shows beyond its monotonic time."""
        self._jumped_at: float | None = None
        """When the clock was first seen to have jumped, by its monotonic time; `None` unless it has."""

    def read(self, clock: Clock) -> float:
        """Return the time of day: that of the clock, or that of before its jump until the jump has lasted."""
        monotonic = clock.monotonic()
        offset = clock.now() - monotonic
        jump = offset - self._offset
        if abs(jump) > JUMP_SECONDS:
            if self._jumped_at is None:
                self._jumped_at = monotonic
                _warn(jump)
            if monotonic - self._jumped_at < LASTING_SECONDS:
                return monotonic + self._offset
        self._offset, self._jumped_at = offset, None
        return monotonic + offset


_known: WeakKeyDictionary[Clock, SteadyTime] = WeakKeyDictionary()


def get_steady_time(clock: Clock) -> float:
    """Return the time of day by which schedules are due and questions expire, in seconds since 1970."""
    try:
        steady = _known.get(clock)
        if steady is None:
            steady = _known[clock] = SteadyTime(clock)
    except TypeError:  # a clock of the caller that cannot be referred to weakly, or has no hash
        return clock.now()
    return steady.read(clock)


def describe_jump(seconds: float) -> str:
    """Return the length and direction of a jump as text, such as `ahead by 1 day, 0:00:00`."""
    return f"{'ahead' if seconds > 0 else 'back'} by {timedelta(seconds=round(abs(seconds)))}"


def _warn(jump: float) -> None:
    logger.warning(
        "the clock of this machine was set %s, or the machine has slept: schedules and questions go by the time of "
        "before, and by the new one if it lasts for %d s",
        describe_jump(jump),
        LASTING_SECONDS,
    )
