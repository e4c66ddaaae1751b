"""A scheduler fires each due time once, skips overlaps, moves missed ones forward, and denies every question."""

import asyncio
from contextlib import aclosing
from datetime import UTC, datetime
from typing import Any

import pytest

from perdure import Agent, ConfigError, Permissions, ProviderDown, StoreError, UsageError, allow, ask, tool
from perdure.background import Firing, Schedule, Scheduler, Shutdown, at, cron, every
from perdure.events import PermissionDecided, RunStarted
from perdure.stores import prune
from perdure.testing import call
from tests.scheduling.scheduling_scene import HANG, START, Scene, kinds, serve_once

HOURLY = Schedule(name="news", when=every(hours=1), prompt="Read the news.")
TRIGGERED = Schedule(name="mail", prompt="Answer this mail.")


async def find_firing(scheduler: Scheduler, firing_id: str) -> Firing:
    """A firing of the schedule `mail` that is there."""
    found = await scheduler.find_firing("mail", firing_id)
    assert found is not None
    return found


async def test_a_schedule_fires_when_its_interval_has_passed():
    scene = Scene("first", "second")
    scheduler = scene.scheduler(HOURLY)
    assert kinds(await serve_once(scheduler)) == ["armed"]
    assert await serve_once(scheduler) == []
    await scene.clock.advance(3600)
    assert kinds(await serve_once(scheduler)) == ["fired", "finished"]
    assert await serve_once(scheduler) == []
    await scene.clock.advance(3600)
    fired, finished = await serve_once(scheduler)
    assert (fired.due, fired.firing_id, finished.firing_id) == (START + 7200, "2023-11-15T00:13:20Z", fired.firing_id)
    messages = await scene.agent.session("news").messages()
    assert [each.text for each in messages] == ["Read the news.", "first", "Read the news.", "second"]


async def test_a_schedule_is_served_as_time_passes():
    scene = Scene("first", "second")
    scheduler = scene.scheduler(HOURLY, poll_seconds=1000)
    seen = []
    async with asyncio.timeout(60), aclosing(scheduler.serve()) as records:

        async def advance() -> None:
            while True:
                await scene.clock.wait_for_sleepers(timeout_seconds=30)
                await scene.clock.advance(scene.clock.pending[0])

        advancing = asyncio.ensure_future(advance())
        async for record in records:
            seen.append(record.kind)
            if seen.count("finished") == 2:
                break
        advancing.cancel()
    assert seen == ["armed", "fired", "finished", "fired", "finished"]


async def test_a_restart_does_not_move_the_due_times():
    scene = Scene("first")
    await serve_once(scene.scheduler(HOURLY))
    await scene.clock.advance(1800)
    again = scene.scheduler(HOURLY)
    assert await serve_once(again) == []
    assert [each.next_due for each in await again.list_status()] == [START + 3600]


async def test_a_changed_timing_is_counted_from_the_change():
    scene = Scene("first")
    await serve_once(scene.scheduler(HOURLY))
    await scene.clock.advance(1800)
    changed = scene.scheduler(Schedule(name="news", when=every(minutes=50), prompt="Read the news."))
    assert kinds(await serve_once(changed)) == ["armed"]
    assert [each.next_due for each in await changed.list_status()] == [START + 1800 + 3000]


async def test_missed_firings_are_moved_forward_and_not_made_up_for():
    scene = Scene("late")
    await serve_once(scene.scheduler(HOURLY))
    await scene.clock.advance(5 * 3600 + 600)  # no process serves it meanwhile
    scheduler = scene.scheduler(HOURLY)
    (missed,) = await serve_once(scheduler)
    assert (missed.kind, missed.count, missed.due) == ("missed", 5, START + 5 * 3600)
    assert scene.model.requests == []
    assert [each.next_due for each in await scheduler.list_status()] == [START + 6 * 3600]
    await scene.clock.advance(3000)
    assert kinds(await serve_once(scheduler)) == ["fired", "finished"]


