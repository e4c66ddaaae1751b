"""Another agent takes the conversation over: back and forth, and from wherever the log was cut off."""

from contextlib import asynccontextmanager
from typing import Any

import pytest

from perdure import Agent, ConfigError, Extension, Limits
from perdure._core.log.fold import fold_events
from perdure.events import Entry, ModelRequested, RunStarted, SessionConfigured, ToolStarted, ViewChanged
from perdure.models import Model
from perdure.stores import MemoryStore, Store
from perdure.testing import ScriptedModel, call
from tests.doubles import NotedStore, log_of, of
from tests.runtime.subagents.family import act_tool, following, left_behind, left_behind_in
from tests.transcript import assert_valid

pytestmark = pytest.mark.resumed


def desk(front: Model, billing: Model, store: Store | str = "memory:", **options: Any) -> Agent[Any]:
    """A front desk that can hand over to billing."""
    second = Agent(
        billing,
        name="billing",
        description="Knows bills.",
        instructions="You are billing.",
        tools=[act_tool([])],
        **options,
    )
    return Agent(front, name="front", instructions="You are the front desk.", handoffs=[second], store=store)


async def test_the_other_agent_goes_on_with_its_own_words_tools_and_model():
    front = ScriptedModel(call("hand_over_to_billing", message="They want a refund."), name="first")
    billing = ScriptedModel("I am billing.", name="second")
    session = desk(front, billing).session("s")
    outcome = await session.run("I want my money back.")
    assert outcome.text == "I am billing."
    (request,) = billing.requests
    assert request.instructions == "You are billing."
    assert [tool.name for tool in request.tools] == ["act", "hand_over_to_front"]
    assert request.messages[-1].tool_results[0].text.endswith("You were told: They want a refund.")
    events = await log_of(session.store, "s")
    assert [each.model for each in of(events, ModelRequested)] == ["first", "second"]
    assert [each.cause for each in of(events, ViewChanged)] == ["model"]


async def test_who_speaks_is_still_known_in_the_next_run_and_after_a_restart():
    store = MemoryStore()
    await desk(ScriptedModel(call("hand_over_to_billing")), ScriptedModel("I am billing."), store).session("s").run("x")
    outcome = await desk(ScriptedModel(), ScriptedModel("Still billing."), store).session("s").run("y")
    assert outcome.text == "Still billing."


async def test_the_conversation_can_be_handed_back_and_forth():
    front = ScriptedModel(call("hand_over_to_billing"), call("hand_over_to_billing"), "Front again.")
    billing = ScriptedModel(call("hand_over_to_front"), call("act", what="x"), call("hand_over_to_front"))
    session = desk(front, billing).session("s")
    assert (await session.run("Go")).text == "Front again."
    spoke = [each.changes["agent"] for each in of(await log_of(session.store, "s"), SessionConfigured)]
    assert spoke == ["billing", "front", "billing", "front"]
    assert_valid(await session.messages())


async def test_a_run_that_is_cut_off_around_a_handover_goes_on_with_whoever_has_to_speak():
    def made(store: Store | str) -> Agent[Any]:
        front = following(call("hand_over_to_billing"), None, None, "Front again.")
        billing = following(None, call("act", what="x"), call("hand_over_to_front"))
        return desk(front, billing, store)

    store = MemoryStore()
    assert (await made(store).session("s").run("Go")).text == "Front again."
    entries = await store.read("s")
    first = next(place for place, entry in enumerate(entries, 1) if isinstance(entry.event, RunStarted)) + 1
    for cut in range(first, len(entries)):
        again = await left_behind(entries[:cut])
        outcome = await made(again).session("s").resume()
        assert outcome.text == "Front again.", cut
        events = await log_of(again, "s")
        assert [each.changes["agent"] for each in of(events, SessionConfigured)] == ["billing", "front"]
        assert_valid(fold_events(events).messages)
        assert len({each.call_id for each in of(events, ToolStarted)}) == 3


async def test_a_chain_of_agents_hands_back_to_whoever_spoke_before():
    third = Agent(ScriptedModel(call("hand_over_to_second"), "Third."), name="third")
    second = Agent(ScriptedModel(call("hand_over_to_third"), "Second again."), name="second", handoffs=[third])
    first = Agent(ScriptedModel(call("hand_over_to_second")), name="first", handoffs=[second])
    assert (await first.run("Go")).text == "Second again."


async def test_a_child_can_hand_its_task_over_too():
    child = desk(ScriptedModel(call("hand_over_to_billing")), ScriptedModel("I am billing."))
    session = Agent(ScriptedModel(call("front", task="Go."), "Top."), tools=[child.as_tool()]).session("s")
    outcome = await session.run("Go")
    assert (outcome.text, outcome.messages[2].tool_results[0].text) == ("Top.", "I am billing.")
    state = fold_events(await log_of(session.store, "s"))
    assert (state.settings, state.children["front-call_1"].settings["agent"]) == ({}, "billing")


