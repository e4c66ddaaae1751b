"""Agents as tools: two at the same time, in one log and on one bill; and their questions, answered later."""

import asyncio
import tempfile
from pathlib import Path

from perdure import Agent, Permissions, tool
from perdure.events import SubagentFinished, SubagentStarted, ToolFinished
from perdure.models import Request
from perdure.permissions import later
from perdure.testing import ScriptedModel, call, calls


@tool(permission=True, target="harbour")
async def reserve(harbour: str) -> str:
    """Reserve a berth."""
    return f"reserved in {harbour}"


def pilot_says(request: Request) -> object:
    """Reserve where the task says, and then tell what came of it."""
    results = request.messages[-1].tool_results
    return results[0].text if results else call("reserve", harbour=request.messages[0].text.split()[-1])


def captain_says(request: Request) -> object:
    """Ask two pilots at once."""
    results = request.messages[-1].tool_results
    if results:
        return " and ".join([result.text for result in results])
    return calls(call("pilot", task="Get us a berth in Hull"), call("pilot", task="Get us a berth in Oslo"))


def captain(folder: Path) -> Agent:
    """The same agents in every process; what they know is in the store."""
    pilot = Agent(ScriptedModel(pilot_says, repeat_last=True), name="pilot", tools=[reserve])
    return Agent(
        ScriptedModel(captain_says, repeat_last=True),
        tools=[pilot.as_tool()],
        permission=Permissions(handler=later),  # the pilots have none of their own, so it is theirs too
        store=f"sqlite:{folder / 'ship.db'}",
    )


async def main(folder: Path) -> None:
    async with captain(folder) as agent:
        outcome = await agent.session("voyage").run("Find us places for the summer.")
        print(
            f"the run is {outcome.status}: {[question.path for question in outcome.questions]} want to know something"
        )

    async with captain(folder) as agent:  # days later, in another process
        session = agent.session("voyage")
        for question in await session.questions():
            print(question.text)
            await session.answer(question.ask_id, answer=True)
        outcome = await session.resume()
        print(outcome.text)
        print(f"{outcome.usage.total_tokens} tokens, those of the pilots included")
        for entry in await agent.store.read("voyage"):
            event = entry.event
            if isinstance(event, SubagentStarted):
                print(f"{event.name} was given: {event.prompt}")
            elif isinstance(event, (SubagentFinished, ToolFinished)):
                print(f"{event.path or 'captain':14} {type(event).__name__}")


with tempfile.TemporaryDirectory() as temporary:
    asyncio.run(main(Path(temporary)))
