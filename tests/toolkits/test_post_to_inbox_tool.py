"""The tool by which a model asks the outside world."""

import pytest

from perdure import Agent
from perdure.testing import ScriptedModel, call
from perdure.tools import post_to_inbox


@pytest.mark.parametrize(("blocking", "advice"), [(True, "Do not go on"), (False, "need not wait")])
async def test_a_model_asks_and_is_told_the_answer_when_it_has_come(blocking, advice):
    model = ScriptedModel(
        call("post_to_inbox", tag="build", request="Build main", blocking=blocking), "Asked.", "Green."
    )
    session = Agent(model, tools=[post_to_inbox]).session("s")
    outcome = await session.run("Is main green?")
    (item,) = await session.inbox()
    assert (item.tag, item.request, item.blocking, item.wake) == ("build", "Build main", blocking, True)
    told = outcome.messages[2].tool_results[0].text
    assert item.item_id in told
    assert advice in told
    await session.resolve(item.item_id, "green")
    woken = await session.wake()
    assert woken is not None
    assert woken.text == "Green."


async def test_a_request_does_not_block_unless_the_model_says_so() -> None:
    model = ScriptedModel(call("post_to_inbox", tag="build", request="Build main"), "Asked.")
    session = Agent(model, tools=[post_to_inbox]).session("s")
    outcome = await session.run("Is main green?")
    (item,) = await session.inbox()
    assert not item.blocking
    assert outcome.messages[2].tool_results[0].text == (
        f"Asked for, as item {item.item_id}. You will receive the answer when it arrives. You need not wait for it."
    )
