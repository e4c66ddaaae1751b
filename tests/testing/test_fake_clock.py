"""Time passes when the test says so."""

import asyncio
import functools
from typing import Any

import pytest

from perdure import ConfigError
from perdure.testing import FakeClock


async def test_time_stands_still_until_it_is_moved():
    clock = FakeClock(start=1000.0)
    assert (clock.now(), clock.monotonic()) == (1000.0, 0.0)
    await clock.advance(2.5)
    assert (clock.now(), clock.monotonic()) == (1002.5, 2.5)


async def test_a_sleep_ends_when_the_clock_has_been_moved_past_it():
    clock = FakeClock()
    task = asyncio.create_task(clock.sleep(10))
    await clock.advance(9)
    assert not task.done()
    await clock.advance(1)
    assert task.done()


async def test_sleepers_wake_in_the_order_of_their_time_and_see_that_time():
    clock, woken = FakeClock(), []

    async def sleeper(seconds):
        await clock.sleep(seconds)
        woken.append((seconds, clock.monotonic()))

    tasks = [asyncio.create_task(sleeper(seconds)) for seconds in (3, 1, 2)]
    await clock.advance(5)
    assert woken == [(1, 1), (2, 2), (3, 3)]
    assert all(task.done() for task in tasks)
    assert clock.monotonic() == 5


async def test_what_falls_due_at_the_same_time_happens_in_the_order_it_was_asked_for():
    clock = FakeClock()
    happened: list[str] = []
    for name in "abc":
        clock.call_later(1, functools.partial(happened.append, name))
    await clock.advance(1)
    assert happened == ["a", "b", "c"]


async def test_one_who_sleeps_again_is_woken_again_within_the_same_advance():
    clock, ticks = FakeClock(), []

    async def tick():
        while True:
            await clock.sleep(1)
            ticks.append(clock.monotonic())

    task = asyncio.create_task(tick())
    await clock.advance(3.5)
    assert ticks == [1, 2, 3]
    task.cancel()


async def test_ten_tenths_of_a_second_are_a_second():
    clock = FakeClock()
    task = asyncio.create_task(clock.sleep(1))
    for _ in range(10):
        await clock.advance(0.1)
    assert task.done()


async def test_a_cancelled_sleep_leaves_nothing_behind():
    clock = FakeClock()
    task = asyncio.create_task(clock.sleep(10))
    await clock.wait_for_sleepers()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (clock.sleepers, clock.pending) == (0, [])


async def test_a_cancelled_timer_does_not_fire():
    clock, fired = FakeClock(), []
    timer = clock.call_later(1, lambda: fired.append(1))
    timer.cancel()
    await clock.advance(2)
    assert fired == []


async def test_a_timer_is_pending_but_does_not_sleep():
    clock = FakeClock()
    clock.call_later(30, int)
    task = asyncio.create_task(clock.sleep(20))
    await clock.wait_for_sleepers()
    assert (clock.sleepers, clock.pending) == (1, [20, 30])
    assert "1 sleepers, pending [20.0, 30.0]" in repr(clock)
    await clock.advance(20)
    assert (task.done(), clock.sleepers, clock.pending) == (True, 0, [10])


async def test_one_can_wait_for_several_to_fall_asleep():
    clock = FakeClock()
    started = asyncio.Event()

    async def late():
        await started.wait()
        await clock.sleep(1)

    tasks = [asyncio.create_task(late()) for _ in range(2)]
    waiting = asyncio.create_task(clock.wait_for_sleepers(2))
    await asyncio.sleep(0)
    assert not waiting.done()
    started.set()
    await waiting
    await clock.advance(1)
    assert all(task.done() for task in tasks)


async def test_waiting_for_sleepers_who_do_not_come_is_bounded():
    with pytest.raises(AssertionError, match=r"waited 0\.01 s for 1 sleepers, and there are 0"):
        await FakeClock().wait_for_sleepers(timeout_seconds=0.01)


