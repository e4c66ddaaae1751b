"""An agent: described once, checked where it is described, and never changed."""

import asyncio
import gc
import weakref
from pathlib import Path
from typing import Any

import pytest

from perdure import Agent, ConfigError, Extension, Limits, Settings, ToolContext, tool
from perdure._core.run.stop import GUARDRAILS
from perdure._core.values.error import Unchangeable
from perdure.engines import max_turns, react
from perdure.events import Entry, RunEnded
from perdure.permissions import EnvironmentVault, allow_all
from perdure.stores import MemoryStore
from perdure.testing import FakeClock, Recorder, ScriptedModel, call
from tests.doubles import SECONDS, Held, NotedStore, log_of, of, until

pytestmark = pytest.mark.resumed


@tool
async def look() -> str:
    """Looks."""
    return "there"


# -- what it is --------------------------------------------------------------------------------------------------------


def test_an_agent_is_what_it_was_described_as():
    model, store, clock = ScriptedModel(), MemoryStore(), FakeClock()
    limits, settings, stop, recorder = Limits(max_turns=3), Settings(seed=1), max_turns(2), Recorder()
    agent = Agent(
        model,
        name="ada",
        description="Looks.",
        instructions="Look.",
        tools=[look],
        store=store,
        permission=allow_all,
        limits=limits,
        settings=settings,
        stop=stop,
        guardrails=(),
        deps="deps",
        watchers=[recorder],
        steering_mode="all",
        follow_up_mode="all",
        clock=clock,
    )
    assert (agent.model, agent.store, agent.clock) == (model, store, clock)
    assert (agent.name, agent.description, agent.instructions, agent.deps) == ("ada", "Looks.", "Look.", "deps")
    assert (agent.tools, list(agent.toolbox)) == ((look,), [look])
    assert (agent.permission, agent.limits, agent.settings, agent.stop) == (allow_all, limits, settings, stop)
    assert (agent.guardrails, agent.output_validators, agent.history_processor, agent.engine) == ((), (), None, react)
    assert (agent.watchers, agent.steering_mode, agent.follow_up_mode) == ([recorder], "all", "all")


def test_a_model_is_all_that_an_agent_needs():
    agent = Agent(ScriptedModel())
    assert (agent.name, agent.instructions, agent.tools, agent.permission) == ("agent", "", (), None)
    assert (agent.limits, agent.settings, agent.guardrails) == (Limits(), Settings(), GUARDRAILS)
    assert isinstance(agent.store, MemoryStore)


def test_models_and_stores_may_be_named(tmp_path: Path):
    agent = Agent("demo", store=f"sqlite:{tmp_path / 'sessions.db'}")
    assert "Demo" in type(agent.model).__name__
    assert "sessions.db" in repr(agent.store)


def test_an_agent_shows_what_it_is_made_of():
    assert repr(Agent(ScriptedModel(), name="ada", tools=[look])) == (
        "Agent(<ScriptedModel 'scripted': 0 replies, asked 0 times>, name='ada', tools=Toolbox(look))"
    )


# -- it does not change ------------------------------------------------------------------------------------------------


def test_an_agent_does_not_change():
    agent = Agent(ScriptedModel(), name="ada")
    with pytest.raises(Unchangeable, match=r"use agent\.replace\(name='bob'\) to make another one"):
        agent.name = "bob"
    with pytest.raises(Unchangeable, match="an agent does not change"):
        agent.other = 1  # type: ignore[attr-defined]
    with pytest.raises(Unchangeable, match="its name cannot be deleted"):
        del agent.name
    assert agent.name == "ada"


def test_another_agent_may_differ_in_what_is_given():
    agent = Agent(ScriptedModel(), name="ada", instructions="Look.", tools=[look], limits=Limits(max_turns=3))
    other = agent.replace(name="bob", tools=[])
    assert (other.name, other.instructions, other.tools, len(other.toolbox)) == ("bob", "Look.", (), 0)
    assert (other.limits, other.model, other.store) == (agent.limits, agent.model, agent.store)
    assert (agent.name, agent.tools) == ("ada", (look,))


