"""The run of one firing: when it is tried again, how long it may take, and when its schedule is served again."""

import asyncio
import itertools
from typing import Any

import pytest

from perdure import Limits, ProviderDown, StoreError
from perdure.scheduling import Schedule
from tests.scheduling.scheduling_scene import HANG, Scene, kinds, serve_once

POLL_SECONDS = 1e5
"""Longer than all that is waited for here, so that no other wait is as long."""


async def advance_until_done(scene: Scene, task: "asyncio.Future[Any]") -> None:
    """Let time pass while a task sleeps."""
    async with asyncio.timeout(60):
        while not task.done():
            if scene.clock.sleepers:
                await scene.clock.advance(scene.clock.pending[0])
            await asyncio.sleep(0)


@pytest.mark.parametrize(("first", "waits"), [(10, [10, 20, 40]), (1500, [1500, 3000, 3600]), (0, [])])
async def test_each_retry_waits_twice_as_long_as_the_one_before_and_an_hour_at_most(first: float, waits: list[float]):
    scene = Scene(*[ProviderDown("down")] * 3, "At last.")
    schedule = Schedule(name="mail", prompt="Go.", retries=3, retry_seconds=first, timeout_seconds=None)
    running = asyncio.ensure_future(scene.scheduler(schedule, poll_seconds=POLL_SECONDS).run_now("mail"))
    await advance_until_done(scene, running)
    assert (running.result().status, running.result().attempts) == ("finished", 4)
    assert [each for each in scene.clock.slept if each < POLL_SECONDS] == waits


@pytest.mark.parametrize(("of_agent", "of_schedule", "seconds"), [(5, 30, 5), (30, 5, 5), (None, 5, 5), (5, None, 5)])
async def test_the_shorter_of_two_time_limits_ends_a_run(of_agent: float, of_schedule: float, seconds: float):
    scene = Scene(HANG, limits=Limits(timeout_seconds=of_agent))
    schedule = Schedule(name="mail", prompt="Go.", timeout_seconds=of_schedule)
    running = asyncio.ensure_future(scene.scheduler(schedule, poll_seconds=POLL_SECONDS).run_now("mail"))
    await asyncio.wait_for(scene.asked.wait(), 60)
    begun = scene.clock.now()
    await scene.clock.advance(seconds - 0.5)
    assert not running.done()
    await advance_until_done(scene, running)
    assert (running.result().status, running.result().reason) == ("failed", "timeout")
    assert scene.clock.now() - begun == seconds


async def test_a_schedule_that_fails_again_is_left_alone_twice_as_long_until_it_has_run_again(
    monkeypatch,
):
    scene = Scene("done", "done again")
    scheduler = scene.scheduler(Schedule(name="mail", prompt="Go."), poll_seconds=1)
    acquire = scene.store.acquire
    tries: list[float] = []

    async def fail(session_id: str, **options: Any) -> Any:
        if session_id != "schedules/mail":
            return await acquire(session_id, **options)
        tries.append(scene.clock.now())
        raise StoreError("the disk is full")

    async def list_pauses(times: int) -> list[float]:
        """Serve every half second until the store has failed so often, and return the time between two failures."""
        tries.clear()
        with monkeypatch.context() as patch:
            patch.setattr(scene.store, "acquire", fail)
            while len(tries) < times:
                assert await serve_once(scheduler) == []
                await scene.clock.advance(0.5)
        return [after - before for before, after in itertools.pairwise(tries)]

    await scheduler.trigger("mail")
    assert await list_pauses(9) == [1, 2, 4, 8, 16, 32, 60, 60]
    await scene.clock.advance(60)
    assert kinds(await serve_once(scheduler)) == ["fired", "finished"]
    await scheduler.trigger("mail")
    assert await list_pauses(3) == [1, 2]
    await scene.clock.advance(4)
    assert kinds(await serve_once(scheduler)) == ["fired", "finished"]
