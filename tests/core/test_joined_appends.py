"""A reply is stored with the intents of its calls, a result with the next request, where nothing can come between."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from perdure import Agent, Extension, Message, Outcome, Permissions, StoreError, Tool, allow, tool
from perdure.engines import Accepted, Run, react, run_turn
from perdure.events import Entry, MessageAdded, ModelRequested, RunEnded, ToolFinished, ToolStarted
from perdure.stores import Fenced, Lease, MemoryStore
from perdure.testing import Recorder, ScriptedModel, call, calls
from perdure.tools import before
from tests.doubles import SECONDS, NotedStore, WaitingStore, kind, log_of, of

pytestmark = pytest.mark.resumed

OPENING = (["run_started", "message_added"], True)


@tool(effect="read")
async def look() -> str:
    """Look."""
    return "nothing there"


@tool
async def act() -> str:
    """Act."""
    return "acted"


async def appends_of(*replies: Any, **options: Any) -> list[tuple[list[str], bool]]:
    """The appends of a run with these replies."""
    store = NotedStore()
    await Agent(ScriptedModel(*replies), store=store, **options).session("s").run("Go")
    return [(append.kinds, append.sync) for append in store.appends]


@pytest.mark.in_memory("appends are counted")
async def test_a_run_appends_where_something_is_about_to_begin():
    assert await appends_of(call("act"), call("look"), "Done.", tools=[act, look]) == [
        OPENING,
        (["model_requested"], False),
        (["message_added", "tool_started"], True),
        (["tool_finished", "model_requested"], False),
        (["message_added", "tool_started"], False),
        (["tool_finished", "model_requested"], False),
        (["message_added", "run_ended"], True),
    ]


@pytest.mark.in_memory("appends are counted")
async def test_the_results_of_calls_that_run_together_are_stored_one_by_one():
    assert await appends_of(calls(call("look"), call("look")), "Done.", tools=[look]) == [
        OPENING,
        (["model_requested"], False),
        (["message_added", "tool_started", "tool_started"], False),
        (["tool_finished"], False),
        (["tool_finished"], False),
        (["model_requested"], False),
        (["message_added", "run_ended"], True),
    ]


@pytest.mark.in_memory("appends are counted")
async def test_what_watchers_are_shown_is_stored_at_once():
    recorder = Recorder()
    assert await appends_of(call("look"), "Done.", tools=[look], watchers=[recorder]) == [
        OPENING,
        (["model_requested"], False),
        (["message_added"], False),
        (["tool_started"], False),
        (["tool_finished"], False),
        (["model_requested"], False),
        (["message_added"], False),
        (["run_ended"], True),
    ]


class Seen:
    """What a function of the program finds in the log each time that it is called."""

    def __init__(self) -> None:
        self.store = MemoryStore()
        self.logs: list[list[str]] = []

    def look(self, *_: object) -> None:
        self.logs.append([kind(entry.event) for entry in self.store._sessions["s"].entries])

    def returning(self, value: Any) -> Callable[..., Any]:
        def function(*_: object) -> Any:
            self.look()
            return value

        return function

    def passing(self, function: Callable[[Any], Any]) -> Callable[[Any], Any]:
        def passed(value: Any) -> Any:
            self.look()
            return function(value)

        return passed

    async def between(self, _: Run) -> None:
        self.look()

    def asking_tool(self) -> Tool[..., Any]:
        @tool(asks_first=True)
        async def act() -> str:
            """Act."""
            self.look()
            return "acted"

        return act


OPTIONS: dict[str, Callable[[Seen], dict[str, Any]]] = {
    "stop": lambda seen: {"stop": seen.returning(value=False)},
    "guardrails": lambda seen: {"guardrails": [lambda: seen.returning(None)]},
    "output_validators": lambda seen: {"output_validators": [seen.returning(Accepted())]},
    "history_processor": lambda seen: {"history_processor": seen.passing(lambda messages: messages)},
    "permission": lambda seen: {"permission": seen.passing(Permissions(allow("*")))},
    "between_turns": lambda seen: {"extensions": [Extension(name="x", between_turns=[seen.between])]},
    "reminders": lambda seen: {"extensions": [Extension(name="x", reminders=[seen.returning("")])]},
    "prepare": lambda seen: {"tools": [before(act, seen.look)]},
    "asks_first": lambda seen: {"tools": [seen.asking_tool()]},
}


@pytest.mark.in_memory("the store is looked into")
@pytest.mark.parametrize("option", OPTIONS)
async def test_code_of_the_program_finds_everything_stored_that_has_happened(option: str):
    seen = Seen()
    options = {"tools": [act], **OPTIONS[option](seen)}
    model = ScriptedModel(call("act"), "Done.")
    outcome = await Agent(model, store=seen.store, **options).session("s").run("Go")
    assert (outcome.status, outcome.text) == ("done", "Done.")
    whole = [kind(event) for event in await log_of(seen.store, "s")]
    first_turn = ["run_started", "message_added", "model_requested", "message_added"]
    expected = {
        "stop": [[*first_turn, "tool_started", "tool_finished"], whole[:-1]],
        "guardrails": [[*first_turn, "tool_started", "tool_finished"]],
        "output_validators": [whole[:-1]],
        "history_processor": [first_turn[:2], [*first_turn, "tool_started", "tool_finished"]],
        "permission": [first_turn],
        "between_turns": [first_turn[:2], first_turn, [*first_turn, "tool_started", "tool_finished"]],
        "reminders": [first_turn[:2], [*first_turn, "tool_started", "tool_finished"]],
        "prepare": [first_turn],
        "asks_first": [first_turn],
    }
    assert seen.logs == expected[option]


@pytest.mark.in_memory("an engine is code")
async def test_an_engine_gets_replies_that_are_stored():
    logs: list[list[str]] = []
    store = MemoryStore()

    async def engine(run: Run) -> Outcome[Any]:
        await run_turn(run)
        logs.append([kind(event) for event in await log_of(store, "s")])
        await react(run)
        logs.append([kind(event) for event in await log_of(store, "s")])
        return run.outcome("done")

    await Agent(ScriptedModel(call("look"), "Done."), tools=[look], engine=engine, store=store).session("s").run("Go")
    assert logs[0][-1] == "message_added"
    assert logs[1][-2:] == ["model_requested", "message_added"]


async def test_a_message_that_arrives_meanwhile_follows_what_was_known_before():
    agent = Agent(ScriptedModel(call("tell"), "First.", "Second."), tools=[])

    @tool
    async def tell() -> str:
        """Post a message to the session."""
        await agent.session("s").steer("And this?", post_id="post")
        return "told"

    agent = agent.replace(tools=[tell])
    await agent.session("s").run("Go")
    entries = await agent.store.read("s")
    (delivered,) = [entry for entry in entries if entry.id == "post"]
    assert isinstance(delivered.event, MessageAdded)
    assert isinstance(entries[delivered.seq - 2].event, ToolFinished)


@pytest.mark.in_memory("the run is made to fail")
async def test_a_cancel_finds_the_reply_and_its_calls_settled():
    @tool
    async def leave() -> str:
        """Cancel the run from inside."""
        await session.cancel("after_tools")
        return "left"

    session = Agent(ScriptedModel(call("leave"), "Done."), tools=[leave]).session("s")
    assert (await session.run("Go")).status == "cancelled"
    events = await log_of(session.store, "s")
    assert [type(event) for event in events[-4:]] == [MessageAdded, ToolStarted, ToolFinished, RunEnded]


class BrokenStore(NotedStore):
    """A store that cannot take a result: not because of its disk, but because of an error in it."""

    def append_now(self, lease: Lease, entries: Sequence[Entry], *, sync: bool) -> bool:
        if any(isinstance(entry.event, ToolFinished) for entry in entries):
            raise ValueError("odd")
        return super().append_now(lease, entries, sync=sync)


@pytest.mark.in_memory("the store is broken")
async def test_a_run_does_not_go_on_from_what_cannot_be_stored():
    session = Agent(ScriptedModel(call("look"), "Done."), tools=[look], store=BrokenStore()).session("s")
    with pytest.raises(StoreError, match="cannot store what has happened: odd"):
        await session.run("Go")
    assert isinstance((await log_of(session.store, "s"))[-1], ToolStarted)


@pytest.mark.in_memory("the store waits")
async def test_a_cancel_while_a_result_and_a_request_are_stored_comes_when_they_are():
    store = WaitingStore()
    store.holds_back = ToolFinished
    store.open.clear()
    session = Agent(ScriptedModel(call("look"), "Done."), tools=[look], store=store).session("s")
    task = asyncio.ensure_future(session.run("Go"))
    async with asyncio.timeout(SECONDS):
        await store.waiting.wait()
        task.cancel()
        store.open.set()
        with pytest.raises(asyncio.CancelledError):
            await task
    events = await log_of(store, "s")
    assert len(of(events, ToolFinished)) == 1
    assert len(of(events, ModelRequested)) == 2
    assert [event.status for event in of(events, RunEnded)] == ["cancelled"]


@pytest.mark.in_memory("an engine is code")
async def test_a_run_that_was_abandoned_holds_nothing():
    held: list[bool] = []

    async def engine(run: Run) -> Outcome[Any]:
        run.joins_appends = True
        added = MessageAdded(Message("user"), run_id=run.run_id)
        run.is_abandoned = True
        held.append(run.hold([added]))
        with pytest.raises(Fenced):
            await run.emit(added)
        run.is_abandoned = False
        return run.outcome("done")

    await Agent(ScriptedModel("Done."), engine=engine).run("Go")
    assert held == [False]
