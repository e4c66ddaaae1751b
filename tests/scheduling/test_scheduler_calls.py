"""Calls of one scheduler do not disturb each other, nor does a store that fails when a schedule is given up."""

import asyncio
from contextlib import aclosing, asynccontextmanager

import pytest

from perdure import ConfigError, ProviderDown, StoreError, Usage, UsageError, tool
from perdure._core.log.store import Log
from perdure.background import At, Every, Schedule, every
from perdure.context import Command
from perdure.events import RunEnded, RunStarted
from perdure.testing import Reply, call
from tests.scheduling.scheduling_scene import HANG, START, Scene, kinds, serve_once

HOURLY = Schedule(name="news", when=every(hours=1), prompt="Read the news.", timeout_seconds=None)
MAIL = Schedule(name="mail", prompt="Answer this mail.", timeout_seconds=None)
OTHER = Schedule(name="other", prompt="Do the other thing.")


@asynccontextmanager
async def time_passes(scene):
    """Let the time of a scene pass, a second whenever everybody waits for it, for a minute of real time at most."""

    async def advance() -> None:
        while True:
            await scene.clock.wait_for_sleepers(timeout_seconds=60)
            await scene.clock.advance(1)

    advancing = asyncio.ensure_future(advance())
    try:
        async with asyncio.timeout(60):
            yield
    finally:
        advancing.cancel()
        await asyncio.wait((advancing,))


async def collect(scheduler, into):
    async with aclosing(scheduler.serve()) as records:
        async for record in records:
            into.append((record.schedule, record.kind))


async def end(task):
    task.cancel()
    await asyncio.wait((task,))


async def test_running_one_schedule_now_does_not_cancel_what_the_same_scheduler_serves():
    scene = Scene(HANG, "quick")
    seen: list[tuple[str, str]] = []
    scheduler = scene.scheduler(MAIL, OTHER)
    serving = asyncio.ensure_future(collect(scheduler, seen))
    firing_id = await scheduler.trigger("mail", "Hello")
    async with time_passes(scene):
        await scene.asked.wait()
        assert (await scheduler.run_now("other")).status == "finished"
        assert (await scheduler.history("mail"))[0].status == "running"
        assert not any(isinstance(each.event, RunEnded) for each in await scene.store.read("mail"))
        await scheduler.cancel("mail")
        assert (await scheduler.wait_for_firing("mail", firing_id)).status == "cancelled"
    await end(serving)
    assert ("mail", "cancelled") in seen


async def test_a_run_that_another_call_has_begun_goes_on_when_that_one_ends():
    scene = Scene(HANG, "Again.")
    seen: list[tuple[str, str]] = []
    scheduler = scene.scheduler(MAIL)
    serving = asyncio.ensure_future(collect(scheduler, seen))
    async with time_passes(scene):
        firing_id = await scheduler.trigger("mail", "Hello")
        await scene.asked.wait()
        running = asyncio.ensure_future(scheduler.run_now("mail", "Me too"))
        await end(serving)
        assert (await running).status == "finished"
        assert (await scheduler.wait_for_firing("mail", firing_id)).status == "cancelled"


async def test_leaving_the_iteration_at_once_leaves_the_firing_to_another_process():
    scene = Scene("done")
    scheduler = scene.scheduler(MAIL)
    await scheduler.trigger("mail", "Hello")
    async with asyncio.timeout(60), aclosing(scheduler.serve()) as records:
        assert (await anext(records)).kind == "fired"  # its task has not begun yet
    assert kinds(await serve_once(scene.scheduler(MAIL))) == ["resumed", "finished"]


async def test_a_store_that_fails_when_a_run_is_over_does_not_end_the_iteration(monkeypatch):
    scene = Scene("done", "again")
    scheduler = scene.scheduler(MAIL)
    release = scene.store.release

    async def fail_once(lease):
        await release(lease)
        if lease.session_id == "schedules/mail":
            monkeypatch.undo()
            raise StoreError("the server is gone")

    monkeypatch.setattr(scene.store, "release", fail_once)
    await scheduler.trigger("mail", "Hello")
    assert kinds(await serve_once(scheduler)) == ["fired", "finished"]
    await scene.clock.advance(1)
    await scheduler.trigger("mail", "Hello again")
    assert kinds(await serve_once(scheduler)) == ["fired", "finished"]


async def test_due_times_are_skipped_while_a_schedule_is_run_now():
    scene = Scene(HANG, "too much")
    scheduler, other = scene.scheduler(HOURLY), scene.scheduler(HOURLY)
    await serve_once(scheduler)
    await scene.clock.advance(3590)
    running = asyncio.ensure_future(scheduler.run_now("news"))
    async with time_passes(scene):
        await scene.asked.wait()
        while "skipped" not in [each.status for each in await other.history("news")]:
            await scene.clock.sleep(1)
        await other.cancel("news")
        assert (await running).status == "cancelled"
    assert await serve_once(other) == []


async def test_a_run_can_be_cancelled_after_its_schedule_was_removed():
    scene = Scene(HANG)
    scheduler, other = scene.scheduler(), scene.scheduler()
    await scheduler.add(MAIL)
    running = asyncio.ensure_future(scheduler.run_now("mail"))
    async with time_passes(scene):
        await scene.asked.wait()
        await other.remove("mail")
        assert await other.cancel("mail")
        assert (await running).status == "cancelled"
    with pytest.raises(UsageError, match="no schedule 'mail'"):
        await other.cancel("mail")


