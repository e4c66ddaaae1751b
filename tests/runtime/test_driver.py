"""Whoever drives a session: what it finds when it opens one, what reaches it from elsewhere, when it gives up."""

import asyncio
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from perdure import (
    Agent,
    ConfigError,
    Message,
    Output,
    Permissions,
    Session,
    SessionBusy,
    Status,
    StopReason,
    StoreError,
    ToolCall,
    ToolResult,
    Usage,
    UsageError,
    assistant,
    tool,
    user,
)
from perdure._core.people.mailbox import build_message_post
from perdure._core.values import faults
from perdure._runtime.session.commands import WakeCommand
from perdure._runtime.session.driver import SessionDriver, pass_post_to_run
from perdure.context import Compaction
from perdure.engines import Run, Step, repeated_calls
from perdure.events import (
    MessageAdded,
    ModelRequested,
    PostTaken,
    ReplyFinished,
    RunEnded,
    RunResumed,
    RunStarted,
    TextDelta,
    ToolFinished,
    ToolStarted,
)
from perdure.permissions import later
from perdure.stores import Fenced, Lease, MemoryStore, Post
from perdure.testing import Scripted, ScriptedModel, call, calls, pause
from tests.doubles import SECONDS, Held, crashed, elsewhere, kind, log_of, of, rounds, until
from tests.transcript import assert_valid

pytestmark = pytest.mark.resumed

# -- what its entries are called ---------------------------------------------------------------------------------------


async def test_the_runs_of_a_session_go_on_numbering_their_entries():
    agent = Agent(ScriptedModel("One.", "Two."))
    session = agent.session("s")
    await session.run("Hi")
    await session.run("Hi")
    stems, numbers = zip(*[entry.id.rsplit("-", 1) for entry in await agent.store.read("s")], strict=True)
    assert len(set(stems)) == 1
    assert sorted(set(numbers), key=int) == list(numbers)


# -- one submission per name -------------------------------------------------------------------------------------------


async def test_a_prompt_sent_twice_under_one_name_is_answered_once():
    store = MemoryStore()
    model = ScriptedModel("Hello.", "Again?")
    session = Agent(model, store=store).session("s")
    first = await session.run("Hi", input_id="mail-1")
    again = await Agent(ScriptedModel(), store=store).session("s").run("Hi", input_id="mail-1")
    assert (again.run_id, again.text, again.status, again.usage) == (first.run_id, "Hello.", "done", first.usage)
    assert [each.text for each in again.new_messages] == ["Hi", "Hello."]
    assert len(await session.messages()) == 2
    assert (await session.run("Hi", input_id="mail-2")).text == "Again?"
    assert (await session.run("Hi", input_id="mail-1")).text == "Hello."


async def test_the_same_prompt_sent_while_it_is_being_answered_waits_for_that_answer():
    held = pause()
    model = ScriptedModel([TextDelta("Hello."), held, ReplyFinished()])
    session = Agent(model).session("s")
    async with asyncio.timeout(SECONDS):
        first = asyncio.ensure_future(session.run("Hi", input_id="mail-1"))
        await held.wait_reached()
        second = asyncio.ensure_future(session.run("Hi", input_id="mail-1"))
        held.release()
        assert (await first).run_id == (await second).run_id
    assert len(model.requests) == 1


async def test_a_prompt_that_a_crash_cut_off_goes_on_when_it_is_sent_again():
    store = MemoryStore()
    await crashed(
        store,
        "s",
        RunStarted("agent", input_id="mail-1", run_id="r1"),
        MessageAdded(user("Hi"), run_id="r1"),
        ModelRequested(1, run_id="r1"),
    )
    outcome = await Agent(ScriptedModel("Hello."), store=store).session("s").run("Hi", input_id="mail-1")
    assert (outcome.run_id, outcome.text, len(outcome.messages)) == ("r1", "Hello.", 2)
    assert len(of(await log_of(store, "s"), RunStarted)) == 1


async def test_a_run_that_failed_under_a_name_is_told_as_failed_again():
    store = MemoryStore()
    model = ScriptedModel(RuntimeError("no luck"))
    first = await Agent(model, store=store).session("s").run("Hi", input_id="mail-1")
    again = await Agent(ScriptedModel(), store=store).session("s").run("Hi", input_id="mail-1")
    assert (first.status, again.status, again.reason) == ("failed", "failed", "RuntimeError")
    assert "no luck" in str(again.error)


