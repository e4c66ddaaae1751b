"""A worker for all sessions of a store: what it takes up, in which order, and what becomes of sessions that fail."""

import asyncio
import itertools
import logging
import re
from collections.abc import AsyncGenerator
from typing import Any

import pytest

from perdure import (
    Agent,
    ConfigError,
    Limits,
    Outcome,
    Permissions,
    Session,
    SessionBusy,
    StoreError,
    ToolContext,
    ask,
    tool,
    user,
)
from perdure._core.people.mailbox import build_message_post
from perdure._runtime.resume import resumer as session_resumer
from perdure._runtime.resume.resumer import SessionResumer
from perdure._runtime.resume.worker import ResumeWorker
from perdure.events import Event, MessageAdded, ModelRequested, RunEnded, RunResumed, RunStarted
from perdure.permissions import later
from perdure.stores import Fenced, InterruptedSession, MemoryStore, UnsupportedByStore
from perdure.testing import FakeClock, ScriptedModel, call
from perdure.tools import delegation
from tests.doubles import SECONDS, Held, crashed, log_of, of, rounds, until
from tests.runtime.subagents.family import act_tool, following


def begun(agent: str = "agent") -> list[Event]:
    """A run that was cut off before its first reply."""
    return [RunStarted(agent, run_id="r"), MessageAdded(user("Hi"), run_id="r")]


def worker_agent(*steps: Any, store: Any, **options: Any) -> Agent[Any]:
    return Agent(
        following(*steps or ("Here.",)), store=store, clock=options.pop("clock", FakeClock(auto=True)), **options
    )


async def outcomes_of(agent: Agent[Any], count: int, **options: Any) -> list[Outcome[Any]]:
    """The first outcomes that a worker yields."""
    found: list[Outcome[Any]] = []
    worker = agent.attend_all(**options)
    async with asyncio.timeout(SECONDS):
        async for outcome in worker:
            found.append(outcome)
            if len(found) == count:
                break
    await worker.aclose()
    return found


async def test_every_session_that_was_cut_off_is_finished():
    store = MemoryStore()
    for number in range(20):
        await crashed(store, f"s{number}", *begun())
    found = await outcomes_of(worker_agent(store=store), 20, most_at_once=3)
    assert {each.session_id for each in found} == {f"s{number}" for number in range(20)}
    assert {(each.status, each.text, each.run_id) for each in found} == {("done", "Here.", "r")}
    assert await store.list_interrupted(include_posts=True) == []


async def test_no_more_than_allowed_are_continued_at_once():
    store, held = MemoryStore(), Held()
    for number in range(5):
        await crashed(store, f"s{number}", *begun())
    agent = worker_agent(call("held"), "Here.", store=store, tools=[held.tool])
    worker = agent.attend_all(most_at_once=2)
    first = asyncio.ensure_future(anext(worker))
    await until(held.started.is_set)
    await rounds()
    begun_now = [name for name in [f"s{n}" for n in range(5)] if len(await store.read(name)) > 2]
    assert len(begun_now) == 2
    held.released.set()
    assert (await asyncio.wait_for(first, SECONDS)).status == "done"
    await worker.aclose()


async def test_answers_and_follow_ups_are_handled():
    store = MemoryStore()
    model = ScriptedModel(call("act", what="x"), call("act", what="y"), "Here.")
    gate = Permissions(ask("*"), handler=later)
    agent = Agent(model, store=store, clock=FakeClock(auto=True), tools=[act_tool([])], permission=gate)
    waiting = agent.session("waiting")
    outcome = await waiting.run("Go")
    assert outcome.status == "waiting"
    await agent.session("posted").follow_up("And then?")
    assert await store.list_interrupted() == []
    (found,) = await outcomes_of(agent, 1)
    assert (found.session_id, found.status) == ("posted", "waiting")
    await waiting.answer(outcome.questions[0].ask_id, answer=True)
    (found,) = await outcomes_of(agent, 1)
    assert (found.session_id, found.status) == ("waiting", "done")


async def test_a_question_that_expires_is_noticed():
    clock, store = FakeClock(auto=True), MemoryStore()
    gate = Permissions(ask("*"), handler=later, expires_seconds=60)
    agent = worker_agent(
        call("act", what="x"), "Here.", store=store, clock=clock, tools=[act_tool([])], permission=gate
    )
    assert (await agent.session("s").run("Go")).status == "waiting"
    (found,) = await outcomes_of(agent, 1)
    assert found.status == "done"
    assert clock.now() >= 1_700_000_060.0


