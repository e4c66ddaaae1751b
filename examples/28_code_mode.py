"""Code mode: the model writes a program that calls the agent's tools; a rule stops one of its calls."""

import asyncio

from perdure import Agent, Permissions, deny, tool
from perdure.events import ToolFinished
from perdure.testing import ScriptedModel, call
from perdure.tools import code_mode

SHIPS = {"Ann": 12, "Bee": 7, "Cod": 31}

PROGRAM = """
import asyncio

names = await list_ships()
ages = await asyncio.gather(*[find_age(ship=name) for name in names])
old = [name for name, age in zip(names, ages) if age > 10]
for name in old:
    try:
        await scrap(ship=name)
    except PermissionError as error:
        print(name, "was not scrapped:", error)
old
"""


@tool(effect="read")
async def list_ships() -> list[str]:
    """Return the names of all ships."""
    return list(SHIPS)


@tool(effect="read")
async def find_age(ship: str) -> int:
    """Return the age of a ship in years."""
    return SHIPS[ship]


@tool
async def scrap(ship: str) -> str:
    """Scrap a ship."""
    del SHIPS[ship]
    return "scrapped"


async def main() -> None:
    model = ScriptedModel(call("run_program", code=PROGRAM), "Ann and Cod are old, and may not be scrapped.")
    agent = Agent(
        model,
        tools=[list_ships, find_age, scrap],
        extensions=[code_mode(hide_tools=True)],
        permission=Permissions(deny("scrap")),
    )
    async with agent:
        outcome = await agent.session().run("Scrap the ships that are older than ten years.")
    print("sent to the model:", [each.name for each in model.requests[0].tools])
    for entry in outcome.entries:
        if isinstance(entry.event, ToolFinished):
            print(entry.event.name, entry.event.result.status)
    print(outcome.messages[2].tool_results[0].text)
    print(outcome.text)
    print("ships left:", len(SHIPS))


if __name__ == "__main__":
    asyncio.run(main())