@pytest.mark.parametrize("is_over", [True, False])
async def test_another_prompt_under_a_name_that_was_used_gets_the_first_answer_and_a_warning(caplog, is_over):
    store = MemoryStore()
    prompt = MessageAdded(user("Hi"), run_id="r1")
    await crashed(store, "s", RunStarted("agent", input_id="mail-1", run_id="r1"), prompt)
    session = Agent(ScriptedModel("Hello."), store=store).session("s")
    if is_over:
        await session.resume()
    outcome = await session.run("Bye", input_id="mail-1")
    assert (outcome.text, outcome.run_id) == ("Hello.", "r1")
    (warning,) = [each.getMessage() for each in caplog.records if each.levelname == "WARNING"]
    assert "input 'mail-1' of session 's' was sent before with another prompt" in warning
    assert "Bye" not in warning


async def test_a_session_whose_run_was_cut_off_is_not_compacted_before_it_is_resumed():
    store = MemoryStore()
    await crashed(store, "s", RunStarted("agent", run_id="r1"), MessageAdded(user("Hi"), run_id="r1"))
    session = Agent(ScriptedModel("Hello."), store=store, compaction=Compaction()).session("s")
    before = await store.read("s")
    with pytest.raises(UsageError, match="session 's' has a run that is not over"):
        await session.compact()
    assert await store.read("s") == before
    assert (await session.resume()).text == "Hello."


async def test_a_prompt_whose_entry_was_erased_is_repeated_without_a_warning(caplog):
    session = Agent(ScriptedModel("Hello.")).session("s")
    await session.run("My secret.", input_id="mail-1")
    await session.redact(2)
    assert (await session.run("My secret.", input_id="mail-1")).text == "Hello."
    assert not [each for each in caplog.records if each.levelname == "WARNING"]


@dataclass
class Plan:
    title: str


MODES = pytest.mark.parametrize(
    ("mode", "reply"), [("tool", call("final_answer", title="Oslo")), ("prompted", '{"title":"Oslo"}')]
)


@MODES
@pytest.mark.parametrize("is_streamed", [False, True])
async def test_a_prompt_sent_twice_returns_its_structured_output_again(mode, reply, is_streamed):
    agent = Agent(ScriptedModel(reply))
    output = Output(Plan, mode=mode)
    await agent.session("s").run("Plan", output=output, input_id="m1")
    session = agent.session("s")
    if is_streamed:
        again = await session.stream("Plan", output=output, input_id="m1").outcome()
    else:
        again = await session.run("Plan", output=output, input_id="m1")
    assert (again.status, again.output, again.value) == ("done", Plan("Oslo"), Plan("Oslo"))


@MODES
async def test_without_the_type_a_repeated_prompt_returns_its_output_as_json(mode, reply):
    session = Agent(ScriptedModel(reply)).session("s")
    await session.run("Plan", output=Output(Plan, mode=mode), input_id="m1")
    assert (await session.run("Plan", input_id="m1")).output == {"title": "Oslo"}


async def test_a_repeated_prompt_without_a_valid_answer_has_no_output():
    session = Agent(ScriptedModel("Oslo.", "Bergen")).session("s")
    failed = await session.run("Plan", output=Output(Plan, mode="prompted", repairs=0), input_id="m1")
    again = await session.run("Plan", output=Plan, input_id="m1")
    assert (failed.status, again.status, again.output) == ("failed", "failed", None)
    await session.run("Talk", input_id="m2")
    with pytest.raises(UsageError, match="the stored answer to input 'm2' is no valid Plan: "):
        await session.run("Talk", output=Plan, input_id="m2")


async def test_a_name_must_be_text():
    with pytest.raises(ConfigError, match="input_id"):
        await Agent(ScriptedModel()).session("s").run("Hi", input_id=5)  # type: ignore[call-overload]


# -- a run that gets nowhere -------------------------------------------------------------------------------------------


async def test_a_run_that_was_taken_up_three_times_without_progress_is_parked():
    store = MemoryStore()
    await crashed(
        store,
        "s",
        RunStarted("agent", run_id="r1"),
        MessageAdded(user("Hi"), run_id="r1"),
        *[RunResumed(run_id="r1"), ModelRequested(1, run_id="r1")] * 3,
    )
    session = Agent(ScriptedModel("Hello."), store=store).session("s")
    outcome = await session.resume()
    assert (outcome.status, outcome.reason) == ("parked", "crash_loop")
    (ended,) = of(await log_of(store, "s"), RunEnded)
    assert (ended.status, ended.reason) == ("parked", "crash_loop")
    assert (await session.run("Hi again")).text == "Hello."  # a person may go on