def test_another_agent_is_checked_like_the_first():
    with pytest.raises(ConfigError, match="limits"):
        Agent(ScriptedModel()).replace(limits=5)


# -- what cannot work is told where it is described --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"limits": 5}, "Agent\\(limits=5\\): give a Limits"),
        ({"settings": {}}, "Agent\\(settings={}\\): give a Settings"),
        ({"engine": None}, "Agent\\(engine=None\\): give the name of an engine, or an async function of a Run"),
        ({"permission": True}, "Agent\\(permission=True\\): give a function"),
        ({"stop": "soon"}, "Agent\\(stop='soon'\\): give a function"),
        ({"history_processor": 5}, "Agent\\(history_processor=5\\): give a function"),
        ({"tools": [len]}, "is not a tool yet: mark it with @tool"),
        ({"tools": [5]}, "5 is not a tool: use @tool on a function"),
        ({"tools": [look, look]}, "two tools are called 'look'"),
        ({"limits": Limits(allowed_tools=("nope",))}, "there is no tool 'nope'"),
        ({"steering_mode": "some"}, "give 'one' or 'all'"),
        ({"clock": 5}, "give a clock"),
        ({"store": "floppy:a"}, "there is no store called 'floppy:a'"),
        ({"store": object()}, "is no store"),
    ],
    ids=lambda value: "" if isinstance(value, str) else next(iter(value)),
)
def test_what_cannot_work_is_told_where_it_is_described(options: dict[str, Any], told: str):
    with pytest.raises(ConfigError, match=told):
        Agent(ScriptedModel(), **options)


@pytest.mark.parametrize("model", [None, 5, object(), "", "nobody:nothing"], ids=repr)
def test_what_is_no_model_is_refused(model: Any):
    with pytest.raises(ConfigError):
        Agent(model)


@pytest.mark.parametrize("session_id", ["", "  ", 5, b"s"], ids=repr)
def test_a_session_needs_a_name_that_is_one(session_id: Any):
    with pytest.raises(ConfigError, match="a session cannot be called"):
        Agent(ScriptedModel()).session(session_id)


# -- using it ----------------------------------------------------------------------------------------------------------


async def test_each_run_without_a_session_is_a_conversation_of_its_own():
    agent = Agent(ScriptedModel("One.", "Two."), store=MemoryStore())
    first, second = await agent.run("a"), await agent.run("b")
    assert first.session_id != second.session_id
    assert len(second.messages) == 2
    assert {info.session_id for info in await agent.store.list()} == {first.session_id, second.session_id}


def test_a_session_without_a_name_gets_one():
    agent = Agent(ScriptedModel())
    assert len({agent.session().session_id, agent.session(None).session_id}) == 2


@pytest.mark.in_memory("appends are counted")
async def test_a_session_may_be_kept_in_another_store():
    own, other = NotedStore(), NotedStore()
    agent = Agent(ScriptedModel("One.", "Two."), store=own)
    await agent.session("s", store=other).run("a")
    assert (len(own.appends), len(other.appends)) == (0, 3)
    assert isinstance(agent.session("s", store="memory:").store, MemoryStore)


async def test_agents_may_share_a_store_and_go_on_with_each_others_sessions():
    store = MemoryStore()
    await Agent(ScriptedModel("One."), store=store).session("s").run("a")
    outcome = await Agent(ScriptedModel("Two."), store=store).session("s").run("b")
    assert [message.text for message in outcome.messages] == ["a", "One.", "b", "Two."]


async def test_a_run_can_be_streamed_without_a_session():
    events = [event async for event in Agent(ScriptedModel("Hello.")).stream("Hi")]
    assert isinstance(events[-1], RunEnded)


