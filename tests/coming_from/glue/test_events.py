"""Glue's events, with our names."""

import asyncio

from perdure import Agent, ToolCall, tool
from perdure.engines import Run, react
from perdure.events import (
    Custom,
    ErrorRaised,
    MessageAdded,
    ModelRequested,
    RunEnded,
    RunStarted,
    TextDelta,
    ThinkingDelta,
    ToolFinished,
    ToolStarted,
    TurnEnded,
    TurnStarted,
)
from perdure.testing import Recorder, Reply, ScriptedModel, call, calls
from tests.coming_from.shows import shows
from tests.doubles import SECONDS


@tool(effect="read")
def weather(city: str) -> str:
    """Today's weather for a city."""
    return f"Rain in {city}."


@shows(
    "glue",
    "Event",
    "Event.Type",
    "Event.Message",
    "Event.Messages",
    "Event.Delta",
    "Event.ToolCall",
    "Event.ToolCallID",
    "Event.ToolName",
    "Event.ToolResult",
    "EventType",
    "EventLoopStart",
    'EventType."loop_start"',
    "EventLoopEnd",
    'EventType."loop_end"',
    "EventTurnStart",
    'EventType."turn_start"',
    "EventTurnEnd",
    'EventType."turn_end"',
    "EventMessageStart",
    'EventType."message_start"',
    "EventMessageEnd",
    'EventType."message_end"',
    "EventTextDelta",
    'EventType."text_delta"',
    "EventToolStart",
    'EventType."tool_start"',
    "EventToolEnd",
    'EventType."tool_end"',
)
async def test_a_run_is_told_in_events_of_a_class_for_each_kind():
    recorder = Recorder()
    first = Reply("I look.", thinking="Hm.", calls=[ToolCall("c1", "weather", '{"city":"Oslo"}')])
    session = Agent(ScriptedModel(first, "Rain."), tools=[weather], watchers=[recorder]).session("oslo")
    outcome = await session.run("Rain?")
    assert [type(event) for event in recorder.events[1:]] == [
        RunStarted,
        MessageAdded,
        TurnStarted,
        ModelRequested,
        ThinkingDelta,
        TextDelta,
        type(recorder.events[7]),  # the arguments of the call, as they stream
        MessageAdded,
        ToolStarted,
        ToolFinished,
        TurnEnded,
        TurnStarted,
        ModelRequested,
        TextDelta,
        MessageAdded,
        TurnEnded,
        RunEnded,
    ]
    assert [event.text for event in recorder.of(TextDelta)] == ["I look.", "Rain."]
    (thought,), (started,), (finished,) = (
        recorder.of(ThinkingDelta),
        recorder.of(ToolStarted),
        recorder.of(ToolFinished),
    )
    assert thought.text == "Hm."
    assert (started.call_id, started.name) == (finished.call_id, finished.name) == ("c1", "weather")
    assert finished.result.text == "Rain in Oslo."
    prompt, reply, answer = [event.message for event in recorder.of(MessageAdded)]
    assert reply.tool_calls == (ToolCall("c1", "weather", '{"city":"Oslo"}'),)
    assert [prompt, reply, outcome.new_messages[2], answer] == list(outcome.new_messages)
    numbers = [entry.seq for entry in recorder.entries if entry.seq]
    assert numbers == list(range(1, len(numbers) + 1))


@shows("glue", "EventToolEnd")
async def test_the_end_of_a_call_is_told_as_soon_as_it_is_done():
    recorder, told = Recorder(), asyncio.Event()

    async def watch(entry):
        if isinstance(entry.event, ToolFinished):
            told.set()

    @tool(effect="read")
    async def quick() -> str:
        """Be quick."""
        return "quick"

    @tool(effect="read")
    async def slow() -> str:
        """Wait until the other call is told to be done."""
        await told.wait()
        return "slow"

    model = ScriptedModel(calls(call("slow"), call("quick")), "Done.")
    async with asyncio.timeout(SECONDS):
        await Agent(model, tools=[quick, slow], watchers=[recorder, watch]).run("Go.")
    assert [event.name for event in recorder.of(ToolFinished)] == ["quick", "slow"]


@shows("glue", "Event.Error", "EventError", 'EventType."error"')
async def test_an_error_that_ends_a_run_and_one_that_does_not_are_both_told():
    recorder = Recorder()
    await Agent(ScriptedModel(ConnectionError("no route")), watchers=[recorder]).run("Rain?")
    (ended,) = recorder.of(RunEnded)
    assert (ended.status, ended.reason, ended.error) == ("failed", "ConnectionError", "no route")

    async def broken_gate(requests):
        raise RuntimeError("the gate is stuck")

    recorder = Recorder()
    model = ScriptedModel(call("weather", city="Oslo"), "I may not look.")
    agent = Agent(model, tools=[weather], permission=broken_gate, watchers=[recorder])
    assert (await agent.run("Rain?")).text == "I may not look."
    (error,) = recorder.of(ErrorRaised)
    assert (error.error, error.message, error.where) == ("RuntimeError", "the gate is stuck", "the permission gate")


@shows("glue", "Event.Metadata")
async def test_events_of_your_own_have_data_of_your_own():
    async def engine(run: Run):
        await run.emit(Custom("cost centre", {"number": 7}))
        return await react(run)

    recorder = Recorder()
    session = Agent(ScriptedModel("Rain."), engine=engine, watchers=[recorder]).session("oslo")
    await session.run("Rain?")
    (own,) = recorder.of(Custom)
    assert (own.name, own.data) == ("cost centre", {"number": 7})
    assert own in [entry.event for entry in await session.store.read("oslo")]
