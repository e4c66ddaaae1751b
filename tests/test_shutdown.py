"""The end of a process in good order: tools get their time, and the next process goes on with the runs."""

import asyncio
import signal
import threading
from collections.abc import Awaitable, Callable
from contextlib import aclosing, suppress
from typing import Any

import pytest

from perdure import Agent, Permissions, Session, ShuttingDown, ToolContext, UsageError, tool
from perdure._runtime.shutdown import SignalHandlers
from perdure.background import Shutdown
from perdure.context import Compaction
from perdure.engines import fold_entries, react
from perdure.events import QuestionAsked, ReplyFinished, RunEnded, RunWaiting, TextDelta, ToolFinished
from perdure.permissions import later
from perdure.stores import MemoryStore, Post, Store
from perdure.testing import Recorder, ScriptedModel, call, calls, pause
from perdure.tools import orchestrator
from tests.doubles import SECONDS, Held, WaitingStore, deaf_tool, kind, log_of, of, rounds, until
from tests.transcript import assert_valid

pytestmark = pytest.mark.resumed

QUICK = 0.02


@pytest.fixture
def store():
    return MemoryStore()


def agent(shutdown, store, *replies, tools=()):
    return shutdown.wrap_agent(Agent(ScriptedModel(*replies), tools=tools, store=store))


async def ended(store) -> RunEnded:
    """How the last run has ended, in the log; and nobody has the session any more."""
    state = fold_entries(await store.read("s"))
    assert_valid(state.messages)
    await store.release(await store.acquire("s"))
    assert state.run_ended_event is not None
    return state.run_ended_event


async def test_a_run_that_waits_for_the_model_ends_at_once(store):
    held = pause()
    async with asyncio.timeout(SECONDS), Shutdown(signals=()) as shutdown:
        model = [TextDelta("Once upon a"), held, ReplyFinished()]
        running = asyncio.ensure_future(agent(shutdown, store, model).session("s").run("Tell me a story."))
        await held.wait_reached()
        shutdown.begin()
        outcome = await running
    assert (outcome.status, outcome.reason, outcome.questions) == ("waiting", "shutdown", ())
    assert outcome.text == "Once upon a"
    again = await Agent(ScriptedModel("Once upon a time."), store=store).session("s").resume()
    assert (again.status, again.text, again.run_id) == ("done", "Once upon a time.", outcome.run_id)


async def test_tools_that_run_come_to_their_ends_and_what_has_not_begun_is_left_to_the_next_process(store):
    held, began = Held(), list[bool]()

    @tool(parallel=False)
    async def more() -> str:
        """What comes after it."""
        began.append(shutdown.requested)
        return "more"

    async with asyncio.timeout(SECONDS), Shutdown(signals=()) as shutdown:
        session = agent(shutdown, store, calls(call("held"), call("more")), tools=[held.tool, more]).session("s")
        running = asyncio.ensure_future(session.run("Work."))
        await held.started.wait()
        shutdown.begin()
        shutdown.begin()
        held.released.set()
        outcome = await running
    assert (outcome.status, outcome.reason, began) == ("waiting", "shutdown", [])
    other = Held()
    again = await Agent(ScriptedModel("Done."), tools=[other.tool, more], store=store).session("s").resume()
    assert (again.status, [each.text for each in again.messages[-2].tool_results]) == ("done", ["released", "more"])
    assert (other.started.is_set(), len(began)) == (False, 1)


async def test_the_session_can_be_gone_on_with(store):
    held = pause()
    async with asyncio.timeout(SECONDS), Shutdown(signals=()) as shutdown:
        running = asyncio.ensure_future(agent(shutdown, store, [held]).session("s").run("Hello"))
        await held.wait_reached()
        shutdown.begin()
        await running
    outcome = await Agent(ScriptedModel("Here I am again."), store=store).session("s").run("Are you there?")
    assert (outcome.status, outcome.text) == ("done", "Here I am again.")