async def test_a_firing_that_waits_for_a_retry_can_be_cancelled():
    scene = Scene(ProviderDown("down"), "never")
    schedule = Schedule(name="mail", prompt="Go.", retries=3, retry_seconds=3600)
    scheduler, other = scene.scheduler(schedule), scene.scheduler(schedule)
    running = asyncio.ensure_future(scheduler.run_now("mail"))
    async with time_passes(scene):
        while not [each for each in await other.history("mail") if each.attempts == 2]:
            await scene.clock.sleep(1)
        assert await other.cancel("mail")
        assert (await running).status == "cancelled"
    assert len(scene.model.requests) == 1
    assert await scene.store.posts("schedules/mail") == []


async def test_cancelling_a_firing_that_waits_for_its_session_leaves_the_run_of_others_alone():
    scene = Scene("never")
    scheduler, other = scene.scheduler(MAIL), scene.scheduler(MAIL)
    lease = await scene.store.acquire("mail")  # as another process would
    log = Log(scene.store, lease, 0, scene.clock)
    await log.append([RunStarted("agent", run_id="run-of-a-person")], sync=True, on_stored=lambda _: None)
    running = asyncio.ensure_future(scheduler.run_now("mail"))
    async with time_passes(scene):
        while not [each for each in await other.history("mail") if each.status == "running"]:
            await scene.clock.sleep(1)
        assert await other.cancel("mail")
        assert (await running).status == "cancelled"
    assert await scene.store.posts("mail") == []
    assert not scene.model.requests


async def test_a_firing_whose_process_died_before_its_run_can_be_cancelled():
    scene = Scene("never")
    scheduler, other = scene.scheduler(MAIL), scene.scheduler(MAIL)
    await scheduler.trigger("mail", "Hello")
    async with asyncio.timeout(60), aclosing(scheduler.serve()) as records:
        assert (await anext(records)).kind == "fired"
    assert await other.cancel("mail")
    assert kinds(await serve_once(other)) == ["resumed", "cancelled"]
    assert not scene.model.requests


async def test_a_moment_that_passed_within_this_second_is_missed_and_not_fired_as_well():
    scene = Scene("never")
    await scene.clock.advance(0.9)
    scheduler = scene.scheduler(Schedule(name="once", when=At(START + 0.5), prompt="x"))
    assert kinds([*await serve_once(scheduler), *await serve_once(scheduler)]) == ["armed", "missed"]


async def test_labelled_input_is_never_a_command():
    done = []
    command = Command("wipe", lambda _call: done.append("wiped"), description="Delete everything.")
    scene = Scene("Fine.", "Fine.", commands=[command])
    scheduler = scene.scheduler(Schedule(name="raw"), MAIL)
    assert (await scheduler.run_now("raw", "/wipe")).status == "finished"
    await scheduler.trigger("mail", "/wipe", labels=["legal"])
    changed = scene.scheduler(Schedule(name="mail"), Schedule(name="raw"))  # its prompt was removed after the trigger
    assert kinds(await serve_once(changed)) == ["fired", "finished"]
    assert not done
    await changed.run_now("raw", "/wipe", labels=())
    assert done == ["wiped"]


@pytest.mark.parametrize(
    "fields",
    [
        {"name": "schedules"},
        {"name": "x", "session": "schedules"},
        {"name": "x", "session": "schedules/news"},
        {"name": "x", "session": "schedules/news", "new_session": True},
    ],
)
def test_runs_cannot_be_in_the_sessions_that_store_schedules(fields):
    with pytest.raises(ConfigError, match="the runtime has its own sessions there"):
        Schedule(prompt="x", **fields)


@pytest.mark.parametrize("moment", [float("nan"), float("inf"), "tomorrow", None])
def test_a_moment_is_a_number(moment):
    with pytest.raises(ConfigError, match="is no moment"):
        At(moment)


def test_an_interval_is_a_number():
    with pytest.raises(ConfigError, match="give a number"):
        Every("5m")  # type: ignore[arg-type]


async def test_an_iteration_does_not_begin_with_records_of_earlier_calls():
    scene = Scene("done")
    scheduler = scene.scheduler(MAIL)
    await scheduler.run_now("mail")
    assert await serve_once(scheduler) == []


async def test_a_firing_has_the_cost_of_all_its_runs():
    @tool(effect="read")
    def look() -> str:
        """Look."""
        return "seen"

    costs = [Usage(9, 1, reported_usd=each) for each in (2.0, 1.0)]
    replies = Reply(calls=[call("look")], usage=costs[0]), ProviderDown("down"), Reply("Done.", usage=costs[1])
    scene = Scene(*replies, tools=[look])
    scheduler = scene.scheduler(Schedule(name="mail", prompt="Go.", retries=1))
    async with time_passes(scene):
        firing = await scheduler.run_now("mail")
    assert (firing.status, firing.attempts, firing.cost_usd) == ("finished", 2, 3.0)


async def test_schedules_whose_session_was_deleted_are_gone_and_can_be_added_again():
    scene = Scene("done")
    scheduler = scene.scheduler()
    await scheduler.add(MAIL)
    assert await scheduler.list_schedules() == [MAIL]
    await scene.store.delete("schedules")
    assert await scheduler.list_schedules() == []
    await scheduler.add(OTHER)
    assert await scheduler.list_schedules() == await scene.scheduler().list_schedules() == [OTHER]
    await scene.store.delete("schedules")
    await scheduler.add(MAIL)
    assert await scheduler.list_schedules() == await scene.scheduler().list_schedules() == [MAIL]
