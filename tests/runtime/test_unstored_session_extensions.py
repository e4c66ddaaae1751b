"""What a session is given while it lives: extensions, watchers, model objects, limits of compaction."""

import asyncio
from typing import Any

import pytest

from perdure import Agent, ConfigError, Extension, Permissions, Session, UsageError, tool
from perdure._runtime.session.driver import session_additions
from perdure.context import Command, Compaction, ShortCircuit, Skill, keep_recent
from perdure.events import Entry, RunEnded, SessionConfigured, TextDelta
from perdure.models import register
from perdure.permissions import later
from perdure.stores import MemoryStore
from perdure.testing import Recorder, ScriptedModel, call, replay
from tests.doubles import Held, log_of, of, until


@tool(effect="read")
async def look() -> str:
    """Looks."""
    return "there"


def session_of(*replies: Any, **options: Any) -> Session:
    options.setdefault("store", MemoryStore())
    return Agent(ScriptedModel(*replies), **options).session("s")


def requests_of(model: Any) -> Any:
    return model.requests


# -- extensions --------------------------------------------------------------------------------------------------------


async def test_a_live_session_gets_tools_commands_skills_subagents_and_watchers():
    helper = Agent(ScriptedModel("Forty-two."), name="helper", description="Helps.")
    recorder = Recorder()
    session = session_of("Before.", call("look"), call("helper", task="Count."), "After.", "With skill.")
    await session.run("One.")
    session.extend(
        Extension(
            name="more",
            instructions="Be polite.",
            tools=[look, helper.as_tool()],
            commands=[Command("ping", lambda _context: ShortCircuit("pong"))],
            skills=[Skill(name="ropes", description="Knots.", body="Use a bowline.")],
            watchers=[recorder],
        )
    )
    outcome = await session.run("Two.")
    assert [made.result.text for made in outcome.tool_calls if made.result] == ["there", "Forty-two."]
    assert requests_of(session.agent.model)[1].instructions.startswith("Be polite.")
    assert recorder.of(RunEnded)
    assert (await session.run("/ping")).text == "pong"
    assert (await session.skill("ropes")).text == "With skill."


async def test_an_extension_lasts_for_every_session_object_until_it_is_removed():
    agent = Agent(ScriptedModel(call("look"), "Yes.", call("look"), "No."), store=MemoryStore())
    agent.session("s").extend(Extension(name="eyes", tools=[look]))
    assert (await agent.session("s").run("Look.")).tool_calls[0].result.status == "ok"  # type: ignore[union-attr]
    assert agent.session("other").agent is agent
    session = agent.session("s")
    assert session.remove_extension("eyes")
    assert not session.remove_extension("eyes")
    assert (await agent.session("s").run("Look.")).tool_calls[0].result.status == "error"  # type: ignore[union-attr]


async def test_an_extension_given_during_a_run_applies_from_the_next_one_on():
    held = Held("wait")
    model = ScriptedModel(call("wait"), "One.", "Two.")
    session = Agent(model, tools=[held.tool]).session("s")
    running = asyncio.ensure_future(session.run("Go."))
    await held.started.wait()
    session.extend(Extension(name="eyes", tools=[look]))
    held.released.set()
    await running
    await session.run("Again.")
    offered = [[spec.name for spec in request.tools] for request in model.requests]
    assert offered == [["wait"], ["wait"], ["wait", "look"]]


async def test_the_resources_of_an_open_agent_stay_open_for_a_session_with_more():
    opened: list[str] = []

    class Lifespan:
        async def __aenter__(self) -> None:
            opened.append("open")

        async def __aexit__(self, *_: object) -> None:
            opened.append("closed")

    own = Extension(name="own", lifespan=lambda _agent: Lifespan())
    async with Agent(ScriptedModel("One."), extensions=[own]) as agent:
        session = agent.session("s")
        session.extend(Extension(name="more", tools=[look]))
        await session.run("Go.")
        assert opened == ["open"]
    assert opened == ["open", "closed"]


@pytest.mark.parametrize(
    ("extension", "told"),
    [
        ("eyes", "give an Extension"),
        (Extension(name="own"), "has an extension 'own' already"),
        (Extension(name="x", lifespan=lambda _agent: None), "it opens resources, which belong to an agent"),  # type: ignore[arg-type,return-value]
        (Extension(name="x", tools=[look, look]), "two tools"),
    ],
)
async def test_what_cannot_be_added_changes_nothing(extension, told):
    session = session_of("Yes.", extensions=[Extension(name="own")])
    before = session.agent
    with pytest.raises(ConfigError, match=told):
        session.extend(extension)
    assert session.agent is before
    assert (await session.run("Go.")).text == "Yes."


async def test_what_a_deleted_session_was_given_is_forgotten():
    session = session_of("Yes.")
    session.extend(Extension(name="eyes", tools=[look]))
    await session.run("Go.")
    assert (id(session.store), "s") in session_additions
    await session.delete()
    assert (id(session.store), "s") not in session_additions


# -- watchers ----------------------------------------------------------------------------------------------------------


async def test_a_watcher_can_join_a_run_in_progress_and_leave():
    held, seen = Held("wait"), list[Entry]()
    session = session_of(call("wait"), "One.", "Two.", tools=[held.tool])
    running = asyncio.ensure_future(session.run("Go."))
    await held.started.wait()
    remove = session.add_watcher(seen.append)
    held.released.set()
    await running
    await until(lambda: any(isinstance(entry.event, RunEnded) for entry in seen))
    remove()
    count = len(seen)
    await session.run("Again.")
    assert len(seen) == count
    with pytest.raises(ConfigError, match=r"session\.add_watcher\(watcher=None\)"):
        session.add_watcher(None)  # type: ignore[arg-type]