async def test_a_tool_that_takes_too_long_is_cancelled(store):
    held = Held()
    async with asyncio.timeout(SECONDS), Shutdown(signals=(), tool_seconds=QUICK) as shutdown:
        running = asyncio.ensure_future(agent(shutdown, store, call("held"), tools=[held.tool]).session("s").run("Go."))
        await held.started.wait()
        shutdown.begin()
        outcome = await running
    assert (outcome.status, outcome.reason) == ("waiting", "shutdown")
    (left,) = of(await log_of(store, "s"), RunWaiting)
    assert (left.reason, left.asks) == ("shutdown", ())
    assert str(outcome.messages[-1].tool_results[0].status) == "cancelled"
    assert not shutdown.has_abandoned_runs


async def test_a_call_that_may_be_repeated_is_made_again_by_the_next_process_with_the_same_key(store):
    keys: list[str] = []
    started = asyncio.Event()

    @tool(effect="idempotent")
    async def pay(context: ToolContext[None]) -> str:
        """Pay."""
        keys.append(context.idempotency_key)
        started.set()
        await asyncio.sleep(0 if len(keys) > 1 else SECONDS)
        return "paid"

    async with asyncio.timeout(SECONDS), Shutdown(signals=(), tool_seconds=QUICK) as shutdown:
        running = asyncio.ensure_future(agent(shutdown, store, call("pay"), tools=[pay]).session("s").run("Pay."))
        await started.wait()
        shutdown.begin()
        assert (await running).status == "waiting"
    again = await Agent(ScriptedModel("Paid."), tools=[pay], store=store).session("s").resume()
    assert [each.text for each in again.messages[-2].tool_results] == ["paid"]
    assert len(keys) == 2
    assert keys[0] == keys[1]


async def test_a_run_that_nobody_could_resume_ends(store):
    held = pause()
    async with asyncio.timeout(SECONDS), Shutdown(signals=()) as shutdown:
        model = ScriptedModel([TextDelta("Once"), held, ReplyFinished()])
        running = asyncio.ensure_future(shutdown.wrap_agent(Agent(model)).run("Tell me a story."))
        await held.wait_reached()
        shutdown.begin()
        outcome = await running
    assert (outcome.status, outcome.reason, outcome.text) == ("cancelled", "shutdown", "Once")


async def test_a_run_that_nobody_could_resume_ends_after_its_tools(store):
    held = Held()
    async with asyncio.timeout(SECONDS), Shutdown(signals=()) as shutdown:
        model = ScriptedModel(call("held"), "Never said.")
        running = asyncio.ensure_future(shutdown.wrap_agent(Agent(model, tools=[held.tool])).run("Go"))
        await held.started.wait()
        shutdown.begin()
        await rounds()
        assert not running.done()
        held.released.set()
        outcome = await running
    assert (outcome.status, outcome.reason, len(model.requests)) == ("cancelled", "shutdown", 1)
    assert [each.text for each in outcome.messages[-1].tool_results] == ["released"]
    assert held.cancelled == 0


async def test_a_new_prompt_instead_of_a_resume_ends_the_run_that_was_left(store):
    held = pause()
    async with asyncio.timeout(SECONDS), Shutdown(signals=()) as shutdown:
        running = asyncio.ensure_future(agent(shutdown, store, [held]).session("s").run("Hello"))
        await held.wait_reached()
        shutdown.begin()
        await running
    await Agent(ScriptedModel("Aye."), store=store).session("s").run("Something else")
    first, second = [each.event for each in await store.read("s") if isinstance(each.event, RunEnded)]
    assert ((first.status, first.reason), second.status) == (("failed", "interrupted"), "done")


