"""A run that is asked to stop: what had finished is kept, everything else says so, and the conversation stays valid."""

import asyncio
import contextlib
from collections.abc import Sequence
from typing import Any

import pytest

from perdure import Agent, Limits, Outcome, Session, Status, StoreError, ToolCall, tool
from perdure._core.run.run import CANCEL_GRACE_SECONDS
from perdure._core.values import faults
from perdure.engines import Run
from perdure.events import (
    CancelRequested,
    Entry,
    MessageAdded,
    ModelRequested,
    ReplyDiscarded,
    ReplyFinished,
    RunEnded,
    TextDelta,
    ToolFinished,
    ToolStarted,
)
from perdure.permissions import Verdict
from perdure.stores import Lease
from perdure.testing import FakeClock, Recorder, ScriptedModel, call, calls, pause
from perdure.tools import before
from tests.doubles import SECONDS, Held, WaitingStore, deaf_tool, log_of, of, rounds
from tests.transcript import assert_valid

pytestmark = pytest.mark.resumed


@tool(effect="read")
async def look() -> str:
    """Looks."""
    return "there"


def statuses(outcome: Outcome[Any]) -> list[Status]:
    return [result.status for result in outcome.messages[-1].tool_results]


async def running(session: Session, *started: asyncio.Event) -> "asyncio.Task[Outcome[Any]]":
    """A run that has come so far."""
    task = asyncio.create_task(session.run("Go"))
    async with asyncio.timeout(SECONDS):
        for event in started:
            await event.wait()
        await rounds()
    return task


async def ended(task: "asyncio.Task[Outcome[Any]]") -> Outcome[Any]:
    async with asyncio.timeout(SECONDS):
        outcome = await task
    assert_valid(outcome.messages)
    return outcome


# -- now ---------------------------------------------------------------------------------------------------------------


async def test_a_cancel_keeps_finished_results_and_gives_every_other_call_one():
    first, second = Held("first"), Held("second")
    agent = Agent(
        ScriptedModel(calls(call("look"), call("first"), call("second"), call("look"))),
        tools=[look, first.tool, second.tool],
        limits=Limits(max_parallel_tools=2),
    )
    session = agent.session("s")
    task = await running(session, first.started, second.started)
    assert await session.cancel()
    outcome = await ended(task)
    assert (outcome.status, outcome.reason) == ("cancelled", "cancelled")
    assert statuses(outcome) == [Status.OK, Status.CANCELLED, Status.CANCELLED, Status.CANCELLED_BEFORE_START]
    assert (first.cancelled, second.cancelled) == (1, 1)
    log = await log_of(agent.store, "s")
    assert [event.call_id for event in of(log, ToolStarted)] == ["call_1", "call_2", "call_3"]
    assert isinstance(log[-1], RunEnded)
    assert outcome.messages[-1].tool_results[3].text.endswith("It had no effect.")


async def test_a_cancel_while_the_model_speaks_keeps_its_words_out_of_the_conversation():
    held = pause()
    agent = Agent(ScriptedModel([TextDelta("Once upon a"), held, ReplyFinished()]))
    session = agent.session("s")
    task = asyncio.ensure_future(session.run("Tell"))
    async with asyncio.timeout(SECONDS):
        await held.wait_reached()
    await session.cancel()
    outcome = await ended(task)
    assert (outcome.status, outcome.text, len(outcome.messages)) == ("cancelled", "Once upon a", 1)
    assert [event.reason for event in of(await log_of(agent.store, "s"), ReplyDiscarded)] == ["CancelledError"]


async def test_a_cancel_before_the_first_word_discards_nothing():
    held = pause()
    agent = Agent(ScriptedModel([held, TextDelta("Hello."), ReplyFinished()]))
    session = agent.session("s")
    task = asyncio.ensure_future(session.run("Hi"))
    async with asyncio.timeout(SECONDS):
        await held.wait_reached()
    await session.cancel()
    assert (await ended(task)).message is None
    assert not of(await log_of(agent.store, "s"), ReplyDiscarded)