async def test_a_question_does_not_expire_by_a_clock_that_is_wrong_for_two_seconds(caplog):
    clock, store = FakeClock(), MemoryStore()
    gate = Permissions(ask("*"), handler=later, expires_seconds=60)
    agent = worker_agent(
        call("act", what="x"), "Here.", store=store, clock=clock, tools=[act_tool([])], permission=gate
    )
    session = agent.session("s")
    assert (await session.run("Go")).status == "waiting"
    (question,) = await session.questions()
    attending = asyncio.ensure_future(anext(agent.attend_all()))
    for jump in (86_400.0, -86_400.0):
        clock.set_ahead(jump)
        for _ in range(2):
            await clock.wait_for_sleepers()
            await clock.advance(1)
        assert await session.wake() is None
        assert [each.ask_id for each in await session.questions()] == [question.ask_id]
    assert caplog.text.count("the clock of this machine was set ahead by 1 day") == 1
    await clock.wait_for_sleepers()
    await clock.advance(60)
    found = await asyncio.wait_for(attending, 10)
    assert found.status == "done"
    assert await session.questions() == []


async def test_steering_waits_for_the_next_run_and_is_not_looked_at_all_the_time():
    class Counted(MemoryStore):
        reads = 0

        async def read(self, session_id: str, *, after: int = 0) -> Any:
            Counted.reads += 1
            return await super().read(session_id, after=after)

    clock, store = FakeClock(), Counted()
    agent = Agent(ScriptedModel("Here.", repeat_last=True), store=store, clock=clock)
    await agent.session("s").steer("Faster!")
    worker = agent.attend_all()
    first = asyncio.ensure_future(anext(worker))
    await _pass_seconds(clock, 200)
    assert not first.done()
    assert Counted.reads < 30  # in two hundred rounds
    await agent.session("s").follow_up("And then?")
    while not first.done():
        await _pass_seconds(clock, 1)
        await rounds()
    assert (await first).status == "done"
    await worker.aclose()


async def _pass_seconds(clock: FakeClock, seconds: int) -> None:
    async with asyncio.timeout(SECONDS):
        for _ in range(seconds):
            await clock.wait_for_sleepers()
            await clock.advance(1)


async def test_parked_runs_sessions_of_other_agents_and_driven_sessions_are_left_alone():
    clock, store = FakeClock(), MemoryStore()
    await crashed(store, "parked", *begun(), *[RunResumed(run_id="r"), ModelRequested(1, run_id="r")] * 3)
    await crashed(store, "other", *begun("another"))
    await crashed(store, "driven", *begun())
    await crashed(store, "outside", *begun())
    lease = await store.acquire("driven")
    agent = worker_agent(store=store, clock=clock)
    seen: list[Outcome[Any]] = []
    attending = asyncio.ensure_future(_collect(agent.attend_all(prefix=""), seen))
    await _pass_seconds(clock, 30)
    assert sorted([(each.session_id, each.status) for each in seen]) == [("outside", "done"), ("parked", "parked")]
    await store.release(lease)
    await _pass_seconds(clock, 3)
    assert [(each.session_id, each.status) for each in seen[2:]] == [("driven", "done")]
    attending.cancel()
    with pytest.raises(asyncio.CancelledError):
        await attending
    assert [each.session_id for each in await store.list_interrupted()] == ["other"]


async def _collect(worker: AsyncGenerator[Outcome[Any]], seen: list[Outcome[Any]]) -> None:
    try:
        async for outcome in worker:
            seen.append(outcome)  # noqa: PERF401 - looked at before it ends, which it never does
    finally:
        await worker.aclose()


