"""An agent, or a factory of agents, as a tool: what it takes, what it gives back, and how deep it may go."""

from dataclasses import dataclass
from typing import Any

import pytest

from perdure import Agent, ConfigError, Extension, Status, SubagentContext, Tool, ToolCall, assistant, user
from perdure.events import (
    MessageAdded,
    ModelRequested,
    RunEnded,
    RunStarted,
    SubagentFinished,
    SubagentStarted,
    ToolFinished,
)
from perdure.stores import MemoryStore
from perdure.testing import ScriptedModel, call
from perdure.tools import subagent
from tests.doubles import crashed, log_of, of
from tests.runtime.subagents.family import act_tool, following, left_behind

pytestmark = pytest.mark.resumed


@dataclass
class Place:
    """Where to look."""

    harbour: str
    metres: int = 12


@dataclass
class Berth:
    """A place for a ship."""

    number: int
    free: bool


def using(tool: Tool[..., Any], *replies: Any, **options: Any) -> Agent[Any]:
    return Agent(ScriptedModel(*replies, "Top."), tools=[tool], **options)


async def result_of(agent: Agent[Any]) -> Any:
    outcome = await agent.run("Go")
    return outcome.messages[2].tool_results[0]


async def test_a_tool_is_called_and_described_as_its_agent():
    tool = Agent(ScriptedModel(), name="Harbour scout", description="Knows harbours.").as_tool()
    assert (tool.name, tool.description) == ("Harbour_scout", "Knows harbours.")
    assert list(tool.parameters.json_schema["properties"]) == ["task"]
    assert "another agent" in Agent(ScriptedModel(), name="scout").as_tool().description
    other = Agent(ScriptedModel()).as_tool(name="look", description="Looks.")
    assert (other.name, other.description) == ("look", "Looks.")


async def test_the_result_is_the_last_thing_that_was_said():
    quiet = Agent(ScriptedModel(call("act", what="x")), name="scout", tools=[act_tool([])], stop=lambda _: True)
    result = await result_of(using(quiet.as_tool(), call("scout", task="Go.")))
    assert result.text == "scout finished without an answer."
    spoken = Agent(ScriptedModel("It is x."), name="scout")
    result = await result_of(using(spoken.as_tool(), call("scout", task="Go.")))
    assert (result.text, result.render["child"]) == ("It is x.", "scout-call_1")
    assert result.render["usage"] == {"input_tokens": 10, "output_tokens": 5}


async def test_an_empty_task_goes_back_to_the_model():
    result = await result_of(using(Agent(ScriptedModel()).as_tool(), call("agent", task=" ")))
    assert (result.status, result.text) == (Status.ERROR, "the task is empty: describe the task")


async def test_a_type_makes_the_parameters_and_the_child_is_told_json():
    model = ScriptedModel("Found.")
    tool = Agent(model, name="scout").as_tool(input=Place)
    assert set(tool.parameters.json_schema["properties"]) == {"harbour", "metres"}
    await using(tool, call("scout", harbour="Hull")).run("Go")
    assert model.requests[0].messages[0].text == '{"harbour":"Hull","metres":12}'
    result = await result_of(using(tool, call("scout", harbour="Hull", metres="many")))
    assert "metres" in result.text
    with pytest.raises(ConfigError, match="has no fields"):
        Agent(ScriptedModel()).as_tool(input=list[int])


async def test_what_the_schema_lets_through_is_still_checked_by_the_type():
    from typing import Annotated

    import msgspec

    class Depth(msgspec.Struct):
        metres: Annotated[int, msgspec.Meta(multiple_of=5)]

        def __post_init__(self) -> None:
            if self.metres == 10:
                raise ValueError("ten is too shallow")

    result = await result_of(using(Agent(ScriptedModel()).as_tool(input=Depth), call("agent", metres=10)))
    assert "invalid arguments for 'agent'" in result.text


