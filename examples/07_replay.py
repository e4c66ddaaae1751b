"""Replay: a kept session is a recording. Change the agent, and see where it would do something else.

No model is asked and no tool is called: replies and results come from the log.
"""

import asyncio

from perdure import Agent, Permissions, allow, deny, tool
from perdure.testing import ScriptedModel, call, replay


@tool(permission=True)
async def moor(place: str) -> str:
    """Moor the boat."""
    print(f"(the boat is moored at {place})")
    return f"moored at {place}"


async def main() -> None:
    model = ScriptedModel(call("moor", place="the old pier"), "We are moored.")
    agent = Agent(model, tools=[moor], permission=Permissions(allow("moor")))
    await agent.session("evening").run("Moor the boat at the old pier.")

    replayed = await replay(agent, "evening")
    print("as it was:", "agrees" if replayed.agrees else "differs")

    stricter = agent.replace(permission=Permissions(allow("moor"), deny("moor", target="*old pier*")))
    print("with another rule:", (await replay(stricter, "evening")).divergence)


asyncio.run(main())
