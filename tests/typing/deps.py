"""What type checkers make of `deps`. Checked by mypy, basedpyright, ty and pyrefly, strictly, and never run.

Each line that is refused carries an ignore, and an ignore that nothing needs is an error: so the checkers do refuse it.
"""
# pyright: reportUnnecessaryTypeIgnoreComment=true

from typing import Any, assert_type

from perdure import Agent, Outcome, Overrides, Session, ToolContext, tool


class Ship:
    """What the tools of an agent share."""

    berth: int = 4


@tool
async def berth(context: ToolContext[Ship]) -> int:
    """Where the ship lies."""
    assert_type(context.deps, Ship)
    return context.deps.berth


async def deps_of_an_agent_are_those_of_its_runs() -> None:
    agent = Agent("demo", tools=[berth], deps=Ship())
    assert_type(agent, Agent[Ship])
    assert_type(agent.deps, Ship)
    assert_type(await agent.run("Hi", deps=Ship()), Outcome[Any])
    assert_type(await agent.run("Hi", deps=Ship(), output=int), Outcome[int])
    assert_type(agent.session("ship"), Session[Ship])
    assert_type(await agent.session("ship").fork(), Session[Ship])
    await agent.session("ship").run("Hi", deps=Ship())
    await agent.session("ship").resume(deps=Ship())
    await agent.session("ship").call("berth", {}, deps=Ship())


async def other_deps_are_refused(agent: Agent[Ship], session: Session[Ship]) -> None:
    await agent.run("Hi", deps="a ship")  # type: ignore[call-overload] # ty: ignore[invalid-argument-type]
    agent.run_sync("Hi", deps="a ship")  # type: ignore[call-overload] # ty: ignore[invalid-argument-type]
    agent.stream("Hi", deps="a ship")  # type: ignore[call-overload] # ty: ignore[invalid-argument-type]
    await session.run("Hi", deps=None)  # type: ignore[call-overload] # ty: ignore[invalid-argument-type]
    session.stream("Hi", deps=4)  # type: ignore[call-overload] # ty: ignore[invalid-argument-type]
    await session.resume(deps=4)  # type: ignore[call-overload] # ty: ignore[invalid-argument-type]
    await session.call("berth", {}, deps=4)  # type: ignore[arg-type] # ty: ignore[invalid-argument-type]


async def deps_may_be_given_for_each_run_alone() -> None:
    agent = Agent[Ship]("demo", tools=[berth])
    assert_type(await agent.run("Hi", deps=Ship()), Outcome[Any])
    await agent.run("Hi", deps=4)  # type: ignore[call-overload] # ty: ignore[invalid-argument-type]
    overrides: Overrides[Ship] = {"deps": Ship(), "instructions": "Be brief."}
    await agent.run("Hi", **overrides)


async def whoever_says_nothing_of_deps_is_not_checked(session: Session) -> None:
    await Agent("demo").run("Hi", deps=Ship())
    await session.run("Hi", deps=Ship())
    bare: Agent = Agent("demo", deps=Ship())
    await bare.run("Hi", deps=4)
