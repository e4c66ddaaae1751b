"""An extension that knows something: a skill with its tool, a command, a role, and text that changes each turn."""

import asyncio

from perdure import Agent, CommandContext, Extension, tool
from perdure.context import Command, Role, ShortCircuit, Skill
from perdure.testing import ScriptedModel, call


@tool(effect="read")
async def tide(port: str) -> str:
    """When the tide turns in a port."""
    return f"in {port} at 16:40"


def seamanship() -> Extension:
    """What a sailor knows."""

    async def bearings(_context: CommandContext) -> ShortCircuit:
        return ShortCircuit("59.91 N, 10.75 E")  # nobody has to ask a model for that

    return Extension(
        name="seamanship",
        skills=[
            Skill(
                name="harbours",
                description="How to come into a harbour and when to leave it.",
                body="Always look up the tide before you answer.",
                tools=(tide,),  # offered once the skill is loaded
            )
        ],
        commands=[Command("bearings", bearings, "Where we are.")],
        roles=[Role("mate", "You speak for the captain, and briefly.")],
        reminders=[lambda run: f"This is turn {run.state.turns + 1} of the watch."],
    )


async def main() -> None:
    model = ScriptedModel(call("skill", name="harbours"), call("tide", port="Oslo"), "We leave at 16:40.")
    agent = Agent(model, extensions=[seamanship()], role="mate")
    session = agent.session("watch")
    print("a command answers:", (await session.run("/bearings please")).text)
    outcome = await session.run("When do we leave Oslo?")
    print("the mate:", outcome.text)
    for request in model.requests:
        print([each.name for each in request.tools], "|", request.messages[-1].text)


asyncio.run(main())
