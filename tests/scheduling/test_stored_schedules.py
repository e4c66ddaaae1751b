"""Schedules of a program and of its store: what is refused, what they are doing, and a store that cannot be read."""

import asyncio
from typing import Any

import pytest

from perdure import ConfigError, StoreError, UsageError
from perdure.background import Firing, Schedule, Scheduler, ScheduleStatus, at, every
from tests.doubles import SECONDS
from tests.scheduling.scheduling_scene import HANG, START, Scene, kinds, serve_once

NEWS = Schedule(name="news", when=every(hours=1), prompt="Read the news.")
MAIL = Schedule(name="mail", prompt="Answer this mail.")


async def test_what_is_no_agent_and_no_schedule_is_refused_with_advice():
    scene = Scene()
    with pytest.raises(ConfigError) as raised:
        Scheduler("demo")  # type: ignore[arg-type]
    assert str(raised.value) == "Scheduler(agent='demo'): give an Agent(…)"
    with pytest.raises(ConfigError) as raised:
        await scene.scheduler().add("news")  # type: ignore[arg-type]
    assert str(raised.value) == "add(schedule='news'): give a Schedule(…)"
    with pytest.raises(ConfigError) as raised:
        scene.scheduler("news")
    assert str(raised.value) == "Scheduler(schedules='news'): give Schedule(…) values"
    with pytest.raises(ConfigError) as raised:
        scene.scheduler(poll_seconds=0)
    assert str(raised.value) == "Scheduler(poll_seconds=0): give more than 0"


async def test_an_unknown_schedule_is_answered_with_those_that_there_are():
    scene = Scene()
    with pytest.raises(UsageError) as raised:
        await scene.scheduler(NEWS, MAIL).trigger("mial")
    assert str(raised.value) == "there is no schedule 'mial': did you mean 'mail'? there are: mail, news"
    with pytest.raises(UsageError) as raised:
        await scene.scheduler().trigger("x")
    assert str(raised.value) == "there is no schedule 'x': there are: none"


@pytest.mark.parametrize(("seconds", "is_refused"), [(-1, True), (0, True), (1, False)])
async def test_a_moment_can_be_added_while_it_is_in_the_future(seconds: int, is_refused: bool):
    scene = Scene()
    moment = f"2023-11-14T22:13:{20 + seconds}+00:00"
    schedule = Schedule(name="once", when=at(moment), prompt="x")
    if is_refused:
        with pytest.raises(ConfigError) as raised:
            await scene.scheduler().add(schedule)
        assert str(raised.value) == f"schedule 'once' is due at {moment[:-6]}Z, which has passed"
    else:
        await scene.scheduler().add(schedule)
        assert await scene.scheduler().list_schedules() == [schedule]


async def test_the_status_of_a_schedule_is_what_it_does_and_did_and_will_do():
    scene = Scene("done", HANG, tools=[])
    scheduler = scene.scheduler(NEWS)
    await scheduler.add(MAIL)
    assert await scheduler.list_status() == [
        ScheduleStatus(schedule=NEWS, is_stored=False),
        ScheduleStatus(schedule=MAIL, is_stored=True),
    ]
    await serve_once(scheduler)
    await scheduler.trigger("mail", trigger_id="m1")
    await serve_once(scheduler)
    await scene.clock.advance(60)
    await scheduler.trigger("mail", trigger_id="m2")
    serving = asyncio.ensure_future(serve_once(scheduler))
    async with asyncio.timeout(SECONDS):
        await scene.asked.wait()
    await scheduler.trigger("mail", trigger_id="m3")
    news, mail = await scheduler.list_status()
    assert news == ScheduleStatus(schedule=NEWS, is_stored=False, next_due=START + 3600)
    first, second = await scheduler.find_firing("mail", "trigger-m1"), await scheduler.find_firing("mail", "trigger-m2")
    assert mail == ScheduleStatus(schedule=MAIL, is_stored=True, running=second, last=first, pending=1)
    assert second == Firing(
        schedule="mail",
        firing_id="trigger-m2",
        status="running",
        started_at=START + 60,
        session_id="mail",
        attempts=1,
    )
    history = await scheduler.history()
    assert [(each.firing_id, each.status) for each in history] == [
        ("trigger-m3", "pending"),
        ("trigger-m2", "running"),
        ("trigger-m1", "finished"),
    ]
    assert await scheduler.history("mail", limit=1) == history[:1]
    assert await scheduler.history("news") == []
    serving.cancel()
    await asyncio.wait([serving])


