"""Limits of a run, as AgentLIB's reference describes `AgentPolicy`: each is enforced, in every engine."""

import asyncio
from typing import Any

import pytest

from perdure import Agent, Budget, Limits, Outcome, Usage, tool, user
from perdure.engines import Run, handle_tool_calls, react, run_turn
from perdure.models import Price, Request
from perdure.testing import FakeClock, Reply, ScriptedModel, call, calls
from tests.coming_from.outcomes import present, results_of
from tests.coming_from.shows import shows
from tests.doubles import SECONDS, Held, until


@tool(effect="read")
async def look(where: str) -> str:
    """Look somewhere."""
    return f"Nothing in {where}."


@tool(effect="read")
async def dig(where: str) -> str:
    """Dig somewhere."""
    return f"Nothing below {where}."


async def ten_turns(run: Run) -> Outcome[Any]:
    """An engine of one's own that continues the conversation."""
    for _ in range(10):
        await handle_tool_calls(run, await run_turn(run))
    return run.outcome("done")


async def ten_questions(run: Run) -> Outcome[Any]:
    """An engine of one's own that asks the model beside the conversation."""
    for _ in range(10):
        await run.ask_model(Request(messages=[user("And now?")]))
    return run.outcome("done")


ENGINES = pytest.mark.parametrize("engine", [react, ten_turns, ten_questions])

SEARCH = [Reply(calls=[call("look", where=f"room {number}")], usage=Usage(900, 100)) for number in range(10)]
PRICE = Price(input_usd=1_000.0, output_usd=1_000.0)
"""A thousand tokens are a dollar."""


@ENGINES
@pytest.mark.parametrize(
    ("limits", "reason", "turns"),
    [
        (Limits(max_turns=3), "max_turns", 3),
        (Limits(token_budget=2_000), "token_budget", 2),
        (Limits(max_cost_usd=4.0), "max_cost", 4),
    ],
)
@shows("agentlib", "AgentPolicy", "AgentPolicy.maxSteps", "AgentPolicy.tokenBudget", "AgentPolicy.maxCost")
async def test_steps_tokens_and_cost_are_limited_in_every_engine_and_the_work_is_kept(engine, limits, reason, turns):
    model = ScriptedModel(*SEARCH, price=PRICE)
    outcome = await Agent(model, tools=[look], engine=engine, limits=limits).run("Find it.")
    assert (outcome.status, outcome.reason, len(model.requests)) == ("limit", reason, turns)
    assert (outcome.usage.total_tokens, outcome.cost_usd) == (turns * 1_000, float(turns))
    assert len(outcome.steps) == turns


@shows("agentlib", "AgentPolicy.maxCost", "AgentPolicy.tokenBudget")
async def test_the_reply_that_uses_up_a_budget_is_still_the_answer():
    for limits in (Limits(token_budget=500), Limits(max_cost_usd=0.5)):
        model = ScriptedModel(Reply("Here it is.", usage=Usage(900, 100)), price=PRICE)
        outcome = await Agent(model, limits=limits).run("Find it.")
        assert (outcome.status, outcome.text) == ("done", "Here it is.")


@shows("agentlib", "AgentPolicy", "AgentPolicy.maxCost")
async def test_the_cost_that_a_provider_reports_counts_and_a_budget_is_shared_by_several_runs():
    reported = [
        Reply(calls=[call("look", where=f"{number}")], usage=Usage(9, 1, reported_usd=2.0)) for number in range(5)
    ]
    outcome = await Agent(ScriptedModel(*reported, price=PRICE), tools=[look], limits=Limits(max_cost_usd=3.0)).run(
        "Go"
    )
    assert (outcome.reason, outcome.cost_usd, outcome.is_cost_reported) == ("max_cost", 4.0, True)
    budget = Budget(token_budget=1_500)
    agents = [Agent(ScriptedModel(*SEARCH), tools=[look], budget=budget) for _ in range(2)]
    first, second = [await agent.run("Find it.") for agent in agents]
    assert {(first.status, first.reason), (second.status, second.reason)} == {("limit", "budget")}
    assert first.usage.total_tokens + second.usage.total_tokens <= 2_500


@ENGINES
@shows("agentlib", "AgentPolicy.timeout")
async def test_a_run_ends_at_its_timeout_in_every_engine(engine):
    clock, never = FakeClock(), asyncio.Event()
    agent = Agent(ScriptedModel([never]), engine=engine, limits=Limits(timeout_seconds=90), clock=clock)
    running = asyncio.ensure_future(agent.run("Wait."))
    async with asyncio.timeout(SECONDS):
        await until(lambda: clock.pending)
        await clock.advance(89)
        assert not running.done()
        await clock.advance(1)
        outcome = await running
    assert (outcome.status, outcome.reason) == ("limit", "timeout")


async def calling(run: Run) -> Outcome[Any]:
    """An engine of one's own that calls tools by itself."""
    run.output = [result.text for result in await run.call_tools([("dig", {"where": "a"}), ("look", {"where": "b"})])]
    return run.outcome("done")


@shows("agentlib", "AgentPolicy.allowedTools")
async def test_only_the_tools_on_the_list_are_offered_and_run():
    model = ScriptedModel(calls(call("dig", where="a"), call("look", where="b")), "Done.")
    agent = Agent(model, tools=[look, dig], limits=Limits(allowed_tools=("look",)))
    outcome = await agent.run("Find it.")
    assert [each.name for each in model.requests[0].tools] == ["look"]
    refused, looked = results_of(outcome)
    assert refused.is_error
    assert looked.text == "Nothing in b."
    refusal, found = present((await agent.replace(engine=calling).run("Find it.")).output)
    assert "dig" in refusal
    assert found == "Nothing in b."


@shows("agentlib", "AgentPolicy.maxParallelTools")
async def test_no_more_tools_than_allowed_run_at_the_same_time():
    held = [Held(f"held_{number}", effect="read") for number in range(3)]
    model = ScriptedModel(calls(*[call(f"held_{number}") for number in range(3)]), "Done.")
    agent = Agent(model, tools=[each.tool for each in held], limits=Limits(max_parallel_tools=2))
    running = asyncio.ensure_future(agent.run("All of them."))
    async with asyncio.timeout(SECONDS):
        await held[0].started.wait()
        await held[1].started.wait()
        assert not held[2].started.is_set()
        held[0].released.set()
        await held[2].started.wait()
        for each in held:
            each.released.set()
        assert (await running).text == "Done."