async def test_the_runs_of_subagents_are_left_with_their_parents(store):
    held = pause()
    child = Agent(ScriptedModel([TextDelta("It"), held, ReplyFinished()]), name="scout")
    async with asyncio.timeout(SECONDS), Shutdown(signals=()) as shutdown:
        parent = Agent(ScriptedModel(call("scout", task="Look.")), tools=[child.as_tool()], store=store)
        running = asyncio.ensure_future(shutdown.wrap_agent(parent).session("s").run("Go"))
        await held.wait_reached()
        shutdown.begin()
        assert ((await running).status, (await running).reason) == ("waiting", "shutdown")
    child = Agent(ScriptedModel("It is there."), name="scout")
    again = await Agent(ScriptedModel("Found."), tools=[child.as_tool()], store=store).session("s").resume()
    assert (again.text, again.messages[-2].tool_results[0].text) == ("Found.", "It is there.")


async def test_background_agents_of_a_wrapped_agent_ask_no_model_any_more(store):
    held = pause()
    scout = Agent(ScriptedModel([held], "Never asked."), name="scout")
    given = call("delegate", agent="scout", task="Look.", background=True)
    async with asyncio.timeout(SECONDS):
        async with Shutdown(signals=()) as shutdown:
            chief = shutdown.wrap_agent(orchestrator(Agent(ScriptedModel(given, "Given."), store=store), [scout]))
            await chief.session("s").run("Go")
            await held.wait_reached()
            shutdown.begin()
        (left,) = [row for row in await store.list_interrupted() if row.session_id != "s"]
        assert left.progress == "waiting"
        scout = Agent(ScriptedModel("It is x."), name="scout")
        worker = orchestrator(Agent(ScriptedModel("Told."), store=store), [scout])
        async with aclosing(worker.attend_all(seconds=QUICK)) as outcomes:
            assert (await anext(outcomes)).text == "Told."


def team(store: Store, *replies: Any, scout: Any) -> Agent[Any]:
    return orchestrator(Agent(ScriptedModel(*replies), store=store), [Agent(ScriptedModel(*scout), name="scout")])


GIVEN = call("delegate", agent="scout", task="Look.", background=True)


async def test_background_agents_of_a_run_with_an_output_type_stop_too(store):
    held = pause()
    async with asyncio.timeout(SECONDS):
        async with Shutdown(signals=()) as shutdown:
            chief = shutdown.wrap_agent(team(store, GIVEN, call("final_answer", value=1), scout=[[held], "Never."]))
            await chief.session("s").run("Go", output=int)
            await held.wait_reached()
            shutdown.begin()
        assert [row.progress for row in await store.list_interrupted()] == ["waiting"]


async def test_background_agents_that_a_worker_has_taken_up_stop_too(store):
    """No run of the session that gave the task is in progress."""
    async with asyncio.timeout(SECONDS):
        held = pause()
        async with team(store, GIVEN, "Given.", scout=[[held]]) as chief:
            await chief.session("s").run("Go")
            await held.wait_reached()
        held = pause()
        async with Shutdown(signals=()) as shutdown:
            chief = shutdown.wrap_agent(team(store, scout=[[held], "Never asked."]))
            working = asyncio.ensure_future(collect(chief.attend_all(seconds=QUICK)))
            await held.wait_reached()
            shutdown.begin()
        assert [row.progress for row in await store.list_interrupted()] == ["waiting"]
        assert await working == []


async def test_background_tasks_that_wait_for_their_turn_are_left_to_the_next_process(store):
    held = pause()
    scout = Agent(ScriptedModel([held], "Never asked."), name="scout")
    both = calls(*[call("delegate", agent="scout", task=each, background=True) for each in ("One.", "Two.")])
    async with asyncio.timeout(SECONDS):
        async with Shutdown(signals=()) as shutdown:
            team = orchestrator(Agent(ScriptedModel(both, "Given."), store=store), [scout], most_at_once=1)
            session = shutdown.wrap_agent(team).session("s")
            await session.run("Go")
            await held.wait_reached()
            shutdown.begin()
        await until_done(session)
        assert await store.posts("s") == []
        scout = Agent(ScriptedModel("It is x.", repeat_last=True), name="scout")
        team = orchestrator(Agent(ScriptedModel("Told.", repeat_last=True), store=store), [scout])
        told = ""
        async with aclosing(team.session("s").attend(seconds=QUICK)) as outcomes:
            while told.count("Response: It is x.") < 2:
                told += (await anext(outcomes)).new_messages[0].text


