"""A session is one thing in a process, whichever objects it is reached by: its runs queue, its watchers see all."""

import asyncio
import gc
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from perdure import Agent, SessionBusy, tool
from perdure._runtime.session import channel
from perdure.events import Entry, Event, ReplyFinished, RunEnded, RunStarted, SessionConfigured, TextDelta
from perdure.stores import MemoryStore, PostgresStore, Store, listened, namespaced, open_store
from perdure.testing import Recorder, ScriptedModel, call, pause
from tests.doubles import SECONDS, Held, WaitingStore, elsewhere, of, rounds, until

Open = Callable[[], Store]


@pytest.fixture(params=["memory", "file", "sqlite", pytest.param("postgres", marks=pytest.mark.needs("postgres"))])
async def open_again(request, tmp_path) -> AsyncIterator[Open]:
    """Opens the same store, as an object of its own wherever a process can have several."""
    made: list[Store] = []
    memory = MemoryStore()
    address = request.getfixturevalue("postgres").address() if request.param == "postgres" else ""
    tenant = request.getfixturevalue("tenant")

    def open_again() -> Store:
        if request.param == "memory":
            return memory
        made.append(
            PostgresStore(address, tenant=tenant) if address else open_store(f"{request.param}:{tmp_path}/kept")
        )
        return made[-1]

    yield open_again
    for store in made:
        await store.aclose()


def counting() -> Agent[None]:
    """An agent that answers with the number of messages that it sees."""
    return Agent(ScriptedModel(lambda request: f"{len(request.messages)} seen.", repeat_last=True))


# -- runs queue --------------------------------------------------------------------------------------------------------


async def test_runs_of_a_session_wait_for_their_turn_whoever_asks_for_it(open_again):
    agents = [counting().replace(store=open_again()) for _ in range(2)]
    sessions = [agent.session("s") for agent in (*agents, *agents)]
    async with asyncio.timeout(SECONDS):
        outcomes = await asyncio.gather(*[each.run(f"{number}?") for number, each in enumerate(sessions)])
    assert [outcome.text for outcome in outcomes] == ["1 seen.", "3 seen.", "5 seen.", "7 seen."]
    assert [each.text for each in outcomes[-1].messages if each.role == "user"] == ["0?", "1?", "2?", "3?"]


def another_session_object(agent: Agent[Any]) -> Any:
    return agent.session("acme/s")


def a_changed_copy_of_the_agent(agent: Agent[Any]) -> Any:
    return agent.replace(instructions="Be brief.").session("acme/s")


def another_agent_over_the_store(agent: Agent[Any]) -> Any:
    return Agent(agent.model, store=agent.store).session("acme/s")


def a_store_given_to_the_session(agent: Agent[Any]) -> Any:
    return Agent(agent.model).session("acme/s", store=agent.store)


def a_part_of_the_store(agent: Agent[Any]) -> Any:
    return agent.replace(store=namespaced(agent.store, "acme")).session("s")


def a_store_that_is_listened_to(agent: Agent[Any]) -> Any:
    return agent.replace(store=listened(agent.store, lambda *_: None)).session("acme/s")


def wrappers_of_wrappers(agent: Agent[Any]) -> Any:
    store = listened(namespaced(listened(agent.store, lambda *_: None), "acme"), lambda *_: None)
    return agent.replace(store=store).session("s")


WAYS = [
    another_session_object,
    a_changed_copy_of_the_agent,
    another_agent_over_the_store,
    a_store_given_to_the_session,
    a_part_of_the_store,
    a_store_that_is_listened_to,
    wrappers_of_wrappers,
]


