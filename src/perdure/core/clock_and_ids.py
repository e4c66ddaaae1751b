"""The clock of the runtime, its timers, and unique ids.

It is the only module that reads the time or random bytes.

Tests use a fake clock (`perdure.testing.FakeClock`), so that no test waits.
"""

import asyncio
import os
import time
from collections.abc import Callable
from typing import Protocol


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