async def until_done(session: Session[Any]) -> None:
    """Wait until no background agent works for the session any more."""
    await until(lambda: not session._driver.list_background_tasks())


async def test_leaving_the_block_waits_until_the_runs_have_stored_how_far_they_came(store):
    held = Held()
    async with asyncio.timeout(SECONDS):
        async with Shutdown(signals=()) as shutdown:
            running = asyncio.ensure_future(
                agent(shutdown, store, call("held"), tools=[held.tool]).session("s").run("Go.")
            )
            await held.started.wait()
            shutdown.begin()
            asyncio.get_running_loop().call_later(QUICK, held.released.set)
        events = [each.event for each in await store.read("s")]
        assert isinstance(events[-1], RunWaiting)
        assert [each.result.text for each in events if isinstance(each, ToolFinished)] == ["released"]
        await running


async def test_a_worker_takes_up_nothing_any_more_and_ends(store):
    @tool(permission=True)
    async def pay() -> str:
        """Pay."""
        return "paid"

    def paying(*replies):
        return Agent(ScriptedModel(*replies), tools=[pay], store=store, permission=Permissions(handler=later))

    outcome = await paying(call("pay")).session("s").run("Pay")
    async with asyncio.timeout(SECONDS), Shutdown(signals=()) as shutdown:
        idle = asyncio.ensure_future(collect(shutdown.wrap_agent(paying()).attend_all(seconds=SECONDS)))
        await until(lambda: shutdown._told._waiters)
        shutdown.begin()
        await paying().session("s").answer(outcome.questions[0].ask_id, answer=True)
        assert await idle == []
        assert await collect(shutdown.wrap_agent(paying()).attend_all(seconds=QUICK)) == []
    async with asyncio.timeout(SECONDS), aclosing(paying("Paid.").attend_all(seconds=QUICK)) as outcomes:
        assert (await anext(outcomes)).text == "Paid."


async def watch_to_end(session: Session[Any]) -> list[str]:
    return [kind(entry.event) async for entry in session.watch() if entry.seq]


async def test_a_watch_ends_when_the_run_of_this_process_has_stored_how_far_it_came(store):
    held = Held()
    async with asyncio.timeout(SECONDS), Shutdown(signals=()) as shutdown:
        session = agent(shutdown, store, call("held"), tools=[held.tool]).session("s")
        watching = asyncio.ensure_future(watch_to_end(session))
        running = asyncio.ensure_future(session.run("Go."))
        await held.started.wait()
        shutdown.begin()
        asyncio.get_running_loop().call_later(QUICK, held.released.set)
        assert (await watching)[-2:] == ["tool_finished", "run_waiting"]
        await running
        assert (await watch_to_end(session))[-1] == "run_waiting"  # and one that begins later


async def test_a_watch_of_a_session_without_a_run_ends_at_once(store):
    async with asyncio.timeout(SECONDS / 10), Shutdown(signals=()) as shutdown:
        watching = asyncio.ensure_future(watch_to_end(agent(shutdown, store).session("s")))
        await until(lambda: shutdown._told._waiters)
        shutdown.begin()
        assert await watching == []


async def collect(outcomes) -> list[str]:
    return [each.status async for each in outcomes]


async def test_handlers_that_were_there_before_are_called_as_well():
    """Such as those of a web server, which has to end too."""
    told: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, _: told.append(number))
    try:
        async with asyncio.timeout(SECONDS), Shutdown() as shutdown:
            signal.raise_signal(signal.SIGTERM)
            await shutdown.wait()
        assert told == [signal.SIGTERM]
    finally:
        signal.signal(signal.SIGTERM, before)


