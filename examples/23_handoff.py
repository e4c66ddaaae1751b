"""Handing a conversation over: another agent goes on with it, gives it back, and a restart changes nothing."""

import asyncio
import tempfile
from pathlib import Path

from perdure import Agent, tool
from perdure.events import ViewChanged
from perdure.models import Request
from perdure.testing import ScriptedModel, call


@tool
async def refund(order: str) -> str:
    """Pay money back."""
    return f"{order} is paid back"


def desk_says(request: Request) -> object:
    """What is about money is for billing; the rest is answered here."""
    last = request.messages[-1]
    if "money" in last.text:
        return call("hand_over_to_billing", message="It is about order 7.")
    return "This is the front desk. What else can we do for you?"


def billing_says(request: Request) -> object:
    """Pay, and give everything else back."""
    last = request.messages[-1]
    if last.role == "user":
        return call("hand_over_to_desk")
    if last.tool_results[0].name == "refund":
        return f"This is billing: {last.tool_results[0].text}."
    return call("refund", order="order 7")


def desk(folder: Path) -> Agent:
    """The same two agents in every process."""
    billing = Agent(
        ScriptedModel(billing_says, repeat_last=True),
        name="billing",
        description="Pays money back.",
        instructions="You are billing.",
        tools=[refund],
    )
    return Agent(
        ScriptedModel(desk_says, repeat_last=True),
        name="desk",
        instructions="You are the front desk.",
        handoffs=[billing],
        store=f"sqlite:{folder / 'shop.db'}",
    )


async def main(folder: Path) -> None:
    for prompt in ("I want my money.", "Thank you. And when do you open?"):
        async with desk(folder) as agent:  # another process each time
            print("customer:", prompt)
            print((await agent.session("customer-3").run(prompt)).text)

    async with desk(folder) as agent:
        entries = await agent.store.read("customer-3")
        causes = [entry.event.cause for entry in entries if isinstance(entry.event, ViewChanged)]
        print("what was sent began differently because of", ", ".join(causes))


with tempfile.TemporaryDirectory() as temporary:
    asyncio.run(main(Path(temporary)))
