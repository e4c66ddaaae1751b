"""A run as an async iterator, and how its events merge for a reader who falls behind."""

import asyncio
import gc
from typing import Any

import msgspec
import pytest

from perdure import (
    Agent,
    ConfigError,
    Limits,
    Permissions,
    ProviderDown,
    SessionNotFound,
    StoreError,
    UsageError,
    assistant,
    tool,
    user,
)
from perdure.events import (
    Entry,
    Event,
    Lagged,
    MessageAdded,
    QuestionAsked,
    ReplyFinished,
    RunEnded,
    RunStarted,
    TextDelta,
    ToolFinished,
)
from perdure.permissions import allow_all, later
from perdure.stores import MemoryStore
from perdure.testing import ScriptedModel, call, pause
from tests.doubles import SECONDS, Held, WaitingStore, crashed, kind, log_of, of, rounds

pytestmark = pytest.mark.resumed


@tool(effect="read")
async def look() -> str:
    """Looks."""
    return "there"


@tool(permission=True)
async def act() -> str:
    """Acts."""
    return "done"


class Number(msgspec.Struct):
    """What a model is to answer with."""

    n: int


async def read(stream: Any) -> list[Event]:
    async with asyncio.timeout(SECONDS):
        return [event async for event in stream]


# -- reading -----------------------------------------------------------------------------------------------------------


async def test_a_stream_tells_every_event_of_its_run_in_order():
    stream = Agent(ScriptedModel(call("look"), "Done.", chunk=3), tools=[look]).stream("Go")
    events = await read(stream)
    assert [kind(event) for event in events] == [
        "session_opened",
        "run_started",
        "message_added",
        "turn_started",
        "model_requested",
        "tool_call_delta",
        "message_added",
        "tool_started",
        "tool_finished",
        "turn_ended",
        "turn_started",
        "model_requested",
        "text_delta",
        "text_delta",
        "message_added",
        "turn_ended",
        "run_ended",
    ]
    assert {event.run_id for event in events} == {stream.run_id}


async def test_a_stream_can_be_read_with_the_numbers_of_its_entries():
    agent = Agent(ScriptedModel(call("look"), "Done."), tools=[look], store=MemoryStore())
    stream = agent.session("s").stream("Go", input_id="mail-1")
    async with asyncio.timeout(SECONDS):
        entries = [entry async for entry in stream.entries()]
        again = [entry async for entry in agent.session("s").stream("Go", input_id="mail-1").entries()]
    stored = await agent.store.read("s")
    assert [entry for entry in entries if entry.seq] == stored == again
    assert all(entry.event.durable == bool(entry.seq) for entry in entries)
    with pytest.raises(UsageError, match="read already"):
        aiter(stream)


async def test_a_stream_has_the_outcome_too():
    stream = Agent(ScriptedModel("Hello.")).stream("Hi")
    events = await read(stream)
    outcome = await stream.outcome()
    assert (outcome.text, outcome.run_id) == ("Hello.", stream.run_id)
    assert isinstance(events[-1], RunEnded)


async def test_the_outcome_can_be_had_without_reading():
    stream = Agent(ScriptedModel("Hello.")).stream("Hi")
    assert (await stream.outcome()).text == "Hello."
    assert (await stream.outcome()).text == "Hello."


async def test_nothing_happens_before_somebody_looks():
    model = ScriptedModel("Hello.")
    session = Agent(model).session("s")
    session.stream("Hi")
    await rounds()
    assert (model.requests, await log_of(session.store, "s")) == ([], [])


async def test_a_stream_can_be_read_once():
    stream = Agent(ScriptedModel("Hello.")).stream("Hi")
    await read(stream)
    with pytest.raises(UsageError, match=r"was read already: .* with session\.watch\(\)"):
        await read(stream)


async def test_leaving_a_stream_early_does_not_cancel_the_run():
    held = Held()
    session = Agent(ScriptedModel(call("held"), "Done."), tools=[held.tool]).session("s")
    stream = session.stream("Go")
    async with asyncio.timeout(SECONDS):
        async for event in stream:
            if isinstance(event, MessageAdded):
                break
        await held.started.wait()
        held.released.set()
        outcome = await stream.outcome()
    assert (outcome.status, outcome.text, held.cancelled) == ("done", "Done.", 0)