async def parked_session(agent: Agent[Any], input_id: str = "") -> Session[Any]:
    """A session whose last run crashed again and again, and was parked."""
    reply = Message("assistant", (ToolCall("c1", "look"),), stop=StopReason.TOOL_USE, usage=Usage(7, 3))
    await crashed(
        agent.store,
        "s",
        RunStarted("agent", input_id=input_id, run_id="r1"),
        MessageAdded(user("Hi"), run_id="r1"),
        ModelRequested(1, run_id="r1"),
        MessageAdded(reply, run_id="r1"),
        *[RunResumed(run_id="r1"), ToolStarted("c1", "look", "at_most_once", "key", run_id="r1")] * 3,
    )
    session = agent.session("s")
    assert (await session.resume()).status == "parked"
    return session


async def test_a_parked_run_can_be_taken_up_again():
    session = await parked_session(Agent(ScriptedModel("Hello."), store=MemoryStore()))
    assert await session.store.list_interrupted() == []
    with pytest.raises(UsageError, match=r"'parked'.*resume\(unpark=True\)"):
        await session.resume()
    assert await session.wake() is None
    outcome = await session.resume(unpark=True)
    assert (outcome.status, outcome.text, outcome.run_id, outcome.turns) == ("done", "Hello.", "r1", 2)
    assert outcome.usage.total_tokens > 10  # what was used before it was parked counts
    assert [each.role for each in outcome.new_messages] == ["user", "assistant", "tool", "assistant"]
    assert outcome.new_messages[2].tool_results[0].status is Status.UNKNOWN
    assert_valid(outcome.messages)
    with pytest.raises(UsageError, match="'done'"):
        await session.resume(unpark=True)


async def test_the_input_of_a_parked_run_gets_the_outcome_of_the_run_that_was_taken_up():
    agent = Agent(ScriptedModel("Hello.", "More."), store=MemoryStore())
    session = await parked_session(agent, input_id="mail-1")
    assert (await session.run("Hi", input_id="mail-1")).status == "parked"
    await session.resume(unpark=True)
    again = await agent.session("s").run("Hi", input_id="mail-1")
    assert (again.status, again.text, again.run_id) == ("done", "Hello.", "r1")
    assert [message.role for message in again.new_messages] == ["user", "assistant", "tool", "assistant"]


async def test_a_run_that_was_taken_up_again_gets_three_more_attempts():
    store = MemoryStore()
    session = await parked_session(Agent(ScriptedModel(StoreError("gone"), repeat_last=True), store=store))
    with pytest.raises(StoreError):
        await session.resume(unpark=True)
    assert [each.progress for each in await store.list_interrupted()] == ["cut_off"]
    for _ in range(2):
        with pytest.raises(StoreError):
            await session.resume()
    assert (await session.resume()).status == "parked"
    assert (await Agent(ScriptedModel("Hello."), store=store).session("s").resume(unpark=True)).status == "done"


async def test_a_run_that_is_about_to_be_parked_can_be_given_another_attempt():
    store = MemoryStore()
    await crashed(
        store,
        "s",
        RunStarted("agent", run_id="r1"),
        MessageAdded(user("Hi"), run_id="r1"),
        *[RunResumed(run_id="r1"), ModelRequested(1, run_id="r1")] * 3,
    )
    assert (await Agent(ScriptedModel("Hello."), store=store).session("s").resume(unpark=True)).text == "Hello."


async def test_unpark_must_be_true_or_false():
    with pytest.raises(ConfigError, match="unpark"):
        await Agent(ScriptedModel()).session("s").resume(unpark="yes")  # type: ignore[call-overload]


async def test_progress_starts_the_count_of_recoveries_anew():
    store = MemoryStore()
    reply = Message("assistant", (ToolCall("c1", "look"),), stop=StopReason.TOOL_USE)
    await crashed(
        store,
        "s",
        RunStarted("agent", run_id="r1"),
        MessageAdded(user("Hi"), run_id="r1"),
        *[RunResumed(run_id="r1")] * 3,
        MessageAdded(reply, run_id="r1"),
        RunResumed(run_id="r1"),
    )

    @tool(effect="read")
    async def look() -> str:
        """Look."""
        return "seen"

    outcome = await Agent(ScriptedModel("Seen."), tools=[look], store=store).session("s").resume()
    assert (outcome.status, outcome.text) == ("done", "Seen.")


