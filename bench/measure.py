"""How everything here is measured, and what a figure is. Above: one module for each figure. Below: the clock.

Other programs share the machine, so no figure is a single reading: whatever is compared is measured in turns, in the
same process, and the best or the middle of many readings counts.
"""

import statistics
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple

HAND_TURN = "hand-written turn"
"""What most ratios are to: one turn of `hand_loop.py`, measured beside it."""


class Effort(NamedTuple):
    """How often to measure. Fewer readings are quicker and less sure."""

    rounds: int
    """Runs of each kind, in turns."""
    starts: int
    """Interpreters started for each import."""
    repeats: int
    """Readings of something small, of which the best counts."""
    calls: int
    """Calls in each of these readings."""
    deltas: int
    """Pieces of text in one reply."""
    long_run: int
    """Tool turns in one long run."""


THOROUGH = Effort(rounds=40, starts=15, repeats=15, calls=2_000, deltas=100_000, long_run=1_000)
QUICK = Effort(rounds=2, starts=1, repeats=2, calls=40, deltas=2_000, long_run=20)


class Figure(NamedTuple):
    """One line of the table."""

    name: str
    value: float
    unit: str
    explanation: str
    """What was measured, in one line."""
    budget: float | None = None
    """What it may be; `None` for a figure without a budget."""
    at_most: float | None = None
    """What it may be at the very most."""
    ratio: float | None = None
    compared_to: str = HAND_TURN
    """What the ratio is to."""
    detail: str = ""
    """More about the value, for the same cell."""

    @property
    def verdict(self) -> str:
        """Whether the budget was kept. A figure is never a test: nothing fails."""
        if self.budget is None:
            return "no budget"
        if self.value <= self.budget:
            return "kept"
        if self.at_most is not None and self.value <= self.at_most:
            return f"missed, within {self.at_most:g}"
        return "missed"


class Spread(NamedTuple):
    """Where the readings of one thing lie, in microseconds."""

    least: float
    tenth: float
    """A tenth of the readings is below this one."""
    median: float

    def __str__(self) -> str:
        return f"min {self.least:.1f}, p10 {self.tenth:.1f}"


def spread(nanoseconds: Sequence[int]) -> Spread:
    """The readings as a spread."""
    tenth = statistics.quantiles(nanoseconds, n=10)[0]
    return Spread(min(nanoseconds) / 1000, tenth / 1000, statistics.median(nanoseconds) / 1000)


def best_us(action: Callable[[], object], effort: Effort) -> float:
    """Microseconds of CPU for one call: the best of several readings of many calls."""
    readings: list[int] = []
    for _ in range(effort.repeats):
        began = time.process_time_ns()
        for _ in range(effort.calls):
            action()
        readings.append(time.process_time_ns() - began)
    return min(readings) / effort.calls / 1000


async def best_async_us(action: Callable[[], Awaitable[object]], effort: Effort) -> float:
    """As `best_us`, for something that is awaited. Threads that help count too."""
    readings: list[int] = []
    for _ in range(effort.repeats):
        began = time.process_time_ns()
        for _ in range(effort.calls):
            await action()
        readings.append(time.process_time_ns() - began)
    return min(readings) / effort.calls / 1000


async def cpu_ns(work: Awaitable[object]) -> int:
    """Nanoseconds of CPU that awaiting this takes, in all threads."""
    began = time.process_time_ns()
    await work
    return time.process_time_ns() - began
