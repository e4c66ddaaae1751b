"""Private runs of engines in a replay: they are taken from the log, and the engine runs again."""

import asyncio

import pytest

from perdure import Agent, tool
from perdure.engines import planner
from tests.doubles import SECONDS
from tests.engines.roles import ENGINES, World, build_agent, play
from tests.replaying.replays import agreeing, agreeing_wherever_it_is_cut, diverging


@pytest.mark.parametrize("engine", ENGINES)
async def test_a_run_of_every_engine_is_replayed_without_its_model_and_its_tools(engine: str) -> None:
    world = World()
    agent = build_agent(engine, world)
    outcome = await agent.session("s").run("Do it")
    await agent.session("s").run("And again")
    done = world.effects.total()
    replayed = await agreeing(agent)
    assert replayed.outcomes[0].text == outcome.text
    assert replayed.outcomes[0].turns == outcome.turns
    assert world.effects.total() == done


@pytest.mark.parametrize("engine", ["planner", "reflect", "chain_of_thought", "autonomous"])
async def test_what_there_is_of_a_run_that_was_cut_off_is_replayed(engine: str) -> None:
    agent = build_agent(engine)
    await agent.session("s").run("Do it")
    await agreeing_wherever_it_is_cut(agent, first=5)  # the first request is entry 5, or comes before


async def test_a_run_that_was_cancelled_in_a_private_run_is_replayed() -> None:
    @tool(effect="read")
    async def note(text: str) -> str:
        """Note a text, which never comes to an end."""
        await session.cancel("now")
        await asyncio.Event().wait()
        return text

    agent = Agent(play(), tools=[note], engine=planner(max_parallel_tasks=1))
    session = agent.session("s")
    async with asyncio.timeout(SECONDS):
        assert (await session.run("Do it")).status == "cancelled"
    await agreeing(agent)


async def test_an_engine_that_asks_for_something_else_is_a_difference() -> None:
    await (agent := build_agent("react", model=play())).session("s").run("Do it")
    found = await diverging(agent.replace(engine="chain_of_thought"))
    assert (found.about, found.now) == ("request", "thought:0")
