"""The run of one firing: when it is tried again, how long it may take, and when its schedule is served again."""

import asyncio
import itertools
from typing import Any

import msgspec
import pytest

from perdure import (
    Limits,
    Message,
    Outcome,
    Permissions,
    ProviderDown,
    Status,
    StopReason,
    StoreError,
    ToolCall,
    UsageError,
    ask,
    tool,
    user,
)
from perdure.background import Firing, Schedule, Scheduler, Shutdown
from perdure.engines import Run, react
from perdure.events import (
    MessageAdded,
    PermissionDecided,
    QuestionAnswered,
    QuestionAsked,
    RunStarted,
    ToolFinished,
    ToolStarted,
)
from perdure.permissions import later
from perdure.testing import call
from tests.doubles import SECONDS, crashed, log_of, of, until
from tests.scheduling.scheduling_scene import HANG, START, Scene, kinds, serve_once

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


# -- questions ---------------------------------------------------------------------------------------------------------


@tool(effect="ask")
def sign() -> str:
    """Sign."""
    return "signed"


async def leave_signing(scene: Scene, *events: Any) -> str:
    """Leave the run of a firing behind as a process does that dies while `sign` runs, and return the firing's id."""
    firing_id = await scene.scheduler(MAIL).trigger("mail", trigger_id="m1")
    serving = scene.scheduler(MAIL).serve()
    assert (await anext(serving)).kind == "fired"
    await serving.aclose()
    reply = Message("assistant", (ToolCall("call_1", "sign", "{}"),), stop=StopReason.TOOL_USE)
    await crashed(
        scene.store,
        "mail",
        RunStarted(run_id="r", input_id=f"schedule:mail:{firing_id}#1"),
        MessageAdded(user("Go."), run_id="r"),
        MessageAdded(reply, run_id="r"),
        ToolStarted("call_1", "sign", "ask", "s/r/call_1", run_id="r"),
        *events,
    )
    return firing_id


MAIL = Schedule(name="mail", prompt="Go.")


async def test_the_open_questions_of_a_run_are_all_denied_and_reported():
    scene = Scene("I left it.", tools=[sign])
    slot = QuestionAsked(
        "q1", "slot", "Which\n one?", ({"call_id": "call_0", "tool": "choose", "place": 1},), run_id="r"
    )
    other = Scene(call("send", text="x"), permission=Permissions(ask("send"), handler=later))
    (asked,) = (await other.agent.session("s").run("Send it.")).questions
    permission = msgspec.structs.replace(asked, ask_id="q2", run_id="r")
    firing_id = await leave_signing(scene, slot, permission)
    scheduler = scene.scheduler(MAIL)
    async with asyncio.timeout(SECONDS):
        assert kinds(await serve_once(scheduler)) == ["resumed", "finished"]
    about = (
        "The runtime stopped while 'sign' ran: it may or may not have taken effect. Answer 'retry' to make the call "
        "again, 'skip…"
    )
    assert await scheduler.history("mail") == [
        Firing(
            schedule="mail",
            firing_id=firing_id,
            status="finished",
            started_at=START,
            ended_at=START,
            session_id="mail",
            run_id="r",
            attempts=1,
            resumed=1,
            denied=(about,),
            unknown_effects=("sign",),
        )
    ]
    log = await log_of(scene.store, "mail")
    answers = {each.ask_id: (each.answer, each.rejected, each.by) for each in of(log, QuestionAnswered)}
    (settled,) = [each.ask_id for each in of(log, QuestionAsked) if each.about == "settlement"]
    assert answers[settled] == ("skip", "", "schedule")
    assert [each.result.status for each in of(log, ToolFinished)] == [Status.UNKNOWN]
    rejected, denied = await scene.store.posts("mail")
    why = "nobody is there to answer: this run is unattended"
    assert (rejected.id, rejected.body) == ("answer-q1", {"ask_id": "q1", "answer": None, "rejected": why})
    assert denied.body["by"] == "schedule"
    assert [each["allow"] for each in denied.body["answer"].values()] == [False]