async def test_a_sleep_of_nothing_only_lets_others_run():
    clock = FakeClock()
    ran: list[int] = []
    asyncio.get_running_loop().call_soon(ran.append, 1)
    async with asyncio.timeout(0.9):
        await clock.sleep(0)
    assert (ran, clock.monotonic()) == ([1], 0)


async def test_every_sleep_is_remembered():
    clock = FakeClock(auto=True)
    for seconds in (1, 2, 4):
        await clock.sleep(seconds)
    assert clock.slept == [1, 2, 4]


async def test_an_automatic_clock_moves_the_time_instead_of_waiting():
    clock = FakeClock(start=100, auto=True)
    await clock.sleep(60)
    assert (clock.now(), clock.monotonic()) == (160, 60)


async def test_an_automatic_clock_fires_the_timers_that_a_sleep_passes():
    clock, fired = FakeClock(auto=True), []
    clock.call_later(1, lambda: fired.append(clock.monotonic()))
    clock.call_later(9, lambda: fired.append(clock.monotonic()))
    await clock.sleep(5)
    assert (fired, clock.monotonic(), clock.pending) == ([1], 5, [4])


async def test_a_timer_can_cancel_the_one_whose_sleep_passes_it():
    clock = FakeClock(auto=True)
    task = asyncio.create_task(clock.sleep(2))
    clock.call_later(1, task.cancel)
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_time_does_not_run_backwards():
    with pytest.raises(ConfigError, match="time does not run backwards"):
        await FakeClock().advance(-1)


def test_a_clock_starts_at_a_number():
    clock: Any = FakeClock
    with pytest.raises(ConfigError, match="start is a number of seconds since 1970"):
        clock("noon")


async def test_a_timer_of_no_time_or_less_is_due_at_once():
    clock = FakeClock()
    fired: list[str] = []
    clock.call_later(0, functools.partial(fired.append, "now"))
    clock.call_later(-5, functools.partial(fired.append, "long ago"))
    assert (clock.pending, fired) == ([0.0, 0.0], [])
    await clock.advance(0)
    assert (clock.pending, fired, clock.monotonic()) == ([], ["now", "long ago"], 0.0)


async def test_an_automatic_clock_does_not_go_back_and_lets_others_run():
    clock = FakeClock(auto=True)
    await clock.sleep(2)
    ran: list[int] = []
    asyncio.get_running_loop().call_soon(ran.append, 1)
    await clock.sleep(-1)
    assert (clock.monotonic(), clock.slept, ran) == (2.0, [2, -1], [1])


async def test_a_clock_shows_its_time_and_who_waits():
    clock = FakeClock()
    assert repr(clock) == "<FakeClock at 0 s, 0 sleepers, pending []>"
    task = asyncio.create_task(clock.sleep(4))
    await clock.advance(1.5)
    assert repr(clock) == "<FakeClock at 1.5 s, 1 sleepers, pending [2.5]>"
    await clock.advance(2.5)
    assert task.done()


async def test_what_a_timer_wakes_runs_to_its_next_wait_before_the_next_timer_fires():
    clock, order = FakeClock(), list[str]()
    links = [asyncio.Event() for _ in range(8)]

    async def chain(number: int) -> None:
        await links[number].wait()
        if number + 1 < len(links):
            links[number + 1].set()
        else:
            order.append("the end of the chain")

    tasks = [asyncio.create_task(chain(number)) for number in range(len(links))]
    clock.call_later(1, links[0].set)
    clock.call_later(1, functools.partial(order.append, "the next timer"))
    await clock.advance(1)
    assert order == ["the end of the chain", "the next timer"]
    assert all(task.done() for task in tasks)


@pytest.mark.parametrize("seconds", ["1", None, -0.1])
async def test_time_is_moved_by_a_number_of_seconds(seconds):
    with pytest.raises(ConfigError) as refused:
        await FakeClock().advance(seconds)
    assert str(refused.value) == f"advance({seconds!r}): give a number of seconds; time does not run backwards"
