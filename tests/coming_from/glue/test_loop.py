"""Glue's `loop.Run` and what it is given, with our names."""

import asyncio

import pytest

from perdure import Agent, Limits, Settings, assistant, tool, user
from perdure.engines import Run, react
from perdure.events import Custom, RunStarted, ToolFinished, ToolStarted
from perdure.models import Request
from perdure.permissions import allow_all
from perdure.testing import Recorder, ScriptedModel, call, calls
from perdure.tools import Skip, after, before
from tests.coming_from.shows import shows
from tests.doubles import SECONDS


@tool(effect="read")
def weather(city: str) -> str:
    """Today's weather for a city."""
    if city == "Atlantis":
        raise LookupError("no such city")
    return f"Rain in {city}."


@shows("glue", "Run")
async def test_the_loop_goes_on_until_no_tool_is_called_and_tells_the_model_its_mistakes():
    model = ScriptedModel(
        calls(
            call("weather", city="Oslo"),
            call("wether", city="Oslo"),
            call("weather", '{"city": '),
            call("weather", town="Oslo"),
            call("weather", city="Atlantis"),
        ),
        "Rain.",
    )
    outcome = await Agent(model, tools=[weather], engine=react).run("Rain?")
    results = outcome.messages[2].tool_results
    assert [each.is_error for each in results] == [False, True, True, True, True]
    assert [each.call_id for each in results] == [each.call_id for each in outcome.messages[1].tool_calls]
    for result, word in zip(results, ["Oslo", "weather", "JSON", "town", "no such city"], strict=True):
        assert word in result.text
    assert (outcome.status, outcome.text) == ("done", "Rain.")


@shows("glue", "Run")
async def test_the_loop_ends_with_an_error_of_the_provider_a_cancel_or_a_limit():
    failed = await Agent(ScriptedModel(ConnectionError("down"))).run("Rain?")
    assert (failed.status, type(failed.error)) == ("failed", ConnectionError)
    limited = await Agent(ScriptedModel(call("weather", city="Oslo")), tools=[weather], limits=Limits(max_turns=1)).run(
        "?"
    )
    assert (limited.status, limited.reason) == ("limit", "max_turns")
    started = asyncio.Event()

    @tool
    async def wait_for_ever() -> str:
        """Wait."""
        started.set()
        await asyncio.Event().wait()
        return ""

    session = Agent(ScriptedModel(call("wait_for_ever")), tools=[wait_for_ever]).session("oslo")
    running = asyncio.create_task(session.run("Wait."))
    async with asyncio.timeout(SECONDS):
        await started.wait()
        await session.cancel()
        assert (await running).status == "cancelled"


@shows(
    "glue",
    "RunRequest",
    "RunRequest.Provider",
    "RunRequest.Model",
    "RunRequest.SystemPrompt",
    "RunRequest.Messages",
    "RunRequest.Tools",
    "RunRequest.Options",
    "RunRequest.MaxTurns",
    "RunRequest.SessionID",
    "RunRequest.Permission",
)
async def test_an_engine_is_given_everything_that_a_run_is_made_of():
    runs = []

    async def engine(run: Run):
        runs.append(run)
        return await react(run)

    model = ScriptedModel("Rain.", name="big")
    settings = Settings(temperature=0.5)
    tools = [weather]
    agent = Agent(
        model,
        instructions="Be brief.",
        tools=tools,
        settings=settings,
        limits=Limits(max_turns=3),
        permission=allow_all,
        engine=engine,
    )
    tools.clear()  # the agent has its own copy
    history = [user("Hi"), assistant("Hello."), user("Rain?")]
    prompt = list(history)
    outcome = await agent.session("oslo").run(prompt)
    prompt.clear()
    run = runs[0]
    assert (run.info.name, run.instructions, run.session_id) == ("big", "Be brief.", "oslo")
    assert run.toolbox.names == ("weather",)
    assert (run.options.settings, run.limits.max_turns, run.gate) == (settings, 3, allow_all)
    assert list(run.messages) == list(outcome.messages)
    assert [each.text for each in outcome.messages] == ["Hi", "Hello.", "Rain?", "Rain."]
    assert Limits().max_turns == 50


