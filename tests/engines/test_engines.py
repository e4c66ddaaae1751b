"""Engines by name: the registry, and every engine against models that misbehave."""

import asyncio
from typing import Any

import pytest

from perdure import Agent, AuthFailed, ConfigError, Limits, Outcome, ProviderDown, Status, StopReason
from perdure.engines import Run, list_engine_names, open_engine, planner, react, register_engine
from perdure.events import MessageAdded, RunEnded, RunStarted, TextDelta, ToolFinished, ToolStarted
from perdure.testing import Recorder, Reply, ScriptedModel, call, calls
from tests.doubles import SECONDS, log_of, of
from tests.engines.roles import ENGINES, World, build_agent, play

OTHER_ENGINES = [each for each in ENGINES if each != "react"]


@pytest.fixture
def own_engine(monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr("perdure._engines.registry._factories", {})

    async def echo(run: Run) -> Outcome[Any]:
        run.output = "echo"
        return run.outcome("done")

    register_engine("echo", lambda: echo)
    return "echo"


def test_an_engine_is_opened_by_its_name() -> None:
    assert open_engine("react") is react
    assert [Agent(play(), engine=name).engine.name for name in OTHER_ENGINES] == OTHER_ENGINES  # type: ignore[attr-defined]
    assert set(ENGINES) <= set(list_engine_names())
    given = planner(max_tasks=3)
    assert Agent(play(), engine=given).engine is given
    assert Agent(play(), engine="planner").replace(name="other").engine.name == "planner"  # type: ignore[attr-defined]


def test_an_unknown_name_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ConfigError, match="there is no engine 'planer': did you mean 'planner'") as raised:
        Agent(play(), engine="planer")
    assert all(name in str(raised.value) for name in ENGINES)
    with pytest.raises(ConfigError, match="give the name of an engine, or an async function"):
        Agent(play(), engine=5)  # type: ignore[arg-type]
    with pytest.raises(AttributeError, match="has no attribute 'planer'"):
        getattr(__import__("perdure.engines").engines, "planer")  # noqa: B009 - as `from … import` does


async def test_an_engine_of_ones_own_is_registered_and_named_for_an_agent_or_a_run(own_engine: str) -> None:
    assert (await Agent(play(), engine=own_engine).run("Go")).output == "echo"
    session = Agent(play()).session("s")
    assert (await session.run("Go", engine=own_engine)).output == "echo"
    [started] = of(await log_of(session.store, "s"), RunStarted)
    assert (started.engine, started.options) == ("echo", {"engine": "echo"})


def test_a_registered_engine_is_checked(own_engine: str) -> None:
    with pytest.raises(ConfigError, match="built in"):
        register_engine("planner", lambda: react)
    with pytest.raises(ConfigError, match="non-empty"):
        register_engine("", lambda: react)
    with pytest.raises(ConfigError, match="factory"):
        register_engine("mine", 5)  # type: ignore[arg-type]
    register_engine(own_engine, lambda: None)  # type: ignore[arg-type, return-value]
    with pytest.raises(ConfigError, match="the factory of the engine 'echo' returned None"):
        Agent(play(), engine=own_engine)


@pytest.mark.parametrize("engine", ENGINES)
async def test_the_final_answer_is_in_the_transcript_and_is_streamed(engine: str) -> None:
    seen, world = Recorder(), World()
    session = build_agent(engine, world, watchers=[seen]).session("s")
    outcome = await session.run("Do it")
    assert outcome.status == "done"
    assert outcome.text
    assert outcome.messages[-1].text == outcome.text
    assert outcome.messages[-1].role == "assistant"
    assert seen.text.endswith(outcome.text)
    assert set(world.effects.values()) <= {1}
    history = await session.messages()
    assert [each.text for each in history] == [each.text for each in outcome.messages]


@pytest.mark.parametrize("engine", ENGINES)
async def test_an_output_type_is_fulfilled(engine: str) -> None:
    def give(request: Any) -> Any:
        return call("final_answer", value=5) if any(each.name == "final_answer" for each in request.tools) else "5"

    model = play(answer=give, report=give, revision=give)
    outcome = await build_agent(engine, model=model).run("How many?", output=int)
    assert (outcome.status, outcome.output) == ("done", 5), outcome.error


