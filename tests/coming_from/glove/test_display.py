"""The display of a session, as Glove's reference describes `Displaymanager`, `Slot` and `Renderer`."""

import asyncio
from collections.abc import Mapping
from contextlib import aclosing
from typing import Any

import pytest

from perdure import Agent, ConfigError, NotAnswered, ToolContext, tool
from perdure.context import Command, ShortCircuit
from perdure.events import QuestionAsked, SlotOpened
from perdure.people import Askable, Confirm, PlainText, Showable, SlotView, Table
from perdure.testing import FakeClock, Recorder, ScriptedModel, call
from tests.coming_from.glove.slots import wait_for_slots
from tests.coming_from.outcomes import present, results_of
from tests.coming_from.shows import shows
from tests.doubles import SECONDS, until


class Seats(Showable, frozen=True):
    """A kind of slot of one's own."""

    renderer = "seat_map"

    rows: int


class SeatChoice(Askable[str], frozen=True):
    """A question of one's own, whose answer is a seat."""

    renderer = "seat_picker"

    rows: int

    @property
    def output(self) -> Mapping[str, Any]:
        return {"type": "string", "pattern": "^[0-9]+[A-F]$"}


def session_of(*replies: Any, **options: Any):
    return Agent(ScriptedModel(*replies), answer_timeout_seconds=60, **options).session("s")


@shows(
    "glove",
    "Displaymanager",
    "Glove.displayManager",
    "GloveConfig.displayManager",
    "Displaymanager.pushAndForget",
    "Displaymanager.removeSlot",
    "Displaymanager.clearStack",
    "DisplayManagerAdapter.stack",
    "Slot",
    "Slot.id",
    "Slot.renderer",
    "Slot.input",
    "glove-core/display-manager",
)
async def test_slots_are_pushed_updated_listed_in_order_and_removed(disk_store):
    session = Agent(ScriptedModel(), store=disk_store).session("s")
    first = await session.display.push(PlainText("Hello."))
    second = await session.display.push(Table(["city"], [["Oslo"]]))
    await session.display.update(first, PlainText("Hello again."))
    elsewhere = Agent(ScriptedModel(), store=disk_store).session("s")
    slots = await elsewhere.display.slots()
    assert [(each.slot_id, each.renderer, each.input) for each in slots] == [
        (first, "text", {"text": "Hello again."}),
        (second, "table", {"columns": ["city"], "rows": [["Oslo"]]}),
    ]
    assert isinstance(slots[0], SlotView)
    assert await elsewhere.display.remove(first)
    assert [each.slot_id for each in await session.display.slots()] == [second]
    await session.display.push(PlainText("One more."))
    assert await session.display.clear() == 2
    assert await session.display.slots() == []


@shows("glove", "Glove.displayManager", "Displaymanager.pushAndForget", "Displaymanager.removeSlot", "Slot")
async def test_tools_and_commands_push_slots_too():
    @tool(effect="read")
    async def search(context: ToolContext[Any]) -> str:
        """Search for seats."""
        waiting = await context.display.push(PlainText("Searching."))
        await context.display.update(waiting, PlainText("Still searching."))
        await context.display.remove(waiting)
        await context.display.push(Seats(30))
        return "found"

    async def help_people(context) -> ShortCircuit:
        await context.controls.display.push(PlainText("Ask me anything."), slot_id="help")
        return ShortCircuit("See above.")

    seen = Recorder()
    session = session_of(call("search"), "Done.", tools=[search], commands=[Command("help", help_people)])
    await session.run("Go", watchers=[seen])
    await session.run("/help")
    assert [each.renderer for each in seen.of(SlotOpened)] == ["text", "seat_map"]
    slots = await session.display.slots()
    assert [(each.renderer, each.input) for each in slots] == [
        ("seat_map", {"rows": 30}),
        ("text", {"text": "Ask me anything."}),
    ]


@shows(
    "glove",
    "Displaymanager.pushAndWait",
    "Displaymanager.resolve",
    "Displaymanager.reject",
    "Displaymanager.registerRenderer",
    "Renderer",
    "Renderer.name",
    "Renderer.inputSchema",
    "Renderer.outputSchema",
    "Slot",
)
async def test_a_tool_waits_for_an_answer_that_fits_the_schema_or_for_a_rejection():
    @tool(effect="read")
    async def choose(context: ToolContext[Any]) -> str:
        """Let the user choose a seat."""
        try:
            return f"seat {await context.ask(SeatChoice(30))}"
        except NotAnswered as error:
            return f"no seat: {error}"

    seen = Recorder()
    session = session_of(call("choose"), call("choose"), "Done.", tools=[choose], watchers=[seen])
    running = asyncio.ensure_future(session.run("Go"))
    async with asyncio.timeout(SECONDS):
        [slot] = await wait_for_slots(session, 1)
        assert (slot.renderer, slot.input, slot.waits) == ("seat_picker", {"rows": 30}, True)
        assert present(slot.output)["pattern"] == "^[0-9]+[A-F]$"
        with pytest.raises(ConfigError):
            await session.display.resolve(slot.slot_id, "by the window")
        assert await session.display.resolve(slot.slot_id, "12A")
        assert not await session.display.resolve(slot.slot_id, "13B")
        await until(lambda: len(seen.of(QuestionAsked)) == 2, 0.001)
        [other] = await wait_for_slots(session, 1)
        assert other.slot_id != slot.slot_id
        assert await session.display.reject(other.slot_id, "the plane is full")
        outcome = await running
    first, second = [each.text for each in results_of(outcome)]
    assert first == "seat 12A"
    assert second.startswith("no seat: ")
    assert "the plane is full" in second
    with pytest.raises(ConfigError):
        Table(["city"], [["Oslo", "Bergen"]])


