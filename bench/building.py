"""What it costs to describe an agent, which programs do for every request they serve."""

import asyncio
from collections.abc import Iterator

from perdure import Agent, tool
from perdure.models import Model
from perdure.testing import ScriptedModel

from .measure import Effort, Figure, best_us
from .turns import ADD, add, hand_turn


def figures(effort: Effort) -> Iterator[Figure]:
    """Building an agent whose tool is there already, and making that tool."""
    model: Model = ScriptedModel("done")
    turn = asyncio.run(hand_turn(effort))
    built = best_us(lambda: Agent(model, tools=[ADD]), effort)
    yield Figure(
        "building an agent",
        built,
        "us",
        "`Agent(model, tools=[add])`, with a tool that was decorated before; CPU, the best of many readings",
        budget=10,
        ratio=built / turn,
    )
    made = best_us(lambda: tool(add), effort._replace(calls=max(1, effort.calls // 20)))
    yield Figure(
        "decorating a tool",
        made,
        "us",
        "`@tool`: reads signature, type hints and docstring, and makes the schema and the validator; once a tool",
        ratio=made / turn,
    )