async def test_of_several_missed_firings_the_last_is_fired_if_it_is_not_too_late():
    scene = Scene("late")
    await serve_once(scene.scheduler(HOURLY))
    await scene.clock.advance(5 * 3600 + 30)
    records = await serve_once(scene.scheduler(HOURLY))
    assert kinds(records) == ["missed", "fired", "finished"]
    assert [(each.kind, each.count) for each in records if each.kind == "missed"] == [("missed", 4)]
    assert [each.due for each in records if each.kind == "fired"] == [START + 5 * 3600]


async def test_a_year_of_missed_minutes_is_counted_in_no_time():
    scene = Scene("late")
    schedules = [
        Schedule(name="a", when=every(seconds=1), prompt="x", late_seconds=0),
        Schedule(name="b", when=cron("* * * * *"), prompt="x", late_seconds=0),
    ]
    await serve_once(scene.scheduler(*schedules))
    await scene.clock.advance(365 * 86_400 + 0.5)
    missed = {each.schedule: each.count for each in await serve_once(scene.scheduler(*schedules))}
    assert missed == {"a": 365 * 86_400, "b": 1000}


async def test_a_moment_is_fired_once_even_late_but_not_if_it_had_passed_before():
    scene = Scene("once")
    moment = datetime.fromtimestamp(START + 60, UTC)
    old = Schedule(name="old", when=at(datetime.fromtimestamp(START - 60, UTC)), prompt="Too late.")
    scheduler = scene.scheduler(Schedule(name="one", when=at(moment), prompt="Once."), old)
    armed = await serve_once(scheduler)
    assert [(each.schedule, each.kind) for each in armed] == [("one", "armed"), ("old", "armed"), ("old", "missed")]
    await scene.clock.advance(86_400)
    assert [(each.schedule, each.kind) for each in await serve_once(scheduler)] == [
        ("one", "fired"),
        ("one", "finished"),
    ]
    await scene.clock.advance(86_400)
    assert await serve_once(scheduler) == []


async def test_a_due_time_is_skipped_while_the_last_run_is_not_over():
    release = asyncio.Event()

    async def slow(_request):
        await release.wait()
        return "slow"

    scene = Scene(slow, "next")
    schedule = Schedule(name="news", when=every(minutes=1), prompt="x")
    other = scene.scheduler(schedule)  # as in another process
    async with asyncio.timeout(60), aclosing(scene.scheduler(schedule).serve()) as records:
        assert (await anext(records)).kind == "armed"
        seen = []

        async def collect() -> None:
            async for each in records:
                seen.append(each)  # noqa: PERF401 - one by one, as they come

        collecting = asyncio.ensure_future(collect())
        while not scene.model.requests:
            await scene.clock.wait_for_sleepers(timeout_seconds=30)
            await scene.clock.advance(scene.clock.pending[0])
        while kinds(seen).count("skipped") < 2:
            assert await serve_once(other) == []  # nor does the other process fire it
            await scene.clock.wait_for_sleepers(timeout_seconds=30)
            await scene.clock.advance(scene.clock.pending[0])
        release.set()
        while "finished" not in kinds(seen):
            await scene.clock.wait_for_sleepers(timeout_seconds=30)
            await scene.clock.advance(0.1)
        collecting.cancel()
        await asyncio.wait((collecting,))
    assert kinds(seen) == ["fired", "skipped", "skipped", "finished"]
    assert len(scene.model.requests) == 1
    assert [each.status for each in await other.history()] == ["skipped", "skipped", "finished"]


async def test_two_schedulers_of_one_store_fire_once():
    scene = Scene("a", "b")
    first, second = scene.scheduler(HOURLY), scene.scheduler(HOURLY)
    await serve_once(first)
    await serve_once(second)
    for _ in range(2):
        await scene.clock.advance(3600)
        found = await asyncio.gather(serve_once(first), serve_once(second))
        assert sorted(kinds([*found[0], *found[1]])) == ["finished", "fired"]
    assert len(scene.model.requests) == 2


# -- triggers ----------------------------------------------------------------------------------------------------------


