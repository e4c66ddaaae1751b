"""Chain of thought, autonomous work, and passing through."""

import asyncio
from typing import Any

import pytest

from perdure import Agent, ConfigError, Limits, ProviderDown, Status
from perdure._engines.autonomous import NUDGE_ORIGIN
from perdure._engines.passthrough import NO_TOOLS_REASON
from perdure._tools import extensions
from perdure.engines import autonomous, chain_of_thought
from perdure.events import RunEnded, ThinkingDelta, ToolFinished
from perdure.testing import Recorder, ScriptedModel, call, calls
from tests.doubles import SECONDS
from tests.engines.roles import World, build_agent, play, said


async def test_a_thought_comes_first_and_is_no_part_of_the_conversation() -> None:
    seen, model = Recorder(), play()
    outcome = await build_agent("chain_of_thought", model=model, watchers=[seen]).run("Do it")
    assert said(outcome.new_messages) == [("user", "Do it"), ("assistant", "A draft.")]
    assert [(each.text, each.path) for each in seen.of(ThinkingDelta)] == [("First I note, then I answer.", "")]
    assert all("First I note" in each.messages[-1].text for each in model.requests[1:])
    assert not model.requests[0].tools


async def test_without_a_thought_the_model_answers_nevertheless() -> None:
    model = play(thought=lambda _: ProviderDown("down"))
    outcome = await build_agent("chain_of_thought", model=model).run("Do it")
    assert (outcome.status, outcome.text) == ("done", "A draft.")
    with pytest.raises(ConfigError, match="prompt"):
        chain_of_thought(prompt=" ")


async def test_earlier_tool_calls_are_told_as_text_where_no_tools_are_offered() -> None:
    model = play()
    session = build_agent("react", model=model).session("s")
    await session.run("Do it")
    await session.run("Think", engine="chain_of_thought")
    thought = next(each for each in model.requests if "Think about" in each.messages[-1].text)
    assert not any(each.tool_calls or each.tool_results for each in thought.messages)
    words = [each.text for each in thought.messages]
    assert '[called note with {"text":"step 1"}]' in words
    assert "[note returned (ok): noted step 1]" in words
    before = len(model.requests)
    await session.run("Pass", engine="passthrough")
    assert not any(each.tool_calls or each.tool_results for each in model.requests[before].messages)


async def test_finishing_ends_the_run_and_other_calls_of_the_reply_get_results() -> None:
    seen, world = Recorder(), World()
    outcome = await build_agent("autonomous", world, watchers=[seen]).run("Do it")
    assert (outcome.status, outcome.text) == ("done", "All is done.")
    assert world.effects == {"step 1": 1, "step 2": 1, "last": 1}
    assert [(each.name, each.result.status) for each in seen.of(ToolFinished)][-2:] == [
        ("note", Status.OK),
        ("finish", Status.OK),
    ]
    assert [each.role for each in outcome.new_messages][-3:] == ["assistant", "tool", "assistant"]
    assert seen.of(RunEnded)[0].status == "done"


async def test_a_model_that_only_talks_is_asked_to_go_on_and_then_believed() -> None:
    model = ScriptedModel("Working on it.", call("finish", result="Now."))
    outcome = await Agent(model, engine="autonomous").run("Do it")
    assert (outcome.text, [each.origin for each in outcome.new_messages][2]) == ("Now.", NUDGE_ORIGIN)
    talker = ScriptedModel("Working on it.", repeat_last=True)
    outcome = await Agent(talker, engine=autonomous(max_nudges=1)).run("Do it")
    assert (outcome.status, outcome.text, outcome.turns) == ("done", "Working on it.", 2)


async def test_a_model_is_asked_to_go_on_twice_unless_another_number_is_given_and_anew_in_each_run() -> None:
    session = Agent(ScriptedModel("Working on it.", repeat_last=True), engine="autonomous").session("s")
    assert [(await session.run("Do it")).turns for _ in range(2)] == [3, 3]
    at_once = Agent(ScriptedModel("Working on it."), engine=autonomous(max_nudges=0))
    assert (await at_once.run("Do it")).turns == 1