async def test_a_run_goes_on_when_nobody_holds_its_stream_any_more():
    held, ended = pause(), asyncio.Event()

    async def watch(entry: Entry) -> None:
        if isinstance(entry.event, RunEnded):
            ended.set()

    session = Agent(ScriptedModel([held, TextDelta("Done."), ReplyFinished()]), watchers=[watch]).session("s")

    async def glance() -> None:
        async for _ in session.stream("Go"):
            break

    async with asyncio.timeout(SECONDS):
        await glance()
        gc.collect()
        await held.wait_reached()
        held.release()
        await ended.wait()
    assert [message.text for message in await session.messages()] == ["Go", "Done."]


async def test_cancelling_whoever_waits_for_the_outcome_leaves_the_run_alone():
    held = Held()
    stream = Agent(ScriptedModel(call("held"), "Done."), tools=[held.tool]).stream("Go")
    waiting = asyncio.ensure_future(stream.outcome())
    async with asyncio.timeout(SECONDS):
        await held.started.wait()
        waiting.cancel()
        await asyncio.wait([waiting])
        held.released.set()
        assert (await stream.outcome()).status == "done"


async def test_a_stream_can_be_cancelled():
    held = Held()
    stream = Agent(ScriptedModel(call("held")), tools=[held.tool]).stream("Go")
    assert not await stream.cancel()
    reading = asyncio.ensure_future(read(stream))
    async with asyncio.timeout(SECONDS):
        await held.started.wait()
        assert await stream.cancel()
        events = await reading
    assert (await stream.outcome()).status == "cancelled"
    assert [event.result.status for event in of(events, ToolFinished)] == ["cancelled"]
    assert not await stream.cancel()


async def test_cancelling_a_stream_that_waits_for_its_turn_leaves_the_other_run_alone():
    held = pause()
    model = ScriptedModel([held, TextDelta("One."), ReplyFinished()], "Three.")
    session = Agent(model).session("s")
    first = asyncio.ensure_future(session.run("a"))
    second = session.stream("b")
    reading = asyncio.ensure_future(read(second))
    async with asyncio.timeout(SECONDS):
        await held.wait_reached()
        await rounds()
        assert await second.cancel()
        held.release()
        assert (await first).status == "done"
        events = await reading
    outcome = await second.outcome()
    assert (outcome.status, model.remaining) == ("cancelled", 1)
    assert [kind(event) for event in events if kind(event).startswith("run_")] == ["run_started", "run_ended"]
    assert (await session.run("c")).text == "Three."


async def test_events_of_other_runs_are_not_told():
    session = Agent(ScriptedModel("One.", "Two.")).session()
    first, second = session.stream("a"), session.stream("b")
    one, two = await asyncio.gather(read(first), read(second))
    assert [event.text for event in of(one, TextDelta)] == ["One."]
    assert [event.text for event in of(two, TextDelta)] == ["Two."]


async def test_an_error_that_could_not_be_recorded_is_raised_to_the_reader():
    store = WaitingStore()
    store.error = StoreError("disk full")
    with pytest.raises(StoreError, match="disk full"):
        await read(Agent(ScriptedModel("Hello."), store=store).stream("Hi"))


async def test_reading_ends_when_the_session_is_closed_and_the_run_goes_on():
    held = Held()
    session = Agent(ScriptedModel(call("held"), "Done."), tools=[held.tool]).session()
    stream = session.stream("Go")
    reading = asyncio.ensure_future(read(stream))
    async with asyncio.timeout(SECONDS):
        await held.started.wait()
        await session.aclose()
        assert not of(await reading, RunEnded)
        held.released.set()
        assert (await stream.outcome()).status == "done"


# -- slow readers ------------------------------------------------------------------------------------------------------


async def test_a_reader_with_backpressure_slows_the_run_and_gets_each_event():
    deltas = 5000
    told = 0

    class Counting:
        async def stream(self, request: Any) -> Any:
            nonlocal told
            for _ in range(deltas):
                told += 1
                yield TextDelta("x")
            yield ReplyFinished()

    stream = Agent(Counting()).session().stream("Go", backpressure=True)
    seen = 0
    async with asyncio.timeout(SECONDS):
        async for event in stream:
            if isinstance(event, TextDelta):
                seen += len(event.text)
                assert told - seen < 2500
                if seen < 100:
                    await rounds(20)
    assert (seen, (await stream.outcome()).text) == (deltas, "x" * deltas)