@shows("glue", "RunRequest.Provider", "RunRequest.Messages")
async def test_an_engine_may_ask_the_model_of_the_run_itself():
    async def engine(run: Run):
        reply = await run.ask_model(Request(messages=(*run.messages, user("In one word."))))
        await run.emit(Custom("said", reply.text))
        streamed = [event async for event in run.model.stream(Request(messages=run.messages))]
        return run.outcome("done", str(len(streamed)))

    model = ScriptedModel("Rain.", "Rain it is.")
    session = Agent(model, engine=engine).session("oslo")
    outcome = await session.run("Weather?")
    assert [each.text for each in model.requests[0].messages] == ["Weather?", "In one word."]
    assert (outcome.reason, outcome.turns) == ("2", 2)
    imported = Agent(ScriptedModel("Then go.")).session("bergen")
    assert await imported.import_messages([user("Rain?"), assistant("No.")]) == 2
    assert [each.text for each in (await imported.run("Sure?")).messages] == ["Rain?", "No.", "Sure?", "Then go."]


@shows("glue", "RunRequest.Parallel")
@pytest.mark.parametrize("limit", [1, 8])
async def test_calls_of_a_reply_run_together_up_to_a_limit_and_are_answered_in_their_order(limit):
    running, most = 0, 0
    both = asyncio.Event()

    @tool(effect="read")
    async def look(name: str) -> str:
        """Look."""
        nonlocal running, most
        running += 1
        most = max(most, running)
        if limit > 1 and name == "first":
            await both.wait()  # ends after the second
        both.set()
        running -= 1
        return name

    recorder = Recorder()
    model = ScriptedModel(calls(call("look", name="first"), call("look", name="second")), "Done.")
    agent = Agent(model, tools=[look], limits=Limits(max_parallel_tools=limit), watchers=[recorder])
    async with asyncio.timeout(SECONDS):
        outcome = await agent.run("Look.")
    assert most == min(limit, 2)
    assert [each.text for each in outcome.messages[2].tool_results] == ["first", "second"]
    started = [each.call_id for each in recorder.of(ToolStarted)]
    assert started == [each.call_id for each in outcome.messages[1].tool_calls]
    assert [each.result.text for each in recorder.of(ToolFinished)] == (
        ["first", "second"] if limit == 1 else ["second", "first"]
    )


@shows("glue", "RunRequest.Parallel")
async def test_a_tool_that_must_run_alone_does():
    running, seen = 0, []

    def make(name, **options):
        @tool(name=name, description="Works.", effect="read", **options)
        async def work() -> str:
            nonlocal running
            running += 1
            await asyncio.sleep(0)
            seen.append((name, running))
            running -= 1
            return name

        return work

    model = ScriptedModel(calls(call("one"), call("alone"), call("two")), "Done.")
    await Agent(model, tools=[make("one"), make("two"), make("alone", parallel=False)]).run("Go.")
    assert seen == [("one", 1), ("alone", 1), ("two", 1)]


@shows("glue", "RunRequest.Hooks")
async def test_hooks_see_a_call_before_and_its_result_after():
    notes: list[object] = []

    def start(called, arguments):
        notes.append((called.name, arguments))
        return Skip("closed on Sundays") if arguments["city"] == "Voss" else None

    hooked = after(before(weather, start), lambda _, result: notes.append(result.text))
    model = ScriptedModel(call("weather", city="Oslo"), call("weather", city="Voss"), "Rain.")
    outcome = await Agent(model, tools=[hooked]).run("Rain?")
    assert notes[:3] == [("weather", {"city": "Oslo"}), "Rain in Oslo.", ("weather", {"city": "Voss"})]
    assert "closed on Sundays" in outcome.messages[4].tool_results[0].text


@shows("glue", "RunRequest.Emit")
async def test_a_watcher_gets_every_event_in_order_and_an_engine_emits_its_own():
    async def engine(run: Run):
        await run.emit(Custom("began", {"by": "engine"}))
        return await react(run)

    recorder = Recorder()
    session = Agent(ScriptedModel("Rain."), engine=engine).session("oslo")
    await session.run("Rain?", watchers=[recorder])
    assert recorder.kinds == [
        "session_opened",
        "run_started",
        "message_added",
        "custom",
        "turn_started",
        "model_requested",
        "text_delta",
        "message_added",
        "turn_ended",
        "run_ended",
    ]
    stored = [entry for entry in recorder.entries if entry.seq]
    assert stored == await session.store.read("oslo")
    assert isinstance(stored[0].event, RunStarted)
