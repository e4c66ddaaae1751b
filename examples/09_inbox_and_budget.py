"""Waiting without a run, and a shared budget: an answer from outside wakes the session, and eight runs share tokens."""

import asyncio

from perdure import Agent, Budget, Settings, ToolContext, Usage, tool
from perdure.testing import Reply, ScriptedModel, call


@tool
async def order(what: str, context: ToolContext) -> str:
    """Order something from the chandler. It is delivered later."""
    return "ordered under " + await context.add_to_inbox("delivery", what, wake=True)


async def deliveries() -> None:
    model = ScriptedModel(call("order", what="40 metres of rope"), "Ordered.", "The rope is here.")
    session = Agent(model, tools=[order]).session("supplies")
    print("the agent:", (await session.run("We need rope.")).text)
    (item,) = await session.inbox()
    print(f"hours later: {item.tag} of {item.request!r} is {item.status}")
    await session.resolve(item.item_id, {"metres": 40})
    async for outcome in session.attend():
        print("the agent:", outcome.text)
        break


async def shared_budget() -> None:
    budget = Budget(token_budget=6_000)
    model = ScriptedModel(Reply("Aye.", usage=Usage(60, 900)), repeat_last=True)
    crew = [Agent(model, budget=budget, settings=Settings(max_output_tokens=1000)) for _ in range(8)]
    for sailor in crew:
        outcome = await sailor.run("Ready?")
        print(f"{outcome.status:5} {outcome.reason or outcome.text:8} {budget}")


async def main() -> None:
    await deliveries()
    await shared_budget()


asyncio.run(main())
