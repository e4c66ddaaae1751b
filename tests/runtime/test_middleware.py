"""Middleware around runs, turns and tool calls: one list, named, the first outermost."""

from typing import Any

import pytest

from perdure import (
    Agent,
    ConfigError,
    Extension,
    Message,
    Middleware,
    MiddlewareFailed,
    Outcome,
    Permissions,
    ProviderDown,
    ToolError,
    tool,
    user,
)
from perdure.engines import Run, react
from perdure.events import RunEnded, RunStarted
from perdure.permissions import later
from perdure.stores import MemoryStore
from perdure.testing import ScriptedModel, call, replay
from tests.doubles import log_of, of


@tool(effect="read")
async def look() -> str:
    """Looks."""
    return "there"


@tool(effect="read")
async def listen() -> str:
    """Listens."""
    return "quiet"


def layer(name: str, seen: list[str], **options: Any) -> Middleware:
    """A middleware for all scopes that notes when it is entered and left."""

    async def run(call_next: Any, run: Run) -> Outcome[Any]:
        seen.append(f"{name} run {len(run.messages)}")
        outcome: Outcome[Any] = await call_next()
        seen.append(f"{name} {outcome.status}")
        return outcome

    async def turn(call_next: Any, run: Run) -> Message:
        seen.append(f"{name} turn {run.state.turns + 1}")
        reply: Message = await call_next()
        seen.append(f"{name} replied {reply.text!r}")
        return reply

    async def call(call_next: Any, arguments: Any, context: Any) -> Any:
        seen.append(f"{name} {context.name} {arguments}")
        result = await call_next()
        seen.append(f"{name} {result}")
        return result

    return Middleware(name=name, run=run, turn=turn, tool=call, **options)


async def test_one_list_of_middleware_covers_runs_turns_and_tool_calls():
    seen: list[str] = []
    agent = Agent(ScriptedModel(call("look"), "Done."), tools=[look], middleware=[layer("a", seen)])
    outcome = await agent.run("Go.")
    assert outcome.text == "Done."
    assert seen == [
        *("a run 1", "a turn 1", "a replied ''"),
        *("a look {}", "a there"),
        *("a turn 2", "a replied 'Done.'", "a done"),
    ]


async def test_the_agents_own_is_outside_that_of_its_extensions_and_the_first_is_outermost():
    seen: list[str] = []
    extension = Extension(name="more", middleware=[layer("c", seen)])
    agent = Agent(ScriptedModel("Done."), middleware=[layer("a", seen), layer("b", seen)], extensions=[extension])
    await agent.run("Go.")
    assert [each[0] for each in seen] == [*"abc", *"abc", *"cba", *"cba"]


async def test_its_names_are_in_the_log():
    store = MemoryStore()
    agent = Agent(ScriptedModel("Done."), middleware=[layer("a", []), layer("b", [])], store=store)
    await agent.session("s").run("Go.")
    (started,) = of(await log_of(store, "s"), RunStarted)
    assert started.middleware == ("a", "b")
    assert (await replay(agent, "s")).agrees


async def test_middleware_can_be_for_some_tools_alone():
    seen: list[str] = []
    only = Middleware(name="ears", tool=layer("a", seen).tool, tools=["listen"])
    model = ScriptedModel(call("look"), call("listen"), "Done.")
    await Agent(model, tools=[look, listen], middleware=[only]).run("Go.")
    assert seen == ["a listen {}", "a quiet"]


async def test_a_live_session_gets_middleware_too():
    seen: list[str] = []
    session = Agent(ScriptedModel("One.", "Two.")).session("s")
    await session.run("1")
    session.extend(Extension(name="x", middleware=[layer("a", seen)]))
    await session.run("2")
    assert seen[0] == "a run 3"


async def test_a_subagent_has_its_own_middleware():
    seen: list[str] = []
    child = Agent(ScriptedModel("Forty-two."), name="child", description="x", middleware=[layer("c", seen)])
    await Agent(ScriptedModel(call("child", task="Count."), "Done."), tools=[child.as_tool()]).run("Go.")
    assert seen == ["c run 1", "c turn 1", "c replied 'Forty-two.'", "c done"]


async def test_a_direct_call_is_no_run_of_the_model():
    seen: list[str] = []
    session = Agent(ScriptedModel(), tools=[look], middleware=[layer("a", seen)]).session("s")
    assert (await session.call("look", {})).text == "there"
    assert seen == ["a look {}", "a there"]


# -- errors ------------------------------------------------------------------------------------------------------------


async def broken(_call_next: Any, *_: Any) -> Any:
    raise RuntimeError("out of ink")


@pytest.mark.parametrize("scope", ["run", "turn"])
async def test_an_error_of_a_middleware_names_it(scope):
    store, given = MemoryStore(), dict[str, Any]({scope: broken})
    agent = Agent(ScriptedModel("Never."), middleware=[Middleware(name="audit", **given)], store=store)
    outcome = await agent.session("s").run("Go.")
    assert (outcome.status, outcome.reason) == ("failed", "MiddlewareFailed")
    assert isinstance(outcome.error, MiddlewareFailed)
    assert isinstance(outcome.error.__cause__, RuntimeError)
    text = f"the middleware 'audit' failed around a {scope}: RuntimeError: out of ink"
    assert str(outcome.error) == text
    assert of(await log_of(store, "s"), RunEnded)[0].error == text


