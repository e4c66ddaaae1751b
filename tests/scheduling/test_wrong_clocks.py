"""Due times survive a clock that is wrong for a while, and that is reported."""

import logging
from datetime import UTC, datetime
from typing import Any

import pytest

from perdure import Agent
from perdure._core.values import clock as steady_time
from perdure.background import Schedule, Scheduler, at, cron, every
from perdure.testing import FakeClock, ScriptedModel
from tests.scheduling.scheduling_scene import START, Scene, kinds, serve_once

DAY = 86_400.0
EACH_SECOND = Schedule(name="tick", when=every(seconds=1), prompt="Tick.")


def warnings_in(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.getMessage() for each in caplog.records if each.levelno == logging.WARNING]


def scene_of(*schedules: Schedule) -> tuple[Scene, Scheduler]:
    scene = Scene(*["Done."] * 200)
    return scene, scene.scheduler(*schedules)


def begin_process() -> None:
    """Forget what the time was before, as a process that begins knows nothing of it."""
    steady_time._known.clear()


@pytest.mark.parametrize("jump", [DAY, -DAY, 7_200.0, -7_200.0])
async def test_a_clock_that_is_wrong_for_two_seconds_silences_no_schedule_and_is_reported_once(
    jump: float, caplog: pytest.LogCaptureFixture
) -> None:
    scene, scheduler = scene_of(EACH_SECOND)
    await serve_once(scheduler)
    fired = list[int]()
    for second in range(1, 11):
        await scene.clock.advance(1)
        if second in {4, 6}:
            scene.clock.set_ahead(jump if second == 4 else -jump)
        fired.append(kinds(await serve_once(scheduler)).count("fired"))
    assert fired == [1] * 10
    (warning,) = warnings_in(caplog)
    assert "the clock of this machine was set" in warning


@pytest.mark.parametrize("lasting", [True, False])
async def test_a_schedule_goes_on_after_a_clock_that_was_a_day_ahead_is_set_right(
    lasting: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """The clock was wrong for longer, or the process began while it was."""
    scene, scheduler = scene_of(EACH_SECOND)
    await serve_once(scheduler)
    scene.clock.set_ahead(DAY)
    if lasting:
        await serve_once(scheduler)
        await scene.clock.advance(31)
    else:
        begin_process()
        scheduler = scene.scheduler(EACH_SECOND)
    await scene.clock.advance(1)
    assert kinds(await serve_once(scheduler)) == ["missed", "fired", "finished"]
    scene.clock.set_ahead(-DAY)
    if lasting:
        await serve_once(scheduler)
        await scene.clock.advance(31)
    else:
        begin_process()
        scheduler = scene.scheduler(EACH_SECOND)
    (armed,) = await serve_once(scheduler)
    assert (armed.kind, armed.reason.partition(" by ")[0]) == ("armed", "the clock was set back")
    assert "schedule tick: the clock was set back by" in caplog.text
    for _ in range(3):
        await scene.clock.advance(1)
        assert kinds(await serve_once(scheduler)) == ["fired", "finished"]


async def test_a_time_of_day_that_was_fired_by_a_wrong_clock_is_fired_again_when_it_is_due() -> None:
    daily = Schedule(name="report", when=cron("0 9 * * *"), prompt="Report.", late_seconds=DAY)
    scene, scheduler = scene_of(daily)
    await serve_once(scheduler)
    scene.clock.set_ahead(DAY)
    begin_process()
    early, _ = await serve_once(scene.scheduler(daily))
    scene.clock.set_ahead(-DAY)
    begin_process()
    scheduler = scene.scheduler(daily)
    assert kinds(await serve_once(scheduler)) == ["armed"]
    assert early.due is not None
    await scene.clock.advance(early.due - scene.clock.now())
    fired, finished = await serve_once(scheduler)
    assert (fired.due, fired.firing_id, finished.kind) == (early.due, f"{early.firing_id}-2", "finished")
    assert len(await scheduler.history("report")) == 2


async def test_a_time_of_day_is_not_repeated_when_the_clock_is_set_back_by_less_than_three_hours() -> None:
    daily = Schedule(name="report", when=cron("0 9 * * *"), prompt="Report.")
    scene, scheduler = scene_of(daily)
    (armed,) = await serve_once(scheduler)
    assert armed.timing is not None
    due = armed.timing.find_next(START, START)
    assert due is not None
    await scene.clock.advance(due - START)
    assert kinds(await serve_once(scheduler)) == ["fired", "finished"]
    scene.clock.set_ahead(-2 * 3_600.0)
    begin_process()
    scheduler = scene.scheduler(daily)
    assert await serve_once(scheduler) == []
    await scene.clock.advance(2 * 3_600.0)
    assert await serve_once(scheduler) == []


@pytest.mark.parametrize(("first", "expected"), [("missed", ["fired", "finished"]), ("fired", [])])
async def test_a_moment_that_a_wrong_clock_has_missed_is_fired_and_one_that_it_has_fired_is_not(
    first: str, expected: list[str]
) -> None:
    once = Schedule(name="once", when=at(datetime.fromtimestamp(START + 3_600, UTC)), prompt="Once.")
    scene, scheduler = scene_of(once)
    if first == "fired":
        await serve_once(scheduler)
    scene.clock.set_ahead(DAY)
    begin_process()
    assert first in kinds(await serve_once(scene.scheduler(once)))
    scene.clock.set_ahead(-DAY)
    begin_process()
    scheduler = scene.scheduler(once)
    assert kinds(await serve_once(scheduler)) == (["armed"] if first == "missed" else [])
    await scene.clock.advance(3_600)
    assert kinds(await serve_once(scheduler)) == expected
    await scene.clock.advance(3_600)
    assert await serve_once(scheduler) == []


async def test_machines_whose_clocks_differ_do_not_correct_each_other_for_ever() -> None:
    scene, ahead = scene_of(EACH_SECOND)
    clock = FakeClock(START - 90.0)
    agent: Agent[Any] = Agent(ScriptedModel("Done.", repeat_last=True), store=scene.store, clock=clock)
    behind = Scheduler(agent, [EACH_SECOND])
    records = []
    for _ in range(120):
        for each in (ahead, behind):
            records += await serve_once(each)
        await scene.clock.advance(1)
        await clock.advance(1)
    assert kinds(records).count("armed") <= 4
    assert 100 <= kinds(records).count("fired") <= 130