async def test_a_cancel_while_somebody_is_asked_gives_every_call_a_result():
    asked = asyncio.Event()

    async def slow_person(requests: Any) -> list[Verdict]:
        asked.set()
        await asyncio.Event().wait()
        return []

    session = Agent(ScriptedModel(calls(call("look"), call("look"))), tools=[look], permission=slow_person).session()
    task = await running(session, asked)
    await session.cancel()
    assert statuses(await ended(task)) == [Status.CANCELLED_BEFORE_START] * 2


async def test_a_cancel_while_a_prepare_hook_waits_gives_every_call_a_result():
    asked = asyncio.Event()

    async def slow(asked_for: ToolCall, arguments: dict[str, Any]) -> None:
        asked.set()
        await asyncio.Event().wait()

    session = Agent(ScriptedModel(calls(call("look"), call("look"))), tools=[before(look, slow)]).session()
    task = await running(session, asked)
    await session.cancel()
    assert statuses(await ended(task)) == [Status.CANCELLED_BEFORE_START] * 2


async def test_nothing_begins_when_a_gate_swallows_the_cancel():
    asked = asyncio.Event()

    async def deaf_person(requests: Any) -> list[Verdict]:
        asked.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return [Verdict(allow=True)] * len(requests)
        return []

    agent = Agent(ScriptedModel(call("look")), tools=[look], permission=deaf_person)
    session = agent.session("s")
    task = await running(session, asked)
    await session.cancel()
    outcome = await ended(task)
    assert (outcome.status, statuses(outcome)) == ("cancelled", [Status.CANCELLED_BEFORE_START])
    assert not of(await log_of(agent.store, "s"), ToolStarted)


@pytest.mark.parametrize("cancels", [1, 2])
async def test_a_cancel_while_the_reply_is_stored_gives_every_call_a_result(cancels):
    class HoldsReplies(WaitingStore):
        """Stands still when it is given a reply, and then for every result too."""

        async def append(self, lease: Any, entries: Sequence[Entry], *, sync: bool) -> None:
            messages = [entry.event.message for entry in entries if isinstance(entry.event, MessageAdded)]
            if any(message.tool_calls for message in messages):
                self.open.clear()
            await super().append(lease, entries, sync=sync)

    store = HoldsReplies()
    session = Agent(ScriptedModel(calls(call("look"), call("look"))), tools=[look], store=store).session("s")
    task = asyncio.create_task(session.run("Go"))
    async with asyncio.timeout(SECONDS):
        for _ in range(cancels):
            await store.waiting.wait()
            store.waiting.clear()
            await session.cancel()
            await rounds()
            store.open.set()
            await asyncio.sleep(0)
            store.open.clear()
            await rounds()
        store.open.set()
    outcome = await ended(task)
    assert (outcome.status, statuses(outcome)) == ("cancelled", [Status.CANCELLED_BEFORE_START] * 2)
    assert isinstance((await log_of(store, "s"))[-1], RunEnded)


async def test_a_cancel_while_an_intent_is_stored_says_that_nothing_happened():
    made: list[str] = []
    store = WaitingStore()
    store.holds_back = ToolStarted
    store.open.clear()

    @tool
    async def act() -> str:
        """Acts."""
        made.append("act")
        return "acted"

    session = Agent(ScriptedModel(call("act")), tools=[act], store=store).session("s")
    task = asyncio.create_task(session.run("Go"))
    async with asyncio.timeout(SECONDS):
        await store.waiting.wait()
        await session.cancel()
        await rounds()
        store.open.set()
    outcome = await ended(task)
    assert (statuses(outcome), made) == ([Status.CANCELLED_BEFORE_START], [])
    assert len(of(await log_of(store, "s"), ToolStarted)) == 1


async def test_a_cancel_before_the_run_has_begun_asks_no_model():
    store = WaitingStore()
    store.open.clear()
    model = ScriptedModel("Never said.")
    session = Agent(model, store=store).session("s")
    task = asyncio.create_task(session.run("Hi"))
    async with asyncio.timeout(SECONDS):
        await store.waiting.wait()
        assert await session.cancel()
        store.open.set()
    outcome = await ended(task)
    assert (outcome.status, model.requests) == ("cancelled", [])
    assert [message.text for message in outcome.messages] == ["Hi"]