async def test_a_slow_reader_without_backpressure_gets_larger_deltas_and_is_told_what_it_missed():
    deltas = 5000
    session = Agent(ScriptedModel([*[TextDelta("x")] * deltas, ReplyFinished()])).session("s")
    stream = session.stream("Go")
    events: list[Event] = []
    async with asyncio.timeout(SECONDS):
        async for event in stream:
            if not events:
                await stream.outcome()
            events.append(event)
    words = of(events, TextDelta)
    assert len(words) < deltas
    assert "".join([event.text for event in words]) == "x" * deltas
    (marker,) = of(events, Lagged)
    assert marker.after is not None
    log = await log_of(session.store, "s")
    missed = [event for event in log if event not in events]
    assert missed == log[marker.after : marker.after + len(missed)]


# -- the same prompt again, and a run that is resumed ------------------------------------------------------------------


STORED = ["run_started", "message_added", "model_requested", "message_added", "tool_started", "tool_finished"]
"""What is stored of the first turn of a run that calls `look`."""


async def test_a_prompt_that_was_answered_before_yields_the_stored_events_of_its_run():
    model = ScriptedModel(call("look"), "Done.", "Other.")
    agent = Agent(model, tools=[look], store=MemoryStore())
    first = agent.session("s").stream("Go", input_id="mail-1")
    live = await read(first)
    await agent.session("s").run("Something else")
    again = agent.session("s").stream("Go", input_id="mail-1")
    events = await read(again)
    assert [kind(event) for event in events] == [*STORED, "model_requested", "message_added", "run_ended"]
    assert events == [event for event in live if event.durable]
    assert again.run_id == first.run_id
    assert (await again.outcome()).text == "Done."
    assert len(model.requests) == 3


async def test_a_repeated_prompt_yields_what_its_subagents_did_too():
    scout = Agent(ScriptedModel("It is x."), name="scout")
    agent = Agent(ScriptedModel(call("scout", task="Look."), "Done."), tools=[scout.as_tool()], store=MemoryStore())
    live = await read(agent.session("s").stream("Go", input_id="mail-1"))
    events = await read(agent.session("s").stream("Go", input_id="mail-1"))
    assert [event for event in events if event.path] == [event for event in live if event.path and event.durable] != []


async def test_a_run_that_failed_yields_its_failure_when_it_is_asked_for_again():
    agent = Agent(ScriptedModel(ProviderDown("gone")), store=MemoryStore())
    await agent.session("s").run("Go", input_id="mail-1")
    events = await read(agent.session("s").stream("Go", input_id="mail-1"))
    assert [event.status for event in of(events, RunEnded)] == ["failed"]


@tool(permission=True)
async def refund() -> str:
    """Refund."""
    return "paid"


def refunder(*replies: Any, store: Any) -> Agent[Any]:
    return Agent(ScriptedModel(*replies), tools=[refund], permission=Permissions(handler=later), store=store)


async def test_a_repeated_prompt_whose_run_waits_yields_its_prompt_and_its_question_and_stores_nothing():
    store = MemoryStore()
    live = await read(refunder(call("refund"), store=store).session("s").stream("Go", input_id="mail-1"))
    stored = await log_of(store, "s")
    for _ in range(2):
        again = refunder(store=store).session("s").stream("Go", input_id="mail-1")
        events = await read(again)
        assert [event for event in events if event.durable] == [event for event in live if event.durable] == stored
        outcome = await again.outcome()
        assert (outcome.status, outcome.reason, outcome.run_id) == ("waiting", "question", again.run_id)
        assert [each.ask_id for each in outcome.questions] == [each.ask_id for each in of(events, QuestionAsked)]
        assert [entry.event for entry in outcome.entries] == stored
    assert await log_of(store, "s") == stored


async def test_a_repeated_prompt_whose_run_waits_is_asked_about_again_where_there_is_a_handler():
    store = MemoryStore()
    await refunder(call("refund"), store=store).session("s").run("Go", input_id="mail-1")
    here = refunder("Paid.", store=store).replace(permission=Permissions(handler=allow_all))
    assert (await here.session("s").run("Go", input_id="mail-1")).text == "Paid."


async def test_a_repeated_prompt_whose_run_waits_can_be_cancelled_before_it_begins():
    store = MemoryStore()
    session = refunder(call("refund"), store=store).session("s")
    await session.run("Go", input_id="mail-1")
    stream = session.stream("Go", input_id="mail-1")
    waiting = asyncio.ensure_future(stream.outcome())
    await asyncio.sleep(0)
    assert await stream.cancel()
    assert (await waiting).status == "cancelled"


