"""A run is continued by an agent of the name that began it, and a background task by the session that gave it."""

import pytest

from perdure import Agent, UsageError, user
from perdure.events import MessageAdded, RunEnded, RunStarted, SessionConfigured
from perdure.stores import MemoryStore
from perdure.testing import ScriptedModel
from tests.doubles import crashed


async def test_a_run_of_an_agent_of_another_name_cannot_be_continued_but_replaced():
    store = MemoryStore()
    for name, end in (("s", ()), ("parked", (RunEnded("parked", "crash_loop", run_id="r1"),))):
        await crashed(store, name, RunStarted("painter", run_id="r1"), MessageAdded(user("Go."), run_id="r1"), *end)
    clerk = Agent(ScriptedModel("I am the clerk."), name="clerk", store=store)
    told = (
        r"the last run of session 's' was begun by agent 'painter', and this is agent 'clerk': continue it with its "
        r"own agent, or begin another run with run\(\)"
    )
    with pytest.raises(UsageError, match=told):
        await clerk.session("s").resume()
    with pytest.raises(UsageError, match=told):
        await clerk.session("s").resume_stream().outcome()
    with pytest.raises(UsageError, match=told):
        await clerk.session("s").wake()
    with pytest.raises(UsageError, match="was begun by agent 'painter', and this is agent 'clerk'"):
        await clerk.session("parked").resume(unpark=True)
    painter = Agent(ScriptedModel("Painted."), name="painter", store=store)
    assert (await painter.session("parked").resume(unpark=True)).text == "Painted."
    assert (await clerk.session("s").run("Hello?")).text == "I am the clerk."


@pytest.mark.parametrize("is_over", [False, True])
async def test_the_session_of_a_background_task_is_continued_by_the_one_that_gave_it(is_over):
    store = MemoryStore()
    events = [SessionConfigured({"given_by": "s"}), RunStarted("scout", run_id="r1"), MessageAdded(user("Go."))]
    await crashed(store, "s/scout-1", *events, *([RunEnded("done", run_id="r1")] if is_over else []))
    below = Agent(ScriptedModel(), name="chief", store=store).session("s/scout-1")
    await below.follow_up("And then?")
    told = r"by agent 'scout', and this is agent 'chief': it works in the background for session 's': wake\(\) that one"
    with pytest.raises(UsageError, match=told):
        await below.wake()
    with pytest.raises(UsageError, match=told):
        await below.resume()


async def test_a_run_whose_agent_the_log_does_not_name_can_be_resumed():
    store = MemoryStore()
    await crashed(store, "s", RunStarted(run_id="r1"), MessageAdded(user("Go."), run_id="r1"))
    clerk = Agent(ScriptedModel("I am the clerk."), name="clerk", store=store)
    assert (await clerk.session("s").resume()).text == "I am the clerk."