async def test_a_changed_schedule_has_no_next_due_time_until_it_is_served():
    scene = Scene()
    await serve_once(scene.scheduler(NEWS))
    changed = Schedule(name="news", when=every(hours=2), prompt="Read the news.")
    scheduler = scene.scheduler(changed)
    assert [each.next_due for each in await scheduler.list_status()] == [None]
    await serve_once(scheduler)
    assert [each.next_due for each in await scheduler.list_status()] == [START + 7200]


async def test_the_schedules_of_a_store_out_of_reach_are_those_that_were_read_last(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    scene = Scene()
    scheduler, late = scene.scheduler(MAIL), scene.scheduler(MAIL)
    await scheduler.add(NEWS)
    assert kinds(await serve_once(scheduler)) == ["armed"]

    async def fail(*_given: Any, **_options: Any) -> Any:
        raise StoreError("the server is gone")

    monkeypatch.setattr(scene.store, "read", fail)
    assert await scheduler.list_schedules() == [MAIL, NEWS]
    assert [each.getMessage() for each in caplog.records] == [
        "the schedules of the store cannot be read, which will be tried again: the server is gone"
    ]
    with pytest.raises(StoreError, match="the server is gone"):
        await late.list_schedules()


async def test_a_program_has_precedence_over_a_schedule_of_its_name_in_the_store():
    scene = Scene()
    stored = Schedule(name="mail", prompt="Of the store.")
    await scene.scheduler().add(stored)
    assert await scene.scheduler(MAIL).list_schedules() == [MAIL]
    assert [each.is_stored for each in await scene.scheduler(MAIL).list_status()] == [False]
    assert await scene.scheduler().list_schedules() == [stored]


async def test_of_several_pending_triggers_each_is_found_by_its_id():
    scene = Scene()
    scheduler = scene.scheduler(MAIL)
    for number in range(3):
        await scheduler.trigger("mail", trigger_id=f"m{number}")
        await scene.clock.advance(1)
    found = await scheduler.find_firing("mail", "trigger-m1")
    assert found == Firing(schedule="mail", firing_id="trigger-m1", status="pending", started_at=START + 1)
    assert await scheduler.find_firing("mail", "trigger-m9") is None


async def test_whoever_waits_for_a_firing_looks_again_after_each_interval():
    scene = Scene("done")
    scheduler = scene.scheduler(MAIL, poll_seconds=7)
    firing_id = await scheduler.trigger("mail")
    waiting = asyncio.ensure_future(scheduler.wait_for_firing("mail", firing_id))
    async with asyncio.timeout(SECONDS):
        for _ in range(2):
            await scene.clock.wait_for_sleepers(timeout_seconds=SECONDS)
            assert scene.clock.pending == [7.0]
            await scene.clock.advance(7)
        await serve_once(scene.scheduler(MAIL))
        await scene.clock.advance(7)
        assert (await waiting).status == "finished"


@pytest.mark.parametrize(
    ("schedule", "options", "message"),
    [
        (MAIL, {"trigger_id": "a\nb"}, r"^trigger\(trigger_id='a\\nb'\): "),
        (MAIL, {"trigger_id": 3}, r"^trigger\(trigger_id=3\): "),
        (
            MAIL,
            {"labels": ["untrusted"]},
            r"^labels=\['untrusted'\]: they are for an input, and there is none$",
        ),
        (Schedule(name="mail"), {}, r"^schedule 'mail' has no prompt: give the trigger an input$"),
    ],
)
async def test_a_trigger_that_cannot_be_run_is_refused(schedule: Schedule, options: Any, message: str) -> None:
    scene = Scene()
    with pytest.raises(ConfigError, match=message):
        await scene.scheduler(schedule).trigger("mail", **options)
    assert await scene.store.posts("schedules/mail") == []