async def test_a_repeated_prompt_whose_question_was_answered_is_shown_from_its_beginning_and_goes_on():
    store = MemoryStore()
    session = refunder(call("refund"), "Paid.", store=store).session("s")
    outcome = await session.run("Go", input_id="mail-1")
    before = await log_of(store, "s")
    await session.answer(outcome.questions[0].ask_id, True)
    stream = session.stream("Go", input_id="mail-1")
    events = await read(stream)
    assert [event for event in events if event.durable] == await log_of(store, "s")
    assert events[: len(before)] == before
    assert (await stream.outcome()).text == "Paid."
    assert any(isinstance(event, TextDelta) for event in events)


async def test_a_repeated_prompt_that_a_crash_cut_off_is_shown_from_its_beginning_and_goes_on():
    store = MemoryStore()
    opening = [RunStarted("agent", input_id="mail-1", run_id="r1"), MessageAdded(user("Go"), run_id="r1")]
    await crashed(store, "s", RunStarted("agent", run_id="r0"), RunEnded("done", run_id="r0"), *opening)
    stream = Agent(ScriptedModel("Done."), store=store).session("s").stream("Go", input_id="mail-1")
    entries = [entry async for entry in stream.entries()]
    assert [entry.event for entry in entries[:2]] == opening
    numbers = [entry.seq for entry in entries if entry.seq]
    assert numbers == list(range(3, 3 + len(numbers)))
    assert len(numbers) == len(await log_of(store, "s")) - 2


async def test_a_prompt_that_is_being_answered_is_shown_from_its_beginning_and_then_live():
    held = pause()
    model = ScriptedModel(call("look"), [TextDelta("Do"), held, TextDelta("ne."), ReplyFinished()])
    agent = Agent(model, tools=[look], store=MemoryStore())
    first, again = (agent.session("s").stream("Go", input_id="mail-1") for _ in range(2))
    async with asyncio.timeout(SECONDS):
        reading = asyncio.ensure_future(read(first))
        await held.wait_reached()
        iteration = aiter(again)
        so_far = [await anext(iteration) for _ in range(len(STORED) + 1)]
        assert [kind(event) for event in so_far] == [*STORED, "model_requested"]
        rest = asyncio.ensure_future(read(iteration))
        await rounds()
        held.release()
        live, afterwards = await reading, await rest
    assert [event.text for event in afterwards if isinstance(event, TextDelta)] == ["ne."]
    assert [*so_far, *[each for each in afterwards if each.durable]] == [event for event in live if event.durable]
    assert again.run_id == first.run_id
    assert (await again.outcome()).text == "Done."
    assert len(model.requests) == 2


async def test_a_prompt_that_waits_for_its_turn_twice_is_answered_once_and_shown_twice():
    held = pause()
    model = ScriptedModel([held, TextDelta("One."), ReplyFinished()], "Two.")
    agent = Agent(model, store=MemoryStore())
    async with asyncio.timeout(SECONDS):
        going = asyncio.ensure_future(agent.session("s").run("a"))
        await held.wait_reached()
        streams = [agent.session("s").stream("b", input_id="mail-1") for _ in range(2)]
        reading = [asyncio.ensure_future(read(stream)) for stream in streams]
        await rounds()
        held.release()
        await going
        live, again = await asyncio.gather(*reading)
    assert again == [event for event in live if event.durable] != []
    assert len(model.requests) == 2


async def waiting_session(*replies: Any, **options: Any) -> Any:
    """A session whose run waits for a permission."""
    model = ScriptedModel(call("act"), *replies)
    gate = Permissions(handler=later)
    session = Agent(model, tools=[act], permission=gate, store=MemoryStore(), **options).session("s")
    outcome = await session.run("Go")
    assert outcome.status == "waiting"
    await session.answer(outcome.questions[0].ask_id, True)
    return session, outcome


async def test_a_resumed_run_can_be_streamed():
    session, before = await waiting_session("Done.")
    stream = session.resume_stream()
    events = await read(stream)
    kinds = [kind(event) for event in events]
    assert kinds[:2] == ["session_opened", "run_resumed"]
    assert kinds[-1] == "run_ended"
    assert "tool_finished" in kinds
    assert [event.text for event in events if isinstance(event, TextDelta)] == ["Done."]
    assert {event.run_id for event in events} == {before.run_id} == {stream.run_id}
    assert (await stream.outcome()).text == "Done."