@pytest.mark.parametrize("is_async", [False, True])
async def test_guardrails_remember_over_a_crash_what_they_have_seen(is_async):
    store = MemoryStore()

    def start() -> Any:
        plain = repeated_calls(nudge_at=4, halt_at=5)()

        async def repeat(step: Step) -> Any:
            return plain(step)

        return repeat if is_async else plain

    @tool(effect="read")
    async def look() -> str:
        """Look."""
        return "seen"

    def turn(place: int) -> list[Any]:
        reply = Message("assistant", (ToolCall(f"c{place}", "look"),), stop=StopReason.TOOL_USE)
        return [
            MessageAdded(reply, run_id="r1"),
            ToolFinished(f"c{place}", "look", ToolResult(f"c{place}", "look"), run_id="r1"),
        ]

    await crashed(
        store,
        "s",
        RunStarted("agent", run_id="r1"),
        MessageAdded(user("Look"), run_id="r1"),
        *[event for place in range(1, 5) for event in turn(place)],
    )
    agent = Agent(ScriptedModel(call("look")), tools=[look], store=store, guardrails=[start])
    outcome = await agent.session("s").resume()
    assert (outcome.status, outcome.reason) == ("stopped", "repeat")
    assert [each.origin for each in outcome.messages if each.role == "user"] == ["", "guardrail"]
    assert_valid(outcome.messages)


# -- two drivers -------------------------------------------------------------------------------------------------------


async def test_a_session_that_is_driven_elsewhere_can_be_taken_over_and_its_driver_is_stopped():
    store, held = MemoryStore(), Held()
    first = Agent(ScriptedModel(call("held"), "Never said."), tools=[held.tool], store=store).session("s")
    going = asyncio.ensure_future(first.run("Go"))
    async with asyncio.timeout(SECONDS):
        await held.started.wait()
        second = Agent(ScriptedModel("Mine now."), store=store).session("s")
        with pytest.raises(SessionBusy):
            await elsewhere(lambda: second.run("Mine!"))
        outcome = await elsewhere(lambda: second.run("Mine!", take_over=True))
        assert (outcome.status, outcome.text) == ("done", "Mine now.")
        assert_valid(outcome.messages)
        held.released.set()
        with pytest.raises(Fenced):
            await going
    assert_valid(await second.messages())


async def test_to_take_over_or_not_is_yes_or_no():
    with pytest.raises(ConfigError, match="take_over"):
        await Agent(ScriptedModel()).session("s").run("Hi", take_over="please")  # type: ignore[call-overload]


# -- posts -------------------------------------------------------------------------------------------------------------


async def test_what_another_process_posts_is_found_by_looking(monkeypatch):
    monkeypatch.setattr("perdure._runtime.session.posts.POLL_SECONDS", 0.001)
    store, held = MemoryStore(), Held()
    session = Agent(ScriptedModel(call("held"), "Left it is."), tools=[held.tool], store=store).session("s")
    going = asyncio.ensure_future(session.run("Go"))
    async with asyncio.timeout(SECONDS):
        await held.started.wait()
        await store.post("s", build_message_post("steer", user("Left!", origin="steering"), "p1", 0.0))
        await until(lambda: (run := session._driver.run) and run.mailbox.has_messages_due, 0.001)
        held.released.set()
        outcome = await going
    assert [each.text for each in outcome.messages if each.role == "user"] == ["Go", "Left!"]
    assert await store.posts("s") == []


async def test_a_store_that_fails_while_it_is_asked_for_posts_does_not_end_the_run(monkeypatch, caplog):
    monkeypatch.setattr("perdure._runtime.session.posts.POLL_SECONDS", 0.001)

    class Flaky(MemoryStore):
        asked = 0
        errors: Iterator[StoreError] = iter(())

        async def posts(self, session_id: str) -> list[Post]:
            self.asked += 1
            for error in self.errors:
                raise error
            return await super().posts(session_id)

    store, held = Flaky(), Held()
    session = Agent(ScriptedModel(call("held"), "Done."), tools=[held.tool], store=store).session("s")
    going = asyncio.ensure_future(session.run("Go"))
    async with asyncio.timeout(SECONDS):
        await held.started.wait()
        store.errors, before = iter([StoreError("away for a moment")]), store.asked
        await until(lambda: store.asked >= before + 3, 0.001)
        held.released.set()
        assert (await going).status == "done"
    assert "away for a moment" in caplog.text