@pytest.mark.parametrize("abortable", [True, False])
async def test_a_tool_that_ignores_its_cancel_is_left_behind_and_named_in_a_warning(store, abortable, caplog):
    deaf, started, released = deaf_tool(abortable=abortable)
    async with asyncio.timeout(SECONDS), Shutdown(signals=(), tool_seconds=QUICK) as shutdown:
        session = agent(shutdown, store, call("deaf"), tools=[deaf]).session("s")
        running = asyncio.ensure_future(session.run("Go."))
        await started.wait()
        shutdown.begin()
        outcome = await running
    released.set()
    assert (outcome.status, outcome.reason) == ("waiting", "shutdown")
    (result,) = outcome.messages[-1].tool_results
    assert str(result.status) == "unknown"
    assert result.text == (
        "The process had to end while this ran, and could not wait for its result. It may or may not have taken "
        "effect: check before repeating."
    )
    assert shutdown.has_abandoned_runs
    (warned,) = [each for each in caplog.records if each.levelname == "WARNING"]
    assert warned.getMessage() == (
        f"run {outcome.run_id} of session s was abandoned: 'deaf' did not end in time, and may still be running"
    )
    again = await Agent(ScriptedModel("I do not know."), tools=[deaf], store=store).session("s").resume()
    assert (again.status, again.text) == ("done", "I do not know.")


@pytest.mark.parametrize("effect", ["read", "idempotent"])
async def test_a_call_that_may_be_repeated_is_made_again_even_if_it_ignored_its_cancel(store, effect):
    deaf, started, released = deaf_tool(effect=effect)
    async with asyncio.timeout(SECONDS), Shutdown(signals=(), tool_seconds=QUICK) as shutdown:
        running = asyncio.ensure_future(agent(shutdown, store, call("deaf"), tools=[deaf]).session("s").run("Go."))
        await started.wait()
        shutdown.begin()
        assert (await running).status == "waiting"
    released.set()
    again = await Agent(ScriptedModel("Done."), tools=[deaf], store=store).session("s").resume()
    assert [each.text for each in again.messages[-2].tool_results] == ["late"]


async def test_an_engine_that_ignores_its_cancel_is_named_in_the_warning(store, caplog):
    started, released = asyncio.Event(), asyncio.Event()

    async def deaf_engine(run):
        started.set()
        while not released.is_set():
            with suppress(asyncio.CancelledError):
                await released.wait()
        return await react(run)

    async with asyncio.timeout(SECONDS), Shutdown(signals=(), tool_seconds=QUICK) as shutdown:
        deaf = shutdown.wrap_agent(Agent(ScriptedModel("Never."), engine=deaf_engine, store=store))
        running = asyncio.ensure_future(deaf.session("s").run("Go."))
        await started.wait()
        shutdown.begin()
        assert (await running).status == "waiting"
    released.set()
    assert "was abandoned: its engine did not end in time" in caplog.text


@pytest.mark.parametrize("count", [1, 2])
def test_a_tool_that_outlives_its_process_leaves_no_error_behind(count, caplog):
    """The end of `asyncio.run` cancels its task, which finds that it can store nothing more."""
    statuses: list[str] = []

    async def main() -> None:
        started = asyncio.Event()

        @tool(abortable=False)
        async def pay() -> str:
            """Pay."""
            started.set()
            await asyncio.Event().wait()
            return "never"

        async with asyncio.timeout(SECONDS), Shutdown(signals=(), tool_seconds=QUICK) as shutdown:
            session = agent(shutdown, MemoryStore(), calls(*[call("pay")] * count), tools=[pay]).session("s")
            running = asyncio.ensure_future(session.run("Go."))
            await started.wait()
            shutdown.begin()
            statuses.extend(str(each.result.status) for each in (await running).tool_calls if each.result)

    asyncio.run(main())
    assert statuses == ["unknown"] * count
    assert [each.getMessage() for each in caplog.records if each.levelname == "ERROR"] == []