async def test_a_cancel_is_shown_and_the_next_run_is_not_cancelled():
    recorder, held = Recorder(), Held()
    model = ScriptedModel(call("held"), call("look"), "Done.")
    session = Agent(model, tools=[held.tool, look], watchers=[recorder]).session()
    task = await running(session, held.started)
    await session.cancel()
    await ended(task)
    assert [event.mode for event in recorder.of(CancelRequested)] == ["now"]
    outcome = await session.run("Once more")
    assert (outcome.status, outcome.text) == ("done", "Done.")


async def test_a_second_cancel_changes_nothing():
    held = Held(abortable=False)
    session = Agent(ScriptedModel(call("held")), tools=[held.tool]).session()
    task = await running(session, held.started)
    assert await session.cancel()
    assert await session.cancel()
    await rounds()
    held.released.set()
    outcome = await ended(task)
    assert (outcome.status, statuses(outcome)) == ("cancelled", [Status.OK])
    assert not await session.cancel()


async def test_a_cancel_waits_for_what_must_not_be_aborted_and_cancels_the_rest():
    firm, soft = Held("firm", abortable=False), Held("soft")
    session = Agent(ScriptedModel(calls(call("firm"), call("soft"))), tools=[firm.tool, soft.tool]).session()
    task = await running(session, firm.started, soft.started)
    await session.cancel()
    await rounds()
    assert (task.done(), soft.cancelled) == (False, 1)
    firm.released.set()
    outcome = await ended(task)
    assert statuses(outcome) == [Status.OK, Status.CANCELLED]


async def test_a_tool_may_cancel_its_own_run():
    sessions: list[Session] = []

    @tool
    async def give_up() -> str:
        """Gives up."""
        await sessions[0].cancel()
        await asyncio.Event().wait()
        return "never"

    sessions.append(Agent(ScriptedModel(call("give_up")), tools=[give_up]).session())
    async with asyncio.timeout(SECONDS):
        outcome = await sessions[0].run("Go")
    assert (outcome.status, statuses(outcome)) == ("cancelled", [Status.CANCELLED])


# -- later -------------------------------------------------------------------------------------------------------------


async def test_after_the_tools_means_after_those_that_run():
    first, second = Held("first"), Held("second")
    model = ScriptedModel(calls(call("first"), call("second")), "Never said.")
    session = Agent(model, tools=[first.tool, second.tool], limits=Limits(max_parallel_tools=1)).session()
    task = await running(session, first.started)
    assert await session.cancel("after_tools")
    await rounds()
    assert not task.done()
    first.released.set()
    outcome = await ended(task)
    assert (outcome.status, model.remaining) == ("cancelled", 1)
    assert statuses(outcome) == [Status.OK, Status.CANCELLED_BEFORE_START]


async def test_after_the_tools_means_now_when_none_runs():
    held = pause()
    model = ScriptedModel([TextDelta("Once"), held, ReplyFinished()])
    session = Agent(model).session()
    task = asyncio.ensure_future(session.run("Tell"))
    async with asyncio.timeout(SECONDS):
        await held.wait_reached()
        await session.cancel("after_tools")
        outcome = await task
    assert (outcome.status, outcome.text) == ("cancelled", "Once")


async def test_after_the_turn_means_after_all_its_calls():
    first, second = Held("first"), Held("second")
    model = ScriptedModel(calls(call("first"), call("second")), "Never said.")
    session = Agent(model, tools=[first.tool, second.tool], limits=Limits(max_parallel_tools=1)).session()
    task = await running(session, first.started)
    await session.cancel("after_turn")
    first.released.set()
    second.released.set()
    outcome = await ended(task)
    assert (outcome.status, model.remaining) == ("cancelled", 1)
    assert statuses(outcome) == [Status.OK, Status.OK]


async def test_after_the_turn_lets_the_model_finish_its_answer():
    held = pause()
    model = ScriptedModel([TextDelta("Once upon "), held, TextDelta("a time."), ReplyFinished()])
    session = Agent(model).session()
    await session.follow_up("And then?")
    task = asyncio.ensure_future(session.run("Tell"))
    async with asyncio.timeout(SECONDS):
        await held.wait_reached()
        await session.cancel("after_turn")
        held.release()
        outcome = await task
    assert (outcome.status, outcome.text, len(outcome.messages)) == ("cancelled", "Once upon a time.", 2)