async def test_an_empty_result_is_refused() -> None:
    model = ScriptedModel(call("finish", result=" "), call("finish", result="Now."))
    outcome = await Agent(model, engine="autonomous").run("Do it")
    assert (outcome.text, outcome.turns) == ("Now.", 2)


async def test_the_finish_tool_can_be_named_and_is_there_beside_allowed_tools() -> None:
    model = ScriptedModel(call("submit", result="Here."))
    engine = autonomous(finish_tool="submit", finish_description="Hand it in.")
    outcome = await build_agent(engine, model=model, limits=Limits(allowed_tools=("note",))).run("Do it")
    assert outcome.text == "Here."
    assert [each.name for each in model.requests[0].tools] == ["note", "submit"]
    options: dict[str, Any]
    for options in ({"finish_tool": ""}, {"finish_description": ""}, {"max_nudges": -1}):
        with pytest.raises(ConfigError, match=next(iter(options))):
            autonomous(**options)


async def test_a_stop_condition_of_the_agent_still_applies() -> None:
    agent = build_agent("autonomous", stop=lambda step: bool(step.calls))
    outcome = await agent.run("Do it")
    assert (outcome.status, outcome.reason, outcome.turns) == ("stopped", "stop_condition", 1)


async def test_the_finish_tool_stays_after_a_handoff() -> None:
    other = Agent(ScriptedModel(call("finish", result="Handed over.")), name="other")
    model = ScriptedModel(call("hand_over_to_other", message="Go on."))
    outcome = await Agent(model, handoffs=[other], engine="autonomous").run("Do it")
    assert (outcome.status, outcome.text) == ("done", "Handed over."), outcome.error


@pytest.mark.parametrize("threshold", [0, 20])
async def test_the_finish_tool_is_offered_beside_a_search_for_tools(threshold: int) -> None:
    model = ScriptedModel(call("finish", result="All is done."))
    search = extensions.tool_search(threshold=threshold)
    outcome = await build_agent("autonomous", model=model, extensions=[search]).run("Do it")
    assert (outcome.status, outcome.text) == ("done", "All is done.")
    offered = {each.name: each for each in model.requests[0].tools}
    assert "finish" in offered
    assert ("load_tools" in offered) == (threshold == 0)
    assert not any("finish" in each.description for each in offered.values() if each.name != "finish")


async def test_passing_through_asks_once_and_offers_no_tools() -> None:
    model = play()
    outcome = await build_agent("passthrough", model=model).run("Do it")
    assert (outcome.status, outcome.turns, list(model.requests[0].tools)) == ("done", 1, [])
    insisting = ScriptedModel(calls(call("note", text="x"), call("nothing")))
    world = World()
    outcome = await build_agent("passthrough", world, model=insisting).run("Do it")
    assert (outcome.status, outcome.reason, outcome.turns) == ("stopped", NO_TOOLS_REASON, 1)
    assert [each.status for each in outcome.messages[-1].tool_results] == [Status.ERROR, Status.ERROR]
    assert not world.effects


async def test_a_message_that_was_queued_while_the_model_finished_is_worked_on_next() -> None:
    async def finish_first(_request: Any) -> Any:
        await session.follow_up("Also this")
        return call("finish", result="One.")

    model = ScriptedModel(finish_first, call("finish", result="Two."))
    session = Agent(model, engine="autonomous").session("s")
    async with asyncio.timeout(SECONDS):
        outcome = await session.run("Do it")
    assert (outcome.status, outcome.text, outcome.turns) == ("done", "Two.", 2)
    assert said(outcome.new_messages) == [
        ("user", "Do it"),
        ("assistant", "One."),
        ("user", "Also this"),
        ("assistant", "Two."),
    ]
