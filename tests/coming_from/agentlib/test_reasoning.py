"""Engines and their steps, as AgentLIB's reference describes `ReasoningEngine`, `ReasoningContext`, `ReasoningStep`."""

from typing import Any

import pytest

from perdure import Agent, Limits, Outcome, Status, ToolError, tool, user
from perdure.engines import Run, react, register_engine, run_turn
from perdure.events import (
    AnswerReviewed,
    Custom,
    MessageAdded,
    ModelReplied,
    PlanMade,
    ReplyFinished,
    RunStarted,
    ThinkingDelta,
    ToolFinished,
    ToolStarted,
)
from perdure.models import Request, assemble_reply
from perdure.testing import Recorder, Reply, ScriptedModel, call
from tests.coming_from.outcomes import present
from tests.coming_from.shows import shows
from tests.engines.roles import World, last_question, play


@tool(effect="read")
async def look_up(word: str) -> str:
    """Look up a word."""
    if word == "gone":
        raise ToolError("there is no such word")
    return f"{word}: a word"


async def careful(run: Run) -> Outcome[Any]:
    """An engine of one's own: it plans beside the conversation, calls a tool by itself, and answers."""
    assert (run.limits.max_turns, run.instructions) == (4, "Be brief.")
    assert run.toolbox.names == ("look_up",)
    plan = await run.ask_model(Request(messages=[user(f"Plan: {run.messages[-1].text}")]))
    await run.emit(run.stamp_event(Custom("plan", {"tasks": plan.text.split(", ")})))
    found = await run.call_tool("look_up", {"word": "rain"})
    await run.emit(run.stamp_event(Custom("reflection", {"assessment": found.text, "needs_revision": False})))
    reply = await run_turn(run)
    run.output = f"{reply.text} ({found.text})"
    return run.outcome("done")


@shows(
    "agentlib",
    "ReasoningEngine",
    "ReasoningEngine.name",
    "ReasoningEngine.execute",
    "ReasoningContext",
    "ReasoningContext.ctx",
    "ReasoningContext.model",
    "ReasoningContext.tools",
    "ReasoningContext.policy",
    "ReasoningContext.systemPrompt",
    "ReasoningContext.pushStep",
    "ReasoningContext.callTool",
    "PlanStep.engine",
    "PlanStep.type",
    "ReflectionStep.engine",
    "ReflectionStep.type",
)
async def test_an_engine_of_ones_own_has_the_model_the_tools_the_limits_and_the_log():
    model = ScriptedModel("read, think", "It rains.")
    seen = Recorder()
    agent = Agent(model, tools=[look_up], engine=careful, instructions="Be brief.", limits=Limits(max_turns=4))
    session = agent.session("s")
    outcome = await session.run("What is rain?", watchers=[seen])
    assert (outcome.status, outcome.output, outcome.turns) == ("done", "It rains. (rain: a word)", 2)
    assert [request.messages[-1].text for request in model.requests] == ["Plan: What is rain?", "What is rain?"]
    assert seen.of(ModelReplied)[0].message.text == "read, think"
    [made] = seen.of(ToolFinished)
    assert (made.name, made.result.text) == ("look_up", "rain: a word")
    steps = [entry.event for entry in await session.store.read("s") if isinstance(entry.event, Custom)]
    assert steps == seen.of(Custom)
    assert [(step.name, step.data) for step in steps] == [
        ("plan", {"tasks": ["read", "think"]}),
        ("reflection", {"assessment": "rain: a word", "needs_revision": False}),
    ]
    engines = {started.run_id: started.engine for started in seen.of(RunStarted)}
    assert [engines[step.run_id] for step in steps] == ["careful", "careful"]