async def test_watchers_of_one_run_hear_that_run_alone():
    recorder = Recorder()
    session = session_of("One.", "Two.", "Three.")
    await session.run("1")
    await session.run("2", watchers=[recorder])
    await session.run("3")
    assert [event.text for event in recorder.of(TextDelta)] == ["Two."]
    assert len(recorder.of(RunEnded)) == 1


async def test_a_run_with_watchers_is_resumed_without_them():
    @tool(permission=True)
    async def pay() -> str:
        """Pays."""
        return "paid"

    permission = Permissions(handler=later)
    session = session_of(call("pay"), "Paid.", tools=[pay], permission=permission)
    outcome = await session.run("Go.", watchers=[lambda _entry: None])
    await session.answer(outcome.questions[0].ask_id, answer=True)
    recorder = Recorder()
    assert (await session.resume(watchers=[recorder])).text == "Paid."
    assert recorder.of(RunEnded)


@pytest.mark.parametrize("watchers", [None, "print", [5], print])
async def test_watchers_of_a_run_are_a_list_of_functions(watchers):
    with pytest.raises(ConfigError, match=r"run\(watchers=.*give a list of functions"):
        await session_of("Never.").run("Go.", watchers=watchers)


# -- model objects -----------------------------------------------------------------------------------------------------


async def test_a_session_is_configured_with_a_model_object():
    store = MemoryStore()
    other = ScriptedModel("From the other.", "Again.", name="other")
    agent = Agent(ScriptedModel("From the first."), store=store)
    await agent.session("s").configure(model=other)
    assert (await agent.session("s").run("Go.")).text == "From the other."
    (configured,) = of(await log_of(store, "s"), SessionConfigured)
    assert configured.changes == {"model": "object:other"}
    assert (await agent.session("elsewhere").run("Go.")).text == "From the first."
    assert (await replay(agent, "s")).agrees


async def test_a_process_that_lacks_the_model_object_says_what_to_do():
    session = session_of("Mine.", "Again.")
    await session.configure(model=ScriptedModel("Theirs.", name="theirs"))
    session_additions.clear()  # as in another process
    elsewhere = session.agent.replace().session("s", store=session.store)
    with pytest.raises(UsageError, match=r"the model object 'theirs'.*session\.configure\(model=…\) it again"):
        await elsewhere.run("Go.")
    await elsewhere.configure(model="")
    assert (await elsewhere.run("Go.")).text == "Mine."
    with pytest.raises(ConfigError):
        await elsewhere.configure(model=5)  # type: ignore[arg-type]


async def test_a_replay_asks_no_model_that_the_session_was_configured_with():
    counted = ScriptedModel("From the counted one.", "Asked again.", name="counted")
    register("counted", lambda _name: counted)
    session = session_of("Never.")
    await session.configure(model="counted:x")
    outcome = await session.run("Hello?")
    replayed = await replay(session.agent, "s")
    assert replayed.agrees
    assert replayed.outcomes[0].text == outcome.text == "From the counted one."
    assert len(counted.requests) == 1


# -- compaction --------------------------------------------------------------------------------------------------------


async def test_limits_and_instructions_of_compaction_are_changed_in_a_live_session():
    store = MemoryStore()
    model = ScriptedModel("One. " * 50, "Two. " * 50, "A summary.", "Three.", "Four.")
    agent = Agent(model, store=store, compaction=Compaction(at_tokens=1_000_000))
    session = agent.session("s")
    await session.run("Word. " * 200)
    await session.run("Word. " * 200)
    await session.configure(compaction=Compaction(at_tokens=100, keep_recent_tokens=0, instructions="Mention the sea."))
    outcome = await agent.session("s").run("And now?")
    assert outcome.text == "Three."
    summary = model.requests[2]
    assert "Mention the sea." in summary.instructions + "".join([message.text for message in summary.messages])
    (configured,) = of(await log_of(store, "s"), SessionConfigured)
    assert configured.changes["compaction"]["at_tokens"] == 100
    assert (await replay(agent, "s")).agrees


async def test_a_session_can_be_given_a_compaction_that_its_agent_lacks():
    model = ScriptedModel("One. " * 100, "Two. " * 100, "A summary.")
    session = Agent(model).session("s")
    await session.run("Word. " * 200)
    await session.run("Word. " * 200)
    with pytest.raises(UsageError, match="has no compaction"):
        await session.compact()
    await session.configure(compaction=Compaction(keep_recent_tokens=0))
    assert await session.compact()
    assert (await replay(session.agent, "s")).agrees
    await session.configure(compaction="")
    with pytest.raises(UsageError, match="has no compaction"):
        await session.compact()


@pytest.mark.parametrize(
    ("compaction", "told"),
    [
        (5, "give a Compaction"),
        ("soon", "give a Compaction"),
        (Compaction(model=ScriptedModel()), "a model and a strategy cannot be stored"),
        (Compaction(strategy=keep_recent), "a model and a strategy cannot be stored"),
    ],
)
async def test_a_compaction_that_cannot_be_stored_is_refused(compaction, told):
    with pytest.raises(ConfigError, match=told):
        await session_of().configure(compaction=compaction)