async def test_what_was_denied_is_reported_once_each():
    scene = Scene("I left it.", tools=[sign])
    asked = [QuestionAsked(f"q{place}", "slot", f"Which of the {place}?", run_id="r") for place in range(4)]
    answers = [
        QuestionAnswered("q0", 1, "post", run_id="r"),
        QuestionAnswered("q1", None, "post", rejected="nobody is there", run_id="r"),
        QuestionAnswered("q2", False, "post", by="schedule", run_id="r"),
        QuestionAnswered("q3", False, "post", by="somebody", run_id="r"),
        QuestionAsked("p", "permission", "May it send?", run_id="r"),
        QuestionAnswered("p", False, "post", by="schedule", run_id="r"),
        PermissionDecided("call_0", "send", "tool", "x\ny", "hash", allow=False, run_id="r"),
        PermissionDecided("call_9", "send", "tool", "z", "hash", allow=True, run_id="r"),
        QuestionAnswered("unknown", False, "post", by="schedule", run_id="r"),
    ]
    await leave_signing(scene, *asked, *answers)
    scheduler = scene.scheduler(MAIL)
    assert kinds(await serve_once(scheduler)) == ["resumed", "finished"]
    (firing,) = await scheduler.history("mail")
    assert firing.denied[:-1] == ("Which of the 1?", "Which of the 2?", "send x y")
    assert firing.denied[-1].startswith("The runtime stopped while 'sign' ran")


async def test_a_reason_is_cut_to_one_line_of_120_characters():
    scene = Scene(ProviderDown("é" * 106), ProviderDown("a\nb" + "x" * 104))
    scheduler = scene.scheduler(MAIL)
    assert (await scheduler.run_now("mail")).reason == f"ProviderDown: {'é' * 106}"
    assert (await scheduler.run_now("mail")).reason == f"ProviderDown: a b{'x' * 102}…"


# -- the process is asked to end ---------------------------------------------------------------------------------------


async def test_a_shutdown_denies_no_question_but_leaves_it_to_the_next_process():
    async def ask_and_end(run: Run) -> Outcome[Any]:
        shutdown.begin()
        return await react(run)

    scene = Scene("I left it.", tools=[sign])
    firing_id = await leave_signing(scene)
    async with asyncio.timeout(SECONDS), Shutdown(signals=()) as shutdown:
        scheduler = Scheduler(shutdown.wrap_agent(scene.agent.replace(engine=ask_and_end)), [MAIL])
        assert kinds(await serve_once(scheduler)) == ["resumed"]
    assert await scene.store.posts("mail") == []
    assert (await scheduler.find_firing("mail", firing_id)).status == "running"  # type: ignore[union-attr]
    assert kinds(await serve_once(scene.scheduler(MAIL))) == ["resumed", "finished"]


async def test_a_shutdown_ends_the_wait_for_a_session_that_another_process_drives():
    scene = Scene("done")
    lease = await scene.store.acquire("mail")
    async with asyncio.timeout(SECONDS), Shutdown(signals=()) as shutdown:
        scheduler = Scheduler(shutdown.wrap_agent(scene.agent), [MAIL], poll_seconds=POLL_SECONDS)
        await scheduler.trigger("mail")
        serving = asyncio.ensure_future(serve_once(scheduler))
        await scene.clock.wait_for_sleepers(2)  # the scheduler, and the firing
        shutdown.begin()
        assert kinds(await serving) == ["fired"]
    await scene.store.release(lease)
    assert kinds(await serve_once(scene.scheduler(MAIL))) == ["resumed", "finished"]