@shows("agentlib", "ReasoningEngine.name", "ReasoningEngine.execute", "ReasoningContext.model")
async def test_an_engine_may_be_an_object_with_a_name_and_stream_from_the_model():
    class Votes:
        name = "majority"

        async def __call__(self, run: Run) -> Outcome[Any]:
            votes = []
            for _ in range(3):
                events = [event async for event in run.model.stream(Request(messages=list(run.messages)))]
                assert isinstance(events[-1], ReplyFinished)
                votes.append(assemble_reply(events[:-1], events[-1]).text)
            run.output = max(set(votes), key=votes.count)
            return run.outcome("done")

    class Broken:
        name = "broken"

        async def __call__(self, run: Run) -> Outcome[Any]:
            raise ValueError("no votes")

    seen = Recorder()
    outcome = await Agent(ScriptedModel("4", "5", "4"), engine=Votes(), watchers=[seen]).run("2 + 2?")
    assert (outcome.output, outcome.turns, seen.of(RunStarted)[0].engine) == ("4", 3, "majority")
    assert outcome.usage.total_tokens == 45
    failed = await Agent(ScriptedModel(), engine=Broken()).run("2 + 2?")
    with pytest.raises(ValueError, match="no votes") as raised:
        failed.unwrap()
    assert "'broken'" in raised.value.__notes__[0]


@shows("agentlib", "ReasoningContext.callTool")
async def test_a_tool_that_an_engine_calls_is_in_the_log_and_its_error_is_a_result():
    async def asking(run: Run) -> Outcome[Any]:
        run.output = await run.call_tools([("look_up", {"word": "rain"}), ("look_up", {"word": "gone"})])
        return run.outcome("done")

    session = Agent(ScriptedModel(), tools=[look_up], engine=asking).session("s")
    outcome = await session.run("Both.")
    assert [(each.status, each.text) for each in present(outcome.output)] == [
        (Status.OK, "rain: a word"),
        (Status.ERROR, "there is no such word"),
    ]
    stored = [entry.event for entry in await session.store.read("s")]
    assert [each.result for each in stored if isinstance(each, ToolFinished)] == outcome.output


@shows(
    "agentlib",
    "ReasoningStrategy",
    'ReasoningStrategy."react"',
    "ReasoningStep",
    "ThoughtStep",
    'ThoughtStep."thought"',
    "ThoughtStep.content",
    "ThoughtStep.engine",
    "ThoughtStep.type",
    "ToolCallStep",
    'ToolCallStep."tool_call"',
    "ToolCallStep.toolName",
    "ToolCallStep.args",
    "ToolCallStep.callId",
    "ToolCallStep.engine",
    "ToolCallStep.type",
    "ToolResultStep",
    'ToolResultStep."tool_result"',
    "ToolResultStep.toolName",
    "ToolResultStep.callId",
    "ToolResultStep.result",
    "ToolResultStep.error",
    "ToolResultStep.engine",
    "ToolResultStep.type",
    "ResponseStep",
    'ResponseStep."response"',
    "ResponseStep.content",
    "ResponseStep.engine",
    "ResponseStep.type",
)
async def test_the_steps_of_a_run_are_events_of_its_engine():
    model = ScriptedModel(
        Reply(thinking="I need a word.", calls=[call("look_up", word="rain")]), call("look_up", word="gone"), "Rain."
    )
    seen = Recorder()
    outcome = await Agent(model, tools=[look_up], engine=react, watchers=[seen]).run("What is rain?")
    kinds = (ThinkingDelta, ToolStarted, ToolFinished, MessageAdded)
    steps: list[Any] = [event for event in seen.events if isinstance(event, kinds)]
    thought, _, called, result, _, called_again, failed, response = steps[1:]
    assert (type(thought), thought.text) == (ThinkingDelta, "I need a word.")
    assert (type(called), called.name) == (ToolStarted, "look_up")
    [first, second] = outcome.tool_calls
    assert (first.call_id, first.arguments) == (called.call_id, '{"word":"rain"}')
    assert (type(result), result.name, result.call_id) == (ToolFinished, "look_up", called.call_id)
    assert (result.result.status, result.result.text) == (Status.OK, "rain: a word")
    assert (failed.call_id, second.call_id) == (called_again.call_id, called_again.call_id)
    assert (failed.result.status, failed.result.text) == (Status.ERROR, "there is no such word")
    assert (type(response), response.message.text, response.message.tool_calls) == (MessageAdded, "Rain.", ())
    [started] = seen.of(RunStarted)
    assert started.engine == "react"
    assert {(step.run_id, step.path) for step in steps} == {(started.run_id, "")}