@pytest.mark.parametrize("reach", WAYS)
async def test_a_session_that_is_reached_in_another_way_is_the_same_one(reach):
    held, recorder = pause(), Recorder()
    model = ScriptedModel([TextDelta("O"), held, TextDelta("ne."), ReplyFinished()], "Two.")
    agent = Agent(model, store=MemoryStore())
    other = reach(agent)
    async with asyncio.timeout(SECONDS):
        first = asyncio.ensure_future(agent.session("acme/s").run("a"))
        await held.wait_reached()
        subscription = other.subscribe()
        watching = asyncio.ensure_future(watch_until(other, "Two.", recorder))
        second = asyncio.ensure_future(other.run("b"))
        await rounds()
        assert len(model.requests) == 1
        assert [each.text for each in (await other.read_state()).messages] == ["a"]
        held.release()
        await first
        outcome = await second
        await watching
    assert [message.text for message in outcome.messages] == ["a", "One.", "b", "Two."]
    seen = [subscription.get_nowait().event for _ in range(len(subscription))]
    assert [each.text for each in of(seen, TextDelta)] == ["ne.", "Two."]
    assert [each.text for each in recorder.of(TextDelta)] == ["ne.", "Two."]
    assert len(of(seen, RunEnded)) == 2
    numbers = [entry.seq for entry in recorder.entries if entry.seq]
    assert numbers == [*range(1, numbers[-1] + 1)]


async def watch_until(session: Any, text: str, recorder: Recorder) -> None:
    async for entry in session.watch():
        recorder(entry)
        if isinstance(entry.event, RunEnded) and any(each.text == text for each in recorder.of(TextDelta)):
            return


async def test_sessions_of_other_stores_and_names_do_not_wait_for_each_other(tmp_path):
    held = Held()
    agent = Agent(ScriptedModel(call("held"), "Done."), tools=[held.tool], store=f"sqlite:{tmp_path}/a.db")
    others = [
        counting().replace(store=f"sqlite:{tmp_path}/b.db").session("s"),
        counting().replace(store=f"file:{tmp_path}/a.db.d").session("s"),
        counting().replace(store=agent.store).session("t"),
        counting().replace(store=namespaced(agent.store, "acme")).session("s"),
    ]
    async with asyncio.timeout(SECONDS):
        going = asyncio.ensure_future(agent.session("s").run("a"))
        await held.started.wait()
        assert [(await each.run("b")).text for each in others] == ["1 seen."] * 4
        held.released.set()
        await going
    for store in (agent.store, others[0].store, others[1].store):
        await store.aclose()


async def test_a_run_of_another_object_that_waits_for_its_turn_can_be_cancelled():
    held = pause()
    model = ScriptedModel([held, TextDelta("One."), ReplyFinished()], "Three.")
    agent = Agent(model)
    async with asyncio.timeout(SECONDS):
        first = asyncio.ensure_future(agent.session("s").run("a"))
        await held.wait_reached()
        second, third = (asyncio.ensure_future(agent.session("s").run(prompt)) for prompt in "bc")
        await rounds()
        second.cancel()
        await asyncio.wait((second,))
        held.release()
        await first
        outcome = await third
    assert second.cancelled()
    assert [message.text for message in outcome.messages] == ["a", "One.", "c", "Three."]


async def test_each_stream_yields_its_own_run_when_two_objects_stream_at_once():
    agent = Agent(ScriptedModel("One.", "Two."))
    streams = [agent.session("s").stream(prompt) for prompt in "ab"]

    async def read(stream: Any) -> list[Event]:
        return [event async for event in stream]

    async with asyncio.timeout(SECONDS):
        seen = await asyncio.gather(*map(read, streams))
    assert [[each.text for each in of(events, TextDelta)] for events in seen] == [["One."], ["Two."]]
    assert [type(events[-1]) for events in seen] == [RunEnded, RunEnded]


async def test_another_object_cancels_the_run_at_once_without_a_post():
    held, store = Held(), MemoryStore()
    agent = Agent(ScriptedModel(call("held")), tools=[held.tool], store=store)
    async with asyncio.timeout(SECONDS):
        going = asyncio.ensure_future(agent.session("s").run("a"))
        await held.started.wait()
        assert await agent.session("s").cancel()
        assert await store.posts("s") == []
        assert (await going).status == "cancelled"


async def test_a_run_that_is_still_being_opened_can_be_cancelled_by_another_object():
    store = WaitingStore()
    store.open.clear()
    agent = Agent(ScriptedModel("Never said."), store=store)
    async with asyncio.timeout(SECONDS):
        going = asyncio.ensure_future(agent.session("s").run("a"))
        await store.waiting.wait()
        assert await agent.session("s").cancel()
        store.open.set()
        assert (await going).status == "cancelled"


