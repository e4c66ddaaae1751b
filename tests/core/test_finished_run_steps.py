"""The record of a run: each turn and each tool call, with its times."""

from typing import Any

import pytest

from perdure import (
    Agent,
    Message,
    Outcome,
    Permissions,
    Text,
    ToolCall,
    ToolContext,
    ToolResult,
    assistant,
    deny,
    tool,
    user,
)
from perdure._core.log.past_runs import list_run_steps
from perdure.engines import PrivateRunTask, Run, run_privately, run_turn
from perdure.events import (
    Custom,
    Entry,
    MessageAdded,
    ModelReplied,
    ModelRequested,
    RunStarted,
    ToolFinished,
    ToolStarted,
)
from perdure.permissions import later
from perdure.stores import MemoryStore
from perdure.testing import FakeClock, Reply, ScriptedModel, call, calls
from tests.doubles import crashed


@tool(effect="read")
async def look(context: ToolContext[FakeClock]) -> str:
    """Looks, which takes two seconds."""
    await context.deps.advance(2)
    return "there"


@pytest.fixture
def clock():
    return FakeClock()


async def test_an_outcome_lists_its_turns_and_calls_with_their_times(clock):
    began = clock.now()
    agent = Agent(ScriptedModel(call("look"), "Done."), tools=[look], clock=clock, deps=clock)
    outcome = await agent.run("Go.")
    first, second = outcome.steps
    assert (first.turn, first.model, first.requested_at, first.replied_at) == (1, "scripted", began, began)
    (made,) = outcome.tool_calls
    assert (made.name, made.arguments, made.started_at, made.finished_at) == ("look", "{}", began, began + 2)
    assert made.duration_seconds == 2
    assert made.result is not None
    assert made.result.text == "there"
    assert first.tool_calls == (made,)
    assert (second.turn, second.tool_calls, second.requested_at) == (2, (), began + 2)
    assert second.reply is not None
    assert second.reply.text == "Done."
    assert (outcome.started_at, outcome.finished_at) == (began, began + 2)


async def test_a_call_that_was_denied_never_began(clock):
    agent = Agent(ScriptedModel(call("look"), "No."), tools=[look], deps=clock, permission=Permissions(deny("look")))
    (made,) = (await agent.run("Go.")).tool_calls
    assert made.started_at == 0
    assert made.finished_at > 0
    assert made.result is not None
    assert made.result.status == "denied"


async def test_a_run_that_waits_is_not_finished_and_its_record_grows_when_it_goes_on():
    @tool(permission=True)
    async def pay() -> str:
        """Pays."""
        return "paid"

    model = ScriptedModel(call("pay"), "Paid.")
    session = Agent(model, tools=[pay], permission=Permissions(handler=later), store=MemoryStore()).session("s")
    waiting = await session.run("Pay.")
    (made,) = waiting.tool_calls
    assert (waiting.finished_at, made.result, made.finished_at) == (0.0, None, 0.0)
    await session.answer(waiting.questions[0].ask_id, answer=True)
    outcome = await session.resume()
    assert [step.turn for step in outcome.steps] == [1, 2]
    assert outcome.tool_calls[0].result is not None
    assert 0 < outcome.started_at < outcome.finished_at
    again = await session.run("And?", input_id="x")
    assert (await session.run("And?", input_id="x")).steps == again.steps != []


async def test_usage_of_the_session_adds_up_over_its_runs_and_crashes():
    store = MemoryStore()
    requested = ModelRequested(1, run_id="r", estimated_tokens=70)
    await crashed(store, "s", RunStarted(run_id="r"), MessageAdded(user("Hi"), run_id="r"), requested)
    session = Agent(ScriptedModel("One.", "Two.", "Three."), store=store).session("s")
    first = await session.run("1")
    assert first.usage.total_tokens == 15
    assert first.session_usage.total_tokens == 85
    second = await session.run("2")
    assert second.session_usage.total_tokens == 100
    assert (await session.usage()).turns == 3


def test_an_outcome_without_entries_has_no_record():
    outcome = Outcome[None](status="done")
    assert (outcome.steps, outcome.tool_calls, outcome.started_at, outcome.finished_at) == ([], [], 0.0, 0.0)