async def test_a_post_from_another_thread_reaches_the_run():
    store, held = MemoryStore(), Held()
    agent = Agent(ScriptedModel(call("held"), "Left it is."), tools=[held.tool], store=store)
    session = agent.session("s")
    going = asyncio.ensure_future(session.run("Go"))
    async with asyncio.timeout(SECONDS):
        await held.started.wait()
        await asyncio.to_thread(lambda: asyncio.run(agent.session("s").steer("Left!")))
        await until(lambda: (run := session._driver.run) and run.mailbox.has_messages_due)
        held.released.set()
        outcome = await going
    assert outcome.text == "Left it is."


async def test_posts_keep_their_order_also_if_the_first_comes_while_a_run_begins():
    """It is stored after the run has looked for posts, and before the run is there to be told."""

    class SlowToAnswer(MemoryStore):
        looked, going_on = asyncio.Event(), asyncio.Event()

        async def posts(self, session_id: str) -> list[Post]:
            found = await super().posts(session_id)
            if not self.looked.is_set():
                self.looked.set()
                await self.going_on.wait()
            return found

    store, held = SlowToAnswer(), Held()
    model = ScriptedModel(call("held"), "Done.", repeat_last=True)
    session = Agent(model, tools=[held.tool], store=store).session("s")
    going = asyncio.ensure_future(session.run("Go"))
    async with asyncio.timeout(SECONDS):
        await store.looked.wait()
        await session.follow_up("One")
        store.going_on.set()
        await held.started.wait()
        await session.follow_up("Two")
        held.released.set()
        outcome = await going
    assert [each.text for each in outcome.messages if each.role == "user"] == ["Go", "One", "Two"]


@pytest.mark.parametrize(("kind", "replies"), [("steer", ["Aye."]), ("follow_up", ["Aye.", "Left it is."])])
async def test_a_post_from_another_thread_that_comes_late_is_not_given_to_the_next_run_as_well(kind, replies):
    """The thread has stored it and is paused; a run finds it in the store, and is over when the thread goes on."""
    stored, going_on = threading.Event(), threading.Event()

    class Late(MemoryStore):
        async def post(self, session_id: str, post: Post) -> bool:
            is_new = await super().post(session_id, post)
            stored.set()
            await asyncio.to_thread(going_on.wait, SECONDS)
            return is_new

    store, held = Late(), Held()
    agent = Agent(ScriptedModel(*replies, call("held"), "Done."), tools=[held.tool], store=store)
    async with asyncio.timeout(SECONDS):
        posting = asyncio.ensure_future(elsewhere(lambda: getattr(agent.session("s"), kind)("Left!")))
        await asyncio.to_thread(stored.wait, SECONDS)
        await agent.session("s").run("Go")
        running = asyncio.ensure_future(agent.session("s").run("And on"))
        await held.started.wait()
        going_on.set()
        assert await posting
        await rounds()
        held.released.set()
        outcome = await running
    assert (outcome.status, outcome.text) == ("done", "Done.")
    assert [each.text for each in outcome.messages if each.role == "user"].count("Left!") == 1


async def test_a_session_object_cannot_be_used_on_two_event_loops_at_once():
    held = Held()
    session = Agent(ScriptedModel(call("held"), "Done."), tools=[held.tool]).session("s")
    going = asyncio.ensure_future(session.run("Go"))
    async with asyncio.timeout(SECONDS):
        await held.started.wait()
        with pytest.raises(UsageError, match="another event loop"):
            await asyncio.to_thread(lambda: asyncio.run(session.run("Go, too")))
        held.released.set()
        assert (await going).text == "Done."


async def test_a_cancel_from_another_process_ends_the_run():
    store, held = MemoryStore(), Held()
    session = Agent(ScriptedModel(call("held")), tools=[held.tool], store=store).session("s")
    going = asyncio.ensure_future(session.run("Go"))
    async with asyncio.timeout(SECONDS):
        await held.started.wait()
        assert await Agent(ScriptedModel(), store=store).session("s").cancel()
        assert (await going).status == "cancelled"
    assert not await session.cancel()