async def test_a_session_that_cannot_be_continued_does_not_stop_the_others_and_is_tried_less_and_less(caplog):
    clock, store = FakeClock(), MemoryStore()
    tried: list[float] = []

    class Broken(MemoryStore):
        async def posts(self, session_id: str) -> Any:
            if session_id == "broken":
                tried.append(clock.now() - 1_700_000_000)
                raise StoreError("the disk is broken")
            return await super().posts(session_id)

    store = Broken()
    await crashed(store, "broken", *begun())
    agent = worker_agent(store=store, clock=clock)
    seen: list[Outcome[Any]] = []
    attending = asyncio.ensure_future(_collect(agent.attend_all(), seen))
    with caplog.at_level(logging.WARNING, "perdure"):
        for number in range(5):
            await crashed(store, f"s{number}", *begun())
            await _pass_seconds(clock, 60)
    assert {each.session_id for each in seen if each.status == "done"} == {f"s{number}" for number in range(5)}
    failed = [each for each in seen if each.session_id == "broken"]
    assert {(each.status, each.reason) for each in failed} == {("failed", "StoreError")}
    assert 5 <= len(tried) < 25  # in 300 seconds
    gaps = [after - before for before, after in itertools.pairwise(tried)]
    assert gaps[0] <= 3
    assert max(gaps) > 20
    assert "session broken cannot be continued" in caplog.text
    attending.cancel()
    with pytest.raises(asyncio.CancelledError):
        await attending


@pytest.mark.parametrize(
    ("jitter", "waits", "gaps"),
    [
        (0.0, ["1.0", "2.0", "4.0", "8.0", "16.0", "30.0", "30.0"], [2, 3, 5, 9, 17, 31]),
        (1.0, ["2.0", "4.0", "8.0", "16.0", "32.0", "60.0", "60.0"], [3, 5, 9, 17, 33, 61]),
    ],
)
async def test_each_attempt_at_a_broken_session_waits_twice_as_long_up_to_a_minute(jitter, waits, gaps, caplog):
    clock, store = FakeClock(auto=True), MemoryStore()
    tried: list[float] = []

    async def fail(_session_id: str) -> None:
        tried.append(clock.monotonic())
        raise StoreError("the disk is broken")

    await crashed(store, "broken", *begun())
    worker = ResumeWorker(store, fail, clock, seconds=1.0, jitter=lambda: jitter)
    seen: list[Outcome[Any]] = []
    with caplog.at_level(logging.WARNING, "perdure"):
        async with asyncio.timeout(SECONDS):
            async for outcome in worker.run():
                seen.append(outcome)
                if len(seen) == len(waits):
                    break
    assert caplog.messages == [
        f"session broken cannot be continued, which will be tried again in {wait} s: StoreError: the disk is broken"
        for wait in waits
    ]
    # It is looked for every second, and at the first look that is later.
    assert [after - before for before, after in itertools.pairwise(tried)] == gaps
    assert {(each.status, each.reason, each.session_id, str(each.error)) for each in seen} == {
        ("failed", "StoreError", "broken", "the disk is broken")
    }


async def test_a_store_that_fails_is_asked_again(caplog):
    class Flaky(MemoryStore):
        failures = 3

        async def list_interrupted(self, **options: Any) -> Any:
            if Flaky.failures:
                Flaky.failures -= 1
                raise StoreError("no connection")
            return await super().list_interrupted(**options)

    store = Flaky()
    await crashed(store, "s", *begun())
    with caplog.at_level(logging.WARNING, "perdure"):
        (found,) = await outcomes_of(worker_agent(store=store), 1)
    assert found.status == "done"
    assert caplog.text.count("cannot be listed") == 3


async def test_no_session_starves_while_others_always_have_something_to_do():
    clock = FakeClock(auto=True)
    taken: list[str] = []

    class Endless(MemoryStore):
        async def list_interrupted(self, **_: Any) -> Any:
            return [InterruptedSession(f"s{number}", "cut_off", len(taken), 0.0) for number in range(10)]

    async def attend(session_id: str) -> Outcome[Any]:
        taken.append(session_id)
        return Outcome(status="done", session_id=session_id)

    worker = ResumeWorker(Endless(), attend, clock, most_at_once=3).run()
    async with asyncio.timeout(SECONDS):
        async for _ in worker:
            if len(taken) >= 60:
                break
    await worker.aclose()
    for place in range(0, 60, 10):
        assert len(set(taken[place : place + 10])) == 10


async def test_stopping_ends_the_runs_in_progress_properly():
    store, held = MemoryStore(), Held()
    await crashed(store, "s", *begun())
    worker = worker_agent(call("held"), "Here.", store=store, tools=[held.tool]).attend_all()
    first = asyncio.ensure_future(anext(worker))
    await until(held.started.is_set)
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    await worker.aclose()
    (ended,) = of(await log_of(store, "s"), RunEnded)
    assert ended.status == "cancelled"
    assert held.cancelled == 1
    assert not store._sessions["s"].driven