async def test_triggers_of_another_process_are_run_in_turn_with_their_input():
    scene = Scene("one", "two")
    sender, scheduler = scene.scheduler(TRIGGERED), scene.scheduler(TRIGGERED)
    first = await sender.trigger("mail", "Hello", trigger_id="m1")
    assert await sender.trigger("mail", "Hello", trigger_id="m1") == first
    second = await sender.trigger("mail", {"subject": "Hi"}, labels=["untrusted"])
    assert [each.status for each in await sender.history("mail")] == ["pending", "pending"]
    assert [each.pending for each in await sender.list_status()] == [2]
    assert kinds(await serve_once(scheduler)) == ["fired", "finished", "fired", "finished"]
    assert await serve_once(scheduler) == []
    assert {(await find_firing(sender, each)).status for each in (first, second)} == {"finished"}
    messages = await scene.agent.session("mail").messages()
    assert [each.text for each in messages if each.role == "user"] == [
        "Hello",
        "Answer this mail.",
        '{"subject":"Hi"}',
        "Answer this mail.",
    ]
    assert messages[3].labels == ("untrusted",)


async def test_a_trigger_is_fired_once_also_if_it_is_sent_again_afterwards():
    scene = Scene("one")
    scheduler = scene.scheduler(TRIGGERED)
    await scheduler.trigger("mail", "Hello", trigger_id="m1")
    await serve_once(scheduler)
    await scheduler.trigger("mail", "Hello", trigger_id="m1")
    assert await serve_once(scheduler) == []


async def test_a_schedule_without_a_prompt_is_given_one_by_its_trigger():
    scene = Scene("one")
    scheduler = scene.scheduler(Schedule(name="ask"))
    with pytest.raises(ConfigError, match="give the trigger an input"):
        await scheduler.trigger("ask")
    assert (await scheduler.run_now("ask", "What is new?")).status == "finished"
    assert (await scene.agent.session("ask").messages())[0].text == "What is new?"


async def test_a_schedule_can_be_run_now_and_its_due_times_stay():
    scene = Scene("now")
    scheduler = scene.scheduler(HOURLY)
    await serve_once(scheduler)
    firing = await scheduler.run_now("news")
    assert (firing.status, firing.due, firing.session_id) == ("finished", None, "news")
    assert [each.next_due for each in await scheduler.list_status()] == [START + 3600]
    assert await scheduler.wait_for_firing("news", firing.firing_id) == firing


async def test_a_run_can_be_cancelled_from_another_process():
    scene = Scene(HANG)
    scheduler = scene.scheduler(TRIGGERED)
    assert not await scheduler.cancel("mail")
    firing_id = await scheduler.trigger("mail", "Hello")
    serving = asyncio.ensure_future(serve_once(scheduler))
    await scene.asked.wait()
    assert await scene.scheduler(TRIGGERED).cancel("mail")
    assert kinds(await serving) == ["fired", "cancelled"]
    assert (await find_firing(scheduler, firing_id)).status == "cancelled"


async def test_each_firing_can_have_a_session_of_its_own():
    scene = Scene("one", "two")
    scheduler = scene.scheduler(Schedule(name="mail", prompt="Go.", session="box", new_session=True))
    firings = [await scheduler.run_now("mail") for _ in range(2)]
    assert [each.session_id for each in firings] == [f"box-{each.firing_id}" for each in firings]
    assert len(await scene.agent.session(firings[1].session_id).messages()) == 2


async def test_a_schedule_can_begin_with_a_skill():
    from perdure.context import Skill, Skills

    scene = Scene("done", skills=Skills([Skill(name="sum", description="Sum up.", body="Sum up what you know.")]))
    scheduler = scene.scheduler(Schedule(name="s", skill="sum"), Schedule(name="t", skill="nothing"))
    assert (await scheduler.run_now("s", "of today")).status == "finished"
    assert "Sum up what you know." in (await scene.agent.session("s").messages())[0].text
    failed = await scheduler.run_now("t")
    assert failed.status == "failed"
    assert "nothing" in failed.reason
    assert (await scene.agent.session("s").read_state()).labels == {"untrusted": ("skill:sum",)}


# -- unattended --------------------------------------------------------------------------------------------------------


async def test_questions_are_denied_and_the_report_says_so():
    asked: list[Any] = []

    def handle(requests: Any) -> list[Any]:
        asked.append(requests)
        return []

    gate = Permissions(ask("send"), handler=handle)
    scene = Scene(call("send", text="x"), "I could not.", permission=gate)
    firing = await scene.scheduler(TRIGGERED).run_now("mail", "Hello")
    assert (firing.status, firing.denied, asked, scene.sent) == ("finished", ('send {"text":"x"}',), [], [])
    entries = await scene.store.read("mail")
    assert [each.event.allow for each in entries if isinstance(each.event, PermissionDecided)] == [False]