async def test_a_cancel_of_a_run_that_was_cut_off_ends_it_when_it_is_taken_up():
    store = MemoryStore()
    await crashed(store, "s", RunStarted("agent", run_id="r1"), MessageAdded(user("Hi"), run_id="r1"))
    model = ScriptedModel("Never said.", "Hello.")
    session = Agent(model, store=store).session("s")
    assert await session.cancel()
    assert (await session.resume()).status == "cancelled"
    assert not model.requests


async def test_a_gentle_cancel_of_a_run_that_was_cut_off_lets_its_calls_be_made_first():
    looked: list[str] = []

    @tool(effect="read")
    async def look() -> str:
        """Look."""
        looked.append("looked")
        return "seen"

    store = MemoryStore()
    reply = Message("assistant", (ToolCall("c1", "look"),), stop=StopReason.TOOL_USE)
    await crashed(
        store,
        "s",
        RunStarted("agent", run_id="r1"),
        MessageAdded(user("Hi"), run_id="r1"),
        MessageAdded(reply, run_id="r1"),
        ToolStarted("c1", "look", "read", "key", run_id="r1"),
    )
    session = Agent(ScriptedModel("Never said."), tools=[look], store=store).session("s")
    assert await session.cancel("after_tools")
    outcome = await session.resume()
    assert (outcome.status, looked, outcome.messages[-1].tool_results[0].text) == ("cancelled", ["looked"], "seen")


async def test_a_cancel_that_came_too_late_is_put_away_by_the_next_run():
    store = MemoryStore()
    await crashed(store, "s", RunStarted("agent", run_id="r1"), MessageAdded(user("Hi"), run_id="r1"))
    session = Agent(ScriptedModel("Hello."), store=store).session("s")
    await session.cancel()
    assert (await session.run("Hello?")).status == "done"
    assert [each.about for each in of(await log_of(store, "s"), PostTaken)] == ["cancel"]
    assert await store.posts("s") == []


async def test_a_cancel_from_elsewhere_can_be_made_more_urgent_and_not_less():
    store, held = MemoryStore(), Held()
    session = Agent(ScriptedModel(call("held")), tools=[held.tool], store=store).session("s")
    elsewhere = Agent(ScriptedModel(), store=store).session("s")
    going = asyncio.ensure_future(session.run("Go"))
    async with asyncio.timeout(SECONDS):
        await held.started.wait()
        await elsewhere.cancel("after_tools")
        await elsewhere.cancel("after_turn")
        assert not going.done()
        await elsewhere.cancel("now")
        outcome = await going
    assert (outcome.status, held.cancelled) == ("cancelled", 1)


@pytest.mark.parametrize("body", [None, 5, "text", [], {}, {"run_id": ["r"], "ask_id": {}, "item_id": 5, "mode": 7}])
@pytest.mark.parametrize("about", ["cancel", "answer", "inbox", "steer", "follow_up", "of a later version"])
async def test_a_post_that_makes_no_sense_does_not_keep_a_session_from_going_on(about, body):
    store = MemoryStore()
    session = Agent(ScriptedModel("Hello.", "And again."), store=store).session("s")
    await store.post("s", Post("p1", about, body))
    assert (await session.run("Hi")).status == "done"
    await store.post("s", Post("p2", about, body))
    assert (await session.inbox(), await session.wake()) == ([], None)
    assert (await session.run("Hi")).text == "And again."


async def test_a_cancel_that_makes_no_sense_does_not_end_the_run():
    store, held = MemoryStore(), Held()
    session = Agent(ScriptedModel(call("held"), "Done."), tools=[held.tool], store=store).session("s")
    going = asyncio.ensure_future(session.run("Go"))
    async with asyncio.timeout(SECONDS):
        await held.started.wait()
        (run_id,) = {event.run_id for event in await log_of(store, "s")}
        pass_post_to_run((id(store), "s"), Post("p1", "cancel", {"run_id": run_id, "mode": "sideways"}))
        pass_post_to_run((id(store), "s"), Post("p2", "cancel"))
        held.released.set()
        assert (await going).text == "Done."