async def test_what_is_posted_through_a_part_of_the_store_reaches_the_run_at_once():
    held, store = Held(), MemoryStore()
    agent = Agent(ScriptedModel(call("held"), "Left it is."), tools=[held.tool], store=store)
    session = agent.session("acme/s")
    async with asyncio.timeout(SECONDS):
        going = asyncio.ensure_future(session.run("Go"))
        await held.started.wait()
        await agent.session("s", store=namespaced(store, "acme")).steer("Left!")
        run = session._driver.run
        assert run is not None
        assert run.mailbox.has_messages_due
        held.released.set()
        assert (await going).text == "Left it is."


async def test_a_session_that_another_object_runs_needs_no_waking():
    held, store = Held(), MemoryStore()
    agent = Agent(ScriptedModel(call("held"), "Done.", "And then?"), tools=[held.tool], store=store)
    async with asyncio.timeout(SECONDS):
        going = asyncio.ensure_future(agent.session("s").run("Go"))
        await held.started.wait()
        await agent.session("s").follow_up("And then?")
        assert await agent.session("s").wake() is None
        held.released.set()
        assert (await going).text == "And then?"


async def test_a_run_waits_for_a_change_of_the_session_that_another_object_is_making():
    store = WaitingStore()
    agent = counting().replace(store=store)
    await agent.session("s").run("a")
    store.holds_back = SessionConfigured
    store.open.clear()
    async with asyncio.timeout(SECONDS):
        renaming = asyncio.ensure_future(agent.session("s").rename("One"))
        await store.waiting.wait()
        going = asyncio.ensure_future(agent.session("s").run("b"))
        again = asyncio.ensure_future(agent.session("s").rename("Two"))
        await rounds()
        store.open.set()
        await renaming
        assert (await going).text == "3 seen."
        await again
    assert len(of([entry.event for entry in await store.read("s")], SessionConfigured)) == 2


async def test_nothing_is_changed_while_another_object_runs_the_session():
    held = Held()
    agent = Agent(ScriptedModel(call("held"), "Done."), tools=[held.tool])
    async with asyncio.timeout(SECONDS):
        going = asyncio.ensure_future(agent.session("s").run("Go"))
        await held.started.wait()
        with pytest.raises(SessionBusy):
            await agent.session("s").rename("Soon")
        held.released.set()
        await going


async def test_another_event_loop_gets_a_clear_error_and_waits_for_nothing(tmp_path):
    held = Held()
    agent = Agent(ScriptedModel(call("held"), "Done."), tools=[held.tool], store=f"sqlite:{tmp_path}/s.db")

    async def run_there() -> None:
        async with Agent(ScriptedModel("There."), store=f"sqlite:{tmp_path}/s.db") as other:
            await other.session("s").run("b")

    async with asyncio.timeout(SECONDS):
        going = asyncio.ensure_future(agent.session("s").run("a"))
        await held.started.wait()
        with pytest.raises(SessionBusy, match="'s' is being driven by process"):
            await elsewhere(run_there)
        held.released.set()
        await going
    await elsewhere(run_there)
    await agent.store.aclose()


# -- what would wait for ever ------------------------------------------------------------------------------------------


async def test_a_tool_cannot_run_its_own_session_through_another_store_object(tmp_path):
    address = f"sqlite:{tmp_path}/s.db"

    @tool
    async def recurse() -> str:
        """Runs its own session."""
        async with Agent(ScriptedModel("Never said."), store=address) as other:
            return (await other.session("s").run("again")).text

    one = Agent(ScriptedModel(call("recurse"), "Done."), tools=[recurse], store=address)
    async with asyncio.timeout(SECONDS), one:
        outcome = await one.session("s").run("Go")
    assert "cannot run its own session" in outcome.new_messages[2].tool_results[0].text


