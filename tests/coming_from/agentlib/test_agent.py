"""An agent, its runs and their results, as AgentLIB's reference describes `AgentConfig`, `RunOptions` and the rest."""

import asyncio
from typing import Any

import pytest

from perdure import Agent, Extension, Limits, Middleware, Outcome, ProviderDown, ToolContext, Usage, tool, user
from perdure.engines import Run, react, run_turn
from perdure.events import Custom, RunStarted, ToolProgress
from perdure.testing import FakeClock, Recorder, Reply, ScriptedModel, call
from tests.coming_from.outcomes import present, results_of
from tests.coming_from.shows import shows
from tests.doubles import SECONDS, Held


@tool(effect="read")
async def weather(city: str) -> str:
    """Today's weather for a city."""
    return f"Rain in {city}."


@shows(
    "agentlib",
    "AgentConfig",
    "AgentConfig.name",
    "AgentConfig.description",
    "AgentConfig.model",
    "AgentConfig.tools",
    "AgentConfig.policy",
    "AgentConfig.systemPrompt",
    "RunResult",
    "RunResult.output",
)
async def test_an_agent_is_configured_once_and_run():
    model = ScriptedModel(call("weather", city="Oslo"), "Take one.", "Hm.")
    agent = Agent(
        model,
        name="forecaster",
        description="Knows the weather.",
        instructions="Be brief.",
        tools=[weather],
        limits=Limits(max_turns=2),
    )
    seen = Recorder()
    outcome = await agent.run("Umbrella?", watchers=[seen])
    assert (outcome.text, outcome.status, outcome.reason) == ("Take one.", "done", "")
    assert [request.instructions for request in model.requests] == ["Be brief."] * 2
    assert [each.name for each in model.requests[0].tools] == ["weather"]
    assert seen.of(RunStarted)[0].agent == "forecaster"
    described = agent.as_tool().spec
    assert (described.name, described.description) == ("forecaster", "Knows the weather.")
    endless = agent.replace(model=ScriptedModel(call("weather", city="Oslo"), repeat_last=True))
    stopped = await endless.run("Umbrella?")
    assert (stopped.status, stopped.reason, stopped.turns) == ("limit", "max_turns", 2)


@shows("agentlib", "AgentConfig.model")
async def test_a_model_is_named_or_given_as_an_object():
    named = await Agent("demo").run("Hello")
    assert named.status == "done"
    assert (present(named.message).provider, present(named.message).model) == ("demo", "words")
    scripted = ScriptedModel("Hello.")
    assert Agent(scripted).model is scripted


@shows("agentlib", "RunResult", "RunResult.output")
async def test_the_output_is_text_or_a_value_of_a_type():
    assert (await Agent(ScriptedModel("Rain.")).run("Weather?")).text == "Rain."
    typed = await Agent(ScriptedModel(call("final_answer", value=5))).run("2 + 3?", output=int)
    assert typed.value == 5
    failed = await Agent(ScriptedModel(ProviderDown("gone"))).run("Weather?")
    assert (failed.status, failed.reason, failed.text) == ("failed", "ProviderDown", "")


@shows("agentlib", "AgentConfig.memory")
async def test_a_store_keeps_the_conversation_and_a_processor_chooses_what_of_it_is_sent(disk_store):
    await Agent(ScriptedModel("Noted."), store=disk_store).session("oslo").run("I am Ada.")
    model = ScriptedModel("Ada.", "I do not know.")
    later = Agent(model, store=disk_store)
    assert (await later.session("oslo").run("Who am I?")).text == "Ada."
    assert [each.text for each in model.requests[0].messages] == ["I am Ada.", "Noted.", "Who am I?"]
    forgetful = later.replace(history_processor=lambda messages: messages[-1:])
    await forgetful.session("oslo").run("And now?")
    assert [each.text for each in model.requests[1].messages] == ["And now?"]


@shows("agentlib", "AgentConfig.reasoning")
async def test_the_engine_is_react_or_a_function_of_ones_own():
    async def loud(run: Run) -> Outcome[Any]:
        reply = await run_turn(run)
        run.output = reply.text.upper()
        return run.outcome("done")

    assert Agent(ScriptedModel("One.")).engine is react
    assert (await Agent(ScriptedModel(call("weather", city="Oslo"), "Rain."), tools=[weather]).run("Go")).turns == 2
    assert (await Agent(ScriptedModel("Rain."), engine=loud).run("Go")).output == "RAIN."


@shows("agentlib", "AgentConfig.middleware")
async def test_middleware_is_given_to_the_agent_or_bundled_in_an_extension():
    order: list[str] = []

    def layer(name: str) -> Middleware:
        async def around_run(call_next, run):
            order.append(f"{name} before")
            outcome = await call_next()
            order.append(f"{name} after")
            return outcome

        return Middleware(name=name, run=around_run)

    bundle = Extension(name="audit", middleware=[layer("bundled")])
    await Agent(ScriptedModel("Done."), middleware=[layer("own")], extensions=[bundle]).run("Go")
    assert sorted(order[:2]) == ["bundled before", "own before"]
    assert order[2:] == [each.replace("before", "after") for each in reversed(order[:2])]


@tool(effect="read")
async def whoami(context: ToolContext[dict[str, Any]]) -> str:
    """Tell who asks, and in which session."""
    return f"{context.deps['user']} ({context.deps['plan']}) in {context.session_id}"