async def test_after_the_turn_carries_out_the_calls_of_the_reply_that_is_coming():
    held = pause()
    reply = calls(call("look"))
    model = ScriptedModel(lambda _: asyncio.sleep(0, reply) if held._released.is_set() else _wait(held, reply))
    session = Agent(model, tools=[look]).session()
    task = asyncio.ensure_future(session.run("Go"))
    async with asyncio.timeout(SECONDS):
        await held.wait_reached()
        await session.cancel("after_turn")
        held.release()
    outcome = await ended(task)
    assert (outcome.status, statuses(outcome)) == ("cancelled", [Status.OK])


async def _wait(held: Any, reply: Any) -> Any:
    await held.wait_released()
    return reply


@pytest.mark.parametrize("mode", ["after_tools", "after_turn"])
async def test_a_later_cancel_may_be_followed_by_one_now(mode):
    held = Held()
    session = Agent(ScriptedModel(call("held")), tools=[held.tool]).session()
    task = await running(session, held.started)
    await session.cancel(mode)
    await session.cancel("now")
    assert statuses(await ended(task)) == [Status.CANCELLED]


# -- what does not listen ----------------------------------------------------------------------------------------------


async def test_a_run_whose_tool_ignores_the_cancel_is_left_behind():
    clock = FakeClock()
    deaf, started, released = deaf_tool()
    model = ScriptedModel(calls(call("deaf"), call("look")), "I am still here.")
    agent = Agent(model, tools=[deaf, look], clock=clock, limits=Limits(max_parallel_tools=1))
    session = agent.session("s")
    task = await running(session, started)
    await session.cancel()
    await session.cancel()
    await clock.advance(CANCEL_GRACE_SECONDS - 1)
    assert not task.done()
    await clock.advance(1)
    outcome = await ended(task)
    assert (outcome.status, statuses(outcome)) == ("cancelled", [Status.CANCELLED, Status.CANCELLED_BEFORE_START])
    assert "this did not stop; it may still be running" in outcome.messages[-1].tool_results[0].text
    before = await log_of(agent.store, "s")
    assert isinstance(before[-1], RunEnded)

    released.set()  # what comes now comes too late, and nobody hears of it
    await rounds()
    assert await log_of(agent.store, "s") == before
    later = await session.run("Hello?")
    assert (later.status, later.text) == ("done", "I am still here.")
    assert_valid(later.messages)


async def test_what_was_left_behind_cannot_write_into_a_later_run():
    clock = FakeClock()
    deaf, started, released = deaf_tool()
    held = Held()
    model = ScriptedModel(call("deaf"), call("held"), "Done.")
    session = Agent(model, tools=[deaf, held.tool], clock=clock).session("s")
    task = await running(session, started)
    await session.cancel()
    await clock.advance(CANCEL_GRACE_SECONDS)
    await ended(task)
    later = await running(session, held.started)
    released.set()
    await rounds()
    held.released.set()
    outcome = await ended(later)
    assert (outcome.status, outcome.text) == ("done", "Done.")
    finished = of(await log_of(session.store, "s"), ToolFinished)
    assert [(event.name, event.result.status) for event in finished] == [("deaf", "cancelled"), ("held", "ok")]


async def test_a_run_is_not_left_behind_while_something_runs_that_must_not_be_aborted():
    clock = FakeClock()
    held = Held(abortable=False)
    session = Agent(ScriptedModel(call("held")), tools=[held.tool], clock=clock).session()
    task = await running(session, held.started)
    await session.cancel()
    await clock.advance(CANCEL_GRACE_SECONDS * 3)
    assert not task.done()
    held.released.set()
    assert statuses(await ended(task)) == [Status.OK]