# -- what comes too late -----------------------------------------------------------------------------------------------

COMMANDS: dict[str, Callable[[Session[Any]], Awaitable[Any]]] = {
    "run": lambda session: session.run("Too late.", input_id="2"),
    "run again": lambda session: session.run("Tell me a story.", input_id="1"),
    "stream": lambda session: anext(aiter(session.stream("Too late."))),
    "resume": lambda session: session.resume(),
    "wake": lambda session: session.wake(),
    "call": lambda session: session.call("note", {}),
    "compact": lambda session: session.compact(),
}


def storyteller(store: Store, *replies: Any) -> Agent[Any]:
    @tool
    async def note() -> str:
        """Note something."""
        return "noted"

    return Agent(ScriptedModel(*replies), tools=[note], store=store, compaction=Compaction())


@pytest.mark.parametrize("queued", [True, False])
@pytest.mark.parametrize("command", COMMANDS)
async def test_no_command_begins_once_the_process_was_asked_to_end(store, command, queued):
    """Those that wait for their turn do not close the run that is left to the next process."""
    held = pause()
    async with asyncio.timeout(SECONDS), Shutdown(signals=()) as shutdown:
        covered = shutdown.wrap_agent(storyteller(store, [TextDelta("Once"), held, ReplyFinished()], "Never said."))
        session = covered.session("s")
        running = asyncio.ensure_future(session.run("Tell me a story.", input_id="1"))
        await held.wait_reached()
        late: Awaitable[Any] | None = None
        if queued and command != "wake":  # which leaves a session alone that has a run
            late = asyncio.ensure_future(COMMANDS[command](covered.session("s")))
            await rounds()
        shutdown.begin()
        assert ((await running).status, (await running).reason) == ("waiting", "shutdown")
        with pytest.raises((ShuttingDown, UsageError)) as refused:
            await (late or COMMANDS[command](covered.session("s")))
        assert isinstance(refused.value, ShuttingDown) or command == "call"  # which is refused while a run waits
    assert isinstance((await store.read("s"))[-1].event, RunWaiting)
    again = await storyteller(store, "Once upon a time.").session("s").run("Tell me a story.", input_id="1")
    assert (again.status, again.text, again.run_id) == ("done", "Once upon a time.", (await running).run_id)


async def test_a_prompt_for_another_session_is_refused_and_nothing_of_it_is_stored(store):
    async with Shutdown(signals=()) as shutdown:
        late = agent(shutdown, store, "This is never said.")
        shutdown.begin()
        with pytest.raises(ShuttingDown, match="begins no more runs of session 's': nothing was stored"):
            await late.session("s").run("Hello", input_id="1")
        with pytest.raises(ShuttingDown):
            await late.run("Hello")
    assert await store.list() == []
    outcome = await Agent(ScriptedModel("Hello."), store=store).session("s").run("Hello", input_id="1")
    assert outcome.text == "Hello."


@pytest.mark.parametrize("keeps", [True, False])
async def test_a_prompt_that_was_stored_before_the_end_was_asked_for_is_left_to_the_next_process(keeps):
    slow = WaitingStore()
    slow.open.clear()
    async with asyncio.timeout(SECONDS), Shutdown(signals=()) as shutdown:
        session = Session(agent(shutdown, slow, "This is never said."), "s", slow, may_wait=keeps)
        running = asyncio.ensure_future(session.run("Hello"))
        await slow.waiting.wait()
        shutdown.begin()
        slow.open.set()
        outcome = await running
    assert (outcome.status, outcome.reason) == ("waiting" if keeps else "cancelled", "shutdown")
    if keeps:
        assert (await Agent(ScriptedModel("Hello."), store=slow).session("s").resume()).text == "Hello."