async def test_a_resumed_run_can_be_streamed_from_another_object_and_cancelled_there():
    held = pause()
    session, _ = await waiting_session([TextDelta("Do"), held, ReplyFinished()])
    stream = session.agent.session("s").resume_stream(backpressure=True)
    async with asyncio.timeout(SECONDS):
        reading = asyncio.ensure_future(read(stream))
        await held.wait_reached()
        assert await stream.cancel()
        events = await reading
    assert [event.status for event in of(events, RunEnded)] == ["cancelled"]


async def test_a_resume_that_waits_for_its_turn_can_be_cancelled():
    held = Held()
    session = Agent(ScriptedModel(call("held"), "Done."), tools=[held.tool]).session("s")
    async with asyncio.timeout(SECONDS):
        going = asyncio.ensure_future(session.run("Go"))
        await held.started.wait()
        stream = session.resume_stream()
        reading = asyncio.ensure_future(read(stream))
        await rounds()
        assert await stream.cancel()
        held.released.set()
        assert (await going).status == "done"
        with pytest.raises(UsageError, match="nothing to resume"):
            await reading


async def test_partial_values_of_a_resumed_run_can_be_read():
    session, _ = await waiting_session('{"n": 5}')
    assert [each async for each in session.resume_stream(output=Number).partials()][-1] == {"n": 5}


async def test_there_must_be_something_to_resume():
    session = Agent(ScriptedModel("Done.")).session("s")
    with pytest.raises(SessionNotFound, match="use run"):
        await read(session.resume_stream())
    await session.run("Go")
    with pytest.raises(UsageError, match="nothing to resume"):
        await session.resume_stream().outcome()


@pytest.mark.parametrize("option", ["take_over", "unpark"])
async def test_options_of_a_streamed_resume_are_checked_at_once(option):
    with pytest.raises(ConfigError, match=rf"session.resume_stream.*{option}"):
        Agent(ScriptedModel()).session("s").resume_stream(**{option: "yes"})  # type: ignore[call-overload]


# -- slow readers of stored runs ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
@pytest.mark.parametrize("numbers", [True, False])
async def test_a_slow_reader_of_a_stream_misses_no_stored_entry(kind, numbers, tmp_path):
    """The run is over, with thousands of events, before the reader looks at the second one."""

    @tool(effect="read")
    async def look(place: int) -> str:
        """Looks."""
        return f"nothing at {place}"

    places = 400  # in few turns: where each goes on from the log, twice as many would take four times as long
    script = [assistant([call("look", place=ten + place) for place in range(10)]) for ten in range(0, places, 10)]
    agent = Agent(
        ScriptedModel(*script, "Nothing. " * 50, chunk=3),
        tools=[look],
        limits=Limits(max_turns=None),
        guardrails=(),
        store="memory:" if kind == "memory" else f"sqlite:{tmp_path}/sessions.db",
    )
    session = agent.session("s")
    stream = session.stream("Look around.")
    got: list[Any] = []
    async with asyncio.timeout(SECONDS):
        async for each in stream.entries() if numbers else stream:
            got.append(each)
            if len(got) == 5:
                await stream.outcome()
    events = [each.event if numbers else each for each in got]
    assert of(events, Lagged)
    assert sum(marker.missed for marker in of(events, Lagged)) > places
    stored = await agent.store.read("s")
    if numbers:
        assert [entry.seq for entry in got if entry.seq] == [entry.seq for entry in stored]
    assert [event for event in events if type(event).durable] == [entry.event for entry in stored]


async def test_what_is_stored_while_a_second_reader_reads_the_log_is_shown_to_it_once() -> None:
    held = pause()

    class SlowlyReadStore(MemoryStore):
        is_slow = False

        async def read(self, session_id: str, *, after: int = 0) -> list[Entry]:
            if self.is_slow:
                self.is_slow = False
                held.release()
                await asyncio.wait((reading,), timeout=SECONDS)
            return await super().read(session_id, after=after)

    store = SlowlyReadStore()
    model = ScriptedModel(call("look"), [TextDelta("Do"), held, TextDelta("ne."), ReplyFinished()])
    agent = Agent(model, tools=[look], store=store)
    first, again = (agent.session("s").stream("Go", input_id="mail-1") for _ in range(2))
    async with asyncio.timeout(SECONDS):
        reading = asyncio.ensure_future(read(first))
        await held.wait_reached()
        store.is_slow = True
        entries = [entry async for entry in again.entries()]
    assert [entry for entry in entries if entry.seq] == await store.read("s")