async def test_questions_of_tools_are_not_asked():
    from perdure import ToolContext

    @tool
    async def choose(context: ToolContext) -> str:
        """Choose."""
        return await context.ask("Which?")

    scene = Scene(call("choose"), "Nobody answered.", tools=[choose])
    firing = await scene.scheduler(TRIGGERED).run_now("mail", "Hello")
    assert firing.status == "finished"
    assert "not interactive" in repr(scene.model.requests[-1].messages[-1])


async def test_what_a_rule_allows_is_done():
    scene = Scene(call("send", text="x"), "Sent.", permission=Permissions(allow("send")))
    firing = await scene.scheduler(TRIGGERED).run_now("mail", "Hello")
    assert (firing.status, firing.denied, scene.sent) == ("finished", (), ["x"])


# -- failures ----------------------------------------------------------------------------------------------------------


async def advance_through_sleeps(scene: Scene, task: "asyncio.Future[Any]") -> None:
    """Let time pass while a task sleeps."""
    async with asyncio.timeout(60):
        while not task.done():
            if scene.clock.sleepers:
                await scene.clock.advance(scene.clock.pending[0])
            await asyncio.sleep(0)


async def test_a_run_that_failed_before_any_effect_is_tried_again():
    scene = Scene(ProviderDown("down"), ProviderDown("down"), "At last.")
    scheduler = scene.scheduler(Schedule(name="mail", prompt="Go.", retries=2, retry_seconds=10))
    running = asyncio.ensure_future(scheduler.run_now("mail"))
    await advance_through_sleeps(scene, running)
    firing = running.result()
    assert (firing.status, firing.attempts) == ("finished", 3)
    starts = [each.event.input_id for each in await scene.store.read("mail") if isinstance(each.event, RunStarted)]
    assert [each.rpartition("#")[2] for each in starts] == ["1", "2", "3"]


async def test_retries_end():
    scene = Scene(ProviderDown("down"), ProviderDown("down"))
    scheduler = scene.scheduler(Schedule(name="mail", prompt="Go.", retries=1))
    running = asyncio.ensure_future(scheduler.run_now("mail"))
    await advance_through_sleeps(scene, running)
    firing = running.result()
    assert (firing.status, firing.attempts, firing.reason) == ("failed", 2, "ProviderDown: down")


async def test_a_run_that_had_an_effect_is_not_tried_again():
    scene = Scene(call("send", text="x"), ProviderDown("down"), "never")
    firing = await scene.scheduler(Schedule(name="mail", prompt="Go.", retries=5)).run_now("mail")
    assert (firing.status, firing.attempts, scene.sent) == ("failed", 1, ["x"])


async def test_a_run_ends_after_its_timeout():
    scene = Scene(HANG)
    running = asyncio.ensure_future(
        scene.scheduler(Schedule(name="mail", prompt="Go.", timeout_seconds=30)).run_now("mail")
    )
    await scene.asked.wait()
    await advance_through_sleeps(scene, running)
    assert (running.result().status, running.result().reason) == ("failed", "timeout")


async def test_a_run_waits_for_its_session_and_fails_after_its_timeout():
    scene = Scene("free")
    lease = await scene.store.acquire("mail")  # as another process would
    schedule = Schedule(name="mail", prompt="Go.", timeout_seconds=30)
    running = asyncio.ensure_future(scene.scheduler(schedule).run_now("mail"))
    await advance_through_sleeps(scene, running)
    assert (running.result().status, scene.model.requests) == ("failed", [])
    assert running.result().reason.startswith("SessionBusy")
    running = asyncio.ensure_future(scene.scheduler(schedule).run_now("mail"))
    await scene.clock.wait_for_sleepers(timeout_seconds=30)
    await scene.store.release(lease)
    await advance_through_sleeps(scene, running)
    assert running.result().status == "finished"


