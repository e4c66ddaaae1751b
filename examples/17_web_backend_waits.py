"""A web backend whose requests return while a question is open; another process answers days later, and goes on.

The two handlers are functions, as any web framework would call them. Between them there is only the database: the
second one runs in a process of its own, which has never seen the first.
"""

import asyncio
import json
import subprocess
import sys
import tempfile
from typing import Any

from perdure import Agent, Outcome, Permissions, ToolContext, tool
from perdure.people import Choice
from perdure.permissions import later
from perdure.testing import ScriptedModel, call


@tool(asks_first=True, permission=True, action="pay", target="order")
async def refund(order: str, context: ToolContext) -> str:
    """Pay money back."""
    amount = await context.ask(Choice(f"How much of {order}?", ["half", "all"]))
    await context.begin()
    return f"{amount} of {order} is paid back"


def reply(request: Any) -> Any:
    results = request.messages[-1].tool_results
    return results[0].text if results else call("refund", order="order-7")


def agent(database: str) -> Agent[None]:
    """The same in every process."""
    model = ScriptedModel(reply, repeat_last=True)
    return Agent(model, tools=[refund], permission=Permissions(handler=later), store=f"sqlite:{database}")


async def post_message(database: str, customer: str, text: str) -> dict[str, Any]:
    """POST /customers/…/messages: say something to the agent."""
    async with agent(database) as backend:
        session = backend.session(customer)
        return await page(session, await session.run(text))


async def post_answer(database: str, customer: str, slot_id: str, value: Any) -> dict[str, Any]:
    """POST /customers/…/slots/…: answer what is open. The value is what the browser sent as JSON."""
    async with agent(database) as backend:
        session = backend.session(customer)
        if not await session.display.resolve(slot_id, value):
            return {"status": "too late"}
        return await page(session, await session.resume())


async def page(session: Any, outcome: Outcome[Any]) -> dict[str, Any]:
    """What a browser is told: how it stands, and what it has to show."""
    slots = [
        {"slot_id": slot.slot_id, "renderer": slot.renderer, "text": slot.text, "input": slot.input}
        for slot in await session.display.slots()
    ]
    return {"status": outcome.status, "text": outcome.text, "slots": slots}


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        database = f"{folder}/shop.db"
        seen = asyncio.run(post_message(database, "ann", "My parcel never came."))
        for day, answer in (("Tuesday", {"allow": True, "scope": "session"}), ("Friday", "all")):
            (slot,) = seen["slots"]
            print(f"{seen['status']}: {slot['renderer']}, {slot['text']}")
            if slot["renderer"] == "permission":
                print(f"  a yes for the session could cover {slot['input']['calls'][0]['offers'][-1]['matches']}")
            print(f"{day}, in another process: {answer}")
            command = [sys.executable, __file__, database, slot["slot_id"], json.dumps(answer)]
            done = subprocess.run(command, capture_output=True, check=True)  # noqa: S603 - this very file
            seen = json.loads(done.stdout)
        print(f"{seen['status']}: {seen['text']}")


if __name__ == "__main__":
    if sys.argv[1:]:
        database, slot_id, value = sys.argv[1:]
        print(json.dumps(asyncio.run(post_answer(database, "ann", slot_id, json.loads(value)))))
    else:
        main()