async def test_an_error_around_a_tool_call_is_its_result_and_names_the_middleware():
    agent = Agent(
        ScriptedModel(call("look"), "Done."), tools=[look], middleware=[Middleware(name="audit", tool=broken)]
    )
    (made,) = (await agent.run("Go.")).tool_calls
    assert made.result is not None
    assert "the middleware 'audit' failed around a call of 'look': RuntimeError: out of ink" in made.result.text


async def test_errors_from_inside_and_those_that_are_meant_pass_as_they_are():
    seen: list[str] = []
    outcome = await Agent(ScriptedModel(ProviderDown("gone")), middleware=[layer("a", seen)]).run("Go.")
    assert (outcome.status, outcome.reason) == ("failed", "ProviderDown")

    async def refuse(_call_next: Any, _arguments: Any, _context: Any) -> Any:
        raise ToolError("not on Sundays")

    @tool
    async def fail() -> str:
        """Fails."""
        raise KeyError("x")

    model = ScriptedModel(call("look"), call("fail"), "Done.")
    layers = [Middleware(name="calendar", tool=refuse, tools=["look"]), layer("a", seen)]
    first, second = (await Agent(model, tools=[look, fail], middleware=layers).run("Go.")).tool_calls
    assert first.result is not None
    assert first.result.text == "not on Sundays"
    assert second.result is not None
    assert "middleware" not in second.result.text


async def test_a_run_that_waits_for_an_answer_waits_inside_its_middleware():
    @tool(permission=True)
    async def pay() -> str:
        """Pays."""
        return "paid"

    seen: list[str] = []
    agent = Agent(
        ScriptedModel(call("pay"), "Paid."),
        tools=[pay],
        middleware=[layer("a", seen)],
        permission=Permissions(handler=later),
    )
    session = agent.session("s")
    waiting = await session.run("Pay.")
    assert waiting.status == "waiting"
    await session.answer(waiting.questions[0].ask_id, answer=True)
    assert (await session.resume()).text == "Paid."


async def test_a_turn_without_the_model_or_a_wrong_result_is_told():
    async def skip(_call_next: Any, _run: Run) -> Message:
        return user("nothing")

    async def nothing(call_next: Any, _run: Run) -> Any:
        await call_next()

    outcome = await Agent(ScriptedModel("Never."), middleware=[Middleware(name="a", turn=skip)]).run("Go.")
    assert "'a' around turns has to await call_next()" in str(outcome.error)
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"turn": nothing}, "the reply"),
        ({"run": nothing}, "the outcome of the run"),
    ]
    for given, told in wrong:
        outcome = await Agent(ScriptedModel("Yes."), middleware=[Middleware(name="a", **given)]).run("Go.")
        assert f"it has to return {told}" in str(outcome.error)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"name": ""}, "name=''"),
        ({"name": "a"}, "give at least one of run, turn and tool"),
        ({"name": "a", "run": 5}, "run=5"),
        ({"name": "a", "tool": broken, "tools": "look"}, "tools='look'"),
    ],
)
def test_middleware_that_cannot_work_is_refused(given, told):
    with pytest.raises(ConfigError, match=told):
        Middleware(**given)
    with pytest.raises(ConfigError, match=r"middleware=.*give a list of Middleware"):
        Agent(ScriptedModel(), middleware=[print])  # type: ignore[list-item]


def test_it_is_printed_with_its_scopes():
    assert repr(layer("a", [])) == "Middleware('a', run, turn, tool)"


# -- engines and history processors of extensions ----------------------------------------------------------------------


async def own_engine(run: Run) -> Outcome[Any]:
    outcome = await react(run)
    return run.outcome(outcome.status, "own engine")


async def test_an_extension_brings_an_engine_unless_the_agent_has_one():
    extension = Extension(name="thinking", engine=own_engine)
    assert (await Agent(ScriptedModel("Yes."), extensions=[extension]).run("Go.")).reason == "own engine"

    async def mine(run: Run) -> Outcome[Any]:
        return run.outcome("done", "mine")

    agent = Agent(ScriptedModel("Yes."), extensions=[extension], engine=mine)
    assert (await agent.run("Go.")).reason == "mine"
    assert (await agent.replace(engine=react).run("Go.")).reason == "own engine"
    with pytest.raises(ConfigError, match="'thinking', 'other' each have an engine"):
        Agent(ScriptedModel(), extensions=[extension, Extension(name="other", engine=mine)])


async def test_history_processors_of_extensions_follow_that_of_the_agent():
    async def last_three(messages: Any) -> Any:
        return messages[-3:]

    model = ScriptedModel("One.", "Two.", "Three.")
    extensions = [
        Extension(name="a", history_processor=last_three),
        Extension(name="b", history_processor=lambda messages: [*messages, user("End.")]),
    ]
    agent = Agent(model, history_processor=lambda messages: [user("First."), *messages], extensions=extensions)
    session = agent.session("s")
    for prompt in "abc":
        await session.run(prompt)
    assert [message.text for message in model.requests[0].messages] == ["First.", "a", "End."]
    assert [message.text for message in model.requests[2].messages] == ["b", "Two.", "c", "End."]
