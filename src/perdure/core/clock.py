"""Time and chance: the only place that asks for either. Above: everything. Below: the machine.

A fake clock (`perdure.testing.FakeClock`) stands in for tests, so that no test waits.
"""

import asyncio
import os
import time
from collections.abc import Callable
from typing import Protocol


class Timer(Protocol):
    """Something that will happen, unless it is cancelled first."""

    def cancel(self) -> None:
        """Make sure that it does not happen."""


class Clock(Protocol):
    """Where the runtime gets its time from."""

    def now(self) -> float:
        """Seconds since 1970, for people. Never used to measure or to order."""
        ...

    def monotonic(self) -> float:
        """Seconds that only ever grow, for deadlines."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Wait; a cancel ends it."""

    def call_later(self, seconds: float, action: Callable[[], object]) -> Timer:
        """Call `action` on the running loop after `seconds`."""
        ...


class SystemClock:
    """The machine's own clock."""

    now = staticmethod(time.time)
    monotonic = staticmethod(time.monotonic)

    async def sleep(self, seconds: float) -> None:
        """Wait."""
        await asyncio.sleep(seconds)

    def call_later(self, seconds: float, action: Callable[[], object]) -> Timer:
        """Call `action` on the running loop after `seconds`."""
        return asyncio.get_running_loop().call_later(seconds, action)


SYSTEM_CLOCK = SystemClock()


def new_id() -> str:
    """A new name that nobody else has: 12 digits of time, so that names sort by age, and 20 of chance."""
    return f"{time.time_ns() // 1_000_000:012x}{os.urandom(10).hex()}"