async def test_a_run_that_ignores_the_cancel_is_left_behind_though_a_tool_that_it_calls_is_gone():
    clock = FakeClock()
    started, released = asyncio.Event(), asyncio.Event()

    async def deaf(run: Run) -> Any:
        await run.emit(run.stamp_event(ToolStarted("c1", "gone", "read", "k1")))
        started.set()
        while not released.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await released.wait()
        return run.outcome("done")

    session = Agent(ScriptedModel(), engine=deaf, clock=clock).session()
    task = await running(session, started)
    await session.cancel()
    await clock.advance(CANCEL_GRACE_SECONDS)
    await rounds()
    is_leftover_placeholder = task.done()
    released.set()
    assert is_leftover_placeholder
    assert (await ended(task)).status == "cancelled"


async def test_a_model_that_ignores_the_cancel_is_left_behind_too():
    clock = FakeClock()
    started, released = asyncio.Event(), asyncio.Event()

    class Deaf:
        async def stream(self, request: Any) -> Any:
            started.set()
            while not released.is_set():
                try:
                    await released.wait()
                except asyncio.CancelledError:
                    continue
            yield TextDelta("Late.")
            yield ReplyFinished()

    session = Agent(Deaf(), clock=clock).session()
    task = await running(session, started)
    await session.cancel()
    await clock.advance(CANCEL_GRACE_SECONDS)
    outcome = await ended(task)
    assert (outcome.status, len(outcome.messages)) == ("cancelled", 1)
    released.set()
    await rounds()
    assert len(await session.messages()) == 1


# -- when something goes wrong among the calls ------------------------------------------------------------------------


async def test_a_run_that_fails_among_its_calls_gives_each_of_them_a_result():
    faults.arm({"loop.before_intent": "raise"})
    try:
        outcome = await Agent(ScriptedModel(calls(call("nope"), call("look"))), tools=[look]).run("Go")
    finally:
        faults.disarm()
    assert (outcome.status, outcome.reason) == ("failed", "FaultInjected")
    assert statuses(outcome) == [Status.ERROR, Status.CANCELLED_BEFORE_START]
    assert_valid(outcome.messages)


async def test_a_call_whose_effect_is_done_and_whose_result_is_lost_is_unknown():
    faults.arm({"loop.effect_done": "raise"})
    try:
        outcome = await Agent(ScriptedModel(call("look")), tools=[look]).run("Go")
    finally:
        faults.disarm()
    assert (outcome.status, outcome.reason, statuses(outcome)) == ("failed", "FaultInjected", [Status.UNKNOWN])
    assert_valid(outcome.messages)


# -- when the log cannot be written ------------------------------------------------------------------------------------


async def test_what_cannot_be_stored_is_raised_and_the_session_goes_on_from_its_log():
    store = WaitingStore()

    @tool
    async def act() -> str:
        """Acts, and breaks the store."""
        store.error = StoreError("disk full")
        return "acted"

    session = Agent(ScriptedModel(call("act"), "Done."), tools=[act], store=store).session("s")
    with pytest.raises(StoreError, match="disk full"):
        await session.run("Go")
    store.error = None
    outcome = await session.run("Again")
    assert outcome.status == "done"
    assert_valid(outcome.messages)
    assert [message.role for message in outcome.messages] == ["user", "assistant", "tool", "user", "assistant"]
    assert outcome.messages[2].tool_results[0].status is Status.UNKNOWN


async def test_when_several_results_cannot_be_stored_one_error_is_raised_and_nobody_complains(caplog):
    store = WaitingStore()
    barrier = asyncio.Barrier(3)

    @tool
    async def act() -> str:
        """Acts, and breaks the store."""
        await barrier.wait()
        store.error = StoreError("disk full")
        return "acted"

    agent = Agent(ScriptedModel(calls(*[call("act")] * 3)), tools=[act], store=store)
    async with asyncio.timeout(SECONDS):
        with pytest.raises(StoreError, match="disk full"):
            await agent.run("Go")
    await rounds()
    assert "never retrieved" not in caplog.text


# -- a result that is being stored -------------------------------------------------------------------------------------