async def test_two_sessions_whose_tools_run_each_other_get_an_error_and_no_deadlock():
    ready = asyncio.Barrier(2)
    agents: dict[str, Agent[Any]] = {}
    store = MemoryStore()

    @tool
    async def ask(other: str) -> str:
        """Ask another session."""
        await ready.wait()
        return (await agents[other].session(other).run("Well?")).text

    for name, other in (("a", "b"), ("b", "a")):
        model = ScriptedModel(call("ask", other=other), f"{name} is done.", "Well.")
        agents[name] = Agent(model, tools=[ask], store=store)
    async with asyncio.timeout(SECONDS):
        outcomes = await asyncio.gather(*[agents[name].session(name).run("Go") for name in "ab"])
    results = [each.new_messages[2].tool_results[0].text for each in outcomes]
    assert [each.status for each in outcomes] == ["done", "done"]
    assert len([each for each in results if "both would wait for ever" in each]) == 1
    assert len([each for each in results if each == "Well."]) == 1
    assert channel._awaited_places == {}


async def test_three_sessions_in_a_ring_get_an_error_and_no_deadlock():
    ready, store = asyncio.Barrier(3), MemoryStore()
    agents: dict[str, Agent[Any]] = {}

    @tool
    async def ask(other: str) -> str:
        """Ask another session."""
        await ready.wait()
        return (await agents[other].session(other).run("Well?")).text

    for name, other in (("a", "b"), ("b", "c"), ("c", "a")):
        model = ScriptedModel(call("ask", other=other), f"{name} is done.", "Well.")
        agents[name] = Agent(model, tools=[ask], store=store)
    async with asyncio.timeout(SECONDS):
        outcomes = await asyncio.gather(*[agents[name].session(name).run("Go") for name in "abc"])
    results = [each.new_messages[2].tool_results[0].text for each in outcomes]
    assert len([each for each in results if "both would wait for ever" in each]) == 1


async def test_a_tool_may_wait_for_a_session_that_is_busy_with_something_else():
    held, store = Held(), MemoryStore()
    busy = Agent(ScriptedModel(call("held"), "Done.", "Well."), tools=[held.tool], store=store)

    @tool
    async def ask() -> str:
        """Ask another session."""
        return (await busy.session("b").run("Well?")).text

    async with asyncio.timeout(SECONDS):
        going = asyncio.ensure_future(busy.session("b").run("Go"))
        await held.started.wait()
        asker = Agent(ScriptedModel(call("ask"), "Asked."), tools=[ask], store=store)
        asking = asyncio.ensure_future(asker.session("a").run("Go"))
        await until(lambda: channel._awaited_places)
        held.released.set()
        await going
        outcome = await asking
    assert outcome.new_messages[2].tool_results[0].text == "Well."
    assert channel._awaited_places == {}


# -- watchers and memory -----------------------------------------------------------------------------------------------


async def test_closing_one_object_leaves_the_watchers_of_others_alone():
    agent = Agent(ScriptedModel("One.", "Two."))
    watcher, runner = agent.session("s"), agent.session("s")
    subscription, own = watcher.subscribe(), runner.subscribe()
    await runner.run("a")
    await runner.aclose()
    await agent.session("s").run("b")
    assert len(of([own.get_nowait().event for _ in range(len(own))], RunStarted)) == 1
    assert len(of([subscription.get_nowait().event for _ in range(len(subscription))], RunStarted)) == 2
    await watcher.aclose()
    async with asyncio.timeout(SECONDS):
        assert [each async for each in subscription] == []


@pytest.mark.parametrize("is_last", [True, False])
async def test_a_close_waits_for_watchers_to_handle_what_they_were_told_and_tells_them_no_more(is_last, monkeypatch):
    monkeypatch.setattr(channel, "DRAIN_SECONDS", float(SECONDS))
    agent = counting()
    watched, other = agent.session("s"), agent.session("s")
    await watched.run("a")
    may, handled = asyncio.Event(), list[Event]()

    async def watch(entry: Entry) -> None:
        await may.wait()
        handled.append(entry.event)

    watched.add_watcher(watch)
    subscription = None if is_last else other.subscribe()
    async with asyncio.timeout(SECONDS):
        await watched.rename("One")
        closing = asyncio.ensure_future(watched.aclose())
        await rounds()
        assert (closing.done(), handled) == (False, [])
        may.set()
        await closing
        assert [type(each) for each in handled] == [SessionConfigured]
        await other.run("b")
    assert len(handled) == 1
    assert subscription is None or len(subscription) > 1