@shows("agentlib", "AgentConfig.data", "RunOptions.data", "ExecutionContext.data", "ExecutionContext.sessionId")
async def test_data_of_the_agent_is_partly_replaced_for_a_run():
    model = ScriptedModel(call("whoami"), "1", call("whoami"), "2", call("whoami"), "3")
    session = Agent(model, tools=[whoami], deps={"user": "ada", "plan": "free"}).session("oslo")
    first = await session.run("Who?")
    second = await session.run("Who?", deps={"plan": "pro"})
    third = await session.run("Who?")
    texts = [results_of(outcome)[0].text for outcome in (first, second, third)]
    assert texts == ["ada (free) in oslo", "ada (pro) in oslo", "ada (free) in oslo"]


@shows("agentlib", "RunOptions", "RunOptions.input", "RunOptions.sessionId")
async def test_a_run_takes_the_input_and_belongs_to_a_session():
    model = ScriptedModel("Hi, Ada.", "Who are you?", "Ada.", repeat_last=True)
    agent = Agent(model)
    assert (await agent.session("ada").run("I am Ada.")).text == "Hi, Ada."
    await agent.session("bob").run("Who am I?")
    await agent.session("ada").run(prompt="Who am I?")
    assert [len(request.messages) for request in model.requests] == [1, 1, 3]
    assert agent.session().session_id != agent.session().session_id


@shows("agentlib", "RunOptions.signal", "ExecutionContext.cancel")
async def test_a_run_is_cancelled_from_outside_by_a_timeout_or_by_its_own_tool():
    held = Held(effect="read")
    session = Agent(ScriptedModel(call("held"), repeat_last=True), tools=[held.tool]).session("s")
    running = asyncio.ensure_future(session.run("Wait."))
    async with asyncio.timeout(SECONDS):
        await held.started.wait()
        assert await session.cancel()
        assert (await running).status == "cancelled"
    assert held.cancelled == 1

    held.started.clear()
    limit = asyncio.timeout(SECONDS)
    started = asyncio.ensure_future(held.started.wait())
    started.add_done_callback(lambda _: limit.reschedule(0))  # its time is up while the tool runs
    with pytest.raises(TimeoutError):
        async with limit:
            await session.run("Wait again.")
    assert held.cancelled == 2

    @tool(effect="read")
    async def give_up(context: ToolContext[Any]) -> str:
        """Stop after this."""
        context.run.cancel("after_tools")
        return "kept"

    outcome = await Agent(ScriptedModel(call("give_up"), "Never asked."), tools=[give_up]).run("Go")
    assert (outcome.status, results_of(outcome)[0].text) == ("cancelled", "kept")


@shows(
    "agentlib",
    "RunResult.state",
    "ExecutionState",
    "ExecutionState.steps",
    "ExecutionState.messages",
    "ExecutionState.toolCalls",
    "ExecutionState.usage",
    "ExecutionState.startedAt",
    "ExecutionState.finishedAt",
)
async def test_the_state_of_a_run_is_in_its_outcome_and_can_be_read_from_the_log():
    clock = FakeClock()

    @tool(effect="read")
    async def slow_weather(city: str) -> str:
        """Take a minute."""
        await clock.advance(60)
        return f"Rain in {city}."

    model = ScriptedModel(
        Reply("Let me look.", calls=[call("slow_weather", city="Oslo")], usage=Usage(100, 10)),
        Reply("Rain.", usage=Usage(150, 5)),
        "Again: rain.",
    )
    begun = clock.now()
    session = Agent(model, tools=[slow_weather], clock=clock).session("oslo")
    outcome = await session.run("Weather?")
    assert (outcome.started_at, outcome.finished_at) == (begun, begun + 60)
    look, answer = outcome.steps
    assert (look.turn, present(look.reply).text, answer.turn, present(answer.reply).text) == (
        1,
        "Let me look.",
        2,
        "Rain.",
    )
    assert (look.requested_at, answer.requested_at) == (begun, begun + 60)
    assert [each.role for each in outcome.messages] == ["user", "assistant", "tool", "assistant"]
    [made] = outcome.tool_calls
    assert (made.name, made.arguments, results_of(outcome)[0].text) == (
        "slow_weather",
        '{"city":"Oslo"}',
        "Rain in Oslo.",
    )
    assert (made.started_at, made.finished_at) == (begun, begun + 60)
    assert outcome.usage == Usage(250, 15)
    later = await session.run("Once more?")
    assert later.session_usage.total_tokens == 265 + later.usage.total_tokens
    state = await session.read_state()  # another process reads the same from the log
    assert [each.text for each in state.messages][-1] == "Again: rain."
    assert state.total_usage == later.session_usage


@shows(
    "agentlib",
    "ExecutionContext",
    "ExecutionContext.input",
    "ExecutionContext.state",
    "ExecutionContext.emit",
)
async def test_a_tool_sees_its_input_and_state_and_emits_events():
    found: dict[str, Any] = {}

    @tool(effect="read")
    async def look(context: ToolContext[Any]) -> str:
        """Look around."""
        state = context.run.state
        found["input"] = state.messages[state.first_message_index].text
        found["turns"] = state.turns
        context.state["seen"] = context.state.get("seen", 0) + 1
        context.emit({"percent": 50})
        await context.record(Custom("looked", {"at": "the sky"}))
        return str(context.state["seen"])

    seen = Recorder()
    session = Agent(ScriptedModel("Hi.", call("look"), call("look"), "Done."), tools=[look]).session("s")
    await session.run("Hello")
    outcome = await session.run("Look twice", watchers=[seen])
    assert found == {"input": "Look twice", "turns": 2}
    assert outcome.new_messages[0] == user("Look twice")
    assert [each.text for each in results_of(outcome)] == ["1", "2"]
    assert [each.data for each in seen.of(ToolProgress)] == [{"percent": 50}] * 2
    assert [(each.name, each.data) for each in seen.of(Custom)] == [("looked", {"at": "the sky"})] * 2
