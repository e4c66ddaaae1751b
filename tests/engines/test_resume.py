"""Every engine is resumed from every place of its log: no effect is repeated, and the answer is the same."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest

from perdure import Agent, ConfigError, Permissions, Status, ask
from perdure._engines import registry
from perdure._runtime.session.driver import MAX_RECOVERIES
from perdure.engines import react
from perdure.events import (
    AnswerReviewed,
    Entry,
    Event,
    MessageAdded,
    PlanMade,
    RunStarted,
    ToolFinished,
    ToolStarted,
)
from perdure.permissions import later
from perdure.testing import call
from tests.doubles import log_of, of
from tests.engines.roles import ENGINES, World, build_agent, play
from tests.runtime.subagents.family import left_behind


def list_begun_effects(entries: Sequence[Entry]) -> Counter[str]:
    """Return the texts of calls whose intent is stored: a process that died may have done them."""
    begun = {each.event.call_id for each in entries if isinstance(each.event, ToolStarted)}
    replies = [each.event.message for each in entries if isinstance(each.event, MessageAdded)]
    asked = [each for reply in replies for each in reply.tool_calls if each.call_id in begun and each.name == "note"]
    return Counter([each.arguments for each in asked])


def list_made_effects(events: Sequence[Event]) -> Counter[str]:
    return list_begun_effects([Entry(0, 0.0, each) for each in events])


@pytest.mark.parametrize("engine", ENGINES)
async def test_a_run_that_is_resumed_from_anywhere_repeats_no_effect_and_gives_the_same_answer(engine: str) -> None:
    first = build_agent(engine).session("s")
    whole = await first.run("Do it", input_id="once")
    entries = await first.store.read("s")
    assert len(entries) > 3
    for cut in range(2, len(entries)):
        world = World()
        session = build_agent(engine, world, store=await left_behind(entries[:cut])).session("s")
        outcome = await session.run("Do it", input_id="once")  # resumed, because it was sent before
        assert (cut, outcome.status, outcome.text) == (cut, whole.status, whole.text)
        events = await log_of(session.store, "s")
        before = sum(list_begun_effects(entries[:cut]).values())
        assert world.effects.total() + before == sum(list_made_effects(events).values()), cut
        assert set(list_made_effects(events).values()) == set(
            list_made_effects([each.event for each in entries]).values()
        )
        for kind in (PlanMade, AnswerReviewed):
            assert of(events, kind) == of([each.event for each in entries], kind)
        for ids in (
            [each.call_id for each in of(events, ToolFinished)],
            [each.run_id for each in of(events, RunStarted)],
        ):
            assert len(ids) == len(set(ids)), cut


def ask_for_publication(request: Any) -> Any:
    """Publish something, and say what has become of it."""
    made = [each for message in request.messages for each in message.tool_results]
    if made:
        return f"It is {made[-1].status!s}."
    return call("publish", text="news")


@pytest.mark.parametrize("engine", [each for each in ENGINES if each != "passthrough"])
async def test_a_call_in_a_private_run_waits_for_a_person_and_is_allowed_in_another_process(engine: str) -> None:
    world = World()

    def build(store: Any = "memory:") -> Agent[Any]:
        model = play(answer=ask_for_publication, task=ask_for_publication)
        return build_agent(
            engine, world, model=model, store=store, permission=Permissions(ask("publish"), handler=later)
        )

    session = build().session("s")
    outcome = await session.run("Do it")
    published = 0
    while outcome.status == "waiting":
        assert world.effects["published news"] == published
        assert outcome.questions
        session = build(await left_behind(await session.store.read("s"))).session("s")
        for question in outcome.questions:
            await session.answer(question.ask_id, True)
        published += len(outcome.questions)
        outcome = await session.resume()
    assert outcome.status == "done", outcome.error
    assert world.effects["published news"] == published >= 1
    results = [each.result for each in of(await log_of(session.store, "s"), ToolFinished) if each.name == "publish"]
    assert {each.status for each in results} == {Status.OK}


@pytest.mark.parametrize("engine", ["planner", "reflect", "chain_of_thought"])
async def test_a_private_run_that_a_crash_cut_off_reports_its_call_as_unknown(engine: str) -> None:
    session = build_agent(engine).session("s")
    await session.run("Do it", input_id="once")
    entries = await session.store.read("s")
    cut = next(place for place, each in enumerate(entries, 1) if isinstance(each.event, ToolStarted))
    world = World()
    again = build_agent(engine, world, store=await left_behind(entries[:cut])).session("s")
    assert (await again.resume()).status == "done"
    results = {each.call_id: each.result.status for each in of(await log_of(again.store, "s"), ToolFinished)}
    started = entries[cut - 1].event
    assert isinstance(started, ToolStarted)
    assert results[started.call_id] is Status.UNKNOWN


async def test_a_run_whose_engine_is_not_registered_is_refused_and_can_be_resumed_once_it_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(registry, "_factories", {"own": lambda: react})
    world = World()
    model = play(answer=ask_for_publication)
    gate = Permissions(ask("publish"), handler=later)
    session = build_agent("react", world, model=model, permission=gate).session("s")
    [question] = (await session.run("Do it", engine="own")).questions
    await session.answer(question.ask_id, True)
    known = len(await session.store.read("s"))
    monkeypatch.setattr(registry, "_factories", {})
    for _ in range(MAX_RECOVERIES + 1):
        with pytest.raises(ConfigError, match="there is no engine 'own'"):
            await session.resume()
    assert len(await session.store.read("s")) == known
    monkeypatch.setattr(registry, "_factories", {"own": lambda: react})
    assert (await session.resume()).text == "It is ok."
    assert world.effects["published news"] == 1
