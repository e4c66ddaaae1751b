"""The clock of the runtime, its timers, the steady time for decisions, and ids: unique ones and those of calls."""

import asyncio
import logging
import os
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Final, Protocol
from weakref import WeakKeyDictionary


class Timer(Protocol):
    """Protocol of a scheduled function call that can be cancelled, as `Clock.call_later` returns it."""

    def cancel(self) -> None:
        """Cancel the call."""


class Clock(Protocol):
    """Protocol of the source of time for the runtime. Tests replace it."""

    def now(self) -> float:
        """Return seconds since 1970, for display only: the value may jump when the machine's clock is set."""
        ...

    def monotonic(self) -> float:
        """Return seconds that never decrease, for deadlines."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Wait this many seconds; cancelling ends it."""

    def call_later(self, seconds: float, action: Callable[[], object]) -> Timer:
        """Call `action` on the running loop after `seconds`."""
        ...


class SystemClock:
    """The `Clock` that uses the system's time and the timers of asyncio."""

    now = staticmethod(time.time)
    monotonic = staticmethod(time.monotonic)

    async def sleep(self, seconds: float) -> None:
        """Wait this many seconds."""
        await asyncio.sleep(seconds)

    def call_later(self, seconds: float, action: Callable[[], object]) -> Timer:
        """Call `action` on the running loop after `seconds`."""
        return asyncio.get_running_loop().call_later(seconds, action)


SYSTEM_CLOCK = SystemClock()
"""The clock of the operating system, which agents use unless they are given another."""


def new_id() -> str:
    """Return a new unique id: 12 hex digits of time, so that ids sort by age, and 20 random ones."""
    return f"{time.time_ns() // 1_000_000:012x}{os.urandom(10).hex()}"


def random_fraction() -> float:
    """Return a random number from 0 to 1, to vary the delays before retries."""
    return int.from_bytes(os.urandom(4)) / 0xFFFF_FFFF


SEPARATOR = "#"
_DIGEST_LENGTH = 16


def build_program_call_id(program_call_id: str, number: int, name: str, arguments: str) -> str:
    """Build the id of a call that a program makes, from its number in the program, its tool and its arguments."""
    import hashlib  # at first use: it loads OpenSSL

    digest = hashlib.sha256(f"{name}\n{arguments}".encode()).hexdigest()[:_DIGEST_LENGTH]
    return f"{build_program_call_prefix(program_call_id, number)}{digest}"


def build_program_call_prefix(program_call_id: str, number: int) -> str:
    """Build the beginning of the id of a program's tool call: the part before the hash of its tool and arguments."""
    return f"{program_call_id}{SEPARATOR}{number}-"


def find_program_call_id(call_id: str) -> str:
    """Extract, from the id of a program's tool call, the id of the call that runs the program; empty for others."""
    return call_id.rpartition(SEPARATOR)[0]


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
