"""What was posted to a run that did not take it comes before a newer prompt, and not after it."""

import asyncio
from typing import Any

import pytest

from perdure import Agent, Session, user
from perdure._core.people.mailbox import CANCEL_POST
from perdure.events import MessageAdded, PostTaken, RunStarted
from perdure.stores import MemoryStore, Post
from perdure.testing import ScriptedModel, call, replay
from tests.doubles import SECONDS, Held, crashed, log_of, of


async def cut_off(session: Session[Any], held: Held, how: str) -> None:
    """Begin a run that is steered, given a follow-up and a result, and that ends without taking them."""
    running = asyncio.ensure_future(session.run("Go."))
    await asyncio.wait_for(held.started.wait(), SECONDS)
    item = await session.add_to_inbox("delivery", "rope")
    await session.follow_up("And the sails?")
    await session.steer("Use blue.")
    await session.steer("Dark blue.")
    if how == "cancelled":
        await session.cancel()
    else:
        running.cancel()
    await asyncio.wait((running,))
    await session.resolve(item, "40 metres")


def session_of(held: Held, *replies: Any, **options: Any) -> Session[Any]:
    model = ScriptedModel(call("held"), *(replies or ("Aye.",)))
    return Agent(model, tools=[held.tool], store=MemoryStore(), **options).session("s")


def list_said(session: Session[Any]) -> list[str]:
    model: Any = session.agent.model
    return [each.text.partition("\n")[0] for each in model.requests[-1].messages if each.role == "user"]


@pytest.mark.parametrize("how", ["cancelled", "caller left"])
@pytest.mark.parametrize("mode", ["one", "all"])
async def test_messages_of_a_cancelled_run_come_before_the_next_prompt(how: str, mode: Any) -> None:
    held = Held()
    session = session_of(held, steering_mode=mode, follow_up_mode=mode)
    await cut_off(session, held, how)
    outcome = await session.run("What now?", input_id="2")
    older = ["Use blue.", "Dark blue.", "And the sails?", "[Inbox: 1 resolved]"]
    assert list_said(session) == ["Go.", *older, "What now?"]
    assert (outcome.text, outcome.turns) == ("Aye.", 1)
    assert [each.text for each in outcome.new_messages] == ["What now?", "Aye."]
    assert await session.store.posts("s") == []
    assert await session.run("What now?", input_id="2") is not None  # answered once
    assert len(await session.messages()) == len(outcome.messages)
    replayed = await replay(session.agent, "s")
    assert replayed.divergence is None, str(replayed.divergence)


async def test_what_is_posted_between_a_cancel_and_the_next_prompt_comes_before_the_prompt_too() -> None:
    held = Held()
    session = session_of(held)
    running = asyncio.ensure_future(session.run("Go."))
    await asyncio.wait_for(held.started.wait(), SECONDS)
    await session.cancel()
    await running
    await Agent("demo", store=session.store).session("s").steer("Use blue.")
    await session.run("What now?")
    assert list_said(session) == ["Go.", "Use blue.", "What now?"]


async def test_after_a_run_that_is_done_messages_are_for_the_next_one() -> None:
    model = ScriptedModel("Aye.", "Blue.", "Sails.")
    session = Agent(model, store=MemoryStore()).session("s")
    await session.run("Go.")
    await session.steer("Use blue.")
    await session.follow_up("And the sails?")
    outcome = await session.run("What now?")
    assert [each.text for each in outcome.new_messages] == [
        "What now?",
        "Use blue.",
        "Blue.",
        "And the sails?",
        "Sails.",
    ]


async def test_a_run_that_a_crash_cut_off_is_ended_before_its_messages_and_the_prompt() -> None:
    store = MemoryStore()
    await crashed(store, "s", RunStarted("agent", run_id="r"), MessageAdded(user("Go."), run_id="r"))
    model = ScriptedModel("Aye.")
    session = Agent(model, store=store).session("s")
    await session.steer("Use blue.")
    outcome = await session.run("What now?")
    assert list_said(session) == ["Go.", "Use blue.", "What now?"]
    assert outcome.status == "done"
    kinds = [type(each).__name__ for each in await log_of(store, "s")]
    assert kinds[2:6] == ["RunEnded", "MessageAdded", "RunStarted", "MessageAdded"]
    assert await store.posts("s") == []


async def test_answers_that_come_too_late_are_consumed_beside_the_messages() -> None:
    held = Held()
    session = session_of(held)
    running = asyncio.ensure_future(session.run("Go."))
    await asyncio.wait_for(held.started.wait(), SECONDS)
    await session.steer("Use blue.")
    run_id = (await session.read_state()).run.run_id  # type: ignore[union-attr]
    await session.cancel()
    await running
    await session.store.post("s", Post("late", CANCEL_POST, {"run_id": run_id, "mode": "now"}, 0.0))
    await session.run("What now?")
    assert list_said(session) == ["Go.", "Use blue.", "What now?"]
    assert of(await log_of(session.store, "s"), PostTaken)
    assert await session.store.posts("s") == []