async def test_a_session_that_is_cancelled_from_elsewhere_is_told():
    store, clock = MemoryStore(), FakeClock(auto=True)
    await crashed(store, "s", *begun())

    async def attend(_: str) -> Outcome[Any] | None:
        raise asyncio.CancelledError

    worker = ResumeWorker(store, attend, clock).run()
    outcome = await asyncio.wait_for(anext(worker), SECONDS)
    assert (outcome.status, outcome.session_id) == ("cancelled", "s")
    await worker.aclose()


@pytest.mark.parametrize("error", [None, SessionBusy("another process"), Fenced("taken over")], ids=repr)
async def test_a_session_with_nothing_to_do_is_looked_at_less_and_less_until_something_comes(error, caplog):
    clock, store = FakeClock(auto=True), MemoryStore()
    tried: list[float] = []

    async def attend(session_id: str) -> Outcome[Any] | None:
        tried.append(clock.monotonic())
        if len(tried) == 4:
            await store.post(session_id, build_message_post("follow_up", user("And?"), "p1", 0.0))
        if len(tried) == 7:
            return Outcome(status="done", session_id=session_id)
        if error is not None:
            raise error
        return None

    await crashed(store, "s", *begun())
    worker = ResumeWorker(store, attend, clock, seconds=1.0, jitter=lambda: 0.0)
    async with asyncio.timeout(SECONDS):
        outcome = await anext(worker.run())
    assert (outcome.status, outcome.session_id) == ("done", "s")
    # The next look is a second later; what has come makes it forget how long it had waited.
    assert [after - before for before, after in itertools.pairwise(tried)] == [2, 3, 5, 1, 2, 3]
    assert caplog.messages == []


async def test_the_tasks_of_background_agents_are_taken_up_by_the_session_that_gave_them():
    done: list[str] = []
    store = MemoryStore()

    def boss(model: Any) -> Agent[Any]:
        scout = Agent(following(call("act", what="x"), "Scouted."), name="scout", tools=[act_tool(done)])
        return Agent(model, store=store, extensions=[delegation([scout])])

    agent = boss(ScriptedModel(call("delegate", agent="scout", task="Go.", background=True), "Given."))
    await agent.session("s").run("Go")
    await until(lambda: done)
    (child,) = [each.session_id for each in await store.list(prefix="s/")]
    log = await store.read(child)
    other = MemoryStore()
    for session_id, entries in (("s", await store.read("s")), (child, log[:3])):
        lease = await other.acquire(session_id)
        await other.append(lease, entries, sync=True)
        await other.release(lease)
    again = boss(following("", "", "Told.")).replace(store=other)
    found = await outcomes_of(again, 1, seconds=0.01)
    assert (found[0].session_id, found[0].text) == ("s", "Told.")
    ended, reported = (await other.read(child))[-2:]
    assert (ended.event.status, reported.event.changes["is_reported"]) == ("done", True)  # type: ignore[attr-defined]


async def test_code_that_runs_were_begun_with_is_passed_to_them():
    @tool
    async def show(context: ToolContext[Any]) -> str:
        """Show."""
        return str(context.deps)

    store = MemoryStore()
    await crashed(store, "s", *begun())
    agent = worker_agent(call("show"), "Here.", store=store, tools=[show])
    (found,) = await outcomes_of(agent, 1, deps="the deps")
    assert found.new_messages[2].tool_results[0].text == "the deps"


async def test_what_makes_no_sense_is_refused():
    agent = Agent(ScriptedModel())
    nonsense: dict[str, Any] = {"most_at_once": 0, "seconds": -1, "prefix": 5}
    for name, value in nonsense.items():
        with pytest.raises(ConfigError, match=name):
            await anext(agent.attend_all(**{name: value}))

    for name, near in (("foo", "use one of model"), ("limit", "did you mean 'limits'? use"), ("outputs", "'output'")):
        with pytest.raises(ConfigError, match=rf"a run has no override '{name}': .*{re.escape(near)}") as refused:
            await anext(agent.attend_all(**{name: 1}))  # type: ignore[arg-type]
        assert str(refused.value).endswith("deps, budget, watchers")

    class Old:
        acquire = append = read = list = release = lambda *_: None

    with pytest.raises(UnsupportedByStore, match="interrupted"):
        await anext(agent.attend_all(store=Old()))  # type: ignore[arg-type]


