"""An approval that takes its time: the run ends as waiting, another process answers, and a third would go on."""

import asyncio
import subprocess
import sys
import tempfile
from pathlib import Path

from perdure import Agent, Permissions, tool
from perdure.models import Request
from perdure.permissions import later
from perdure.testing import ScriptedModel, call


@tool(permission=True, target="order")
async def refund(order: str, crowns: int) -> str:
    """Pay money back."""
    return f"{crowns} crowns for {order} are on their way"


def scripted(request: Request) -> object:
    """Ask for the refund, and then tell what came of it: the same in every process."""
    results = request.messages[-1].tool_results
    return results[0].text if results else call("refund", order="order-7", crowns=250)


def shop(folder: Path) -> Agent:
    """The same agent in every process; what it knows is in the store."""
    return Agent(
        ScriptedModel(scripted, repeat_last=True),
        tools=[refund],
        permission=Permissions(handler=later, expires_seconds=3 * 24 * 3600),
        store=f"sqlite:{folder / 'shop.db'}",
    )


async def agree(folder: Path) -> None:
    """What a person does, days later, in a process that drives nothing."""
    async with shop(folder) as agent:
        session = agent.session("customer-3")
        for question in await session.questions():
            print("somebody reads:", question.text)
            await session.answer(question.ask_id, answer=True)


async def main(folder: Path) -> None:
    async with shop(folder) as agent:
        session = agent.session("customer-3")
        outcome = await session.run("My parcel never came.", input_id="message-1")
        print(f"the run is {outcome.status}; nobody drives the session now")
        subprocess.run([sys.executable, __file__, folder], check=True)  # noqa: S603, ASYNC221 - this very file
        outcome = await session.resume()
        print(f"the run is {outcome.status}: {outcome.text}")


if len(sys.argv) > 1:
    asyncio.run(agree(Path(sys.argv[1])))
else:
    with tempfile.TemporaryDirectory() as temporary:
        asyncio.run(main(Path(temporary)))