async def test_only_so_many_run_at_once():
    running, most = 0, 0

    async def reply(_request):
        nonlocal running, most
        running, most = running + 1, max(most, running + 1)
        for _ in range(50):
            await asyncio.sleep(0)
        running -= 1
        return "done"

    scene = Scene(*[reply] * 5)
    names = [f"s{number}" for number in range(5)]
    scheduler = scene.scheduler(*[Schedule(name=each, prompt="Go.") for each in names], most_at_once=2)
    for each in names:
        await scheduler.trigger(each)
    assert kinds(await serve_once(scheduler)).count("finished") == 5
    assert most == 2


async def test_a_shutdown_leaves_the_run_for_the_next_process():
    scene = Scene(HANG, "Resumed.")
    async with Shutdown(signals=()) as shutdown:
        scheduler = Scheduler(shutdown.wrap_agent(scene.agent), [TRIGGERED])
        firing_id = await scheduler.trigger("mail", "Hello")
        records = []
        async with asyncio.timeout(60), aclosing(scheduler.serve()) as serving:
            async for record in serving:
                records.append(record.kind)
                await scene.asked.wait()
                shutdown.begin()
    assert records == ["fired"]
    again = scene.scheduler(TRIGGERED)
    assert (await find_firing(again, firing_id)).status == "running"
    assert kinds(await serve_once(again)) == ["resumed", "finished"]
    messages = await scene.agent.session("mail").messages()
    assert [each.text for each in messages] == ["Hello", "Answer this mail.", "Resumed."]
    assert (await find_firing(again, firing_id)).resumed == 1


async def test_leaving_the_iteration_cancels_the_run_and_the_next_process_records_it():
    scene = Scene(HANG, "never")
    scheduler = scene.scheduler(TRIGGERED)
    await scheduler.trigger("mail", "Hello")
    async with asyncio.timeout(60), aclosing(scheduler.serve()) as records:
        assert (await anext(records)).kind == "fired"
        await scene.asked.wait()
    assert kinds(await serve_once(scene.scheduler(TRIGGERED))) == ["resumed", "cancelled"]
    assert len(scene.model.requests) == 1


async def test_a_store_that_fails_is_tried_again_later(monkeypatch):
    scene = Scene("done")
    scheduler = scene.scheduler(TRIGGERED)
    await scheduler.trigger("mail", "Hello")
    with monkeypatch.context() as patch:
        patch.setattr(scene.store, "acquire", failing("the disk is full"))
        assert await serve_once(scheduler) == []
    assert await serve_once(scheduler) == []  # it is left alone for a while
    await scene.clock.advance(1)
    assert kinds(await serve_once(scheduler)) == ["fired", "finished"]


def failing(message):
    async def fail(*_arguments, **_options):
        raise StoreError(message)

    return fail


async def test_runs_get_the_options_of_the_scheduler():
    from perdure import Limits, ToolContext

    @tool
    def greet(context: ToolContext[str]) -> str:
        """Greet."""
        return f"Hello, {context.deps}!"

    scene = Scene(call("greet"), "done", tools=[greet])
    options = {"deps": "Ada", "limits": Limits(max_turns=7)}
    firing = await scene.scheduler(TRIGGERED, overrides=options).run_now("mail", "Hi")
    assert firing.status == "finished"
    assert "Hello, Ada!" in repr(scene.model.requests[-1].messages[-1])
    with pytest.raises(ConfigError, match="override 'dep'"):
        scene.scheduler(TRIGGERED, overrides={"dep": "Ada"})


async def test_an_error_of_the_program_fails_the_firing_and_not_the_scheduler(monkeypatch):
    from perdure import Session

    async def fail(*_arguments, **_options):
        raise RuntimeError("a bug")

    scene = Scene("done")
    scheduler = scene.scheduler(TRIGGERED)
    with monkeypatch.context() as patch:
        patch.setattr(Session, "run", fail)
        firing = await scheduler.run_now("mail", "Hi")
    assert (firing.status, firing.reason) == ("failed", "RuntimeError: a bug")
    assert (await scheduler.run_now("mail", "Hi")).status == "finished"


