"""Timers of runs and tool calls, which are paused while a person is asked a question.

The time that people take to answer does not count.
"""

from collections.abc import Callable, Collection, Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from perdure._core.values.clock import Clock, Timer, find_program_call_id

if TYPE_CHECKING:
    from .run import Run

RUN_TIMER = ""
"""The name of the timer of a run, among those of its calls, which have the ids of the calls."""


class PausableTimer:
    """A timer that calls a function once after a number of seconds, not counting the time while it is paused."""

    __slots__ = ("_action", "_clock", "_is_over", "_left", "_pauses", "_since", "_timer")

    def __init__(self, clock: Clock, seconds: float, action: Callable[[], object]) -> None:
        self._clock = clock
        self._action = action
        self._left = seconds
        self._pauses = 0
        self._is_over = False
        self._start()

    @property
    def seconds_left(self) -> float:
        """The seconds until it calls the function, without those in which it is paused."""
        return self._left if self._pauses else self._left - (self._clock.monotonic() - self._since)

    def pause(self) -> None:
        """Stop counting until `go_on` is called as often as this."""
        self._pauses += 1
        if self._pauses == 1:
            self._timer.cancel()
            self._left -= self._clock.monotonic() - self._since

    def go_on(self) -> None:
        """Count on from where the timer was paused."""
        self._pauses -= 1
        if not self._pauses and not self._is_over:
            self._start()

    def cancel(self) -> None:
        """Cancel the call of the function, for good."""
        self._is_over = True
        self._timer.cancel()

    def _start(self) -> None:
        self._since = self._clock.monotonic()
        self._timer: Timer = self._clock.call_later(max(0.0, self._left), self._fire)

    def _fire(self) -> None:
        self._is_over = True
        self._action()


@contextmanager
def paused_timers(run: "Run", call_ids: Collection[str] = ()) -> Generator[None]:
    """Pause, during the `with` block, the timers of a run, of these tool calls, and of the parent runs.

    The timer of a program is paused with those of its calls.
    """
    programs = {find_program_call_id(each) for each in call_ids}  # mostly {""}, the timer of the run
    timers = [run.timers[name] for name in {RUN_TIMER, *call_ids, *programs} if name in run.timers]
    above = run.parent
    while above is not None:
        timers += [above.timers[RUN_TIMER]] if RUN_TIMER in above.timers else []
        above = above.parent
    for each in timers:
        each.pause()
    try:
        yield
    finally:
        for each in timers:
            each.go_on()