async def test_cancelling_whoever_awaits_an_agent_cancels_its_run():
    held = Held()
    agent = Agent(ScriptedModel(call("held")), tools=[held.tool], store=MemoryStore())
    task = asyncio.ensure_future(agent.run("Go"))
    async with asyncio.timeout(SECONDS):
        await held.started.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    (info,) = await agent.store.list()
    assert of(await log_of(agent.store, info.session_id), RunEnded)[0].status == "cancelled"


async def test_an_agent_lets_go_of_its_store_when_its_block_is_left():
    class Noted(MemoryStore):
        closed = 0

        async def aclose(self) -> None:
            self.closed += 1

    store = Noted()
    async with Agent(ScriptedModel("Hello."), store=store) as agent:
        assert (await agent.run("Hi")).text == "Hello."
        assert store.closed == 0
    assert store.closed == 1


@pytest.mark.parametrize("name", ["a\nb", "a\x1b[2Jb", "a/b"])
def test_a_name_that_breaks_paths_or_garbles_logs_is_refused(name):
    with pytest.raises(ConfigError, match=r"Agent\(name=.*without (line breaks|slashes)"):
        Agent(ScriptedModel(), name=name)


def test_a_name_with_blanks_and_signs_is_accepted_and_a_tool_gets_a_name_that_providers_accept():
    assert Agent(ScriptedModel(), name="Zoë, 1st mate!").as_tool().name == "Zo___1st_mate_"


async def test_every_watcher_is_told_about_every_session():
    first, second = Recorder(), Recorder()
    agent = Agent(ScriptedModel("One.", "Two."), watchers=[first, second])
    await agent.session("a").run("x")
    await agent.session("b").run("y")
    assert len(first.of(RunEnded)) == len(second.of(RunEnded)) == 2


async def test_runs_that_nobody_named_leave_nothing_in_memory():
    agent = Agent(ScriptedModel("One.", "Two."))
    await agent.run("Go")
    assert [event async for event in agent.stream("Go")]
    assert await agent.store.list() == []
    await agent.replace(model=ScriptedModel("Three."), store=agent.store).run("Go")
    assert len(await agent.store.list()) == 1


async def test_what_tools_say_about_their_use_is_told_to_the_model_first():
    @tool(prompt="Look before you leap.")
    async def look() -> str:
        """Looks."""
        return "there"

    model = ScriptedModel("Yes.", "Yes.")
    await Agent(model, instructions="Be brief.", tools=[look]).run("Go")
    await Agent(model, tools=[look]).run("Go")
    assert [request.instructions for request in model.requests] == [
        "Be brief.\n\nLook before you leap.",
        "Look before you leap.",
    ]


async def test_another_agent_made_from_one_without_a_store_leaves_nothing_behind_either():
    agent = Agent(ScriptedModel("Hello.", repeat_last=True))
    other = agent.replace(name="other")
    await other.run("Hi")
    assert await agent.store.list() == []
    kept = agent.replace(store=MemoryStore())
    await kept.run("Hi")
    assert len(await kept.store.list()) == 1


# -- deps --------------------------------------------------------------------------------------------------------------


@tool(effect="read")
async def deps_seen(context: ToolContext[Any]) -> str:
    """Show the deps."""
    return repr(context.deps)


async def shown_deps(own: Any, given: Any) -> str:
    agent = Agent(ScriptedModel(call("deps_seen"), "Done."), tools=[deps_seen], deps=own)
    outcome = await agent.run("Go", deps=given)
    assert agent.deps == own
    return outcome.messages[2].tool_results[0].text


@pytest.mark.parametrize(
    ("own", "given", "seen"),
    [
        ({"db": 1, "user": "-"}, {"user": "Ruth"}, {"db": 1, "user": "Ruth"}),
        ({"db": 1}, {}, {"db": 1}),
        ({"db": 1}, "Ruth", "Ruth"),
        ("nobody", {"user": "Ruth"}, {"user": "Ruth"}),
        (None, {"user": "Ruth"}, {"user": "Ruth"}),
        ({"db": 1}, None, None),
    ],
)
async def test_deps_of_a_run_add_to_a_dict_of_the_agent_and_otherwise_take_its_place(own, given, seen):
    assert await shown_deps(own, given) == repr(seen)


