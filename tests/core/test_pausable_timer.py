"""Timers that stop counting while a person is asked."""

from perdure._core.run.timer import PausableTimer
from perdure.testing import FakeClock


async def test_a_timer_counts_on_from_where_it_was_paused():
    clock, fired = FakeClock(), list[float]()
    timer = PausableTimer(clock, 10, lambda: fired.append(clock.monotonic()))
    await clock.advance(4)
    assert timer.seconds_left == 6
    timer.pause()
    timer.pause()
    await clock.advance(100)
    assert timer.seconds_left == 6
    timer.go_on()
    await clock.advance(100)
    timer.go_on()
    await clock.advance(5)
    assert fired == []
    await clock.advance(1)
    assert fired == [210]


async def test_a_timer_that_was_cancelled_while_it_was_paused_stays_so():
    clock, fired = FakeClock(), list[float]()
    timer = PausableTimer(clock, 10, lambda: fired.append(clock.monotonic()))
    timer.pause()
    timer.cancel()
    timer.go_on()
    await clock.advance(100)
    assert fired == []


async def test_a_timer_that_has_fired_does_not_fire_again_after_a_pause():
    clock, fired = FakeClock(), list[float]()
    timer = PausableTimer(clock, 10, lambda: fired.append(clock.monotonic()))
    await clock.advance(10)
    timer.pause()
    timer.go_on()
    await clock.advance(100)
    assert fired == [10]
