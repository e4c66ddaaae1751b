"""A clock for tests: time passes only when the test advances it.

Nothing waits in real time: a sleep ends when the test advances the clock past it, or at once with `auto=True`.
"""

import asyncio
import heapq
import itertools
from collections.abc import Callable
from typing import Any

from perdure._core.values.error import ConfigError

_TOLERANCE = 1e-9
"""Tolerance in seconds: ten times a tenth of a second is one second, also in floating point."""

_ROUNDS = 25
"""Event loop iterations given to what a timer woke: enough for a chain of tasks that wait for one another."""


class FakeTimer:
    """Timer of a `FakeClock`: it fires when the test advances the clock to its time."""

    __slots__ = ("action", "due", "live", "sleeper")

    def __init__(self, due: float, action: Callable[[], object], *, sleeper: bool) -> None:
        self.due = due
        self.action = action
        self.sleeper = sleeper
        self.live = True

    def cancel(self) -> None:
        self.live = False


class FakeClock:
    """Clock for tests: time passes only when the test advances it."""

    def __init__(self, start: float = 1_700_000_000.0, *, auto: bool = False) -> None:
        """Create a clock that starts at `start` (seconds since 1970). With `auto`, a sleep advances it and returns."""
        given: Any = start
        if not isinstance(given, (int, float)):
            raise ConfigError(f"FakeClock(start={start!r}): start is a number of seconds since 1970")
        self.slept: list[float] = []
        """Requested durations of all sleeps, in order: the delays of a retry, for instance."""
        self._start = start
        self._elapsed = 0.0
        self._auto = auto
        self._timers: list[tuple[float, int, FakeTimer]] = []
        self._order = itertools.count()
        self._came = asyncio.Event()

    def __repr__(self) -> str:
        return f"<FakeClock at {self._elapsed:g} s, {self.sleepers} sleepers, pending {self.pending}>"

    # -- what the runtime asks -----------------------------------------------------------------------------------------

    def now(self) -> float:
        """Return the time of day in seconds since 1970."""
        return self._start + self._elapsed

    def monotonic(self) -> float:
        """Return the seconds since the clock was created."""
        return self._elapsed

    async def sleep(self, seconds: float) -> None:
        """Wait until the test has advanced the clock by `seconds`."""
        self.slept.append(seconds)
        if self._auto:
            self._fire_until(self._elapsed + max(0.0, seconds))
        if self._auto or seconds <= 0:
            await asyncio.sleep(0)
            return
        woken = asyncio.Event()
        timer = self._add(seconds, woken.set, sleeper=True)
        try:
            await woken.wait()
        finally:
            timer.cancel()

    def call_later(self, seconds: float, action: Callable[[], object]) -> FakeTimer:
        """Call `action` when the test has advanced the clock by `seconds`."""
        return self._add(seconds, action, sleeper=False)

    # -- what a test does ----------------------------------------------------------------------------------------------

    @property
    def sleepers(self) -> int:
        """Number of tasks that sleep on this clock now."""
        return sum(1 for _, _, timer in self._timers if timer.live and timer.sleeper)

    @property
    def pending(self) -> list[float]:
        """Remaining seconds of each sleep and timer, the next one first."""
        return sorted(due - self._elapsed for due, _, timer in self._timers if timer.live)

    async def advance(self, seconds: float) -> None:
        """Advance the time by `seconds`; fire due timers in order, and run what each one wakes before the next."""
        if not isinstance(seconds, (int, float)) or seconds < 0:
            raise ConfigError(f"advance({seconds!r}): give a number of seconds; time does not run backwards")
        until = self._elapsed + seconds
        await _let_others_run()
        while (timer := self._next_due(until)) is not None:
            self._fire(timer)
            await _let_others_run()
        self._elapsed = max(self._elapsed, until)

    async def wait_for_sleepers(self, count: int = 1, *, timeout_seconds: float = 5.0) -> None:
        """Wait until `count` tasks sleep on this clock; raise `AssertionError` after `timeout_seconds` of real time."""
        try:
            async with asyncio.timeout(timeout_seconds):
                while self.sleepers < count:
                    self._came.clear()
                    await self._came.wait()
        except TimeoutError:
            message = f"waited {timeout_seconds:g} s for {count} sleepers, and there are {self.sleepers}: {self!r}"
            raise AssertionError(message) from None

    def set_ahead(self, seconds: float) -> None:
        """Set the time of day ahead, or back if `seconds` is negative, as if the machine's clock was set: no time
        passes.
        """
        self._start += seconds

    # -- inside --------------------------------------------------------------------------------------------------------

    def _add(self, seconds: float, action: Callable[[], object], *, sleeper: bool) -> FakeTimer:
        timer = FakeTimer(self._elapsed + max(0.0, seconds), action, sleeper=sleeper)
        heapq.heappush(self._timers, (timer.due, next(self._order), timer))
        self._came.set()
        return timer

    def _next_due(self, until: float) -> FakeTimer | None:
        while self._timers and self._timers[0][0] <= until + _TOLERANCE:
            timer = heapq.heappop(self._timers)[2]
            if timer.live:
                return timer
        return None

    def _fire(self, timer: FakeTimer) -> None:
        self._elapsed = max(self._elapsed, timer.due)
        timer.live = False
        timer.action()

    def _fire_until(self, until: float) -> None:
        while (timer := self._next_due(until)) is not None:
            self._fire(timer)
        self._elapsed = max(self._elapsed, until)


async def _let_others_run() -> None:
    for _ in range(_ROUNDS):
        await asyncio.sleep(0)