# -- options of each session -------------------------------------------------------------------------------------------


def greeter(store: Any) -> tuple[Agent[Any], list[tuple[str, Any]]]:
    """An agent whose tool notes the deps that it gets."""
    seen: list[tuple[str, Any]] = []

    @tool(effect="read")
    async def greet(context: ToolContext[Any]) -> str:
        """Greet."""
        seen.append((context.session_id, context.deps))
        return "greeted"

    return worker_agent(call("greet"), "Done.", store=store, tools=[greet]), seen


@pytest.mark.parametrize("is_async", [False, True])
async def test_each_session_gets_the_options_that_a_function_chooses_for_it(is_async):
    store = MemoryStore()
    for customer in ("ann", "bob"):
        started = RunStarted("agent", {"code": ["deps"]}, run_id="r")
        await crashed(store, f"{customer}/s", started, MessageAdded(user("Hi"), run_id="r"))
    agent, seen = greeter(store)

    def choose(session_id: str) -> Any:
        return {"deps": session_id.partition("/")[0].title()}

    async def choose_later(session_id: str) -> Any:
        return choose(session_id)

    found = await outcomes_of(agent, 2, deps="nobody", overrides_for=choose_later if is_async else choose)
    assert {each.status for each in found} == {"done"}
    assert sorted(seen) == [("ann/s", "Ann"), ("bob/s", "Bob")]


async def test_limits_that_a_function_chooses_for_a_session_are_merged_with_those_of_all():
    store = MemoryStore()
    await crashed(store, "s", *begun())
    agent = worker_agent(*[call("greet") for _ in range(6)], store=store, tools=[tool(lambda: "Hi", name="greet")])
    (outcome,) = await outcomes_of(
        agent, 1, limits=Limits(max_tool_calls=2), overrides_for=lambda _: {"limits": Limits(max_turns=6)}
    )
    assert (outcome.status, outcome.reason) == ("limit", "max_tool_calls")


@pytest.mark.parametrize(("chosen", "problem"), [("Ann", "overrides_for"), ({"dep": 1}, "'dep'")])
async def test_a_function_that_chooses_no_options_fails_only_the_session(chosen, problem):
    store = MemoryStore()
    await crashed(store, "bad", *begun())
    await crashed(store, "good", *begun())
    agent, _ = greeter(store)
    found = await outcomes_of(agent, 2, overrides_for=lambda name: chosen if name == "bad" else {})
    failed = {each.session_id: str(each.error) for each in found if each.status == "failed"}
    assert [*failed] == ["bad"]
    assert problem in failed["bad"]


async def test_what_chooses_the_options_has_to_be_a_function():
    with pytest.raises(ConfigError, match="overrides_for"):
        await anext(worker_agent(store=MemoryStore()).attend_all(overrides_for={}))  # type: ignore[arg-type]


async def test_code_that_a_run_was_begun_with_is_asked_for_in_words_that_fit_every_call():
    store = MemoryStore()
    started = RunStarted("agent", {"code": ["deps"]}, run_id="r")
    await crashed(store, "s", started, MessageAdded(user("Hi"), run_id="r"))
    (failed,) = await outcomes_of(greeter(store)[0], 1)
    assert "pass deps=… again to the call that continues it" in str(failed.error)


async def test_a_worker_remembers_a_number_of_sessions_and_forgets_those_it_has_not_seen_for_longest(monkeypatch):
    monkeypatch.setattr(session_resumer, "_MAX_SESSIONS", 2)
    store, looked_at = MemoryStore(), list[str]()
    agent = worker_agent(store=store)
    for name in "abc":
        await agent.session(name).steer("Faster!")

    def noted(given: Any, session_id: str, *rest: Any) -> Any:
        looked_at.append(session_id)
        return Session(given, session_id, *rest)

    monkeypatch.setattr(session_resumer, "Session", noted)
    resumer = SessionResumer(agent, store, {})
    for name in "abacab":
        await resumer.attend(name)
    assert looked_at == ["a", "b", "c", "b"]
