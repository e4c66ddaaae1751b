"""The agents that plan and check: copies of another agent that can only read."""

import pytest

from perdure import Agent, Limits, tool
from perdure._work.goals.roles import (
    CHECKER_INSTRUCTIONS,
    PLANNER_INSTRUCTIONS,
    build_checker,
    build_planner,
    limit_seconds,
)


@tool(effect="read")
def look() -> str:
    """Look."""
    return "seen"


@tool
def repair() -> str:
    """Repair."""
    return "repaired"


@pytest.mark.parametrize(("own", "added"), [("", ""), ("Mind the paint.", "\nMind the paint.")])
def test_roles_have_their_instructions_then_those_of_the_agent_and_only_tools_that_read(own: str, added: str) -> None:
    agent = Agent("demo", instructions=own, tools=[look, repair], limits=Limits(max_turns=7))
    planner, checker = build_planner(agent), build_checker(agent)
    assert [planner.name, checker.name] == ["planner", "checker"]
    texts = (PLANNER_INSTRUCTIONS, CHECKER_INSTRUCTIONS)
    assert [planner.instructions, checker.instructions] == [f"{each}{added}" for each in texts]
    for role in (planner, checker):
        assert role.limits == Limits(max_turns=7, allowed_tools=("look",))


def test_a_role_may_use_no_tool_that_the_agent_may_not() -> None:
    for allowed, readable in ((("look", "repair"), ("look",)), (("repair",), ())):
        agent = Agent("demo", tools=[look, repair], limits=Limits(allowed_tools=allowed))
        assert build_planner(agent).limits.allowed_tools == build_checker(agent).limits.allowed_tools == readable


@pytest.mark.parametrize(
    ("own", "seconds", "limit"),
    [(None, None, None), (5.0, None, 5.0), (None, 3.0, 3.0), (5.0, 3.0, 3.0), (2.0, 3.0, 2.0), (None, 0.0, 0.001)],
)
def test_the_time_of_a_role_is_at_most_that_of_the_goal(
    own: float | None, seconds: float | None, limit: float | None
) -> None:
    limits = Limits(max_turns=7, timeout_seconds=own)
    assert limit_seconds(limits, seconds) == Limits(max_turns=7, timeout_seconds=limit)