@shows("agentlib", "ThoughtStep.engine", "ToolCallStep.engine", "ToolResultStep.engine", "ResponseStep.engine")
async def test_in_a_tree_of_agents_the_path_of_a_step_says_whose_engine_it_is():
    async def quick(run: Run) -> Outcome[Any]:
        await run_turn(run)
        return run.outcome("done")

    helper = Agent(ScriptedModel("Helped."), name="helper", description="Helps.", engine=quick)
    seen = Recorder()
    await Agent(ScriptedModel(call("helper", task="Help."), "Done."), tools=[helper.as_tool()]).run(
        "Go", watchers=[seen]
    )
    engines = {started.path: started.engine for started in seen.of(RunStarted)}
    said = {each.message.text: engines[each.path] for each in seen.of(MessageAdded) if each.message.role == "assistant"}
    assert (said["Helped."], said["Done."]) == ("quick", "react")


@shows(
    "agentlib",
    'ReasoningStrategy."planner"',
    "PlanStep",
    'PlanStep."plan"',
    "PlanStep.tasks",
    "PlanStep.engine",
    "PlanStep.type",
    "PlanTask",
)
async def test_a_planner_carries_out_a_graph_of_tasks_and_its_answer_is_in_the_conversation():
    seen, model = Recorder(), play()
    session = Agent(model, tools=World().tools(), engine="planner").session("s")
    outcome = await session.run("Note two things.", watchers=[seen])
    [plan] = seen.of(PlanMade)
    assert [(task.id, task.description, task.depends_on) for task in plan.tasks] == [
        ("a", "note one", ()),
        ("b", "note two", ()),
        ("c", "join them", ("a", "b")),
    ]
    assert (outcome.status, (await session.messages())[-1].text) == ("done", "Both are noted.")
    assert next(each.engine for each in seen.of(RunStarted) if each.run_id == plan.run_id) == "planner"
    failing = play(task=lambda _: RuntimeError("broken"))
    assert (await Agent(failing, engine="planner").run("Go")).status == "done"
    assert any("did not work out" in last_question(each) for each in failing.requests)


@shows("agentlib", 'ReasoningStrategy."cot"', "ReasoningStrategy")
async def test_a_chain_of_thought_comes_before_the_answer(monkeypatch):
    seen = Recorder()
    outcome = await Agent(play(), engine="chain_of_thought", watchers=[seen]).run("What now?")
    assert [each.text for each in seen.of(ThinkingDelta)] == ["First I note, then I answer."]
    assert [each.text for each in outcome.messages] == ["What now?", "A draft."]
    monkeypatch.setattr("perdure._engines.registry._factories", {})
    register_engine("loud", lambda: careful)
    assert Agent(play(), tools=[look_up], engine="loud").engine is careful


@shows(
    "agentlib",
    'ReasoningStrategy."reflect"',
    "ReflectionStep",
    'ReflectionStep."reflection"',
    "ReflectionStep.assessment",
    "ReflectionStep.needsRevision",
    "ReflectionStep.engine",
    "ReflectionStep.type",
)
async def test_an_answer_is_reviewed_and_the_revised_one_is_in_the_conversation():
    seen = Recorder()
    session = Agent(play(), engine="reflect").session("s")
    outcome = await session.run("What now?", watchers=[seen])
    assert [(each.assessment, each.needs_revision) for each in seen.of(AnswerReviewed)] == [
        ("- too short\nsay more", True),
        ("", False),
    ]
    assert outcome.text == (await session.messages())[-1].text == "A better answer."
    assert seen.of(RunStarted)[0].engine == "reflect"


@shows("agentlib", 'ReasoningStrategy."autonomous"')
async def test_autonomous_work_ends_with_a_tool_and_every_call_has_its_result():
    world = World()
    outcome = await Agent(play(), tools=world.tools(), engine="autonomous").run("Do it")
    assert (outcome.status, outcome.text) == ("done", "All is done.")
    last = [each for each in outcome.messages if each.role == "tool"][-1]
    assert [(each.name, each.status) for each in last.tool_results] == [("note", Status.OK), ("finish", Status.OK)]