async def test_a_shutdown_ends_the_wait_for_a_retry_which_the_next_process_makes():
    scene = Scene(ProviderDown("down"), "At last.")
    schedule = Schedule(name="mail", prompt="Go.", retries=1, retry_seconds=3000, timeout_seconds=None)
    async with asyncio.timeout(SECONDS), Shutdown(signals=()) as shutdown:
        scheduler = Scheduler(shutdown.wrap_agent(scene.agent), [schedule], poll_seconds=POLL_SECONDS)
        await scheduler.trigger("mail", trigger_id="m1")
        serving = asyncio.ensure_future(serve_once(scheduler))
        await until(lambda: 3000 in scene.clock.pending)
        shutdown.begin()
        assert kinds(await serving) == ["fired", "retried"]
    assert len(scene.model.requests) == 1
    again = scene.scheduler(schedule)
    assert kinds(await serve_once(again)) == ["resumed", "finished"]
    (firing,) = await again.history("mail")
    assert (firing.attempts, firing.resumed, firing.reason) == (2, 1, "")


async def test_running_a_schedule_now_is_refused_when_the_process_was_asked_to_end():
    scene = Scene("done")
    async with asyncio.timeout(SECONDS), Shutdown(signals=()) as shutdown:
        scheduler = Scheduler(shutdown.wrap_agent(scene.agent), [MAIL])
        shutdown.begin()
        with pytest.raises(UsageError) as raised:
            await scheduler.run_now("mail")
        (pending,) = await scheduler.history("mail")
        expected = f"the process was asked to end: firing {pending.firing_id!r} is left for the next one"
        assert (str(raised.value), pending.status) == (expected, "pending")
        assert await serve_once(scheduler) == []
    assert kinds(await serve_once(scene.scheduler(MAIL))) == ["fired", "finished"]


# -- a store that fails ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("failing", "kind"), [(1, "fired"), (2, "fired"), (3, "resumed")])
async def test_a_schedule_whose_store_fails_is_tried_again_and_the_others_are_served(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, failing: int, kind: str
):
    scene = Scene("other", "mail")
    scheduler = scene.scheduler(MAIL, Schedule(name="other", prompt="Go."), poll_seconds=1)
    await scheduler.trigger("mail")
    await scheduler.trigger("other")
    posts, calls = scene.store.posts, 0

    async def fail(session_id: str) -> Any:
        nonlocal calls
        calls += session_id == "schedules/mail"
        if session_id == "schedules/mail" and calls == failing:
            raise StoreError("the disk is gone")
        return await posts(session_id)

    with monkeypatch.context() as patch:
        patch.setattr(scene.store, "posts", fail)
        records = await serve_once(scheduler)
    assert [each.kind for each in records if each.schedule == "other"] == ["fired", "finished"]
    assert [each.kind for each in records if each.schedule == "mail"] == ["fired"] * (failing == 3)
    assert [each.getMessage() for each in caplog.records if each.levelname == "WARNING"] == [
        "schedule mail cannot be served, which will be tried again in 1.0 s: StoreError: the disk is gone"
    ]
    assert await serve_once(scheduler) == []  # it is left alone for a while
    assert kinds(await serve_once(scene.scheduler(MAIL))) == [kind, "finished"]  # and others may serve it at once


async def test_a_firing_that_the_store_failed_is_continued_after_a_pause(monkeypatch: pytest.MonkeyPatch):
    scene = Scene("mail")
    scheduler = scene.scheduler(MAIL, poll_seconds=1)
    await scheduler.trigger("mail")
    posts, calls = scene.store.posts, 0

    async def fail(session_id: str) -> Any:
        nonlocal calls
        calls += 1
        if calls == 3:
            raise StoreError("the disk is gone")
        return await posts(session_id)

    with monkeypatch.context() as patch:
        patch.setattr(scene.store, "posts", fail)
        assert kinds(await serve_once(scheduler)) == ["fired"]
    await scene.clock.advance(0.9)
    assert await serve_once(scheduler) == []
    await scene.clock.advance(0.1)
    assert kinds(await serve_once(scheduler)) == ["resumed", "finished"]
