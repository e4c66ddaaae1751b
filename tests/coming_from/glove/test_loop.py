"""The parts of the loop, as Glove's reference describes `Context`, `PromptMachine`, `Executor`, `Observer`, `Agent`."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from perdure import (
    Agent,
    ContextOverflow,
    Extension,
    Limits,
    Message,
    Outcome,
    Status,
    Text,
    ToolCall,
    ToolContext,
    ToolResult,
    Usage,
    assistant,
    tool,
    tool_message,
    user,
)
from perdure._tools.tasks.task_list import StatedTask
from perdure.context import FRACTION_BEFORE_TOOLS, Compaction
from perdure.engines import Run, State, react, run_turn
from perdure.events import Compacted, CompactionStarted, ToolFinished, ToolStarted, TurnEnded
from perdure.models import ModelInfo
from perdure.testing import Recorder, Reply, ScriptedModel, call
from perdure.tools import Task, task_tools, update_tasks
from tests.coming_from.outcomes import present, results_of
from tests.coming_from.shows import shows
from tests.doubles import SECONDS, Held

LONG = "Tell me a long story. " * 400
"""About 2,000 tokens."""


@tool(effect="read")
async def get_weather(city: str) -> str:
    """Get weather for a city."""
    return f"Rain in {city}."


# -- Context -----------------------------------------------------------------------------------------------------------


@shows(
    "glove",
    "Context",
    "Context.getMessages",
    "splitAtLastCompaction",
    "StoreAdapter.getMessages",
    "Observer",
    "Observer.runCompactionNow",
    "Observer.compaction_instructions",
    "CompactionConfig.compaction_instructions",
    'SubscriberEvent."compaction_start"',
    "compaction_start.current_token_consumption",
    'SubscriberEvent."compaction_end"',
    "compaction_end.current_token_consumption",
    "compaction_end.summary_message",
    "Message.is_compaction",
)
async def test_the_model_sees_the_last_summary_and_what_follows_and_the_log_keeps_everything():
    model = ScriptedModel("Once. " * 400, "The story so far.", "It goes on.", "Ever shorter.", "The end.")
    compaction = Compaction(keep_recent_messages=0, instructions="Keep every name.")
    seen = Recorder()
    session = Agent(model, compaction=compaction, watchers=[seen]).session("s")
    await session.run(LONG)
    assert await session.compact()
    await session.run("Go on.")
    assert "Keep every name." in str(model.requests[1])
    [started], [done] = seen.of(CompactionStarted), seen.of(Compacted)
    assert started.tokens > done.tokens > 0
    assert "The story so far." in done.summary.text
    assert done.summary.origin == "compaction"
    state = await session.read_state()
    assert isinstance(state, State)
    assert [each.origin for each in state.view] == ["compaction", "", ""]
    assert model.requests[2].messages == tuple(state.view[:2])
    assert [each.text for each in state.messages] == [LONG, "Once. " * 400, "Go on.", "It goes on."]
    assert await session.messages() == state.messages
    assert (await session.run("And?")).text == "Ever shorter."
    assert len(model.requests[3].messages) == 4


@shows("glove", "Context.appendMessages", "StoreAdapter.appendMessages")
async def test_messages_are_appended_between_runs_and_during_one():
    held = Held(effect="read")
    model = ScriptedModel("Yes.", call("held"), "Turned.", "Followed.")
    session = Agent(model, tools=[held.tool]).session("s")
    made, told = ToolCall("a", "get_weather", "{}"), ToolResult("a", "get_weather", (Text("Rain."),))
    brought = [user("Umbrella?"), assistant([made]), tool_message([told]), assistant("Take one.")]
    assert await session.import_messages(brought) == 4
    await session.run("Sure?")
    assert [each.role for each in model.requests[0].messages] == ["user", "assistant", "tool", "assistant", "user"]
    assert model.requests[0].messages[2].tool_results[0].text == "Rain."
    running = asyncio.ensure_future(session.run("Wait."))
    async with asyncio.timeout(SECONDS):
        await held.started.wait()
        assert await session.steer("Turn left.")
        assert await session.follow_up("And then?")
        held.released.set()
        assert (await running).text == "Followed."
    assert [request.messages[-1].text for request in model.requests[2:]] == ["Turn left.", "And then?"]


@shows(
    "glove",
    "Context.getTasks",
    "Context.addTasks",
    "Context.updateTask",
    "StoreAdapter.getTasks",
    "StoreAdapter.addTasks",
    "StoreAdapter.updateTask",
    "Task",
    "Task.id",
    "Task.content",
    "Task.activeForm",
    "Task.status",
    "TaskStatus",
    'TaskStatus."pending"',
    'TaskStatus."in_progress"',
    'TaskStatus."completed"',
    "createTaskTool",
    "glove_update_tasks",
    "TaskToolInput",
    "TaskToolInput.todos",
)
async def test_tasks_are_kept_by_the_model_and_by_the_host():
    listed = [
        {"content": "Fix the login bug", "active_form": "Fixing the login bug", "status": "in_progress"},
        {"content": "Write a test"},
    ]
    changed = [{"content": "Write a test", "status": "completed"}]
    model = ScriptedModel(call("update_tasks", tasks=listed), "Begun.", call("update_tasks", tasks=changed), "Done.")
    [task_tool] = task_tools()
    assert (task_tool.name, update_tasks.name) == ("update_tasks", "update_tasks")
    session = Agent(model, tools=[task_tool]).session("s")
    await session.run("Plan.")
    fix, write = await session.tasks()
    assert (fix.content, fix.active_form, fix.status) == ("Fix the login bug", "Fixing the login bug", "in_progress")
    assert (write.status, fix.display_text, write.display_text) == ("pending", "Fixing the login bug", "Write a test")
    assert fix.id != write.id
    await session.run("Do it.")
    assert await session.tasks() == [Task(id=write.id, content="Write a test", status="completed")]
    added = await session.set_tasks([*await session.tasks(), StatedTask("Ship it"), "Rest"])
    assert [(each.content, each.status) for each in added[1:]] == [("Ship it", "pending"), ("Rest", "pending")]
    await session.update_task(added[1].id, status="in_progress")
    assert [each.status for each in await session.tasks()] == ["completed", "in_progress", "pending"]


# -- PromptMachine -----------------------------------------------------------------------------------------------------


@shows(
    "glove",
    "PromptMachine",
    "PromptMachine.model",
    "PromptMachine.ctx",
    "PromptMachine.systemPrompt",
    "PromptMachine.addSubscriber",
    "PromptMachine.run",
    "Agent.context",
)
async def test_an_engine_prompts_the_model_turn_by_turn():
    found: dict[str, Any] = {}

    async def once(run: Run) -> Outcome[Any]:
        reply = await run_turn(run)
        found.update(reply=reply, instructions=run.instructions, view=list(run.state.view), model=run.model)
        return run.outcome("done")

    model, seen = ScriptedModel(Reply("Hi.", usage=Usage(7, 3))), Recorder()
    agent = Agent(model, instructions="You are helpful.", tools=[get_weather], engine=once, watchers=[seen])
    await agent.run("Hello")
    reply = found["reply"]
    assert (reply.text, reply.usage.input_tokens, reply.usage.output_tokens) == ("Hi.", 7, 3)
    [request] = model.requests
    assert (request.instructions, [each.name for each in request.tools]) == (found["instructions"], ["get_weather"])
    assert [each.text for each in found["view"]] == ["Hello", "Hi."]
    assert found["model"].info == model.info
    assert seen.text == "Hi."


# -- Executor ----------------------------------------------------------------------------------------------------------


@shows("glove", "Executor", "Executor.addSubscriber", "Executor.addToolCallToStack", "Executor.executeToolStack")
async def test_tools_are_called_without_a_model_with_validation_permission_and_log():
    @tool(permission=True)
    async def pay(amount: int) -> str:
        """Pay."""
        return f"paid {amount}"

    seen = Recorder()
    session = Agent(ScriptedModel(), tools=[get_weather, pay], watchers=[seen]).session("s")
    assert (await session.call("get_weather", {"city": "Tokyo"})).text == "Rain in Tokyo."
    assert (await session.call("get_weather", {"town": 5})).status is Status.ERROR
    assert (await session.call("pay", {"amount": 5})).status is Status.DENIED
    await session.aclose()
    assert [(each.name, each.result.status) for each in seen.of(ToolFinished)] == [
        ("get_weather", Status.OK),
        ("get_weather", Status.ERROR),
        ("pay", Status.DENIED),
    ]

    async def several(run: Run) -> Outcome[Any]:
        run.output = await run.call_tools([("get_weather", {"city": "Oslo"}), ("get_weather", {"city": "Rome"})])
        return run.outcome("done")

    outcome = await session.run("Go", engine=several)
    assert [each.text for each in present(outcome.output)] == ["Rain in Oslo.", "Rain in Rome."]


@shows("glove", "Executor")
async def test_the_calls_of_a_reply_run_at_the_same_time_and_their_intents_are_stored_first():
    slow, quick = Held("slow", effect="at_most_once"), Held("quick", effect="at_most_once")
    seen = Recorder()
    model = ScriptedModel(Reply(calls=[call("slow"), call("quick")]), "Done.")
    session = Agent(model, tools=[slow.tool, quick.tool], watchers=[seen]).session("s")
    running = asyncio.ensure_future(session.run("Go"))
    async with asyncio.timeout(SECONDS):
        await slow.started.wait()
        await quick.started.wait()
        stored = [entry.event for entry in await session.store.read("s")]
        assert [each.name for each in stored if isinstance(each, ToolStarted)] == ["slow", "quick"]
        quick.released.set()
        slow.released.set()
        outcome = await running
    assert [each.name for each in outcome.messages[2].tool_results] == ["slow", "quick"]


# -- Observer ----------------------------------------------------------------------------------------------------------


@shows("glove", "Observer.MAX_TURNS", "Observer.max_turns", "Observer.setMaxTurns")
async def test_the_turns_of_a_request_are_limited_and_the_work_is_kept():
    model = ScriptedModel(*[call("get_weather", city=f"city {number}") for number in range(9)])
    session = Agent(model, tools=[get_weather], limits=Limits(max_turns=2)).session("s")
    outcome = await session.run("Go")
    assert (outcome.status, outcome.reason, outcome.turns, len(outcome.tool_calls)) == ("limit", "max_turns", 2, 2)
    assert (await session.run("Go on", limits=Limits(max_turns=3))).turns == 3
    assert (await session.run("Go on")).turns == 2


@shows(
    "glove",
    "Observer.CONTEXT_COMPACTION_LIMIT",
    "Observer.context_compaction_limit",
    "Observer.tryCompaction",
    "Agent.observer",
    "CompactionConfig",
    "CompactionConfig.max_turns",
    "CompactionConfig.compaction_context_limit",
    "Observer",
)
@pytest.mark.parametrize(
    ("compaction", "cause"),
    [
        (Compaction(at_tokens=1_500), "tokens"),
        (Compaction(at_turns=2), "turns"),
        (Compaction(at_messages=4), "messages"),
        (Compaction(at_fraction=0.3, reserve_tokens=0), "tokens"),
    ],
)
async def test_a_conversation_is_compacted_when_it_reaches_a_size_or_a_number_of_turns(compaction, cause):
    model = ScriptedModel("One.", "Two.", "Three.", repeat_last=True)
    model.info = ModelInfo("scripted", "scripted", context_tokens=5_000)
    between: list[Any] = []

    async def look(run: Run) -> None:
        between.extend(run.spec.between_turns)

    seen = Recorder()
    extension = Extension(name="look", between_turns=[look])
    session = Agent(model, compaction=compaction, extensions=[extension], watchers=[seen]).session("s")
    await session.run("Hello.")
    await session.run(LONG if cause == "tokens" else "Hello again.")
    await session.run("Go on.")
    assert seen.of(CompactionStarted)[0].cause == cause
    assert compaction in between
    assert len(await session.messages()) == 6


@shows("glove", "CompactionConfig", "Observer")
async def test_a_conversation_is_compacted_on_overflow_by_another_model_or_by_a_strategy():
    async def drop(run: Run, replaced: Sequence[Message]) -> Message:
        return user(f"{len(replaced)} messages were dropped.")

    other = ScriptedModel("Of another model.")
    for compaction, summary in (
        (Compaction(keep_recent_messages=0, model=other), "Of another model."),
        (Compaction(keep_recent_messages=0, strategy=drop), "2 messages were dropped."),
    ):
        model = ScriptedModel("Once. " * 400, ContextOverflow("too long"), "It goes on.")
        seen = Recorder()
        session = Agent(model, compaction=compaction, watchers=[seen]).session("s")
        await session.run(LONG)
        assert (await session.run("Go on.")).text == "It goes on."
        assert [each.cause for each in seen.of(CompactionStarted)] == ["overflow"]
        assert summary in model.requests[-1].messages[0].text


@shows("glove", "Observer")
async def test_the_size_of_the_next_request_counts_and_not_what_was_billed_so_far():
    replies = [Reply(f"{number}.", usage=Usage(400, 5)) for number in range(5)]
    seen = Recorder()
    session = Agent(ScriptedModel(*replies), compaction=Compaction(at_tokens=1_000), watchers=[seen]).session("s")
    for number in range(5):
        await session.run(f"{number}?")
    assert (await session.usage()).usage.total_tokens == 2_025
    assert seen.of(CompactionStarted) == []


@shows(
    "glove",
    "Observer.ESCAPE_COMPACTION_THRESHOLD",
    "Observer.escape_compaction_threshold",
    "Observer.isCompactionImminent",
)
@pytest.mark.parametrize(("fraction", "tokens"), [(0.9, 950), (0.5, 550)])
async def test_a_conversation_near_the_limit_is_compacted_before_the_tools_of_a_reply(fraction, tokens):
    assert Compaction().before_tools_fraction == FRACTION_BEFORE_TOOLS == 0.9
    look = Reply(calls=[call("get_weather", city="Oslo")], usage=Usage(tokens, 5))
    model = ScriptedModel("Once. " * 300, look, "Short.", "Rain.")
    causes: list[str] = []
    compaction = Compaction(at_tokens=1_000, before_tools_fraction=fraction, keep_recent_messages=0)

    async def foresee(run: Run) -> None:
        causes.append(compaction.find_cause(run))

    seen = Recorder()
    session = Agent(
        model,
        tools=[get_weather],
        extensions=[Extension(name="foresee", between_turns=[foresee, compaction])],
        watchers=[seen],
    ).session("s")
    await session.run("Tell me.")
    assert (await session.run("Weather?")).text == "Rain."
    assert [each.cause for each in seen.of(CompactionStarted)] == ["before_tools"]
    assert causes == ["", "", "before_tools", ""]
    kinds = [kind for kind in seen.kinds if kind in {"compacted", "tool_started"}]
    assert kinds == ["compacted", "tool_started"]
    last = model.requests[-1].messages
    assert [each.role for each in last][-2:] == ["assistant", "tool"]


@shows("glove", "Observer.setCompactionInstructions", "Observer.setContextCompactionLimit")
async def test_compaction_is_changed_for_a_session_and_the_change_is_stored(disk_store):
    model = ScriptedModel("Once. " * 300, "The summary.", "Short.")
    agent = Agent(model, compaction=Compaction(), store=disk_store)
    await agent.session("s").run("Tell me.")
    changed = Compaction(at_tokens=300, instructions="Keep names.", keep_recent_messages=0)
    await agent.session("s").configure(compaction=changed)
    await agent.session("s").run("Go on.")
    assert "Keep names." in str(model.requests[1])
    assert "The summary." in model.requests[2].messages[0].text


@shows(
    "glove",
    "Observer.getCurrentTurns",
    "Observer.getCurrentTokenConsumption",
    "StoreAdapter.getTokenCount",
    "StoreAdapter.getTurnCount",
    "TokenConsumptionCounter",
    "TokenConsumptionCounter.tokens_in",
    "TokenConsumptionCounter.tokens_out",
    "ModelPromptResult",
    "ModelPromptResult.messages",
    "ModelPromptResult.tokens_in",
    "ModelPromptResult.tokens_out",
    'SubscriberEvent."token_consumption"',
    "token_consumption.consumption",
)
async def test_turns_and_tokens_are_counted_for_a_run_and_for_the_session():
    look = Reply(calls=[call("get_weather", city="Oslo")], usage=Usage(100, 10, cache_read_tokens=50))
    model = ScriptedModel(look, Reply("Rain.", usage=Usage(130, 5)), Reply("Yes.", usage=Usage(150, 2)))
    seen = Recorder()
    session = Agent(model, tools=[get_weather], watchers=[seen]).session("s")
    outcome = await session.run("Weather?")
    assert (outcome.usage.input_tokens, outcome.usage.output_tokens, outcome.turns) == (230, 15, 2)
    assert (outcome.usage.cache_read_tokens, outcome.usage.precision) == (50, "exact")
    assert [each.role for each in outcome.new_messages] == ["user", "assistant", "tool", "assistant"]
    await session.run("Sure?")
    used = await session.usage()
    assert (used.usage.input_tokens, used.usage.output_tokens, used.usage.total_tokens) == (380, 17, 397)
    assert (used.turns, used.last_input_tokens) == (3, 150)
    assert (await session.read_state()).turns == 1
    await session.aclose()
    consumed = [(each.usage.input_tokens, each.usage.output_tokens) for each in seen.of(TurnEnded)]
    assert consumed == [(100, 10), (230, 15), (150, 2)]


@shows("glove", "Observer.runCompactionNow")
async def test_a_tool_and_the_model_itself_can_compact_as_well():
    @tool(effect="idempotent")
    async def tidy(context: ToolContext[Any]) -> str:
        """Tidy up."""
        return str(await context.compact())

    compaction = Compaction(keep_recent_messages=0)
    tools = [tidy, compaction.build_compact_tool()]
    for name in ("tidy", "compact_conversation"):
        seen = Recorder()
        model = ScriptedModel("Once. " * 600, call(name), "A summary.", "Done.")
        session = Agent(model, tools=tools, compaction=compaction, watchers=[seen]).session("s")
        await session.run(LONG)
        assert (await session.run("Tidy up.")).text == "Done."
        assert len(seen.of(Compacted)) == 1


# -- Agent -------------------------------------------------------------------------------------------------------------


@shows("glove", "Agent", "Agent.ask", "Agent.store")
async def test_the_loop_prompts_and_calls_tools_until_there_is_text_and_can_be_wrapped():
    rounds: list[str] = []

    async def noted(run: Run) -> Outcome[Any]:
        rounds.append("begun")
        return await react(run)

    model = ScriptedModel(call("get_weather", city="Oslo"), call("get_weather", city="Rome"), "Rain in both.")
    agent = Agent(model, tools=[get_weather], engine=noted)
    session = agent.session("s")
    outcome = await session.run(user("Weather?"))
    assert (outcome.text, outcome.turns, rounds) == ("Rain in both.", 3, ["begun"])
    assert session.store is agent.store
    assert [each.role for each in model.requests[-1].messages] == ["user", "assistant", "tool", "assistant", "tool"]


@shows("glove", "AbortError", "AbortError.message")
async def test_an_aborted_request_is_an_outcome_and_its_results_are_kept():
    held = Held(effect="read")
    model = ScriptedModel(call("get_weather", city="Oslo"), call("held"), "Again.")
    session = Agent(model, tools=[get_weather, held.tool]).session("s")
    running = asyncio.ensure_future(session.run("Go"))
    async with asyncio.timeout(SECONDS):
        await held.started.wait()
        await session.cancel()
        outcome = await running
    assert (outcome.status, outcome.reason) == ("cancelled", "cancelled")
    assert [each.status for each in results_of(outcome)] == [Status.OK, Status.CANCELLED]
    assert (await session.run("Once more")).text == "Again."