@pytest.mark.parametrize("reply", ['{"number": 4, "free": true}', call("final_answer", number=4, free=True)])
async def test_a_type_is_what_comes_back_as_json(reply):
    store = MemoryStore()
    tool = Agent(ScriptedModel(reply), name="scout").as_tool(output=Berth)
    session = using(tool, call("scout", task="Go."), store=store).session("s")
    outcome = await session.run("Go")
    assert outcome.messages[2].tool_results[0].text == '{"number":4,"free":true}'
    entries = await store.read("s")
    cut = next(place for place, entry in enumerate(entries, 1) if isinstance(entry.event, RunEnded))
    again = using(Agent(ScriptedModel(), name="scout").as_tool(output=Berth), store=await left_behind(entries[:cut]))
    outcome = await again.session("s").resume()
    assert outcome.messages[2].tool_results[0].text == '{"number":4,"free":true}'


async def test_a_child_that_does_not_make_the_value_is_an_error():
    tool = Agent(ScriptedModel("No.", repeat_last=True), name="scout").as_tool(output=Berth)
    result = await result_of(using(tool, call("scout", task="Go.")))
    assert result.status is Status.ERROR
    assert "did not answer with a valid Berth" in result.text
    stopped = Agent(ScriptedModel(call("act", what="x")), name="scout", tools=[act_tool([])], stop=lambda _: True)
    result = await result_of(using(stopped.as_tool(output=Berth), call("scout", task="Go.")))
    assert "scout did not answer with a Berth" in result.text


async def test_a_factory_makes_an_agent_for_each_task():
    seen: list[SubagentContext] = []

    async def make(assignment: SubagentContext) -> Agent[Any]:
        seen.append(assignment)
        return Agent(ScriptedModel(f"Did {assignment.input.harbour}."), name="made")

    tool = subagent("scout", "Looks.", make, input=Place)
    agent = using(tool, call("scout", harbour="Hull"), deps="ours")
    outcome = await agent.session("s").run("Go")
    assert outcome.messages[2].tool_results[0].text == "Did Hull."
    (one,) = seen
    assert (one.name, one.session_id, one.call_id, one.deps) == ("scout", "s", "call_1", "ours")
    assert one.task == '{"harbour":"Hull","metres":12}'


async def test_a_factory_that_fails_or_makes_something_else_is_an_error_result():
    def broken(_: SubagentContext) -> Agent[Any]:
        raise RuntimeError("no more agents")

    result = await result_of(using(subagent("scout", "", broken), call("scout", task="Go.")))
    assert result.text == "RuntimeError: no more agents"
    made: Any = lambda _: "an agent"  # noqa: E731
    result = await result_of(using(subagent("scout", "", made), call("scout", task="Go.")))
    assert "it has to return an Agent" in result.text


async def test_a_depth_that_is_too_deep_is_an_error_result():
    def endless() -> Agent[Any]:
        return Agent(following(call("deeper", task="Go."), "Back."), name="deeper", tools=[tool])

    tool = subagent("deeper", "Goes deeper.", lambda _: endless(), max_depth=3)
    session = Agent(following(call("deeper", task="Go."), "Top."), tools=[tool]).session("s")
    outcome = await session.run("Go")
    events = await log_of(session.store, "s")
    assert (outcome.text, len(of(events, SubagentStarted))) == ("Top.", 3)
    results = [event.result.text for event in of(events, ToolFinished)]
    assert "agent number 4 in a row, and at most 3 are allowed" in results[0]


async def test_five_agents_in_a_row_are_allowed_unless_another_number_is_given():
    def endless() -> Agent[Any]:
        return Agent(following(call("deeper", task="Go."), "Back."), name="deeper", tools=[tool])

    tool = subagent("deeper", "Goes deeper.", lambda _: endless())
    session = Agent(following(call("deeper", task="Go."), "Top."), tools=[tool]).session("s")
    await session.run("Go")
    events = await log_of(session.store, "s")
    assert len(of(events, SubagentStarted)) == 5
    assert "agent number 6 in a row, and at most 5 are allowed" in of(events, ToolFinished)[0].result.text