class Shop:
    """What the tools of some agents share."""

    name = "corner shop"


@tool
async def shop_name(context: ToolContext[Shop]) -> str:
    """Say which shop this is."""
    return context.deps.name


@tool
async def greeting() -> str:
    """Say hello."""
    return "hello"


async def test_a_run_without_the_deps_that_a_tool_needs_is_refused_before_the_model_is_asked():
    model = ScriptedModel(call("shop_name"), "Done.")
    session = Agent(model, tools=[greeting, shop_name]).session("s")
    with pytest.raises(
        ConfigError, match=r"tool 'shop_name' needs deps \(Shop\), and there are none: .*Agent\(deps=…\)"
    ):
        await session.run("Go")
    assert model.requests == []
    assert list(await session.messages()) == []
    assert (await session.run("Go", deps=Shop())).messages[2].tool_results[0].text == "corner shop"


async def test_a_tool_that_needs_no_deps_can_be_called_where_another_tool_lacks_them():
    session = Agent(ScriptedModel(), tools=[greeting, shop_name]).session("s")
    assert (await session.call("greeting", {})).text == "hello"


async def test_a_subagent_without_the_deps_that_its_tool_needs_is_not_run():
    asked = ScriptedModel("Never asked.")
    inner = Agent(asked, name="clerk", description="Knows the shop.", tools=[shop_name])
    outer = Agent(ScriptedModel(call("clerk", task="Which shop?"), "Done."), tools=[inner.as_tool()])
    outcome = await outer.run("Go")
    assert asked.requests == []
    assert "tool 'shop_name' needs deps" in outcome.messages[2].tool_results[0].text


async def test_a_conversation_is_not_handed_to_an_agent_whose_tools_lack_their_deps():
    asked = ScriptedModel("Never asked.")
    clerk = Agent(asked, name="clerk", tools=[shop_name])
    desk = Agent(ScriptedModel(call("hand_over_to_clerk"), "Then I go on."), name="desk", handoffs=[clerk])
    outcome = await desk.run("Go")
    assert (asked.requests, outcome.text) == ([], "Then I go on.")
    assert "tool 'shop_name' needs deps" in outcome.messages[2].tool_results[0].text


async def test_what_a_run_has_kept_is_freed_without_the_garbage_collector() -> None:
    @tool
    async def add(n: int) -> str:
        """Add a number."""
        return str(n)

    async def watch(_: Entry) -> None:
        await asyncio.sleep(0)

    agent = Agent(ScriptedModel(call("add", n=1), "One."), tools=[add], watchers=[watch])
    gc.collect()
    gc.disable()
    try:
        session = agent._new_session()
        assert (await session.run("Go")).text == "One."
        kept = [weakref.ref(each) for each in (session._driver, session._driver.store, session._driver._channel)]
        await session.aclose()
        del session
        await until(lambda: not [each for each in kept if each() is not None])
    finally:
        gc.enable()


def test_a_guardrail_is_made_by_a_plain_function() -> None:
    async def start() -> Any:
        return None

    advice = "give plain functions without arguments, each of which returns a guardrail, plain or async"
    with pytest.raises(ConfigError) as error:
        Agent(ScriptedModel(), guardrails=[start])  # type: ignore[list-item]
    assert str(error.value) == f"Agent(guardrails={start!r}): {advice}"


def test_a_copy_of_an_agent_for_one_session_hides_the_same_secrets() -> None:
    more = [Extension(name="more")]
    agent = Agent(ScriptedModel(), vault=EnvironmentVault())
    assert agent.redactor is not None
    assert agent.with_additions(more, {}).redactor is agent.redactor
    assert agent.with_additions(more, {}).with_additions([], {}).extensions == []
    assert Agent(ScriptedModel()).with_additions(more, {}).redactor is None