async def test_whoever_comes_while_the_last_object_is_being_closed_sees_the_events_from_then_on(monkeypatch):
    monkeypatch.setattr(channel, "DRAIN_SECONDS", float(SECONDS))
    agent = counting()
    closed, may = agent.session("s"), asyncio.Event()
    await closed.run("a")

    async def watch(entry: Entry) -> None:
        await may.wait()

    closed.add_watcher(watch)
    async with asyncio.timeout(SECONDS):
        await closed.rename("One")
        closing = asyncio.ensure_future(closed.aclose())
        await rounds()
        assert not closing.done()
        next_user = agent.session("s")
        subscription = next_user.subscribe()
        await next_user.run("b")
        may.set()
        await closing
    assert len(of([subscription.get_nowait().event for _ in range(len(subscription))], RunEnded)) == 1


async def test_closing_an_object_twice_leaves_the_watchers_of_others_alone():
    agent = Agent(ScriptedModel("One.", "Two."))
    watcher, runner = agent.session("s"), agent.session("s")
    subscription = watcher.subscribe()
    await runner.run("a")
    await runner.aclose()
    await runner.aclose()
    await agent.session("s").run("b")
    assert len(of([subscription.get_nowait().event for _ in range(len(subscription))], RunStarted)) == 2


async def test_a_watcher_of_two_agents_is_told_each_event_once():
    recorder = Recorder()
    one = Agent(ScriptedModel("One."), watchers=[recorder])
    other = Agent(ScriptedModel("Two."), watchers=[recorder], store=one.store)
    async with asyncio.timeout(SECONDS):
        await asyncio.gather(one.session("s").run("a"), other.session("s").run("b"))
    assert [each.text for each in recorder.of(TextDelta)] == ["One.", "Two."]
    assert len(recorder.of(RunEnded)) == 2


async def test_a_watcher_of_one_agent_is_not_told_of_the_runs_of_another():
    recorder = Recorder()
    one = Agent(ScriptedModel("One."), watchers=[recorder])
    await one.session("s").run("a")
    await Agent(ScriptedModel("Two."), store=one.store).session("s").run("b")
    assert [each.text for each in recorder.of(TextDelta)] == ["One."]


async def test_a_subscription_lasts_when_nobody_has_the_session_object_any_more():
    agent = Agent(ScriptedModel("One."))
    subscription = agent.session("s").subscribe()
    gc.collect()
    await agent.session("s").run("a")
    seen: list[Entry] = [subscription.get_nowait() for _ in range(len(subscription))]
    assert len(of([each.event for each in seen], RunEnded)) == 1
    subscription.close()


async def test_nothing_of_a_session_is_kept_in_memory_when_nobody_uses_it():
    gc.collect()
    before = len(channel._channels)
    agent = counting()
    sessions = [agent.session(f"s{number}") for number in range(20)]
    subscriptions = [session.subscribe() for session in sessions]
    await asyncio.gather(*[session.run("a") for session in sessions])
    assert len(channel._channels) == before + 20
    for subscription in subscriptions:
        subscription.close()
    sessions.clear()
    subscriptions.clear()
    subscription = None  # type: ignore[assignment]
    gc.collect()
    assert len(channel._channels) == before


async def test_a_session_that_is_closed_is_not_kept_even_without_a_collection():
    before = len(channel._channels)
    for _ in range(5):
        session = counting().session("s")
        await session.run("a")
        await session.aclose()
        assert len(channel._channels) <= before


async def test_a_session_without_a_store_is_registered_nowhere():
    gc.collect()
    before = len(channel._channels)
    seen: list[int] = []

    @tool
    async def look() -> str:
        """Look."""
        seen.append(len(channel._channels))
        return "seen"

    await Agent(ScriptedModel(call("look"), "Done."), tools=[look]).run("Go")
    assert seen == [before]
