"""An agent described as a class, and deps that differ from run to run and have a type."""

import asyncio

from perdure import Limits, ToolContext, agent_of, tool
from perdure.testing import ScriptedModel, call


class Guest:
    """Who asks; another one in each run."""

    def __init__(self, ship: str) -> None:
        self.ship = ship


class Harbour:
    """You look after the berths of a harbour. Be brief."""

    limits = Limits(max_turns=5)

    def __init__(self, *free: int) -> None:
        self.free = list(free)

    @tool(effect="read")
    def berths(self) -> list[int]:
        """Which berths are free."""
        return self.free

    @tool
    async def book(self, context: ToolContext[Guest]) -> str:
        """Book a berth for whoever asks."""
        return f"{context.deps.ship} lies at berth {self.free.pop(0)}"


async def main() -> None:
    harbour = Harbour(4, 5, 6)
    model = ScriptedModel(call("book"), "Welcome.", call("book"), "Welcome, too.")
    agent = agent_of(harbour, model)
    print(f"{agent.name}: {agent.instructions}")
    print("it can", ", ".join(each.name for each in agent.tools))
    for ship in ("Sea Cat", "Albatross"):
        outcome = await agent.run("A berth, please.", deps=Guest(ship))
        print(outcome.messages[2].tool_results[0].text, "-", outcome.text)
    print("free:", harbour.free)


asyncio.run(main())