@shows("glove", "Displaymanager.pushAndWait", "Displaymanager")
async def test_a_question_outlives_the_process_that_asked_it(disk_store):
    @tool(asks_first=True)
    async def book(context: ToolContext[Any]) -> str:
        """Book a flight."""
        sure = await context.ask(Confirm("Book it?"))
        await context.begin()
        return "booked" if sure else "not booked"

    agent = Agent(ScriptedModel(call("book")), tools=[book], store=disk_store)
    assert (await agent.session("s").run("Go")).status == "waiting"
    later = agent.replace(model=ScriptedModel("Enjoy.")).session("s")
    [slot] = await later.display.slots()
    assert await later.display.resolve(slot.slot_id, True)
    outcome = await later.resume()
    assert (outcome.text, outcome.messages[-2].tool_results[0].text) == ("Enjoy.", "booked")


@shows("glove", "Displaymanager.pushAndWait", "Displaymanager.removeSlot", "Displaymanager.clearStack")
async def test_the_host_asks_as_well_and_removing_a_question_releases_whoever_waits():
    session = session_of()
    async with asyncio.timeout(SECONDS):
        asking = asyncio.ensure_future(session.display.ask(Confirm("Sure?")))
        [slot] = await wait_for_slots(session, 1)
        await session.display.resolve(slot.slot_id, True)
        assert await asking is True
        for release in (session.display.remove, lambda _: session.display.clear()):
            asking = asyncio.ensure_future(session.display.ask(Confirm("Sure?")))
            [slot] = await wait_for_slots(session, 1)
            await release(slot.slot_id)
            with pytest.raises(NotAnswered):
                await asking


@shows("glove", "Displaymanager.pushAndWait")
async def test_a_question_has_a_timeout():
    clock = FakeClock()
    session = session_of(clock=clock)
    async with asyncio.timeout(SECONDS):
        asking = asyncio.ensure_future(session.display.ask(Confirm("Sure?"), timeout_seconds=60))
        await wait_for_slots(session, 1)
        await clock.advance(60)
        with pytest.raises(NotAnswered):
            await asking
    assert await session.display.slots() == []


@shows("glove", "Displaymanager.subscribe", "ListenerFn")
async def test_a_subscriber_gets_the_whole_stack_after_each_change():
    session = session_of("Hi.")
    seen: list[list[str]] = []

    async def listen() -> None:
        async with aclosing(session.display.subscribe()) as changes:
            async for stack in changes:
                texts = [slot.input["text"] for slot in stack]
                seen.append(texts)

    listening = asyncio.ensure_future(listen())
    async with asyncio.timeout(SECONDS):
        await until(lambda: seen == [[]], 0.001)
        slot_id = await session.display.push(PlainText("a"))
        await until(lambda: seen[-1] == ["a"], 0.001)
        await session.display.push(PlainText("b"))
        await until(lambda: seen[-1] == ["a", "b"], 0.001)
        await session.display.remove(slot_id)
        await until(lambda: seen[-1] == ["b"], 0.001)
    listening.cancel()
    await asyncio.wait([listening])
    await session.display.push(PlainText("c"))
    assert seen == [[], ["a"], ["a", "b"], ["b"]]


class Screen:
    """A display of the host's own."""

    def __init__(self) -> None:
        self.shown: list[str] = []
        self.closed = 0

    async def show(self, slot: SlotView) -> None:
        self.shown.append(slot.text or slot.input["text"])

    async def close(self, slot_id: str) -> None:
        self.closed += 1

    async def ask(self, slot: SlotView) -> bool:
        return slot.text == "Deeper?"


@shows("glove", "DisplayManagerAdapter", "Glove.setDisplayManager")
async def test_displays_of_the_host_are_connected_at_any_time_and_show_what_subagents_show():
    @tool(effect="read")
    async def dig(context: ToolContext[Any]) -> str:
        """Dig."""
        await context.display.push(PlainText("Digging."), until="call")
        return str(await context.ask(Confirm("Deeper?")))

    child = Agent(ScriptedModel(call("dig"), "Dug."), name="digger", description="Digs.", tools=[dig])
    session = session_of(call("digger", task="Dig."), "Done.", tools=[child.as_tool()])
    first, second = Screen(), Screen()
    async with asyncio.timeout(SECONDS), session.display.connect(first):
        async with session.display.connect(second):
            await session.display.push(PlainText("Hello."), slot_id="hello")
            assert (await session.run("Go")).text == "Done."
            await until(lambda: first.closed == second.closed == 2, 0.001)
        await session.display.remove("hello")
        await until(lambda: first.closed == 3, 0.001)
    assert first.shown == second.shown == ["Hello.", "Digging.", "Deeper?"]
    assert second.closed == 2
