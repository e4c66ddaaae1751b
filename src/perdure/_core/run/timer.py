"""Timers of runs and tool calls, which are paused while a person is asked a question.

The time that people take to answer does not count.
"""

from collections.abc import Callable

from perdure._core.values.clock import Clock, Timer

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