async def test_what_a_child_needs_is_open_while_it_works():
    from contextlib import asynccontextmanager

    seen: list[str] = []

    @asynccontextmanager
    async def lifespan(agent: Agent[Any]):
        seen.append(f"open {agent.name}")
        yield
        seen.append("closed")

    child = Agent(ScriptedModel("Child."), name="scout", extensions=[Extension(name="pool", lifespan=lifespan)])
    await using(child.as_tool(), call("scout", task="Go.")).run("Go")
    assert seen == ["open scout", "closed"]


@pytest.mark.parametrize(
    ("options", "said"),
    [({"durable": "yes"}, "durable='yes'"), ({"max_depth": 0}, "max_depth=0"), ({"output": 7}, "output=7")],
)
def test_what_cannot_work_is_refused_where_the_tool_is_made(options, said):
    with pytest.raises(ConfigError, match=said):
        Agent(ScriptedModel()).as_tool(**options)
    with pytest.raises(ConfigError, match="factory=7"):
        subagent("scout", "Looks.", 7)  # type: ignore[arg-type]


# -- tasks that cannot begin -------------------------------------------------------------------------------------------


async def bracket_of(agent: Agent[Any]) -> list[Any]:
    """What the log says of tasks, and of the one call that gave one."""
    await agent.session("s").run("Go")
    log = await log_of(agent.store, "s")
    return [each for each in log if isinstance(each, (SubagentStarted, SubagentFinished))]


@pytest.mark.parametrize("kind", ["plain", "async", "other"])
async def test_a_factory_that_fails_has_begun_and_ended_a_task(kind):
    def broken(_: SubagentContext) -> Agent[Any]:
        raise RuntimeError("no more agents")

    async def broken_later(_: SubagentContext) -> Agent[Any]:
        raise RuntimeError("no more agents")

    made: Any = {"plain": broken, "async": broken_later, "other": lambda _: "an agent"}[kind]
    started, finished = await bracket_of(using(subagent("scout", "", made), call("scout", task="Look.")))
    assert (started.call_id, started.name, started.prompt, started.child) == (
        "call_1",
        "scout",
        "Look.",
        "scout-call_1",
    )
    assert (finished.call_id, finished.name, finished.status) == ("call_1", "scout", "failed")
    assert ("no more agents" in finished.message) == (kind != "other")


async def test_an_agent_that_cannot_open_what_it_needs_has_begun_and_ended_a_task():
    from contextlib import asynccontextmanager

    @asynccontextmanager
    async def broken(_: Any) -> Any:
        raise RuntimeError("no line")
        yield

    child = Agent(ScriptedModel("Hi."), name="scout", extensions=[Extension(name="line", lifespan=broken)])
    started, finished = await bracket_of(using(child.as_tool(), call("scout", task="Look.")))
    assert isinstance(started, SubagentStarted)
    assert (finished.status, finished.message) == ("failed", "no line")


async def test_a_factory_that_fails_when_its_task_is_taken_up_again_ends_it():
    def broken(_: SubagentContext) -> Agent[Any]:
        raise RuntimeError("gone")

    store = MemoryStore()
    await crashed(
        store,
        "s",
        RunStarted("agent", run_id="r"),
        MessageAdded(user("Go"), run_id="r"),
        ModelRequested(1, run_id="r"),
        MessageAdded(assistant([ToolCall("c1", "scout", '{"task":"Look."}')]), run_id="r"),
        SubagentStarted("c1", "scout", "Look.", "scout-c1", run_id="r"),
        RunStarted("made", input_id="c1", run_id="r/c1", path="scout-c1"),
        MessageAdded(user("Look."), run_id="r/c1", path="scout-c1"),
    )
    agent = Agent(ScriptedModel("Done."), tools=[subagent("scout", "", broken)], store=store)
    assert (await agent.session("s").resume()).status == "done"
    log = await log_of(store, "s")
    assert len(of(log, SubagentStarted)) == 1
    assert [(each.call_id, each.status) for each in of(log, SubagentFinished)] == [("c1", "failed")]
    assert [(each.path, each.status) for each in of(log, RunEnded)] == [("scout-c1", "failed"), ("", "done")]