MISBEHAVIOUR: dict[str, Any] = {
    "bad JSON": '[{"id": "a", "description": ',
    "prose": "I would rather tell you about the weather.",
    "an empty list": "[]",
    "an empty object": "{}",
    "null": "null",
    "a number": "7",
    "duplicate ids": '[{"id": "a", "description": "x"}, {"id": "a", "description": "y"}]',
    "a cycle": '[{"id": "a", "description": "x", "depends_on": ["b"]},'
    ' {"id": "b", "description": "y", "depends_on": ["a"]}]',
    "unknown dependencies": '[{"id": "a", "description": "x", "depends_on": ["z"]}]',
    "an over-long plan": "[" + ", ".join(f'{{"id": "{n}", "description": "step {n}"}}' for n in range(200)) + "]",
    "deep JSON": "[" * 5000,
    "endless tool calls": lambda _: call("note", text="again"),
    "unknown tools": lambda _: calls(call("nothing", x=1), call("gone")),
    "bad arguments": lambda _: call("note", words=5),
    "a refusal": Reply("I cannot help with that.", stop=StopReason.CONTENT_FILTER),
    "a reply that is too long": Reply("[" * 50, stop=StopReason.LENGTH),
    "a pause without end": Reply("One moment.", stop=StopReason.PAUSE),
    "an empty reply": "",
    "a provider that is down": ProviderDown("down"),
    "a wrong key": AuthFailed("no such key"),
    "a bug in the model": ValueError("unforeseen"),
}


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("mistake", MISBEHAVIOUR)
async def test_a_model_that_misbehaves_leads_to_an_outcome(engine: str, mistake: str) -> None:
    model = ScriptedModel(MISBEHAVIOUR[mistake], repeat_last=True)
    session = build_agent(engine, model=model, limits=Limits(max_turns=12)).session("s")
    async with asyncio.timeout(SECONDS):
        outcome = await session.run("Do it")
        await session.run("And again")  # the log can be continued
    assert outcome.status in {"done", "limit", "stopped", "failed"}
    assert outcome.turns <= 12
    events = await log_of(session.store, "s")
    started, ended = of(events, RunStarted), of(events, RunEnded)
    assert sorted(each.run_id for each in started) == sorted(each.run_id for each in ended)
    begun, settled = of(events, ToolStarted), of(events, ToolFinished)
    assert {each.call_id for each in begun} <= {each.call_id for each in settled}
    replies = [each.message for each in of(events, MessageAdded) if each.message.role == "assistant"]
    asked = [each.call_id for reply in replies for each in reply.tool_calls]
    assert sorted(asked) == sorted(each.call_id for each in settled)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("max_turns", range(1, 9))
async def test_no_engine_passes_the_limit_of_turns(engine: str, max_turns: int) -> None:
    model = play()
    outcome = await build_agent(engine, model=model, limits=Limits(max_turns=max_turns)).run("Do it")
    assert len(model.requests) == outcome.turns <= max_turns
    assert outcome.status in {"done", "limit", "stopped"}


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("limits", [Limits(max_tool_calls=1), Limits(token_budget=50), Limits(allowed_tools=("note",))])
async def test_no_engine_passes_other_limits(engine: str, limits: Limits) -> None:
    world = World()
    outcome = await build_agent(engine, world, limits=limits).run("Do it")
    assert outcome.status in {"done", "limit"}
    if limits.max_tool_calls:
        assert world.effects.total() <= limits.max_tool_calls + (engine == "autonomous")
    if limits.token_budget:
        assert outcome.usage.total_tokens <= limits.token_budget + 15  # of the reply that reached it


@pytest.mark.parametrize("engine", ENGINES)
async def test_a_run_is_cancelled_wherever_its_engine_is(engine: str) -> None:
    count = len((await run_recorded(engine)).entries)
    for stop_after in range(3, count, 2):
        seen = Recorder()
        session = build_agent(engine, watchers=[seen]).session("s")

        async def cancel(entry: Any, session: Any = session, seen: Recorder = seen, after: int = stop_after) -> None:
            if len(seen.entries) == after:
                await session.cancel("now")

        async with asyncio.timeout(SECONDS):
            outcome = await session.run("Do it", watchers=[cancel])
        assert outcome.status in {"cancelled", "done"}
        events = await log_of(session.store, "s")
        started = [each.run_id for each in of(events, RunStarted)]
        assert sorted(started) == sorted(each.run_id for each in of(events, RunEnded))


async def run_recorded(engine: str) -> Recorder:
    """Return what is seen of a whole run."""
    seen = Recorder()
    await build_agent(engine, watchers=[seen]).run("Do it")
    return seen


@pytest.mark.parametrize("engine", OTHER_ENGINES)
async def test_private_words_are_never_sent_as_part_of_the_conversation(engine: str) -> None:
    model = play()
    session = build_agent(engine, model=model).session("s")
    await session.run("Do it")
    before = len(model.requests)
    await session.run("And now?")
    request = next(
        each for each in model.requests[before:] if each.messages[-1].text == "And now?" or engine != "react"
    )
    words = "\n".join(each.text for each in request.messages[: len(request.messages) - 1])
    for private in ("Make a plan", "First I note", "too short", "Review the last", "Do this one task"):
        assert private not in words


async def test_the_events_of_a_private_run_have_a_path_and_count_for_the_run() -> None:
    seen = Recorder()
    outcome = await build_agent("planner", watchers=[seen]).run("Do it")
    private = {each.path for each in seen.of(RunStarted) if each.private}
    assert private == {"plan:0:0", "task:0:1", "task:0:2", "task:0:3"}
    assert (outcome.turns, outcome.usage.total_tokens) == (8, 8 * 15)
    assert {each.path for each in seen.of(TextDelta)} >= {"", "plan:0:0"}


@pytest.mark.parametrize("engine", ENGINES)
async def test_a_denied_call_is_a_result_in_every_engine(engine: str) -> None:
    world = World()

    def publish(request: Any) -> Any:
        return "Not published." if request.messages[-1].role == "tool" else call("publish", text="x")

    model = play(answer=publish, task=publish)
    session = build_agent(engine, world, model=model).session("s")
    outcome = await session.run("Do it")
    assert outcome.status in {"done", "stopped"}
    results = [each.result.status for each in of(await log_of(session.store, "s"), ToolFinished)]
    assert results
    assert not {*results} & {Status.OK}
    assert not world.effects