class SlowMailbox(MemoryStore):
    """A store whose posts are late, so that a run is long in preparation."""

    def __init__(self) -> None:
        super().__init__()
        self.reached, self.released = asyncio.Event(), asyncio.Event()

    async def posts(self, session_id: str) -> list[Post]:
        self.reached.set()
        await self.released.wait()
        return await super().posts(session_id)


async def test_a_prompt_that_is_being_prepared_when_the_end_is_asked_for_is_not_stored():
    slow = SlowMailbox()
    async with asyncio.timeout(SECONDS), Shutdown(signals=()) as shutdown:
        running = asyncio.ensure_future(agent(shutdown, slow, "This is never said.").session("s").run("Hello"))
        await slow.reached.wait()
        shutdown.begin()
        slow.released.set()
        with pytest.raises(ShuttingDown):
            await running
    assert await slow.read("s") == []
    await slow.release(await slow.acquire("s"))  # nobody has it


async def test_a_run_with_an_engine_of_its_own_stops_too(store):
    held = pause()
    async with asyncio.timeout(SECONDS), Shutdown(signals=()) as shutdown:
        session = agent(shutdown, store, [TextDelta("Once"), held]).session("s")
        running = asyncio.ensure_future(session.run("Hello", engine=react))
        await held.wait_reached()
        shutdown.begin()
        assert ((await running).status, (await running).reason) == ("waiting", "shutdown")


async def test_attending_a_session_ends_with_the_process(store):
    held = pause()
    async with asyncio.timeout(SECONDS), Shutdown(signals=()) as shutdown:
        covered = agent(shutdown, store, [held])
        idle = asyncio.ensure_future(collect(covered.session("idle").attend(seconds=SECONDS)))
        await covered.session("s").follow_up("Go on.")
        working = asyncio.ensure_future(collect(covered.session("s").attend(seconds=SECONDS)))
        await held.wait_reached()
        shutdown.begin()
        assert (await idle, await working) == ([], ["waiting"])
        assert await collect(covered.session("s").attend()) == []
    assert len([each for each in await store.read("s") if isinstance(each.event, RunWaiting)]) == 1


async def test_attending_sessions_ends_also_if_the_end_is_asked_for_before_their_runs_begin():
    slow = SlowMailbox()
    async with asyncio.timeout(SECONDS), Shutdown(signals=()) as shutdown:
        covered = agent(shutdown, slow, "This is never said.")
        await covered.session("s").follow_up("Go on.")
        one = asyncio.ensure_future(collect(covered.session("s").attend(seconds=SECONDS)))
        all_of_them = asyncio.ensure_future(collect(covered.attend_all(seconds=SECONDS)))
        await slow.reached.wait()
        await rounds()
        shutdown.begin()
        slow.released.set()
        assert (await one, await all_of_them) == ([], [])
    assert await slow.read("s") == []


@pytest.mark.parametrize("of_all", [False, True], ids=["attend", "attend_all"])
async def test_a_cancel_ends_attending_at_whatever_moment_it_comes(store, of_all):
    """Also while a run ends, and while the timers of the wait between two runs do: the cancel is never swallowed."""
    async with asyncio.timeout(SECONDS), Shutdown(signals=()) as shutdown:
        for steps in range(150):
            covered = agent(shutdown, store, *["Done."] * 3)
            await covered.session(f"s{steps}").follow_up("Go on.")
            attending = covered.attend_all if of_all else covered.session(f"s{steps}").attend
            task = asyncio.ensure_future(collect(attending(seconds=1e-6)))
            await rounds(steps)
            task.cancel()
            await until(task.done)
            assert task.cancelled(), steps


async def test_a_run_that_is_done_stays_done(store):
    async with Shutdown(signals=()) as shutdown:
        outcome = await agent(shutdown, store, "Hello.").session("s").run("Hello")
        shutdown.begin()
    assert (outcome.status, (await ended(store)).status) == ("done", "done")


