"""Ask people while a tool runs: choices, forms, things that are only shown, and answers from another process.

The tool asks before it does anything (`asks_first`), so while it waits nothing is kept in memory: each answer could
come days later, and from another machine that sees the same store.
"""

import asyncio
from dataclasses import dataclass

from perdure import Agent, ConfigError, NotAnswered, Session, ToolContext, tool
from perdure.people import Choice, Confirm, Form, Progress, Table
from perdure.testing import ScriptedModel, call


@dataclass
class Guest:
    """Who travels."""

    name: str
    age: int


@tool(asks_first=True)
async def book_cabin(ship: str, context: ToolContext) -> str:
    """Book a cabin on a ship."""
    await context.display.push(Table(["cabin", "price"], [["inside", 90], ["with a view", 140]]), until="run")
    cabin = await context.ask(Choice("Which cabin?", ["inside", "with a view"]))
    guest = await context.ask(Form("Who travels?", Guest))
    try:
        dinner = await context.ask(Confirm("Dinner on board?"), timeout_seconds=24 * 3600)
    except NotAnswered:
        dinner = False
    await context.begin()  # up to here the tool may be called any number of times, from here on once
    bar = await context.display.push(Progress("booking", 0, 2), until="call")
    await context.display.update(bar, Progress("booking", 2, 2))
    return f"{ship}: {cabin} for {guest.name} ({guest.age}), {'with' if dinner else 'without'} dinner"


async def main() -> None:
    model = ScriptedModel(call("book_cabin", ship="Fram"), "Have a good journey!")
    session = Agent(model, tools=[book_cabin]).session()
    outcome = await session.run("Book me a cabin on the Fram.")
    answers = {
        "choice": "with a view",
        "form": {"name": "Ann", "age": 41},
        "confirm": None,  # they do not say
    }
    while outcome.status == "waiting":
        *shown, asked = await session.display.slots()
        print(f"on the screen: {[slot.renderer for slot in shown]}; asked, as a {asked.renderer}: {asked.text}")
        if (answer := answers[asked.renderer]) is None:
            await session.display.reject(asked.slot_id, "they have left")
        else:
            await try_nonsense(session, asked.slot_id)
            await session.display.resolve(asked.slot_id, answer)
        outcome = await session.resume()
    print(outcome.messages[2].tool_results[0].text)
    print(outcome.text)


async def try_nonsense(session: Session, slot_id: str) -> None:
    """What does not fit is refused where it is given, and the question stays open."""
    try:
        await session.display.resolve(slot_id, {"name": 5})
    except ConfigError as error:
        print(f"  refused: {error}")


asyncio.run(main())