async def test_a_run_that_is_being_taken_up_again_can_be_cancelled():
    class SlowToOpen(MemoryStore):
        opened = asyncio.Event()

        async def acquire(self, session_id: str, *, take_over: bool = False) -> Lease:
            await self.opened.wait()
            return await super().acquire(session_id, take_over=take_over)

    store, model = SlowToOpen(), ScriptedModel("Never said.")
    store.opened.set()
    await crashed(store, "s", RunStarted("agent", run_id="r1"), MessageAdded(user("Hi"), run_id="r1"))
    store.opened.clear()
    session = Agent(model, store=store).session("s")
    going = asyncio.ensure_future(session.resume())
    await rounds()
    assert await session.cancel()
    store.opened.set()
    async with asyncio.timeout(SECONDS):
        assert ((await going).status, model.requests) == ("cancelled", [])


async def test_a_follow_up_that_woke_a_session_is_told_first_also_after_a_crash():
    store, model = MemoryStore(), ScriptedModel("Hello.", "Two.")
    session = Agent(model, store=store).session("s")
    await session.run("Hi")
    await session.follow_up("1 + 1?")
    await crashed(store, "s", RunStarted("agent", run_id="woken"))
    outcome = await session.resume()
    assert [each.text for each in outcome.new_messages] == ["1 + 1?", "Two."]
    assert len(model.requests) == 2


async def test_a_wake_that_comes_too_late_leaves_a_question_open():
    @tool(permission=True)
    async def pay() -> str:
        """Pay."""
        return "paid"

    gate = Permissions(handler=later)
    agent = Agent(ScriptedModel(call("pay")), tools=[pay], permission=gate)
    session = agent.session("s")
    await session.run("Pay")
    await session.follow_up("And then?")
    outcome = await SessionDriver(agent, "s", agent.store).perform_command(
        WakeCommand("r9")
    )  # begun before the run was
    assert outcome.reason == "nothing_new"
    assert len(await session.questions()) == 1


async def test_steering_sent_twice_under_one_name_is_told_once():
    session = Agent(ScriptedModel("Hello.", "Hello.")).session("s")
    assert await session.steer("Left!", post_id="sms-1")
    assert not await session.steer("Left!", post_id="sms-1")
    outcome = await session.run("Go")
    assert not await session.steer("Left!", post_id="sms-1")
    assert [each.text for each in outcome.messages if each.role == "user"] == ["Go", "Left!"]


async def test_usage_of_a_retold_run_is_the_first_ones():
    store = MemoryStore()
    reply = assistant("Hello.", stop=StopReason.STOP, usage=Usage(3, 4))
    await crashed(
        store,
        "s",
        RunStarted("agent", input_id="a", run_id="r1"),
        MessageAdded(user("Hi"), run_id="r1"),
        MessageAdded(reply, run_id="r1"),
        RunEnded("done", usage=Usage(3, 4), turns=1, run_id="r1"),
    )
    outcome = await Agent(ScriptedModel(), store=store).session("s").run("Hi", input_id="a")
    assert (outcome.usage, outcome.turns, outcome.error) == (Usage(3, 4), 1, None)


# -- a loop that is thrown away on purpose -----------------------------------------------------------------------------


async def test_a_run_can_be_thrown_away_after_every_append_and_goes_on_from_the_log(monkeypatch):
    done: list[int] = []
    thrown_away: list[Run] = []
    rebuild = SessionDriver._rebuild_run

    @tool
    async def count(number: int) -> str:
        """Count."""
        done.append(number)
        return f"{number} counted"

    async def rebuild_counted(driver: SessionDriver, plan: Any, run: Run, channel: Any) -> Run:
        thrown_away.append(run)
        return await rebuild(driver, plan, run, channel)

    async def told(always_resume: bool) -> list[str]:
        done.clear()
        thrown_away.clear()
        monkeypatch.setattr(faults, "always_resume", always_resume)
        store = MemoryStore()
        script: list[Scripted] = [
            calls(call("count", number=1), call("count", number=2)),
            call("count", number=3),
            "Counted.",
        ]
        agent = Agent(ScriptedModel(*script), tools=[count], store=store)
        assert (await agent.session("s").run("Count")).text == "Counted."
        assert sorted(done) == [1, 2, 3]
        return [kind(event) for event in await log_of(store, "s")]

    monkeypatch.setattr(SessionDriver, "_rebuild_run", rebuild_counted)
    stored = await told(True)
    # Each of the three replies, and the results of the first two: whatever is stored while no call or request is open.
    assert len(thrown_away) == 5
    assert len({id(run) for run in thrown_away}) == len(thrown_away)
    assert all(run.run_id == thrown_away[0].run_id for run in thrown_away)
    assert await told(False) == stored
    assert thrown_away == []