async def test_watchers_see_each_record_and_their_errors_end_nothing():
    seen = []

    def broken(_record):
        raise RuntimeError("broken")

    scene = Scene("done")
    scheduler = scene.scheduler(TRIGGERED, watchers=[broken, lambda record: seen.append(record.describe())])
    firing = await scheduler.run_now("mail", "Hello")
    assert seen == [f"mail {firing.firing_id} fired", f"mail {firing.firing_id} finished"]


# -- schedules of the store --------------------------------------------------------------------------------------------


async def test_schedules_can_be_added_to_the_store_and_removed():
    scene = Scene("done")
    serving, other = scene.scheduler(TRIGGERED), scene.scheduler()
    await other.add(HOURLY)
    assert [each.name for each in await serving.list_schedules()] == ["mail", "news"]
    assert kinds(await serve_once(serving)) == ["armed"]
    with pytest.raises(UsageError, match="use another name"):
        await serving.add(TRIGGERED)
    with pytest.raises(UsageError, match="remove it there"):
        await serving.remove("mail")
    assert await other.remove("news")
    assert not await other.remove("news")
    await scene.clock.advance(3600)
    assert await serve_once(serving) == []
    assert [each.name for each in await serving.list_schedules()] == ["mail"]


async def test_adding_a_schedule_waits_for_another_process_that_does():
    scene = Scene()
    lease = await scene.store.acquire("schedules")
    adding = asyncio.ensure_future(scene.scheduler().add(HOURLY))
    await scene.clock.wait_for_sleepers(timeout_seconds=30)
    await scene.store.release(lease)
    await advance_through_sleeps(scene, adding)
    assert [each.name for each in await scene.scheduler().list_schedules()] == ["news"]


async def test_a_schedule_whose_journal_was_deleted_begins_anew():
    scene = Scene()
    scheduler = scene.scheduler(HOURLY)
    for _ in range(2):
        assert kinds(await serve_once(scheduler)) == ["armed"]
        await scene.store.delete("schedules/news")
        await scene.clock.advance(60)


async def test_schedules_and_their_firings_are_not_pruned():
    scene = Scene("done")
    scheduler = scene.scheduler()
    await scheduler.add(TRIGGERED)
    await scheduler.run_now("mail", "Hi")
    await prune(scene.store, older_than_seconds=1, now=START + 1e9)
    assert sorted([each.session_id for each in await scene.store.list()]) == ["schedules", "schedules/mail"]


async def test_a_moment_that_has_passed_cannot_be_added():
    scene = Scene()
    past = Schedule(name="old", when=at(datetime.fromtimestamp(START - 1, UTC)), prompt="x")
    with pytest.raises(ConfigError, match="has passed"):
        await scene.scheduler().add(past)


async def test_bad_input_is_refused_with_advice():
    scene = Scene()
    with pytest.raises(ConfigError, match="needs a store"):
        Scheduler(Agent("demo"))
    with pytest.raises(ConfigError, match="two schedules 'news'"):
        scene.scheduler(HOURLY, HOURLY)
    with pytest.raises(ConfigError, match="Schedule"):
        scene.scheduler("news")
    with pytest.raises(ConfigError, match="most_at_once"):
        scene.scheduler(HOURLY, most_at_once=0)
    with pytest.raises(ConfigError, match="poll_seconds"):
        scene.scheduler(HOURLY, poll_seconds=0)
    with pytest.raises(UsageError, match="did you mean 'news'"):
        await scene.scheduler(HOURLY).trigger("new")
    with pytest.raises(UsageError, match="no firing 'x'"):
        await scene.scheduler(HOURLY).wait_for_firing("news", "x")
    with pytest.raises(ConfigError, match="labels"):
        await scene.scheduler(HOURLY).trigger("news", "x", labels=[""])


async def test_secrets_of_the_agent_are_not_stored_with_a_trigger():
    from perdure.permissions import MemoryVault

    scene = Scene("done", vault=MemoryVault({"key": "s3cret-value-123"}))
    scheduler = scene.scheduler(TRIGGERED)
    await scheduler.trigger("mail", "The key is s3cret-value-123.")
    assert "s3cret" not in repr(await scene.store.posts("schedules/mail"))
    await serve_once(scheduler)
    assert "s3cret" not in repr(await scene.store.read("schedules/mail"))
