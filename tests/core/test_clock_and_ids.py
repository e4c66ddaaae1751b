"""Time and chance."""

import asyncio
import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure._core.values.clock import SystemClock, new_id
from perdure.engines import SYSTEM_CLOCK


def test_the_system_clock_tells_the_time_of_day():
    before = time.time()
    assert before <= SYSTEM_CLOCK.now() <= time.time()


def test_monotonic_time_goes_on_and_never_back():
    began = now = SYSTEM_CLOCK.monotonic()
    for _ in range(10_000_000):
        earlier, now = now, SYSTEM_CLOCK.monotonic()
        assert now >= earlier
        if now > began:
            break
    assert now > began


async def test_a_sleep_lets_others_run():
    others: list[str] = []
    asyncio.get_running_loop().call_soon(others.append, "ran")
    await SystemClock().sleep(0)
    assert others == ["ran"]


async def test_a_timer_calls_back():
    called = asyncio.Event()
    SYSTEM_CLOCK.call_later(0, called.set)
    async with asyncio.timeout(30):
        await called.wait()


async def test_a_cancelled_timer_does_not():
    called, last = asyncio.Event(), asyncio.Event()
    SYSTEM_CLOCK.call_later(0, called.set).cancel()
    SYSTEM_CLOCK.call_later(0, last.set)
    async with asyncio.timeout(30):
        await last.wait()
    assert not called.is_set()


def test_a_new_id_is_32_digits_that_nobody_else_has():
    ids = {new_id() for _ in range(1000)}
    assert len(ids) == 1000
    assert all(re.fullmatch("[0-9a-f]{32}", each) for each in ids)


@given(st.lists(st.integers(0, 2**47), min_size=2, max_size=2, unique=True).map(sorted))
def test_ids_sort_by_age(milliseconds):
    ids = []
    for each in milliseconds:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(time, "time_ns", lambda each=each: each * 1_000_000)
            ids.append(new_id())
    assert ids == sorted(ids)