async def test_a_session_whose_log_lost_an_entry_can_be_gone_on_with(tmp_path):
    agent = Agent(ScriptedModel("One.", "Two."), store=f"file:{tmp_path}")
    for prompt in ("1?", "2?"):
        await agent.session("s").run(prompt)
    await agent.store.aclose()
    (log,) = tmp_path.glob("*.session")
    lines = log.read_bytes().split(b"\n")
    lines[4] = b"#" * len(lines[4])
    log.write_bytes(b"\n".join(lines))
    again = Agent(ScriptedModel("Three."), store=f"file:{tmp_path}")
    numbers = [entry.seq for entry in await again.store.read("s")]
    assert numbers != [*range(1, len(numbers) + 1)]
    outcome = await again.session("s").run("3?")
    assert outcome.text == "Three."
    assert_valid(outcome.messages)
    await again.store.aclose()


# -- watching ----------------------------------------------------------------------------------------------------------


async def test_a_run_that_is_driven_elsewhere_can_be_watched(tmp_path, monkeypatch):
    monkeypatch.setattr("perdure._runtime.session.stored.WATCH_POLL_SECONDS", 0.01)
    driver = Agent(ScriptedModel("One.", "Two."), store=f"sqlite:{tmp_path / 's.db'}")
    await driver.session("s").run("1?")
    before = len(await driver.store.read("s"))
    watcher = Agent(ScriptedModel(), store=f"sqlite:{tmp_path / 's.db'}").session("s")
    assert watcher.store is not driver.store
    seen: list[int] = []

    async def watch() -> None:
        async for entry in watcher.watch():
            seen.append(entry.seq)  # noqa: PERF401 - looked at before it ends

    watching = asyncio.ensure_future(watch())
    await until(lambda: len(seen) == before)
    await elsewhere(lambda: driver.session("s").run("2?"))
    entries = await driver.store.read("s")
    await until(lambda: len(seen) == len(entries), 0.01)
    assert seen == [entry.seq for entry in entries]
    await watcher.aclose()
    async with asyncio.timeout(SECONDS):
        await watching
    await driver.store.aclose()
    await watcher.store.aclose()


async def test_whoever_leaves_a_watch_leaves_nothing_behind():
    session = Agent(ScriptedModel("One.")).session("s")
    await session.run("1?")
    watching = session.watch()
    first = [await anext(watching) for _ in range(len(await session.store.read("s")))]
    waiting = asyncio.ensure_future(anext(watching))
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.wait((waiting,))
    assert first[-1].seq == len(first)
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_a_prompt_that_goes_on_after_a_crash_is_streamed_under_the_name_of_its_run():
    store = MemoryStore()
    await crashed(
        store,
        "s",
        RunStarted("agent", input_id="mail-1", run_id="r1"),
        MessageAdded(user("Hi"), run_id="r1"),
    )
    stream = Agent(ScriptedModel("Hello."), store=store).session("s").stream("Hi", input_id="mail-1")
    events = [event async for event in stream]
    assert stream.run_id == "r1"
    assert "".join([event.text for event in events if isinstance(event, TextDelta)]) == "Hello."
    assert isinstance(events[-1], RunEnded)


async def test_a_cancel_after_the_turn_of_a_run_that_was_cut_off_ends_it_after_its_next_turn() -> None:
    held = Held("look")
    held.released.set()
    store = MemoryStore()
    await crashed(store, "s", RunStarted("agent", run_id="r1"), MessageAdded(user("Hi"), run_id="r1"))
    model = ScriptedModel(call("look"), "Never said.")
    session = Agent(model, tools=[held.tool], store=store).session("s")
    assert await session.cancel("after_turn")
    outcome = await session.resume()
    assert (outcome.status, len(model.requests)) == ("cancelled", 1)


async def test_a_summary_between_runs_is_counted_once_by_the_run_that_follows() -> None:
    session = Agent(
        ScriptedModel("Hello.", "A summary.", "And again."), compaction=Compaction(keep_recent_messages=1)
    ).session("s")
    await session.run("words " * 400)
    assert await session.compact()
    outcome = await session.run("Hi")
    assert outcome.text == "And again."
    assert outcome.session_usage == (await session.usage()).usage