async def test_a_result_that_is_stored_slowly_is_the_only_one_of_its_call():
    clock, store = FakeClock(), WaitingStore()
    store.holds_back = ToolFinished
    session = Agent(ScriptedModel(call("look"), "Done."), tools=[look], clock=clock, store=store).session("s")
    store.open.clear()
    task = await running(session, store.waiting)
    await session.cancel()
    await clock.advance(CANCEL_GRACE_SECONDS)  # it is not waited for any longer, and its last append goes on
    task.cancel()
    await rounds()
    store.open.set()
    with pytest.raises(asyncio.CancelledError):
        await ended(task)
    events = await log_of(store, "s")
    assert [event.result.status for event in of(events, ToolFinished)] == [Status.OK]
    assert [event.status for event in of(events, RunEnded)] == ["cancelled"]


class CancelledStore(WaitingStore):
    """A store in which the append of a good result is cancelled, however often it is tried."""

    async def append(self, lease: Lease, entries: Sequence[Entry], *, sync: bool) -> None:
        for entry in entries:
            if isinstance(entry.event, ToolFinished) and entry.event.result.status is Status.OK:
                raise asyncio.CancelledError
        await super().append(lease, entries, sync=sync)


@pytest.mark.in_memory("appends are joined")
@pytest.mark.parametrize("is_direct", [False, True])
async def test_a_call_that_has_begun_is_never_reported_as_not_started(is_direct):
    session = Agent(ScriptedModel(call("look"), "Done."), tools=[look], store=CancelledStore()).session("s")
    async with asyncio.timeout(SECONDS):
        if is_direct:
            assert (await session.call("look", {})).status is Status.UNKNOWN
        else:
            with pytest.raises(StoreError, match="cannot store what has happened"):  # nor could it be stored alone
                await session.run("Go")
            assert (await session.run("Go on")).text == "Done."
    finished = of(await log_of(session.store, "s"), ToolFinished)
    assert [event.result.status for event in finished] == [Status.UNKNOWN]


# -- a run that cancels itself -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["now", "after_tools", "after_turn"])
async def test_a_tool_that_cancels_its_own_run_gives_the_caller_the_outcome(mode):
    @tool(effect="read")
    async def stop() -> str:
        """Stops the run, and awaits nothing afterwards."""
        await session.cancel(mode)
        return "stopped"

    session = Agent(ScriptedModel(call("stop"), "Not asked."), tools=[stop]).session()
    outcome = await ended(asyncio.create_task(session.run("Go")))
    assert (outcome.status, outcome.reason, outcome.turns) == ("cancelled", "cancelled", 1)
    assert outcome.messages[-1].tool_results[0].text == "stopped"  # it had finished
    assert (await session.run("Again")).text == "Not asked."


@pytest.mark.parametrize("mode", ["now", "after_tools", "after_turn"])
@pytest.mark.parametrize("depth", [1, 2])
async def test_a_tool_of_a_subagent_that_cancels_the_session_is_the_last_thing_that_happens(mode, depth):
    @tool(effect="read")
    async def stop() -> str:
        """Stops the session, and awaits nothing afterwards."""
        await session.cancel(mode)
        return "stopped"

    agent = Agent(ScriptedModel(call("stop"), "Not asked."), tools=[stop], name="agent0")
    for number in range(1, depth + 1):
        model = ScriptedModel(call(agent.name, task="Go"), "Not asked.", "Again.")
        agent = Agent(model, tools=[agent.as_tool()], name=f"agent{number}")
    session = agent.session()
    outcome = await ended(asyncio.create_task(session.run("Go")))
    assert (outcome.status, outcome.reason, outcome.turns) == ("cancelled", "cancelled", 1)
    events = await log_of(session.store, session.session_id)
    assert len(of(events, ModelRequested)) == depth + 1
    assert [each.status for each in of(events, RunEnded)] == ["cancelled"] * (depth + 1)
    assert of(events, ToolFinished)[0].result.text == "stopped"
    assert (await session.run("Again")).text == "Not asked."


async def test_an_engine_that_cancels_its_own_run_gives_the_caller_the_outcome():
    async def give_up(run: Run) -> Outcome[Any]:
        run.cancel("now")
        return run.outcome("done")

    outcome = await ended(asyncio.create_task(Agent(ScriptedModel(), engine=give_up).session().run("Go")))
    assert outcome.status == "done"
