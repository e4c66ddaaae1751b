"""A run as an async iterator, and how its events merge for a reader who falls behind."""

import asyncio
import gc
from typing import Any

import pytest

from perdure import Agent, RunStream, StoreError, UsageError, tool
from perdure.core.event import (
    Entry,
    Event,
    Lagged,
    MessageAdded,
    ReplyFinished,
    RunEnded,
    TextDelta,
    ThinkingDelta,
    ToolCallDelta,
    ToolFinished,
    WatcherDropped,
)
from perdure.core.message import user
from perdure.runtime.stream import MAX_MERGED_CHARACTERS, build_lag_marker, build_watcher_dropped, merge_deltas
from perdure.testing import ScriptedModel, call, pause
from tests.doubles import SECONDS, Held, WaitingStore, kind, log_of, of, rounds

pytestmark = pytest.mark.resumed


@tool(effect="read")
async def look() -> str:
    """Looks."""
    return "there"


async def read(stream: RunStream) -> list[Event]:
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


# -- merging -----------------------------------------------------------------------------------------------------------


def merged(one: Event, two: Event) -> Event | None:
    entry = merge_deltas(Entry(0, 1.0, one), Entry(0, 2.0, two))
    if entry is None:
        return None
    assert (entry.seq, entry.at) == (0, 2.0)
    return entry.event


@pytest.mark.parametrize(
    ("one", "two", "both"),
    [
        (TextDelta("a", run_id="r"), TextDelta("b", run_id="r"), TextDelta("ab", run_id="r")),
        (ThinkingDelta("a", index=1), ThinkingDelta("b", index=1), ThinkingDelta("ab", index=1)),
        (
            ToolCallDelta("c", "look", '{"a', index=2, path="child"),
            ToolCallDelta("", "", '":1}', "sig", 2, path="child"),
            ToolCallDelta("c", "look", '{"a":1}', "sig", 2, path="child"),
        ),
    ],
    ids=["text", "thinking", "a call"],
)
def test_deltas_of_the_same_thing_merge(one, two, both):
    assert merged(one, two) == both


@pytest.mark.parametrize(
    ("one", "two"),
    [
        (TextDelta("a"), ThinkingDelta("b")),
        (TextDelta("a", run_id="r1"), TextDelta("b", run_id="r2")),
        (TextDelta("a"), TextDelta("b", path="child")),
        (TextDelta("x" * (MAX_MERGED_CHARACTERS + 1)), TextDelta("b")),
        (ThinkingDelta("a", index=1), ThinkingDelta("b", index=2)),
        (ThinkingDelta("a"), ThinkingDelta("", "signature")),
        (ThinkingDelta("", data="secret"), ThinkingDelta("b")),
        (ThinkingDelta("x" * (MAX_MERGED_CHARACTERS + 1)), ThinkingDelta("b")),
        (ToolCallDelta("c1", index=1), ToolCallDelta("c2", index=2)),
        (ToolCallDelta("c1", index=1), ToolCallDelta("c2", index=1)),
        (ToolCallDelta("c1", arguments="x" * (MAX_MERGED_CHARACTERS + 1)), ToolCallDelta(arguments="y")),
        (MessageAdded(user("a")), MessageAdded(user("a"))),
    ],
)
def test_anything_else_stays_apart(one, two):
    assert merged(one, two) is None


def test_a_marker_tells_how_much_was_missed_and_from_where_to_read():
    passing, kept, later = Entry(0, 1.0, TextDelta("a")), Entry(7, 2.0, TextDelta("b")), Entry(9, 3.0, TextDelta("c"))
    first = build_lag_marker(passing, None)
    assert first.event == Lagged(1, None)
    second = build_lag_marker(kept, first)
    assert second.event == Lagged(2, 6)
    assert build_lag_marker(later, second).event == Lagged(3, 6)
    assert build_lag_marker(kept, passing).event == Lagged(1, 6)


def test_a_dropped_watcher_is_told_with_its_error_whatever_that_does_when_it_is_shown():
    class Hostile(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no")

    assert build_watcher_dropped("screen", ValueError("no luck")) == WatcherDropped("screen", "ValueError: no luck")
    assert build_watcher_dropped("screen", Hostile()) == WatcherDropped("screen", "Hostile: (no readable message)")