async def test_a_call_that_was_refused_hands_nothing_over():
    front = ScriptedModel(call("hand_over_to_billing", to="whom"), "Front.")
    session = desk(front, ScriptedModel()).session("s")
    assert (await session.run("Go")).text == "Front."


async def test_an_agent_that_is_gone_is_an_error_that_names_those_that_are_there():
    store = MemoryStore()
    await desk(ScriptedModel(call("hand_over_to_billing")), ScriptedModel("I am billing."), store).session("s").run("x")
    other = Agent(ScriptedModel("y"), name="front", store=store)
    with pytest.raises(ConfigError, match="handed over to 'billing', which no longer exists: there is 'front'"):
        await other.session("s").run("y")


async def test_what_the_other_agent_needs_is_open():
    seen: list[str] = []

    @asynccontextmanager
    async def lifespan(agent: Agent[Any]):
        seen.append(agent.name)
        yield

    pool = Extension(name="pool", lifespan=lifespan)
    agent = desk(ScriptedModel(call("hand_over_to_billing")), ScriptedModel("b", repeat_last=True), extensions=[pool])
    await agent.session("s").run("x")
    assert seen == ["billing"]
    async with agent:
        await agent.session("s").run("x")
    assert seen == ["billing", "billing"]


async def test_a_handover_is_on_the_disk_before_the_other_agent_speaks():
    store = NotedStore()
    await desk(ScriptedModel(call("hand_over_to_billing")), ScriptedModel("I am billing."), store).session("s").run("x")
    assert [append.sync for append in store.appends if "session_configured" in append.kinds] == [True]


# -- when it cannot be done --------------------------------------------------------------------------------------------


async def test_a_handover_that_could_not_work_is_an_error_that_the_model_is_told_and_it_goes_on():
    front = ScriptedModel(call("hand_over_to_billing"), "Then I do it myself.", "Still here.")
    session = desk(front, ScriptedModel(), limits=Limits(max_cost_usd=1.0)).session("s")
    outcome = await session.run("Go")
    assert outcome.text == "Then I do it myself."
    (result,) = outcome.messages[2].tool_results
    assert result.is_error
    assert result.text.startswith("The conversation could not be handed over to 'billing': max_cost_usd needs a model")
    assert result.text.endswith("You are still 'front': go on.")
    assert (await session.run("And?")).text == "Still here."
    assert of(await log_of(session.store, "s"), SessionConfigured) == []


async def test_a_handover_that_cannot_be_done_after_a_restart_is_told_once_and_whoever_spoke_goes_on():
    store = MemoryStore()
    agent = desk(ScriptedModel(call("hand_over_to_billing")), ScriptedModel("I am billing."), store)
    await agent.session("s").run("Go")
    entries = await store.read("s")
    cut = next(place for place, entry in enumerate(entries) if isinstance(entry.event, SessionConfigured))
    again = await left_behind_in(NotedStore(), entries[:cut])
    front = ScriptedModel("Front.", "Front again.")
    session = desk(front, ScriptedModel(), again, limits=Limits(max_cost_usd=1.0)).session("s")
    assert (await session.resume()).text == "Front."
    assert (await session.run("And?")).text == "Front again."
    told = [each.text for each in await session.messages() if each.origin == "feedback"]
    assert len(told) == 1
    assert told[0].startswith("The conversation could not be handed over to 'billing'")
    assert [append.sync for append in again.appends if "session_configured" in append.kinds] == [True]
    assert_valid(await session.messages())


@pytest.mark.in_memory("events that pass")
async def test_the_watchers_of_all_who_may_speak_are_told_each_of_them_once():
    seen: list[str] = []

    def both(entry: Entry) -> None:
        seen.append(f"both {type(entry.event).__name__}")

    def own(entry: Entry) -> None:
        seen.append(f"own {type(entry.event).__name__}")

    agent = desk(
        ScriptedModel(call("hand_over_to_billing")),
        ScriptedModel("b"),
        watchers=[both],
        extensions=[Extension(name="watch", watchers=[own])],
    )
    await agent.replace(watchers=[both]).session("s").run("x")
    assert (seen.count("both RunEnded"), seen.count("own RunEnded")) == (1, 1)


@pytest.mark.in_memory("what was compared with what")
async def test_a_handover_does_not_begin_the_report_on_the_prompt_cache_anew():
    front = ScriptedModel(call("nothing"), call("hand_over_to_billing"))
    outcome = await desk(front, ScriptedModel("b", name="other")).run("x")
    assert (outcome.cache.requests, outcome.cache.first_changed) == (2, "model")