async def test_several_sessions_end_together(store):
    held = [pause() for _ in range(5)]
    async with asyncio.timeout(SECONDS), Shutdown(signals=()) as shutdown:
        covered = agent(shutdown, store, *[[each] for each in held])
        running = [asyncio.ensure_future(covered.session(f"s{place}").run("Hello")) for place in range(5)]
        for each in held:
            await each.wait_reached()
        shutdown.begin()
        outcomes = await asyncio.gather(*running)
    assert {outcome.reason for outcome in outcomes} == {"shutdown"}


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
async def test_a_signal_begins_it_and_the_handlers_are_put_back(number):
    before = signal.getsignal(number)
    async with asyncio.timeout(SECONDS), Shutdown() as shutdown:
        assert not shutdown.requested
        signal.raise_signal(number)
        await shutdown.wait()
        assert shutdown.requested
    assert signal.getsignal(number) is before


async def test_the_second_signal_ends_the_process(monkeypatch):
    codes: list[int] = []
    monkeypatch.setattr("os._exit", codes.append)
    async with Shutdown():
        signal.raise_signal(signal.SIGTERM)
        assert codes == []
        signal.raise_signal(signal.SIGHUP)
    assert codes == [129]


async def test_a_signal_that_is_ignored_stays_ignored():
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        async with Shutdown() as shutdown:
            signal.raise_signal(signal.SIGHUP)
            await asyncio.sleep(0)
            assert not shutdown.requested
    finally:
        signal.signal(signal.SIGHUP, before)


async def test_what_must_not_wait_for_the_event_loop_is_done_at_once():
    told: list[int] = []
    with SignalHandlers([signal.SIGTERM], told.append, at_once=lambda number: told.append(-number)):
        signal.raise_signal(signal.SIGTERM)
        assert told == [-signal.SIGTERM]
        await asyncio.sleep(0)
    assert told == [-signal.SIGTERM, signal.SIGTERM]


def test_signals_on_another_thread_are_refused():
    found: list[str] = []

    async def catch() -> None:
        with pytest.raises(UsageError, match="main thread alone") as refused:
            await Shutdown().__aenter__()
        found.append(str(refused.value))

    thread = threading.Thread(target=lambda: asyncio.run(catch()))
    thread.start()
    thread.join(SECONDS)
    assert len(found) == 1


async def test_a_tool_may_wait_for_the_end_of_the_process(store):
    """A worker's own tool can see that it has to hurry."""
    async with asyncio.timeout(SECONDS), Shutdown(signals=()) as shutdown:

        @tool
        async def serve(context: ToolContext[None]) -> str:
            """Serve until the end."""
            asyncio.get_running_loop().call_soon(shutdown.begin)
            await shutdown.wait()
            return "served to the end"

        outcome = await agent(shutdown, store, call("serve"), tools=[serve]).session("s").run("Serve.")
    assert outcome.messages[-1].tool_results[0].text == "served to the end"
    assert outcome.reason == "shutdown"


async def test_a_question_that_is_open_stays_open(store):
    recorder = Recorder()

    @tool(permission=True)
    async def pay() -> str:
        """Pay."""
        return "paid"

    async with asyncio.timeout(SECONDS), Shutdown(signals=()) as shutdown:
        asking = Agent(
            ScriptedModel(call("pay")),
            tools=[pay],
            store=store,
            permission=Permissions(handler=later),
            answer_timeout_seconds=60,
            watchers=[recorder],
        )
        session = shutdown.wrap_agent(asking).session("s")
        running = asyncio.ensure_future(session.run("Pay"))
        await until(lambda: recorder.of(QuestionAsked))
        shutdown.begin()
        outcome = await running
    assert outcome.status == "waiting"
    assert await session.questions() == list(outcome.questions)