def test_a_turn_whose_request_is_repeated_is_listed_once_and_other_words_are_no_reply():
    steered = Message("assistant", (Text("As if."),), origin="steering")
    result = ToolResult("c", "look")
    events = [
        MessageAdded(assistant("before")),
        ModelRequested(1, model="a"),
        ModelRequested(1, 2, model="b"),
        MessageAdded(user("wait")),
        MessageAdded(steered),
        MessageAdded(assistant([ToolCall("c", "look")])),
        ToolStarted("c", "look", "read", "k"),
        ToolStarted("c", "look", "read", "k", attempt=2),
        ToolFinished("c", "look", result, 3.0),
        Custom("x"),
        MessageAdded(assistant("once more")),
        ModelRequested(2),
    ]
    first, second = list_run_steps([Entry(seq, float(seq), event) for seq, event in enumerate(events, 1)])
    assert (first.requested_at, first.replied_at, first.model) == (2.0, 6.0, "a")
    (made,) = first.tool_calls
    assert (made.started_at, made.finished_at, made.duration_seconds, made.result) == (7.0, 9.0, 3.0, result)
    assert (second.turn, second.reply, second.replied_at) == (2, None, 0.0)


async def test_a_request_beside_the_conversation_is_a_step_with_its_reply():
    async def engine(run: Run) -> Outcome[Any]:
        await run.ask_model(run.build_request([user("A plan?")]))
        await run_turn(run)
        return run.outcome("done")

    outcome = await Agent(ScriptedModel("Look.", "Done."), engine=engine).run("Go.")
    assert [(step.turn, step.reply.text if step.reply else "") for step in outcome.steps] == [
        (1, "Look."),
        (2, "Done."),
    ]


async def test_calls_of_one_reply_are_listed_in_their_order(clock):
    agent = Agent(ScriptedModel(calls(call("look"), call("nothing")), Reply("Done.")), tools=[look], deps=clock)
    assert [made.name for made in (await agent.run("Go.")).tool_calls] == ["look", "nothing"]


def test_calls_that_are_in_no_reply_are_in_the_turn_in_which_they_were_made():
    def start(call_id: str, path: str = "", arguments: str = "{}") -> ToolStarted:
        return ToolStarted(call_id, "look", "read", "k", arguments=arguments, path=path)

    def finish(call_id: str, path: str = "") -> ToolFinished:
        return ToolFinished(call_id, "look", ToolResult(call_id, "look"), path=path)

    events = [
        start("engine_1"),
        finish("engine_1"),
        ModelRequested(1),
        MessageAdded(assistant([ToolCall("c", "run_program", "code")])),
        ModelRequested(1, path="task"),
        MessageAdded(assistant([ToolCall("c", "look", "own")]), path="task"),
        start("c", "task", ""),
        start("c", arguments=""),
        start("c#1-ab"),
        finish("c#1-ab"),
        start("c#2-ab"),
        finish("denied"),
        finish("c", "task"),
        finish("c"),
        ModelReplied(9, assistant("aside"), path="task"),
        MessageAdded(assistant("nowhere"), path="elsewhere"),
    ]
    steps = list_run_steps([Entry(seq, float(seq), event) for seq, event in enumerate(events, 1)])
    assert [(each.turn, each.path) for each in steps] == [(0, ""), (1, ""), (1, "task")]
    made = [[(each.call_id, each.name, each.arguments, each.caller) for each in step.tool_calls] for step in steps]
    assert made == [
        [("engine_1", "look", "{}", "engine")],
        [
            ("c", "run_program", "code", "model"),
            ("c#1-ab", "look", "{}", "program"),
            ("c#2-ab", "look", "{}", "program"),
            ("denied", "look", "", "engine"),
        ],
        [("c", "look", "own", "model")],
    ]
    assert [each.result is None for each in steps[1].tool_calls] == [False, False, True, False]


async def test_calls_of_an_engine_and_of_its_private_runs_are_in_the_outcome_and_of_a_subagent_the_task():
    async def engine(run: Run) -> Outcome[Any]:
        await run.call_tool("look", {})
        await run.call_tool("scout", {"task": "Go."})
        await run_privately(run, PrivateRunTask(name="own", prompt="Look.", offers_tools=True, max_turns=3))
        return run.outcome("done")

    clock = FakeClock()
    scout = Agent(ScriptedModel(call("look"), "Seen."), name="scout", tools=[look], deps=clock)
    agent = Agent(ScriptedModel(call("look"), "Done."), tools=[look, scout.as_tool()], engine=engine, deps=clock)
    session = agent.replace(store=MemoryStore()).session("s")
    outcome = await session.run("Go.", input_id="1")
    assert [(each.name, each.caller, each.arguments) for each in outcome.tool_calls] == [
        ("look", "engine", "{}"),
        ("scout", "engine", ""),
        ("look", "model", "{}"),
    ]
    assert [each.path for each in outcome.steps] == ["", "own", "own"]
    assert outcome.finished_at > 0
    assert (await session.run("Go.", input_id="1")).entries == outcome.entries
